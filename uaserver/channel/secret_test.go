package channel

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"hash"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// TestDecrypt: a secret is encrypted by the token's policy, whatever the channel's is; what cannot be decrypted gives one
// error.
func TestDecrypt(t *testing.T) {
	id := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, nil)
	seal := func(sum hash.Hash, parts ...string) (out []byte) {
		for _, p := range parts {
			b, err := rsa.EncryptOAEP(sum, rand.Reader, &id.Key.PublicKey, []byte(p), nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
		}
		return out
	}
	c := &Channel{s: New(Config{}, nil), own: pki.NewOwn(id.Cert, id.Key)}
	one := seal(sha1.New(), "secret")
	rsa15, err := (&asymmetric{policy: policies[ua.SecurityPolicyURIBasic128Rsa15], peer: &id.Key.PublicKey}).sealBlock([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		policy string
		secret []byte
		want   string // "": refused
	}{
		{"Basic256Sha256", ua.SecurityPolicyURIBasic256Sha256, one, "secret"},
		{"Aes128_Sha256_RsaOaep", ua.SecurityPolicyURIAes128Sha256RsaOaep, one, "secret"},
		{"Aes256_Sha256_RsaPss", ua.SecurityPolicyURIAes256Sha256RsaPss, seal(sha256.New(), "secret"), "secret"},
		{"four blocks", ua.SecurityPolicyURIBasic256Sha256, seal(sha1.New(), "a", "b", "c", "d"), "abcd"},
		{"five blocks", ua.SecurityPolicyURIBasic256Sha256, seal(sha1.New(), "a", "b", "c", "d", "e"), ""},
		{"another policy's", ua.SecurityPolicyURIAes256Sha256RsaPss, one, ""},
		{"Basic256", ua.SecurityPolicyURIBasic256, one, "secret"},
		{"Basic128Rsa15", ua.SecurityPolicyURIBasic128Rsa15, rsa15, "secret"},
		{"C7 None", ua.SecurityPolicyURINone, []byte("secret"), ""},
		{"unknown policy", "urn:unknown", one, ""},
		{"half a block", ua.SecurityPolicyURIBasic256Sha256, one[:128], ""},
		{"a block and a half", ua.SecurityPolicyURIBasic256Sha256, append(bytes.Clone(one), one[:128]...), ""},
		{"noise", ua.SecurityPolicyURIBasic256Sha256, bytes.Repeat([]byte{0x5A}, 256), ""},
		{"beyond the modulus", ua.SecurityPolicyURIBasic256Sha256, bytes.Repeat([]byte{0xFF}, 256), ""},
		{"zero", ua.SecurityPolicyURIBasic256Sha256, make([]byte, 256), ""},
		{"nothing", ua.SecurityPolicyURIBasic256Sha256, nil, ""},
	} {
		got, err := c.Decrypt(row.policy, row.secret)
		if string(got) != row.want || (err == nil) != (row.want != "") || err != nil && err != errSecret {
			t.Errorf("%s: %q %v", row.name, got, err)
		}
	}
	bare := &Channel{s: New(Config{}, nil)}
	if _, err := bare.Decrypt(ua.SecurityPolicyURIBasic256Sha256, one); err != errSecret {
		t.Errorf("a server without a certificate: %v", err)
	}
}
