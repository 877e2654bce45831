package channel

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"

	"edged/uaserver/uatest"
)

// securePolicies are the policies with keys that are offered unless a site says otherwise, and deprecatedPolicies the others.
var (
	securePolicies     = []string{ua.SecurityPolicyURIBasic256Sha256, ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.SecurityPolicyURIAes256Sha256RsaPss}
	deprecatedPolicies = []string{ua.SecurityPolicyURIBasic128Rsa15, ua.SecurityPolicyURIBasic256}
)

// nonces are the golden ones: 53, 54, ... of the server, 43, 44, ... of the client.
func nonces() (server, client []byte) {
	for i := range byte(32) {
		server, client = append(server, 0x53+i), append(client, 0x43+i)
	}
	return server, client
}

// TestKeysOfTokens is Part 6, 6.7.5: which part of the derived bytes becomes which key of which direction. The golden
// ones were computed by an implementation of P_SHA256 in another language.
func TestKeysOfTokens(t *testing.T) {
	const (
		fromClient = "b86e50bbef232512fc7f49ea34512e8073511d8b9c3dc895edc157e55cc92585" +
			"995a5e0cecb63c529ec0829e433f3be79c1ad4c5930969927c89a0cada4a8b1507db1a40efa83f16c6f1e99a5a4f2cec"
		fromServer = "028e77c844e485adc1c976c0b2bc1db32164268e80e5b5dadf1e5018f85f848f" +
			"f2a4e58cf5aa008e8ca7d86d7a7e6467a0599e4749bb1632c50fa78ae3dc5f6973e8827e298da3492f130203ebd3c5f2"
	)
	server, client := nonces()
	for _, uri := range securePolicies {
		key := policies[uri].cbcKey
		peer, err := NewPeerKeys(uri, client, server, ua.MessageSecurityModeSignAndEncrypt)
		if err != nil {
			t.Fatal(err)
		}
		var own keys
		if err := own.derive(policies[uri], client, server, peer.mode, cipher.NewCBCEncrypter); err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			name   string
			k      *keys
			stream string
		}{{"client", &peer.send, fromClient}, {"server", &own, fromServer}} {
			stream, err := hex.DecodeString(row.stream)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, ChunkSize(100, peer.mode))
			PutHeader(b, "MSGF", 1, 1, 1, 1)
			row.k.seal(b, 100, peer.mode)
			block, err := aes.NewCipher(stream[32 : 32+key])
			if err != nil {
				t.Fatal(err)
			}
			cipher.NewCBCDecrypter(block, stream[32+key:][:16]).CryptBlocks(b[secureFrom:], b[secureFrom:])
			mac := hmac.New(sha256.New, stream[:32])
			mac.Write(b[:len(b)-sha256.Size])
			if !bytes.Equal(mac.Sum(nil), b[len(b)-sha256.Size:]) {
				t.Errorf("%s, %s: sealed with other keys than the golden ones", uri, row.name)
			}
		}
	}
	for _, uri := range append(deprecatedPolicies, ua.SecurityPolicyURINone) {
		if _, err := NewPeerKeys(uri, client, server, ua.MessageSecurityModeSign); err == nil {
			t.Errorf("keys of a client's end under %s", uri)
		}
	}
}

// TestAsymmetricAlgorithms holds each policy's RSA against gopcua's, both ways.
func TestAsymmetricAlgorithms(t *testing.T) {
	mine := uatest.Key(t, 2048, 0)
	for _, uri := range append(deprecatedPolicies, securePolicies...) {
		theirs := uatest.Key(t, 3072, 1)
		if Deprecated(uri) {
			theirs = uatest.Key(t, 1024, 0)
		}
		a := &asymmetric{policy: policies[uri], own: mine, peer: &theirs.PublicKey}
		peer, err := uapolicy.Asymmetric(uri, theirs, &mine.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if a.signature != peer.SignatureURI() || a.nonce != peer.NonceLength() {
			t.Errorf("%s: %s, nonces of %d bytes", uri, a.signature, a.nonce)
		}
		text := bytes.Repeat([]byte("0123456789"), a.plainBlock()*3/10+1)[:a.plainBlock()*3]
		sealed, err := a.appendSealed([]byte("header"), text)
		if err != nil || len(sealed) != 6+3*theirs.Size() {
			t.Fatalf("%s: 3 blocks gave %d bytes: %v", uri, len(sealed)-6, err)
		}
		if plain, err := peer.Decrypt(sealed[6:]); err != nil || !bytes.Equal(plain, text) {
			t.Errorf("%s: the peer cannot decrypt: %v", uri, err)
		}
		full := bytes.Repeat([]byte("x"), 2*a.plainOf(mine.Size()))
		if sealed, err = peer.Encrypt(full); err != nil {
			t.Fatal(err)
		}
		if plain, err := a.open(sealed); err != nil || !bytes.Equal(plain, full) {
			t.Errorf("%s: cannot decrypt: %v", uri, err)
		}
		sealed[len(sealed)-5]++
		if plain, err := a.open(sealed); (err == nil) != (a.oaep == 0) || bytes.Equal(plain, full) {
			t.Errorf("%s: an altered block was decrypted: %v", uri, err)
		}
		sig, err := a.sign(text)
		if err != nil || peer.VerifySignature(text, sig) != nil {
			t.Errorf("%s: the peer does not take the signature: %v", uri, err)
		}
		if sig, err = peer.Signature(text); err != nil {
			t.Fatal(err)
		}
		if err := a.verify(text, sig); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
		if a.verify(text[1:], sig) == nil {
			t.Errorf("%s: the signature of another text was taken", uri)
		}
	}
}

// TestSaltOfPSS: libraries that choose the longest salt are understood; ours is as long as the hash (Part 7).
func TestSaltOfPSS(t *testing.T) {
	key := uatest.Key(t, 2048, 0)
	a := &asymmetric{policy: policies[ua.SecurityPolicyURIAes256Sha256RsaPss], own: key, peer: &key.PublicKey}
	sum := sha256.Sum256([]byte("x"))
	long, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.verify([]byte("x"), long); err != nil {
		t.Errorf("longest salt: %v", err)
	}
	sig, err := a.sign([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rsa.VerifyPSS(a.peer, crypto.SHA256, sum[:], sig, &rsa.PSSOptions{SaltLength: 32}); err != nil {
		t.Errorf("salt of 32 bytes: %v", err)
	}
}

// TestHostileKeys: a peer's key that is none ends in an error, not in a panic.
func TestHostileKeys(t *testing.T) {
	own := uatest.Key(t, 2048, 0)
	for _, uri := range append(deprecatedPolicies, securePolicies...) {
		for _, e := range []int{0, 1, 2, -3} {
			bad := own.PublicKey
			bad.E = e
			a := &asymmetric{policy: policies[uri], own: own, peer: &bad}
			if a.verify([]byte("x"), make([]byte, 256)) == nil {
				t.Errorf("%s, exponent %d: a signature of zeros was taken", uri, e)
			}
			if _, err := a.appendSealed(nil, make([]byte, a.plainBlock())); err == nil {
				t.Errorf("%s, exponent %d: encrypted", uri, e)
			}
		}
	}
}

// TestPrivateKeyInTurn: a storm of clients that open channels gets all cores but one, so that who is connected is served.
func TestPrivateKeyInTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	s := New(Config{}, nil)
	c := &Channel{s: s}
	var busy, most atomic.Int32
	var storm sync.WaitGroup
	for range 50 {
		storm.Go(func() {
			err := c.private(func() error {
				n := busy.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				busy.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	storm.Wait()
	if n := most.Load(); n < 1 || n > 2 {
		t.Errorf("%d operations at a time on 3 cores", n)
	}
	if err := c.private(func() error { panic("hostile") }); err == nil || len(s.keys) != 0 {
		t.Errorf("an operation that panicked: %v, %d places taken", err, len(s.keys))
	}
	c.gone.Store(true)
	if err := c.private(func() error { t.Error("runs for a channel that gave way"); return nil }); err != ErrClosed || len(s.keys) != 0 {
		t.Errorf("a channel that gave way: %v, %d places taken", err, len(s.keys))
	}
}

// TestPaddingIsNoOracle: whatever is wrong with a padding of RSAES-PKCS1-v1_5, as many bytes come out as of a right one,
// random ones each time, and no error (RFC 3218, 2.3.2). Only a block that is no number below the modulus, which its sender
// knows himself, is an error.
func TestPaddingIsNoOracle(t *testing.T) {
	key := uatest.Key(t, 2048, 0)
	a := &asymmetric{policy: policies[ua.SecurityPolicyURIBasic128Rsa15], own: key, peer: &key.PublicKey}
	raw := func(head ...byte) []byte { // a block whose padding begins so
		m := append(bytes.Clone(head), bytes.Repeat([]byte{0xA5}, key.Size()-len(head))...)
		c := new(big.Int).Exp(new(big.Int).SetBytes(m), big.NewInt(int64(key.E)), key.N)
		return c.FillBytes(make([]byte, key.Size()))
	}
	right, err := a.appendSealed(nil, bytes.Repeat([]byte("x"), a.plainBlock()))
	if err != nil {
		t.Fatal(err)
	}
	short, err := a.sealBlock([]byte("short"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		block []byte
		want  string // of open
		other string // of openSecret
	}{
		{"right", right, strings.Repeat("x", a.plainBlock()), strings.Repeat("x", a.plainBlock())},
		{"a block that is not full", short, "", "short"},
		{"no 0 first", raw(1, 2), "", ""},
		{"no 2 second", raw(0, 1), "", ""},
		{"no 0 behind the padding", raw(0, 2), "", ""},
		{"padding of 7 bytes", raw(0, 2, 1, 1, 1, 1, 1, 1, 1, 0), "", ""},
		{"zero", make([]byte, key.Size()), "", ""},
	} {
		for i, open := range []func([]byte) ([]byte, error){a.open, a.openSecret} {
			want := []string{row.want, row.other}[i]
			once, err := open(row.block)
			again, err2 := open(row.block)
			switch {
			case err != nil || err2 != nil:
				t.Errorf("%s: %v %v", row.name, err, err2)
			case want != "" && string(once) != want:
				t.Errorf("%s: %.20q", row.name, once)
			case want == "" && (len(once) != a.plainBlock() || bytes.Equal(once, again)):
				t.Errorf("%s: %d bytes, the same again: %v", row.name, len(once), bytes.Equal(once, again))
			}
		}
	}
}
