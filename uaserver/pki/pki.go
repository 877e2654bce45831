// Package pki holds the gateway's own certificate and decides which clients' certificates it trusts (OPC UA Part 4, 6.1.3).
// It hides the files behind that: the key, the trusted and the rejected certificates.
package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Sizes of the gateway's own RSA key: what Basic256Sha256 and the newer RSA policies allow (Part 7).
const (
	MinKeyBits = 2048
	MaxKeyBits = 4096
)

// Strength is what a security policy asks of certificates (Part 7).
type Strength struct {
	MinBits, MaxBits int  // of the RSA key of the client's own certificate
	SHA1             bool // certificates may be signed with it
}

// The strengths that there are.
var (
	Strong     = Strength{MinBits: MinKeyBits, MaxBits: MaxKeyBits}
	Deprecated = Strength{MinBits: 1024, MaxBits: 2048, SHA1: true} // of Basic128Rsa15 and Basic256
)

const (
	maxChain      = 8         // certificates, the client's own and its issuers
	maxChainBytes = 16 * 1024 // of all of them together
	maxIssuerBits = 8192      // of an issuer's RSA key: what it costs to verify with a larger one is a peer's to choose
)

// Thumbprint is the SHA-1 of a certificate's DER form, by which OPC UA names it (Part 6, 6.7.2.3).
type Thumbprint [sha1.Size]byte

// ThumbprintOf returns the thumbprint of one DER certificate.
func ThumbprintOf(der []byte) Thumbprint { return sha1.Sum(der) }

// String is the thumbprint in hexadecimal.
func (t Thumbprint) String() string { return hex.EncodeToString(t[:]) }

// Trust decides whether a client's certificate may be used.
type Trust interface {
	// Check applies the steps of Part 4, 6.1.3 to a chain: the client's own certificate, then its issuers as the client
	// sent them. A refusal is an *Error.
	Check(chain []*x509.Certificate, need Strength, now time.Time) error
}

// Error is why a certificate was refused.
type Error struct {
	Code ua.StatusCode // for the log: what failed (Part 4, 6.1.3)
	Text string
}

// Error names what failed and the way out.
func (e *Error) Error() string { return e.Text }

// PeerCode is what the peer may know: a failed check of structure, chain, signature or trust is told as
// BadSecurityChecksFailed (Part 4, 6.1.3), so that nobody can probe the trust list.
func (e *Error) PeerCode() ua.StatusCode {
	switch e.Code {
	case ua.StatusBadCertificateInvalid, ua.StatusBadCertificateChainIncomplete, ua.StatusBadCertificateUntrusted:
		return ua.StatusBadSecurityChecksFailed
	}
	return e.Code
}

func refuse(code ua.StatusCode, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Parse takes apart what a peer sends as its certificate: one DER certificate, and perhaps its issuers behind it (Part 6,
// 6.2.6). It keeps nothing of b. What follows the first certificate and is none is ignored, as Part 6, 6.7.2.3 allows. The first one's key is
// RSA, of a size that one policy or another allows. A refusal is an *Error.
func Parse(b []byte) ([]*x509.Certificate, error) {
	if len(b) == 0 || len(b) > maxChainBytes {
		return nil, refuse(ua.StatusBadCertificateInvalid, "certificate of %d bytes: between 1 and %d are taken", len(b), maxChainBytes)
	}
	b = bytes.Clone(b) // what is parsed aliases it
	var chain []*x509.Certificate
	for len(b) > 0 && len(chain) < maxChain {
		var one asn1.RawValue
		rest, err := asn1.Unmarshal(b, &one)
		var cert *x509.Certificate
		if err == nil {
			cert, err = x509.ParseCertificate(one.FullBytes)
		}
		if err != nil {
			if len(chain) > 0 {
				break
			}
			return nil, refuse(ua.StatusBadCertificateInvalid, "certificate: %v", err)
		}
		if pub, ok := cert.PublicKey.(*rsa.PublicKey); ok && pub.N.BitLen() > maxIssuerBits {
			return nil, refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: key of %d bits", ThumbprintOf(cert.Raw), pub.N.BitLen())
		}
		chain = append(chain, cert)
		b = rest
	}
	pub, ok := chain[0].PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: key is not RSA", ThumbprintOf(chain[0].Raw))
	}
	if n := pub.N.BitLen(); n < Deprecated.MinBits || n > Strong.MaxBits {
		return nil, refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: key of %d bits: %d to %d are taken", ThumbprintOf(chain[0].Raw), n, Deprecated.MinBits, Strong.MaxBits)
	}
	if pub.N.Bit(0) == 0 || pub.E < 3 || pub.E&1 == 0 {
		return nil, refuse(ua.StatusBadCertificateInvalid, "certificate %v: impossible RSA key", ThumbprintOf(chain[0].Raw))
	}
	return chain, nil
}

// selfIssued reports whether a certificate names itself as its issuer, and so ends a chain.
func selfIssued(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, c.RawIssuer) }

// linked cuts a chain behind the last certificate that the one before names as its issuer.
func linked(chain []*x509.Certificate) []*x509.Certificate {
	for i, c := range chain {
		if selfIssued(c) || i+1 == len(chain) || !bytes.Equal(c.RawIssuer, chain[i+1].RawSubject) {
			return chain[:i+1]
		}
	}
	return chain
}

// checkSignatures verifies each certificate by the one behind it, and a last one that is self-issued by itself (Part 4,
// 6.1.3, build chain and signature). complete says that the chain ends in such a one.
func checkSignatures(chain []*x509.Certificate) (complete bool, _ error) {
	for i, c := range chain {
		var err error
		switch {
		case insecure(c.SignatureAlgorithm): // x509 verifies none of them
			return false, refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: signed with %v: SHA-256 or better is needed", ThumbprintOf(c.Raw), c.SignatureAlgorithm)
		case i+1 < len(chain):
			// Whether the issuer may issue is a later step.
			err = chain[i+1].CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature)
		case selfIssued(c):
			complete = true
			err = c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature)
		}
		if err != nil {
			return false, refuse(ua.StatusBadCertificateInvalid, "certificate %v: %v", ThumbprintOf(c.Raw), err)
		}
	}
	return complete, nil
}

// Fits reports whether a certificate has an RSA key of a size that is taken.
func (s Strength) Fits(c *x509.Certificate) bool {
	pub, ok := c.PublicKey.(*rsa.PublicKey)
	return ok && pub.N.BitLen() >= s.MinBits && pub.N.BitLen() <= s.MaxBits
}

// check is the security policy step: the size of the client's key, and what the certificates are signed with.
func (s Strength) check(chain []*x509.Certificate) error {
	if !s.Fits(chain[0]) {
		return refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: its key is not RSA of %d to %d bits", ThumbprintOf(chain[0].Raw), s.MinBits, s.MaxBits)
	}
	for _, c := range chain {
		if weak(c.SignatureAlgorithm) && !s.SHA1 {
			return refuse(ua.StatusBadCertificatePolicyCheckFailed, "certificate %v: signed with %v: SHA-256 or better is needed", ThumbprintOf(c.Raw), c.SignatureAlgorithm)
		}
	}
	return nil
}

// insecure reports algorithms that no policy allows.
func insecure(a x509.SignatureAlgorithm) bool {
	return a == x509.MD2WithRSA || a == x509.MD5WithRSA || a == x509.DSAWithSHA1 || a == x509.DSAWithSHA256
}

// weak reports algorithms that CertificateSignatureAlgorithm_RSA-PKCS15-SHA2-256 does not allow (Part 7). x509 still takes
// SHA-1 where CheckSignature is called by itself.
func weak(a x509.SignatureAlgorithm) bool {
	return insecure(a) || a == x509.SHA1WithRSA || a == x509.ECDSAWithSHA1
}

// checkTime is the validity period step.
func checkTime(chain []*x509.Certificate, now time.Time) error {
	for i, c := range chain {
		code := ua.StatusBadCertificateTimeInvalid
		if i > 0 {
			code = ua.StatusBadCertificateIssuerTimeInvalid
		}
		if atLeast(now).Before(c.NotBefore) {
			return refuse(code, "certificate %v: not valid before %v, and this clock says %v: check the clocks", ThumbprintOf(c.Raw), c.NotBefore.UTC(), now.UTC())
		}
		if now.After(c.NotAfter) {
			return refuse(code, "certificate %v: expired at %v, and this clock says %v: renew it, or check the clock", ThumbprintOf(c.Raw), c.NotAfter.UTC(), now.UTC())
		}
	}
	return nil
}

// checkUse is the certificate usage step. It is tolerant with the first: many clients' certificates leave usages out, so
// only one that states key usages without digitalSignature is refused, which could not have signed its OpenSecureChannel
// request. The others have to be authorities, with no more authorities below them than they allow (RFC 5280, 4.2.1.9).
func checkUse(chain []*x509.Certificate) error {
	if c := chain[0]; c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return refuse(ua.StatusBadCertificateUseNotAllowed, "certificate %v: key usage lacks digitalSignature", ThumbprintOf(c.Raw))
	}
	for i, c := range chain[1:] {
		limited := c.MaxPathLen > 0 || c.MaxPathLen == 0 && c.MaxPathLenZero
		if !c.IsCA || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0 || limited && i > c.MaxPathLen {
			return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "certificate %v (%s) may not issue certificates such as %v", ThumbprintOf(c.Raw), c.Subject, ThumbprintOf(chain[0].Raw))
		}
	}
	return nil
}
