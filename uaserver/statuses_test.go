package uaserver

import (
	"math"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/uatest"
	"edged/uaserver/wire"
)

// statusRow asks for one status of one service. ask sends the request, and returns the status of its last operation or,
// where the whole call was refused, of the call.
type statusRow struct {
	why  string
	want ua.StatusCode
	ask  func(p *peer) ua.StatusCode
}

// last is the status of the last operation of a response, or of the call.
func last(p *peer, req ua.Request) ua.StatusCode {
	p.t.Helper()
	resp, code := p.call(req)
	if code != ua.StatusGood {
		return code
	}
	switch r := resp.(type) {
	case *ua.ReadResponse:
		return r.Results[len(r.Results)-1].Status
	case *ua.WriteResponse:
		return r.Results[len(r.Results)-1]
	case *ua.BrowseResponse:
		return r.Results[len(r.Results)-1].StatusCode
	case *ua.BrowseNextResponse:
		return r.Results[len(r.Results)-1].StatusCode
	case *ua.TranslateBrowsePathsToNodeIDsResponse:
		return r.Results[len(r.Results)-1].StatusCode
	}
	return code
}

// asking makes a row's ask of a request that is made anew each time.
func asking(req func() ua.Request) func(*peer) ua.StatusCode {
	return func(p *peer) ua.StatusCode { return last(p, req()) }
}

func reading1(name string, change func(*ua.ReadValueID)) func(*peer) ua.StatusCode {
	return asking(func() ua.Request {
		v := value(plantID(name))
		if change != nil {
			change(v)
		}
		return &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{v}}
	})
}

func writing1(name string, v any, change func(*ua.WriteValue)) func(*peer) ua.StatusCode {
	return asking(func() ua.Request {
		w := writeOf(name, v)
		if change != nil {
			change(w.NodesToWrite[0])
		}
		return w
	})
}

func browsing1(change func(*ua.BrowseDescription)) func(*peer) ua.StatusCode {
	return asking(func() ua.Request {
		d := browseOf(plantID("boiler"))
		change(d)
		return browseRequest(0, d)
	})
}

func translating1(path func() *ua.BrowsePath) func(*peer) ua.StatusCode {
	return asking(func() ua.Request {
		return &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{path()}}
	})
}

func times[T any](n int, v T) (out []T) {
	for range n {
		out = append(out, v)
	}
	return out
}

// tooMany is one operation more than the server of TestStatusCodes takes.
const tooMany = 41

var readStatuses = []statusRow{
	{"a value", ua.StatusGood, reading1("boiler.code", nil)},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return &ua.ReadRequest{} })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request {
		return &ua.ReadRequest{NodesToRead: times(tooMany, value(plantID("boiler.code")))}
	})},
	{"maxAge below 0", ua.StatusBadMaxAgeInvalid, asking(func() ua.Request {
		return &ua.ReadRequest{MaxAge: math.Inf(-1), NodesToRead: times(1, value(plantID("boiler.code")))}
	})},
	{"TimestampsToReturn 4", ua.StatusBadTimestampsToReturnInvalid, asking(func() ua.Request {
		return &ua.ReadRequest{TimestampsToReturn: 4, NodesToRead: times(1, value(plantID("boiler.code")))}
	})},
	{"no such node", ua.StatusBadNodeIDUnknown, reading1("nobody", nil)},
	{"no such attribute", ua.StatusBadAttributeIDInvalid, reading1("boiler.code", func(v *ua.ReadValueID) { v.AttributeID = 99 })},
	{"attribute 0", ua.StatusBadAttributeIDInvalid, reading1("boiler.code", func(v *ua.ReadValueID) { v.AttributeID = 0 })},
	{"not readable", ua.StatusBadNotReadable, reading1("", func(v *ua.ReadValueID) { v.NodeID = ua.NewStringNodeID(1, "deaf") })},
	{"not for this user", ua.StatusBadUserAccessDenied, reading1("", func(v *ua.ReadValueID) { v.NodeID = ua.NewNumericNodeID(0, securityArray) })},
	{"a range that is none", ua.StatusBadIndexRangeInvalid, reading1("boiler.curve", func(v *ua.ReadValueID) { v.IndexRange = "2:1" })},
	{"a range beyond the end", ua.StatusBadIndexRangeNoData, reading1("boiler.curve", func(v *ua.ReadValueID) { v.IndexRange = "9" })},
	{"a dimension too many", ua.StatusBadIndexRangeNoData, reading1("boiler.curve", func(v *ua.ReadValueID) { v.IndexRange = "0,0" })},
	{"a block of a matrix", ua.StatusGood, reading1("", func(v *ua.ReadValueID) { v.NodeID, v.IndexRange = ua.NewStringNodeID(1, "matrix"), "1,0:1" })},
	{"a dimension too few", ua.StatusBadIndexRangeNoData, reading1("", func(v *ua.ReadValueID) { v.NodeID, v.IndexRange = ua.NewStringNodeID(1, "matrix"), "1" })},
	{"no such encoding", ua.StatusBadDataEncodingInvalid, reading1("boiler.code", func(v *ua.ReadValueID) { v.DataEncoding = &ua.QualifiedName{Name: "x"} })},
	{"an encoding that is not served", ua.StatusBadDataEncodingUnsupported, reading1("boiler.code", func(v *ua.ReadValueID) { v.DataEncoding = &ua.QualifiedName{Name: "Default XML"} })},
	{"a device that is silent", ua.StatusBadNoCommunication, reading1("dead.level", nil)},
	{"a device that never answered", ua.StatusBadWaitingForInitialData, reading1("boiler.$id.Model", nil)},
	{"another's session", ua.StatusBadSessionIDInvalid, func(p *peer) ua.StatusCode {
		stranger := *p
		stranger.token = ua.NewByteStringNodeID(0, make([]byte, 32))
		defer func() { p.number = stranger.number }()
		return last(&stranger, &ua.ReadRequest{NodesToRead: times(1, value(plantID("boiler.code")))})
	}},
}

var writeStatuses = []statusRow{
	{"a value", ua.StatusGood, writing1("boiler.code", int16(1), nil)},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return &ua.WriteRequest{} })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request {
		return &ua.WriteRequest{NodesToWrite: times(tooMany, writeOf("boiler.code", int16(1)).NodesToWrite[0])}
	})},
	{"no such node", ua.StatusBadNodeIDUnknown, writing1("nobody", int16(1), nil)},
	{"no such attribute", ua.StatusBadAttributeIDInvalid, writing1("boiler.code", int16(1), func(w *ua.WriteValue) { w.AttributeID = 99 })},
	{"another attribute", ua.StatusBadNotWritable, writing1("boiler.code", "x", func(w *ua.WriteValue) { w.AttributeID = ua.AttributeIDDescription })},
	{"access", ua.StatusBadNotWritable, writing1("boiler.counter", uint32(1), nil)},
	{"type", ua.StatusBadTypeMismatch, writing1("boiler.code", int32(1), nil)},
	{"range", ua.StatusBadOutOfRange, writing1("boiler.setpoint", 121.0, nil)},
	{"a range that is none", ua.StatusBadIndexRangeInvalid, writing1("boiler.curve", []int16{1}, func(w *ua.WriteValue) { w.IndexRange = "-1" })},
	{"a range beyond the end", ua.StatusBadIndexRangeNoData, writing1("boiler.curve", []int16{1}, func(w *ua.WriteValue) { w.IndexRange = "5" })},
	{"more than the range", ua.StatusCode(0x80EA0000) /* BadIndexRangeDataMismatch */, writing1("boiler.curve", []int16{1, 2}, func(w *ua.WriteValue) { w.IndexRange = "1" })},
	{"a timestamp of a device", ua.StatusBadWriteNotSupported, writing1("boiler.code", int16(1), func(w *ua.WriteValue) {
		w.Value.EncodingMask |= ua.DataValueSourceTimestamp
		w.Value.SourceTimestamp = time.Now()
	})},
}

var browseStatuses = []statusRow{
	{"references", ua.StatusGood, browsing1(func(*ua.BrowseDescription) {})},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return browseRequest(0) })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request { return browseRequest(0, times(tooMany, browseOf(plantID("boiler")))...) })},
	{"no such view", ua.StatusBadViewIDUnknown, asking(func() ua.Request {
		r := browseRequest(0, browseOf(plantID("boiler")))
		r.View.ViewID = plantID("boiler")
		return r
	})},
	{"a version and a time of the view", ua.StatusBadViewParameterMismatch, asking(func() ua.Request {
		r := browseRequest(0, browseOf(plantID("boiler")))
		r.View.Timestamp, r.View.ViewVersion = time.Now(), 1
		return r
	})},
	{"no such node", ua.StatusBadNodeIDUnknown, browsing1(func(d *ua.BrowseDescription) { d.NodeID = plantID("nobody") })},
	{"no reference type", ua.StatusBadReferenceTypeIDInvalid, browsing1(func(d *ua.BrowseDescription) { d.ReferenceTypeID = plantID("boiler") })},
	{"direction 3", ua.StatusBadBrowseDirectionInvalid, browsing1(func(d *ua.BrowseDescription) { d.BrowseDirection = 3 })},
	{"too many pauses", ua.StatusBadNoContinuationPoints, asking(func() ua.Request { return browseRequest(1, times(5, browseOf(plantID("scratch")))...) })},
}

var browseNextStatuses = []statusRow{
	{"the rest", ua.StatusGood, func(p *peer) ua.StatusCode {
		r := must[*ua.BrowseResponse](p, browseRequest(1, browseOf(plantID("boiler")))).Results[0]
		return last(p, nextRequest(false, r.ContinuationPoint))
	}},
	{"a release", ua.StatusGood, func(p *peer) ua.StatusCode {
		r := must[*ua.BrowseResponse](p, browseRequest(1, browseOf(plantID("boiler")))).Results[0]
		return last(p, nextRequest(true, r.ContinuationPoint))
	}},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return nextRequest(false) })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request { return nextRequest(false, times(tooMany, []byte{1})...) })},
	{"no such point", ua.StatusBadContinuationPointInvalid, asking(func() ua.Request { return nextRequest(false, []byte{1}) })},
	{"no such point to release", ua.StatusBadContinuationPointInvalid, asking(func() ua.Request { return nextRequest(true, []byte{1}) })},
}

var translateStatuses = []statusRow{
	{"a path", ua.StatusGood, translating1(func() *ua.BrowsePath { return pathOf("Devices", "boiler") })},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return &ua.TranslateBrowsePathsToNodeIDsRequest{} })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request {
		return &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: times(tooMany, pathOf("Devices"))}
	})},
	{"no such start", ua.StatusBadNodeIDUnknown, translating1(func() *ua.BrowsePath {
		b := pathOf("Devices")
		b.StartingNode = plantID("nobody")
		return b
	})},
	{"no steps", ua.StatusBadNothingToDo, translating1(func() *ua.BrowsePath { return pathOf() })},
	{"a step without a name", ua.StatusBadBrowseNameInvalid, translating1(func() *ua.BrowsePath { return pathOf("", "boiler") })},
	{"no reference type", ua.StatusBadReferenceTypeIDInvalid, translating1(func() *ua.BrowsePath {
		b := pathOf("Devices")
		b.RelativePath.Elements[0].ReferenceTypeID = plantID("boiler")
		return b
	})},
	{"no such name", ua.StatusBadNoMatch, translating1(func() *ua.BrowsePath { return pathOf("Devices", "nobody") })},
}

var registerStatuses = []statusRow{
	{"nodes", ua.StatusGood, asking(func() ua.Request { return &ua.RegisterNodesRequest{NodesToRegister: manyIDs(1)} })},
	{"an empty list", ua.StatusBadNothingToDo, asking(func() ua.Request { return &ua.RegisterNodesRequest{} })},
	{"a list too long", ua.StatusBadTooManyOperations, asking(func() ua.Request { return &ua.RegisterNodesRequest{NodesToRegister: manyIDs(tooMany)} })},
}

// TestStatusCodes has a row for each status that the services of nodes can give.
func TestStatusCodes(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Limits.Nodes, c.Limits.Continuations = tooMany-1, 4
		b := []byte{6 | 0xC0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0}
		own := func(name string, access ua.AccessLevelType, v tag.Value) *address.Node {
			return &address.Node{
				ID: wire.TextID(address.NamespaceApplication, name), BrowseName: name, Attributes: &address.Attributes{
					Class: ua.NodeClassVariable, BrowseNS: 1, DataType: wire.NumericID(0, id.Int32), Rank: -2, Access: access, Value: v,
				},
			}
		}
		if err := c.Space.Add([]*address.Node{own("deaf", 0, tag.Of(int32(1))), own("matrix", ua.AccessLevelTypeCurrentRead, tag.OfRaw(b))}, nil); err != nil {
			t.Fatal(err)
		}
	})
	for service, rows := range map[string][]statusRow{
		"Read": readStatuses, "Write": writeStatuses, "Browse": browseStatuses, "BrowseNext": browseNextStatuses,
		"TranslateBrowsePathsToNodeIds": translateStatuses, "RegisterNodes": registerStatuses,
	} {
		p := f.login(t)
		for _, row := range rows {
			if got := row.ask(p); got != row.want {
				t.Errorf("%s, %s: %v, want %v", service, row.why, got, row.want)
			}
		}
	}
}

// TestStatusCodesOfUsers has a row for what a user must not do.
func TestStatusCodesOfUsers(t *testing.T) {
	for _, row := range []struct {
		service string
		rights  address.Rights
		ask     func(p *peer) ua.StatusCode
	}{
		{"Read of a value", address.MayBrowse, reading1("boiler.code", nil)},
		{"Read of a name", address.MayRead, reading1("boiler.code", func(v *ua.ReadValueID) { v.AttributeID = ua.AttributeIDBrowseName })},
		{"Write", address.MayBrowse | address.MayRead, writing1("boiler.code", int16(1), nil)},
		{"Browse", address.MayRead, browsing1(func(*ua.BrowseDescription) {})},
		{"Translate", address.MayRead, translating1(func() *ua.BrowsePath { return pathOf("Devices") })},
	} {
		f := start(t, func(c *Config) { c.Anonymous = row.rights })
		if got := row.ask(f.login(t)); got != ua.StatusBadUserAccessDenied {
			t.Errorf("%s: %v", row.service, got)
		}
	}
}

// TestStatusCodesOfDevices has a row for what a device makes of a write.
func TestStatusCodesOfDevices(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Waiting = 1 })
	p := f.login(t)
	f.field.mu.Lock()
	f.field.block = make(chan struct{})
	f.field.mu.Unlock()
	w := writeOf("boiler.code", int16(1))
	w.SetHeader(p.header())
	w.RequestHeader.TimeoutHint = 200
	body, err := uatest.Encode(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(p.number, body); err != nil {
		t.Fatal(err)
	}
	p.post(writeOf("boiler.code", int16(2)))
	if _, r := p.receive(); r.Header().ServiceResult != statusBadServerTooBusy {
		t.Errorf("too many at once: %v", r.Header().ServiceResult)
	}
	if _, r := p.receive(); r.(*ua.WriteResponse).Results[0] != ua.StatusBadTimeout {
		t.Errorf("sent and not answered: %+v", r)
	}
	f.field.mu.Lock()
	f.field.refuse = tag.BadNoCommunication
	f.field.mu.Unlock()
	if got := writing1("boiler.code", int16(1), nil)(p); got != ua.StatusBadNoCommunication {
		t.Errorf("never sent: %v", got)
	}
}
