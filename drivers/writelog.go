package drivers

import (
	"log/slog"
	"sync"
	"time"

	"edged/drivers/tag"
)

// writeLog is what the log knows of a device's writes: it tells when the outcome of a tag's writes changes, not each of
// them. A client that writes to a dead device all day must not fill a flash.
type writeLog struct {
	began time.Time // of talk's clock

	mu      sync.Mutex // guards the fields below
	talk    talk
	trouble map[tag.Ref]*trouble // tags whose last write failed
}

// trouble is how the writes of a tag fail.
type trouble struct {
	status tag.Status // of the last one
	n      int        // how many in a row
}

func newWriteLog() *writeLog { return &writeLog{began: time.Now()} }

// failed notes a write that failed, and tells whether it may have happened.
func (w *writeLog) failed(log *slog.Logger, d *device, ref tag.Ref, status tag.Status, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.trouble[ref]
	if t == nil {
		if w.trouble == nil {
			w.trouble = map[tag.Ref]*trouble{}
		}
		t = &trouble{}
		w.trouble[ref] = t
	}
	was := t.status
	t.status, t.n = status, t.n+1
	if was == status {
		return
	}
	outcome := NotDone
	if f, ok := isFault(err); ok {
		outcome = f.Outcome
	}
	if outcome == NotDone && (status == tag.BadTimeout || status == tag.BadCommunicationError) {
		outcome = Unknown
	}
	w.talk.say(log, time.Since(w.began), slog.LevelWarn, outcomeTexts[outcome], "tag", d.tagName(ref), "status", status, "err", err)
}

// good notes a write that was carried out.
func (w *writeLog) good(log *slog.Logger, d *device, ref tag.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.trouble[ref]
	if t == nil {
		return
	}
	delete(w.trouble, ref)
	w.talk.say(log, time.Since(w.began), slog.LevelInfo, "write succeeds again", "tag", d.tagName(ref), "failed", t.n)
}

// tagName names a tag for the log.
func (d *device) tagName(ref tag.Ref) string {
	if t := d.table.Load().Tag(ref); t != nil {
		return t.FullName()
	}
	return d.cfg.Name
}
