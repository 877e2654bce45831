package channel

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"fmt"
	"hash"
	"sync"
)

// macKind is HMAC (RFC 2104) with one hash.
type macKind struct {
	hash    func() hash.Hash // with blocks of macBlock bytes
	size    int              // bytes of a code
	digests sync.Pool
}

const macBlock = 64

var (
	hmacSHA256 = newMACKind(sha256.New)
	hmacSHA1   = newMACKind(sha1.New) // of the deprecated policies
)

func newMACKind(hash func() hash.Hash) *macKind {
	return &macKind{hash: hash, size: hash().Size(), digests: sync.Pool{New: func() any {
		h := hash()
		return &digest{Hash: h, state: h.(encoding.BinaryUnmarshaler)}
	}}}
}

// mac is HMAC under one key: the states of the hash behind the key's inner and outer block, 216 bytes with SHA-256.
// crypto/hmac keeps its two hashes as well, which makes 580: too dear for a key that is idle most of its life.
type mac struct {
	kind   *macKind
	states []byte // the inner one, then the outer one, both of the same size
}

// digest is what a computation needs beside the key.
type digest struct {
	hash.Hash
	state encoding.BinaryUnmarshaler // of the Hash
	sum   [sha256.Size]byte          // the longest
}

// newMAC returns the mac of a key of at most one block of the hash.
func newMAC(kind *macKind, key []byte) (mac, error) {
	m := mac{kind: kind}
	for _, pad := range []byte{0x36, 0x5c} {
		var block [macBlock]byte
		copy(block[:], key)
		for i := range block {
			block[i] ^= pad
		}
		h := kind.hash()
		h.Write(block[:])
		var err error
		if m.states, err = h.(encoding.BinaryAppender).AppendBinary(m.states); err != nil {
			return mac{}, err
		}
	}
	m.states = bytes.Clone(m.states) // without room to grow
	return m, nil
}

// appendSum appends the code of message.
func (m *mac) appendSum(dst, message []byte) []byte {
	d := m.kind.digests.Get().(*digest)
	defer m.kind.digests.Put(d)
	return append(dst, d.compute(m, message)...)
}

// verify reports, in constant time, whether sum is the code of message.
func (m *mac) verify(message, sum []byte) bool {
	d := m.kind.digests.Get().(*digest)
	defer m.kind.digests.Put(d)
	return subtle.ConstantTimeCompare(d.compute(m, message), sum) == 1
}

// compute returns the code of message, which is good until the next one.
func (d *digest) compute(m *mac, message []byte) []byte {
	half := len(m.states) / 2
	d.restore(m.states[:half])
	d.Write(message)
	inner := d.Sum(d.sum[:0])
	d.restore(m.states[half:])
	d.Write(inner)
	return d.Sum(d.sum[:0])
}

// restore cannot fail: the state was made by the same kind of hash in the same process.
func (d *digest) restore(state []byte) {
	if err := d.state.UnmarshalBinary(state); err != nil {
		panic(fmt.Sprintf("channel: state of a hash: %v", err))
	}
}
