package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// TestReverseConnect: the gateway comes to a client of its site file, and the client reads over that connection; a client
// that is not there is told once.
func TestReverseConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nobody := freePort(t)
	site := strings.Replace(siteHead, "security:", "application_uri: \"urn:edged:reverse\", reverse: [\"opc.tcp://"+l.Addr().String()+"\", \"opc.tcp://"+nobody+"\"], security:", 1)
	g, book := startSite(t, site+oneDevice)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(endpointUp(t, g), "opc.tcp://"))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	c, err := uatest.New(conn, uatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	uri, url, err := c.ReverseHello()
	if err != nil || uri != "urn:edged:reverse" || !strings.HasSuffix(url, ":"+port) {
		t.Fatalf("ReverseHello of %s at %s, %v", uri, url, err)
	}
	c.Options.URL = url
	if err := c.Hello(); err != nil {
		t.Fatal(err)
	}
	if err := c.Open(ua.SecurityTokenRequestTypeIssue); err != nil {
		t.Fatal(err)
	}
	eventually(t, "word of the client that is there", func() bool { return book.count("a connection is ready at the client") == 1 })
	eventually(t, "word of the client that is not", func() bool { return book.count("client is not reached") == 1 })
	if !strings.Contains(book.String(), nobody) {
		t.Errorf("the log does not name %s: %s", nobody, book)
	}
}
