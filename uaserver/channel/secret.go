package channel

import (
	"crypto"
	"crypto/rsa"
	_ "crypto/sha1" // of RSA-OAEP
	_ "crypto/sha256"
	"errors"

	"github.com/gopcua/opcua/ua"
)

// maxSecretBlocks bounds the RSA blocks of a secret, each of which costs a private key operation: a password and a nonce
// need one, in old clients two.
const maxSecretBlocks = 4

// secretCipher is how secrets are encrypted with a policy (Part 7, asymmetric encryption).
type secretCipher struct {
	oaep      crypto.Hash // also of its mask generation
	algorithm string      // its URI in a token
}

var secretCiphers = map[string]secretCipher{
	ua.SecurityPolicyURIBasic256Sha256:      {crypto.SHA1, "http://www.w3.org/2001/04/xmlenc#rsa-oaep"},
	ua.SecurityPolicyURIAes128Sha256RsaOaep: {crypto.SHA1, "http://www.w3.org/2001/04/xmlenc#rsa-oaep"},
	ua.SecurityPolicyURIAes256Sha256RsaPss:  {crypto.SHA256, "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256"},
}

// errSecret does not say why: what differs would help whoever tries secrets out.
var errSecret = errors.New("channel: the secret cannot be decrypted with this server's key")

// SecretAlgorithm is the URI of the algorithm that encrypts secrets with a policy, or "" where none does.
func SecretAlgorithm(policyURI string) string { return secretCiphers[policyURI].algorithm }

// Decrypt decrypts the secret of a user token (Part 4, 7.40.2.2) that was encrypted with a policy, which need not be the
// channel's, for the gateway's certificate. It waits for a place among the private key operations.
func (c *Channel) Decrypt(policyURI string, secret []byte) (plain []byte, err error) {
	cipher, ok := secretCiphers[policyURI]
	if !ok || c.s.cfg.Certificate == nil {
		return nil, errSecret
	}
	key := c.s.cfg.Certificate.Key()
	size := key.Size()
	if n := len(secret); n == 0 || n%size != 0 || n > maxSecretBlocks*size {
		return nil, errSecret
	}
	err = c.s.private(func() error {
		for ; len(secret) > 0; secret = secret[size:] {
			block, err := rsa.DecryptOAEP(cipher.oaep.New(), nil, key, secret[:size], nil)
			if err != nil {
				return err
			}
			plain = append(plain, block...)
		}
		return nil
	})
	if err != nil {
		return nil, errSecret
	}
	return plain, nil
}

// Ended reports whether the channel is about to end, or has ended: Closed of the Handler was called or will be.
func (c *Channel) Ended() bool { return c.closing.Load() }
