package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/sim"
)

// instruments runs one simulated instrument for each profile that ships, and a site that reads them.
func instruments(t *testing.T) (*sim.Plant, string) {
	t.Helper()
	dir := t.TempDir()
	cfg, err := parsePlant("sim.yaml", []byte(fmt.Sprintf(`
lines:
  - {name: l1, url: "serial:///%[1]s/gps?baud=9600"}
  - {name: l2, url: "serial:///%[1]s/scale?baud=9600"}
  - {name: l3, url: "serial+tcp://127.0.0.1:0"}
  - {name: l4, url: "serial:///%[1]s/reader?baud=9600"}
instruments:
  - {name: gps, line: l1, kind: nmea-gps, every: 20ms, garble: 7}
  - {name: scale, line: l2, kind: mt-sics, load: 100.25}
  - {name: meter, line: l3, kind: dsmr-p1, every: 50ms, garble: 5}
  - {name: reader, line: l4, kind: barcode, every: 20ms}
`, strings.TrimPrefix(dir, "/"))))
	if err != nil {
		t.Fatal(err)
	}
	plant, err := sim.New(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := plant.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Close() })
	site := siteHead + "buses:\n"
	for i := range 4 {
		site += fmt.Sprintf("  - {name: l%d, url: %q}\n", i+1, plant.Line(fmt.Sprintf("l%d", i+1)).URL())
	}
	return plant, site + `devices:
  - {name: gps, bus: l1, driver: serial, profile: nmea-gps}
  - {name: scale, bus: l2, driver: serial, profile: mt-sics, poll: 50ms}
  - {name: meter, bus: l3, driver: serial, profile: dsmr-p1}
  - {name: reader, bus: l4, driver: serial, profile: barcode}
`
}

// good is a tag's value once it is good.
func goodTag(t *testing.T, c *opcua.Client, name string) *ua.DataValue {
	t.Helper()
	var v *ua.DataValue
	eventually(t, name+" is good", func() bool {
		v = readTag(t, c, name)
		return v.Status == ua.StatusOK && v.Value != nil
	})
	return v
}

// TestProfiles reads each profile's instrument by an OPC UA client, and tares the scale.
func TestProfiles(t *testing.T) {
	t.Parallel()
	plant, site := instruments(t)
	g, book := startSite(t, site)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)

	for name, want := range map[string]any{
		"gps.fix": uint8(1), "gps.satellites": uint8(8), "gps.altitude": 545.4, "gps.valid": true, "gps.speed": 41.48, "gps.hdop": 0.9,
		"scale.weight": 100.25, "scale.stable": true, "scale.unit": "g", "scale.tare_weight": 0.0,
		"meter.model": "EDG5sim-meter", "meter.imported.tariff2": 456.789, "meter.tariff": uint8(2), "meter.power.imported": 1.2, "meter.voltage.l1": 230.1,
	} {
		if got := goodTag(t, c, name).Value.Value(); got != want {
			t.Errorf("%s is %v (%T), want %v", name, got, got, want)
		}
	}
	if north := goodTag(t, c, "gps.latitude").Value.Value().(float64); math.Abs(north-48.1173) > 0.001 {
		t.Errorf("the latitude is %v", north)
	}
	if east := goodTag(t, c, "gps.longitude").Value.Value().(float64); math.Abs(east-11.5167) > 0.001 {
		t.Errorf("the longitude is %v", east)
	}
	for _, name := range []string{"gps.time", "meter.time"} {
		if at := goodTag(t, c, name).Value.Value().(time.Time); at.Before(plant.Epoch().Add(-2*time.Second)) || at.After(time.Now().Add(time.Hour)) {
			t.Errorf("%s is %v", name, at)
		}
	}
	if code := goodTag(t, c, "reader.code").Value.Value().(string); !strings.HasPrefix(code, "40062") || len(code) != 13 {
		t.Errorf("the code is %q", code)
	}
	before := goodTag(t, c, "reader.scans").Value.Value().(uint32)
	eventually(t, "codes are counted", func() bool { return readTag(t, c, "reader.scans").Value.Value().(uint32) > before })

	// Tare and zero, and what the scale says to them.
	if s := writeTag(t, c, "scale.tare", true); s != ua.StatusOK {
		t.Fatalf("the tare is answered with %v", s)
	}
	eventually(t, "the weight is tared", func() bool { v := readTag(t, c, "scale.weight"); return v.Value != nil && v.Value.Value() == 0.0 })
	eventually(t, "the tare is read back", func() bool {
		v := readTag(t, c, "scale.tare_weight")
		return v.Value != nil && v.Value.Value() == 100.25
	})
	plant.Instrument("scale").Put(150, true)
	eventually(t, "the weight moves", func() bool {
		w, s := readTag(t, c, "scale.weight"), readTag(t, c, "scale.stable")
		return w.Value != nil && w.Value.Value() == 49.75 && s.Value != nil && s.Value.Value() == false
	})
	if s := writeTag(t, c, "scale.tare", true); s != ua.StatusBadResourceUnavailable {
		t.Errorf("a tare while it moves is answered with %v", s)
	}
	plant.Instrument("scale").Put(6000, false)
	eventually(t, "overload is no number", func() bool { return readTag(t, c, "scale.weight").Status == ua.StatusBadOutOfRange })
	if s := writeTag(t, c, "scale.zero", false); s != ua.StatusBadOutOfRange {
		t.Errorf("zero of false is answered with %v", s)
	}
	if s := writeTag(t, c, "scale.weight", 1.0); s != ua.StatusBadNotWritable && s != ua.StatusBadUserAccessDenied {
		t.Errorf("writing the weight is answered with %v", s)
	}
	if n := book.count("not understood"); n != 2 { // once for each instrument that garbles
		t.Errorf("the log tells %d times of what was garbled", n)
	}
	if strings.Contains(book.String(), "\x00") {
		t.Error("the log holds what a device said as it came")
	}
}

// TestProfileFile is a profile that a user has copied and changed: messages and tags of its own, mistakes by its own
// lines.
func TestProfileFile(t *testing.T) {
	dir := t.TempDir()
	status, text, stderr := command(t, "profiles", "mt-sics")
	if status != exitDone {
		t.Fatal(stderr)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	site := "buses: [{name: b, url: \"serial:///dev/ttyS1\"}]\ndevices: [{name: d, bus: b, driver: serial, profile: ./mine.yaml, poll: 200ms, " +
		"tags: [{name: unit, message: weight, field: state, type: string(2)}, {name: more, message: weight, field: 2}]}]\n"
	s, err := parseSite(filepath.Join(dir, "site.yaml"), []byte(site))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range s.Devices[0].Serial.Tags {
		names = append(names, one.Name)
	}
	if got := strings.Join(names, " "); got != "weight stable unit tare_weight tare zero more" || s.Devices[0].Serial.Poll != 200*time.Millisecond {
		t.Errorf("the tags are %s, polled each %v", got, s.Devices[0].Serial.Poll)
	}
	write(strings.Replace(text, "field: value, unit: g}", "field: valu, unit: g}", 1))
	if _, err = parseSite(filepath.Join(dir, "site.yaml"), []byte(site)); err == nil || !strings.Contains(err.Error(), "mine.yaml:20:") || !strings.Contains(err.Error(), `no field "valu"`) {
		t.Errorf("a mistake in the profile is told so: %v", err)
	}
}

// TestSerialMistakes are mistakes in the keys of instruments, each by the place of its key.
func TestSerialMistakes(t *testing.T) {
	const head = "buses: [{name: b, url: \"serial:///dev/ttyS1\"}, {name: m, url: \"tcp://h\"}]\ndevices:\n"
	for _, row := range []struct{ name, text, want string }{
		{"unknown profile", "- {name: d, bus: b, driver: serial, profile: nmea}\n", `3:46: device d: profile "nmea" is not known`},
		{"profile misspelt", "- {name: d, bus: b, driver: serial, profile: mt-sic}\n", "did you mean mt-sics?"},
		{"bus of modbus", "- {name: d, bus: m, driver: serial, profile: barcode}\n", "3:18: device d: bus m is of scheme tcp"},
		{"modbus on a line of instruments", "- {name: d, bus: b, tags: [{name: t, address: \"holding:0\"}]}\n", "add driver: serial"},
		{"a talker shares its line", "- {name: d, bus: b, driver: serial, profile: barcode}\n- {name: e, bus: b, driver: serial, profile: barcode}\n", "4:3: device e: bus b has d too"},
		{"pattern", "- {name: d, bus: b, driver: serial, messages: [{name: x, send: s, pattern: \"(\"}], tags: [{name: t, field: 1}]}\n", "3:76: device d: message x: pattern:"},
		{"escape", "- {name: d, bus: b, driver: serial, frame: {end: '\\q'}, messages: [{name: x}], tags: [{name: t}]}\n", `3:50: device d: frame.end: "\\q": \q is not known`},
		{"message of a tag", "- {name: d, bus: b, driver: serial, messages: [{name: x}], tags: [{name: t, message: y}]}\n", `3:86: d.t: message: "y" is no message`},
		{"unit of a text", "- {name: d, bus: b, driver: serial, messages: [{name: x}], tags: [{name: t, type: string, unit: kg}]}\n", "unit is of a number"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := parseSite("site.yaml", []byte(head+row.text)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v\nwant %s", err, row.want)
			}
		})
	}
}
