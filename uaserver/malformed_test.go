package uaserver

import (
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// Requests are read item by item; one that is malformed in a late item carries out nothing, and leaves nothing behind for
// the next.
func TestMalformedItemsCarryOutNothing(t *testing.T) {
	f := start(t, nil)
	c, reads := hotCall(t, f)
	writes := hotWrite(t)
	f.tags.Join(&quietField{f.tags})
	ref := f.ref(t, "scratch."+testDefs[6].Name)
	before, _, _ := f.tags.Last(ref)
	begin := func(body []byte) {
		c.body = wire.NewReader(body)
		c.header = c.body.RequestHeader()
	}
	for n := 40; n < len(writes); n += 7 {
		begin(writes[:n])
		if w, _, code := f.beginWrite(c); code != ua.StatusBadDecodingError || w != nil {
			t.Fatalf("a Write cut to %d of %d bytes: %v", n, len(writes), code)
		}
	}
	for n := 40; n < len(reads); n += 7 {
		begin(reads[:n])
		if r, code := f.beginRead(c); code != ua.StatusBadDecodingError || r != nil {
			t.Fatalf("a Read cut to %d of %d bytes: %v", n, len(reads), code)
		}
	}
	if after, _, _ := f.tags.Last(ref); after != before {
		t.Errorf("%v became %v", before, after)
	}
	begin(reads)
	r, code := f.beginRead(c)
	if code != ua.StatusGood || len(r.items) != 100 || r.items[99].Node == nil {
		t.Fatalf("the request behind them: %v", code)
	}
	r.free()
}
