package channel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"encoding/binary"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Sizes that all policies have: AES-CBC encrypts (Part 7).
const (
	blockSize = aes.BlockSize

	secureFrom = 16 // where the encrypted part of a symmetric chunk begins: behind message and security header
	seqSize    = 8
)

// token is one SecurityToken with its keys. What it holds for receiving belongs to the read goroutine, what it holds for
// sending to the holder of output.mu.
type token struct {
	id      uint32
	created time.Time
	life    time.Duration
	recv    keys
	send    keys
}

// expired reports whether messages secured with t are no longer taken: a quarter of its lifetime after its end, which
// Part 6, 6.7.3 grants to messages on their way.
func (t *token) expired(now time.Time) bool { return now.After(t.end()) }

func (t *token) end() time.Time { return t.created.Add(t.life + t.life/4) }

// cbc is a CBC mode whose initialization vector can be set again. Every chunk begins with the token's (Part 6, 6.7.5).
type cbc interface {
	cipher.BlockMode
	SetIV([]byte)
}

// keys secure one direction of one token. They are made once and used for every chunk.
type keys struct {
	mac mac
	cbc cbc // nil in mode Sign
	iv  [blockSize]byte
}

// derive sets the keys of one direction (Part 6, 6.7.5): secret is the receiver's nonce, seed the sender's.
func (k *keys) derive(p *policy, secret, seed []byte, mode ua.MessageSecurityMode, newMode func(cipher.Block, []byte) cipher.BlockMode) error {
	stream := p.mac.derive(secret, seed, p.macKey+p.cbcKey+blockSize)
	var err error
	if k.mac, err = newMAC(p.mac, stream[:p.macKey]); err != nil {
		return err
	}
	if mode != ua.MessageSecurityModeSignAndEncrypt {
		return nil
	}
	copy(k.iv[:], stream[p.macKey+p.cbcKey:])
	block, err := aes.NewCipher(stream[p.macKey : p.macKey+p.cbcKey])
	if err != nil {
		return err
	}
	k.cbc = newMode(block, k.iv[:]).(cbc)
	return nil
}

// derive is P_hash of RFC 5246, 5 with the HMAC of a policy.
func (k *macKind) derive(secret, seed []byte, n int) []byte {
	mac := hmac.New(k.hash, secret)
	mac.Write(seed)
	a := mac.Sum(nil)
	var out []byte
	for len(out) < n {
		mac.Reset()
		mac.Write(a)
		mac.Write(seed)
		out = mac.Sum(out)
		mac.Reset()
		mac.Write(a)
		a = mac.Sum(a[:0])
	}
	return out[:n]
}

// bodySize is how much of a message fits into a chunk of at most limit bytes.
func (p *policy) bodySize(limit int, mode ua.MessageSecurityMode) int {
	switch mode {
	case ua.MessageSecurityModeSign:
		return limit - headerSize - p.mac.size
	case ua.MessageSecurityModeSignAndEncrypt:
		return (limit-secureFrom)/blockSize*blockSize - seqSize - p.mac.size - 1
	}
	return limit - headerSize
}

// sealedSize is the size of a chunk with n bytes of a message.
func (p *policy) sealedSize(n int, mode ua.MessageSecurityMode) int {
	switch mode {
	case ua.MessageSecurityModeSign:
		return headerSize + n + p.mac.size
	case ua.MessageSecurityModeSignAndEncrypt:
		return secureFrom + (seqSize+n+1+p.mac.size+blockSize-1)/blockSize*blockSize
	}
	return headerSize + n
}

// seal secures a chunk in place: b has the chunk's final size, with headers and n bytes of body set.
func (k *keys) seal(b []byte, n int, mode ua.MessageSecurityMode) {
	if mode == ua.MessageSecurityModeNone {
		return
	}
	signed := len(b) - k.mac.kind.size
	if mode == ua.MessageSecurityModeSignAndEncrypt {
		// PaddingSize counts the padding behind it; with keys of this size there is no ExtraPaddingSize (Part 6, 6.7.2.5).
		pad := byte(signed - headerSize - n - 1)
		for i := headerSize + n; i < signed; i++ {
			b[i] = pad
		}
	}
	k.mac.appendSum(b[:signed], b[:signed])
	if mode == ua.MessageSecurityModeSignAndEncrypt {
		k.cbc.SetIV(k.iv[:])
		k.cbc.CryptBlocks(b[secureFrom:], b[secureFrom:])
	}
}

// open checks and decrypts a chunk in place and returns what lies between security header and padding: the sequence
// header and the body. Whatever is wrong is reported alike, so that a peer learns nothing from the answer; padding is
// looked at only when the signature over it was right.
func (k *keys) open(b []byte, mode ua.MessageSecurityMode) ([]byte, bool) {
	if mode == ua.MessageSecurityModeNone {
		return b[secureFrom:], len(b) >= headerSize
	}
	if len(b) < headerSize+k.mac.kind.size {
		return nil, false
	}
	if mode == ua.MessageSecurityModeSignAndEncrypt {
		if (len(b)-secureFrom)%blockSize != 0 {
			return nil, false
		}
		k.cbc.SetIV(k.iv[:])
		k.cbc.CryptBlocks(b[secureFrom:], b[secureFrom:])
	}
	signed := len(b) - k.mac.kind.size
	if !k.mac.verify(b[:signed], b[signed:]) {
		return nil, false
	}
	if mode == ua.MessageSecurityModeSignAndEncrypt {
		return unpad(b[secureFrom:signed], 1)
	}
	return b[secureFrom:signed], true
}

// unpad cuts off padding and its size, whose width is 1 or, with ExtraPaddingSize, 2 bytes (Part 6, 6.7.2.5). What is left
// holds at least a sequence header.
func unpad(b []byte, width int) ([]byte, bool) {
	if len(b) < seqSize+width {
		return nil, false
	}
	pad := int(b[len(b)-1])
	if width == 2 {
		pad = pad<<8 | int(b[len(b)-2])
	}
	low := byte(pad)
	end := len(b) - width - pad
	if end < seqSize {
		return nil, false
	}
	for _, p := range b[end : len(b)-width+1] {
		if p != low {
			return nil, false
		}
	}
	return b[:end], true
}

// putHeader writes message header, channel id, token id and sequence header of a chunk.
func putHeader(b []byte, kind string, channel, token, seq, request uint32) {
	copy(b, kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[8:], channel)
	binary.LittleEndian.PutUint32(b[12:], token)
	binary.LittleEndian.PutUint32(b[16:], seq)
	binary.LittleEndian.PutUint32(b[20:], request)
}
