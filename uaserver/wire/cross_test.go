package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopcua/opcua/ua"
)

// filler fills gopcua's structs with values that its own codec keeps. Its quirks, which ours does not share, are kept
// out: a nil structure writes nothing, "" in a Variant becomes null, NaN loses its bits, an array of ByteStrings must
// have strings of one length, and an XML body has a second length.
type filler struct{ *rand.Rand }

func newFiller(seed uint64) filler { return filler{rand.New(rand.NewPCG(seed, 1))} }

func (f filler) text() string {
	return []string{"a", "boiler", "水Boy", "urn:edged:plant", "äöü€"}[f.IntN(5)]
}

func (f filler) time() time.Time {
	return time.Unix(f.Int64N(4e9), f.Int64N(1e7)*100).UTC()
}

func (f filler) nodeID() *ua.NodeID {
	switch f.IntN(6) {
	case 0:
		return ua.NewTwoByteNodeID(uint8(f.Uint32()))
	case 1:
		return ua.NewFourByteNodeID(uint8(f.Uint32()), 0x100|uint16(f.Uint32()))
	case 2:
		return ua.NewNumericNodeID(uint16(f.Uint32()), 0x10000|f.Uint32())
	case 3:
		return ua.NewStringNodeID(uint16(f.Uint32()), f.text())
	case 4:
		return ua.NewGUIDNodeID(2, "72962B91-FA75-4AE6-8D28-B404DC7DAF63")
	}
	return ua.NewByteStringNodeID(3, []byte{1, 2, byte(f.Uint32())})
}

func (f filler) guid() *ua.GUID {
	g := &ua.GUID{Data1: f.Uint32(), Data2: uint16(f.Uint32()), Data3: uint16(f.Uint32()), Data4: make([]byte, 8)}
	for i := range g.Data4 {
		g.Data4[i] = byte(f.Uint32())
	}
	return g
}

func (f filler) extension(depth int) *ua.ExtensionObject {
	bodies := []any{nil, new(ua.DataChangeFilter), new(ua.AnonymousIdentityToken), new(ua.LiteralOperand),
		new(ua.SimpleAttributeOperand), new(ua.EUInformation), new(ua.HistoryData)}
	v := bodies[f.IntN(len(bodies))]
	if v == nil || depth > 4 {
		return &ua.ExtensionObject{TypeID: ua.NewTwoByteExpandedNodeID(0)}
	}
	f.fill(reflect.ValueOf(v).Elem(), depth+1)
	return ua.NewExtensionObject(v)
}

// variantTypes are the Go types of a Variant's elements.
var variantTypes = []any{false, int8(0), uint8(0), int16(0), uint16(0), int32(0), uint32(0), int64(0), uint64(0),
	float32(0), float64(0), "", time.Time{}, &ua.GUID{}, []byte{}, ua.XMLElement(""), &ua.NodeID{}, &ua.ExpandedNodeID{},
	ua.StatusCode(0), &ua.QualifiedName{}, &ua.LocalizedText{}, &ua.ExtensionObject{}, &ua.DataValue{}, &ua.Variant{},
	&ua.DiagnosticInfo{}}

func (f filler) variant(depth int) *ua.Variant {
	if depth > 4 || f.IntN(10) == 0 {
		return ua.MustVariant(nil)
	}
	t := reflect.TypeOf(variantTypes[f.IntN(len(variantTypes))])
	if t == reflect.TypeFor[*ua.Variant]() {
		t = reflect.SliceOf(t)
	} else if t != reflect.TypeFor[[]byte]() {
		for range f.IntN(4) {
			if t.Kind() == reflect.Uint8 {
				t = reflect.TypeFor[ua.ByteArray]()
			} else {
				t = reflect.SliceOf(t)
			}
		}
	}
	v := reflect.New(t).Elem()
	f.fillElements(v, depth+1)
	return ua.MustVariant(v.Interface())
}

// fillElements fills a value for a Variant: slices of two, so that a matrix is even.
func (f filler) fillElements(v reflect.Value, depth int) {
	if v.Kind() != reflect.Slice || v.Type() == reflect.TypeFor[[]byte]() {
		f.fill(v, depth)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 2, 2))
	for i := range 2 {
		f.fillElements(v.Index(i), depth)
	}
}

func (f filler) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = f.time()
	case **ua.NodeID:
		*p = f.nodeID()
	case **ua.ExpandedNodeID:
		*p = ua.NewExpandedNodeID(f.nodeID(), []string{"", "urn:x"}[f.IntN(2)], uint32(f.IntN(2)))
	case **ua.GUID:
		*p = f.guid()
	case **ua.QualifiedName:
		*p = &ua.QualifiedName{NamespaceIndex: uint16(f.Uint32()), Name: f.text()}
	case **ua.LocalizedText:
		*p = ua.NewLocalizedTextWithLocale([]string{"", f.text()}[f.IntN(2)], []string{"", "de"}[f.IntN(2)])
	case **ua.ExtensionObject:
		*p = f.extension(depth)
	case **ua.Variant:
		*p = f.variant(depth)
	case **ua.DataValue:
		*p = &ua.DataValue{Value: f.variant(depth), Status: ua.StatusCode(f.Uint32()), SourceTimestamp: f.time(),
			SourcePicoseconds: 7, ServerTimestamp: f.time(), ServerPicoseconds: uint16(f.IntN(2))}
		(*p).UpdateMask()
	case **ua.DiagnosticInfo:
		*p = &ua.DiagnosticInfo{SymbolicID: int32(f.IntN(2)), NamespaceURI: int32(f.IntN(2)), Locale: 3, LocalizedText: -4,
			AdditionalInfo: []string{"", "why"}[f.IntN(2)], InnerStatusCode: ua.StatusCode(f.IntN(2))}
		if depth < 4 && f.IntN(2) == 0 {
			(*p).InnerDiagnosticInfo = &ua.DiagnosticInfo{EncodingMask: 1, SymbolicID: 5}
		}
		(*p).UpdateMask()
	default:
		f.fillKind(v, depth)
	}
}

func (f filler) fillKind(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.Int64())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.Uint64())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.IntN(1000)) / 8)
	case reflect.String:
		v.SetString(f.text())
	case reflect.Slice:
		n := f.IntN(4) - 1
		if n < 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth)
		}
	default:
		panic(v.Type().String())
	}
}

// encodable is all that the generated codec covers: messages by their ids, and bodies of ExtensionObjects.
func messageIDs() (ids []uint32) {
	for n := range uint32(1 << 16) {
		if decodeMessage(n, &Reader{}, false) != nil {
			ids = append(ids, n)
		}
	}
	return ids
}

func bodyIDs() (ids []uint32) {
	for n := range uint32(1 << 16) {
		if decodeBody(n, &Reader{mem: 1 << 20}) != nil {
			ids = append(ids, n)
		}
	}
	return ids
}

func TestCoversTheServiceSet(t *testing.T) {
	covered := 0
	for n := range uint32(1 << 16) {
		_, v, _ := ua.DecodeService([]byte{2, 0, 0, byte(n), byte(n >> 8), 0, 0})
		if v == nil {
			continue
		}
		_, request := v.(ua.Request)
		_, response := v.(ua.Response)
		if !request && !response {
			continue // an element of a request, which gopcua registers too
		}
		if decodeMessage(n, &Reader{}, true) == nil {
			t.Errorf("%T (i=%d) has no decoder", v, n)
		}
		covered++
	}
	if covered < 70 || covered != len(messageIDs()) {
		t.Errorf("%d messages in the registry, %d in the codec", covered, len(messageIDs()))
	}
	for _, v := range []any{new(ua.AnonymousIdentityToken), new(ua.UserNameIdentityToken), new(ua.X509IdentityToken),
		new(ua.IssuedIdentityToken), new(ua.DataChangeFilter), new(ua.EventFilter), new(ua.AggregateFilter),
		new(ua.ElementOperand), new(ua.LiteralOperand), new(ua.AttributeOperand), new(ua.SimpleAttributeOperand),
		new(ua.DataChangeNotification), new(ua.EventNotificationList), new(ua.StatusChangeNotification),
		new(ua.ReadRawModifiedDetails), new(ua.ReadProcessedDetails), new(ua.ReadAtTimeDetails), new(ua.ReadEventDetails),
		new(ua.HistoryData), new(ua.HistoryModifiedData), new(ua.HistoryEvent), new(ua.UpdateDataDetails),
		new(ua.ServerStatusDataType), new(ua.BuildInfo), new(ua.EUInformation), new(ua.Range), new(ua.Argument),
		new(ua.EnumValueType), new(ua.SessionDiagnosticsDataType), new(ua.SessionSecurityDiagnosticsDataType),
		new(ua.SubscriptionDiagnosticsDataType), new(ua.ServerDiagnosticsSummaryDataType), new(ua.RedundantServerDataType),
		new(ua.SignedSoftwareCertificate), new(ua.StructureDefinition), new(ua.EnumDefinition), new(ua.TimeZoneDataType),
		new(ua.VariableAttributes), new(ua.EventFilterResult), new(ua.AggregateFilterResult)} {
		if bodyTypeID(v) == 0 {
			t.Errorf("%T is no body of an ExtensionObject", v)
		}
	}
}

// TestMessagesAgainstGopcua writes every message with both codecs, and reads it back with ours.
func TestMessagesAgainstGopcua(t *testing.T) {
	for _, typeID := range messageIDs() {
		for seed := range uint64(40) {
			msg := decodeMessage(typeID, &Reader{}, true)
			newFiller(seed<<32|uint64(typeID)).fill(reflect.ValueOf(msg).Elem(), 0)
			want, err := ua.Encode(msg)
			if err != nil {
				t.Fatalf("%T: %v", msg, err)
			}
			got := AppendMessage(nil, msg)
			r := NewReader(got)
			if id := r.NodeID(); id != NumericID(0, typeID) {
				t.Fatalf("%T: type id %v", msg, id)
			}
			if !bytes.Equal(r.Rest(), want) {
				t.Fatalf("%T seed %d:\n got %x\nwant %x", msg, seed, r.Rest(), want)
			}
			back, err := DecodeMessage(typeID, &r)
			if err != nil || len(r.Rest()) != 0 {
				t.Fatalf("%T seed %d: %v, %d bytes left", msg, seed, err, len(r.Rest()))
			}
			if !reflect.DeepEqual(back, msg) {
				t.Fatalf("%T seed %d: read back differently\n%s", msg, seed, difference(msg, back))
			}
		}
	}
}

func TestBodiesAgainstGopcua(t *testing.T) {
	for _, typeID := range bodyIDs() {
		for seed := range uint64(20) {
			v := decodeBody(typeID, &Reader{mem: 1 << 20})
			newFiller(seed<<32|uint64(typeID)).fill(reflect.ValueOf(v).Elem(), 0)
			e := ua.NewExtensionObject(v)
			want, err := e.Encode()
			if err != nil {
				t.Fatalf("%T: %v", v, err)
			}
			want = append(AppendNodeID(nil, FromUA(e.TypeID.NodeID)), want[len(want)-bodyLen(t, want)-5:]...)
			if got := appendUAExtensionObject(nil, e); !bytes.Equal(got, want) {
				t.Fatalf("%T seed %d:\n got %x\nwant %x", v, seed, got, want)
			}
			r := NewReader(want)
			back := r.uaExtensionObject()
			if r.Err() != nil || !reflect.DeepEqual(back.Value, v) {
				t.Fatalf("%T seed %d: %v\n%s", v, seed, r.Err(), difference(v, back.Value))
			}
		}
	}
}

// bodyLen is the length of the body of an encoded ExtensionObject.
func bodyLen(t *testing.T, b []byte) int {
	r := NewReader(b)
	e := r.Extension()
	if r.Err() != nil || e.Encoding != BinaryBody {
		t.Fatal("not an ExtensionObject with a body", r.Err())
	}
	return len(e.Body)
}

func difference(a, b any) string {
	return cmp.Diff(a, b, cmp.Exporter(func(reflect.Type) bool { return true }))
}

// TestNilsAreZeroes: gopcua writes nothing for a nil structure, and panics at a nil NodeId.
func TestNilsAreZeroes(t *testing.T) {
	for _, typeID := range messageIDs() {
		b := AppendMessage(nil, decodeMessage(typeID, &Reader{}, false))
		r := NewReader(b)
		r.NodeID()
		msg, err := DecodeMessage(typeID, &r)
		if err != nil || len(r.Rest()) != 0 {
			t.Errorf("i=%d: %v, %d bytes left", typeID, err, len(r.Rest()))
			continue
		}
		if again := AppendMessage(nil, msg); !bytes.Equal(again, b) {
			t.Errorf("%T: %x became %x", msg, b, again)
		}
	}
	for _, typeID := range bodyIDs() {
		v := decodeBody(typeID, &Reader{mem: 1 << 20})
		b, ok := appendBody(nil, reflect.Zero(reflect.TypeOf(v)).Interface())
		r := NewReader(b)
		if decodeBody(typeID, &r); !ok || r.Err() != nil || len(r.Rest()) != 0 {
			t.Errorf("%T: %v, %v", v, ok, r.Err())
		}
	}
}
