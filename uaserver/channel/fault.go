package channel

import (
	"errors"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/pki"
)

// errEnd ends a conversation without an Error message: the client closed the channel, or the gateway has told it all.
var errEnd = errors.New("channel: ended")

// fault is an error that the peer is told in an Error message (Part 6, 7.1.2.5) before its connection is closed.
type fault struct {
	code   ua.StatusCode // to the peer
	reason string        // to the peer
	log    string        // for the log alone: what a peer that failed a security check may not know (Part 6, 6.7.7)
}

func (f *fault) Error() string {
	if f.log != "" {
		return f.log
	}
	return f.reason
}

func faultf(code ua.StatusCode, format string, args ...any) *fault {
	return &fault{code: code, reason: fmt.Sprintf(format, args...)}
}

// insecure is the fault of a failed security check: the peer learns nothing of why (Part 6, 6.7.7).
func insecure(format string, args ...any) *fault {
	return &fault{code: ua.StatusBadSecurityChecksFailed, log: fmt.Sprintf(format, args...)}
}

// untrusted is the fault of a certificate that was refused.
func untrusted(err error) *fault {
	var e *pki.Error
	if !errors.As(err, &e) {
		return insecure("%v", err)
	}
	f := &fault{code: e.PeerCode(), log: e.Text}
	if f.code == e.Code {
		f.reason = e.Text
	}
	return f
}
