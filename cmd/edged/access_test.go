package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// logIn opens a session as a user on the first endpoint.
func logIn(t *testing.T, url, user, password string) *opcua.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	endpoints, err := opcua.GetEndpoints(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := opcua.NewClient(url, opcua.SecurityFromEndpoint(endpoints[0], ua.UserTokenTypeUserName),
		opcua.AuthUsername(user, password), opcua.AutoReconnect(false), opcua.RequestTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	uatest.AwaitPublishLoop(t, c)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// TestRightsOfLivingSessions: roles, rights and users that a saved file changes are those of the sessions that there are,
// in their subscriptions too; who is removed has no session any more.
func TestRightsOfLivingSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yaml")
	site := func(security string) string {
		return "server: {listen: \"127.0.0.1:0\", security: {policies: [None]" + security + "}}\nweb: {listen: none}\n" + plantOfUsers
	}
	write(t, path, site(", anonymous: write"))
	password := filepath.Join(filepath.Dir(path), "password")
	write(t, password, "open sesame\n")
	users := func(args ...string) {
		t.Helper()
		if status, _, stderr := command(t, append(append([]string{"users"}, args...), "--config", path)...); status != exitDone {
			t.Fatal(stderr)
		}
	}
	users("add", "anna", "--role", "operator", "--password-file", password)
	users("add", "otto", "--role", "operator", "--password-file", password)
	g, _, _ := startFile(t, path)
	url := endpointUp(t, g)
	anna, otto := logIn(t, url, "anna", "open sesame"), logIn(t, url, "otto", "open sesame")
	guest := connect(t, url, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	const level, setpoint = "boiler.zone.1.level", "boiler.setpoint"
	var heard listener
	subscribe(t, anna, 20*time.Millisecond, 5, []*ua.NodeID{tagID(level), tagID(setpoint)}, heard.hear)
	if a, b := writeTag(t, anna, level, 1.5), writeTag(t, guest, setpoint, 1.0); a != ua.StatusGood || b != ua.StatusGood {
		t.Fatalf("anna %v, guest %v", a, b)
	}
	says := func(what string, want ua.StatusCode, of func() ua.StatusCode) {
		t.Helper()
		eventually(t, what+": "+want.Error(), func() bool { return of() == want })
	}
	item := func(i int) func() ua.StatusCode {
		return func() ua.StatusCode {
			if v := heard.last(i); v != nil {
				return v.Status
			}
			return ua.StatusBadNoData
		}
	}

	write(t, path, site(`, anonymous: read, roles: {operator: {read: [boiler.setpoint], write: [boiler.setpoint]}}`))
	says("5.13.2.1 an item that may be read no more", ua.StatusBadUserAccessDenied, item(0))
	says("and a read", ua.StatusBadUserAccessDenied, func() ua.StatusCode { return readTag(t, anna, level).Status })
	says("a write of the guest", ua.StatusBadUserAccessDenied, func() ua.StatusCode { return writeTag(t, guest, setpoint, 2.0) })
	if a, b := writeTag(t, anna, setpoint, 3.0), writeTag(t, anna, level, 3.0); a != ua.StatusGood || b != ua.StatusBadUserAccessDenied {
		t.Errorf("anna writes what her role may: %v, and what it may not: %v", a, b)
	}
	eventually(t, "the other item goes on", func() bool { v := heard.last(1); return v.Status == ua.StatusGood && v.Value.Value() == 3.0 })

	write(t, path, site(""))
	ends := func(c *opcua.Client) func() bool {
		return func() bool {
			_, err := c.Read(t.Context(), &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: tagID(setpoint), AttributeID: ua.AttributeIDValue}}})
			return errors.Is(err, ua.StatusBadSessionIDInvalid)
		}
	}
	eventually(t, "guests are let in no more", ends(guest))
	says("5.13.2.1 an item that may be read again", ua.StatusGood, item(0))

	users("remove", "otto")
	eventually(t, "who is removed has no session", ends(otto))
	if st := writeTag(t, anna, level, 4.0); st != ua.StatusGood {
		t.Errorf("anna is there: %v", st)
	}

	write(t, path, site(", users: none, anonymous: read"))
	eventually(t, "there are no users any more", ends(anna))
	connect(t, url, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
}
