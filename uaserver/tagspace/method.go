package tagspace

import (
	"context"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// methods are what can be done with a device, by field number in a node's Token, counted from firstMethod.
var methods = [...]struct {
	name, description string
	op                tag.Op
}{
	{"$Poll", "Reads all tags of the device now.", tag.Poll},
	{"$ResetCounters", "Begins the counters of the device anew.", tag.ResetCounters},
	{"$Disable", "Takes the device off scan for maintenance: its tags are BadOutOfService.", tag.Disable},
	{"$Enable", "Puts the device on scan again.", tag.Enable},
}

const firstMethod = 0xE0

// methods adds the methods of a device with that number.
func (p *part) methods(s *Space, device uint32, name string, parent wire.NodeID) {
	for i, m := range methods {
		n := &address.Node{
			ID: wire.TextID(plant, name+"."+m.name), BrowseName: m.name, Token: device<<8 | uint32(firstMethod+i),
			Attributes: &address.Attributes{
				Class: ua.NodeClassMethod, BrowseNS: plant, More: described(m.description), Executable: true, Manager: s,
			},
		}
		p.nodes = append(p.nodes, n)
		p.link(parent, id.HasComponent, n.ID)
	}
}

// Call implements address.Caller: the methods of devices, none of which has inputs. It returns when the device has done it.
func (s *Space) Call(ctx context.Context, calls []address.CallItem) {
	v := s.now.Load()
	for i := range calls {
		it := &calls[i]
		device, field := it.Method.Token>>8, it.Method.Token&0xFF
		switch {
		case int(device) >= len(v.devices) || v.devices[device] == "" || field < firstMethod || int(field-firstMethod) >= len(methods):
			it.Status = tag.BadNodeIDUnknown // the device went
		case s.field == nil:
			it.Status = tag.BadNoCommunication
		default:
			it.Status = s.field.Operate(ctx, v.devices[device], methods[field-firstMethod].op)
		}
	}
}
