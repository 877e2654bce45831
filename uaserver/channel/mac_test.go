package channel

import (
	"bytes"
	"crypto/hmac"
	"testing"
)

// TestMAC holds it against crypto/hmac, whatever was computed before with the same digest.
func TestMAC(t *testing.T) {
	for i, size := range []int{1, 16, 32, 64, 16, 24} {
		kind := hmacSHA256
		if i > 3 {
			kind = hmacSHA1
		}
		key := bytes.Repeat([]byte{0xA5}, size)
		m, err := newMAC(kind, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 63, 64, 65, 1000, 70_000} {
			message := bytes.Repeat([]byte("x"), n)
			h := hmac.New(kind.hash, key)
			h.Write(message)
			want := h.Sum([]byte("before"))
			if got := m.appendSum([]byte("before"), message); !bytes.Equal(got, want) {
				t.Errorf("key of %d bytes, message of %d: %x, want %x", size, n, got, want)
			}
			sum := want[len("before"):]
			if !m.verify(message, sum) {
				t.Errorf("key of %d bytes, message of %d: not verified", size, n)
			}
			sum[kind.size-1] ^= 1
			if m.verify(message, sum) || m.verify(message, sum[:kind.size-1]) || m.verify(message, nil) {
				t.Errorf("key of %d bytes, message of %d: a wrong code was taken", size, n)
			}
		}
	}
}
