package channel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"errors"

	"github.com/gopcua/opcua/id"

	"edged/uaserver/wire"
)

const (
	// maxSecretBlocks bounds the RSA blocks of a secret, each of which costs a private key operation: a password and a nonce
	// need one, in old clients two.
	maxSecretBlocks = 4
	// maxSecret bounds the rest of an EncryptedSecret in bytes.
	maxSecret = 8192
)

// errSecret does not say why: what differs would help whoever tries secrets out.
var errSecret = errors.New("channel: the secret cannot be decrypted with this server's key")

// SecretAlgorithm is the URI of the algorithm that encrypts secrets with a policy, or "" where none does.
func SecretAlgorithm(policyURI string) string {
	if p := policies[policyURI]; p != nil {
		return p.encryption
	}
	return ""
}

// Decrypt decrypts the secret of a user token (Part 4, 7.40.2.2) that was encrypted with a policy, which need not be the
// channel's, for the gateway's certificate. It waits for a place among the private key operations.
func (c *Channel) Decrypt(policyURI string, secret []byte) (plain []byte, err error) {
	p := policies[policyURI]
	if p == nil || p.nonce == 0 || c.own == nil {
		return nil, errSecret
	}
	a := asymmetric{policy: p, own: c.own.Key()}
	size := a.own.Size()
	if n := len(secret); n == 0 || n%size != 0 || n > maxSecretBlocks*size {
		return nil, errSecret
	}
	err = c.private(func() error {
		plain, err = a.openSecret(secret)
		return err
	})
	if err != nil {
		return nil, errSecret
	}
	return plain, nil
}

var rsaEncryptedSecret = wire.NumericID(0, id.RsaEncryptedSecret)

// IsEncryptedSecret reports whether a secret has the form of an RsaEncryptedSecret (Part 4, 7.40.2.3): it begins with the
// id of that type.
func IsEncryptedSecret(secret []byte) bool {
	r := wire.NewReader(secret)
	return r.NodeID() == rsaEncryptedSecret && r.Err() == nil
}

// DecryptSecret takes an RsaEncryptedSecret apart (Part 4, 7.40.2.3 and 7.40.2.4), which has to be of a policy, and for the
// gateway's certificate. The nonce is for the caller to compare.
func (c *Channel) DecryptSecret(policyURI string, b []byte) (secret, nonce []byte, err error) {
	p := policies[policyURI]
	if p == nil || p.nonce == 0 || c.own == nil || len(b) > maxSecret+maxSecretBlocks*c.own.Key().Size() {
		return nil, nil, errSecret
	}
	r := wire.NewReader(b)
	kind, mask, length := r.NodeID(), r.Uint8(), r.Uint32()
	fits := uint64(length) == uint64(len(b)-r.Offset())
	uri, print := r.ByteString(), r.ByteString()
	r.Time() // when it was signed: the nonce tells more
	size := int(r.Uint16())
	own := c.own.Thumbprint()
	if r.Err() != nil || kind != rsaEncryptedSecret || mask != 1 || !fits || string(uri) != policyURI || string(print) != string(own[:]) {
		return nil, nil, errSecret
	}
	from, to := r.Offset()+size, len(b)-p.mac.size
	if from > to || (to-from)%blockSize != 0 || to == from {
		return nil, nil, errSecret
	}
	keyData, err := c.Decrypt(policyURI, b[r.Offset():from])
	if err != nil {
		return nil, nil, err
	}
	return p.openPayload(keyData, b[:to], b[from:to], b[to:])
}

// openPayload checks the signature over what is signed by the keys in keyData, and then decrypts the payload.
func (p *policy) openPayload(keyData, signed, payload, signature []byte) (secret, nonce []byte, err error) {
	k := wire.NewReader(keyData)
	signing, encrypting, iv := k.ByteString(), k.ByteString(), k.ByteString()
	if k.Err() != nil || len(signing) != p.macKey || len(encrypting) != p.cbcKey || len(iv) != blockSize {
		return nil, nil, errSecret
	}
	mac := hmac.New(p.mac.hash, signing)
	mac.Write(signed)
	if !hmac.Equal(mac.Sum(nil), signature) {
		return nil, nil, errSecret
	}
	block, err := aes.NewCipher(encrypting)
	if err != nil {
		return nil, nil, errSecret
	}
	plain := make([]byte, len(payload))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, payload)
	r := wire.NewReader(plain)
	nonce, secret = r.ByteString(), r.ByteString()
	padding := len(plain) - r.Offset() - 2
	if r.Err() != nil || padding < 0 {
		return nil, nil, errSecret
	}
	for _, b := range plain[r.Offset() : len(plain)-2] {
		if b != byte(padding) {
			return nil, nil, errSecret
		}
	}
	if tail := plain[len(plain)-2:]; int(tail[0])|int(tail[1])<<8 != padding {
		return nil, nil, errSecret
	}
	return secret, nonce, nil
}

// Ended reports whether the channel is about to end, or has ended: Closed of the Handler was called or will be.
func (c *Channel) Ended() bool { return c.closing.Load() }
