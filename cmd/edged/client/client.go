// Package client is the OPC UA client of the command line, for people who commission a plant. It hides how a server is
// reached and secured, how nodes and values are written as text, and what the library under it does badly.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
)

// How much of each request is asked for at once. Servers that allow less say BadTooManyOperations, and get less.
const (
	mostNodes      = 100
	mostReferences = 1000
)

// closeLimit is how long a server may take to close a session before its connection is closed all the same.
const closeLimit = 2 * time.Second

// Mistake is something that the user wrote and that cannot be meant: an address, a node, a value.
type Mistake struct{ error }

func mistake(format string, args ...any) error { return Mistake{fmt.Errorf(format, args...)} }

// Options say which server, and how.
type Options struct {
	URL      string        // opc.tcp://HOST:PORT, HOST:PORT or HOST
	Security string        // one of Securities
	Policy   string        // security policy by its short name; "": the best
	Mode     string        // one of Modes; "": what Security says
	User     string        // "": a client without a user, or whose certificate is Certificate
	Password string        // of User
	Login    string        // PEM file of a certificate and its key that the user logs in with; "": none
	Trust    bool          // take the server's certificate even if it is not the one that was seen before
	Data     string        // folder of this client's certificate and of the servers' that were seen
	Timeout  time.Duration // of each request
	Log      *slog.Logger
}

// Conn is an open session. Its methods may be called by several goroutines.
type Conn struct {
	URL string

	client  *opcua.Client
	timeout time.Duration
	types   typeNames
}

// errLost is why requests fail after the connection broke.
var errLost = errors.New("the connection was lost")

// Dial finds the endpoint to use and opens a session there. The error names the server and the way out; it is a Mistake
// when the options are wrong.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	url, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	endpoints, err := discover(ctx, url, o.Timeout)
	if err != nil {
		return nil, explain(url, err)
	}
	login, err := o.login()
	if err != nil {
		return nil, err
	}
	ep, err := choose(url, endpoints, o, login.kind)
	if err != nil {
		return nil, err
	}
	if secured := slices.ContainsFunc(endpoints, func(e *ua.EndpointDescription) bool {
		return usable(e) && e.SecurityMode != ua.MessageSecurityModeNone
	}); secured && o.Security == "auto" && ep.SecurityMode == ua.MessageSecurityModeNone {
		o.Log.Warn("without security: the server offers it to users alone", "url", url, "offers", offers(endpoints))
	}
	return open(ctx, o, url, ep, endpoints, login)
}

func open(ctx context.Context, o Options, url string, ep *ua.EndpointDescription, all []*ua.EndpointDescription, login *login) (*Conn, error) {
	options := []opcua.Option{
		opcua.SecurityFromEndpoint(ep, login.kind), opcua.AutoReconnect(false),
		opcua.DialTimeout(o.Timeout), opcua.RequestTimeout(max(o.Timeout, publishLimit)),
		opcua.ApplicationName(applicationName), opcua.ApplicationURI(applicationURI()), opcua.SessionName(applicationName),
	}
	options = append(options, login.options(o.User)...)
	var own string
	if ep.SecurityMode != ua.MessageSecurityModeNone {
		if err := checkServer(o, url, ep.ServerCertificate); err != nil {
			return nil, err
		}
		secure, path, err := identity(o)
		if err != nil {
			return nil, err
		}
		options, own = append(options, secure...), path
	} else if err := refuseDowngrade(o, url); err != nil {
		return nil, err
	}
	c := &Conn{URL: url, timeout: o.Timeout, types: typeNames{known: map[string]string{}}}
	err := guarded(func() (err error) {
		if c.client, err = opcua.NewClient(withPath(url, ep), options...); err != nil {
			return err
		}
		return c.client.Connect(ctx)
	})
	if err != nil {
		return nil, refused(url, ep, all, own, login, err)
	}
	o.Log.Debug("connected", "url", url, "security", endpointName(ep))
	return c, nil
}

// Close ends the session and the connection.
func (c *Conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	guarded(func() error { return c.client.Close(ctx) }) // what it cannot close ends with its socket
}

// call sends a request and waits for its answer, at most timeout.
func call[T ua.Response](ctx context.Context, c *Conn, timeout time.Duration, req ua.Request) (T, error) {
	var answer T
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := guarded(func() error {
		return c.client.Send(ctx, req, func(r ua.Response) error {
			got, ok := r.(T)
			if !ok {
				return fmt.Errorf("the server answered with a %T", r)
			}
			answer = got
			return nil
		})
	})
	switch {
	case lost(err):
		return answer, errLost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ua.StatusBadTimeout):
		return answer, fmt.Errorf("no answer within %v: give it longer with --timeout", timeout)
	}
	return answer, err
}

// lost reports an error of a connection that is no more. The library's own states do not tell: any fault that a server
// answers with makes them Disconnected.
func lost(err error) bool {
	for _, why := range []error{
		io.EOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, ua.StatusBadServerNotConnected, ua.StatusBadSecureChannelClosed,
	} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// guarded runs a step of the library, which panics on some answers; a strange server is an error.
func guarded(step func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the server's answer cannot be understood (%v)", r)
		}
	}()
	return step()
}

// inBatches calls do for parts of [0, n) that the server takes in one request: where it says BadTooManyOperations, the
// part is halved.
func inBatches(n, most int, do func(from, to int) error) error {
	for from := 0; from < n; {
		to := min(from+most, n)
		err := do(from, to)
		if errors.Is(err, ua.StatusBadTooManyOperations) && most > 1 {
			most = max(1, min(most, n-from)/2)
			continue
		}
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}

// counts reports a server that answers with another number of results than was asked for.
func counts(what string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s: the server gave %d results for %d items", what, got, want)
	}
	return nil
}

// trouble names the server beside what went wrong in a service.
func (c *Conn) trouble(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s: %w", c.URL, plain(err))
}

// plain is an error whose status codes are written by name alone.
func plain(err error) error {
	var theirs *uacp.Error
	switch code, ok := err.(ua.StatusCode); {
	case ok:
		return statusError(code)
	case errors.As(err, &theirs):
		return statusError(theirs.ErrorCode)
	}
	return err
}

// statusError is a status code that explains itself.
type statusError ua.StatusCode

func (s statusError) Error() string {
	if hint := Hint(ua.StatusCode(s)); hint != "" {
		return StatusName(ua.StatusCode(s)) + ": " + hint
	}
	return StatusName(ua.StatusCode(s))
}

func (s statusError) Unwrap() error { return ua.StatusCode(s) }
