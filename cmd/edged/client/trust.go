package client

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/gopcua/opcua"

	"edged/uaserver/pki"
)

const applicationName = "edged client"

// applicationURI names this client; its certificate holds the same.
func applicationURI() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return "urn:edged:client:" + strings.ToLower(host)
}

// DefaultData is the folder of the user's configuration where the client keeps its certificate; "" where the user has
// none.
func DefaultData() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "edged")
}

// identity is the client's certificate, made once, and the file that it is in.
func identity(o Options) ([]opcua.Option, string, error) {
	if o.Data == "" {
		return nil, "", mistake("this user has no folder for the client's certificate (HOME is not set): name one with --data")
	}
	dir := filepath.Join(o.Data, "pki")
	own, err := pki.Open(dir, pki.Identity{ApplicationURI: applicationURI(), Name: applicationName, Hosts: pki.Hosts()}, o.Log)
	if err != nil {
		return nil, "", fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	return []opcua.Option{
		opcua.Certificate(own.DER()), opcua.PrivateKey(own.Key()), opcua.ApplicationURI(pki.URI(own.Certificate())),
	}, filepath.Join(dir, "own", "certificate.der"), nil
}

// serverFile is where the certificate of a server is remembered.
func serverFile(o Options, server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return filepath.Join(o.Data, "pki", "servers", strings.NewReplacer(":", "_", "[", "", "]", "", "/", "_", `\`, "_").Replace(u.Host)+".der")
}

// checkServer compares a server's certificate with the one seen first at this address, and keeps the first one.
func checkServer(o Options, server string, der []byte) error {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("%s has a certificate that cannot be read: renew it there, or go without security: --security none", server)
	}
	if o.Data == "" {
		return mistake("this user has no folder for certificates (HOME is not set): name one with --data")
	}
	path := serverFile(o, server)
	known, err := os.ReadFile(path)
	if err == nil && bytes.Equal(known, der) {
		return nil
	}
	if err == nil && !o.Trust {
		return fmt.Errorf("%s has another certificate than before (%s now, %s in %s): if it was renewed, say --trust; if not, somebody may be between",
			server, pki.ThumbprintOf(der), pki.ThumbprintOf(known), path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the certificate of %s cannot be read: %w; name another folder with --data", path, server, errors.Unwrap(err))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	if err := os.WriteFile(path, der, 0o600); err != nil {
		return fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	o.Log.Info("server's certificate is remembered", "server", server, "name", cert.Subject.CommonName, "thumbprint", pki.ThumbprintOf(der).String())
	return nil
}

// refuseDowngrade refuses a server without security where there was some before, unless it was asked for: the list of
// endpoints is not signed, and whoever is between could shorten it.
func refuseDowngrade(o Options, server string) error {
	if o.Data == "" || o.Security == "none" || o.Mode == "None" || o.Policy == "None" {
		return nil
	}
	if _, err := os.Stat(serverFile(o, server)); err != nil {
		return nil
	}
	return fmt.Errorf("%s offered security before and offers none now: if that is meant, say --security none", server)
}
