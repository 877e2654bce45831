package port

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// dialTLS connects and shakes hands (Modbus/TCP Security: TLS 1.2 or later, both sides with a certificate).
func dialTLS(ctx context.Context, hostport string, files TLS) (Port, error) {
	cfg, err := files.config(hostport)
	if err != nil {
		return nil, err
	}
	raw, err := connect(ctx, hostport)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, cfg)
	hctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := c.HandshakeContext(hctx); err != nil {
		raw.Close()
		return nil, handshakeError(hostport, files, err)
	}
	p := &tlsPort{Conn: c}
	if sc, ok := raw.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn()
	}
	return p, nil
}

func (f TLS) config(hostport string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("the ca of %s cannot be read: %w", hostport, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the ca of %s, %s, holds no certificate in PEM form", hostport, f.CA)
		}
	}
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("cert and key for %s, %s and %s, cannot be used: %w", hostport, f.Cert, f.Key, err)
		}
		cfg.Certificates = []tls.Certificate{own}
	}
	return cfg, nil
}

// handshakeError adds what helps.
func handshakeError(hostport string, files TLS, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown) && files.CA == "":
		return fmt.Errorf("%s has a certificate that nobody vouches for: name who signed it with ca=FILE: %w", hostport, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s has a certificate that %s did not sign: %w", hostport, files.CA, err)
	case errors.As(err, &name):
		return fmt.Errorf("%s has a certificate for another name: connect to a name that it holds: %w", hostport, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%s has a certificate that cannot be accepted (check the clock of both sides): %w", hostport, err)
	case errors.As(err, &record):
		return fmt.Errorf("%s does not talk TLS: use tcp, or its secure port (802 as a rule): %w", hostport, err)
	case errors.As(err, &alert) && alert.Op == "remote error": // a TLS alert
		return fmt.Errorf("%s refuses our certificate: give it one that it trusts with cert=FILE and key=FILE: %w", hostport, err)
	}
	return dialError(hostport, err)
}

// tlsPort is a secured connection.
type tlsPort struct {
	*tls.Conn
	raw syscall.RawConn // nil where the stream below is not a descriptor
}

func (p *tlsPort) Drain() error { return nil }

// Discard drops what was decrypted already, and what the socket holds. What waits there is asked for without waiting.
func (p *tlsPort) Discard() error {
	end := p.drop(time.Now().Add(-time.Second))
	if end != nil || p.raw == nil {
		return end
	}
	if err := p.SetReadDeadline(time.Time{}); err != nil { // with one that has passed the socket is not even looked at
		return err
	}
	waits := false
	err := p.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		waits = n > 0 || err == nil || !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	if err != nil || !waits {
		return err
	}
	return p.drop(time.Now().Add(settle))
}

// drop reads until the deadline, or the end.
func (p *tlsPort) drop(deadline time.Time) error {
	if err := p.SetReadDeadline(deadline); err != nil {
		return err
	}
	var buf [512]byte
	for total := 0; total < maxDiscard; {
		n, err := p.Conn.Read(buf[:])
		total += n
		switch {
		case err == nil:
		case IsTimeout(err):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return io.EOF // it closed without a word
		default:
			return err
		}
	}
	return nil
}

// Read is the connection's; a peer that goes without TLS's own farewell has gone all the same.
func (p *tlsPort) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
