// Package pki holds the gateway's own certificate and decides which clients' certificates it trusts (OPC UA Part 4, 6.1.3).
// It hides the files behind that: the key, the trusted and the rejected certificates.
package pki

import (
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Thumbprint is the SHA-1 of a certificate's DER form, by which OPC UA names it (Part 6, 6.7.2.3).
type Thumbprint [sha1.Size]byte

// ThumbprintOf returns the thumbprint of one DER certificate.
func ThumbprintOf(der []byte) Thumbprint { return sha1.Sum(der) }

// String is the thumbprint in hexadecimal.
func (t Thumbprint) String() string { return fmt.Sprintf("%x", t[:]) }

// Trust decides whether a client's certificate may be used.
type Trust interface {
	// Check applies the steps of Part 4, 6.1.3 to a chain: the client's own certificate, then its issuers as the client
	// sent them. A refusal is an *Error.
	Check(chain []*x509.Certificate, now time.Time) error
}

// Error is why a certificate was refused.
type Error struct {
	Code ua.StatusCode // for the log: what failed (Part 4, Table 100)
	Text string
}

// Error names what failed and the way out.
func (e *Error) Error() string { return e.Text }

// PeerCode is what the peer may know: a failed check of structure, chain, signature or trust is told as
// BadSecurityChecksFailed (Part 4, 6.1.3, Table 100), so that nobody can probe the trust list.
func (e *Error) PeerCode() ua.StatusCode {
	switch e.Code {
	case ua.StatusBadCertificateInvalid, ua.StatusBadCertificateChainIncomplete, ua.StatusBadCertificateUntrusted:
		return ua.StatusBadSecurityChecksFailed
	}
	return e.Code
}

// Own is the gateway's certificate and its private key.
type Own struct {
	der        []byte
	cert       *x509.Certificate
	key        *rsa.PrivateKey
	thumbprint Thumbprint
}

// DER is the certificate as it is sent. It is read only.
func (o *Own) DER() []byte { return o.der }

// Certificate is the parsed certificate. It is read only.
func (o *Own) Certificate() *x509.Certificate { return o.cert }

// Key is the private key.
func (o *Own) Key() *rsa.PrivateKey { return o.key }

// Thumbprint names the certificate.
func (o *Own) Thumbprint() Thumbprint { return o.thumbprint }
