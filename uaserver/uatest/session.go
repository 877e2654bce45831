package uatest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gopcua/opcua/ua"
)

// patience bounds what Dial and Endpoints do, as the machine may be busy.
const patience = 30 * time.Second

// ApplicationURI is that of the identities that NewIdentity makes, and of Login's sessions.
const ApplicationURI = "urn:test:client"

// Endpoints asks the server at an address for its endpoints, on a channel without security.
func Endpoints(addr string) ([]*ua.EndpointDescription, error) {
	c, err := Dial(addr, Options{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	v, err := c.Call(1, &ua.GetEndpointsRequest{EndpointURL: c.Options.URL})
	if err != nil {
		return nil, err
	}
	resp, ok := v.(*ua.GetEndpointsResponse)
	if !ok {
		return nil, fmt.Errorf("%T: %w", v, resultOf(v))
	}
	return resp.Endpoints, nil
}

// Dial connects to an address and opens a channel. The connection has a deadline, which the caller may change.
func Dial(addr string, o Options) (*Client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(patience))
	if o.URL == "" {
		o.URL = "opc.tcp://" + addr
	}
	c, err := Connect(conn, o)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Login makes a session without a user, with such a time-out, and activates it. What Call sends from then on is of the session.
func (c *Client) Login(timeout time.Duration) error {
	nonce := make([]byte, 32)
	rand.Read(nonce)
	req := &ua.CreateSessionRequest{
		ClientDescription: &ua.ApplicationDescription{
			ApplicationURI: ApplicationURI, ApplicationName: ua.NewLocalizedText("test"), ApplicationType: ua.ApplicationTypeClient,
		},
		EndpointURL: c.Options.URL, SessionName: "test", ClientNonce: nonce,
		RequestedSessionTimeout: float64(timeout / time.Millisecond),
	}
	if c.asym != nil {
		req.ClientCertificate = c.Options.Identity.DER
	}
	v, err := c.Call(1, req)
	if err != nil {
		return err
	}
	resp, ok := v.(*ua.CreateSessionResponse)
	if !ok || resp.ResponseHeader.ServiceResult != ua.StatusOK {
		return fmt.Errorf("CreateSession: %w", resultOf(v))
	}
	for _, e := range resp.ServerEndpoints {
		if e.SecurityPolicyURI != c.Options.Policy || e.SecurityMode != c.Options.Mode {
			continue
		}
		for _, p := range e.UserIdentityTokens {
			if p.TokenType == ua.UserTokenTypeAnonymous {
				c.anonymous = p.PolicyID
			}
		}
	}
	c.Session = resp.AuthenticationToken
	c.nonce = resp.ServerNonce
	return c.Activate()
}

// Activate binds the session to the client's channel: again, or after another client's Session and nonce were Resumed.
func (c *Client) Activate() error {
	req := &ua.ActivateSessionRequest{
		ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: c.anonymous}),
	}
	if c.asym != nil {
		sig, err := c.asym.Signature(append(c.Options.Server[:len(c.Options.Server):len(c.Options.Server)], c.nonce...))
		if err != nil {
			return err
		}
		req.ClientSignature = &ua.SignatureData{Algorithm: c.asym.SignatureURI(), Signature: sig}
	}
	v, err := c.Call(2, req)
	if err != nil {
		return err
	}
	resp, ok := v.(*ua.ActivateSessionResponse)
	if !ok || resp.ResponseHeader.ServiceResult != ua.StatusOK {
		return fmt.Errorf("ActivateSession: %w", resultOf(v))
	}
	c.nonce = resp.ServerNonce
	return nil
}

// Resume takes over the session of a client whose connection is gone, by activating it.
func (c *Client) Resume(old *Client) error {
	c.Session, c.nonce, c.anonymous = old.Session, old.nonce, old.anonymous
	return c.Activate()
}

// Ask is Call for a response of one kind, whose service result is good.
func Ask[R ua.Response](c *Client, id uint32, req ua.Request) (R, error) {
	var none R
	v, err := c.Call(id, req)
	if err != nil {
		return none, err
	}
	resp, ok := v.(R)
	if !ok || resp.Header().ServiceResult != ua.StatusOK {
		return none, fmt.Errorf("%T: %w", req, resultOf(v))
	}
	return resp, nil
}

func resultOf(v any) error {
	if resp, ok := v.(ua.Response); ok && resp.Header() != nil {
		return resp.Header().ServiceResult
	}
	return errors.New("not a response")
}
