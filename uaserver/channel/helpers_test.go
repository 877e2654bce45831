package channel_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
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

// smallKey is a key below what the policy allows. crypto/rsa makes none, so this one was made elsewhere.
func smallKey(tb testing.TB) *rsa.PrivateKey {
	tb.Helper()
	block, _ := pem.Decode([]byte(small))
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

const small = `-----BEGIN RSA PRIVATE KEY-----
MIICXAIBAAKBgQDbKgmFrYId2tBTD6A4btxWpv1G0+/jM10Wk3+zOxDh9LEZMmtL
3BoxIvRUiueNwLn1n+2c3nrTiZJjS8okg4rLThOEa2KM4KMdfWqXk12sIdULf23o
H1xtNOyJ9QExlAL/kMWIjCnQlmvZNqavkbGAl8aRFTtg+Itfb82VXRDXGwIDAQAB
AoGAR95iHv8F4yplFEfUf40DHjtGZRqM2NF4HjYiMzEUWTR3es7I1qiHwkM3Ih4m
zpo7oOtf7Qgb+RBs+7jXwd+M/ID0AaAjcsOCSz5/0muy9W3ilU7Ei57r3uc4tZZH
G2NO25EC2bGoj1viIr8Wvzpey/Aq+q+dFGvdhFyTwdN8JFECQQDuy9NiDwgk5qxM
Xpgl8eFeYOoK0HrqVVyuVzIccTGe/3zzgt0YGBNUR+9lxgosYLpWZp0oqDHUYE2L
n1n3M8azAkEA6vQiV19fPzUvTAzth4obQSYFiqdhX3zmWCe4Oc2yJKicjFcpbaJB
SQgLM9YTjmM/B/vk4lho/Iald69dZEqh+QJAPF5a+hdCv9FxDX18iVs01l85y7IY
4NTjsU9p47baDJAaTpVuv4CWol/tLZV7TOzHLsCSSoz6y+3srLeETvJP8QJAYbfB
5Kbk3UwIbM/fpoSZC0J+AYnV5Ln0r2ttopTbZ4W8/l1t/IwELRSsXBXIMmsyluZ7
7muo1oZFoX6NEB4+OQJBAMlL/dV2L8QIuS15p0FPVHes1bVetSOTBVpWSylDS2HC
yyyyLVHq3DRV5GrjIhMcCOE2Yb+5aOIM/KekGfe67Us=
-----END RSA PRIVATE KEY-----`
