package dashboard

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// bounded is a listener with so many open connections at most. When there are more, the oldest whose request is not
// being answered gives way: peers that open connections and say nothing keep nobody out.
type bounded struct {
	net.Listener
	most int

	mu   sync.Mutex // guards open, and busy of each place
	open []*place   // oldest first
}

// place is one connection.
type place struct {
	net.Conn
	of   *bounded
	busy bool // a request is being answered
}

func newBounded(l net.Listener, n int) *bounded { return &bounded{Listener: l, most: n} }

// Accept waits for a connection. One that comes while all others are being answered is closed.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &place{Conn: c, of: b}
		old := b.enter(p)
		if old != nil {
			old.Conn.Close()
		}
		if old != p {
			return p, nil
		}
	}
}

// enter adds a connection, and returns the one that gives way to it: p itself if no other can.
func (b *bounded) enter(p *place) (old *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= b.most {
		i := slices.IndexFunc(b.open, func(o *place) bool { return !o.busy })
		if i < 0 {
			return p
		}
		old = b.open[i]
		b.open = slices.Delete(b.open, i, i+1)
	}
	b.open = append(b.open, p)
	return old
}

// Close closes the connection.
func (p *place) Close() error {
	b := p.of
	b.mu.Lock()
	if i := slices.Index(b.open, p); i >= 0 {
		b.open = slices.Delete(b.open, i, i+1)
	}
	b.mu.Unlock()
	return p.Conn.Close()
}

func (p *place) setBusy(busy bool) {
	p.of.mu.Lock()
	p.busy = busy
	p.of.mu.Unlock()
}

// placeKey is what the place of a request's connection is kept under in its context.
type placeKey struct{}

// withPlace is http.Server.ConnContext.
func withPlace(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, c)
}

// answering keeps a connection from giving way while its request is answered.
func answering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(placeKey{}).(*place); ok {
			p.setBusy(true)
			defer p.setBusy(false)
		}
		next.ServeHTTP(w, r)
	})
}
