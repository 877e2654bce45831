package main

import (
	"testing"

	"edged/drivers/tag"
)

func TestStatesOfTheFile(t *testing.T) {
	s, err := parseSite("site.yaml", []byte(withTags(`  - {name: valve, address: "coil:0", states: {true: open, false: closed}}
  - {name: "mode{n}", repeat: 2, address: "holding:0", type: int16, states: {0: off, 1: heating, -2: "out of order", 0x10: off}}
  - {name: level, address: "holding:4", scale: 0.1, decimals: 1, range: [0, 5], instrument_range: [-1, 6.5]}
  - {name: plain, address: "holding:5"}
- {name: memory, driver: memory, tags: [{name: whole, decimals: 0}, {name: fine, type: float32, decimals: 3}]}
`)))
	if err != nil {
		t.Fatal(err)
	}
	mode := tag.States("").With(0, "off").With(1, "heating").With(-2, "out of order").With(16, "off")
	for i, want := range []tag.Def{
		{Name: "valve", Kind: tag.Bool, States: tag.States("").With(1, "open").With(0, "closed")},
		{Name: "mode0", Kind: tag.Int16, States: mode}, {Name: "mode1", Kind: tag.Int16, States: mode},
		{Name: "level", Kind: tag.Float64, Decimals: 2, Instrument: tag.Span{Low: -1, High: 6.5}},
		{Name: "plain", Kind: tag.Uint16},
		{Name: "whole", Kind: tag.Float64, Decimals: 1}, {Name: "fine", Kind: tag.Float32, Decimals: 4},
	} {
		got := s.Tags[i]
		if got.Name != want.Name || got.Kind != want.Kind || got.States != want.States || got.Decimals != want.Decimals || got.Instrument != want.Instrument {
			t.Errorf("tag %d is %+v, want %+v", i, got, want)
		}
	}
}

func TestDevicesDifferByTheirTags(t *testing.T) {
	device := func(tags string) *deviceSettings {
		s, err := parseSite("site.yaml", []byte("devices: [{name: d, driver: memory, tags: ["+tags+"]}]\n"))
		if err != nil {
			t.Fatalf("%s: %v", tags, err)
		}
		return &s.Devices[0]
	}
	one := device("{name: a}, {name: b, wave: {kind: sine, max: 1}}")
	if !one.same(device("{name: a}, {name: b, wave: {kind: sine, max: 1}}")) {
		t.Error("a device differs from itself")
	}
	for _, tags := range []string{
		"{name: a}", "{name: b, wave: {kind: sine, max: 1}}, {name: a}", "{name: a}, {name: b}",
		"{name: a}, {name: b, wave: {kind: sine, max: 2}}", "{name: a, value: 1}, {name: b, wave: {kind: sine, max: 1}}",
		"{name: a, access: readwrite}, {name: b, wave: {kind: sine, max: 1}}",
	} {
		if one.same(device(tags)) {
			t.Errorf("a device with %s is taken for the other", tags)
		}
	}
}
