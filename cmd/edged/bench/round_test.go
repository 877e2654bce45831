package bench

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/channel"
	"edged/uaserver/wire"
)

// scripted answers each request with the statuses of the next row, and with those of the last one from then on.
type scripted struct {
	rows   [][]tag.Status
	served atomic.Int64
}

func (s *scripted) Serve(r *channel.Request) {
	h := r.Body.RequestHeader()
	row := s.rows[min(int(s.served.Add(1)), len(s.rows))-1]
	r.Reply(body(func(b []byte) []byte {
		b = wire.AppendResponseHeader(b, id.ReadResponse_Encoding_DefaultBinary, h.Handle, ua.StatusOK, tag.Now())
		b = wire.AppendUint32(b, uint32(len(row)))
		for _, status := range row {
			b = wire.AppendDataValue(b, &wire.DataValue{Value: tag.Of(int32(1)), Status: status})
		}
		return wire.AppendNull(b)
	}))
}

func (*scripted) Closed(*channel.Channel) {}

// workerOf is a worker with one request of so many nodes, at a server that is scripted.
func workerOf(t *testing.T, items int, rows ...[]tag.Status) *worker {
	t.Helper()
	url, der := channelServer(t, &scripted{rows: rows}, channel.Limits{})
	c, err := peers(t, url, der)["None"].dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.sock.Close() })
	return &worker{c: c, requests: []*request{readRequest(wire.NumericID(1, 1), make([]wire.NodeID, items))}}
}

func TestVerify(t *testing.T) {
	waiting := tag.Status(ua.StatusBadWaitingForInitialData)
	if err := workerOf(t, 2, []tag.Status{tag.Good, waiting}, []tag.Status{waiting, waiting}, []tag.Status{tag.Good, tag.Good}).verify(t.Context()); err != nil {
		t.Errorf("a server that was just started: %v", err)
	}
	err := workerOf(t, 2, []tag.Status{tag.Good, tag.BadTimeout}).verify(t.Context())
	if !errors.Is(err, ua.StatusBadTimeout) || !strings.Contains(err.Error(), "are these the server's nodes?") {
		t.Errorf("a bad value: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitForValues)
	defer cancel()
	if err := workerOf(t, 1, []tag.Status{waiting}).verify(ctx); !errors.Is(err, ua.StatusBadWaitingForInitialData) {
		t.Errorf("a server that never has values: %v", err)
	}
}

// Errors count at any time, answers in the measured time alone.
func TestRun(t *testing.T) {
	w := workerOf(t, 1, []tag.Status{tag.BadTimeout}, []tag.Status{tag.Good}, []tag.Status{tag.Good}, []tag.Status{tag.Good, tag.Good}, []tag.Status{tag.Good})
	w.pause = time.Millisecond
	from := time.Now().Add(150 * time.Millisecond)
	to := from.Add(150 * time.Millisecond)
	w.run(from, to)
	if over := time.Since(to); over < 0 {
		t.Errorf("ended %v too soon", -over)
	}
	if w.errors != 2 || !errors.Is(w.first, ua.StatusBadTimeout) {
		t.Errorf("%d errors, the first %v; want a bad value and a wrong number of results", w.errors, w.first)
	}
	if w.seen.sum == 0 || w.seen.sum > 151 {
		t.Errorf("%d answers in 150 ms with a pause of 1 ms", w.seen.sum)
	}
	w.c.sock.Close()
	w.run(time.Now(), time.Now().Add(time.Hour))
	if w.errors != 3 || !errors.Is(w.first, ua.StatusBadTimeout) {
		t.Errorf("%d errors, want one more: the connection is lost", w.errors)
	}
}

// A server that accepts and says nothing does not keep the bench longer than its context.
func TestCanceledRound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := &bench{cfg: Config{Workload: "harness-browse", URL: "opc.tcp://" + l.Addr().String()}}
	if err := b.plan(); err != nil {
		t.Fatal(err)
	}
	if b.peer, err = newPeer(t.Context(), b.cfg.URL, SecurityNone); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.round(ctx); err == nil || !strings.Contains(err.Error(), "session 1") {
		t.Errorf("error %v", err)
	}
}
