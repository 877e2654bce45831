package uatest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Identity is a certificate with its key.
type Identity struct {
	DER  []byte
	Cert *x509.Certificate
	Key  *rsa.PrivateKey
}

// keyFile holds RSA keys for tests alone. Making them at each run would take longer than all tests.
//
//go:embed keys.pem
var keyFile []byte

var keys = sync.OnceValue(func() []*rsa.PrivateKey {
	var all []*rsa.PrivateKey
	for rest := keyFile; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			panic(err)
		}
		all = append(all, key)
	}
})

// Key returns one of the RSA keys with so many bits: of 2048 there are three, of 3072 two, and of 1024 one, which no
// policy allows.
func Key(tb testing.TB, bits, number int) *rsa.PrivateKey {
	tb.Helper()
	for _, key := range keys() {
		if key.N.BitLen() == bits {
			if number == 0 {
				return key
			}
			number--
		}
	}
	tb.Fatalf("no such RSA key of %d bits", bits)
	return nil
}

// NewIdentity makes a self-signed certificate for key, or one signed by issuer. change, if not nil, alters the template.
func NewIdentity(tb testing.TB, key *rsa.PrivateKey, issuer *Identity, change func(*x509.Certificate)) *Identity {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "test client " + serial.String()},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageDataEncipherment | x509.KeyUsageKeyEncipherment | x509.KeyUsageContentCommitment,
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{{Scheme: "urn", Opaque: "test:client"}},
	}
	if change != nil {
		change(t)
	}
	parent, signer := t, key
	if issuer != nil {
		parent, signer = issuer.Cert, issuer.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &Identity{DER: der, Cert: cert, Key: key}
}

// ClientIdentity returns the identity that tests use when none in particular is needed.
func ClientIdentity(tb testing.TB) *Identity {
	tb.Helper()
	return NewIdentity(tb, Key(tb, 2048, 1), nil, nil)
}
