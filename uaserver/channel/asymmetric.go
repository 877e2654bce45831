package channel

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // of RSA-OAEP
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/gopcua/opcua/ua"
)

// policy is a security policy that the package knows (Part 7, SecurityPolicy facet). All of them sign messages with
// HMAC-SHA2-256, derive keys with P_SHA2-256, and take RSA keys of 2048 to 4096 bits, which package pki checks.
type policy struct {
	uri        string
	nonce      int         // bytes of the nonces; 0: no keys
	cbcKey     int         // bytes of the AES key
	oaep       crypto.Hash // of RSA-OAEP, and of its mask generation
	encryption string      // URI of it
	pss        bool        // RSASSA-PSS signs, otherwise RSASSA-PKCS1-v1_5, both with SHA2-256
	signature  string      // URI of it
}

var policies = policyTable(
	policy{uri: ua.SecurityPolicyURINone},
	policy{
		uri: ua.SecurityPolicyURIBasic256Sha256, nonce: 32, cbcKey: 32,
		oaep: crypto.SHA1, encryption: "http://www.w3.org/2001/04/xmlenc#rsa-oaep",
		signature: "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
	},
	policy{
		uri: ua.SecurityPolicyURIAes128Sha256RsaOaep, nonce: 32, cbcKey: 16,
		oaep: crypto.SHA1, encryption: "http://www.w3.org/2001/04/xmlenc#rsa-oaep",
		signature: "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
	},
	policy{
		uri: ua.SecurityPolicyURIAes256Sha256RsaPss, nonce: 32, cbcKey: 32,
		oaep: crypto.SHA256, encryption: "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256",
		pss: true, signature: "http://opcfoundation.org/UA/security/rsa-pss-sha2-256",
	},
)

func policyTable(all ...policy) map[string]*policy {
	table := make(map[string]*policy, len(all))
	for i := range all {
		table[all[i].uri] = &all[i]
	}
	return table
}

// asymmetric secures OpenSecureChannel messages, and signs for sessions, with the keys of both ends. gopcua's uapolicy
// reckons 130 bytes of a block for OAEP with SHA2-256 where RFC 8017, 7.1.1 has 66, so its blocks are not those of Part 6,
// 6.7.2.5.
type asymmetric struct {
	*policy
	own  *rsa.PrivateKey // the gateway's
	peer *rsa.PublicKey  // the client's
}

var errNotRSA = errors.New("channel: the client's key is not RSA")

// plainBlock is how many bytes of plain text one block carries to the client (RFC 8017, 7.1.1).
func (a *asymmetric) plainBlock() int { return a.peer.Size() - 2*a.oaep.Size() - 2 }

// sign signs with the gateway's key. The salt of PSS is as long as the hash (Part 7, RSA-PSS-SHA2-256).
func (a *asymmetric) sign(message []byte) ([]byte, error) {
	sum := sha256.Sum256(message)
	if a.pss {
		return rsa.SignPSS(rand.Reader, a.own, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	}
	return rsa.SignPKCS1v15(rand.Reader, a.own, crypto.SHA256, sum[:])
}

// verify checks a signature by the client's key. PSS with a salt of another length is taken: it is as hard to forge, and
// libraries choose the longest one by default.
func (a *asymmetric) verify(message, signature []byte) error {
	sum := sha256.Sum256(message)
	return guard(func() error {
		if a.pss {
			return rsa.VerifyPSS(a.peer, crypto.SHA256, sum[:], signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto})
		}
		return rsa.VerifyPKCS1v15(a.peer, crypto.SHA256, sum[:], signature)
	})
}

// appendSealed appends plain, which fills blocks, encrypted for the client.
func (a *asymmetric) appendSealed(dst, plain []byte) ([]byte, error) {
	err := guard(func() error {
		for block := range slices.Chunk(plain, a.plainBlock()) {
			sealed, err := rsa.EncryptOAEP(a.oaep.New(), rand.Reader, a.peer, block, nil)
			if err != nil {
				return err
			}
			dst = append(dst, sealed...)
		}
		return nil
	})
	return dst, err
}

// open decrypts blocks with the gateway's key.
func (a *asymmetric) open(sealed []byte) ([]byte, error) {
	plain := make([]byte, 0, len(sealed))
	for block := range slices.Chunk(sealed, a.own.Size()) {
		b, err := rsa.DecryptOAEP(a.oaep.New(), nil, a.own, block, nil)
		if err != nil {
			return nil, err
		}
		plain = append(plain, b...)
	}
	return plain, nil
}

// guard runs f and turns a panic into an error: crypto/rsa works on a peer's key and ciphertext here, and no peer may end
// the process.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
