package pki_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

const day = 24 * time.Hour

// lockedLog is what was logged by others since it was last asked.
type lockedLog struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// TestWatchTellsTheEnd is C9: warned about 60, 30 and 7 days before the end, and at the end, each once.
func TestWatchTellsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := uatest.Key(t, 2048, 0)
		id := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * day) })
		own := pki.NewOwn(id.Cert, key)
		var log lockedLog
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { own.Watch(ctx, slog.New(slog.NewTextHandler(&log, nil))); close(ended) }()
		for _, row := range []struct {
			name string
			at   time.Duration // before the end
			left int
			want string // in the log; "": nothing
		}{
			{"C9 far from its end", 89*day + 23*time.Hour, 89, ""},
			{"C9 just before 60 days", 60*day + time.Minute, 60, ""},
			{"C9 60 days", 60*day - time.Hour, 59, "days=60"},
			{"C9 31 days", 31 * day, 31, ""},
			{"C9 30 days", 30*day - time.Hour, 29, "days=30"},
			{"C9 8 days", 8 * day, 8, ""},
			{"C9 7 days", 7*day - time.Hour, 6, "days=7"},
			{"C9 the last minute", time.Minute, 0, ""},
			{"C9 ended", -2 * time.Hour, -1, "has expired"},
			{"C9 long ago", -10*day - time.Hour, -11, ""},
		} {
			time.Sleep(time.Until(id.Cert.NotAfter.Add(-row.at)))
			synctest.Wait()
			if left := own.DaysLeft(time.Now()); left != row.left {
				t.Errorf("%s: %d days left", row.name, left)
			}
			got := log.take()
			if (got != "") != (row.want != "") || !strings.Contains(got, row.want) || strings.Count(got, "\n") > 1 {
				t.Errorf("%s: log %q", row.name, got)
			}
		}
		cancel()
		<-ended
	})
}

// TestWatchTellsTheNearestAlone is a start five days before the end.
func TestWatchTellsTheNearestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := uatest.Key(t, 2048, 0)
		id := uatest.NewIdentity(t, key, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(5*day + time.Minute) })
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 2*day)
		defer cancel()
		pki.NewOwn(id.Cert, key).Watch(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "days=5") {
			t.Errorf("log %q", got)
		}
	})
}

// TestClockWrong is C10: a gateway that starts with a clock 26 years behind, whose clock is then put right.
func TestClockWrong(t *testing.T) {
	dir := t.TempDir()
	client := uatest.NewIdentity(t, uatest.Key(t, 2048, 1), nil, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2045, 6, 1, 0, 0, 0, 0, time.UTC)
	})
	later := uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Date(2044, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2045, 6, 1, 0, 0, 0, 0, time.UTC)
	})
	trust, err := pki.OpenFolder(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	place(t, dir, "trusted/client.der", client.DER)
	place(t, dir, "trusted/later.der", later.DER)
	var own *pki.Own
	synctest.Test(t, func(t *testing.T) { // whose time begins in 2000
		var log string
		own, log = open(t, dir, identity)
		if !strings.Contains(log, "before the program was built") {
			t.Errorf("C10 no word about the clock: %s", log)
		}
		if from := own.Certificate().NotBefore; from.After(time.Now()) {
			t.Errorf("C10 own certificate begins %v, and it is %v", from, time.Now())
		}
		if err := trust.Check([]*x509.Certificate{client.Cert}, pki.Strong, time.Now()); err != nil {
			t.Errorf("C10 a client whose clock is right: %v", err)
		}
		err := trust.Check([]*x509.Certificate{later.Cert}, pki.Strong, time.Now())
		if err == nil || !strings.Contains(err.Error(), "check the clocks") {
			t.Errorf("C10 a certificate of 2044: %v", err)
		}
	})
	if left := own.DaysLeft(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)); left < 3600 {
		t.Errorf("C10 once the clock is right, the own certificate has %d days left", left)
	}
	again, _ := open(t, dir, identity)
	if again.Thumbprint() != own.Thumbprint() {
		t.Error("C10 the certificate was made anew once the clock was right")
	}
}
