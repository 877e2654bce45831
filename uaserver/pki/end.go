package pki

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

const (
	day = 24 * time.Hour

	endLook = time.Hour // how often Watch looks at the clock, which may be put right at any time
)

// endStages are the days before the own certificate's end at which it is told (field report C9); 0 is the end itself.
var endStages = [...]int{60, 30, 7, 0}

// DaysLeft is for how many whole days from now on the certificate is valid; below 0 once it has ended.
func (o *Own) DaysLeft(now time.Time) int { return DaysUntil(o.cert.NotAfter, now) }

// DaysUntil is how many whole days there are until end; below 0 once it has passed.
func DaysUntil(end, now time.Time) int {
	left := end.Sub(now)
	if left < 0 {
		left -= day - 1 // the day that has begun counts
	}
	return int(left / day)
}

// stage is how many of endStages have come.
func (o *Own) stage(now time.Time) int {
	n := 0
	for _, days := range endStages {
		if o.cert.NotAfter.Sub(now) <= time.Duration(days)*day {
			n++
		}
	}
	return n
}

// Watch warns about the certificate's end 60, 30 and 7 days before it, and when it has come, each once, until ctx ends. A
// log of nil is slog.Default.
func (o *Own) Watch(ctx context.Context, log *slog.Logger) {
	if log == nil {
		log = slog.Default()
	}
	tick := time.NewTicker(endLook)
	defer tick.Stop()
	told := 0
	for {
		told = o.tellEnd(told, log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tellEnd warns where another of endStages has come since told of them were, and returns how many are told now.
func (o *Own) tellEnd(told int, log *slog.Logger) int {
	now := time.Now().Round(0) // of the clock on the wall, which NotAfter is about
	switch stage := o.stage(now); {
	case stage <= told:
		return told
	case stage == len(endStages):
		log.Warn("own certificate has expired: clients may refuse it; renew it (edged certs renew)", "end", o.cert.NotAfter, "clock", now.UTC(), "thumbprint", o.thumbprint)
		return stage
	default:
		log.Warn("own certificate ends soon: renew it (edged certs renew)", "days", o.DaysLeft(now), "end", o.cert.NotAfter, "thumbprint", o.thumbprint)
		return stage
	}
}

// clockFloor is a time that has certainly passed: when this program was built, as far as that is known. A box without a
// battery-backed clock starts in 1970 (field report C10).
var clockFloor = sync.OnceValue(func() time.Time {
	floor := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			// The revision's time; it may come from a clock that was ahead, so it counts only as far as it is plausible.
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil && at.After(floor) && at.Before(floor.AddDate(validFor, 0, 0)) {
				floor = at
			}
		}
	}
	return floor
})

// atLeast is now, or the earliest time that it can be. Only what may be valid too late is compared with it: whether
// something has ended is for the clock to say.
func atLeast(now time.Time) time.Time {
	if floor := clockFloor(); now.Before(floor) {
		return floor
	}
	return now
}
