package pki

import "log/slog"

// Identity is what the own certificate says about the gateway.
type Identity struct {
	ApplicationURI string
	Name           string   // application name: the subject's common name
	Hosts          []string // DNS names and IP addresses under which clients reach the gateway
}

// Open loads the own certificate from dir/own. At the first start it makes one: RSA 2048, self-signed, good for ten years.
// One that no longer fits id is kept, and a warning says what differs: only people renew a certificate that clients trust.
func Open(dir string, id Identity, log *slog.Logger) (*Own, error) { return nil, nil }
