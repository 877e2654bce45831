package drivers

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// identifyPatience is how long a line that always has something due puts off asking a device what it is.
	identifyPatience = 2 * time.Second
	// identifyAgain is how soon a device is asked what it is once more: one that closes its connection when idle is no
	// other each time.
	identifyAgain = 10 * time.Second
)

// stranger is a device that has yet to be asked what it is.
type stranger struct {
	d     *device
	since time.Duration // on the lane's clock; identifyAgain may put it in the future
}

// meet has a device asked what it is, when the line has time. It may be another one than before the link was opened, or
// than before it fell silent.
func (l *lane) meet(d *device) {
	if _, ok := d.cfg.Driver.(Identifier); !ok || slices.ContainsFunc(l.strangers, func(s stranger) bool { return s.d == d }) {
		return
	}
	since := l.now()
	if d.identified > 0 {
		since = max(since, d.identified+identifyAgain)
	}
	l.strangers = append(l.strangers, stranger{d, since})
}

// identify makes one exchange that brings what a device says of itself, if one is to be asked: idle tells whether nothing
// else is due.
func (l *lane) identify(ctx context.Context, idle bool) bool {
	now := l.now()
	for i, s := range l.strangers {
		switch {
		case s.d.gone || s.d.disabled || s.d.silent: // alive will tell of it again
			l.strangers = slices.Delete(l.strangers, i, i+1)
			return true
		case s.since <= now && (idle || now-s.since > identifyPatience):
			if !l.ask(ctx, s.d) {
				l.strangers = slices.DeleteFunc(l.strangers, func(o stranger) bool { return o.d == s.d })
			}
			return true
		}
	}
	return false
}

// ask makes one exchange of an identification; more is true when there are others to come.
func (l *lane) ask(ctx context.Context, d *device) (more bool) {
	start := time.Now()
	id, more, err := d.cfg.Driver.(Identifier).Identify(ctx, l.number)
	took := time.Since(start)
	if errors.Is(err, ErrSkipped) {
		return false
	}
	l.exchanged(took, false)
	if err == nil {
		d.identified = max(1, l.now())
		d.stats.answered(took, 0)
		if !more {
			d.stats.identify(id)
		}
		return more
	}
	if f, ok := isFault(err); ok {
		d.identified = max(1, l.now())
		l.bus.log.Debug("device does not tell what it is", "device", d.cfg.Name, "err", f)
	} else if ctx.Err() == nil {
		return l.relink(ctx, err) && errors.Is(err, ErrUnsent)
	}
	return false
}

// nextStranger is when a device may be asked what it is.
func (l *lane) nextStranger() time.Duration {
	next := never
	for _, s := range l.strangers {
		next = min(next, s.since)
	}
	return next
}
