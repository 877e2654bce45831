package uaserver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestChatter is H5: clients that come and go all the time do not fill the log.
func TestChatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := slog.New(slog.NewTextHandler(&b, nil))
		var c chatter
		for range 1000 {
			c.say(log, "session activated")
		}
		if n := strings.Count(b.String(), "\n"); n != maxChatter {
			t.Errorf("%d lines", n)
		}
		b.Reset()
		time.Sleep(chatterSpan)
		c.say(log, "session ended", "session", "x")
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"lines left out"=940`) || !strings.Contains(lines[1], "session=x") {
			t.Errorf("%q", lines)
		}
	})
}
