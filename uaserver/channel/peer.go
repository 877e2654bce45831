package channel

import (
	"crypto/cipher"
	"fmt"

	"github.com/gopcua/opcua/ua"
)

// HeaderSize is what a symmetric chunk begins with, in bytes: message header, channel id, token id, sequence header
// (Part 6, 6.7.2). The message's part follows it.
const HeaderSize = headerSize

// strong is any of the policies that PeerKeys know: they differ in keys, not in sizes.
var strong = policies[ua.SecurityPolicyURIBasic256Sha256]

// ChunkSize is the size of a symmetric chunk that carries n bytes of a message under any of the policies but the
// deprecated ones.
func ChunkSize(n int, mode ua.MessageSecurityMode) int { return strong.sealedSize(n, mode) }

// ChunkBody is how many bytes of a message fit into a symmetric chunk of at most limit bytes, likewise.
func ChunkBody(limit int, mode ua.MessageSecurityMode) int { return strong.bodySize(limit, mode) }

// PutHeader writes the HeaderSize bytes that chunk b begins with, and its size, which is len(b); kind is MSGF, MSGC or
// CLOF.
func PutHeader(b []byte, kind string, channel, token, seq, request uint32) {
	putHeader(b, kind, channel, token, seq, request)
}

// PeerKeys are the keys of one token at the client's end. Nothing is allocated when they are used.
// One goroutine may seal while another opens.
type PeerKeys struct {
	mode       ua.MessageSecurityMode
	send, recv keys
}

// NewPeerKeys derives a token's keys under a policy from the nonces of both ends (Part 6, 6.7.5).
func NewPeerKeys(uri string, client, server []byte, mode ua.MessageSecurityMode) (*PeerKeys, error) {
	p := policies[uri]
	if p == nil || p.nonce == 0 || p.mac != strong.mac {
		return nil, fmt.Errorf("channel: policy %q is not one of the client's end", uri)
	}
	k := &PeerKeys{mode: mode}
	if err := k.send.derive(p, server, client, mode, cipher.NewCBCEncrypter); err != nil {
		return nil, err
	}
	return k, k.recv.derive(p, client, server, mode, cipher.NewCBCDecrypter)
}

// Seal pads, signs and encrypts a chunk in place: b has ChunkSize bytes, its header and n bytes of a message are set.
func (k *PeerKeys) Seal(b []byte, n int) { k.send.seal(b, n, k.mode) }

// Open checks and decrypts a chunk in place and returns its sequence header and its part of the message; false: it is not
// the server's.
func (k *PeerKeys) Open(b []byte) ([]byte, bool) { return k.recv.open(b, k.mode) }
