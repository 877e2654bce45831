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
	frame   []byte           // what a state of the hash behind one block is encoded as; what is the key's own in it is at stateAt
	digests sync.Pool
}

// stateAt is where the encoded states of SHA-1 and SHA-256 have the chaining value, which has the size of a code. What is
// around it is the same behind any one block: a mark, a block that is empty, the length.
const stateAt = 4

const macBlock = 64

var (
	hmacSHA256 = newMACKind(sha256.New)
	hmacSHA1   = newMACKind(sha1.New) // of the deprecated policies
)

func newMACKind(hash func() hash.Hash) *macKind {
	k := &macKind{hash: hash, size: hash().Size(), digests: sync.Pool{New: func() any {
		h := hash()
		return &digest{Hash: h, state: h.(encoding.BinaryUnmarshaler)}
	}}}
	k.frame = k.after(0)
	other := k.after(1)
	copy(other[stateAt:], k.frame[stateAt:][:k.size])
	if !bytes.Equal(k.frame, other) {
		panic("channel: states of a hash are encoded in another way than before") // in a version of Go that no test has seen
	}
	return k
}

// after is the state of the hash behind one block of a byte.
func (k *macKind) after(b byte) []byte {
	h := k.hash()
	h.Write(bytes.Repeat([]byte{b}, macBlock))
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("channel: state of a hash: %v", err))
	}
	return state
}

// mac is HMAC under one key: the chaining values of the hash behind the key's inner and outer block. crypto/hmac keeps its
// two hashes as well, which makes 580 bytes: too dear for a key that is idle most of its life.
type mac struct {
	kind         *macKind
	inner, outer [sha256.Size]byte // as many bytes as a code has
}

// digest is what a computation needs beside the key.
type digest struct {
	hash.Hash
	state   encoding.BinaryUnmarshaler // of the Hash
	encoded []byte
	sum     [sha256.Size]byte // the longest
}

// newMAC returns the mac of a key of at most one block of the hash.
func newMAC(kind *macKind, key []byte) (mac, error) {
	m := mac{kind: kind}
	for pad, to := range map[byte]*[sha256.Size]byte{0x36: &m.inner, 0x5c: &m.outer} {
		var block [macBlock]byte
		copy(block[:], key)
		for i := range block {
			block[i] ^= pad
		}
		h := kind.hash()
		h.Write(block[:])
		state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			return mac{}, err
		}
		copy(to[:kind.size], state[stateAt:])
	}
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
	d.restore(m.kind, &m.inner)
	d.Write(message)
	inner := d.Sum(d.sum[:0])
	d.restore(m.kind, &m.outer)
	d.Write(inner)
	return d.Sum(d.sum[:0])
}

// restore cannot fail: the state has the form of one that was made by the same kind of hash in the same process.
func (d *digest) restore(kind *macKind, value *[sha256.Size]byte) {
	if d.encoded == nil {
		d.encoded = bytes.Clone(kind.frame)
	}
	copy(d.encoded[stateAt:], value[:kind.size])
	if err := d.state.UnmarshalBinary(d.encoded); err != nil {
		panic(fmt.Sprintf("channel: state of a hash: %v", err))
	}
}
