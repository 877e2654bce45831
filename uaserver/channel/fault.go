package channel

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

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
	kind   string        // what tells causes with one code apart
}

func (f *fault) Error() string {
	if f.log != "" {
		return f.log
	}
	return f.reason
}

func faultf(code ua.StatusCode, format string, args ...any) *fault {
	return &fault{code: code, reason: fmt.Sprintf(format, args...), kind: format}
}

// insecure is the fault of a failed security check: the peer learns nothing of why (Part 6, 6.7.7).
func insecure(format string, args ...any) *fault {
	return &fault{code: ua.StatusBadSecurityChecksFailed, log: fmt.Sprintf(format, args...), kind: format}
}

// untrusted is the fault of a certificate that was refused.
func untrusted(err error) *fault {
	var e *pki.Error
	if !errors.As(err, &e) {
		return insecure("%v", err)
	}
	f := &fault{code: e.PeerCode(), log: e.Text, kind: codeName(e.Code)}
	if f.code == e.Code {
		f.reason = e.Text
	}
	return f
}

const (
	refusalEvery = time.Minute
	maxRefusals  = 1024 // remembered; when there are more, all are forgotten and told again
)

// refusals keeps a client that is refused again and again from filling the log: each address and cause is told once a
// minute, with how often it came meanwhile. Causes of which a peer hears the same are told apart here: a certificate that
// nobody trusts and a wrong key are not mended alike.
type refusals struct {
	mu   sync.Mutex // guards told
	told map[refusal]*repetition
}

type refusal struct {
	addr netip.Addr
	code ua.StatusCode
	kind string
}

type repetition struct {
	last time.Time
	more int // since then
}

func (r *refusals) log(log *slog.Logger, addr netip.Addr, f *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, now := refusal{addr, f.code, f.kind}, time.Now()
	t := r.told[k]
	if t != nil && now.Sub(t.last) < refusalEvery {
		t.more++
		return
	}
	if r.told == nil || len(r.told) >= maxRefusals {
		r.told = map[refusal]*repetition{}
	}
	r.told[k] = &repetition{last: now}
	more := 0
	if t != nil {
		more = t.more
	}
	log.Warn("connection refused or broken off", "code", codeName(f.code), "reason", f.Error(), "again", more)
}

func codeName(code ua.StatusCode) string {
	if d, ok := ua.StatusCodes[code]; ok {
		return strings.TrimPrefix(d.Name, "Status")
	}
	return fmt.Sprintf("0x%08X", uint32(code))
}
