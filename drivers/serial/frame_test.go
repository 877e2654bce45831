package serial

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cutter makes a framer of a description.
func cutter(t testing.TB, f Frame) *framer {
	t.Helper()
	c, errs := f.ready()
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	return newFramer(c)
}

// feed gives a framer a stream in pieces of the sizes that size gives, and lists what came out.
func feed(f *framer, stream []byte, size func(most int) int) (out []string) {
	for len(stream) > 0 {
		room := f.room()
		n := max(1, min(size(min(len(room), len(stream))), len(room), len(stream)))
		f.add(copy(room, stream[:n]))
		stream = stream[n:]
		for {
			s, ok := f.next()
			if !ok {
				break
			}
			if s.err != nil {
				out = append(out, fmt.Sprintf("%v: %d", s.err, len(s.whole)))
			} else {
				out = append(out, string(s.body))
			}
		}
	}
	return out
}

func whole(most int) int { return most }

var frames = map[string]Frame{
	"lines":          {Max: 40},
	"crlf":           {End: `\r\n`, Max: 40},
	"nmea":           {Start: "$", End: `\r\n`, Max: 82, Checksum: Checksum{Kind: "xor", Form: "hex", Mark: "*", From: 1}},
	"nmea old":       {Start: "$", End: `\r\n`, Max: 82, Checksum: Checksum{Kind: "xor", Form: "hex", Mark: "*", From: 1, Optional: true}},
	"stx etx bcc":    {Start: `\x02`, End: `\x03`, Max: 30, Checksum: Checksum{Kind: "xor", From: 1, Place: "behind_end"}},
	"dsmr":           {Start: "/", End: "!", Max: 60, Checksum: Checksum{Kind: "crc16-arc", Form: "hex", Place: "behind_end"}},
	"length":         {Start: "hex:AA 55", Length: Length{At: 2, Size: 1, Plus: 5}, Max: 30, Checksum: Checksum{Kind: "crc16-modbus"}},
	"length of two":  {Start: "hex:AA", Length: Length{At: 1, Size: 2, Order: "low_first", Plus: 4}, Max: 30, Checksum: Checksum{Kind: "sum8"}},
	"fixed":          {Start: `\x01`, Length: Length{Fixed: 8}, Checksum: Checksum{Kind: "crc16-ccitt"}},
	"fixed no start": {Length: Length{Fixed: 6}, Checksum: Checksum{Kind: "lrc"}},
}

// TestE6AnyCutting is E6: however reads cut the bytes, the same messages come out.
func TestE6AnyCutting(t *testing.T) {
	for name, f := range frames {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			c, errs := f.ready()
			if len(errs) > 0 {
				t.Fatal(errs[0])
			}
			// Bytes that mean something to the frame are more likely than others.
			letters := append([]byte("\r\n*A1"), append(c.start, c.end...)...)
			var stream []byte
			for range rapid.IntRange(0, 12).Draw(t, "parts") {
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					stream = append(stream, rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "noise")...)
				case 1:
					stream = append(stream, rapid.SliceOfN(rapid.SampledFrom(letters), 0, 70).Draw(t, "near")...)
				default:
					stream = append(stream, good(c, rapid.SliceOfN(rapid.SampledFrom([]byte("ABC,123 ")), 1, 12).Draw(t, "body"))...)
				}
			}
			want := feed(newFramer(c), stream, whole)
			got := feed(newFramer(c), stream, func(most int) int { return rapid.IntRange(1, most).Draw(t, "read") })
			single := feed(newFramer(c), stream, func(int) int { return 1 })
			for what, out := range map[string][]string{"cut at random": got, "byte by byte": single} {
				if strings.Join(out, "|") != strings.Join(want, "|") {
					t.Fatalf("%q %s gives\n%q, at once\n%q", stream, what, out, want)
				}
			}
		}))
	}
}

// good makes a frame around a body.
func good(c *cut, body []byte) []byte {
	out := append([]byte{}, c.start...)
	if c.length.Size > 0 {
		n := len(c.start) + c.length.Size + len(body) + c.tailSize() - c.length.Plus
		field := []byte{byte(n), byte(n >> 8)}[:c.length.Size]
		if c.length.Size == 2 && c.length.Order != orderLow {
			field[0], field[1] = field[1], field[0]
		}
		out = append(out, field...)
	}
	if c.length.Fixed > 0 {
		body = append(append([]byte{}, body...), "        "...)[:c.length.Fixed-len(c.start)-c.tailSize()]
	}
	out = append(out, body...)
	end := c.end
	if c.lines {
		end = []byte("\n")
	}
	switch {
	case c.check == nil:
		return append(out, end...)
	case c.check.behind:
		out = append(out, end...)
		return c.check.append(out, out)
	}
	covered := len(out)
	out = append(out, c.check.mark...)
	return append(c.check.append(out, out[:covered]), end...)
}

func (c *cut) tailSize() int {
	if c.check == nil {
		return 0
	}
	return c.check.size
}

func TestFrames(t *testing.T) {
	for _, row := range []struct {
		name, stream string
		frame        Frame
		want         []string
	}{
		{"E6 lines by CR, LF and both", "a\rb\nc\r\n\r\nd", Frame{}, []string{"a", "b", "c"}},
		{"E6 crlf alone ends", "a\rb\nc\r\n", Frame{End: `\r\n`}, []string{"a\rb\nc"}},
		{"E6 no end within max", strings.Repeat("x", 50) + "\r\nok\r\n", frames["crlf"], []string{"it has no end within what a frame may have: 40", "ok"}},
		{"NMEA 0183 checksum", "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n", Frame{Start: "$", End: `\r\n`, Checksum: frames["nmea"].Checksum},
			[]string{"GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,"}},
		{"NMEA lower-case digits", "$it*1D\r\n$it*1d\r\n", frames["nmea"], []string{"it", "it"}},
		{"NMEA cut off by the next", "$GPGG$A*41\r\n", frames["nmea"], []string{"the checksum is wrong: 12", "A"}},
		{"NMEA wrong checksum", "$A*42\r\n$A*41\r\n", frames["nmea"], []string{"the checksum is wrong: 7", "A"}},
		{"NMEA without", "$A\r\n$A*41\r\n", frames["nmea"], []string{"there is no checksum where it belongs: 4", "A"}},
		{"NMEA without, optional", "$A\r\n$A*41\r\n$A*4\r\n", frames["nmea old"], []string{"A", "A", "there is no checksum where it belongs: 6"}},
		{"IEC 62056-21 BCC over all behind STX with ETX", "\x021.8.0(1)\x03\x0a", frames["stx etx bcc"], []string{"1.8.0(1)"}},
		{"length, and noise before it", "\x00\xAA\xAA\x55\x01\x07\x71\xBE", frames["length"], []string{"\x01\x07"}},
		{"length that cannot be", "\xAA\x55\xFF\xAA\x55\x01\x07\x71\xBE", frames["length"], []string{"its length cannot be: 2", "\x01\x07"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := cutter(t, row.frame)
			if got := feed(f, []byte(row.stream), whole); strings.Join(got, "|") != strings.Join(row.want, "|") {
				t.Errorf("%q gives\n%q, want\n%q", row.stream, got, row.want)
			}
		})
	}
}

// TestChecksums are the check values of the catalogue of parametrised CRC algorithms, and sums by hand.
func TestChecksums(t *testing.T) {
	for name, want := range map[string]string{
		"sum8": "DD", "sum16": "01DD", "xor": "31", "lrc": "23", "crc16-modbus": "4B37", "crc16-arc": "BB3D",
		"crc16-ccitt": "29B1", "crc16-xmodem": "31C3", "crc16-kermit": "2189", "crc16-x25": "906E",
	} {
		c, err := (&Checksum{Kind: name, Form: "hex"}).ready()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(c.append(nil, []byte("123456789"))); got != want {
			t.Errorf("%s of 123456789 is %s, not %s", name, got, want)
		}
	}
	low, _ := (&Checksum{Kind: "crc16-modbus"}).ready()
	if got := low.append(nil, []byte("123456789")); !bytes.Equal(got, []byte{0x37, 0x4B}) {
		t.Errorf("crc16-modbus on the wire is % X", got)
	}
}

// TestE6NoEnd is E6: a frame of 1 MiB without an end takes no memory and is told once.
func TestE6NoEnd(t *testing.T) {
	for name, f := range frames {
		c := cutter(t, f)
		before := cap(c.buf)
		stream := bytes.Repeat([]byte("x"), 1<<20)
		if name == "nmea" {
			stream[0] = '$'
		}
		feed(c, stream, whole)
		if cap(c.buf) != before || c.to-c.from > c.max+c.tail() {
			t.Errorf("%s: holds %d bytes in %d", name, c.to-c.from, cap(c.buf))
		}
	}
	f := cutter(t, Frame{End: `\r\n`})
	got := feed(f, append(bytes.Repeat([]byte("x"), 1<<20), "\r\nok\r\n"...), whole)
	if len(got) != 2 || got[1] != "ok" {
		t.Errorf("came: %.80q", got)
	}
}

func TestSilenceEndsFrame(t *testing.T) {
	f := cutter(t, Frame{Silence: 20 * time.Millisecond})
	f.add(copy(f.room(), "12.5"))
	if _, ok := f.next(); ok {
		t.Error("a frame ended without silence")
	}
	s, ok := f.flush()
	if !ok || string(s.body) != "12.5" {
		t.Errorf("silence gives %q, %v", s.body, ok)
	}
	f.add(copy(f.room(), bytes.Repeat([]byte("x"), headroom)))
	f.add(copy(f.room(), bytes.Repeat([]byte("x"), headroom)))
	f.add(copy(f.room(), "y"))
	if s, ok := f.next(); !ok || !errors.Is(s.err, errTooLong) {
		t.Errorf("a frame without end is %v, %v", s.err, ok)
	}
}

func FuzzFrame(f *testing.F) {
	for _, c := range frames {
		cut, _ := c.ready()
		f.Add(good(cut, []byte("12,A")), []byte{1, 3})
	}
	f.Add([]byte("/$\x02\xaa\x55\r\n!"), []byte{2})
	f.Fuzz(func(t *testing.T, stream, reads []byte) {
		if len(stream) > 4096 {
			return
		}
		for name, c := range frames {
			i := 0
			got := feed(cutter(t, c), stream, func(int) int {
				if i++; len(reads) == 0 {
					return 1
				}
				return int(reads[i%len(reads)])
			})
			want := feed(cutter(t, c), stream, whole)
			if strings.Join(got, "|") != strings.Join(want, "|") {
				t.Fatalf("%s: %q cut by %v gives\n%q, at once\n%q", name, stream, reads, got, want)
			}
		}
	})
}
