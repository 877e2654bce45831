package uaserver

import (
	"testing"

	"github.com/gopcua/opcua/ua"
)

// TestReconnectToFullServer: all sessions are taken and the old connections of their clients hang, as after a power cut of
// a network switch. Each client finds its session again, time after time: a connection whose session has moved on gives way.
func TestReconnectToFullServer(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Sessions, c.Channel.Connections = 3, 6 })
	var clients []*peer
	for range 3 {
		clients = append(clients, f.login(t))
	}
	for round := range 4 {
		for i, old := range clients {
			p := f.dial(t, nil)
			p.token = old.token
			if _, code := p.call(activateRequest(anonymous())); code != ua.StatusGood {
				t.Fatalf("round %d, client %d: %v", round, i, code)
			}
			clients[i] = p
		}
	}
	for i, p := range clients {
		if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})[0]; v.Status != ua.StatusGood {
			t.Errorf("client %d: %v", i, v.Status)
		}
	}
}

// TestConnectionsOfClosedSessions: a peer that closes its sessions and keeps its connections takes no place from others.
func TestConnectionsOfClosedSessions(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Sessions, c.Channel.Connections = 3, 6 })
	for range 10 {
		p := f.login(t)
		must[*ua.CloseSessionResponse](p, &ua.CloseSessionRequest{DeleteSubscriptions: true})
	}
	again := f.login(t)
	must[*ua.CloseSessionResponse](again, &ua.CloseSessionRequest{})
	again.create() // on the same connection
	must[*ua.ActivateSessionResponse](again, activateRequest(anonymous()))
	for range 10 {
		f.dial(t, nil)
	}
	again.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
}
