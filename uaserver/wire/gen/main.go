// Command gen writes the codec of package wire over the structs of gopcua's ua: every message of its service registry,
// and the bodies of ExtensionObjects that a server meets. It hides the registry behind plain functions without reflection.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"
)

// left names the registered types that no server without PubSub sends or receives as an ExtensionObject: they would
// double the generated code. What is left out travels as wire.RawBody.
var left = regexp.MustCompile(`PubSub|DataSet|Writer|Reader|Broker|Datagram|JSON|UADP|Qos|PublishedV|PublishedE|PublishedD` +
	`|NetworkAddress|ConnectionTransport|FieldMetaData|FieldTarget|TargetVariables|SecurityGroup|EndpointType|Ephemeral` +
	`|DataTypeSchemaHeader|UABinaryFile|PriorityMapping|ReferenceListEntry|ReferenceDescriptionDataType|Portable|Sessionless` +
	`|ConfigurationVersion|TransactionError|Vector|Cartesian|Orientation|Frame|Currency` +
	`|RequestHeader|ResponseHeader|ServiceFault|^(Union|DataTypeDefinition|FilterOperand|HistoryReadDetails` +
	`|HistoryUpdateDetails|MonitoringFilter|MonitoringFilterResult|NotificationData|OptionSet|UserIdentityToken)$`)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := generate(dir); err != nil {
		log.Fatal(err)
	}
}

// generate writes the files into dir.
func generate(dir string) error {
	g := newGenerator()
	if err := g.collect(); err != nil {
		return err
	}
	for name, write := range map[string]func() []byte{
		"message_gen.go": g.messages,
		"body_gen.go":    g.bodies,
		"decode_gen.go":  g.decoders,
		"append_gen.go":  g.appenders,
	} {
		src, err := format.Source(write())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), src, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// entry is a type with the number of its binary encoding.
type entry struct {
	id int
	t  reflect.Type // the struct
}

func (e entry) name() string     { return e.t.Name() }
func (e entry) constant() string { return "id." + e.t.Name() + "_Encoding_DefaultBinary" }

type generator struct {
	msgs    []entry
	objects []entry
	structs map[reflect.Type]int // every struct to write functions for, and its least size on the wire
	open    []reflect.Type       // the structs being measured, to find a recursion
}

func newGenerator() *generator { return &generator{structs: map[reflect.Type]int{}} }

// collect asks ua's registries for each id there may be: they have no list.
func (g *generator) collect() error {
	for n := 1; n < 1<<16; n++ {
		num := []byte{2, 0, 0, byte(n), byte(n >> 8), 0, 0}
		if _, v, _ := ua.DecodeService(num); v != nil && isMessage(reflect.TypeOf(v).Elem()) {
			g.msgs = append(g.msgs, entry{n, reflect.TypeOf(v).Elem()})
			continue
		}
		var e ua.ExtensionObject
		_, _ = e.Decode(append(num, ua.ExtensionObjectBinary, 1, 0, 0, 0, 0))
		if e.Value == nil {
			continue
		}
		if t := reflect.TypeOf(e.Value).Elem(); !isMessage(t) && !left.MatchString(t.Name()) {
			g.objects = append(g.objects, entry{n, t})
		}
	}
	for _, e := range slices.Concat(g.msgs, g.objects) {
		if _, err := g.min(reflect.PointerTo(e.t)); err != nil {
			return fmt.Errorf("%s: %w", e.name(), err)
		}
	}
	for _, h := range []any{ua.RequestHeader{}, ua.ResponseHeader{}} {
		if _, err := g.min(reflect.PointerTo(reflect.TypeOf(h))); err != nil {
			return err
		}
	}
	return nil
}

func isMessage(t reflect.Type) bool { return t.NumField() > 0 && isHeader(t.Field(0)) }

func isHeader(f reflect.StructField) bool {
	return f.Name == "RequestHeader" || f.Name == "ResponseHeader"
}

// fields are what a struct's functions write: all but a message's header, which has functions of its own.
func fields(t reflect.Type) []reflect.StructField {
	fs := reflect.VisibleFields(t)
	if isMessage(t) {
		return fs[1:]
	}
	return fs
}

// builtin is a type with hand-written functions: its least size on the wire, its reader (a method of Reader) and its
// appender.
type builtin struct {
	min          int
	read, append string
}

var builtins = map[reflect.Type]builtin{
	reflect.TypeFor[time.Time]():           {8, "goTime", "appendGoTime"},
	reflect.TypeFor[[]byte]():              {4, "ownBytes", "AppendByteString"},
	reflect.TypeFor[string]():              {4, "ownText", "appendText"},
	reflect.TypeFor[bool]():                {1, "Bool", "AppendBool"},
	reflect.TypeFor[uint8]():               {1, "Uint8", "appendUint8"},
	reflect.TypeFor[int8]():                {1, "int8", "appendInt8"},
	reflect.TypeFor[uint16]():              {2, "Uint16", "AppendUint16"},
	reflect.TypeFor[int16]():               {2, "int16", "appendInt16"},
	reflect.TypeFor[uint32]():              {4, "Uint32", "AppendUint32"},
	reflect.TypeFor[int32]():               {4, "Int32", "appendInt32"},
	reflect.TypeFor[uint64]():              {8, "Uint64", "AppendUint64"},
	reflect.TypeFor[int64]():               {8, "int64", "appendInt64"},
	reflect.TypeFor[float32]():             {4, "Float32", "AppendFloat32"},
	reflect.TypeFor[float64]():             {8, "Float64", "AppendFloat64"},
	reflect.TypeFor[ua.StatusCode]():       {4, "statusCode", "appendStatusCode"},
	reflect.TypeFor[*ua.GUID]():            {16, "uaGUID", "appendUAGUID"},
	reflect.TypeFor[*ua.NodeID]():          {2, "uaNodeID", "appendUANodeID"},
	reflect.TypeFor[*ua.ExpandedNodeID]():  {2, "uaExpandedNodeID", "appendUAExpandedNodeID"},
	reflect.TypeFor[*ua.QualifiedName]():   {6, "uaQualifiedName", "appendUAQualifiedName"},
	reflect.TypeFor[*ua.LocalizedText]():   {1, "uaLocalizedText", "appendUALocalizedText"},
	reflect.TypeFor[*ua.ExtensionObject](): {3, "uaExtensionObject", "appendUAExtensionObject"},
	reflect.TypeFor[*ua.Variant]():         {1, "uaVariant", "appendUAVariant"},
	reflect.TypeFor[*ua.DataValue]():       {1, "uaDataValue", "appendUADataValue"},
	reflect.TypeFor[*ua.DiagnosticInfo]():  {1, "uaDiagnosticInfo", "appendUADiagnosticInfo"},
}

// plain is the unnamed type under an enumeration or bit mask.
func plain(t reflect.Type) (reflect.Type, bool) {
	for b := range builtins {
		if b.Name() == b.Kind().String() && b.Kind() == t.Kind() {
			return b, true
		}
	}
	return nil, false
}

// min is the least number of bytes that a value of t takes on the wire, and notes the structs on the way.
func (g *generator) min(t reflect.Type) (int, error) {
	if b, ok := builtins[t]; ok {
		return b.min, nil
	}
	switch t.Kind() {
	case reflect.Slice:
		e := t.Elem()
		if _, ok := builtins[e]; !ok && e.Kind() != reflect.Pointer {
			return 0, fmt.Errorf("no reader is known for %v", t)
		}
		_, err := g.min(e)
		return 4, err
	case reflect.Pointer:
		if t = t.Elem(); t.Kind() != reflect.Struct {
			break
		}
		return g.minStruct(t)
	}
	if p, ok := plain(t); ok {
		return builtins[p].min, nil
	}
	return 0, fmt.Errorf("no encoding is known for %v", t)
}

func (g *generator) minStruct(t reflect.Type) (int, error) {
	if n, ok := g.structs[t]; ok {
		return n, nil
	}
	if slices.Contains(g.open, t) {
		return 0, fmt.Errorf("%v holds itself: its depth would not be bounded", t)
	}
	g.open = append(g.open, t)
	defer func() { g.open = g.open[:len(g.open)-1] }()
	sum := 0
	for _, f := range fields(t) {
		n, err := g.min(f.Type)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		sum += n
	}
	if sum == 0 && len(g.open) > 1 {
		return 0, fmt.Errorf("%v takes no byte: a count of it would not be bounded", t)
	}
	g.structs[t] = sum
	return sum, nil
}

// sorted lists the structs by name.
func (g *generator) sorted() []reflect.Type {
	var ts []reflect.Type
	for t := range g.structs {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b reflect.Type) int { return strings.Compare(a.Name(), b.Name()) })
	return ts
}

func head(imports ...string) *bytes.Buffer {
	w := new(bytes.Buffer)
	fmt.Fprint(w, "// Code generated by uaserver/wire/gen. DO NOT EDIT.\n\npackage wire\n\nimport (\n")
	for _, i := range imports {
		fmt.Fprintf(w, "\t%q\n", i)
	}
	fmt.Fprint(w, ")\n\n")
	return w
}

const (
	uaPath = "github.com/gopcua/opcua/ua"
	idPath = "github.com/gopcua/opcua/id"
)

func (g *generator) messages() []byte {
	w := head(idPath, uaPath)
	fmt.Fprint(w, "// decodeMessage reads a message, from its header on or behind it. It returns nil for an id that is no message's.\n")
	fmt.Fprint(w, "func decodeMessage(typeID uint32, r *Reader, header bool) any {\nswitch typeID {\n")
	for _, e := range g.msgs {
		h := e.t.Field(0).Name
		fmt.Fprintf(w, "case %s:\nm := new(ua.%s)\nif header {\nm.%s = one(r, decode%s)\n}\ndecode%s(r, m)\nreturn m\n",
			e.constant(), e.name(), h, h, e.name())
	}
	fmt.Fprint(w, "}\nreturn nil\n}\n\n")
	fmt.Fprint(w, "// appendMessage appends a message from its type id on; false: msg is no message.\n")
	fmt.Fprint(w, "func appendMessage(dst []byte, msg any) ([]byte, bool) {\nswitch m := msg.(type) {\n")
	for _, e := range g.msgs {
		h := e.t.Field(0).Name
		fmt.Fprintf(w, "case *ua.%s:\ndst = append%s(appendTypeID(dst, %s), m.%s)\ndst = append%s(dst, m)\n",
			e.name(), h, e.constant(), h, e.name())
	}
	fmt.Fprint(w, "default:\nreturn dst, false\n}\nreturn dst, true\n}\n")
	return w.Bytes()
}

func (g *generator) bodies() []byte {
	w := head(idPath, uaPath)
	fmt.Fprint(w, "// decodeBody reads the body of an ExtensionObject. It returns nil, and reads nothing, if the type is not known.\n")
	fmt.Fprint(w, "func decodeBody(typeID uint32, r *Reader) any {\nswitch typeID {\n")
	for _, e := range g.objects {
		fmt.Fprintf(w, "case %s:\nreturn one(r, decode%s)\n", e.constant(), e.name())
	}
	fmt.Fprint(w, "}\nreturn nil\n}\n\n")
	fmt.Fprint(w, "// bodyTypeID is the id of the binary encoding of an ExtensionObject's value; 0: not known.\n")
	fmt.Fprint(w, "func bodyTypeID(v any) uint32 {\nswitch v.(type) {\n")
	for _, e := range g.objects {
		fmt.Fprintf(w, "case *ua.%s:\nreturn %s\n", e.name(), e.constant())
	}
	fmt.Fprint(w, "}\nreturn 0\n}\n\n")
	fmt.Fprint(w, "// appendBody appends the value of an ExtensionObject; false: its type is not known.\n")
	fmt.Fprint(w, "func appendBody(dst []byte, v any) ([]byte, bool) {\nswitch v := v.(type) {\n")
	for _, e := range g.objects {
		fmt.Fprintf(w, "case *ua.%s:\ndst = append%s(dst, v)\n", e.name(), e.name())
	}
	fmt.Fprint(w, "default:\nreturn dst, false\n}\nreturn dst, true\n}\n")
	return w.Bytes()
}

func (g *generator) decoders() []byte {
	w := head(uaPath)
	for _, t := range g.sorted() {
		fs := fields(t)
		if len(fs) == 0 {
			fmt.Fprintf(w, "func decode%s(*Reader, *ua.%s) {}\n\n", t.Name(), t.Name())
			continue
		}
		fmt.Fprintf(w, "func decode%s(r *Reader, v *ua.%s) {\n", t.Name(), t.Name())
		for _, f := range fs {
			fmt.Fprintf(w, "v.%s = %s\n", f.Name, g.read(f.Type))
		}
		fmt.Fprint(w, "}\n\n")
	}
	return w.Bytes()
}

func (g *generator) read(t reflect.Type) string {
	if b, ok := builtins[t]; ok {
		return "r." + b.read + "()"
	}
	switch t.Kind() {
	case reflect.Slice:
		e := t.Elem()
		size, _ := g.min(e)
		if b, ok := builtins[e]; ok {
			return fmt.Sprintf("values(r, %d, (*Reader).%s)", size, b.read)
		}
		return fmt.Sprintf("structs(r, %d, decode%s)", size, e.Elem().Name())
	case reflect.Pointer:
		return fmt.Sprintf("one(r, decode%s)", t.Elem().Name())
	}
	p, _ := plain(t)
	return fmt.Sprintf("ua.%s(r.%s())", t.Name(), builtins[p].read)
}

func (g *generator) appenders() []byte {
	w := head(uaPath)
	for _, t := range g.sorted() {
		fs := fields(t)
		if len(fs) == 0 {
			fmt.Fprintf(w, "func append%s(dst []byte, _ *ua.%s) []byte { return dst }\n\n", t.Name(), t.Name())
			continue
		}
		fmt.Fprintf(w, "func append%s(dst []byte, v *ua.%s) []byte {\n", t.Name(), t.Name())
		fmt.Fprintf(w, "if v == nil {\nv = new(ua.%s)\n}\n", t.Name())
		for i, f := range fs {
			stmt := "dst = "
			if i == len(fs)-1 {
				stmt = "return "
			}
			fmt.Fprintf(w, "%s%s\n", stmt, g.append(f.Type, "v."+f.Name))
		}
		fmt.Fprint(w, "}\n\n")
	}
	return w.Bytes()
}

func (g *generator) append(t reflect.Type, x string) string {
	if b, ok := builtins[t]; ok {
		return fmt.Sprintf("%s(dst, %s)", b.append, x)
	}
	switch t.Kind() {
	case reflect.Slice:
		if b, ok := builtins[t.Elem()]; ok {
			return fmt.Sprintf("appendList(dst, %s, %s)", x, b.append)
		}
		return fmt.Sprintf("appendList(dst, %s, append%s)", x, t.Elem().Elem().Name())
	case reflect.Pointer:
		return fmt.Sprintf("append%s(dst, %s)", t.Elem().Name(), x)
	}
	p, _ := plain(t)
	return fmt.Sprintf("%s(dst, %s(%s))", builtins[p].append, p.Name(), x)
}
