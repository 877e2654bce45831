package bench

import (
	"encoding/binary"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/wire"
)

// verdict is what a scan finds in an answer.
type verdict struct {
	items int           // results
	bad   int           // results that are not Good, or without the value that was asked for
	code  ua.StatusCode // of the first bad one
	fault error         // the answer as a whole is wrong: no result counts
}

// err is nil for an answer without anything wrong.
func (v *verdict) err(q *request) error {
	switch {
	case v.fault != nil:
		return v.fault
	case v.bad > 0:
		return fmt.Errorf("%d of %d results are bad, the first with %w", v.bad, v.items, v.code)
	case v.items != q.items:
		return fmt.Errorf("%d results for %d items", v.items, q.items)
	}
	return nil
}

// A scanner walks over the results of a response without decoding them. b stands behind the ResponseHeader.
type scanner func(b []byte) verdict

// errCut is an answer that ends too soon, or holds what cannot be.
var errCut = fmt.Errorf("the answer cannot be read")

// severe are the bits of a status code that are 0 when it is Good (Part 4, 7.39).
const severe = 0xC000_0000

// Sizes in the ResponseHeader (Part 4, 7.34): Timestamp and RequestHandle, the ServiceResult, and what follows where there
// are no diagnostics, no string table and no additional header.
const (
	typeSize   = 4 // a type id of namespace 0 above 255, the only ones that are used here
	handleAt   = typeSize + 8
	resultAt   = handleAt + 4
	tailAt     = resultAt + 4
	headerSize = tailAt + 1 + 4 + 3
)

// check tells whether b is the answer to q with all results Good.
func (q *request) check(b []byte, handle uint32) verdict {
	if len(b) < headerSize || b[0] != 1 || b[1] != 0 {
		return verdict{fault: errCut}
	}
	kind := uint32(binary.LittleEndian.Uint16(b[2:]))
	got, code := binary.LittleEndian.Uint32(b[handleAt:]), ua.StatusCode(binary.LittleEndian.Uint32(b[resultAt:]))
	switch {
	case code&severe != 0:
		return verdict{fault: code}
	case kind != q.answer:
		return verdict{fault: fmt.Errorf("an answer of type i=%d, not i=%d", kind, q.answer)}
	case got != handle:
		return verdict{fault: fmt.Errorf("the answer to request %d, not to %d", got, handle)}
	}
	n := tail(b[tailAt:])
	if n == 0 {
		return verdict{fault: errCut}
	}
	return q.scan(b[tailAt+n:])
}

// tail is the size of ServiceDiagnostics, StringTable and AdditionalHeader; 0: they cannot be read.
func tail(b []byte) int {
	// What honest servers send: nothing, and a null or an empty table.
	if n := int32(binary.LittleEndian.Uint32(b[1:])); b[0] == 0 && n <= 0 && b[5] == 0 && b[6] == 0 && b[7] == wire.NoBody {
		return 8
	}
	r := wire.NewReader(b)
	r.SkipBuiltin(diagnosticInfo)
	for range r.Count(4) {
		r.ByteString()
	}
	r.Extension()
	if r.Err() != nil {
		return 0
	}
	return r.Offset()
}

// count reads the length of an array; false: b is too short, or the array cannot fit into it.
func count(b []byte, least int) (n int, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	n = max(int(int32(binary.LittleEndian.Uint32(b))), 0)
	return n, b[4:], n <= (len(b)-4)/least
}

// scalarSize is the size of a Variant with its type in it, for the types whose values have one size; 0 for the others.
var scalarSize = [64]uint8{1: 2, 2: 2, 3: 2, 4: 3, 5: 3, 6: 5, 7: 5, 8: 9, 9: 9, 10: 5, 11: 9, 13: 9, 14: 17, 19: 5}

// The fields of a DataValue (Part 6, 5.2.2.17).
const (
	hasValue      = 0x01
	hasStatus     = 0x02
	hasSource     = 0x04
	hasServer     = 0x08
	hasSourcePico = 0x10
	hasServerPico = 0x20
	dataFields    = 0x3F // the other bits mean nothing yet
)

// Built-in types (Part 6, 5.1.2).
const (
	variant        = 24
	diagnosticInfo = 25
)

// Least sizes of results: a BrowseResult's status, continuation point and references; a reference's ids, direction,
// names, class and type.
const (
	leastBrowse    = 4 + 4 + 4
	leastReference = 2 + 1 + 2 + 6 + 1 + 4 + 2
)

// timesSize is the size of a DataValue's timestamps, by the high bits of its mask.
var timesSize = func() (size [64]uint8) {
	for mask := range size {
		for bit, n := range map[int]uint8{hasSource: 8, hasServer: 8, hasSourcePico: 2, hasServerPico: 2} {
			if mask&bit != 0 {
				size[mask] += n
			}
		}
	}
	return size
}()

// scanRead walks over the DataValues of a ReadResponse.
func scanRead(b []byte) verdict {
	n, b, ok := count(b, 1)
	v := verdict{items: n}
	for i := 0; i < n && ok; i++ {
		var code ua.StatusCode
		if code, b, ok = scanValue(b); code&severe != 0 {
			v.badItem(code)
		}
	}
	if !ok || !ending(b) {
		v.fault = errCut
	}
	return v
}

// badItem counts a result that is not Good.
func (v *verdict) badItem(code ua.StatusCode) {
	if v.bad++; v.bad == 1 {
		v.code = code
	}
}

// scanValue passes over a DataValue. One without a value gives BadNoData, unless it says itself what is bad.
func scanValue(b []byte) (code ua.StatusCode, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	mask := b[0] & dataFields
	b = b[1:]
	if mask&hasValue == 0 {
		code = ua.StatusBadNoData
	} else if b = passVariant(b); b == nil {
		return 0, nil, false
	}
	if mask&hasStatus != 0 {
		if len(b) < 4 {
			return 0, nil, false
		}
		if c := ua.StatusCode(binary.LittleEndian.Uint32(b)); c&severe != 0 {
			code = c
		}
		b = b[4:]
	}
	size := int(timesSize[mask])
	if len(b) < size {
		return 0, nil, false
	}
	return code, b[size:], true
}

// passVariant passes over a Variant; nil: it cannot be read.
func passVariant(b []byte) []byte {
	if len(b) > 0 && b[0] < 64 {
		if size := int(scalarSize[b[0]]); size > 0 && size <= len(b) {
			return b[size:]
		}
	}
	r := wire.NewReader(b)
	r.SkipBuiltin(variant)
	if r.Err() != nil {
		return nil
	}
	return b[r.Offset():]
}

// scanStatuses walks over the results of a WriteResponse.
func scanStatuses(b []byte) verdict {
	n, b, ok := count(b, 4)
	if !ok || !ending(b[4*n:]) {
		return verdict{fault: errCut}
	}
	v := verdict{items: n}
	for ; n > 0; n, b = n-1, b[4:] {
		if code := ua.StatusCode(binary.LittleEndian.Uint32(b)); code&severe != 0 {
			v.badItem(code)
		}
	}
	return v
}

// scanBrowse walks over the results of a BrowseResponse. One without references is bad: the workloads browse nodes that
// have some, and ask for all at once.
func scanBrowse(b []byte) verdict {
	n, b, ok := count(b, leastBrowse)
	if !ok {
		return verdict{fault: errCut}
	}
	v := verdict{items: n}
	r := wire.NewReader(b)
	for range n {
		code := ua.StatusCode(r.Uint32())
		point := r.ByteString()
		references := max(r.Count(leastReference), 0)
		for range references {
			passReference(&r)
		}
		if code&severe == 0 && (references == 0 || len(point) > 0) {
			code = ua.StatusBadNothingToDo
		}
		if code&severe != 0 {
			v.badItem(code)
		}
	}
	if !ending(r.Rest()) {
		v.fault = errCut
	}
	return v
}

// passReference passes over a ReferenceDescription (Part 4, 7.30).
func passReference(r *wire.Reader) {
	r.NodeID()
	r.Skip(1) // IsForward
	r.ExpandedID()
	r.QualifiedName()
	r.LocalizedText()
	r.Skip(4) // NodeClass
	r.ExpandedID()
}

// ending reports whether b is the end of a response: the DiagnosticInfos, of which none were asked for, and nothing else.
func ending(b []byte) bool {
	r := wire.NewReader(b)
	for range r.Count(1) {
		r.SkipBuiltin(diagnosticInfo)
	}
	return r.Err() == nil && r.Offset() == len(b)
}
