package address

import (
	"context"
	"testing"
	"unsafe"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// TestPermissions: a node that says who may is read, written, found and described by that alone; A10.
func TestPermissions(t *testing.T) {
	s := newSpace(t)
	nodes := folder(t, s, "f", &recorder{}, "free", "setpoint", "secret", "dead")
	nodes[2].Permissions = Permissions{Browse: Everybody, Read: Everybody, Write: Operator | Engineer}
	nodes[3].Permissions = Permissions{Browse: Engineer, Read: Engineer, Write: Engineer}
	nodes[4].Permissions = Permissions{Browse: Nobody, Read: Nobody, Write: Nobody, Call: Nobody}
	general := MayBrowse | MayRead
	both := ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite
	for _, row := range []struct {
		name   string
		node   int
		rights Rights
		read   tag.Status
		write  tag.Status
		user   ua.AccessLevelType // 0: nothing may be seen of it
		shown  bool
	}{
		{"no permissions, what anybody may", 1, general, tag.Good, tag.BadUserAccessDenied, ua.AccessLevelTypeCurrentRead, true},
		{"no permissions, a writer", 1, (general | MayWrite).With(Observer), tag.Good, tag.Good, both, true},
		{"setpoint, observer", 2, general.With(Observer), tag.Good, tag.BadUserAccessDenied, ua.AccessLevelTypeCurrentRead, true},
		{"setpoint, observer who may write elsewhere", 2, (general | MayWrite).With(Observer), tag.Good, tag.BadUserAccessDenied, ua.AccessLevelTypeCurrentRead, true},
		{"setpoint, operator", 2, general.With(Operator), tag.Good, tag.Good, both, true},
		{"setpoint, two roles", 2, general.With(Observer | Engineer), tag.Good, tag.Good, both, true},
		{"secret, operator", 3, (general | MayWrite).With(Operator), tag.BadUserAccessDenied, tag.BadUserAccessDenied, 0, false},
		{"secret, engineer", 3, general.With(Engineer), tag.Good, tag.Good, both, true},
		{"secret, no role", 3, general | MayWrite, tag.BadUserAccessDenied, tag.BadUserAccessDenied, 0, false},
		{"nobody's, everybody", 4, (general | MayWrite).With(Everybody), tag.BadUserAccessDenied, tag.BadUserAccessDenied, 0, false},
	} {
		n := nodes[row.node]
		reads := []ReadItem{{Node: n, Attribute: ua.AttributeIDValue}, {Node: n, Attribute: ua.AttributeIDUserAccessLevel}}
		s.Read(context.Background(), row.rights, reads)
		writes := []WriteItem{{Node: n, Attribute: ua.AttributeIDValue, Value: wire.DataValue{Value: tag.Of(1.5)}}}
		s.Write(context.Background(), row.rights, writes)
		if reads[0].Result.Status != row.read || writes[0].Status != row.write {
			t.Errorf("%s: read %v, write %v; want %v and %v", row.name, reads[0].Result.Status, writes[0].Status, row.read, row.write)
		}
		if got := ua.AccessLevelType(reads[1].Result.Value.Bits()); got != row.user || (row.user == 0) != (reads[1].Result.Status == tag.BadUserAccessDenied) {
			t.Errorf("%s: UserAccessLevel %#x (%v), want %#x", row.name, got, reads[1].Result.Status, row.user)
		}
		shown := false
		b, count, _, _ := s.Browse(nil, &BrowseDescription{Node: nodes[0].ID, Results: 63, Roles: row.rights.Roles()}, Position{}, 0)
		for _, r := range decode(t, b, count) {
			shown = shown || r.node == n.ID
		}
		_, _, _, status := s.Browse(nil, &BrowseDescription{Node: n.ID, Direction: ua.BrowseDirectionBoth, Roles: row.rights.Roles()}, Position{}, 0)
		if shown != row.shown || (status == ua.StatusOK) != row.shown {
			t.Errorf("%s: shown %v, browsed %v; want %v", row.name, shown, status, row.shown)
		}
	}
}

// TestNodeSize: a hundred thousand tags are a hundred thousand nodes, each a cache line.
func TestNodeSize(t *testing.T) {
	if n := unsafe.Sizeof(Node{}); n != 64 {
		t.Errorf("a node takes %d bytes", n)
	}
}
