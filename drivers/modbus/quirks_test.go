package modbus_test

import (
	"errors"
	"net"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/sim"
	"edged/drivers/tag"
)

// cure is what is expected of a device with a quirk that is known, and not of one whose quirk is not.
type cure func(s *site) bool

// reads: the tags, from the first on, read these values.
func reads(want ...tag.Value) cure {
	return func(s *site) bool {
		for i, v := range want {
			if got := s.sink.last(tag.Ref(i + 1)); got.Status != tag.Good || !got.Value.Equal(v) {
				return false
			}
		}
		return true
	}
}

// writes: a write to the first tag is answered as good, and leaves these registers or bits in the device.
func writes(v tag.Value, bank sim.Bank, address int, want ...uint16) cure {
	return func(s *site) bool {
		cmds := []tag.Command{{Ref: 1, Value: v}}
		s.Execute(s.ctx, cmds)
		if cmds[0].Status != tag.Good || !s.sink.last(1).Value.Equal(v) {
			return false
		}
		for i, w := range want {
			got, _ := s.plant.Device("meter").Value(bank, address+i).Float()
			if bank == sim.Coil && s.plant.Device("meter").Value(bank, address+i).Bool() {
				got = 1
			}
			if got != float64(w) {
				return false
			}
		}
		return true
	}
}

// steady: many readings, and none was bad.
func steady(s *site) bool {
	all := s.sink.of(1)
	return len(all) > 20 && !slices.ContainsFunc(all, func(x tag.Sample) bool { return x.Status.IsBad() })
}

// faultless: many readings, and nothing went wrong.
func faultless(s *site) bool { return len(s.sink.of(1)) > 5 && s.Devices()[0].Errors == 0 }

var (
	oneRegister  = []sim.PointConfig{{Address: "holding:0", Value: 7}}
	twoRegisters = []sim.PointConfig{{Address: "holding:0", Value: 7}, {Address: "holding:1", Value: 8}}
	coils        = []sim.PointConfig{{Address: "coil:0", Value: true}, {Address: "coil:1", Value: false}, {Address: "coil:2", Value: true}, {Address: "coil:3", Repeat: 20, Value: false}}
	oneTag       = []modbus.Tag{{Name: "a", Address: "holding:0"}}
	seven        = reads(tag.Of(uint16(7)))
)

// letters are registers that hold one character each, in one of their bytes.
func letters(text string, shift int) (points []sim.PointConfig) {
	for i, c := range []byte(text) {
		points = append(points, sim.PointConfig{Address: modbus.Address{Table: modbus.Holding, Number: i, Bit: -1}.String(), Value: int(c) << shift})
	}
	return points
}

type quirkRow struct {
	key    string
	line   string // "": tcp
	device sim.DeviceConfig
	quirks modbus.Quirks
	tags   []modbus.Tag
	cured  cure
}

var quirkRows = []quirkRow{
	{"pause_between_requests", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{Pause: 30 * time.Millisecond}},
		modbus.Quirks{PauseBetween: 60 * time.Millisecond}, oneTag, faultless},
	{"pause_after_connect", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{WarmUp: 120 * time.Millisecond}},
		modbus.Quirks{PauseConnect: 200 * time.Millisecond}, oneTag, faultless},
	{"reconnect_after_timeout", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{Stuck: true}, Faults: []sim.Fault{{Kind: sim.Mute, Function: 3, Skip: 3, Times: 1}}},
		modbus.Quirks{Reconnect: true}, oneTag, steady},
	{"one_request_per_tag", "", sim.DeviceConfig{Points: twoRegisters, Quirks: sim.Quirks{OneValue: true}},
		modbus.Quirks{OneRequest: true}, []modbus.Tag{{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:1"}}, faultless},
	{"bits_from_zero", "", sim.DeviceConfig{Points: coils, Quirks: sim.Quirks{FromZero: true}},
		modbus.Quirks{BitsFromZero: true}, []modbus.Tag{{Name: "a", Address: "coil:2"}, {Name: "b", Address: "coil:17"}}, reads(tag.Of(true), tag.Of(false))},
	{"bits_from_zero written and verified", "", sim.DeviceConfig{Points: coils, Quirks: sim.Quirks{FromZero: true}},
		modbus.Quirks{BitsFromZero: true}, []modbus.Tag{{Name: "a", Address: "coil:9", Type: "bool[3]", Verify: true}},
		writes(tag.OfSlice([]bool{true, false, true}), sim.Coil, 9, 1, 0, 1)},
	{"bit_order", "", sim.DeviceConfig{Points: coils, Quirks: sim.Quirks{HighBitFirst: true}},
		modbus.Quirks{HighBitFirst: true}, []modbus.Tag{{Name: "a", Address: "coil:0", Type: "bool[10]"}},
		reads(tag.OfSlice([]bool{true, false, true, false, false, false, false, false, false, false}))},
	{"bit_order written", "", sim.DeviceConfig{Points: coils, Quirks: sim.Quirks{HighBitFirst: true}},
		modbus.Quirks{HighBitFirst: true}, []modbus.Tag{{Name: "a", Address: "coil:0", Type: "bool[3]", Verify: true}},
		writes(tag.OfSlice([]bool{false, true, true}), sim.Coil, 0, 0, 1, 1)},
	{"register_bits", "", sim.DeviceConfig{Points: []sim.PointConfig{{Address: "holding:0", Value: 0x4000}}},
		modbus.Quirks{HighBitZero: true}, []modbus.Tag{{Name: "a", Address: "holding:0.1"}, {Name: "b", Address: "holding:0.14"}}, reads(tag.Of(true), tag.Of(false))},
	{"string_bytes: low", "", sim.DeviceConfig{Points: letters("Belo", 0)},
		modbus.Quirks{StringBytes: "low"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "string(4)"}}, reads(tag.Of("Belo"))},
	{"string_bytes: high, written", "", sim.DeviceConfig{Points: letters("Belo", 8)},
		modbus.Quirks{StringBytes: "high"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "string(4)", Verify: true}},
		writes(tag.Of("Rio"), sim.Holding, 0, 'R'<<8, 'i'<<8, 'o'<<8, 0)},
	{"string_order", "", sim.DeviceConfig{Points: []sim.PointConfig{{Address: "holding:0", Type: "string(4)", Value: "eBol"}}},
		modbus.Quirks{StringSwapped: true}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "string(4)"}}, reads(tag.Of("Belo"))},
	{"string_fill", "", sim.DeviceConfig{Points: []sim.PointConfig{{Address: "holding:0", Type: "string(6)", Value: "Belo  "}}},
		modbus.Quirks{StringFill: "space"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "string(6)"}}, reads(tag.Of("Belo"))},
	{"string_fill written", "", sim.DeviceConfig{Points: []sim.PointConfig{{Address: "holding:0"}, {Address: "holding:1"}}},
		modbus.Quirks{StringFill: "space"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "string(4)"}}, writes(tag.Of("Rio"), sim.Holding, 0, 'R'<<8|'i', 'o'<<8|' ')},
	{"writes: single", "", sim.DeviceConfig{Points: twoRegisters, Functions: []int{3, 6}},
		modbus.Quirks{Writes: "single"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "uint32"}}, writes(tag.Of(uint32(0x00050006)), sim.Holding, 0, 5, 6)},
	{"writes: multiple", "", sim.DeviceConfig{Points: oneRegister, Functions: []int{3, 16}},
		modbus.Quirks{Writes: "multiple"}, oneTag, writes(tag.Of(uint16(5)), sim.Holding, 0, 5)},
	{"writes: both", "", sim.DeviceConfig{Points: twoRegisters, Functions: []int{3, 23}},
		modbus.Quirks{Writes: "both"}, []modbus.Tag{{Name: "a", Address: "holding:0", Type: "uint32", Verify: true}}, writes(tag.Of(uint32(0x00050006)), sim.Holding, 0, 5, 6)},
	{"mask_write", "", sim.DeviceConfig{Points: []sim.PointConfig{{Address: "holding:0", Value: 0x8001}}, Quirks: sim.Quirks{MaskSpoils: true}},
		modbus.Quirks{NoMask: true}, []modbus.Tag{{Name: "a", Address: "holding:0.1"}}, writes(tag.Of(true), sim.Holding, 0, 0x8003)},
	{"busy_codes", "", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.Exception, Code: 4, Function: 3, Skip: 3, Times: 2}}},
		modbus.Quirks{Busy: []int{4}}, oneTag, steady},
	{"identification", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{Identity: true}},
		modbus.Quirks{NoIdentity: true}, oneTag, func(s *site) bool { return len(s.sink.of(1)) > 5 && s.Buses()[0].Opened == 1 }},
	{"transaction_ids: none", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{NoID: true}}, modbus.Quirks{AnyID: true}, oneTag, seven},
	{"transaction_ids: others", "", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.WrongTrans}}}, modbus.Quirks{AnyID: true}, oneTag, seven},
	{"unit_ids", "", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.WrongUnit}}}, modbus.Quirks{AnyUnit: true}, oneTag, seven},
	{"unit_ids", "rtu:?baud=115200", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.WrongUnit}}}, modbus.Quirks{AnyUnit: true}, oneTag, seven},
	{"unit_ids", "ascii:?baud=115200", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.WrongUnit}}}, modbus.Quirks{AnyUnit: true}, oneTag, seven},
	{"byte_counts", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{Count: true}}, modbus.Quirks{AnyCount: true}, oneTag, seven},
	{"byte_counts", "rtu:?baud=115200", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{Count: true}}, modbus.Quirks{AnyCount: true}, oneTag, seven},
	{"write_answers", "", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{WriteAnswer: true}}, modbus.Quirks{AnyAnswer: true}, oneTag, writes(tag.Of(uint16(5)), sim.Holding, 0, 5)},
	{"write_answers", "ascii:?baud=115200", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{WriteAnswer: true}}, modbus.Quirks{AnyAnswer: true}, oneTag, writes(tag.Of(uint16(5)), sim.Holding, 0, 5)},
	{"echo", "", sim.DeviceConfig{Points: oneRegister, Faults: []sim.Fault{{Kind: sim.Echo}}}, modbus.Quirks{Echo: true}, oneTag, seven},
	{"crc_order", "rtu:?baud=115200", sim.DeviceConfig{Points: oneRegister, Quirks: sim.Quirks{CRCSwapped: true}}, modbus.Quirks{CRCSwapped: true}, oneTag, seven},
}

// Each quirk against a simulated device that has it: with the key all is well, without it it is not.
func TestQuirks(t *testing.T) {
	for _, row := range quirkRows {
		for _, known := range []bool{true, false} {
			name := row.key + " unknown"
			if known {
				name = row.key + " known"
			}
			t.Run(name+row.line, func(t *testing.T) {
				t.Parallel()
				url, q, patience := row.line, row.quirks, 5*time.Second
				if url == "" {
					url = "tcp://127.0.0.1:0"
				}
				if !known {
					q, patience = modbus.Quirks{}, 50*time.Millisecond
				}
				if row.key == "reconnect_after_timeout" {
					patience = 60 * time.Millisecond // it is what the cure waits for
				}
				device := row.device
				device.Name, device.Line, device.Unit = "meter", "line", 1
				s := join(t, sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: url}}, Devices: []sim.DeviceConfig{device}},
					drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: patience},
					map[string]modbus.Config{"meter": {Poll: 10 * time.Millisecond, Quirks: q, Tags: slices.Clone(row.tags)}})
				if known {
					eventually(t, "the quirk is known, and the device does not work", func() bool { return row.cured(s) })
					return
				}
				time.Sleep(250 * time.Millisecond)
				if row.cured(s) {
					t.Error("the device works without its quirk being known: the row shows nothing")
				}
			})
		}
	}
	t.Run("each has a row", func(t *testing.T) {
		typ := reflect.TypeFor[modbus.Quirks]()
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Name != "CloseAfter" && !slices.ContainsFunc(quirkRows, func(row quirkRow) bool {
				return !reflect.ValueOf(row.quirks).Field(i).IsZero()
			}) {
				t.Errorf("%s has none", f.Name)
			}
		}
	})
}

// D20: a device of one client, which another wants to talk to as well.
func TestQuirkCloseAfterPoll(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := join(t, sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: "tcp://127.0.0.1:0", Clients: 1}}, Devices: []sim.DeviceConfig{
			{Name: "meter", Line: "line", Unit: 1, Points: twoRegisters, Identity: []string{"Acme"}}}},
			drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: 5 * time.Second},
			map[string]modbus.Config{"meter": {Poll: 100 * time.Millisecond, Quirks: modbus.Quirks{CloseAfter: known}, Tags: []modbus.Tag{
				{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:1"}}}})
		eventually(t, "no readings", func() bool { return len(s.sink.of(1)) > 2 })
		eventually(t, "it was not asked what it is", func() bool { return s.Devices()[0].Identity.Manufacturer == "Acme" })
		if slices.ContainsFunc(s.sink.of(1), func(x tag.Sample) bool { return x.Status.IsBad() }) {
			t.Errorf("closing was published: %v", s.sink.of(1))
		}
		// A client is in where its connection is not closed at once.
		other := func() bool {
			c, err := net.Dial("tcp", s.plant.Line("line").Address())
			if err != nil {
				return false
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err = c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		if known {
			eventually(t, "the other never gets in", other)
			n := len(s.sink.of(1))
			cmds := []tag.Command{{Ref: 2, Value: tag.Of(uint16(3))}}
			eventually(t, "no write", func() bool { s.Execute(s.ctx, cmds); return cmds[0].Status == tag.Good })
			eventually(t, "no readings any more", func() bool { return len(s.sink.of(1)) > n+3 })
		} else if other() {
			t.Error("the other gets in without the quirk")
		}
		s.stop()
	}
}
