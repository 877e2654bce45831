package event

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"go.uber.org/goleak"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSpace(t testing.TB) *address.Space {
	t.Helper()
	s, err := address.New("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// operands of a where clause, as a client builds them.
func lit(v any) any { return &ua.LiteralOperand{Value: ua.MustVariant(v)} }
func nothing() any  { return &ua.LiteralOperand{Value: &ua.Variant{}} }
func elem(i uint32) any {
	return &ua.ElementOperand{Index: i}
}
func field(names ...string) *ua.SimpleAttributeOperand {
	o := &ua.SimpleAttributeOperand{TypeDefinitionID: ua.NewNumericNodeID(0, id.BaseEventType), AttributeID: ua.AttributeIDValue}
	for _, n := range names {
		o.BrowsePath = append(o.BrowsePath, &ua.QualifiedName{Name: n})
	}
	return o
}

func op(o ua.FilterOperator, operands ...any) *ua.ContentFilterElement {
	e := &ua.ContentFilterElement{FilterOperator: o}
	for _, x := range operands {
		e.FilterOperands = append(e.FilterOperands, ua.NewExtensionObject(x))
	}
	return e
}

func encode(t testing.TB, list []*ua.SimpleAttributeOperand, where ...*ua.ContentFilterElement) []byte {
	t.Helper()
	b, err := ua.Encode(&ua.EventFilter{SelectClauses: list, WhereClause: &ua.ContentFilter{Elements: where}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var someEvent = Event{
	Type: Type(id.DeviceFailureEventType), Severity: 700, Message: "boiler: no answer", Time: tag.TimeOf(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)),
	Fields: []Field{
		{"Small", tag.Of(int8(-5))}, {"Byte", tag.Of(uint8(200))}, {"Word", tag.Of(uint16(0x8034))}, {"Big", tag.Of(uint64(math.MaxUint64))},
		{"Long", tag.Of(int64(-1))}, {"Half", tag.Of(float32(0.5))}, {"Double", tag.Of(2.5)}, {"Flag", tag.Of(true)},
		{"Text", tag.Of("12")}, {"Code", tag.Of(tag.Status(0x80340000))}, {"List", tag.OfSlice([]int32{1, 2, 3})},
		{"NaN", tag.Of(math.NaN())}, {"Guid", tag.OfRaw(append([]byte{14}, "0123456789abcdef"...))},
		{"Qualified", wire.QualifiedNameValue(2, "boiler")}, {"Bytes", tag.OfBytes([]byte("0123456789abcdef"))},
	},
}

// known makes fields of the events above known to a filter: they are no fields of a standard type.
func (f *Filter) known() {
	for i := range f.where {
		for k := range f.where[i].operands {
			f.where[i].operands[k].status = ua.StatusGood
		}
	}
}

const (
	eq      = ua.FilterOperatorEquals
	isNull  = ua.FilterOperatorIsNull
	gt      = ua.FilterOperatorGreaterThan
	lt      = ua.FilterOperatorLessThan
	ge      = ua.FilterOperatorGreaterThanOrEqual
	le      = ua.FilterOperatorLessThanOrEqual
	likeOp  = ua.FilterOperatorLike
	not     = ua.FilterOperatorNot
	between = ua.FilterOperatorBetween
	inList  = ua.FilterOperatorInList
	andOp   = ua.FilterOperatorAnd
	orOp    = ua.FilterOperatorOr
	castOp  = ua.FilterOperatorCast
	ofType  = ua.FilterOperatorOfType
	bitAnd  = ua.FilterOperatorBitwiseAnd
	bitOr   = ua.FilterOperatorBitwiseOr
)

type elements = []*ua.ContentFilterElement

func typ(n uint32) any { return lit(ua.NewNumericNodeID(0, n)) }

// TestWhere is Part 4, 7.7.3: each operator, its conversions and its three values. The result is that of the first
// element: TRUE, FALSE or NULL.
func TestWhere(t *testing.T) {
	space := newSpace(t)
	sev := field("Severity")
	of := func(n string) any { return field(n) }
	cast := func(v any, to uint32, then ua.FilterOperator, other any) elements {
		return elements{op(then, elem(1), other), op(castOp, v, typ(to))}
	}
	rows := []struct {
		name  string
		where elements
		want  logic
	}{
		{"no where clause", nil, yes},
		{"Equals", elements{op(eq, sev, lit(uint16(700)))}, yes},
		{"Equals, not", elements{op(eq, sev, lit(uint16(701)))}, no},
		{"Equals: UInt16 to Int32", elements{op(eq, sev, lit(int32(700)))}, yes},
		{"Equals: UInt16 to Double", elements{op(eq, sev, lit(700.0))}, yes},
		{"Equals: Double has its fraction", elements{op(eq, sev, lit(700.5))}, no},
		{"Equals: String to UInt16", elements{op(eq, sev, lit("700"))}, yes},
		{"Equals: String that is no number", elements{op(eq, sev, lit("high"))}, no},
		{"Equals: String to SByte", elements{op(eq, of("Small"), lit("-5"))}, yes},
		{"Equals: SByte and UInt64 do not fit", elements{op(eq, of("Small"), lit(uint64(math.MaxUint64-4)))}, no},
		{"Equals: UInt64 beyond Int64", elements{op(eq, of("Big"), of("Long"))}, no},
		{"Equals: Boolean to Byte", elements{op(eq, of("Flag"), lit(uint8(1)))}, yes},
		{"Equals: String to Boolean", elements{op(eq, of("Flag"), lit("true"))}, yes},
		{"Equals: UInt16 to StatusCode", elements{op(eq, of("Code"), lit(uint16(0x8034)))}, yes},
		{"Equals: StatusCode to UInt32", elements{op(eq, of("Code"), lit(uint32(0x80340000)))}, yes},
		{"Equals: StatusCode and Byte have no conversion", elements{op(eq, of("Code"), lit(uint8(1)))}, no},
		{"Equals: String to Guid", elements{op(eq, of("Guid"), lit("33323130-3534-3736-3839-616263646566"))}, yes},
		{"Equals: NodeId to String", elements{op(eq, field("SourceNode"), lit("i=2253"))}, yes},
		{"Equals: NodeId", elements{op(eq, field("EventType"), typ(id.DeviceFailureEventType))}, yes},
		{"Equals: NodeId to ExpandedNodeId", elements{op(eq, field("EventType"), lit(ua.NewNumericExpandedNodeID(0, id.DeviceFailureEventType)))}, yes},
		{"Equals: LocalizedText to String", elements{op(eq, field("Message"), lit("boiler: no answer"))}, yes},
		{"Equals: LocalizedText without a locale", elements{op(eq, field("Message"), lit(ua.NewLocalizedText("boiler: no answer")))}, yes},
		{"Equals: another locale", elements{op(eq, field("Message"), lit(ua.NewLocalizedTextWithLocale("boiler: no answer", "de")))}, no},
		{"Equals: QualifiedName to String", elements{op(eq, of("Qualified"), lit("2:boiler"))}, yes},
		{"Equals: QualifiedName to LocalizedText", elements{op(eq, of("Qualified"), lit(ua.NewLocalizedText("boiler")))}, yes},
		{"Equals: arrays", elements{op(eq, of("List"), lit([]int32{1, 2, 3}))}, yes},
		{"Equals: an array and a scalar", elements{op(eq, of("List"), lit(int32(1)))}, no},
		{"Equals: null is equal to nothing", elements{op(eq, of("Absent"), nothing())}, no},
		{"Equals: NaN", elements{op(eq, of("NaN"), of("NaN"))}, no},
		{"Equals: DateTime", elements{op(eq, field("Time"), lit(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))}, yes},
		{"Equals: DateTime and String are converted by Cast alone", elements{op(eq, field("Time"), lit("2026-11-30T12:00:00Z"))}, no},
		{"IsNull of a field", elements{op(isNull, sev)}, no},
		{"IsNull of what is not there", elements{op(isNull, of("Absent"))}, yes},
		{"GreaterThan", elements{op(gt, sev, lit(uint16(699)))}, yes},
		{"GreaterThan: equal", elements{op(gt, sev, lit(uint16(700)))}, no},
		{"GreaterThan: signed and unsigned", elements{op(gt, of("Byte"), of("Small"))}, no}, // Byte is converted to SByte and does not fit
		{"GreaterThan: null", elements{op(gt, of("Absent"), lit(int32(1)))}, no},
		{"GreaterThan: Guids have no order", elements{op(gt, of("Guid"), lit("00000000-0000-0000-0000-000000000000"))}, no},
		{"LessThan", elements{op(lt, of("Half"), of("Double"))}, yes},
		{"LessThan: Int64", elements{op(lt, of("Long"), lit(int32(0)))}, yes},
		{"LessThan: NaN", elements{op(lt, of("NaN"), lit(1.0))}, no},
		{"LessThan: texts", elements{op(lt, field("Message"), lit("c"))}, yes},
		{"GreaterThanOrEqual", elements{op(ge, sev, lit(int64(700)))}, yes},
		{"LessThanOrEqual", elements{op(le, sev, lit(int64(699)))}, no},
		{"LessThanOrEqual: times", elements{op(le, field("Time"), lit(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))}, yes},
		{"Like", elements{op(likeOp, field("Message"), lit("boiler%"))}, yes},
		{"Like: no number is a String", elements{op(likeOp, sev, lit("7%"))}, no},
		{"Like: null", elements{op(likeOp, of("Absent"), lit("%"))}, no},
		{"Not TRUE", elements{op(not, of("Flag"))}, no},
		{"Not FALSE", elements{op(not, lit(false))}, yes},
		{"Not NULL", elements{op(not, of("Absent"))}, null},
		{"Not of what is no Boolean", elements{op(not, sev)}, null},
		{"Between", elements{op(between, sev, lit(int32(700)), lit(700.0))}, yes},
		{"Between: below", elements{op(between, sev, lit(int32(701)), lit(int32(900)))}, no},
		{"Between: null bound", elements{op(between, sev, nothing(), lit(int32(900)))}, no},
		{"InList", elements{op(inList, sev, lit(int32(1)), lit("700"), lit(2.0))}, yes},
		{"InList: none", elements{op(inList, sev, lit(int32(1)))}, no},
		{"And", elements{op(andOp, lit(true), of("Flag"))}, yes},
		{"And FALSE NULL", elements{op(andOp, lit(false), nothing())}, no},
		{"And NULL FALSE", elements{op(andOp, nothing(), lit(false))}, no},
		{"And TRUE NULL", elements{op(andOp, lit(true), nothing())}, null},
		{"And NULL NULL", elements{op(andOp, nothing(), nothing())}, null},
		{"Or", elements{op(orOp, lit(false), lit(true))}, yes},
		{"Or TRUE NULL", elements{op(orOp, nothing(), lit(true))}, yes},
		{"Or FALSE NULL", elements{op(orOp, lit(false), nothing())}, null},
		{"Or FALSE FALSE", elements{op(orOp, lit(false), lit(false))}, no},
		{"Cast: Double to Int32 rounds", cast(of("Double"), id.Int32, eq, lit(int32(3))), yes},
		{"Cast: what does not fit is NULL", elements{op(isNull, elem(1)), op(castOp, of("Big"), typ(id.Int32))}, yes},
		{"Cast: number to Boolean", cast(lit(int32(7)), id.Boolean, eq, lit(true)), yes},
		{"Cast: number to String", cast(sev, id.String, eq, lit("700")), yes},
		{"Cast: String to DateTime", cast(lit("2026-11-30T12:00:00Z"), id.DateTime, eq, field("Time")), yes},
		{"Cast: DateTime to String", cast(field("Time"), id.String, eq, lit("2026-11-30T12:00:00Z")), yes},
		{"Cast: String to NodeId", cast(lit("i=2253"), id.NodeID, eq, field("SourceNode")), yes},
		{"Cast: Guid to ByteString", cast(of("Guid"), id.ByteString, eq, of("Bytes")), yes},
		{"Cast: ByteString to Guid", cast(of("Bytes"), id.GUID, eq, of("Guid")), yes},
		{"Cast: Guid to String", cast(of("Guid"), id.String, likeOp, lit("33323130-%")), yes},
		{"Cast: StatusCode to UInt16", cast(of("Code"), id.UInt16, eq, lit(uint16(0x8034))), yes},
		{"Cast: an Enumeration is Int32", cast(lit("3"), id.ServerState, eq, lit(int32(3))), yes},
		{"Cast: an array is NULL", elements{op(isNull, elem(1)), op(castOp, of("List"), typ(id.String))}, yes},
		{"OfType", elements{op(ofType, typ(id.SystemEventType))}, yes},
		{"OfType: the type itself", elements{op(ofType, typ(id.DeviceFailureEventType))}, yes},
		{"OfType: another", elements{op(ofType, typ(id.AuditEventType))}, no},
		{"BitwiseAnd", elements{op(eq, elem(1), lit(uint16(0x34))), op(bitAnd, of("Word"), lit(uint16(0xFF)))}, yes},
		{"BitwiseAnd: signed", elements{op(eq, elem(1), lit(int32(-8))), op(bitAnd, of("Small"), lit(int32(-4)))}, yes},
		{"BitwiseOr", elements{op(eq, elem(1), lit(uint16(0x8035))), op(bitOr, of("Word"), lit(uint8(1)))}, yes},
		{"BitwiseOr of what is no integer", elements{op(isNull, elem(1)), op(bitOr, of("Double"), lit(uint8(1)))}, yes},
		{"elements out of order", elements{op(andOp, elem(2), elem(1)), op(gt, sev, lit(int32(1))), op(not, elem(3)), op(lt, sev, lit(int32(1)))}, yes},
		{"an element used twice", elements{op(andOp, elem(1), elem(1)), op(gt, sev, lit(int32(1)))}, yes},
		{"the first element is no Boolean", elements{op(bitOr, lit("x"), sev)}, null},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := parseFor(t, space, row.where...)
			e := someEvent
			if len(row.where) == 0 {
				if !f.Passes(&e) {
					t.Error("does not pass")
				}
				return
			}
			values := make([]tag.Value, len(f.where))
			for _, i := range f.order {
				values[i] = f.evaluate(&f.where[i], &e, values)
			}
			if got := truth(values[0]); got != row.want {
				t.Errorf("%d, want %d (%v)", got, row.want, values)
			}
			if f.Passes(&e) != (row.want == yes) {
				t.Error("only TRUE passes")
			}
		})
	}
}

// parseFor parses a where clause whose unknown fields are taken for known.
func parseFor(t *testing.T, space *address.Space, where ...*ua.ContentFilterElement) *Filter {
	t.Helper()
	body := encode(t, []*ua.SimpleAttributeOperand{field("Message")}, where...)
	p := parser{space: space, r: wire.NewReader(body)}
	f := &Filter{space: space}
	p.r.Count(1)
	f.list = append(f.list, p.simple(&p.r))
	for n := p.r.Count(8); n > 0; n-- {
		e, res := p.element(len(where))
		if res.Status != ua.StatusGood && res.Status != ua.StatusBadNodeIDUnknown || e.check(&p) != ua.StatusGood {
			t.Fatalf("element: %+v", res)
		}
		f.where = append(f.where, e)
	}
	if p.r.Err() != nil {
		t.Fatal(p.r.Err())
	}
	f.plan(&Result{Where: make([]ElementResult, len(f.where))})
	f.known()
	return f
}

// TestLike is Part 4, table 124.
func TestLike(t *testing.T) {
	for _, row := range []struct {
		text, pattern string
		want          bool
	}{
		{"main", "main%", true}, {"main thing", "main%", true}, {"a main", "main%", false}, {"a main", "%main", true},
		{"xenon", "%en%", true}, {"x", "%en%", false}, {"", "%", true}, {"", "", true}, {"", "_", false}, {"ab", "_b", true},
		{"ü", "_", true}, {"abc4", "abc[13-68]", true}, {"abc2", "abc[13-68]", false}, {"abc", "abc[^13]", false},
		{"abc2", "abc[^13]", true}, {"abc1", "abc[^13]", false}, {"100%", `100\%`, true}, {"1000", `100\%`, false},
		{"a_b", `a\_b`, true}, {"a]b", `a[\]]b`, true}, {"a-b", "a[-]b", true}, {"[x", "[x", true}, {"x", "[x", false},
		{"aXbXc", "a%X%c", true}, {"aaab", "%aab", true}, {strings.Repeat("a", 5000), strings.Repeat("%a", 40) + "b", false},
	} {
		if got := like(row.text, row.pattern); got != row.want {
			t.Errorf("%.20q like %.20q: %v", row.text, row.pattern, got)
		}
	}
}

// TestRefused is what is wrong with filters, and where the result says so (Part 4, 7.7.2 and 7.22.3).
func TestRefused(t *testing.T) {
	space := newSpace(t)
	good := []*ua.SimpleAttributeOperand{field("Message")}
	of := func(change func(o *ua.SimpleAttributeOperand), names ...string) *ua.SimpleAttributeOperand {
		o := field(names...)
		change(o)
		return o
	}
	typed := func(n uint32) func(o *ua.SimpleAttributeOperand) {
		return func(o *ua.SimpleAttributeOperand) { o.TypeDefinitionID = ua.NewNumericNodeID(0, n) }
	}
	for _, row := range []struct {
		name    string
		operand *ua.SimpleAttributeOperand
		want    ua.StatusCode
	}{
		{"unknown type", of(typed(999999), "Message"), ua.StatusBadTypeDefinitionInvalid},
		{"no event type", of(typed(id.FolderType), "Message"), ua.StatusBadTypeDefinitionInvalid},
		{"unknown field", field("Nonsense"), ua.StatusBadNodeIDUnknown},
		{"null name", field(""), ua.StatusBadBrowseNameInvalid},
		{"attribute of a Variable", of(func(o *ua.SimpleAttributeOperand) { o.AttributeID = 99 }, "Message"), ua.StatusBadAttributeIDInvalid},
		{"no path", field(), ua.StatusBadAttributeIDInvalid},
		{"range", of(func(o *ua.SimpleAttributeOperand) { o.IndexRange = "3:2" }, "Message"), ua.StatusBadIndexRangeInvalid},
		{"field of a subtype", field("NewValue"), ua.StatusGood},
		{"nested field", of(typed(id.AcknowledgeableConditionType), "EnabledState", "Id"), ua.StatusGood},
		{"inherited field", of(typed(id.AuditWriteUpdateEventType), "Time"), ua.StatusGood},
		{"id of a condition", of(func(o *ua.SimpleAttributeOperand) { typed(id.ConditionType)(o); o.AttributeID = ua.AttributeIDNodeID }), ua.StatusGood},
		{"null type", of(func(o *ua.SimpleAttributeOperand) { o.TypeDefinitionID = ua.NewTwoByteNodeID(0) }, "Message"), ua.StatusGood},
	} {
		f, res := Parse(space, encode(t, append(good, row.operand)))
		if f == nil || len(res.Select) != 2 || res.Select[0] != ua.StatusGood || res.Select[1] != row.want {
			t.Errorf("%s: %+v", row.name, res)
		}
		if (res.Body() == nil) != (row.want == ua.StatusGood) {
			t.Errorf("%s: result %v", row.name, res.Body())
		}
		if f, res = Parse(space, encode(t, []*ua.SimpleAttributeOperand{row.operand})); (f != nil) != (row.want == ua.StatusGood) {
			t.Errorf("%s alone: %+v", row.name, res)
		}
	}
	deep := make(elements, 60)
	for i := range deep {
		deep[i] = op(not, elem(uint32(i+1)))
	}
	deep[59] = op(not, lit(true))
	many := make(elements, 1000)
	for i := range many {
		many[i] = op(not, lit(true))
	}
	yes := lit(true)
	for _, row := range []struct {
		name    string
		where   elements
		element int // that is told of
		want    ua.StatusCode
		operand int
		code    ua.StatusCode
	}{
		{"unknown operator", elements{op(42, yes)}, 0, ua.StatusBadFilterOperatorInvalid, 0, 0},
		{"InView", elements{op(ua.FilterOperatorInView, yes)}, 0, ua.StatusBadFilterOperatorUnsupported, 0, 0},
		{"RelatedTo", elements{op(ua.FilterOperatorRelatedTo, yes, yes, yes, yes, yes, yes)}, 0, ua.StatusBadFilterOperatorUnsupported, 0, 0},
		{"one operand too few", elements{op(andOp, yes, elem(1)), op(eq, yes)}, 1, ua.StatusBadFilterOperandCountMismatch, 0, 0},
		{"one too many", elements{op(not, yes, yes)}, 0, ua.StatusBadFilterOperandCountMismatch, 0, 0},
		{"no operand", elements{op(isNull)}, 0, ua.StatusBadFilterOperandCountMismatch, -1, 0},
		{"no such element", elements{op(not, elem(7))}, 0, ua.StatusBadFilterOperandInvalid, 0, ua.StatusBadFilterOperandInvalid},
		{"AttributeOperand", elements{op(not, &ua.AttributeOperand{NodeID: ua.NewTwoByteNodeID(1), BrowsePath: &ua.RelativePath{}})}, 0, ua.StatusBadFilterOperandInvalid, 0, ua.StatusBadFilterOperandInvalid},
		{"no operand type", elements{op(not, &ua.Range{})}, 0, ua.StatusBadFilterOperandInvalid, 0, ua.StatusBadFilterOperandInvalid},
		{"unknown field", elements{op(eq, yes, field("Nonsense"))}, 0, ua.StatusBadNodeIDUnknown, 1, ua.StatusBadNodeIDUnknown},
		{"unknown type in OfType", elements{op(ofType, typ(999999))}, 0, ua.StatusBadFilterOperandInvalid, 0, 0},
		{"OfType of a field", elements{op(ofType, field("EventType"))}, 0, ua.StatusBadFilterOperandInvalid, 0, 0},
		{"Cast to no data type", elements{op(castOp, yes, typ(id.FolderType))}, 0, ua.StatusBadFilterOperandInvalid, 0, 0},
		{"Cast to a structure", elements{op(castOp, yes, typ(id.Range))}, 0, ua.StatusBadFilterOperandInvalid, 0, 0},
		{"an element refers to itself", elements{op(not, elem(0))}, 0, ua.StatusBadFilterElementInvalid, 0, 0},
		{"a loop", elements{op(not, elem(1)), op(not, elem(2)), op(not, elem(1))}, 1, ua.StatusBadFilterElementInvalid, 0, 0},
		{"nested without end", deep, maxNesting, ua.StatusBadFilterElementInvalid, 0, 0},
	} {
		f, res := Parse(space, encode(t, good, row.where...))
		if f != nil || res.Status != ua.StatusBadEventFilterInvalid || len(res.Where) != len(row.where) || res.Where[row.element].Status != row.want {
			t.Errorf("%s: %+v", row.name, res)
			continue
		}
		if row.operand >= 0 && res.Where[row.element].Operands[row.operand] != row.code {
			t.Errorf("%s: operands %v", row.name, res.Where[row.element].Operands)
		}
		var back ua.EventFilterResult
		if _, err := ua.Decode(res.Body(), &back); err != nil || back.WhereClauseResult.ElementResults[row.element].StatusCode != row.want {
			t.Errorf("%s: decoded %+v, %v", row.name, back, err)
		}
	}
	if f, res := Parse(space, encode(t, good, many...)); f != nil || res.Status != ua.StatusBadEventFilterInvalid {
		t.Errorf("a thousand elements: %v", res.Status)
	}
	if f, res := Parse(space, encode(t, nil)); f != nil || res.Status != ua.StatusBadEventFilterInvalid {
		t.Errorf("no select clause: %v", res.Status)
	}
	whole := encode(t, good, op(not, yes))
	for n := range whole {
		if f, _ := Parse(space, whole[:n]); f != nil {
			t.Fatalf("%d of %d bytes are a filter", n, len(whole))
		}
	}
}

// TestFields is what is encoded of an event.
func TestFields(t *testing.T) {
	space := newSpace(t)
	list := []*ua.SimpleAttributeOperand{field("EventType"), field("SourceNode"), field("SourceName"), field("Time"), field("Message"), field("Severity"), field("EventId"), field("NewValue")}
	part := field("SourceName")
	part.IndexRange = "0:1"
	other := field("Changes")
	other.TypeDefinitionID = ua.NewNumericNodeID(0, id.GeneralModelChangeEventType) // not of this event
	list = append(list, part, other)
	f, res := Parse(space, encode(t, list))
	if f == nil {
		t.Fatalf("%+v", res)
	}
	e := someEvent
	e.Fields = append(e.Fields, Field{"Changes", tag.Of(int32(1))})
	var got ua.EventFieldList
	b := append([]byte{7, 0, 0, 0}, f.Append(nil, &e)...)
	if n, err := ua.Decode(b, &got); err != nil || n != len(b) {
		t.Fatalf("%d of %d bytes: %v", n, len(b), err)
	}
	v := got.EventFields
	if got.ClientHandle != 7 || len(v) != len(list) || v[0].NodeID().IntID() != id.DeviceFailureEventType || v[1].NodeID().IntID() != id.Server ||
		v[2].String() != "Server" || v[4].LocalizedText().Text != "boiler: no answer" || v[5].Value() != uint16(700) || len(v[6].ByteString()) != 16 ||
		v[7].Value() != nil || v[8].String() != "Se" || v[9].Value() != nil {
		t.Errorf("%v", v)
	}
}

// FuzzParse is any body of a filter: it never panics, and one that is taken evaluates and encodes.
func FuzzParse(f *testing.F) {
	space := newSpace(f)
	f.Add(encode(f, []*ua.SimpleAttributeOperand{field("Message"), field("Severity")}))
	f.Add(encode(f, []*ua.SimpleAttributeOperand{field("Message")}, op(andOp, elem(1), elem(2)), op(gt, field("Severity"), lit("5")), op(likeOp, field("Message"), lit("%[a-b]_"))))
	f.Add(encode(f, []*ua.SimpleAttributeOperand{field("Message")}, op(orOp, elem(1), elem(2)), op(eq, elem(3), lit(int32(5))), op(inList, field("Time"), lit("x"), lit(1.5)), op(castOp, field("Severity"), typ(id.String))))
	f.Fuzz(func(t *testing.T, body []byte) {
		filter, res := Parse(space, body)
		res.Body()
		if filter == nil {
			if res.Status == ua.StatusGood {
				t.Fatal("no filter and no reason")
			}
			return
		}
		e := someEvent
		filter.Passes(&e)
		r := wire.NewReader(filter.Append(nil, &e))
		for n := r.Count(1); n > 0; n-- {
			r.Variant()
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	})
}
