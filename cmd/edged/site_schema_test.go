package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// TestSchemaFile keeps the file that ships what `edged check --schema` prints.
func TestSchemaFile(t *testing.T) {
	status, stdout, stderr := command(t, "check", "--schema")
	if status != exitDone {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	file, err := os.ReadFile("site.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if stdout != string(file) {
		t.Error("site.schema.json is not what the readers accept: run make generate")
	}
	if !json.Valid(file) {
		t.Error("site.schema.json is no JSON")
	}
}

// TestSchemaIsQuiet makes sure that no reader takes the making of the schema for a file.
func TestSchemaIsQuiet(t *testing.T) {
	r := &siteReader{document: document{file: "x"}, site: defaultSite("x")}
	r.within(&schema{}, func() { r.read(&node{}); r.bus(&node{}) })
	r.deviceSchema(driverModbus)
	r.deviceSchema(driverMemory)
	r.deviceSchema(driverSerial)
	if err := r.err(); err != nil || len(r.site.Tags)+len(r.site.Devices)+len(r.site.Buses) > 0 || r.sketch != nil {
		t.Errorf("the readers read: %v, %+v", err, r.site)
	}
}

// TestSchemaNotes finds keys without a note, and notes without a key.
func TestSchemaNotes(t *testing.T) {
	used := map[string]bool{}
	var walk func(s *schema, path string)
	walk = func(s *schema, path string) {
		for _, p := range s.Properties {
			at := strings.TrimPrefix(path+"."+p.name, ".")
			if p.value.Not == nil {
				used[at] = true
				if _, ok := siteNotes[at]; !ok {
					t.Errorf("%s has no note", at)
				}
				if p.value.Type == nil && p.value.Enum == nil && p.value.AnyOf == nil {
					t.Errorf("%s accepts anything", at)
				}
			}
			walk(p.value, at)
		}
		for _, below := range []*schema{s.Items, s.Then, s.Else} {
			if below != nil {
				walk(below, path)
			}
		}
	}
	walk(siteSchema(), "")
	for at := range siteNotes {
		if !used[at] {
			t.Errorf("the note on %s is about no key", at)
		}
	}
}

// TestSchemaHasTheParsersKeys asks the parser for the keys of each section, by one that it does not know.
func TestSchemaHasTheParsersKeys(t *testing.T) {
	root := siteSchema()
	devices := root.property("devices").Items
	limits := root.property("server").property("limits")
	for _, row := range []struct {
		name string
		text string
		want *schema
	}{
		{"site", "xxxxxxxxxxxxxxxx: 1\n" + oneDevice, root},
		{"server", "server: {xxxxxxxxxxxxxxxx: 1}\n" + oneDevice, root.property("server")},
		{"security", "server: {security: {xxxxxxxxxxxxxxxx: 1}}\n" + oneDevice, root.property("server").property("security")},
		{"limits", "server: {limits: {xxxxxxxxxxxxxxxx: 1}}\n" + oneDevice, limits},
		{"web", "web: {xxxxxxxxxxxxxxxx: 1}\n" + oneDevice, root.property("web")},
		{"bus", "buses: [{name: b, url: \"tcp://h\", xxxxxxxxxxxxxxxx: 1}]\n" + oneDevice, root.property("buses").Items},
		{"modbus device", "devices: [{xxxxxxxxxxxxxxxx: 1}]\n", devices.Else.Else},
		{"memory device", "devices: [{driver: memory, xxxxxxxxxxxxxxxx: 1}]\n", devices.Then},
		{"modbus tag", "devices: [{tags: [{xxxxxxxxxxxxxxxx: 1}]}]\n", devices.Else.Else.property("tags").Items},
		{"memory tag", "devices: [{driver: memory, tags: [{xxxxxxxxxxxxxxxx: 1}]}]\n", devices.Then.property("tags").Items},
		{"serial device", "devices: [{driver: serial, xxxxxxxxxxxxxxxx: 1}]\n", devices.Else.Then},
		{"serial frame", "devices: [{driver: serial, frame: {xxxxxxxxxxxxxxxx: 1}}]\n", devices.Else.Then.property("frame")},
		{"serial message", "devices: [{driver: serial, messages: [{xxxxxxxxxxxxxxxx: 1}]}]\n", devices.Else.Then.property("messages").Items},
		{"serial tag", "devices: [{driver: serial, tags: [{xxxxxxxxxxxxxxxx: 1}]}]\n", devices.Else.Then.property("tags").Items},
		{"wave", "devices: [{driver: memory, tags: [{wave: {xxxxxxxxxxxxxxxx: 1}}]}]\n", devices.Then.property("tags").Items.property("wave")},
	} {
		_, err := parseSite("site.yaml", []byte(row.text))
		if err == nil {
			t.Errorf("%s: an unknown key was taken", row.name)
			continue
		}
		_, known, _ := strings.Cut(err.Error(), `"xxxxxxxxxxxxxxxx"; known are `)
		known, _, _ = strings.Cut(known, "\n")
		var names []string
		for _, p := range row.want.Properties {
			names = append(names, p.name)
		}
		if got := strings.Join(names, ", "); got != known {
			t.Errorf("%s: the schema has\n%s, the parser\n%s", row.name, got, known)
		}
	}
}

// accepts is what a validator of JSON Schema does with the words that schema uses: where the first value is that does
// not fit, or "". The values are those of a YAML library: its numbers are int64, uint64 and float64.
func (s *schema) accepts(v any, at string) string {
	if s.Not != nil && s.Not.accepts(v, at) == "" {
		return at + " is refused"
	}
	if s.Type != nil && !slices.ContainsFunc(words(s.Type), func(w string) bool { return isType(v, w) }) {
		return fmt.Sprintf("%s is %v: not %v", at, v, s.Type)
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return fmt.Sprintf("%T %v", e, e) == fmt.Sprintf("%T %v", signed(v), v) }) {
		return fmt.Sprintf("%s is %v: not one of %v", at, v, s.Enum)
	}
	if s.AnyOf != nil && !slices.ContainsFunc(s.AnyOf, func(one *schema) bool { return one.accepts(v, at) == "" }) {
		return at + " fits none of its forms"
	}
	if s.If != nil {
		branch := s.Else
		if s.If.accepts(v, at) == "" {
			branch = s.Then
		}
		if bad := branch.accepts(v, at); bad != "" {
			return bad
		}
	}
	switch v := v.(type) {
	case string:
		return s.acceptsText(v, at)
	case []any:
		return s.acceptsList(v, at)
	case map[string]any:
		return s.acceptsMap(v, at)
	case nil, bool:
		return ""
	}
	if f := reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float(); (s.Minimum != nil && f < *s.Minimum) || (s.Maximum != nil && f > *s.Maximum) {
		return fmt.Sprintf("%s is %v: not in range", at, v)
	}
	return ""
}

// signed is how the readers hold whole numbers.
func signed(v any) any {
	if u, ok := v.(uint64); ok && u <= math.MaxInt64 {
		return int64(u)
	}
	return v
}

func words(t any) []string {
	if one, ok := t.(string); ok {
		return []string{one}
	}
	return t.([]string)
}

func isType(v any, word string) bool {
	switch v.(type) {
	case string:
		return word == typeText
	case bool:
		return word == typeBoolean
	case []any:
		return word == typeList
	case map[string]any:
		return word == typeMap
	case int64, uint64:
		return word == typeInteger || word == typeNumber
	case float64:
		return word == typeNumber
	}
	return false
}

func (s *schema) acceptsText(v, at string) string {
	n := utf8.RuneCountInString(v)
	if n < s.MinLength || (s.MaxLength > 0 && n > s.MaxLength) || !regexp.MustCompile(s.Pattern).MatchString(v) {
		return fmt.Sprintf("%s is %q: not of its form", at, v)
	}
	return ""
}

func (s *schema) acceptsList(v []any, at string) string {
	if len(v) < s.MinItems || (s.MaxItems > 0 && len(v) > s.MaxItems) {
		return fmt.Sprintf("%s has %d items", at, len(v))
	}
	for i, item := range v {
		if s.Items == nil {
			break
		}
		if bad := s.Items.accepts(item, fmt.Sprintf("%s[%d]", at, i)); bad != "" {
			return bad
		}
	}
	return ""
}

func (s *schema) acceptsMap(v map[string]any, at string) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return at + " lacks " + name
		}
	}
	for name, value := range v {
		p := s.property(name)
		for _, form := range s.Patterns {
			if p == nil && regexp.MustCompile(form.name).MatchString(name) {
				p = form.value
			}
		}
		if p == nil && s.Closed != nil && !*s.Closed {
			return at + "." + name + " is not known"
		}
		if p == nil {
			continue
		}
		if bad := p.accepts(value, at+"."+name); bad != "" {
			return bad
		}
	}
	return ""
}

// readmeSite is the example of the README.
func readmeSite(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Site file\n")
	var site strings.Builder
	for line := range strings.Lines(after) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			site.WriteString(code)
		} else if site.Len() > 0 && strings.TrimSpace(line) != "" {
			break
		}
	}
	return site.String()
}

func TestSchemaAcceptsGoodSites(t *testing.T) {
	root := siteSchema()
	for name, text := range map[string]string{
		"demo": string(demoSite), "one device": oneDevice, "test head": siteHead + oneDevice, "readme": readmeSite(t),
		"single values for lists": "server: {security: {policies: None, modes: Sign, anonymous: read}}\n" + oneDevice,
		"words beside forms":      "server: {limits: {memory: auto}, queue: asked}\nweb: {listen: none}\n" + oneDevice,
		"sizes and spans":         "server: {limits: {memory: 64MiB, min_publishing: 1.5s}}\nbuses: [{name: b, url: \"tcp://h\", turnaround: 0, timeout: 0.5s, pipeline: 1, overbook: warn}]\n" + oneDevice,
		"numbers as names":        "server: {name: 5}\ndevices: [{name: 7, driver: memory, tags: [{name: 1, unit: 2, description: 3}]}]\n",
		"every modbus key": withTags("  - {name: a, address: 40021, type: \"uint16\", order: BADC, scale: 0.1, offset: \"-5\", decimals: 2, sentinel: [0x8000, 5], nan: good, " +
			"poll: 1s, hold: 0, verify: true, access: readwrite, range: [0, 1.5], instrument_range: [-1, 2], repeat: 1, history: false}\n"),
		"states": withTags("  - {name: a, address: \"coil:0\", states: {false: closed, true: open}}\n" +
			"  - {name: b, address: \"holding:0\", type: int16, states: {0: off, 1: heating, -2: fault, 0x10: 5}}\n"),
		"memory": "devices: [{name: d, driver: memory, tags: [{name: t, type: \"float64[2]\", value: [1, 2.5], retain: false}, " +
			"{name: w, wave: {kind: sine, every: 20ms, period: 10s, min: -1, max: 1}}, {name: s, type: \"string(8)\", value: hello}]}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseSite("site.yaml", []byte(text)); err != nil {
				t.Fatalf("the parser: %v", err)
			}
			var v any
			if err := yaml.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			if bad := root.accepts(v, "site"); bad != "" {
				t.Errorf("the schema: %s", bad)
			}
		})
	}
}

// beyondSchema are the rows of mistakeRows that no schema of this kind can see: what depends on another place of the
// file or on arithmetic, and what a YAML library takes without a word.
var beyondSchema = []string{
	"second document", "merge", "column after letters of two bytes", "listen port", "policy twice", "no policy", "key size and deprecated policy",
	"sessions and connections", "sessions alone", "users", "patterns of a role", "bus twice", "D19 conflicting serial settings", "D19 one line twice",
	"D15 broadcast unit read", "D15 unit left out on a line", "pipeline of a serial line", "over-booked line", "quirk that a tag cannot have", "quirk that no pipeline can bear", "writes twice",
	"device name reserved", "device twice", "unknown bus", "address", "tag twice", "folder and tag", "tag and folder",
	"tag name with dollar", "part of a tag name with dollar", "tag name with empty folder", "range order", "repeat without n", "repeat beyond the table",
	"repeat makes a name twice", "tags in all", "memory value",
	"instrument range order", "instrument range of a bit", "states empty", "states of a bool that are none", "states of a bool by half",
	"states outside of the type", "state twice", "states of a float", "states of a scaled number", "states of a list", "states with a unit",
	"states with an instrument", "memory states", "decimals of a bit", "unit and range of a bit", "unit of a bit with states",
	"unit and range of a text", "memory: unit, range of a text", "memory: decimals of a text", "memory: decimals of a whole number",
	"store: a pattern of no tag", "deadband of a bool",
}

// TestSchemaFindsMistakes shows an editor's schema each mistake that the parser finds.
func TestSchemaFindsMistakes(t *testing.T) {
	root := siteSchema()
	for _, row := range mistakeRows {
		text, _ := marked(row.text)
		var v any
		if yaml.Unmarshal([]byte(text), &v) != nil {
			continue // an editor says so without a schema
		}
		if root.accepts(v, "site") == "" && !slices.Contains(beyondSchema, row.name) {
			t.Errorf("%s: the parser refuses this, and the schema takes it:\n%s", row.name, text)
		}
	}
}

// TestSchemaDefaults writes every default of the schema into a site: it means the same as leaving them out.
func TestSchemaDefaults(t *testing.T) {
	root := siteSchema()
	bus := map[string]any{"name": "b", "url": "tcp://h:502"}
	tags := map[string]any{"name": "t", "address": "holding:0"}
	device := map[string]any{"name": "d", "bus": "b", "tags": []any{tags}}
	plain := map[string]any{"buses": []any{bus}, "devices": []any{device}}
	read := func() *site {
		text, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseSite("site.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for i := range s.Tags {
			s.Tags[i].How = nil // tells how the tag was written
		}
		return s
	}
	before := read()
	filled := 0
	var fill func(s *schema, m map[string]any)
	fill = func(s *schema, m map[string]any) {
		for _, p := range s.Properties {
			switch {
			case p.value.Default != nil:
				m[p.name] = p.value.Default
				filled++
			case p.value.Properties != nil && p.name != "quirks" && p.name != "wave":
				inner := map[string]any{}
				fill(p.value, inner)
				m[p.name] = inner
			}
		}
	}
	fill(root, plain)
	fill(root.property("buses").Items, bus)
	fill(root.property("devices").Items.Else.Else, device)
	fill(root.property("devices").Items.Else.Else.property("tags").Items, tags)
	after := read()
	for what, pair := range map[string][2]any{
		"server": {before.Server, after.Server}, "web": {before.Web, after.Web}, "buses": {before.Buses, after.Buses}, "tags": {before.Tags, after.Tags},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s with the defaults left out\n%+v\nand written\n%+v", what, pair[0], pair[1])
		}
	}
	if filled < 30 {
		t.Errorf("the schema has %d defaults only", filled)
	}
}

func TestSchemaKeepsOrder(t *testing.T) {
	var b bytes.Buffer
	if err := siteSchema().write(&b); err != nil {
		t.Fatal(err)
	}
	if i, j := strings.Index(b.String(), `"listen"`), strings.Index(b.String(), `"limits"`); i < 0 || j < i {
		t.Error("the keys are not in the readers' order")
	}
}
