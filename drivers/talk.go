package drivers

import (
	"context"
	"log/slog"
	"time"
)

const (
	// talkLines is how often the log may tell of one device or line in talkWindow: one that comes and goes all day must
	// not fill a flash.
	talkLines  = 6
	talkWindow = 10 * time.Minute
)

// talk bounds what the log says of one device or line. What is left out is counted. Owned by the lane's goroutine.
type talk struct {
	began  time.Duration // of the window, on the lane's clock
	told   int           // lines in the window
	unsaid int           // changes left out since the last line
}

// say logs, unless enough was said in this window.
func (t *talk) say(log *slog.Logger, now time.Duration, level slog.Level, msg string, args ...any) {
	if now-t.began >= talkWindow {
		t.began, t.told = now, 0
	}
	if t.told == talkLines {
		t.unsaid++
		return
	}
	t.told++
	if t.unsaid > 0 {
		args = append(args, "unsaid", t.unsaid)
		t.unsaid = 0
	}
	if t.told == talkLines {
		args = append(args, "note", "this changes often: the log leaves the next ones out, see $state and the metrics",
			"for", (talkWindow - (now - t.began)).Round(time.Second))
	}
	log.Log(context.Background(), level, msg, args...)
}

// owes reports whether changes were left out and may be made up for now.
func (t *talk) owes(now time.Duration) bool { return t.unsaid > 0 && now-t.began >= talkWindow }
