package pki

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	certFile = "certificate.der"
	keyFile  = "key.pem"

	keyBits  = 2048
	validFor = 10 // years
)

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

// Itself is o, for whoever asks for what is in use now, where that never changes.
func (o *Own) Itself() *Own { return o }

// Thumbprint names the certificate.
func (o *Own) Thumbprint() Thumbprint { return o.thumbprint }

// Identity is what the own certificate says about the gateway.
type Identity struct {
	ApplicationURI string
	Name           string   // application name: the subject's common name
	Hosts          []string // DNS names and IP addresses under which clients reach the gateway
	KeyBits        int      // size of the RSA key, where one is made; 0: 2048
}

// Open loads the own certificate from dir/own. At the first start it makes one: RSA, self-signed, good for ten years.
// One that no longer fits id is kept, and a warning says what differs: only people renew a certificate that clients trust.
// A log of nil is slog.Default.
func Open(dir string, id Identity, log *slog.Logger) (*Own, error) {
	if log == nil {
		log = slog.Default()
	}
	if id.ApplicationURI == "" {
		return nil, errors.New("own certificate: no application URI is configured")
	}
	dir = filepath.Join(dir, OwnFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	own, err := openOwn(dir, id, log)
	if err != nil {
		return nil, err
	}
	own.warn(id, time.Now(), log)
	return own, nil
}

// openOwn loads what there is in dir, and makes what is missing.
func openOwn(dir string, id Identity, log *slog.Logger) (*Own, error) {
	key, err := openKey(filepath.Join(dir, keyFile), filepath.Join(dir, certFile), id.KeyBits)
	if err != nil {
		return nil, err
	}
	return openCertificate(filepath.Join(dir, certFile), key, id, log)
}

// openKey loads the key, or makes it where there is neither key nor certificate yet.
func openKey(path, certPath string, bits int) (*rsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(certPath); err == nil {
			return nil, fmt.Errorf("own certificate: %s has no key %s: bring the key back, or remove the certificate to have both made anew", certPath, path)
		}
		return makeKey(path, cmp.Or(bits, keyBits))
	}
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("own certificate: %s holds no PEM block: bring the key back, or remove key and certificate to have both made anew", path)
	}
	var key *rsa.PrivateKey
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		var any any
		if any, err = x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			var ok bool
			if key, ok = any.(*rsa.PrivateKey); !ok {
				err = errors.New("not an RSA key")
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("own certificate: %s: %w", path, err)
	}
	if n := key.N.BitLen(); n < MinKeyBits || n > MaxKeyBits {
		return nil, fmt.Errorf("own certificate: %s has %d bits: use %d to %d", path, n, MinKeyBits, MaxKeyBits)
	}
	return key, nil
}

func makeKey(path string, bits int) (*rsa.PrivateKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := writeFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	return key, nil
}

// openCertificate loads the certificate of key, or makes it: at the first start, and where the first start was cut short
// between the two files.
func openCertificate(path string, key *rsa.PrivateKey, id Identity, log *slog.Logger) (*Own, error) {
	der, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if der, err = Make(key, id, time.Now()); err != nil {
			return nil, fmt.Errorf("own certificate: %w", err)
		}
		if err = writeFile(path, der, 0o644); err != nil {
			return nil, fmt.Errorf("own certificate: %w", err)
		}
		log.Info("own certificate made", "file", path, "thumbprint", ThumbprintOf(der), "uri", id.ApplicationURI, "hosts", id.Hosts)
	}
	if err != nil {
		return nil, fmt.Errorf("own certificate: %w", err)
	}
	if block, _ := pem.Decode(der); block != nil {
		der = block.Bytes
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("own certificate: %s: %w", path, err)
	}
	if pub, ok := cert.PublicKey.(*rsa.PublicKey); !ok || !pub.Equal(&key.PublicKey) {
		return nil, fmt.Errorf("own certificate: %s does not belong to the key beside it: bring the right key back, or remove both to have them made anew", path)
	}
	return NewOwn(cert, key), nil
}

// NewOwn joins a certificate and its key.
func NewOwn(cert *x509.Certificate, key *rsa.PrivateKey) *Own {
	return &Own{der: cert.Raw, cert: cert, key: key, thumbprint: ThumbprintOf(cert.Raw)}
}

// Make returns a self-signed application instance certificate (Part 6, 6.2.2) as DER. It is back-dated by a day, for
// peers whose clocks are behind. Where the clock reads a time before this program was built, it is valid from that day
// on, and ends as if it had been made when the program was: the clock will be put right (field report C10).
func Make(key *rsa.PrivateKey, id Identity, now time.Time) ([]byte, error) {
	uri, err := url.Parse(id.ApplicationURI)
	if err != nil {
		return nil, fmt.Errorf("application URI %q: %w", id.ApplicationURI, err)
	}
	serial := make([]byte, 16)
	rand.Read(serial)
	serial[0] &= 0x7F // positive in 16 bytes (RFC 5280, 4.1.2.2)
	from := now.Add(-24 * time.Hour)
	if from.Unix() < 0 {
		from = time.Unix(0, 0) // some peers know no time before
	}
	subject := sha1.Sum(x509.MarshalPKCS1PublicKey(&key.PublicKey)) // RFC 5280, 4.2.1.2
	t := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: id.Name, Organization: []string{"edged"}},
		NotBefore:    from,
		NotAfter:     atLeast(now).AddDate(validFor, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment |
			x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		SubjectKeyId:          subject[:],
		URIs:                  []*url.URL{uri},
		SignatureAlgorithm:    x509.SHA256WithRSA,
	}
	for _, h := range id.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != "" {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
}

// warn tells what no longer fits (field report C8). When it ends is for Watch to tell.
func (o *Own) warn(id Identity, now time.Time, log *slog.Logger) {
	log = log.With("thumbprint", o.thumbprint)
	if n := o.key.N.BitLen(); id.KeyBits != 0 && n != id.KeyBits {
		log.Warn("own key has another size than the site asks for: make a new one when clients can be told (edged certs renew --bits)", "bits", n, "asked", id.KeyBits)
	}
	if uri := URI(o.cert); uri != id.ApplicationURI {
		log.Warn("own certificate names another application URI: clients may refuse it; renew it when they can be told (edged certs renew)", "certificate", uri, "configured", id.ApplicationURI)
	}
	var missing []string
	for _, h := range id.Hosts {
		if h != "" && !o.names(h) {
			missing = append(missing, h)
		}
	}
	if missing != nil {
		log.Warn("own certificate lacks names of this host: clients that check names may refuse it; renew it when they can be told (edged certs renew)", "missing", missing)
	}
	if floor := clockFloor(); now.Before(floor) {
		log.Warn("this clock reads a time before the program was built: set it, or have it set by NTP", "clock", now.UTC(), "built", floor)
	}
	if now.Before(o.cert.NotBefore) {
		log.Warn("own certificate is not valid yet by this clock: check the clock", "clock", now.UTC(), "from", o.cert.NotBefore)
	}
}

func (o *Own) names(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(o.cert.IPAddresses, ip.Equal)
	}
	return slices.ContainsFunc(o.cert.DNSNames, func(n string) bool { return strings.EqualFold(n, host) })
}

// Hosts returns the names under which this machine is reached: its host name, localhost and the addresses of its
// interfaces but link-local ones, for Identity.Hosts.
func Hosts() []string {
	var hosts []string
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	hosts = append(hosts, "localhost")
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return hosts
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts
}

// URI is the ApplicationUri of a certificate: the first URI of its subjectAltName (Part 6, 6.2.2), or "".
func URI(cert *x509.Certificate) string {
	if len(cert.URIs) == 0 {
		return ""
	}
	return cert.URIs[0].String()
}

// writeFile writes a file whole or not at all, also when the power goes.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
