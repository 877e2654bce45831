package probe

import (
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/drivers/port"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seven puts a parity bit above seven data bits.
func seven(text string, odd byte) []byte {
	b := []byte(text)
	for i, c := range b {
		parity := odd
		for n := range 7 {
			parity ^= c >> n & 1
		}
		b[i] = c | parity<<7
	}
	return b
}

// telegram is a DSMR P1 telegram with its CRC.
func telegram() string {
	s := "/ISK5\\2M550T-1012\r\n\r\n1-3:0.2.8(50)\r\n0-0:1.0.0(101209113020W)\r\n1-0:1.8.1(123456.789*kWh)\r\n1-0:21.7.0(00.378*kW)\r\n!"
	return s + fmt.Sprintf("%04X\r\n", crc(0, []byte(s)))
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestGuesses(t *testing.T) {
	for _, row := range []struct {
		name string
		data []byte
		what string // how the likeliest guess begins
		why  string
	}{
		{"silence", nil, Idle, "waits to be asked"},
		{"NMEA 0183", []byte("$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"), "NMEA 0183", "1 sentences with a right check sum, 0 with a wrong one: GPGGA"},
		{"NMEA cut at both ends", []byte("9,M,,*47\r\n$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n$GPG"), "NMEA 0183", "GPGGA"},
		{"NMEA with a wrong sum is text", []byte("$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*48\r\n"), "lines of text", "CR LF"},
		{"DSMR P1", []byte(telegram()), "a DSMR P1 meter", "right CRC"},
		{"DSMR P1, garbled", []byte(strings.Replace(telegram(), "378", "379", 1)), "a DSMR P1 meter", "CRC is wrong"},
		{"DSMR P1, begun within", []byte(telegram()[40:]), "an electricity, gas or heat meter", "listen longer"},
		{"IEC 62056-21", []byte("/ABB5\\@V4.50\r\n1.8.0(000123.4*kWh)\r\n2.8.0(000001.2*kWh)\r\n!\r\n"), "a meter (IEC 62056-21)", "2 OBIS lines"},
		{"MT-SICS", []byte("S S     100.00 g\r\nS D      99.87 g\r\n"), "a scale that talks MT-SICS", "2 of 2 lines"},
		{"MT-SICS overload", []byte("S +\r\nS I\r\n"), "a scale that talks MT-SICS", "2 of 2"},
		{"a scale that prints", []byte("ST,GS,+  12.345 kg\r\nST,GS,+  12.346 kg\r\n"), "a scale or gauge", "number with a unit"},
		{"barcodes", []byte("4006381333931\r\n5901234123457\r\n"), "a barcode reader", "2 of 2 lines"},
		{"numbers that are no article", []byte("4006381333932\r\n5901234123458\r\n"), "lines of text", ""},
		{"Modbus RTU (Serial Line, 6.2.2)", unhex(t, "11 03 00 6B 00 03 76 87 11 03 06 AE 41 56 52 43 40 49 AD"), "Modbus RTU", "2 frames with a right CRC, units 17"},
		{"Modbus ASCII", []byte(":1103006B00037E\r\n"), "Modbus ASCII", "1 frames with a right LRC, units 17"},
		{"SML", unhex(t, "1b1b1b1b 01010101 76 05 01 02 03 04 62 00"), "a meter that sends SML", "1 times"},
		{"M-Bus", unhex(t, "68 03 03 68 08 01 72 7b 16"), "M-Bus", "3 bytes"},
		{"STX and ETX", []byte("\x02+001.23\x03\x02+001.24\x03"), "frames of text that begin with STX", "2 of them"},
		{"seven bits, even parity", seven("ST,GS,+  12.345 kilos\r\nmore of that", 0), "text with 7 data bits and even parity", "data=7&parity=even"},
		{"seven bits, odd parity", seven("ST,GS,+  12.345 kilos\r\nmore of that", 1), "text with 7 data bits and odd parity", "data=7&parity=odd"},
		{"a line read too fast", []byte(strings.Repeat("\x00\x80\xf8\x00\xfe\x07\xc0", 8)), "a wrong speed: the line is read too fast", "lower speeds"},
		{"noise", noise(200), "a wrong speed or parity", "--scan"},
		{"a few bytes", []byte{0x91, 0x27}, "nothing that is known", "2 bytes"},
		{"text", []byte("hello\nworld\n"), "lines of text", "ended by LF"},
	} {
		hints := Hear(row.data)
		if !strings.HasPrefix(hints[0].What, row.what) || !strings.Contains(hints[0].Why, row.why) {
			t.Errorf("%s: %+v", row.name, hints)
		}
	}
}

// FuzzHear: no bytes are too strange to be looked at, and what is shown of them moves no cursor.
func FuzzHear(f *testing.F) {
	f.Add([]byte(telegram()))
	f.Add([]byte("$GPGGA,*00\r\n:00\r\n\x02\x03/\x80"))
	f.Add(unhex(f, "68 ff ff 68 1b1b1b1b 01010101 11 17 00 00 00 00 00 00 00 00 ff 01 10 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		hints := Hear(b)
		if len(hints) == 0 {
			t.Fatal("no guess at all")
		}
		for _, h := range hints {
			if h.Sure < 0 || h.Sure > 100 || h.What == "" || strings.ContainsAny(h.Why, "\x00\x1b\r\n") {
				t.Errorf("%+v", h)
			}
		}
		if dump := (Burst{Data: b}).Dump(); strings.ContainsAny(dump, "\x00\x1b\r") {
			t.Errorf("dump %q", dump)
		}
	})
}

// TestListenTellsBursts: what comes in one go is one burst, however reads cut it, and silence ends it.
func TestListenTellsBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			for _, part := range []string{"S S ", "  1.0", "0 g\r\n"} {
				io.WriteString(far, part)
				time.Sleep(2 * time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			io.WriteString(far, "S D     1.02 g\r\n")
			io.Copy(io.Discard, far) // until the near end closes
			far.Close()
		}()
		told := 0
		heard, err := Listen(t.Context(), pipe(near), 2*time.Second, func(Burst) { told++ })
		if err != nil || len(heard) != 2 || told != 2 {
			t.Fatalf("%d bursts, %d told: %v", len(heard), told, err)
		}
		if string(heard[0].Data) != "S S   1.00 g\r\n" || string(heard[1].Data) != "S D     1.02 g\r\n" || heard[1].At < 100*time.Millisecond {
			t.Errorf("%q", heard)
		}
		if !strings.Contains(heard[0].Dump(), "53 20 53 20 20 20 31 2e 30 30 20 67 0d 0a        S S   1.00 g..") {
			t.Errorf("dump:\n%s", heard[0].Dump())
		}
	})
}

// TestListenIsBounded: a talker that never stops ends the listening.
func TestListenIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for b := noise(1000); ; {
				if _, err := far.Write(b); err != nil {
					return
				}
			}
		}()
		heard, err := Listen(t.Context(), pipe(near), time.Hour, func(Burst) {})
		if n := len(All(heard)); err != nil || n < mostHeard || n > mostHeard+1024 {
			t.Errorf("%d bytes: %v", n, err)
		}
		for _, b := range heard {
			if len(b.Data) > mostBurst+1024 {
				t.Errorf("a burst of %d bytes", len(b.Data))
			}
		}
	})
}

func pipe(c net.Conn) port.Opener { return opener(func() port.Port { return port.FromConn(c) }) }
