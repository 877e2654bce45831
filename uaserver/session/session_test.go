package session

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ends collects what a Set tells its owner.
type ends struct {
	mu   sync.Mutex
	list []string
}

func (e *ends) end(s *Session, why Reason, deleteSubscriptions bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf("%s %s %v", s.Peer.Name, why, deleteSubscriptions))
}

func (e *ends) got() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprint(e.list)
}

var limits = Limits{Sessions: 3, MinTimeout: 10 * time.Second, MaxTimeout: time.Minute, Activation: 5 * time.Second}

func create(t *testing.T, set *Set, channel uint32, asked time.Duration, name string) *Session {
	t.Helper()
	s, err := set.Create(channel, asked, Peer{Name: name}, nil)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return s
}

func activate(t *testing.T, s *Session, channel uint32) {
	t.Helper()
	if _, err := s.Activate(channel, nil); err != nil {
		t.Fatalf("activate %s: %v", s.Peer.Name, err)
	}
}

func TestRevisedTimeout(t *testing.T) {
	set := New(limits, nil)
	defer set.Stop()
	for _, row := range []struct {
		name        string
		asked, want time.Duration
	}{
		{"5.6.2 zero lets the server choose", 0, 10 * time.Second},
		{"too short", time.Millisecond, 10 * time.Second},
		{"within bounds", 20 * time.Second, 20 * time.Second},
		{"too long", 1 << 62, time.Minute},
	} {
		s := create(t, set, 1, row.asked, row.name)
		if s.Timeout != row.want {
			t.Errorf("%s: %v, want %v", row.name, s.Timeout, row.want)
		}
		set.Close(s, true)
	}
}

func TestTokens(t *testing.T) {
	set := New(Limits{Sessions: 1000, MinTimeout: time.Minute, MaxTimeout: time.Minute}, nil)
	defer set.Stop()
	seen := map[string]bool{}
	for i := range 1000 {
		s := create(t, set, 1, 0, "")
		nonce := string(s.Nonce())
		if len(s.Token) != tokenSize || len(nonce) != NonceSize || s.ID == 0 {
			t.Fatalf("token of %d bytes, nonce of %d, id %d", len(s.Token), len(nonce), s.ID)
		}
		if seen[s.Token] || seen[nonce] || seen[fmt.Sprint(s.ID)] {
			t.Fatalf("C6: session %d repeats a token, a nonce or an id", i)
		}
		seen[s.Token], seen[nonce], seen[fmt.Sprint(s.ID)] = true, true, true
		if set.Find(s.Token) != s {
			t.Fatal("not found by its token")
		}
	}
	if set.Find("") != nil || set.Find("guess") != nil {
		t.Error("found by another token")
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		set := New(limits, e.end)
		idle := create(t, set, 1, 10*time.Second, "idle")
		activate(t, idle, 1)
		busy := create(t, set, 1, 10*time.Second, "busy")
		activate(t, busy, 1)
		never := create(t, set, 1, 10*time.Second, "never")
		for range 6 {
			time.Sleep(4 * time.Second)
			set.Find(busy.Token)
			set.Find(never.Token) // asking does not prolong what is not activated
		}
		synctest.Wait()
		if got, want := e.got(), "[never timed out false idle timed out false]"; got != want {
			t.Errorf("ended %s, want %s", got, want)
		}
		if set.Find(idle.Token) != nil || set.Find(busy.Token) != busy {
			t.Error("the idle one is to be gone, the busy one not")
		}
		if _, err := idle.Activate(1, nil); !errors.Is(err, ErrEnded) {
			t.Errorf("activate a dead session: %v", err)
		}
		set.Stop()
		if got, want := e.got(), "[never timed out false idle timed out false busy shutdown true]"; got != want {
			t.Errorf("ended %s, want %s", got, want)
		}
		if _, err := set.Create(1, 0, Peer{}, nil); !errors.Is(err, ErrEnded) {
			t.Errorf("create after Stop: %v", err)
		}
		if c := set.Counts(); c != (Counts{Current: 0, Total: 3, TimedOut: 2}) {
			t.Errorf("counts %+v", c)
		}
	})
}

func TestFull(t *testing.T) {
	var e ends
	set := New(limits, e.end)
	defer set.Stop()
	for i := range 2 {
		activate(t, create(t, set, 1, 0, fmt.Sprint("active", i)), 1)
	}
	create(t, set, 1, 0, "waiting")
	late := create(t, set, 2, 0, "late")
	if got, want := e.got(), "[waiting never activated true]"; got != want {
		t.Errorf("ended %s, want %s", got, want)
	}
	activate(t, late, 2)
	if _, err := set.Create(3, 0, Peer{}, nil); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth active session: %v", err)
	}
	if c := set.Counts(); c.Refused != 1 || c.Current != 3 {
		t.Errorf("counts %+v", c)
	}
}

func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		set := New(Limits{Sessions: 3, MinTimeout: time.Hour, MaxTimeout: time.Hour}, e.end)
		defer set.Stop()
		login := func(channel uint32, name, app string) (*Session, error) {
			s, err := set.Create(channel, 0, Peer{Name: name, ApplicationURI: app}, nil)
			if err == nil {
				activate(t, s, channel)
			}
			return s, err
		}
		must := func(s *Session, err error) *Session {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		refused := func(why string) {
			t.Helper()
			if _, err := login(9, "d", "urn:d"); !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v", why, err)
			}
		}
		a, b, c := must(login(1, "a", "urn:a")), must(login(2, "b", "urn:b")), must(login(3, "c", "urn:c"))
		refused("all have connections")
		b.Leave(2)
		a.Leave(3)
		refused("G2 a cut link: the client of b may come back")
		b = must(login(4, "b again", "urn:b")) // in the place of the session that it left
		c.Leave(3)
		activate(t, c, 7)
		time.Sleep(grace + time.Second)
		refused("the client of c came back")
		b.Leave(4)
		time.Sleep(grace + time.Second)
		c.Leave(7)
		must(login(9, "d", "urn:d"))
		if got, want := e.got(), "[b replaced false b again replaced false]"; got != want {
			t.Errorf("ended %s, want %s", got, want)
		}
	})
}

// TestGuests: who cannot log in displaces few sessions of those who could.
func TestGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		set := New(Limits{Sessions: 20, MinTimeout: time.Hour, MaxTimeout: time.Hour, Activation: time.Hour}, e.end)
		defer set.Stop()
		for i := range 20 {
			s := create(t, set, 1, 0, fmt.Sprint(i))
			activate(t, s, 1)
			s.Leave(1)
		}
		time.Sleep(grace + time.Second)
		for i := range 100 {
			set.Create(2, 0, Peer{ApplicationURI: fmt.Sprint("urn:guest", i)}, nil)
		}
		kept := 0
		for _, s := range set.All() {
			if s.Activated() {
				kept++
			}
		}
		if kept != 17 {
			t.Errorf("%d of 20 sessions are left, want 17", kept)
		}
	})
}

func TestActivate(t *testing.T) {
	set := New(limits, nil)
	defer set.Stop()
	own, other := []byte("certificate"), []byte("another")
	s, err := set.Create(7, 0, Peer{Certificate: own}, func(s *Session) any { return "joined" })
	if err != nil || s.Joined != "joined" {
		t.Fatal(err, s.Joined)
	}
	if s.Activated() {
		t.Error("active before it was activated")
	}
	if _, err := s.Activate(8, nil); !errors.Is(err, ErrChannel) {
		t.Errorf("5.6.3 first activation on another channel: %v", err)
	}
	first := string(s.Nonce())
	nonce, err := s.Activate(7, []string{"de", "en"})
	if err != nil || string(nonce) == first || string(nonce) != string(s.Nonce()) {
		t.Errorf("5.6.3 a new nonce for each activation: %v", err)
	}
	if _, err = s.Activate(8, nil); err != nil || s.Channel() != 8 {
		t.Errorf("5.6.3 moves to channel %d: %v", s.Channel(), err)
	}
	if l := s.Locales(); len(l) != 2 || l[0] != "de" {
		t.Errorf("no locale ids keep the old ones: %v", l)
	}
	for _, row := range []struct {
		name string
		cert []byte
		want bool
	}{{"its own", own, true}, {"another", other, false}, {"none", nil, false}, {"empty", []byte{}, false}} {
		if got := s.SameClient(row.cert); got != row.want {
			t.Errorf("5.6.3 same client with %s: %v", row.name, got)
		}
	}
	if plain := create(t, set, 1, 0, ""); !plain.SameClient(nil) || plain.SameClient(own) {
		t.Error("a session without a certificate goes with no certificate alone")
	}
}

func TestCloseRaces(t *testing.T) {
	var e ends
	set := New(Limits{Sessions: 100, MinTimeout: time.Millisecond, MaxTimeout: time.Millisecond}, e.end)
	var wg sync.WaitGroup
	for i := range 50 {
		s := create(t, set, 1, 0, fmt.Sprint(i))
		wg.Go(func() { set.Close(s, true) })
		wg.Go(func() { s.Activate(1, nil); set.Find(s.Token) })
	}
	wg.Go(set.Stop)
	wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) != 50 {
		t.Errorf("%d ends of 50 sessions", len(e.list))
	}
}

func BenchmarkFind(b *testing.B) {
	set := New(Limits{Sessions: 1, MinTimeout: time.Hour, MaxTimeout: time.Hour}, nil)
	defer set.Stop()
	s, _ := set.Create(1, 0, Peer{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		set.Find(s.Token)
	}
}
