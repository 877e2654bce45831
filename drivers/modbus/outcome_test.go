package modbus

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

// D18, D12: what may happen to a write of each framing, and what the log may say of it.
func TestOutcomesOfWrites(t *testing.T) {
	exception := func(code byte) func(pdu []byte) []byte {
		return func(pdu []byte) []byte { return []byte{pdu[0] | exceptionBit, code} }
	}
	for _, row := range []struct {
		name    string
		tag     Tag
		writes  string
		device  func(pdu []byte) []byte // nil: registers
		outcome drivers.Outcome
	}{
		{"refused, 1", Tag{}, "", exception(1), drivers.NotDone},
		{"refused, 2", Tag{}, "", exception(2), drivers.NotDone},
		{"refused, 3", Tag{}, "", exception(3), drivers.NotDone},
		{"failed half way, 4", Tag{}, "", exception(4), drivers.Unknown},
		{"accepted and not yet done, 5", Tag{}, "", exception(5), drivers.Unknown},
		{"busy, 6", Tag{}, "", exception(6), drivers.NotDone},
		{"no path, 10", Tag{}, "", exception(10), drivers.NotDone},
		{"the gateway sent it and nobody answered, 11", Tag{}, "", exception(11), drivers.Unknown},
		{"garbled", Tag{}, "", func(pdu []byte) []byte { return []byte{pdu[0], 9, 9, 9, 9} }, drivers.Unknown},
		{"silence", Tag{}, "", func([]byte) []byte { return nil }, drivers.Unknown},
		{"second register refused", Tag{Type: "uint32"}, "single", func(pdu []byte) []byte {
			if pdu[2] == 1 {
				return exception(2)(pdu)
			}
			return pdu
		}, drivers.Unknown},
		{"the reading before a bit is refused", Tag{Address: "holding:0.3"}, "", exception(1), drivers.NotDone},
		{"verified otherwise", Tag{Verify: true}, "", func(pdu []byte) []byte {
			if pdu[0] == 3 {
				return []byte{3, 2, 0, 9}
			}
			return pdu
		}, drivers.Done},
		{"not verified", Tag{Verify: true}, "", func(pdu []byte) []byte {
			if pdu[0] == 3 {
				return exception(4)(pdu)
			}
			return pdu
		}, drivers.Done},
	} {
		for _, framing := range []Framing{TCP, RTU, ASCII} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{framing: framing, units: map[byte]func([]byte) []byte{1: row.device}}
				p.respond = func(_ int, adu []byte, reply func(...[]byte)) {
					if a := p.answer(adu); !slices.Equal(a, p.wrap(adu, nil)) {
						reply(a)
					}
				}
				tg := row.tag
				tg.Name, tg.Access = "t", rw
				if tg.Address == "" {
					tg.Address = "holding:0"
				}
				d, l := open(t, p, Config{Writes: row.writes, Tags: []Tag{tg}}, LinkConfig{Timeout: waits})
				defer closeAll(l, p)
				value := map[string]tag.Value{"": tag.Of(uint16(7)), "uint32": tag.Of(uint32(7))}[tg.Type]
				if d.fields[0].bit >= 0 {
					value = tag.Of(true)
				}
				cmds := []tag.Command{{Ref: 1, Value: value}}
				err := d.Write(t.Context(), 0, cmds)
				var f *drivers.Fault
				if !errors.As(err, &f) || f.Outcome != row.outcome {
					t.Errorf("%s, framing %d: %v, outcome %+v", row.name, framing, cmds[0].Status, err)
				}
				time.Sleep(time.Second)
			})
		}
	}
}
