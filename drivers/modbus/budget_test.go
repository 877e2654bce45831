package modbus

import (
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/port"
)

func TestExchangesOfALine(t *testing.T) {
	rtu := port.Mode{Baud: 9600, Data: 8, Parity: "even", Stop: 1}    // 11 bits
	fast := port.Mode{Baud: 115200, Data: 8, Parity: "even", Stop: 1} // 3.5 characters are 1.75 ms
	ascii := port.Mode{Baud: 9600, Data: 7, Parity: "even", Stop: 1}  // 10 bits
	for _, row := range []struct {
		name string
		link LinkConfig
		want drivers.Exchange
	}{
		{"2.5.1 RTU: 8 and 25 characters, twice 3.5 between", LinkConfig{Framing: RTU, Mode: rtu, Timeout: 200 * time.Millisecond},
			drivers.Exchange{Takes: rtu.Chars(8+25) + rtu.Chars(7), Fails: rtu.Chars(8+25) + rtu.Chars(7)/2 + 200*time.Millisecond}},
		{"turnaround instead of 3.5 characters before the next request", LinkConfig{Framing: RTU, Mode: rtu, Turnaround: 20 * time.Millisecond},
			drivers.Exchange{Takes: rtu.Chars(8+25) + rtu.Chars(7)/2 + 20*time.Millisecond, Fails: rtu.Chars(8+25) + 520*time.Millisecond}},
		{"above 19200 baud", LinkConfig{Framing: RTU, Mode: fast},
			drivers.Exchange{Takes: fast.Chars(8+25) + 3500*time.Microsecond, Fails: fast.Chars(8+25) + 1750*time.Microsecond + 500*time.Millisecond}},
		{"2.5.2 ASCII: two characters a byte, no silence", LinkConfig{Framing: ASCII, Mode: ascii},
			drivers.Exchange{Takes: ascii.Chars(17 + 51), Fails: ascii.Chars(17+51) + 500*time.Millisecond}},
		{"TCP", LinkConfig{Framing: TCP, Timeout: time.Second},
			drivers.Exchange{Takes: drivers.AssumedExchange, Fails: time.Second, Assumed: true}},
		{"RTU over TCP", LinkConfig{Framing: RTU, Timeout: time.Second},
			drivers.Exchange{Takes: drivers.AssumedExchange, Fails: time.Second, Assumed: true}},
	} {
		d, err := New(Config{Name: "d", Unit: 1, Tags: []Tag{{Ref: 7, Name: "t", Address: "holding:0", Type: "uint16[10]"}}}, NewLink(row.link))
		if err != nil {
			t.Fatal(err)
		}
		got := d.Exchange(0)
		if (got.Takes-row.want.Takes).Abs() > time.Microsecond || (got.Fails-row.want.Fails).Abs() > time.Microsecond || got.Assumed != row.want.Assumed {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
		if refs := d.Reads(0); len(refs) != 1 || refs[0] != 7 {
			t.Errorf("%s: it reads %v", row.name, refs)
		}
	}
}
