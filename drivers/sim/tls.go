package sim

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// secure has a listener talk TLS (Modbus/TCP Security). It closes the listener where it cannot.
func (u *lineURL) secure(l net.Listener) (net.Listener, error) {
	own, err := tls.LoadX509KeyPair(u.tls.Cert, u.tls.Key)
	if err != nil {
		l.Close()
		return nil, err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if u.tls.CA != "" {
		pem, err := os.ReadFile(u.tls.CA)
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if err == nil && !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s holds no certificate in PEM form", u.tls.CA)
		}
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	return tls.NewListener(l, cfg), nil
}
