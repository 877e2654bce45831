package uaserver

import (
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/uatest"
)

func TestSlowWriteDoesNotBlockTheReader(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Waiting = 2; c.Limits.Request = 5 * time.Second })
	p := f.login(t)
	block := make(chan struct{})
	f.field.mu.Lock()
	f.field.block = block
	f.field.mu.Unlock()
	send := func(hint uint32) uint32 {
		req := writeOf("boiler.code", int16(7))
		req.SetHeader(p.header())
		req.RequestHeader.TimeoutHint = hint
		body, err := uatest.Encode(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(p.number, body); err != nil {
			t.Fatal(err)
		}
		return p.number
	}
	receive := func() (uint32, any) {
		m, err := p.Receive()
		if err != nil {
			t.Fatal(err)
		}
		v, err := uatest.Decode(m.Body)
		if err != nil {
			t.Fatal(err)
		}
		return m.ID, v
	}
	first, second := send(0), send(50)
	third := send(0)
	if id, v := receive(); id != third || v.(ua.Response).Header().ServiceResult != statusBadServerTooBusy {
		t.Errorf("the third waiting request: %d %T", id, v)
	}
	if id, v := receive(); id != second || v.(*ua.WriteResponse).Results[0] != ua.StatusBadTimeout {
		t.Errorf("a TimeoutHint that passed: %d %+v", id, v)
	}
	if v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.counter"))}}); v[0].Status != ua.StatusGood {
		t.Errorf("a read beside it: %v", v[0].Status)
	}
	if n := f.Stats().Waiting; n != 1 {
		t.Errorf("%d requests wait", n)
	}
	close(block)
	if id, v := receive(); id != first || v.(*ua.WriteResponse).Results[0] != ua.StatusGood {
		t.Errorf("the write: %d %+v", id, v)
	}
	p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
	if n := len(f.field.commands()); n != 1 {
		t.Errorf("%d commands were executed", n)
	}
}

func TestCancel(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	f.field.mu.Lock()
	f.field.block = make(chan struct{})
	f.field.mu.Unlock()
	req := writeOf("boiler.code", int16(7))
	req.SetHeader(p.header())
	body, _ := uatest.Encode(req)
	if err := p.Send(p.number, body); err != nil {
		t.Fatal(err)
	}
	cancel := &ua.CancelRequest{RequestHandle: req.RequestHeader.RequestHandle}
	cancel.SetHeader(p.header())
	body, _ = uatest.Encode(cancel)
	if err := p.Send(p.number, body); err != nil {
		t.Fatal(err)
	}
	var seen []any
	for range 2 {
		m, err := p.Receive()
		if err != nil {
			t.Fatal(err)
		}
		v, _ := uatest.Decode(m.Body)
		seen = append(seen, v)
	}
	if !slices.ContainsFunc(seen, func(v any) bool { r, ok := v.(*ua.CancelResponse); return ok && r.CancelCount == 1 }) {
		t.Errorf("5.6.5: %+v", seen)
	}
	if !slices.ContainsFunc(seen, func(v any) bool { r, ok := v.(*ua.WriteResponse); return ok && r.Results[0] == ua.StatusBadTimeout }) {
		t.Errorf("the write: %+v", seen)
	}
	if resp := must[*ua.CancelResponse](p, &ua.CancelRequest{RequestHandle: 9}); resp.CancelCount != 0 {
		t.Errorf("an unknown handle cancelled %d", resp.CancelCount)
	}
}

func TestWritesOfOneClientKeepTheirOrder(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	const rounds, burst = 20, 10
	for round := range rounds {
		var want []tag.Value
		for i := range burst { // all in flight at once
			v := int16(round*burst + i)
			want = append(want, tag.Of(v))
			p.post(writeOf("boiler.code", v))
		}
		for range burst {
			if _, r := p.receive(); r.(*ua.WriteResponse).Results[0] != ua.StatusGood {
				t.Fatalf("%+v", r)
			}
		}
		f.field.mu.Lock()
		got := f.field.queued
		f.field.queued = nil
		f.field.mu.Unlock()
		if !slices.EqualFunc(got, want, tag.Value.Equal) {
			t.Fatalf("the field side got %v, want %v", got, want)
		}
	}
}

func TestCancelOfPublishRequests(t *testing.T) {
	f := start(t, nil)
	p := f.login(t)
	must[*ua.CreateSubscriptionResponse](p, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 20, RequestedLifetimeCount: 9000, RequestedMaxKeepAliveCount: 3000,
	})
	ask := func() uint32 {
		req := &ua.PublishRequest{}
		p.post(req)
		return req.RequestHeader.RequestHandle
	}
	ask()
	second := ask()
	p.receive() // the first keep-alive
	p.post(&ua.CancelRequest{RequestHandle: second})
	var faults, cancelled int
	for range 2 {
		_, r := p.receive()
		switch v := r.(type) {
		case *ua.ServiceFault:
			if v.ResponseHeader.ServiceResult == ua.StatusBadRequestCancelledByClient && v.ResponseHeader.RequestHandle == second {
				faults++
			}
		case *ua.CancelResponse:
			cancelled += int(v.CancelCount)
		}
	}
	if faults != 1 || cancelled != 1 {
		t.Errorf("5.7.5: %d faults, CancelCount %d", faults, cancelled)
	}
}
