package modbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

const rw = tag.Readable | tag.Writable

// functions are the function codes that a peer was asked, in order.
func functions(p *peer) (out []int) {
	at := 1
	if p.framing == TCP {
		at = mbapSize
	}
	for _, adu := range p.seen() {
		out = append(out, int(adu[at]))
	}
	return out
}

func TestD8FunctionCodesOfWrites(t *testing.T) {
	for _, row := range []struct {
		writes  string
		address string
		typ     string
		value   tag.Value
		want    []int
	}{
		{"", "holding:1", "uint16", tag.Of(uint16(7)), []int{6}},
		{"", "holding:1", "uint32", tag.Of(uint32(7)), []int{16}},
		{"", "coil:1", "", tag.Of(true), []int{5}},
		{"", "coil:1", "bool[3]", tag.OfSlice([]bool{true, false, true}), []int{15}},
		{"auto", "holding:1", "uint16[1]", tag.OfSlice([]uint16{7}), []int{6}},
		{"multiple", "holding:1", "uint16", tag.Of(uint16(7)), []int{16}},
		{"multiple", "coil:1", "", tag.Of(true), []int{15}},
		{"single", "holding:1", "uint32", tag.Of(uint32(0x00010002)), []int{6, 6}},
		{"single", "coil:1", "bool[3]", tag.OfSlice([]bool{true, false, true}), []int{5, 5, 5}},
		{"", "holding:1.3", "", tag.Of(true), []int{22}},
	} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{}
			p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
			d, l := open(t, p, Config{Writes: row.writes, Tags: []Tag{{Name: "t", Address: row.address, Type: row.typ, Access: rw}}}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			cmds := []tag.Command{{Ref: 1, Value: row.value}}
			if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good {
				t.Fatalf("%+v: %v, %v", row, err, cmds[0].Status)
			}
			if got := functions(p); !slices.Equal(got, row.want) {
				t.Errorf("%s %s, writes %q: functions %v, want %v", row.address, row.typ, row.writes, got, row.want)
			}
			got, err := d.Refresh(t.Context(), 0, []tag.Ref{1}, nil)
			if err != nil || !got[0].Value.Equal(row.value) {
				t.Errorf("%s %s reads back %v, %v", row.address, row.typ, got, err)
			}
		})
	}
	for _, known := range []int{6, 16} { // a device that refuses the one is not asked with the other
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{refuse: func(pdu []byte) byte {
				if pdu[0] != 3 && int(pdu[0]) != known {
					return 1
				}
				return 0
			}}
			p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
			d, l := open(t, p, Config{Tags: []Tag{{Name: "t", Address: "holding:0", Access: rw}}}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(7))}}
			d.Write(t.Context(), 0, cmds)
			want := map[int]tag.Status{6: tag.Good, 16: tag.BadNotSupported}[known]
			if cmds[0].Status != want || len(p.seen()) != 1 {
				t.Errorf("device that knows %d: %v after functions %v", known, cmds[0].Status, functions(p))
			}
		})
	}
}

func TestD22BitsOfOneRegister(t *testing.T) {
	for _, mask := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{refuse: func(pdu []byte) byte {
				if pdu[0] == 22 && !mask {
					return 1
				}
				return 0
			}}
			dev.holding[30] = 0x8001
			p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
			d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:30.1", Access: rw}, {Name: "b", Address: "holding:30.9", Access: rw}}}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			cmds := []tag.Command{{Ref: 1, Value: tag.Of(true)}, {Ref: 2, Value: tag.Of(true)}, {Ref: 1, Value: tag.Of(false)}, {Ref: 1, Value: tag.Of(true)}}
			if err := d.Write(t.Context(), 0, cmds); err != nil {
				t.Fatal(err)
			}
			if dev.holding[30] != 0x8203 {
				t.Errorf("mask write %v: register %04x", mask, dev.holding[30])
			}
			want := []int{22, 22, 22, 22}
			if !mask {
				want = []int{22, 3, 6, 3, 6, 3, 6, 3, 6}
			}
			if got := functions(p); !slices.Equal(got, want) {
				t.Errorf("mask write %v: functions %v", mask, got)
			}
		})
	}
}

func TestWriteStatuses(t *testing.T) {
	for _, row := range []struct {
		name   string
		code   byte // exception; 0: silence
		status tag.Status
		kind   drivers.FaultKind
	}{
		{"sent and unanswered", 0, tag.BadTimeout, drivers.Mute},
		{"exception 1", 1, tag.BadNotSupported, drivers.Refused},
		{"exception 2", 2, tag.BadConfigurationError, drivers.Refused},
		{"exception 3", 3, tag.BadOutOfRange, drivers.Refused},
		{"exception 4", 4, tag.BadDeviceFailure, drivers.Refused},
		{"exception 6", 6, tag.BadResourceUnavailable, drivers.Busy},
		{"exception 11", 11, tag.BadNoCommunication, drivers.Mute},
	} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{refuse: func([]byte) byte { return row.code }}
			p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
			if row.code == 0 {
				p.units = nil
			}
			d, l := open(t, p, Config{Tags: []Tag{{Name: "t", Address: "holding:0", Access: rw}}}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(7))}}
			err := d.Write(t.Context(), 0, cmds)
			var f *drivers.Fault
			if cmds[0].Status != row.status || !errors.As(err, &f) || f.Kind != row.kind {
				t.Errorf("%s: %v, %v", row.name, cmds[0].Status, err)
			}
			if len(p.seen()) != 1 {
				t.Errorf("%s: sent %d times", row.name, len(p.seen()))
			}
		})
	}
}

// The device took the write and refuses the reading that was to verify it: the write is not refused, but unconfirmed.
func TestVerifyThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{refuse: func(pdu []byte) byte {
			if pdu[0] == 3 {
				return 4
			}
			return 0
		}}
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
		d, l := open(t, p, Config{Tags: []Tag{{Name: "t", Address: "holding:0", Access: rw, Verify: true}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		cmds := []tag.Command{{Ref: 1, Value: tag.Of(uint16(5)), Status: tag.BadNoCommunication}}
		err := d.Write(t.Context(), 0, cmds)
		var f *drivers.Fault
		if !errors.As(err, &f) || cmds[0].Status != tag.BadTimeout || dev.holding[0] != 5 {
			t.Errorf("%v, %v, register %d", err, cmds[0].Status, dev.holding[0])
		}
	})
}

func TestVerify(t *testing.T) {
	for _, row := range []struct {
		name, address, typ string
		stuck              bool
		value              tag.Value
		want               tag.Status
	}{
		{"register", "holding:0", "uint16", false, tag.Of(uint16(7)), tag.Good},
		{"bit", "holding:0.3", "", false, tag.Of(true), tag.Good},
		{"coils", "coil:3", "bool[3]", false, tag.OfSlice([]bool{true, false, true}), tag.Good},
		{"register that takes nothing", "holding:0", "uint16", true, tag.Of(uint16(7)), tag.BadDeviceFailure},
		{"coil that takes nothing", "coil:0", "", true, tag.Of(true), tag.BadDeviceFailure},
	} {
		synctest.Test(t, func(t *testing.T) {
			dev := &registers{}
			answer := func(pdu []byte) []byte {
				if row.stuck && pdu[0] > 4 {
					return pdu[:5]
				}
				return dev.answer(pdu)
			}
			p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: answer}}
			d, l := open(t, p, Config{Tags: []Tag{{Name: "t", Address: row.address, Type: row.typ, Access: rw, Verify: true}}}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			cmds := []tag.Command{{Ref: 1, Value: row.value}}
			if d.Write(t.Context(), 0, cmds); cmds[0].Status != row.want {
				t.Errorf("%s: %v, want %v", row.name, cmds[0].Status, row.want)
			}
		})
	}
}

// pollAll makes all requests of scan 0 as a bus does.
func pollAll(ctx context.Context, d *Device) (out []tag.Sample) {
	for i := 0; i < len(d.Requests(0)); {
		var err error
		out, err = d.Poll(ctx, 0, d.Requests(0)[i], out)
		if !errors.Is(err, drivers.ErrReplanned) {
			i++
		}
	}
	return out
}

func TestException2SplitsUntilTheOffenderIsAlone(t *testing.T) {
	for _, row := range []struct{ code, bad int }{{2, 37}, {3, 37}, {2, 0}, {2, 59}} {
		synctest.Test(t, func(t *testing.T) {
			cured := false
			dev := &registers{refuse: func(pdu []byte) byte {
				at, n := int(pdu[1])<<8|int(pdu[2]), int(pdu[3])<<8|int(pdu[4])
				if at <= row.bad && at+n > row.bad && !cured {
					return byte(row.code)
				}
				return 0
			}}
			p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
			var tags []Tag
			for i := range 60 {
				tags = append(tags, Tag{Name: fmt.Sprintf("t%d", i), Address: fmt.Sprintf("holding:%d", i)})
				dev.holding[i] = uint16(i)
			}
			d, l := open(t, p, Config{Tags: tags}, LinkConfig{Timeout: waits})
			defer closeAll(l, p)
			asked := func(want, least, most int) {
				t.Helper()
				before := len(p.seen())
				got := pollAll(t.Context(), d)
				if len(got) != want {
					t.Errorf("address %d: %d readings, want %d", row.bad, len(got), want)
				}
				for _, s := range got {
					status := tag.Good
					if int(s.Ref) == row.bad+1 && !cured {
						status = tag.BadConfigurationError
					}
					if s.Status != status || status == tag.Good && s.Value.Bits() != uint64(s.Ref-1) {
						t.Errorf("register %d: %v, %v", s.Ref-1, s.Status, s.Value)
					}
				}
				if n := len(p.seen()) - before; n < least || n > most {
					t.Errorf("address %d: %d requests, want %d to %d", row.bad, n, least, most)
				}
			}
			asked(60, 11, 14) // one, and two for each halving
			asked(59, 5, 6)   // the offender is left alone
			asked(59, 5, 6)
			l.Open(t.Context())
			asked(59, 5, 6) // a device that closes after each answer is no other each time
			time.Sleep(restAtLeast)
			l.Open(t.Context())
			asked(60, 6, 7) // after a reconnect it may be another device
			time.Sleep(restFor)
			asked(60, 6, 7)
			cured = true
			asked(59, 5, 6)
			time.Sleep(restFor)
			asked(60, 6, 7)
			asked(60, 1, 1) // put together again
		})
	}
}

// Every request is refused for its size, whatever its addresses: the halves stay apart.
func TestD5SmallDeviceFindsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{refuse: func(pdu []byte) byte {
			if n := int(pdu[3])<<8 | int(pdu[4]); n > 20 {
				return 3
			}
			return 0
		}}
		p := &peer{framing: RTU, units: map[byte]func([]byte) []byte{1: dev.answer}}
		var tags []Tag
		for i := range 60 {
			tags = append(tags, Tag{Name: fmt.Sprintf("t%d", i), Address: fmt.Sprintf("holding:%d", 2*i), Type: "float32"})
		}
		d, l := open(t, p, Config{Tags: tags}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		for range 3 {
			before := len(p.seen())
			if got := pollAll(t.Context(), d); len(got) != 60 || slices.ContainsFunc(got, func(s tag.Sample) bool { return s.Status != tag.Good }) {
				t.Fatalf("%d readings: %v", len(got), got)
			}
			if n := len(p.seen()) - before; before > 0 && n != 8 {
				t.Errorf("%d requests a scan", n)
			}
		}
	})
}

func TestRefreshReadsNoMoreThanItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &registers{}
		p := &peer{framing: TCP, units: map[byte]func([]byte) []byte{1: dev.answer}}
		tags := []Tag{{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:1", Type: "float32"}, {Name: "c", Address: "holding:3"},
			{Name: "d", Address: "holding:4"}, {Name: "w", Address: "holding:5", Access: tag.Writable}, {Name: "far", Address: "holding:500"}}
		d, l := open(t, p, Config{Tags: tags}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		for _, row := range []struct {
			refs, want []tag.Ref
			at, count  int
		}{
			{[]tag.Ref{2}, []tag.Ref{2}, 1, 2},
			{[]tag.Ref{4, 2}, []tag.Ref{2, 3, 4}, 1, 4},
			{[]tag.Ref{6, 1}, []tag.Ref{6}, 500, 1},
			{[]tag.Ref{5}, nil, 0, 0},
			{[]tag.Ref{77}, nil, 0, 0},
		} {
			before := len(p.seen())
			got, err := d.Refresh(t.Context(), 0, row.refs, nil)
			var refs []tag.Ref
			for _, s := range got {
				refs = append(refs, s.Ref)
			}
			if err != nil || !slices.Equal(refs, row.want) {
				t.Errorf("refresh of %v brought %v, %v", row.refs, refs, err)
			}
			if row.count == 0 {
				if len(p.seen()) != before {
					t.Errorf("refresh of %v asked the device", row.refs)
				}
				continue
			}
			adu := p.seen()[before]
			if at, n := int(adu[8])<<8|int(adu[9]), int(adu[10])<<8|int(adu[11]); at != row.at || n != row.count {
				t.Errorf("refresh of %v read %d+%d", row.refs, at, n)
			}
		}
	})
}

func TestScansByPeriod(t *testing.T) {
	d, err := New(Config{Name: "d", Tags: []Tag{
		{Ref: 1, Name: "a", Address: "holding:0", Poll: 1000}, {Ref: 2, Name: "b", Address: "holding:1", Poll: 10}, {Ref: 3, Name: "c", Address: "holding:2", Poll: 1000},
		{Ref: 4, Name: "d", Address: "holding:9"}, {Ref: 5, Name: "w", Address: "holding:10", Access: tag.Writable}, {Ref: 6, Name: "h", Address: "holding:11", Hold: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if s := d.Scans(); len(s) != 3 || s[0] != 10 || s[1] != 1000 || s[2] != defaultPoll {
		t.Fatalf("scans %v", s)
	}
	for scan, want := range []int{1, 2, 2} {
		if n := len(d.Requests(scan)); n != want {
			t.Errorf("scan %d has %d requests, want %d", scan, n, want)
		}
	}
	if len(d.Tags()) != 6 || d.Hold()[6] != 5 || len(d.Hold()) != 1 {
		t.Errorf("tags %v, hold %v", d.Tags(), d.Hold())
	}
}
