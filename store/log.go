package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"edged/drivers/tag"
)

// The log is the heart of the store: segments, one file each, of records that are appended, one a commit, and synced.
// A segment begins with a snapshot of all that is not history (names, last values, durable subscriptions), so that
// those before it are needed for their samples alone, until these are in a history file.
//
//	file    "edgedlog", version uint32, 0 uint32, seq uint64, CRC of these uint32; records
//	record  magic uint32, length uint32, CRC of seq, length and body uint32; body
//	body    time varint; parts: kind byte, length uvarint, content
//
// All in little-endian order. A part of unknown kind is passed over.
const (
	logMagic    = "edgedlog"
	logVersion  = 1
	logHead     = 28
	recordMagic = 0x5245_4745
	recordHead  = 12
	maxRecord   = 256 << 20
)

// The kinds of the parts of a record.
const (
	partSnapshot = 1 + iota // begins anew: what was known of names, last values and subscriptions is void
	partNames               // slot, name; ...
	partRuns                // slot, number of the entry in its chunk, runs; ...
	partLast                // slot, sample; ...
	partSave                // id, state
	partDrop                // id
	partGap                 // from, to, reason, slots
	partWritten             // bytes ever written
	partClean               // the store was closed
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func logName(seq uint64) string { return fmt.Sprintf("log-%016x", seq) }

// logSeq is the number of a segment's file, and false for any other name.
func logSeq(name string) (uint64, bool) {
	text, ok := strings.CutPrefix(name, "log-")
	if !ok || len(text) != 16 {
		return 0, false
	}
	seq, err := strconv.ParseUint(text, 16, 64)
	return seq, err == nil
}

func appendLogHead(dst []byte, seq uint64) []byte {
	from := len(dst)
	dst = append(dst, logMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, logVersion)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], crcTable))
}

// record is one in the making.
type record struct{ b []byte }

func newRecord(b []byte, at tag.Time) record {
	return record{binary.AppendVarint(append(b[:0], make([]byte, recordHead)...), int64(at))}
}

func (r *record) part(kind byte, content []byte) {
	r.b = append(r.b, kind)
	r.b = append(binary.AppendUvarint(r.b, uint64(len(content))), content...)
}

// seal finishes a record of a segment.
func (r *record) seal(seq uint64) []byte {
	n := uint32(len(r.b) - recordHead)
	binary.LittleEndian.PutUint32(r.b, recordMagic)
	binary.LittleEndian.PutUint32(r.b[4:], n)
	binary.LittleEndian.PutUint32(r.b[8:], recordSum(seq, r.b[recordHead:]))
	return r.b
}

func recordSum(seq uint64, body []byte) uint32 {
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:], seq)
	binary.LittleEndian.PutUint32(head[8:], uint32(len(body)))
	return crc32.Update(crc32.Checksum(head[:], crcTable), crcTable, body)
}

// segment is the samples of one file of the log, in memory.
type segment struct {
	seq    uint64
	chunks map[uint32]*chunk // by slot
	size   int               // bytes in chunks, about
	span                     // of all chunks
	gaps   []Gap
	began  tag.Time
	broken int // parts of runs that cannot be read because those before them are damaged
}

func newSegment(seq uint64, began tag.Time) *segment {
	return &segment{seq: seq, chunks: map[uint32]*chunk{}, began: began}
}

// cover counts what is in the chunks.
func (g *segment) cover() {
	g.span, g.size = span{}, 0
	for _, c := range g.chunks {
		if c.n == 0 {
			continue
		}
		g.size += len(c.runs) + len(c.run.buf)
		if g.n == 0 {
			g.min, g.max = c.min, c.max
		}
		g.n, g.min, g.max = g.n+c.n, min(g.min, c.min), max(g.max, c.max)
	}
}

// state is all that a record can change but samples.
type state struct {
	names   []string // by slot
	last    map[uint32]tag.Sample
	durable map[uint32][]byte
	written int64 // bytes
	at      tag.Time
	clean   bool // closed in order
}

func newState() *state {
	return &state{last: map[uint32]tag.Sample{}, durable: map[uint32][]byte{}}
}

// maxSlots bounds what a damaged number can make: names that any site ever had.
const maxSlots = 1 << 22

func (st *state) name(slot uint64, name string) bool {
	if slot >= maxSlots {
		return false
	}
	for uint64(len(st.names)) <= slot {
		st.names = append(st.names, "")
	}
	st.names[slot] = name
	return true
}

// replayed is what a file of the log holds.
type replayed struct {
	*segment
	size     int64 // of what is good at its beginning
	snapshot bool  // it began with a whole one
	torn     bool  // the last record is not whole, as after a power cut
	damaged  bool  // something before the last record is not as it was written
	lost     []Gap // the times of what is damaged
}

// ErrNewer is that a store was written by a newer program.
var ErrNewer = errors.New("was written by a newer edged: run that one, or name another folder with --data")

// replay reads a file of the log into a state, and its samples into a segment. Only a file of a newer version is an
// error: whatever else is wrong, what can be read is read.
func replay(seq uint64, b []byte, st *state) (*replayed, error) {
	out := &replayed{segment: newSegment(seq, 0), size: int64(len(b))}
	rest, headless := b, false
	switch {
	case len(b) < logHead:
		out.torn, out.size = true, 0
		return out, nil
	case !bytes.Equal(b[:logHead], appendLogHead(nil, seq)):
		if string(b[:len(logMagic)]) == logMagic && crc32.Checksum(b[:logHead-4], crcTable) == binary.LittleEndian.Uint32(b[logHead-4:]) &&
			binary.LittleEndian.Uint32(b[len(logMagic):]) > logVersion {
			return nil, fmt.Errorf("%s %w", logName(seq), ErrNewer)
		}
		headless = true
	}
	rest = b[logHead:]
	before := st.at
	first := true
	for len(rest) > 0 {
		body, n := firstRecord(seq, rest)
		if n == 0 {
			skip := nextRecord(seq, rest[1:])
			if skip < 0 {
				out.torn, out.size = true, int64(len(b)-len(rest))
				break
			}
			out.damaged = true
			rest = rest[1+skip:]
			if at, ok := recordTime(rest); ok {
				out.lost = append(out.lost, Gap{From: before, To: at, Reason: Damaged})
			}
			continue
		}
		out.take(body, st, first)
		first, before, rest = false, st.at, rest[n:]
	}
	out.damaged = out.damaged || headless && !first // without any record it was never synced
	out.finish()
	return out, nil
}

// firstRecord is the body of the record at the beginning of b, and the length of it all; 0 if it is not whole.
func firstRecord(seq uint64, b []byte) (body []byte, n int) {
	if len(b) < recordHead || binary.LittleEndian.Uint32(b) != recordMagic {
		return nil, 0
	}
	size := binary.LittleEndian.Uint32(b[4:])
	if size > maxRecord || int64(size) > int64(len(b)-recordHead) {
		return nil, 0
	}
	body = b[recordHead : recordHead+size]
	if recordSum(seq, body) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, 0
	}
	return body, recordHead + int(size)
}

// nextRecord finds the next whole record; -1: there is none.
func nextRecord(seq uint64, b []byte) int {
	magic := binary.LittleEndian.AppendUint32(nil, recordMagic)
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], magic)
		if i < 0 {
			return -1
		}
		at += i
		if _, n := firstRecord(seq, b[at:]); n > 0 {
			return at
		}
	}
}

func recordTime(b []byte) (tag.Time, bool) {
	f := fields{b: b[min(len(b), recordHead):]}
	at := f.varint()
	return tag.Time(at), !f.bad
}

// take carries one record out.
func (r *replayed) take(body []byte, st *state, first bool) {
	f := fields{b: body}
	st.at = tag.Time(f.varint())
	st.clean = false
	if r.began == 0 {
		r.began = st.at
	}
	for len(f.b) > 0 && !f.bad {
		kind := f.byte()
		content := fields{b: f.bytes()}
		if f.bad {
			return
		}
		switch kind {
		case partSnapshot:
			*st = state{last: map[uint32]tag.Sample{}, durable: map[uint32][]byte{}, at: st.at}
			r.snapshot = r.snapshot || first
		case partRuns:
			r.runs(&content)
		case partGap:
			r.gaps = append(r.gaps, content.gap())
		default:
			st.take(kind, &content)
		}
	}
}

func (st *state) take(kind byte, f *fields) {
	switch kind {
	case partNames:
		for len(f.b) > 0 && !f.bad {
			slot := f.uvarint()
			if name := string(f.bytes()); f.bad || !st.name(slot, name) {
				return
			}
		}
	case partLast:
		for len(f.b) > 0 && !f.bad {
			slot := f.uvarint()
			if s := f.last(); !f.bad && slot < maxSlots {
				st.last[uint32(slot)] = s
			}
		}
	case partSave:
		id := f.uvarint()
		if b := f.bytes(); !f.bad {
			st.durable[uint32(id)] = slices.Clone(b)
		}
	case partDrop:
		if id := f.uvarint(); !f.bad {
			delete(st.durable, uint32(id))
		}
	case partWritten:
		if n := f.uvarint(); !f.bad {
			st.written = int64(n)
		}
	case partClean:
		st.clean = true
	}
}

// runs appends parts of chunks. One whose forerunner is missing is left out, unless it begins anew.
func (r *replayed) runs(f *fields) {
	for len(f.b) > 0 && !f.bad {
		slot, entry, b := f.uvarint(), f.uvarint(), f.bytes()
		if f.bad || slot >= maxSlots || len(b) == 0 {
			return
		}
		c := r.chunks[uint32(slot)]
		if c == nil {
			c = &chunk{}
			r.chunks[uint32(slot)] = c
		}
		if fresh := b[0]&1 == 1; entry != c.entries && !fresh {
			r.broken++
			continue
		}
		c.runs, c.entries = append(c.runs, b...), entry+1
	}
}

// finish counts the samples of the chunks, and drops what cannot be read.
func (r *replayed) finish() {
	for slot, c := range r.chunks {
		p, _, err := spanOf(c.runs)
		if err != nil {
			c.runs, p = readable(c.runs)
			r.damaged = true
		}
		if c.written, c.span = len(c.runs), p; p.n == 0 {
			delete(r.chunks, slot)
		}
	}
	r.cover()
}

// readable is as much of the beginning of a chunk as whole runs can be read of.
func readable(runs []byte) ([]byte, span) {
	d := decoder{b: runs}
	var p, whole span
	var s tag.Sample
	end := 0
	for {
		ok, err := d.next(&s)
		if !ok || err != nil {
			return runs[:end], whole
		}
		if p.take(s.At); d.left == 0 {
			end, whole = len(runs)-d.r.align(), p
		}
	}
}
