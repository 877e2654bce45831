package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestServerLog(t *testing.T) {
	lines := strings.Repeat("no JSON at all\n", 2*keptLines) +
		`{"level":"info","msg":"OPC UA listens","address":"127.0.0.1:4840"}` + "\n" +
		`{"level":"error","msg":"web page: 127.0.0.1:8080 is in use","address":"x"}` + "\n" +
		`{"level":"info","msg":"web page listens","address":"127.0.0.1:8081"}` + "\n"
	l := newServerLog(strings.NewReader(lines))
	var got []listener
	for x := range l.listening {
		got = append(got, x)
	}
	if len(got) != 2 || got[0] != (listener{"OPC UA", "127.0.0.1:4840"}) || got[1] != (listener{"web page", "127.0.0.1:8081"}) {
		t.Errorf("%v", got)
	}
	if text := l.text(); strings.Count(text, "\n") != keptLines-1 || !strings.HasSuffix(text, `8081"}`) {
		t.Errorf("kept:\n%s", text)
	}
}

// A gateway that does not come up is explained, and leaves nothing behind.
func TestServerThatDoesNotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	script := filepath.Join(t.TempDir(), "program")
	write := func(text string) {
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err := startServer(t.Context(), script, "")
	if err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Errorf("no program: %v", err)
	}
	write("echo it is broken >&2; exit 3\n")
	if _, err = startServer(t.Context(), script, ""); err == nil || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("a program that ends: %v", err)
	}
	write("trap 'exit 0' TERM; while :; do sleep 0.01; done\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = startServer(ctx, script, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that is given up: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
