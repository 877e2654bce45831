package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edged/drivers/tag"
)

// asRecorder makes the test's own binary a process that records until it is killed.
const asRecorder = "EDGED_TEST_AS_RECORDER"

// recordUntilKilled records in a folder from where it was, and prints what was promised.
func recordUntilKilled(dir string) error {
	s, err := Open(Config{Dir: dir, fold: 4000, MaxSize: 1 << 20, Commit: time.Hour})
	if err != nil {
		return err
	}
	s.Start()
	s.Apply(cutTagList())
	var have []tag.Sample
	if have, _, err = s.Read(1, time.Time{}, tag.MaxTime.Time(), nil, 0, nil); err != nil {
		return err
	}
	n := len(withoutGaps(have))
	for ; ; n += 20 {
		countUp(s, cutTags, n, n+20)
		s.Publish([]tag.Sample{{Ref: keptRef, Value: tag.Of(uint32(n + 20)), At: began.Add(time.Duration(n) * time.Second)}})
		if err := s.Save(7, stateOf(n+20)); err != nil {
			return err
		}
		if err := s.Commit(context.Background()); err != nil {
			return err
		}
		fmt.Println(n + 20)
	}
}

// kill -9 while recording: what was promised is there, in order and once (field report F1).
func TestKill(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range rounds(50, 1000) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asRecorder+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		promised := 0
		for left := 1 + r.IntN(8); lines.Scan(); { // so many commits, and then at any moment of the next
			if _, err := fmt.Sscan(lines.Text(), &promised); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if left--; left == 0 {
				time.Sleep(time.Duration(r.IntN(1500)) * time.Microsecond)
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if promised == 0 {
			t.Fatalf("the recorder has ended: %s", &errs)
		}
		checkKilled(t, dir, i, promised)
	}
}

func checkKilled(t *testing.T, dir string, round, promised int) {
	t.Helper()
	s := openStore(t, Config{Dir: dir, ReadOnly: true})
	s.Apply(cutTagList())
	got := len(all(t, s, 1))
	if got < promised {
		t.Fatalf("round %d: %d samples, %d were committed", round, got, promised)
	}
	for ref := range tag.Ref(cutTags) {
		counted(t, s, ref+1, 0, got)
	}
	for _, v := range s.Last() {
		if v.Ref == keptRef && v.Value.Bits() < uint64(promised) {
			t.Fatalf("round %d: the retained tag is %v, %d was answered Good", round, v.Value, promised)
		}
	}
	var have int
	states, _ := s.Load()
	fmt.Sscanf(string(states[7][:min(8, len(states[7]))]), "%d", &have)
	if have < promised || !bytes.Equal(states[7], stateOf(have)) {
		t.Fatalf("round %d: the durable subscription is %d, %d was committed", round, have, promised)
	}
}

// damages are what happens to files (field report F1).
var damages = []struct {
	name string
	do   func(b []byte, r *rand.Rand) []byte
}{
	{"one bit", func(b []byte, r *rand.Rand) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"bytes", func(b []byte, r *rand.Rand) []byte {
		for range 1 + r.IntN(50) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		return b
	}},
	{"first page", func(b []byte, r *rand.Rand) []byte { clear(b[:min(len(b), filePage)]); return b }},
	{"cut in half", func(b []byte, r *rand.Rand) []byte { return b[:len(b)/2] }},
	{"cut anywhere", func(b []byte, r *rand.Rand) []byte { return b[:r.IntN(len(b))] }},
	{"zeros in the middle", func(b []byte, r *rand.Rand) []byte { clear(b[len(b)/3 : len(b)*2/3]); return b }},
	{"a page of another", func(b []byte, r *rand.Rand) []byte {
		if pages := len(b) / filePage; pages > 1 {
			copy(b[r.IntN(pages)*filePage:][:filePage], b[r.IntN(pages)*filePage:][:filePage])
		}
		return b
	}},
}

// Files that are damaged in any way: the store opens, what it gives is right, in order and once, and it records on.
func TestDamage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	template := t.TempDir()
	s := openStore(t, Config{Dir: template, fold: 1500, MaxSize: 1 << 20})
	s.Apply(cutTagList())
	const samples = 6000
	for n := 0; n < samples; n += 20 {
		countUp(s, cutTags, n, n+20)
		mustCommit(t, s)
		if err := s.foldAll(); err != nil {
			t.Fatal(err)
		}
	}
	crash(s)
	list, err := folder(template).List()
	if err != nil {
		t.Fatal(err)
	}
	whole := found{}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(template, e.name))
		if err != nil {
			t.Fatal(err)
		}
		whole[e.name] = b
	}
	least := samples
	for i := range rounds(60, 1000) {
		d := damages[i%len(damages)]
		e := list[r.IntN(len(list))]
		if e.size == 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		whole.write(t, dir)
		found{e.name: d.do(bytes.Clone(whole[e.name]), r)}.write(t, dir)
		if !t.Run(fmt.Sprintf("%d %s of %s", i, d.name, e.name), func(t *testing.T) {
			n := checkDamaged(t, dir, samples)
			least = min(least, n)
			if strings.HasPrefix(d.name, "one bit") && n < samples/4 {
				t.Errorf("one bit costs %d of %d samples", samples-n, samples)
			}
		}) {
			return
		}
		os.RemoveAll(dir)
	}
	t.Logf("of %d samples at least %d were read", samples, least)
}

func checkDamaged(t *testing.T, dir string, samples int) (readable int) {
	t.Helper()
	s := openStore(t, Config{Dir: dir, fold: 1500, MaxSize: 1 << 20})
	s.setAside(s.history.all(), nil) // as folds does when it begins
	s.Apply(cutTagList())
	got := all(t, s, 2)
	last := -1
	for i := range got {
		n := int(got[i].Value.Bits())
		if want := counter(2, n); n <= last || !same(&got[i], &want) {
			t.Fatalf("sample %d is %v at %v after %d", i, got[i].Value, got[i].At, last)
		}
		last = n
	}
	countUp(s, cutTags, samples, samples+50)
	mustCommit(t, s)
	s.mu.Lock()
	s.seal(time.Now())
	s.mu.Unlock()
	mustCommit(t, s)
	if err := s.foldAll(); err != nil {
		if err = s.foldAll(); err != nil { // what was found to be damaged was set aside
			t.Fatal(err)
		}
	}
	after := all(t, s, 2)
	if len(after) < len(got)+50 || after[len(after)-1].Value.Bits() != uint64(samples+49) {
		t.Fatalf("%d samples were there, and with 50 more there are %d", len(got), len(after))
	}
	return len(got)
}
