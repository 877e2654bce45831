package channel

import "errors"

// maxSecretBlocks bounds the RSA blocks of a secret, each of which costs a private key operation: a password and a nonce
// need one, in old clients two.
const maxSecretBlocks = 4

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
	err = c.s.private(func() error {
		plain, err = a.openSecret(secret)
		return err
	})
	if err != nil {
		return nil, errSecret
	}
	return plain, nil
}

// Ended reports whether the channel is about to end, or has ended: Closed of the Handler was called or will be.
func (c *Channel) Ended() bool { return c.closing.Load() }
