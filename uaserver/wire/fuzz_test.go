package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func seedGolden(f *testing.F) {
	for _, row := range golden {
		f.Add(unhex(f, row.hex))
	}
	for _, row := range bombs {
		f.Add([]byte(row.body[:min(len(row.body), 200)]))
	}
	for _, k := range []string{"\x98\x01\x00\x00\x00", "\x17\x01", "\x40"} {
		f.Add([]byte(strings.Repeat(k, 120)))
	}
	for seed := range uint64(60) {
		f.Add(appendUAVariant(nil, newFiller(seed).variant(0)))
	}
}

// FuzzVariant: what is read is written and read again as the same; both readers of a Variant accept the same bytes.
func FuzzVariant(f *testing.F) {
	seedGolden(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		v := r.Variant()
		cold := NewReader(b)
		m := cold.uaVariant()
		skip := NewReader(b)
		if skip.skipVariant(); (skip.err == nil) != (r.err == nil) || skip.off != r.off {
			t.Fatalf("checked: %v at %d; read: %v at %d", skip.err, skip.off, r.err, r.off)
		}
		if r.err != nil {
			// A cold message looks into ExtensionObjects, and has a budget; so it may refuse more, never less.
			if cold.err == nil {
				t.Fatalf("%v, but gopcua's Variant was read", r.err)
			}
			return
		}
		out := AppendVariant(nil, v)
		again := NewReader(out)
		if w := again.Variant(); again.err != nil || !w.Equal(v) || len(again.Rest()) != 0 {
			t.Fatalf("% X became % X: %v", b[:r.off], out, again.err)
		}
		if cold.err == nil {
			again := NewReader(appendUAVariant(nil, m))
			if again.uaVariant(); again.err != nil || cold.off != r.off {
				t.Fatalf("gopcua's % X: %v, %d bytes, not %d", b[:r.off], again.err, cold.off, r.off)
			}
		}
	})
}

// FuzzDataValue: a value that was checked can be read, and the other way round.
func FuzzDataValue(f *testing.F) {
	seedGolden(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, skip := NewReader(b), NewReader(b)
		v := r.DataValue()
		skip.skipDataValue()
		if (skip.err == nil && r.err != nil) || skip.err == nil && skip.off != r.off {
			t.Fatalf("checked: %v at %d; read: %v at %d", skip.err, skip.off, r.err, r.off)
		}
		if r.err != nil {
			return
		}
		again := NewReader(AppendDataValue(nil, &v))
		if w := again.DataValue(); again.err != nil || !w.Value.Equal(v.Value) || w.Status != v.Status || w.Source != v.Source || w.Server != v.Server {
			t.Fatalf("%v became %v: %v", v, w, again.err)
		}
	})
}

// FuzzNodeID: an id survives its way through gopcua's.
func FuzzNodeID(f *testing.F) {
	seedGolden(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		if r.ExpandedID(); r.err != nil && r.Rest() != nil {
			t.Fatal("reads on after an error")
		}
		r = NewReader(b)
		n := r.NodeID()
		if r.err != nil {
			return
		}
		_ = n.String()
		again := NewReader(AppendNodeID(nil, n))
		if m := again.NodeID(); m != n || again.err != nil || FromUA(ToUA(n)) != n || again.off > r.off {
			t.Fatalf("%v became %v and %v", n, m, FromUA(ToUA(n)))
		}
	})
}

// FuzzViews: a view gives as many elements as it says, and none after an error; only one that is walked once may have given
// some before it.
func FuzzViews(f *testing.F) {
	for i, v := range views {
		for seed := range uint64(4) {
			_, b := request(v.typeID, seed)
			r := NewReader(b)
			r.RequestHeader()
			f.Add(uint8(i), r.Rest())
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		v := views[int(which)%len(views)]
		r := NewReader(b)
		lines := v.walk(&r)
		if r.err != nil {
			once := v.typeID == id.ReadRequest_Encoding_DefaultBinary || v.typeID == id.CallRequest_Encoding_DefaultBinary
			if len(lines) != 1 && !once {
				t.Fatalf("%v, but elements %q", r.err, lines)
			}
			return
		}
		cold := NewReader(b)
		if m, err := DecodeRequest(v.typeID, &cold); err == nil && len(v.same(m)) != len(lines) {
			t.Fatalf("%q, but gopcua's %q", lines, v.same(m))
		}
	})
}

// FuzzDecodeMessage: no bytes panic or outgrow the budget; what was read is written, and read as the same bytes.
func FuzzDecodeMessage(f *testing.F) {
	for _, typeID := range messageIDs() {
		for seed := range uint64(2) {
			_, b := request(typeID, seed)
			f.Add(typeID, b)
		}
	}
	for _, b := range bombs {
		f.Add(b.typeID, []byte(header+b.body[:min(len(b.body), 300)]))
	}
	f.Fuzz(func(t *testing.T, typeID uint32, b []byte) {
		r := NewReader(b)
		msg, err := DecodeMessage(typeID, &r)
		if err != nil {
			if msg != nil {
				t.Fatalf("%v, and %T", err, msg)
			}
			return
		}
		out := AppendMessage(nil, msg)
		again := NewReader(out)
		again.mem = 1 << 30
		again.NodeID()
		back, err := DecodeMessage(typeID, &again)
		if err != nil || len(again.Rest()) != 0 {
			t.Fatalf("%T: %v, %d bytes left of % X", msg, err, len(again.Rest()), out)
		}
		if !bytes.Equal(AppendMessage(nil, back), out) {
			t.Fatalf("%T: % X was written differently the second time", msg, out)
		}
	})
}

// FuzzExtension: the body of a filter.
func FuzzExtension(f *testing.F) {
	for _, typeID := range bodyIDs() {
		v := decodeBody(typeID, &Reader{mem: 1 << 20})
		b, _ := appendBody(nil, v)
		f.Add(typeID, b)
	}
	f.Fuzz(func(t *testing.T, typeID uint32, b []byte) {
		e := Extension{NumericID(0, typeID), BinaryBody, b}
		v, err := e.Value()
		if _, _, err := e.DataChangeFilter(); err != nil && err != ErrShort {
			t.Fatal(err)
		}
		if err == nil && v != nil {
			r := NewReader(appendUAExtensionObject(nil, &ua.ExtensionObject{TypeID: &ua.ExpandedNodeID{NodeID: ToUA(e.Type)}, Value: v}))
			if x := r.Extension(); r.err != nil || x.Type != e.Type {
				t.Fatalf("%T: %v", v, r.err)
			}
		}
	})
}
