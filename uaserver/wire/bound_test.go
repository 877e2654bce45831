package wire

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/gopcua/opcua/id"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const header = "\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "\x00\x00\x00\x00" + "\xFF\xFF\xFF\xFF" +
	"\x00\x00\x00\x00" + "\x00\x00\x00"

func count(n int) string { return string(AppendUint32(nil, uint32(n))) }

// bombs are messages that cost much more than they are long, if their counts and depths are believed.
var bombs = []struct {
	name   string
	typeID uint32
	body   string // behind the header
	refuse bool   // nothing of the kind is a message
}{
	{"a count of 2^31-1 without elements", id.RegisterNodesRequest_Encoding_DefaultBinary, "\xFF\xFF\xFF\x7F", true},
	{"a count of -2", id.RegisterNodesRequest_Encoding_DefaultBinary, "\xFE\xFF\xFF\xFF", false},
	{"a string of 2^31-1 bytes", id.GetEndpointsRequest_Encoding_DefaultBinary, "\xFF\xFF\xFF\x7F", true},
	{"a million null NodeIds", id.RegisterNodesRequest_Encoding_DefaultBinary, count(1e6) + strings.Repeat("\x00", 2e6), false},
	{"null Variants as arguments of a method", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1e6) + strings.Repeat("\x00", 1e6), true},
	{"empty method calls", id.CallRequest_Encoding_DefaultBinary,
		count(1e5) + strings.Repeat("\x00\x00\x00\x00\xFF\xFF\xFF\xFF", 1e5), false},
	{"null diagnostics", id.WriteResponse_Encoding_DefaultBinary, count(0) + count(1e6) + strings.Repeat("\x00", 1e6), true},
	{"an array of null ExtensionObjects", id.HistoryUpdateRequest_Encoding_DefaultBinary,
		count(1e5) + strings.Repeat("\x00\x00\x00", 1e5), true},
	{"a matrix of 65536 x 1 x 1 x 1 x 1 x 1 x 1 x 1", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1) + "\xC3" + count(65536) + strings.Repeat("a", 65536) + count(8) + count(65536) +
			strings.Repeat(count(1), 7), true},
	{"a matrix of 100000 dimensions", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1) + "\xC3" + count(1) + "a" + count(1e5) + strings.Repeat(count(1), 1e5), true},
	{"a matrix of 2^31-1 empty rows", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1) + "\xC3" + count(0) + count(2) + count(1<<31-1) + count(0), false},
	{"1 MiB of nested Variants", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1) + strings.Repeat("\x98\x01\x00\x00\x00", 1<<18), true},
	{"1 MiB of nested DataValues", id.CallRequest_Encoding_DefaultBinary,
		count(1) + "\x00\x00\x00\x00" + count(1) + strings.Repeat("\x17\x01", 1<<19), true},
	{"1 MiB of nested diagnostics", id.WriteResponse_Encoding_DefaultBinary, count(0) + count(1) + strings.Repeat("\x40", 1<<20), true},
	{"nested operands", id.CallRequest_Encoding_DefaultBinary, count(1) + "\x00\x00\x00\x00" + count(1) + operands(300), true},
}

// operands nests ExtensionObjects of LiteralOperand in each other.
func operands(depth int) string {
	v := []byte{0}
	for range depth {
		b, at := BeginExtension([]byte{22}, id.LiteralOperand_Encoding_DefaultBinary)
		v = EndExtension(append(b, v...), at)
	}
	return string(v)
}

// TestBombs is C11 too: what decoding allocates is bounded by what was sent.
func TestBombs(t *testing.T) {
	for _, bomb := range bombs {
		head := header
		if bomb.typeID == id.WriteResponse_Encoding_DefaultBinary {
			head = string(AppendResponseHeader(nil, bomb.typeID, 1, 0, 0)[4:])
		}
		b := []byte(head + bomb.body)
		var err error
		got := allocated(func() {
			r := NewReader(b)
			_, err = DecodeMessage(bomb.typeID, &r)
		})
		// Size classes and the Go side of a Variant come on top of what is counted.
		if most := uint64(2 * (memoryBase + memoryPerByte*len(b))); got > most {
			t.Errorf("%s: %d bytes allocate %d, more than %d", bomb.name, len(b), got, most)
		}
		if (err != nil) != bomb.refuse {
			t.Errorf("%s: error %v", bomb.name, err)
		}
	}
}

// TestHotBombs: values of the hot services are charged to nobody, and so must not outgrow the message.
func TestHotBombs(t *testing.T) {
	for _, row := range []struct {
		name  string
		value string
		most  uint64 // bytes for one of the message
	}{
		{"null strings", "\x8C" + count(1e5) + strings.Repeat("\xFF", 4e5), 5},
		{"null byte strings", "\x8F" + count(1e5) + strings.Repeat("\xFF", 4e5), 7},
		{"an array of nothing", "\x98" + count(1e6) + strings.Repeat("\x00", 1e6), 2},
		{"nested Variants", strings.Repeat("\x98\x01\x00\x00\x00", 1<<18), 1},
		{"a count alone", "\x8B\xFF\xFF\xFF\x7F", 50},
	} {
		b := []byte(row.value)
		got := allocated(func() {
			r := NewReader(b)
			r.Variant()
		})
		if got > row.most*uint64(len(b))+4096 {
			t.Errorf("%s: %d bytes allocate %d", row.name, len(b), got)
		}
	}
}

// TestHonestMessages: what clients send stays far below the bound, so that it refuses no work.
func TestHonestMessages(t *testing.T) {
	item := "\x03\x02\x00" + count(18) + "boiler.temperature" + "\x0D\x00\x00\x00" + "\xFF\xFF\xFF\xFF" + "\x00\x00\xFF\xFF\xFF\xFF" +
		"\x02\x00\x00\x00" + "\x01\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00" + "\x0A\x00\x00\x00" + "\x01"
	for _, row := range []struct {
		name   string
		typeID uint32
		body   string
	}{
		{"10,000 monitored items", id.CreateMonitoredItemsRequest_Encoding_DefaultBinary, count(1) + count(2) + count(10000) + strings.Repeat(item, 10000)},
		{"10,000 nodes to register", id.RegisterNodesRequest_Encoding_DefaultBinary, count(10000) + strings.Repeat("\x01\x02\x10\x27", 10000)},
		{"1,000 nodes of namespace 0", id.RegisterNodesRequest_Encoding_DefaultBinary, count(1000) + strings.Repeat("\x00\x54", 1000)},
	} {
		r := NewReader([]byte(header + row.body))
		before := r.mem
		if _, err := DecodeMessage(row.typeID, &r); err != nil || r.mem < before/5 {
			t.Errorf("%s: %v, %d of %d bytes of memory left", row.name, err, r.mem, before)
		}
	}
}

// TestDepth: 100 levels are read (Part 6, 5.2.2.12 asks for that of DiagnosticInfo), the next is refused.
func TestDepth(t *testing.T) {
	for n, want := range map[int]error{MaxDepth: nil, MaxDepth + 1: ErrLimit} {
		b := append(bytes.Repeat([]byte{0x40}, n-1), 0)
		r := NewReader(b)
		if r.uaDiagnosticInfo(); r.Err() != want {
			t.Errorf("%d diagnostics: %v", n, r.Err())
		}
		b = append([]byte{0x99, 1, 0, 0, 0}, append(bytes.Repeat([]byte{0x40}, n-2), 0)...)
		r = NewReader(b)
		if r.Variant(); r.Err() != want {
			t.Errorf("a Variant of %d diagnostics: %v", n-1, r.Err())
		}
		b = append(bytes.Repeat([]byte{0x98, 1, 0, 0, 0}, n-1), 0)
		r = NewReader(b)
		if r.uaVariant(); r.Err() != want {
			t.Errorf("%d Variants: %v", n, r.Err())
		}
	}
}

// TestC11MalformedInput decodes every message with flipped bytes and cut ends: none may panic, or leave a message behind
// beside its error.
func TestC11MalformedInput(t *testing.T) {
	for _, typeID := range messageIDs() {
		f := newFiller(uint64(typeID))
		for seed := range uint64(100) {
			_, b := request(typeID, seed)
			for range 1 + f.IntN(3) {
				b[f.IntN(len(b))] = byte(f.Uint32())
			}
			b = b[:len(b)-f.IntN(2)*f.IntN(len(b))]
			r := NewReader(b)
			if m, err := DecodeMessage(typeID, &r); (m == nil) != (err != nil) {
				t.Fatalf("i=%d seed %d: %v and %v", typeID, seed, m, err)
			}
			for _, v := range views {
				if r = NewReader(b); v.typeID == typeID {
					r.RequestHeader()
					v.walk(&r)
				}
			}
		}
	}
}
