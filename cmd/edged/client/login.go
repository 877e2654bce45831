package client

import (
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"os"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
)

// login is who a session is for.
type login struct {
	kind     ua.UserTokenType
	name     string // as messages call it
	password string
	der      []byte // the user's certificate
	key      *rsa.PrivateKey
}

// login reads what the options say of the user.
func (o *Options) login() (*login, error) {
	switch {
	case o.User != "" && o.Login != "":
		return nil, mistake("--user and --user-certificate: a user logs in with one of them")
	case o.User != "":
		return &login{kind: ua.UserTokenTypeUserName, name: "user " + o.User, password: o.Password}, nil
	case o.Login == "":
		return &login{kind: ua.UserTokenTypeAnonymous, name: "a client without a user"}, nil
	}
	pair, err := tls.LoadX509KeyPair(o.Login, o.Login)
	if err != nil {
		if _, serr := os.Stat(o.Login); serr != nil {
			return nil, fmt.Errorf("%w; name the PEM file of the user's certificate and key", serr)
		}
		return nil, fmt.Errorf("%s is no certificate with its key, both as PEM in one file: %w", o.Login, err)
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: the key is not RSA, as OPC UA's policies here need it", o.Login)
	}
	return &login{kind: ua.UserTokenTypeCertificate, name: "the user of " + o.Login, der: pair.Certificate[0], key: key}, nil
}

// options are what the library is told of the user.
func (l *login) options(user string) []opcua.Option {
	switch l.kind {
	case ua.UserTokenTypeUserName:
		return []opcua.Option{opcua.AuthUsername(user, l.password)}
	case ua.UserTokenTypeCertificate:
		return []opcua.Option{opcua.AuthCertificate(l.der), opcua.AuthPrivateKey(l.key)}
	}
	return nil
}
