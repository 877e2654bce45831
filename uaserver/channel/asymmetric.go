package channel

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // of RSA-OAEP, and of the deprecated policies' signatures
	_ "crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
)

// policy is a security policy that the package knows (Part 7, SecurityPolicy facet).
type policy struct {
	uri        string
	nonce      int         // bytes of the nonces; 0: no keys
	mac        *macKind    // signs messages, and derives keys
	macKey     int         // bytes of the key that signs
	cbcKey     int         // bytes of the AES key
	oaep       crypto.Hash // of RSA-OAEP, and of its mask generation; 0: RSAES-PKCS1-v1_5
	encryption string      // URI of it
	hash       crypto.Hash // of RSA signatures
	pss        bool        // RSASSA-PSS signs, otherwise RSASSA-PKCS1-v1_5
	signature  string      // URI of it
	strength   pki.Strength
}

// Algorithms that several policies have.
const (
	rsaOAEP   = "http://www.w3.org/2001/04/xmlenc#rsa-oaep"
	rsaSHA1   = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"
	rsaSHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
)

var policies = policyTable(
	policy{uri: ua.SecurityPolicyURINone},
	policy{
		uri: ua.SecurityPolicyURIBasic128Rsa15, nonce: 16, mac: hmacSHA1, macKey: 16, cbcKey: 16,
		encryption: "http://www.w3.org/2001/04/xmlenc#rsa-1_5", hash: crypto.SHA1, signature: rsaSHA1, strength: pki.Deprecated,
	},
	policy{
		uri: ua.SecurityPolicyURIBasic256, nonce: 32, mac: hmacSHA1, macKey: 24, cbcKey: 32,
		oaep: crypto.SHA1, encryption: rsaOAEP, hash: crypto.SHA1, signature: rsaSHA1, strength: pki.Deprecated,
	},
	policy{
		uri: ua.SecurityPolicyURIBasic256Sha256, nonce: 32, mac: hmacSHA256, macKey: 32, cbcKey: 32,
		oaep: crypto.SHA1, encryption: rsaOAEP, hash: crypto.SHA256, signature: rsaSHA256, strength: pki.Strong,
	},
	policy{
		uri: ua.SecurityPolicyURIAes128Sha256RsaOaep, nonce: 32, mac: hmacSHA256, macKey: 32, cbcKey: 16,
		oaep: crypto.SHA1, encryption: rsaOAEP, hash: crypto.SHA256, signature: rsaSHA256, strength: pki.Strong,
	},
	policy{
		uri: ua.SecurityPolicyURIAes256Sha256RsaPss, nonce: 32, mac: hmacSHA256, macKey: 32, cbcKey: 32,
		oaep: crypto.SHA256, encryption: "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256",
		hash: crypto.SHA256, pss: true, signature: "http://opcfoundation.org/UA/security/rsa-pss-sha2-256", strength: pki.Strong,
	},
)

// Deprecated reports whether a policy should be offered no more (Part 7): it stands on SHA-1.
func Deprecated(policyURI string) bool {
	p := policies[policyURI]
	return p != nil && p.mac == hmacSHA1
}

// StrengthOf is what a policy asks of certificates; zero for None and for what is no policy.
func StrengthOf(policyURI string) pki.Strength {
	if p := policies[policyURI]; p != nil {
		return p.strength
	}
	return pki.Strength{}
}

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

// minPKCS1 is the least that RSAES-PKCS1-v1_5 adds to a block, in bytes (RFC 8017, 7.2.1).
const minPKCS1 = 11

// plainBlock is how many bytes of plain text one block carries to the client (RFC 8017, 7.1.1 and 7.2.1).
func (a *asymmetric) plainBlock() int { return a.plainOf(a.peer.Size()) }

func (p *policy) plainOf(key int) int {
	if p.oaep == 0 {
		return key - minPKCS1
	}
	return key - 2*p.oaep.Size() - 2
}

// sum is the hash of a message that is signed.
func (p *policy) sum(message []byte) []byte {
	h := p.hash.New()
	h.Write(message)
	return h.Sum(nil)
}

// sign signs with the gateway's key. The salt of PSS is as long as the hash (Part 7, RSA-PSS-SHA2-256).
func (a *asymmetric) sign(message []byte) ([]byte, error) {
	if a.pss {
		return rsa.SignPSS(rand.Reader, a.own, a.hash, a.sum(message), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	}
	return rsa.SignPKCS1v15(rand.Reader, a.own, a.hash, a.sum(message))
}

// verify checks a signature by the client's key. PSS with a salt of another length is taken: it is as hard to forge, and
// libraries choose the longest one by default.
func (a *asymmetric) verify(message, signature []byte) error {
	return guard(func() error {
		if a.pss {
			return rsa.VerifyPSS(a.peer, a.hash, a.sum(message), signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto})
		}
		return rsa.VerifyPKCS1v15(a.peer, a.hash, a.sum(message), signature)
	})
}

// appendSealed appends plain, which fills blocks, encrypted for the client.
func (a *asymmetric) appendSealed(dst, plain []byte) ([]byte, error) {
	err := guard(func() error {
		for block := range slices.Chunk(plain, a.plainBlock()) {
			sealed, err := a.sealBlock(block)
			if err != nil {
				return err
			}
			dst = append(dst, sealed...)
		}
		return nil
	})
	return dst, err
}

func (a *asymmetric) sealBlock(block []byte) ([]byte, error) {
	if a.oaep == 0 {
		//lint:ignore SA1019 it is what Basic128Rsa15 is, which is off unless somebody names it
		return rsa.EncryptPKCS1v15(rand.Reader, a.peer, block)
	}
	return rsa.EncryptOAEP(a.oaep.New(), rand.Reader, a.peer, block, nil)
}

// open decrypts the full blocks of a message with the gateway's key. A block of RSAES-PKCS1-v1_5 with a padding that is
// wrong becomes random bytes in the same time: only the signature inside tells right from wrong, so that nobody learns
// anything about a padding (RFC 8017, 7.2.2; RFC 3218).
func (a *asymmetric) open(sealed []byte) ([]byte, error) {
	return a.openBlocks(sealed, func(block []byte) ([]byte, error) {
		plain := make([]byte, a.plainOf(a.own.Size()))
		rand.Read(plain)
		//lint:ignore SA1019 it is what Basic128Rsa15 is, which is off unless somebody names it
		return plain, rsa.DecryptPKCS1v15SessionKey(nil, a.own, block, plain)
	})
}

// openSecret decrypts a secret, whose last block need not be full, with the gateway's key. Of RSAES-PKCS1-v1_5 a padding
// that is wrong becomes random bytes here too, in which there is no nonce of a session.
func (a *asymmetric) openSecret(sealed []byte) ([]byte, error) {
	return a.openBlocks(sealed, func(block []byte) ([]byte, error) {
		instead := make([]byte, a.plainOf(a.own.Size()))
		rand.Read(instead)
		//lint:ignore SA1019 it is what Basic128Rsa15 is, which is off unless somebody names it
		if plain, err := rsa.DecryptPKCS1v15(nil, a.own, block); err == nil {
			return plain, nil
		}
		return instead, nil
	})
}

// openBlocks decrypts block after block; pkcs1 opens one of RSAES-PKCS1-v1_5.
func (a *asymmetric) openBlocks(sealed []byte, pkcs1 func([]byte) ([]byte, error)) ([]byte, error) {
	plain := make([]byte, 0, len(sealed))
	for block := range slices.Chunk(sealed, a.own.Size()) {
		var b []byte
		var err error
		if a.oaep == 0 {
			b, err = pkcs1(block)
		} else {
			b, err = rsa.DecryptOAEP(a.oaep.New(), nil, a.own, block, nil)
		}
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
