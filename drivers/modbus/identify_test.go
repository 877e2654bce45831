package modbus

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"edged/drivers"
)

// identity answers 43/14 as a device of a conformity level does, with at most fits objects an answer; other functions are
// answered by registers.
func identity(level byte, fits int, texts ...string) func(pdu []byte) []byte {
	dev := &registers{}
	return func(pdu []byte) []byte {
		if pdu[0] != funcIdentify {
			return dev.answer(pdu)
		}
		last := len(texts) - 1
		if pdu[2] == accessBasic || level == accessBasic {
			last = min(last, 2)
		}
		out := []byte{funcIdentify, meiIdentify, pdu[2], 0x80 | level, 0, 0, 0}
		for i := int(pdu[3]); i <= last; i++ {
			if int(out[6]) == fits {
				out[4], out[5] = 0xFF, byte(i)
				break
			}
			out = append(append(out, byte(i), byte(len(texts[i]))), texts[i]...)
			out[6]++
		}
		return out
	}
}

func TestIdentify(t *testing.T) {
	refuse := func(codes ...byte) func(pdu []byte) []byte {
		good := identity(accessRegular, 9, "Acme", "X1", "V2.11")
		return func(pdu []byte) []byte {
			if pdu[0] == funcIdentify && pdu[2] <= byte(len(codes)) && codes[pdu[2]-1] > 0 {
				return []byte{pdu[0] | exceptionBit, codes[pdu[2]-1]}
			}
			return good(pdu)
		}
	}
	acme := drivers.Identity{Manufacturer: "Acme", Model: "X1", SoftwareRevision: "V2.11"}
	for _, row := range []struct {
		name      string
		device    func(pdu []byte) []byte
		want      drivers.Identity
		exchanges int
		refused   bool
	}{
		{"basic", identity(accessBasic, 9, "Acme", "X1", "V2.11"), acme, 1, false},
		{"regular", identity(accessRegular, 9, "Acme", "X1", "V2.11", "http://acme", "Product", "Model"), drivers.Identity{Manufacturer: "Acme", Model: "Model", SoftwareRevision: "V2.11"}, 1, false},
		{"no model name", identity(accessRegular, 9, "Acme", "X1", "V2.11", "", "Product"), drivers.Identity{Manufacturer: "Acme", Model: "Product", SoftwareRevision: "V2.11"}, 1, false},
		{"one object an answer", identity(accessRegular, 1, "Acme", "X1", "V2.11", "u", "", ""), acme, 6, false},
		{"exception 3 to regular access", refuse(0, 3), acme, 2, false},
		{"exception 2 to regular access", refuse(0, 2), acme, 2, false},
		{"exception 1", refuse(1, 1), drivers.Identity{}, 1, true},
		{"exception 3 to both", refuse(3, 3), drivers.Identity{}, 2, true},
		{"silence", func(pdu []byte) []byte { return nil }, drivers.Identity{}, 1, true},
		{"filled with spaces and NUL", identity(accessBasic, 9, "  Acme \x00rest", "X\x011", "V2.11\xFF"), drivers.Identity{Manufacturer: "Acme", Model: "X1", SoftwareRevision: "V2.11?"}, 1, false},
		{"the next object is none", func(pdu []byte) []byte {
			return []byte{funcIdentify, meiIdentify, 2, 0x82, 0xFF, 0, 1, 0, 4, 'A', 'c', 'm', 'e'}
		}, drivers.Identity{Manufacturer: "Acme"}, 1, false},
		{"objects beyond the answer", func(pdu []byte) []byte {
			return []byte{funcIdentify, meiIdentify, 2, 0x82, 0, 0, 3, 0, 4, 'A', 'c', 'm', 'e'}
		}, drivers.Identity{}, 1, true},
	} {
		for _, framing := range []Framing{TCP, RTU, ASCII} {
			t.Run(fmt.Sprintf("%s %d", row.name, framing), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{framing: framing, units: map[byte]func([]byte) []byte{1: row.device}}
					if row.name == "silence" {
						p.units = nil
					}
					d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}}, LinkConfig{Timeout: waits})
					defer closeAll(l, p)
					ask := func() (id drivers.Identity, err error) {
						for more := true; more && err == nil; {
							id, more, err = d.Identify(t.Context(), 0)
						}
						return id, err
					}
					id, err := ask()
					if id != row.want || (err != nil) != row.refused || len(p.seen()) != row.exchanges {
						t.Fatalf("%+v, %v, after %d exchanges", id, err, len(p.seen()))
					}
					var f *drivers.Fault
					if err != nil && !errors.As(err, &f) {
						t.Errorf("a refusal is %v", err)
					}
					again, err := ask()
					if row.refused {
						if !errors.Is(err, drivers.ErrSkipped) || len(p.seen()) != row.exchanges {
							t.Errorf("it is not left alone: %v", err)
						}
					} else if again != row.want || err != nil {
						t.Errorf("asked again: %+v, %v", again, err)
					}
				})
			})
		}
	}
}

func TestIdentifyOfTheUnaskable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		p := &peer{framing: TCP}
		p.respond = func(int, []byte, func(...[]byte)) { n++; p.conns[len(p.conns)-1].Close() }
		d, l := open(t, p, Config{Tags: []Tag{{Name: "a", Address: "holding:0"}}}, LinkConfig{Timeout: waits})
		defer closeAll(l, p)
		for range 5 { // a device that ends the connection at the question
			d.Identify(t.Context(), 0)
			l.Open(t.Context())
		}
		if n != maxLost {
			t.Errorf("asked %d times", n)
		}
	})
}

// Bits of what an identification may be: however an object is cut, its text stays in its bounds.
func TestCleanText(t *testing.T) {
	for in, want := range map[string]string{"Acme": "Acme", " a ": "a", "": "", "\x00x": "", "a\x00b": "a", "\xC3\xA4\xC3": "ä?", strings.Repeat("x", 244): strings.Repeat("x", 244)} {
		if got := clean([]byte(in)); got != want {
			t.Errorf("%q is %q", in, got)
		}
	}
}
