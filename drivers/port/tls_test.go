package port

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.issue(t, "ca", nil)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name+".pem") }

// issue writes name.pem and name-key.pem. Without a host it is the authority's own.
func (a *authority) issue(t *testing.T, name string, hosts []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: a.cert == nil}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert == nil {
		a.key = key
		a.cert, _ = x509.ParseCertificate(der)
	}
	for file, block := range map[string]*pem.Block{
		a.path(name):          {Type: "CERTIFICATE", Bytes: der},
		a.path(name + "-key"): {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// server listens with a certificate of a's, for clients that have one of a's too if mutual.
func (a *authority) server(t *testing.T, name string, mutual bool) net.Listener {
	t.Helper()
	own, err := tls.LoadX509KeyPair(a.path(name), a.path(name+"-key"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{own}}
	if mutual {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		cfg.ClientCAs.AddCert(a.cert)
		cfg.MaxVersion = tls.VersionTLS12 // 1.3 tells a client of its refusal only afterwards
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTLSSays(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	a.issue(t, "device", []string{"127.0.0.1"})
	a.issue(t, "elsewhere", []string{"plc.example"})
	a.issue(t, "gateway", nil)
	good := TLS{CA: a.path("ca")}
	both := TLS{a.path("ca"), a.path("gateway"), a.path("gateway-key")}
	for _, row := range []struct {
		name, device string
		mutual       bool
		files        TLS
		err          string
	}{
		{"server's certificate", "device", false, good, ""},
		{"both sides'", "device", true, both, ""},
		{"nobody vouches", "device", false, TLS{}, "name who signed it with ca=FILE"},
		{"signed by another", "device", false, TLS{CA: stranger.path("ca")}, "did not sign"},
		{"another name", "elsewhere", false, good, "for another name"},
		{"no certificate of ours", "device", true, good, "refuses our certificate"},
		{"no ca", "device", false, TLS{CA: "/nowhere.pem"}, "cannot be read"},
		{"a ca that is none", "device", false, TLS{CA: a.path("ca-key")}, "holds no certificate"},
		{"no key", "device", false, TLS{CA: a.path("ca"), Cert: a.path("gateway"), Key: "/nowhere"}, "cannot be used"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := a.server(t, row.device, row.mutual)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.(*tls.Conn).Handshake()
					c.Close()
				}
			}()
			defer func() { l.Close(); <-ended }()
			p, err := Address{Scheme: "tcp+tls", Host: l.Addr().String(), TLS: row.files}.Open(t.Context())
			if err == nil {
				p.Close()
			}
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("no TLS at all", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
				c.Close()
			}
		}()
		_, err = Address{Scheme: "tcp+tls", Host: l.Addr().String(), TLS: good}.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), "does not talk TLS") {
			t.Errorf("%v", err)
		}
	})
}
