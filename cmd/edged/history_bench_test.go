package main

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// BenchmarkHistoryReadDay reads one day of 20 tags at 1 s, raw, from the store through the server to a client that looks at
// nothing but the number of values. The client is a part of the time.
func BenchmarkHistoryReadDay(b *testing.B) {
	const tags, day = 20, 86_400
	s, err := parseSite("site.yaml", []byte(siteHead+"devices: [{name: d, driver: memory, tags: [{name: \"m{n}\", repeat: 20, type: float32, history: true}]}]\n"))
	if err != nil {
		b.Fatal(err)
	}
	g, err := newGateway(s, b.TempDir(), newLog(&logBook{}, "text", "error"))
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		g.run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	<-g.opcua.up
	began := tag.TimeOf(time.Now().Add(-24 * time.Hour))
	batch := make([]tag.Sample, tags)
	for i := range day {
		for j := range batch {
			value := float32(math.Round(500+200*math.Sin(float64(i+100*j)/900)*10)) / 10
			batch[j] = tag.Sample{Ref: tag.Ref(j + 1), Value: tag.Of(value), At: began.Add(time.Duration(i) * time.Second)}
		}
		g.recorder.store.Publish(batch)
		if i%3600 == 3599 {
			if err := g.recorder.store.Commit(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	kept := g.recorder.stats().Samples
	p := benchPeer(b, strings.TrimPrefix(g.endpoint(), "opc.tcp://"))
	raw := &ua.ReadRawModifiedDetails{StartTime: began.Time(), EndTime: began.Add(24 * time.Hour).Time()}
	total := 0
	b.ReportAllocs()
	for b.Loop() {
		for _, def := range s.Tags {
			n := &ua.HistoryReadValueID{NodeID: tagID("d." + def.Name), DataEncoding: &ua.QualifiedName{}}
			for {
				count, point := p.history(raw, n)
				total += count
				if n.ContinuationPoint = point; len(point) == 0 {
					break
				}
			}
		}
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(float64(total)/float64(b.N), "samples/op")
	b.ReportMetric(float64(kept), "recorded")
}

// historyPeer is a client that speaks the wire.
type historyPeer struct {
	*uatest.Client
	b      *testing.B
	token  *ua.NodeID
	number uint32
}

func (p *historyPeer) header() *ua.RequestHeader {
	p.number++
	h := &ua.RequestHeader{AuthenticationToken: p.token, Timestamp: time.Now(), RequestHandle: p.number, TimeoutHint: 60_000, AdditionalHeader: ua.NewExtensionObject(nil)}
	if h.AuthenticationToken == nil {
		h.AuthenticationToken = ua.NewTwoByteNodeID(0)
	}
	return h
}

func (p *historyPeer) send(req ua.Request) []byte {
	req.SetHeader(p.header())
	body, err := uatest.Encode(req)
	if err == nil {
		err = p.Send(p.number, body)
	}
	if err != nil {
		p.b.Fatal(err)
	}
	m, err := p.Receive()
	if err != nil {
		p.b.Fatal(err)
	}
	return m.Body
}

func benchPeer(b *testing.B, address string) *historyPeer {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	c, err := uatest.Connect(conn, uatest.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := &historyPeer{Client: c, b: b}
	created, err := uatest.Decode(p.send(&ua.CreateSessionRequest{ClientDescription: &ua.ApplicationDescription{ApplicationName: &ua.LocalizedText{}},
		ClientNonce: make([]byte, 32), RequestedSessionTimeout: 600_000}))
	if err != nil {
		b.Fatal(err)
	}
	p.token = created.(*ua.CreateSessionResponse).AuthenticationToken
	p.send(&ua.ActivateSessionRequest{ClientSignature: &ua.SignatureData{}, UserTokenSignature: &ua.SignatureData{},
		UserIdentityToken: ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: "anonymous"})})
	return p
}

// history returns how many values came, and where it goes on.
func (p *historyPeer) history(details any, n *ua.HistoryReadValueID) (count int, point []byte) {
	body := p.send(&ua.HistoryReadRequest{HistoryReadDetails: ua.NewExtensionObject(details), NodesToRead: []*ua.HistoryReadValueID{n}})
	r := wire.NewReader(body[4+24+4:]) // type id, ResponseHeader, number of results
	if status := r.Uint32(); status != 0 {
		p.b.Fatalf("status %#x", status)
	}
	point = append([]byte(nil), r.ByteString()...)
	x := r.Extension()
	data := wire.NewReader(x.Body)
	return int(data.Uint32()), point
}
