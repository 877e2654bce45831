package channel

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"hash"
	"slices"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
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

// envelope is an RsaEncryptedSecret as a client makes it (Part 4, 7.40.2.3); change alters its parts.
func envelope(tb testing.TB, uri string, own *pki.Own, nonce, secret []byte, change func(*parts)) []byte {
	tb.Helper()
	p := policies[uri]
	fill := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }
	e := parts{mask: 1, uri: uri, print: own.Thumbprint(), signing: fill(p.macKey), encrypting: fill(p.cbcKey), iv: fill(16), tail: -1}
	if change != nil {
		change(&e)
	}
	keyData := wire.AppendByteString(wire.AppendByteString(wire.AppendByteString(nil, e.signing), e.encrypting), e.iv)
	var sealed []byte
	a := asymmetric{policy: p, peer: &own.Key().PublicKey}
	for block := range slices.Chunk(keyData, a.plainBlock()) {
		b, err := a.sealBlock(block)
		if err != nil {
			tb.Fatal(err)
		}
		sealed = append(sealed, b...)
	}
	payload := wire.AppendByteString(wire.AppendByteString(nil, nonce), secret)
	pad := (16 - (len(payload)+2)%16) % 16
	for range pad {
		payload = append(payload, byte(pad))
	}
	if e.tail >= 0 {
		pad = e.tail
	}
	payload = append(payload, byte(pad), byte(pad>>8))
	block, err := aes.NewCipher(fill(p.cbcKey))
	if err != nil {
		tb.Fatal(err)
	}
	cipher.NewCBCEncrypter(block, fill(16)).CryptBlocks(payload, payload)
	rest := wire.AppendByteString(wire.AppendString(nil, e.uri), e.print[:])
	rest = wire.AppendTime(rest, tag.Now())
	rest = append(rest, byte(len(sealed)), byte(len(sealed)>>8))
	rest = append(append(rest, sealed...), payload...)
	b := append(wire.AppendNodeID(nil, rsaEncryptedSecret), e.mask)
	b = append(wire.AppendUint32(b, uint32(len(rest)+p.mac.size+e.more)), rest...)
	mac := hmac.New(p.mac.hash, fill(p.macKey))
	mac.Write(b)
	return mac.Sum(b)
}

// parts are what a test may falsify of an envelope.
type parts struct {
	mask                    byte
	uri                     string
	print                   pki.Thumbprint
	signing, encrypting, iv []byte
	tail                    int // size of the padding that is told; -1: the right one
	more                    int // bytes that the length is off
}

// TestEncryptedSecret is Part 4, 7.40.2.3 and 7.40.2.4. The layout was compared with the one that UA-.NETStandard's tests
// build by hand.
func TestEncryptedSecret(t *testing.T) {
	id := uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, nil)
	own := pki.NewOwn(id.Cert, id.Key)
	c := &Channel{s: New(Config{}, nil), own: own}
	nonce := bytes.Repeat([]byte{7}, 32)
	for _, uri := range append(deprecatedPolicies, securePolicies...) {
		for _, secret := range []string{"", "x", "open sesame", strings.Repeat("long ", 200)} {
			b := envelope(t, uri, own, nonce, []byte(secret), nil)
			got, n, err := c.DecryptSecret(uri, b)
			if !IsEncryptedSecret(b) || err != nil || string(got) != secret || !bytes.Equal(n, nonce) {
				t.Errorf("%s: %.20q %x %v", uri, got, n, err)
			}
		}
	}
	const uri = ua.SecurityPolicyURIAes256Sha256RsaPss
	right := envelope(t, uri, own, nonce, []byte("open sesame"), nil)
	for i := range right {
		b := bytes.Clone(right)
		b[i] ^= 0x40
		if i%7 == 0 || i < 200 { // each field, and all of the header
			if _, _, err := c.DecryptSecret(uri, b); err != errSecret {
				t.Fatalf("byte %d altered: %v", i, err)
			}
		}
	}
	for _, row := range []struct {
		name   string
		policy string
		b      []byte
	}{
		{"another policy's", ua.SecurityPolicyURIBasic256Sha256, right},
		{"policy None", ua.SecurityPolicyURINone, right},
		{"unknown policy", "urn:unknown", right},
		{"names another policy", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.uri = ua.SecurityPolicyURIBasic256Sha256 })},
		{"another certificate's", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.print[3]++ })},
		{"no binary body", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.mask = 2 })},
		{"length too small", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.more = -1 })},
		{"length too large", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.more = 1 })},
		{"signing key too short", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.signing = p.signing[1:] })},
		{"encrypting key too long", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.encrypting = append(p.encrypting, 1) })},
		{"no initialization vector", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.iv = nil })},
		{"padding longer than there is", uri, envelope(t, uri, own, nonce, nil, func(p *parts) { p.tail = 60000 })},
		{"padding shorter than there is", uri, envelope(t, uri, own, nonce, []byte("12345"), func(p *parts) { p.tail = 0 })},
		{"cut", uri, right[:len(right)-1]}, {"header alone", uri, right[:40]}, {"nothing", uri, nil},
		{"too large", uri, append(bytes.Clone(right), make([]byte, 20_000)...)},
	} {
		if secret, _, err := c.DecryptSecret(row.policy, row.b); err != errSecret {
			t.Errorf("7.40.2.3 %s: %q %v", row.name, secret, err)
		}
	}
	if IsEncryptedSecret([]byte("open sesame")) || IsEncryptedSecret(nil) {
		t.Error("a password in clear text is no EncryptedSecret")
	}
	if _, _, err := (&Channel{s: New(Config{}, nil)}).DecryptSecret(uri, right); err != errSecret {
		t.Errorf("a server without a certificate: %v", err)
	}
}

// FuzzEncryptedSecret is anything as an RsaEncryptedSecret, and anything as the keys and the payload inside one.
func FuzzEncryptedSecret(f *testing.F) {
	id := uatest.NewIdentity(f, uatest.Key(f, 2048, 0), nil, nil)
	own := pki.NewOwn(id.Cert, id.Key)
	c := &Channel{s: New(Config{}, nil), own: own}
	for _, uri := range allSecure {
		f.Add(envelope(f, uri, own, make([]byte, 32), []byte("secret"), nil), uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, policy uint8) {
		uri := allSecure[int(policy)%len(allSecure)]
		IsEncryptedSecret(b)
		c.DecryptSecret(uri, b)
		p := policies[uri]
		fill := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
		keyData := wire.AppendByteString(wire.AppendByteString(wire.AppendByteString(nil, fill(p.macKey)), fill(p.cbcKey)), fill(16))
		payload := b[:len(b)/16*16]
		mac := hmac.New(p.mac.hash, fill(p.macKey))
		mac.Write(payload)
		secret, nonce, err := p.openPayload(keyData, payload, payload, mac.Sum(nil))
		if err == nil && len(secret)+len(nonce)+10 > len(payload) {
			t.Errorf("%d bytes of %d", len(secret)+len(nonce), len(payload))
		}
		p.openPayload(b, nil, nil, nil)
	})
}
