package uaserver

import (
	"math"
	"net"
	"runtime"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// secureSession connects with a secured session, and forgets all of the client but its connection, which the caller closes.
func (f *fixture) secureSession(t *testing.T, o uatest.Options) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := uatest.Connect(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Client: c, t: t, token: ua.NewTwoByteNodeID(0)}
	req := createRequest()
	req.ClientCertificate = o.Identity.DER
	resp := must[*ua.CreateSessionResponse](p, req)
	p.token = resp.AuthenticationToken
	if code := p.signed(t, o.Identity, f.own.DER(), resp.ServerNonce); code != ua.StatusGood {
		t.Fatal(code)
	}
	p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
	return conn
}

// held is what is in use of heap and stacks, after what is unused was given back: a stack shrinks by half a collection.
func held() int64 {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// socketSize is what one end of a TCP connection holds.
func socketSize(t *testing.T) int64 {
	t.Helper()
	const n = 100
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all := make([]net.Conn, 0, 2*n)
	before := held()
	for range n {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, client, server)
	}
	size := (held() - before) / int64(len(all))
	for _, c := range all {
		c.Close()
	}
	return size
}

// TestIdleSecuredSession bounds what an idle secured connection with its session holds. Maps and stacks grow by leaps, so
// that the smallest of a few measurements counts.
func TestIdleSecuredSession(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	const n, tries = 100, 6
	// What is promised is 10 KiB. Maps that happen to grow add some hundred bytes, for which there is room.
	const most = 10*1024 - 512
	socket := socketSize(t)
	f := start(t, func(c *Config) { c.Limits.Sessions, c.Channel.Connections = (tries+1)*n, (tries+1)*n })
	o := uatest.Options{URL: "opc.tcp://" + f.addr}
	f.secured(t)(&o)
	conns := make([]net.Conn, 0, tries*n+10)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	add := func(n int) {
		for range n {
			conns = append(conns, f.secureSession(t, o))
		}
	}
	add(10) // what is made once
	each := int64(math.MaxInt64)
	for i := 0; i < tries && each > most; i++ {
		before := held()
		add(n)
		each = min(each, (held()-before)/n-socket)
		t.Logf("%d bytes a connection with its session, without the %d of the client's socket", each, socket)
	}
	if each > most {
		t.Errorf("an idle secured connection with its session holds %d bytes, more than %d", each, most)
	}
}
