package channel

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

// TestRefusalsAreToldOnce is H5: a client that comes back every second is told once a minute, with how often it came.
func TestRefusalsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := slog.New(slog.NewTextHandler(&b, nil))
		var r refusals
		one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		for range 150 {
			r.log(log, one, insecure("certificate x is not trusted"))
			time.Sleep(time.Second)
		}
		r.log(log, two, insecure("certificate y is not trusted"))
		r.log(log, one, faultf(ua.StatusBadTimeout, "no channel"))
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		r.log(log, one, insecure("signature: %v", "wrong"))
		for i := range 20 {
			r.log(log, one, insecure("signature: %v", i))
		}
		if n := strings.Count(b.String(), "signature: "); n != 1 || !strings.Contains(b.String(), `reason="signature: wrong"`) {
			t.Errorf("a signature that is wrong is told %d times, beside a certificate that is not trusted", n)
		}
		if len(lines) != 5 {
			t.Fatalf("%d lines:\n%s", len(lines), b.String())
		}
		for i, want := range []string{"again=0", "again=59", "again=59", "certificate y", "code=BadTimeout"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d lacks %s: %s", i, want, lines[i])
			}
		}
		for i := range 5000 {
			r.log(log, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), insecure("x"))
		}
		if len(r.told) > maxRefusals {
			t.Errorf("%d addresses are remembered", len(r.told))
		}
	})
}
