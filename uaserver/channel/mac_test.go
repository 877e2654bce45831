package channel

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"
)

// TestMAC holds it against crypto/hmac, whatever was computed before with the same digest.
func TestMAC(t *testing.T) {
	for _, size := range []int{1, 16, 32, 64} {
		key := bytes.Repeat([]byte{0xA5}, size)
		m, err := newMAC(key)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 63, 64, 65, 1000, 70_000} {
			message := bytes.Repeat([]byte("x"), n)
			h := hmac.New(sha256.New, key)
			h.Write(message)
			want := h.Sum([]byte("before"))
			if got := m.appendSum([]byte("before"), message); !bytes.Equal(got, want) {
				t.Errorf("key of %d bytes, message of %d: %x, want %x", size, n, got, want)
			}
			sum := want[len("before"):]
			if !m.verify(message, sum) {
				t.Errorf("key of %d bytes, message of %d: not verified", size, n)
			}
			sum[31] ^= 1
			if m.verify(message, sum) || m.verify(message, sum[:31]) || m.verify(message, nil) {
				t.Errorf("key of %d bytes, message of %d: a wrong code was taken", size, n)
			}
		}
	}
}
