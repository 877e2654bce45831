package session

import (
	"crypto/subtle"
	"encoding/binary"
)

// PasswordOf takes the password out of a decrypted secret (Part 4, 7.40.2.2): a length of what follows, the password and
// the server nonce that the client was last given. What follows beyond the length is padding of old clients. It reports
// false when the length does not fit or the nonce is another one: an old secret that somebody sends again.
func PasswordOf(secret, nonce []byte) (password []byte, ok bool) {
	if len(secret) < 4 || len(nonce) == 0 {
		return nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(secret))
	rest := secret[4:]
	if n > uint64(len(rest)) || n < uint64(len(nonce)) {
		return nil, false
	}
	password, got := rest[:n-uint64(len(nonce))], rest[n-uint64(len(nonce)):n]
	if subtle.ConstantTimeCompare(got, nonce) != 1 {
		return nil, false
	}
	return password, true
}
