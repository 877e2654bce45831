package main

import (
	"testing"

	"github.com/gopcua/opcua/ua"
)

// TestModelOfASite reads what a site file says of a tag and of a device, from the file to a stock client.
func TestModelOfASite(t *testing.T) {
	g, _ := startSite(t, siteHead+`devices:
- name: d
  driver: memory
  tags:
  - {name: valve, type: bool, value: true, states: {false: closed, true: open}}
  - {name: mode, type: int16, value: 1, access: readwrite, states: {0: off, 1: heating}}
  - {name: level, range: [0, 5], unit: degC, instrument_range: [-1, 6]}
`)
	c := connect(t, endpointUp(t, g), ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	text := func(name string) string {
		switch v := readTag(t, c, name).Value.Value().(type) {
		case *ua.LocalizedText:
			return v.Text
		case string:
			return v
		}
		return ""
	}
	for name, want := range map[string]string{
		"d.valve.$TrueState": "open", "d.valve.$FalseState": "closed", "d.mode.$ValueAsText": "heating",
		"d.$id.Manufacturer": "edged", "d.$id.Model": "memory", "d.$id.SoftwareRevision": version,
	} {
		if got := text(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if unit, ok := readTag(t, c, "d.level.$EngineeringUnits").Value.Value().(*ua.ExtensionObject).Value.(*ua.EUInformation); !ok || unit.DisplayName.Text != "°C" {
		t.Errorf("unit %+v", unit)
	}
	if status := writeTag(t, c, "d.mode", int16(2)); status != ua.StatusBadOutOfRange {
		t.Errorf("a write of no state: %v", status)
	}
	if status := writeTag(t, c, "d.mode", int16(0)); status != ua.StatusGood || text("d.mode.$ValueAsText") != "off" {
		t.Errorf("a write of a state: %v, then %q", status, text("d.mode.$ValueAsText"))
	}
	if status := writeTag(t, c, "d.level.$EURange", 1.0); status != ua.StatusBadNotWritable {
		t.Errorf("a write of a property: %v", status)
	}
}
