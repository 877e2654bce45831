package probe

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"edged/drivers/port"
)

// Burst is what came in one go: bytes with silence before and after.
type Burst struct {
	At   time.Duration // since listening began
	Data []byte
}

const (
	// What comes after a silence of this long is another burst.
	burstGap = 30 * time.Millisecond
	// So much is kept: a talker that never stops ends the listening.
	mostHeard = 64 << 10
	mostBurst = 4096
	// How long one read waits: an interruption is noticed within this time.
	patience = 20 * time.Millisecond
)

// Listen hears what comes by itself, and sends nothing. It ends after d, or when enough was heard. The other end closing
// is no error once something came.
func Listen(ctx context.Context, from port.Opener, d time.Duration, tell func(Burst)) (heard []Burst, err error) {
	p, err := from.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	began, last := time.Now(), time.Time{}
	var burst Burst
	total := 0
	done := func() {
		if len(burst.Data) > 0 {
			heard = append(heard, burst)
			tell(burst)
			burst = Burst{}
		}
	}
	defer done()
	buf := make([]byte, 1024)
	for total < mostHeard && time.Since(began) < d && ctx.Err() == nil {
		if err := p.SetDeadline(time.Now().Add(patience)); err != nil {
			return heard, err
		}
		n, err := p.Read(buf)
		now := time.Now()
		if len(burst.Data) > 0 && (now.Sub(last) > burstGap || len(burst.Data) >= mostBurst) {
			done()
		}
		if n > 0 {
			if len(burst.Data) == 0 {
				burst.At = now.Sub(began)
			}
			burst.Data = append(burst.Data, buf[:n]...)
			last, total = now, total+n
		}
		switch {
		case err == nil, port.IsTimeout(err):
		case errors.Is(err, io.EOF) && total > 0:
			return heard, nil
		case errors.Is(err, io.EOF):
			return heard, fmt.Errorf("the other end has closed before anything came: %w", err)
		default:
			return heard, err
		}
	}
	return heard, ctx.Err()
}

// All is everything that was heard.
func All(heard []Burst) []byte {
	var all []byte
	for _, b := range heard {
		all = append(all, b.Data...)
	}
	return all
}

const dumpWidth = 16

// Dump is the burst in lines of hexadecimal digits and text.
func (b Burst) Dump() string {
	var out strings.Builder
	for i := 0; i < len(b.Data); i += dumpWidth {
		part := b.Data[i:min(len(b.Data), i+dumpWidth)]
		at := ""
		if i == 0 {
			at = fmt.Sprintf("%.3fs", b.At.Seconds())
		}
		fmt.Fprintf(&out, "%10s  %-*s  %s\n", at, 3*dumpWidth-1, spaced(part), Printable(part))
	}
	return out.String()
}

func spaced(b []byte) string {
	parts := make([]string, len(b))
	for i := range b {
		parts[i] = hex.EncodeToString(b[i : i+1])
	}
	return strings.Join(parts, " ")
}

// Printable is the ASCII of b, with a dot for whatever else.
func Printable(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if out[i] = c; c < ' ' || c > '~' {
			out[i] = '.'
		}
	}
	return string(out)
}
