package store

import (
	"encoding/binary"

	"edged/drivers/tag"
)

// chunk is the samples of one tag in one segment, as codec.go writes them.
type chunk struct {
	model   model
	run     bitWriter // the run that is being written
	inRun   int       // samples in it
	fresh   bool      // the run goes on from the one before: it is no reset
	since   int       // runs since the last reset
	runs    []byte    // those that are closed
	written int       // bytes of runs that the log has
	entries uint64    // parts of runs that the log has
	span
}

// span is how many samples there are, and from when.
type span struct {
	n        int
	min, max tag.Time
	unsorted bool // they are not in the order of their times
}

func (p *span) take(at tag.Time) {
	if p.n == 0 {
		p.min, p.max = at, at
	}
	p.n++
	p.unsorted = p.unsorted || at < p.max
	p.min, p.max = min(p.min, at), max(p.max, at)
}

// resetEvery is after how many runs one begins anew: so much is lost, at most, behind a damaged part of the log.
const resetEvery = 32

// add writes a sample. It returns by about how many bytes the chunk has grown.
func (c *chunk) add(s *tag.Sample) int {
	if c.inRun == 0 && (!c.fresh || c.since >= resetEvery) {
		c.model, c.fresh, c.since = model{}, false, 0
	}
	before := len(c.run.buf)
	c.model.put(&c.run, s)
	c.inRun++
	c.take(s.At)
	return len(c.run.buf) - before
}

// closeRun ends the run, so that what was added is in runs.
func (c *chunk) closeRun() {
	if c.inRun == 0 {
		return
	}
	c.run.align()
	head := uint64(c.inRun) << 1
	if !c.fresh {
		head |= 1
	}
	c.runs = append(binary.AppendUvarint(c.runs, head), c.run.buf...)
	c.run = bitWriter{buf: c.run.buf[:0]}
	if cap(c.run.buf) > maxRunBuffer {
		c.run.buf = nil
	}
	c.inRun, c.fresh = 0, true
	c.since++
}

// maxRunBuffer is how many bytes a chunk keeps for its next run.
const maxRunBuffer = 4096

// decoder reads the samples of a chunk in the order in which they were written.
type decoder struct {
	b     []byte // behind the run
	left  uint64 // samples in the run
	model model
	r     bitReader
}

// next reads a sample, all but its Ref; false at the end.
func (d *decoder) next(s *tag.Sample) (bool, error) {
	for d.left == 0 {
		if d.r.buf != nil {
			d.b = d.b[len(d.b)-d.r.align():]
			d.r = bitReader{}
		}
		if len(d.b) == 0 {
			return false, nil
		}
		head, n := binary.Uvarint(d.b)
		if n <= 0 || head>>1 > uint64(len(d.b)-n)*8/leastBits {
			return false, errDamaged
		}
		if d.b = d.b[n:]; head&1 == 1 {
			d.model = model{}
		}
		d.left, d.r = head>>1, bitReader{buf: d.b}
	}
	d.left--
	if err := d.model.get(&d.r, s); err != nil {
		return false, err
	}
	return true, nil
}

// leastBits are the fewest that a sample takes: its form and its time.
const leastBits = 2

// spanOf reads the whole chunk, and gives its span and its last sample that is not bad.
func spanOf(runs []byte) (p span, last tag.Sample, err error) {
	d := decoder{b: runs}
	var s tag.Sample
	for {
		ok, err := d.next(&s)
		if !ok || err != nil {
			return p, last, err
		}
		p.take(s.At)
		if !s.Status.IsBad() {
			last = s
		}
	}
}
