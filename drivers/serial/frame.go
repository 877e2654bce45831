package serial

import (
	"bytes"
	"errors"
	"time"
)

// Frame is how what a device says is cut into messages. Without any key it is lines that end with CR, LF or both.
type Frame struct {
	Start    string        // bytes that each frame begins with; what comes before is passed over
	End      string        // bytes that each frame ends with; default without Length and Silence: CR, LF or both
	Length   Length        // instead of End
	Silence  time.Duration // instead of End: a frame ends when nothing more came for so long
	Max      int           // bytes of a frame with everything; what is longer is none. 0: 1024
	Checksum Checksum
}

// Length is how long a frame without an end is.
type Length struct {
	Fixed int    // bytes of a frame with everything, or
	At    int    // where its length stands, counted from 0
	Size  int    // bytes of that number, 1 or 2; 0: there is none
	Order string // high_first (default) or low_first
	Plus  int    // what is added to it for the length of the frame with everything
}

// Bounds of a frame in bytes. The longest known telegrams, of electricity meters, are some 4 KiB.
const (
	defaultMax = 1024
	maxFrame   = 64 << 10
	// headroom is what a read may bring beyond a frame.
	headroom = 512
)

// cut is a Frame made ready.
type cut struct {
	start, end []byte // end nil: CR, LF or both
	lines      bool   // ends with CR, LF or both
	length     Length
	silence    time.Duration
	max        int
	check      *check
}

func (f *Frame) ready() (*cut, []*FieldError) {
	var errs []*FieldError
	c := &cut{length: f.Length, silence: f.Silence, max: f.Max}
	read := func(key, text string, to *[]byte) {
		b, err := unescape(text)
		if err != nil {
			errs = append(errs, wrong("frame."+key, "%v", err))
		}
		if len(b) > 0 {
			*to = b
		}
	}
	read("start", f.Start, &c.start)
	read("end", f.End, &c.end)
	if c.max == 0 {
		c.max = defaultMax
	}
	if c.max < 1 || c.max > maxFrame {
		errs = append(errs, wrong("frame.max", "%d is not from 1 to %d bytes", f.Max, maxFrame))
	}
	fixed, field := f.Length.Fixed > 0, f.Length.Size > 0
	ways := 0
	for _, way := range []bool{c.end != nil, fixed || field, f.Silence > 0} {
		if way {
			ways++
		}
	}
	switch {
	case ways > 1:
		errs = append(errs, wrong("frame", "a frame has an end, a length, or ends with silence: give one of end, length and silence"))
	case fixed && f.Length.Fixed > c.max:
		errs = append(errs, wrong("frame.length", "%d is longer than max, which is %d", f.Length.Fixed, c.max))
	case fixed && field:
		errs = append(errs, wrong("frame.length", "it is a number, or a map that says where it stands"))
	case field && (f.Length.At < 0 || f.Length.At+f.Length.Size > c.max || f.Length.Size > 2):
		errs = append(errs, wrong("frame.length", "at and size, which is 1 or 2 bytes, lie outside of the frame"))
	}
	c.lines = ways == 0
	check, err := f.Checksum.ready()
	if err != nil {
		errs = append(errs, err)
	}
	c.check = check
	if check != nil && check.behind && !c.lines && c.end == nil {
		errs = append(errs, wrong("frame.checksum.place", "behind_end is of a frame with an end: remove it"))
	}
	return c, errs
}

// Errors of a frame that is none.
var (
	errTooLong = errors.New("it has no end within what a frame may have")
	errLength  = errors.New("its length cannot be")
)

// said is one frame. It stays valid until the framer reads on.
type said struct {
	whole []byte // with start, end and checksum
	body  []byte // without
	err   error  // why it is no frame; whole is what there is of it
}

// framer cuts a stream of bytes into frames. Which frames it finds depends on the bytes alone, not on how reads have cut
// them; but for those that silence ends.
type framer struct {
	*cut
	buf      []byte
	from, to int  // of buf: what is not a frame yet
	seen     int  // of buf: no end begins before
	blamed   int  // of buf: a frame that was none was told up to here
	skipping bool // until the next end: the frame before was too long
	noise    []byte
	noises   int // bytes that were passed over
}

func newFramer(c *cut) *framer {
	return &framer{cut: c, buf: make([]byte, c.max+c.tail()+headroom), noise: make([]byte, 0, mostShown)}
}

// tail is what stands behind an end.
func (c *cut) tail() int {
	if c.check != nil && c.check.behind {
		return c.check.size
	}
	return 0
}

// reset forgets what came.
func (f *framer) reset() {
	f.from, f.to, f.seen, f.blamed, f.skipping = 0, 0, 0, 0, false
	f.noise, f.noises = f.noise[:0], 0
}

// room is where a read may put what it brings; add tells how much that was. Frames that were found are gone.
func (f *framer) room() []byte {
	if len(f.buf)-f.to < headroom {
		n := copy(f.buf, f.buf[f.from:f.to])
		f.seen, f.blamed = max(0, f.seen-f.from), max(0, f.blamed-f.from)
		f.from, f.to = 0, n
	}
	return f.buf[f.to:]
}

func (f *framer) add(n int) { f.to += n }

// partial reports whether a frame has begun.
func (f *framer) partial() bool { return f.to > f.from }

// drop passes over what is no part of a frame.
func (f *framer) drop(n int) {
	b := f.buf[f.from : f.from+n]
	f.noises += n
	f.noise = append(f.noise, b[:min(n, cap(f.noise)-len(f.noise))]...)
	f.from += n
	f.seen = max(f.seen, f.from)
}

// next is the next frame of what came; false: more has to come.
func (f *framer) next() (said, bool) {
	for {
		if !f.begin() {
			return said{}, false
		}
		n, end, err := f.measure()
		switch {
		case n == 0 && err == nil:
			return said{}, false
		case errors.Is(err, errTooLong) && f.end0() && len(f.start) == 0:
			s := said{whole: f.buf[f.from : f.from+n], err: err}
			f.skipping = true
			f.take(n)
			return s, true
		}
		whole := f.buf[f.from : f.from+n]
		if err == nil {
			var body []byte
			if body, err = f.verify(whole, end); err == nil {
				f.take(n)
				if len(body) == 0 && f.lines {
					continue // between the CR and LF of one end, or an empty line
				}
				return said{whole: whole, body: body}, true
			}
		}
		// The next frame may have begun inside of this one, which was cut off or never was one.
		told := f.from < f.blamed
		f.blamed = max(f.blamed, f.from+n)
		s := said{whole: whole, err: err}
		if f.resyncs() {
			f.from++
			f.seen = f.from
		} else {
			f.take(n)
		}
		if !told {
			return s, true
		}
	}
}

// end0 reports whether frames are told by their ends.
func (f *framer) end0() bool { return f.lines || f.end != nil }

// resyncs reports whether a frame may begin anywhere, so that one that is wrong is no reason to pass over all of it.
func (f *framer) resyncs() bool { return len(f.start) > 0 || !f.end0() && f.silence == 0 }

func (f *framer) take(n int) {
	f.from += n
	f.seen = f.from
	if len(f.start) > 0 {
		f.noise, f.noises = f.noise[:0], 0
	}
	if f.from == f.to {
		f.blamed = max(0, f.blamed-f.from)
		f.from, f.to, f.seen = 0, 0, 0
	}
}

// begin goes to where the next frame may begin, and reports whether anything of it has come.
func (f *framer) begin() bool {
	b := f.buf[f.from:f.to]
	if f.skipping {
		at, n := f.findEnd(b)
		if at < 0 {
			f.drop(max(0, len(b)-len(f.end)+1-b2i(f.end == nil)))
			return false
		}
		f.skipping = false
		f.take(at + n)
		b = f.buf[f.from:f.to]
	}
	if len(f.start) > 0 {
		at := bytes.Index(b, f.start)
		if at < 0 {
			keep := 0
			for k := min(len(f.start)-1, len(b)); k > 0; k-- {
				if bytes.HasSuffix(b, f.start[:k]) {
					keep = k
					break
				}
			}
			f.drop(len(b) - keep)
			return false
		}
		f.drop(at)
	}
	return f.to > f.from
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// findEnd is where the first end in b begins, and its length.
func (f *framer) findEnd(b []byte) (at, n int) {
	if f.end != nil {
		return bytes.Index(b, f.end), len(f.end)
	}
	return bytes.IndexAny(b, "\r\n"), 1
}

// measure is the length of the frame that begins here, and where its end does; 0: more has to come to tell. With an error
// it is the length of what is none.
func (f *framer) measure() (n, end int, err error) {
	b := f.buf[f.from:f.to]
	switch {
	case f.silence > 0:
		if len(b) > f.max {
			return f.max, 0, errTooLong
		}
		return 0, 0, nil
	case f.length.Fixed > 0:
		n = f.length.Fixed
	case f.length.Size > 0:
		at := f.length.At
		if len(b) < at+f.length.Size {
			return 0, 0, nil
		}
		n = int(b[at])
		if f.length.Size == 2 {
			if n = n<<8 | int(b[at+1]); f.length.Order == orderLow {
				n = int(b[at]) | int(b[at+1])<<8
			}
		}
		n += f.length.Plus
		if n < at+f.length.Size || n < len(f.start) || n > f.max {
			return min(len(b), max(1, len(f.start))), 0, errLength
		}
	default:
		return f.measureEnd(b)
	}
	if len(b) < n {
		return 0, 0, nil
	}
	return n, n, nil
}

func (f *framer) measureEnd(b []byte) (n, end int, err error) {
	from := max(len(f.start), f.seen-f.from)
	window := b[:min(len(b), f.max)]
	if from > len(window) {
		from = len(window)
	}
	at, size := f.findEnd(window[from:])
	if at < 0 {
		if len(b) >= f.max {
			return f.max, 0, errTooLong
		}
		f.seen = max(f.seen, f.from+max(0, len(window)-size+1))
		return 0, 0, nil
	}
	n = from + at + size + f.tail()
	if len(b) < n {
		f.seen = f.from + from + at
		return 0, 0, nil
	}
	return n, from + at, nil
}

// verify looks at the checksum of a whole frame and cuts its body out. end is where its end begins.
func (f *framer) verify(whole []byte, end int) (body []byte, err error) {
	start := min(len(f.start), end)
	c := f.check
	switch {
	case c == nil:
		return whole[start:end], nil
	case c.behind && f.end0():
		if _, err := c.verify(whole, len(whole)-c.size); err != nil {
			return nil, err
		}
		return whole[start:end], nil
	}
	at := end - c.size
	if c.optional {
		mark := at - len(c.mark)
		if mark < start || string(whole[mark:at]) != string(c.mark) {
			if bytes.Contains(whole[start:end], c.mark) {
				return nil, errNoChecksum // a mark at another place is that of a checksum that was damaged
			}
			return whole[start:end], nil
		}
	}
	if at < start {
		return nil, errNoChecksum
	}
	stop, err := c.verify(whole[:end], at)
	if err == nil && stop < start {
		err = errNoChecksum
	}
	if err != nil {
		return nil, err
	}
	return whole[start:stop], nil
}

// flush ends the frame that silence ends.
func (f *framer) flush() (said, bool) {
	if f.silence == 0 || f.to == f.from {
		return said{}, false
	}
	whole := f.buf[f.from:f.to]
	body, err := f.verify(whole, len(whole))
	f.take(len(whole))
	return said{whole: whole, body: body, err: err}, true
}
