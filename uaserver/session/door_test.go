package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// quick is a hash that is checked in little time.
func quick(tb testing.TB, password string) []byte {
	tb.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func at(place string) []Origin { return []Origin{{place, 5}} }

func TestPasswordOf(t *testing.T) {
	nonce := []byte("0123456789abcdef0123456789abcdef")
	secret := func(n int, parts ...string) []byte {
		b := []byte(strings.Join(parts, ""))
		if n < 0 {
			n = len(b)
		}
		return append(binary.LittleEndian.AppendUint32(nil, uint32(n)), b...)
	}
	for _, row := range []struct {
		name   string
		secret []byte
		want   string
		ok     bool
	}{
		{"7.40.2.2 password and nonce", secret(-1, "secret", string(nonce)), "secret", true},
		{"padding behind the length", secret(6+32, "secret", string(nonce), "\x00\x00"), "secret", true},
		{"empty password", secret(-1, string(nonce)), "", true},
		{"another nonce", secret(-1, "secret", strings.Repeat("x", 32)), "", false},
		{"no nonce", secret(-1, "secret"), "", false},
		{"length beyond the end", secret(100, "secret", string(nonce)), "", false},
		{"length of -1", secret(0xFFFFFFFF, "secret", string(nonce)), "", false},
		{"length shorter than the nonce", secret(31, "secret", string(nonce)), "", false},
		{"three bytes", []byte{1, 2, 3}, "", false},
		{"nothing", nil, "", false},
	} {
		got, ok := PasswordOf(row.secret, nonce)
		if string(got) != row.want || ok != row.ok {
			t.Errorf("%s: %q %v, want %q %v", row.name, got, ok, row.want, row.ok)
		}
	}
	if _, ok := PasswordOf(secret(-1, "secret"), nil); ok {
		t.Error("a server without a nonce takes a secret")
	}
}

func FuzzPasswordOf(f *testing.F) {
	f.Add([]byte{6, 0, 0, 0, 's', 'e', 'n', 'o', 'n', 'c'}, []byte("nonc"))
	f.Add([]byte{255, 255, 255, 255, 0}, []byte("n"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, secret, nonce []byte) {
		password, ok := PasswordOf(secret, nonce)
		if !ok {
			if password != nil {
				t.Error("a password of a secret that does not fit")
			}
			return
		}
		n := int(binary.LittleEndian.Uint32(secret))
		if string(secret[4:4+n]) != string(password)+string(nonce) || len(nonce) == 0 {
			t.Errorf("%q and %q of %q", password, nonce, secret)
		}
	})
}

func TestPasswords(t *testing.T) {
	long := strings.Repeat("x", MaxPassword)
	hash, longHash := quick(t, "right"), quick(t, long)
	for _, row := range []struct {
		name     string
		hash     []byte
		password []byte
		want     error
	}{
		{"right", hash, []byte("right"), nil},
		{"wrong", hash, []byte("wrong"), ErrWrong},
		{"C6 empty", hash, []byte{}, ErrWrong},
		{"C6 unreadable", hash, nil, ErrWrong},
		{"unknown user", nil, []byte("right"), ErrWrong},
		{"unknown user, unreadable", nil, nil, ErrWrong},
		{"longest", longHash, []byte(long), nil},
		{"what bcrypt would cut", longHash, []byte(long + "y"), ErrWrong},
		{"broken hash", []byte("$2a$"), []byte("right"), ErrWrong},
	} {
		d := NewDoor()
		try := func() error {
			return d.Try(t.Context(), &Attempt{User: "anna", Hash: row.hash, Password: row.password, From: at("a")})
		}
		if err := try(); err != row.want {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		if row.want == nil && try() != nil {
			t.Errorf("%s: refused the second time, when it is known", row.name)
		}
	}
	d := NewDoor()
	if d.Try(t.Context(), &Attempt{User: "anna", Hash: hash, Password: []byte("right")}) != nil ||
		d.Try(t.Context(), &Attempt{User: "anna", Hash: quick(t, "new"), Password: []byte("right")}) != ErrWrong {
		t.Error("the old password is still good when another was set")
	}
}

func TestHashPassword(t *testing.T) {
	h, err := HashPassword([]byte("right"))
	if err != nil || CheckHash(h) != nil || bcrypt.CompareHashAndPassword(h, []byte("right")) != nil {
		t.Errorf("%s: %v", h, err)
	}
	c, _ := bcrypt.Cost(h)
	if n, err := bcrypt.Cost(nobody); err != nil || n != c {
		t.Errorf("an unknown user costs %d, a known one %d: %v", n, c, err)
	}
	for _, p := range []string{"", strings.Repeat("x", MaxPassword+1)} {
		if _, err := HashPassword([]byte(p)); err == nil {
			t.Errorf("a password of %d bytes is taken", len(p))
		}
	}
	if CheckHash([]byte("plain text")) == nil {
		t.Error("a text is taken for a hash")
	}
}

// TestLockOut: C5.
func TestLockOut(t *testing.T) {
	hash := quick(t, "right")
	synctest.Test(t, func(t *testing.T) {
		d := NewDoor()
		try := func(place, user, password string) error {
			return d.Try(t.Context(), &Attempt{User: user, Hash: hash, Password: []byte(password), From: at(place)})
		}
		expect := func(what string, got, want error) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		for range 20 { // a rare mistyping costs nothing
			expect("mistyped", try("a", "anna", "wrong"), ErrWrong)
			expect("right", try("a", "anna", "right"), nil)
		}
		for range 5 {
			expect("C5 wrong", try("a", "anna", "wrong"), ErrWrong)
		}
		expect("C5 sixth", try("a", "anna", "wrong"), ErrLocked)
		expect("C5 right from the same place", try("a", "anna", "right"), ErrLocked)
		expect("C5 right from another", try("b", "anna", "right"), nil)
		wait := lockFirst
		for range 10 { // the time grows, and attempts in it do not prolong it
			time.Sleep(wait - time.Millisecond)
			expect("just before its end", try("a", "anna", "right"), ErrLocked)
			time.Sleep(time.Millisecond)
			expect("after it, wrong again", try("a", "anna", "wrong"), ErrWrong)
			wait = min(2*wait, lockLast)
		}
		expect("locked", try("a", "anna", "right"), ErrLocked)
		time.Sleep(lockLast)
		expect("after the longest", try("a", "anna", "right"), nil)
		for range 4 {
			expect("a fresh start", try("a", "anna", "wrong"), ErrWrong)
		}
		expect("not locked", try("a", "anna", "right"), nil)

		for range 4 { // guessing at another's password with one's own between
			expect("guess", try("c", "boss", "guess"), ErrWrong)
			expect("own", try("c", "anna", "right"), nil)
		}
		expect("guess", try("c", "boss", "guess"), ErrWrong)
		expect("own, after five guesses", try("c", "anna", "right"), ErrLocked)
		time.Sleep(forget)
		expect("long after", try("c", "boss", "guess"), ErrWrong)
		expect("forgotten", try("c", "anna", "right"), nil)
	})
}

func TestBounds(t *testing.T) {
	hash := quick(t, "right")
	d := NewDoor()
	d.one <- struct{}{} // a check that takes long
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	try := func(place string) *Attempt {
		return &Attempt{User: "anna", Hash: hash, Password: []byte("right"), From: at(place)}
	}
	waiting := func(n int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			d.mu.Lock()
			got := d.waiting
			d.mu.Unlock()
			if got == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d wait, want %d", got, n)
			}
		}
	}
	for i := range maxChecks {
		wg.Go(func() {
			if err := d.Try(ctx, try(fmt.Sprint(i/maxOfOrigin))); !errors.Is(err, ErrBusy) {
				t.Errorf("one that waited in vain: %v", err)
			}
		})
	}
	waiting(maxChecks)
	if err := d.Try(ctx, try("another")); err != ErrBusy {
		t.Errorf("one more than wait: %v", err)
	}
	cancel()
	wg.Wait()
	waiting(0)
	<-d.one
	if err := d.Try(t.Context(), try("0")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	for i := range maxOrigins + 10 {
		d.mu.Lock()
		d.fail(try(fmt.Sprint("origin ", i)))
		d.mu.Unlock()
	}
	if n := len(d.failed); n != maxOrigins || len(d.from) != 0 {
		t.Errorf("%d origins with failures, %d with attempts", n, len(d.from))
	}
}
