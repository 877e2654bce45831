package main

import (
	"context"
	"slices"

	"edged/uaserver"
)

// maxReverse is the most clients that the gateway connects to by itself.
const maxReverse = 32

// reverse reads the URLs of clients that the gateway connects to.
func (r *siteReader) reverse(n *node) []string {
	var out []string
	for _, v := range r.list(n, "server: reverse") {
		if s, ok := r.sketching(); ok {
			s.Type, s.Pattern = typeText, `^[Oo][Pp][Cc]\.[Tt][Cc][Pp]://[^/@?#]+:[0-9]+(/[^?#]*)?$`
			continue
		}
		url := r.text(v, "server: reverse", maxName)
		if v.kind != scalarNode || url == "" && v.text != "" {
			continue // text has told why
		}
		switch _, err := uaserver.ClientAddress(url); {
		case err != nil:
			r.fault(v, "server: reverse has %q: %v", clip(url), err)
		case slices.Contains(out, url):
			r.fault(v, "server: reverse names %s twice: remove one", clip(url))
		case len(out) == maxReverse:
			r.fault(v, "server: reverse has more than %d clients: remove some", maxReverse)
			return out
		default:
			out = append(out, url)
		}
	}
	return out
}

// reverse connects to the clients of the site until ctx ends. It begins when the server listens, whose port it tells.
func (g *gateway) reverse(ctx context.Context) {
	clients := g.site.Server.Reverse
	if len(clients) == 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-g.opcua.up:
	}
	if err := g.server.ReverseConnect(ctx, clients); err != nil {
		g.log.Error("reverse connect", "error", err)
	}
}
