package uatest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
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

var keys struct {
	mu   sync.Mutex // guards made
	made map[[2]int]*rsa.PrivateKey
}

// Key returns an RSA key. Making one takes long, so the same bits and number give the same key in a process.
func Key(tb testing.TB, bits, number int) *rsa.PrivateKey {
	tb.Helper()
	keys.mu.Lock()
	defer keys.mu.Unlock()
	k := [2]int{bits, number}
	if key := keys.made[k]; key != nil {
		return key
	}
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}
	if keys.made == nil {
		keys.made = map[[2]int]*rsa.PrivateKey{}
	}
	keys.made[k] = key
	return key
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
