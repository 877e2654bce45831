package drivers

import (
	"context"
	"log/slog"
	"time"

	"edged/drivers/tag"
)

// unheard stands among a device's failing requests for what it said unasked and is no reading.
const unheard = -1

// tellMishap is after how long without a mishap the instrument is well again, and the next one a change of state.
const tellMishap = time.Minute

// rest waits until the moment, a job, or the end, and hears meanwhile what the instrument on the line says unasked.
func (l *lane) rest(ctx context.Context, until time.Duration) {
	for _, d := range l.devices {
		if talker, ok := d.cfg.Driver.(Listener); ok && !d.disabled && talker.Talks() {
			l.listen(ctx, d, talker, until)
			return
		}
	}
	l.sleep(ctx, until)
}

// listen is sleep with open ears.
func (l *lane) listen(ctx context.Context, d *device, talker Listener, until time.Duration) {
	wait := min(until-l.now(), maxSleep)
	if wait <= 0 {
		return
	}
	hctx, cancel := context.WithTimeout(ctx, wait)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		select {
		case <-l.queue.wake:
			cancel()
		case <-hctx.Done():
		}
	}()
	err := talker.Listen(hctx, &ear{l, d})
	cancel()
	<-woken
	switch f, fault := isFault(err); {
	case err == nil || ctx.Err() != nil:
	case fault && f.Kind == Garbled:
		d.stats.misheard(f, 1)
		l.mute(d, tag.BadCommunicationError, f)
	case fault:
		d.stats.misheard(f, 1)
		l.mute(d, tag.BadNoCommunication, f)
	default:
		l.again(ctx, d, err)
	}
}

// ear is the lane's, for one device.
type ear struct {
	lane *lane
	d    *device
}

// Heard implements Ear.
func (e *ear) Heard(batch []tag.Sample, messages int) {
	if messages > 0 {
		e.d.stats.heard(messages, len(batch))
		if e.d.failing[unheard] && e.lane.now()-e.d.toldMishap >= tellMishap {
			delete(e.d.failing, unheard)
		}
		e.lane.alive(e.d)
	}
	e.lane.publish(e.d, batch)
}

// Misheard implements Ear.
func (e *ear) Misheard(f *Fault, n int) {
	l, d := e.lane, e.d
	d.stats.misheard(f, n)
	now := l.now()
	if d.toldMishap == 0 || now-d.toldMishap >= tellMishap {
		l.say(d, slog.LevelWarn, "what the instrument says is not understood; further ones are counted", "err", f)
	}
	d.toldMishap = now
	if f.Kind != Garbled {
		d.failing[unheard] = true
		l.alive(d)
		return
	}
	if d.garbled++; d.garbled >= maxGarbled {
		l.mute(d, tag.BadCommunicationError, f)
	}
}
