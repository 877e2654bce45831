package uaserver

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxChatter is how many lines about sessions the log gets in chatterSpan. More come of clients that begin a session for
// every value, or in a loop that fails, and would fill a flash disk.
const (
	maxChatter  = 60
	chatterSpan = time.Minute
)

// chatter bounds the lines about sessions, or what is done in them.
type chatter struct {
	mu    sync.Mutex // guards all below
	since time.Time
	lines int
	more  int // not told since then
}

// say is sayAt for what is no reason to worry.
func (c *chatter) say(log *slog.Logger, text string, args ...any) {
	c.sayAt(log, slog.LevelInfo, text, args...)
}

// sayAt logs a line, or counts it. What was counted is told with the next line.
func (c *chatter) sayAt(log *slog.Logger, level slog.Level, text string, args ...any) {
	c.mu.Lock()
	now := time.Now()
	more := 0
	if now.Sub(c.since) >= chatterSpan {
		more = c.more
		c.since, c.lines, c.more = now, 0, 0
	}
	c.lines++
	if c.lines > maxChatter {
		c.more++
		level = slog.LevelDebug
	}
	c.mu.Unlock()
	if more > 0 {
		log.Info("sessions came and went too fast for the log", "lines left out", more)
	}
	log.Log(context.Background(), level, text, args...)
}
