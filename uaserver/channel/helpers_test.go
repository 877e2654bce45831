package channel_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// signature is what the test client's key makes of data.
func signature(tb testing.TB, data string) *ua.SignatureData {
	tb.Helper()
	sum := sha256.Sum256([]byte(data))
	sig, err := rsa.SignPKCS1v15(rand.Reader, uatest.Key(tb, 2048, 1), crypto.SHA256, sum[:])
	if err != nil {
		tb.Fatal(err)
	}
	return &ua.SignatureData{Algorithm: "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256", Signature: sig}
}
