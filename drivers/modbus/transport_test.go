package modbus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/modbus"
	"edged/drivers/port"
	"edged/drivers/sim"
	"edged/drivers/tag"
)

// certificate makes a key and a certificate for this machine, signed by itself, for both sides of a connection.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// openLine opens the link of a url.
func openLine(t *testing.T, url string, lc modbus.LinkConfig) *modbus.Link {
	t.Helper()
	addr, err := port.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	own := modbus.Links(addr)
	own.Timeout, own.Broadcast = lc.Timeout, lc.Broadcast
	l := modbus.NewLink(own)
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// Each transport carries each function code, and tells what the device is.
func TestEveryFunctionOverEveryTransport(t *testing.T) {
	cert, key := certificate(t)
	points := []sim.PointConfig{
		{Address: "coil:0", Value: true}, {Address: "coil:1", Repeat: 9, Value: false}, {Address: "discrete:5", Value: true},
		{Address: "input:7", Type: "int16", Value: -5}, {Address: "holding:0", Type: "float32", Value: 1.5}, {Address: "holding:2", Value: 0x8001},
		{Address: "holding:3", Type: "string(6)", Value: "abc"}, {Address: "holding:6", Repeat: 4, Value: 3},
	}
	tags := []modbus.Tag{
		{Name: "coil", Address: "coil:0"}, {Name: "coils", Address: "coil:1", Type: "bool[9]"}, {Name: "discrete", Address: "discrete:5"},
		{Name: "input", Address: "input:7", Type: "int16"}, {Name: "float", Address: "holding:0", Type: "float32"}, {Name: "bit", Address: "holding:2.1"},
		{Name: "register", Address: "holding:2"}, {Name: "text", Address: "holding:3", Type: "string(6)"}, {Name: "row", Address: "holding:6", Type: "uint16[4]", Verify: true},
	}
	for _, url := range []string{"tcp://127.0.0.1:0", "tcp+tls://127.0.0.1:0?ca=" + cert + "&cert=" + cert + "&key=" + key,
		"rtuovertcp://127.0.0.1:0", "rtu:?baud=115200", "ascii:?baud=115200"} {
		scheme, _, _ := strings.Cut(url, ":")
		t.Run(scheme, func(t *testing.T) {
			s := join(t, sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: url}}, Devices: []sim.DeviceConfig{
				{Name: "meter", Line: "line", Unit: 17, Points: points, Identity: []string{"Acme", "X1", "V2.11"}},
				{Name: "dual", Line: "line", Unit: 18, Functions: []int{3, 23}, Points: []sim.PointConfig{{Address: "holding:0", Repeat: 2}}},
			}}, drivers.BusConfig{Retries: 1}, modbus.LinkConfig{Timeout: 2 * time.Second}, map[string]modbus.Config{
				"meter": {Poll: 50 * time.Millisecond, Tags: append([]modbus.Tag(nil), tags...)},
				"dual":  {Poll: 50 * time.Millisecond, Quirks: modbus.Quirks{Writes: "both"}, Tags: []modbus.Tag{{Name: "n", Address: "holding:0", Type: "uint32", Verify: true}}},
			})
			want := []tag.Value{tag.Of(true), tag.OfSlice(make([]bool, 9)), tag.Of(true), tag.Of(int16(-5)), tag.Of(float32(1.5)), tag.Of(false),
				tag.Of(uint16(0x8001)), tag.Of("abc"), tag.OfSlice([]uint16{3, 3, 3, 3}), tag.Of(uint32(0))}
			eventually(t, "not everything is read", func() bool { return reads(want...)(s) })
			cmds := []tag.Command{
				{Ref: 1, Value: tag.Of(false)}, // 5
				{Ref: 2, Value: tag.OfSlice([]bool{true, false, false, false, false, false, false, false, true})}, // 15
				{Ref: 6, Value: tag.Of(true)},                                     // 22
				{Ref: 5, Value: tag.Of(float32(-2.25))},                           // 16
				{Ref: 8, Value: tag.Of("xyz")},                                    // 16
				{Ref: 9, Value: tag.OfSlice([]uint16{8, 9}), From: 1, Part: true}, // 16
				{Ref: 10, Value: tag.Of(uint32(0x00010002))},                      // 23
			}
			s.Execute(t.Context(), cmds)
			for _, c := range cmds {
				if c.Status != tag.Good {
					t.Errorf("write to tag %d: %v", c.Ref, c.Status)
				}
			}
			want = []tag.Value{tag.Of(false), cmds[1].Value, tag.Of(true), tag.Of(int16(-5)), tag.Of(float32(-2.25)), tag.Of(true),
				tag.Of(uint16(0x8003)), tag.Of("xyz"), tag.OfSlice([]uint16{3, 8, 9, 3}), cmds[6].Value}
			if eventually(t, "not everything was written", func() bool { return reads(want...)(s) }); t.Failed() {
				return
			}
			one := []tag.Command{{Ref: 7, Value: tag.Of(uint16(77))}} // 6
			if s.Execute(t.Context(), one); one[0].Status != tag.Good || !s.sink.last(7).Value.Equal(one[0].Value) {
				t.Errorf("register: %v, %v", one[0].Status, s.sink.last(7).Value)
			}
			eventually(t, "it does not tell what it is", func() bool {
				d, _ := s.Device("meter")
				return d.Identity == drivers.Identity{Manufacturer: "Acme", Model: "X1", SoftwareRevision: "V2.11"}
			})
			if d, _ := s.Device("dual"); d.State != drivers.Online || d.Errors != 0 {
				t.Errorf("a device that refuses 43/14 is %v with %d errors: %s", d.State, d.Errors, d.LastError)
			}
		})
	}
}

// D15: what is written to unit 0 of a line reaches every device of it, and waits for none.
func TestBroadcastOnALine(t *testing.T) {
	for _, url := range []string{"rtuovertcp://127.0.0.1:0", "rtu:?baud=115200", "ascii:?baud=115200"} {
		t.Run(url, func(t *testing.T) {
			cfg := sim.Config{Lines: []sim.LineConfig{{Name: "line", URL: url}}}
			for unit := 1; unit <= 3; unit++ {
				cfg.Devices = append(cfg.Devices, sim.DeviceConfig{Name: string(rune('a' + unit)), Line: "line", Unit: unit,
					Points: []sim.PointConfig{{Address: "holding:0", Repeat: 2}, {Address: "coil:0"}}})
			}
			plant, err := sim.New(cfg)
			if err == nil {
				err = plant.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer plant.Close()
			l := openLine(t, plant.Line("line").URL(), modbus.LinkConfig{Timeout: time.Minute, Broadcast: 20 * time.Millisecond})
			defer l.Close()
			d, err := modbus.New(modbus.Config{Name: "all", Unit: 0, Tags: []modbus.Tag{
				{Ref: 1, Name: "n", Address: "holding:0", Type: "uint32", Access: tag.Writable}, {Ref: 2, Name: "c", Address: "coil:0", Access: tag.Writable}}}, l)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for _, c := range []tag.Command{{Ref: 1, Value: tag.Of(uint32(0x00050006))}, {Ref: 2, Value: tag.Of(true)}} {
				cmds := []tag.Command{c}
				if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good {
					t.Fatalf("%v, %v", err, cmds[0].Status)
				}
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("an answer was waited for: %v", took)
			}
			for _, dev := range plant.Devices() {
				eventually(t, "a device was not reached", func() bool {
					n, _ := dev.Value(sim.Holding, 1).Float()
					return n == 6 && dev.Value(sim.Coil, 0).Bool()
				})
			}
		})
	}
}
