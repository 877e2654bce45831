package address

import (
	"context"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// TestRolePermissions is Part 3, 5.2.9 and 8.55: what each role is told that it may is what the checks let it do.
func TestRolePermissions(t *testing.T) {
	s, err := New("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	look := MayBrowse | MayRead
	granted := RoleRights{look, look, look | MayWrite, look | MayWrite | MayCall, look | MayWrite | MayCall | MayAudit}
	number := uint32(0)
	variable := func(access ua.AccessLevelType, p Permissions) *Node {
		number++
		return &Node{ID: wire.NumericID(2, number), BrowseName: "v", Attributes: &Attributes{
			Class: ua.NodeClassVariable, Access: access, Permissions: p, DataType: wire.NumericID(0, id.Double), Rank: -1, Value: tag.Of(1.0),
		}}
	}
	const rw = ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite
	const browse, read, write, call = ua.PermissionTypeBrowse, ua.PermissionTypeRead, ua.PermissionTypeWrite, ua.PermissionTypeCall
	const admin = ua.PermissionTypeReadRolePermissions
	only := Permissions{Browse: Everybody, Read: Operator | Admin, Write: Engineer, Call: Nobody}
	for _, row := range []struct {
		name string
		n    *Node
		want [5]ua.PermissionType
	}{
		{"8.55 a variable", variable(rw, Permissions{}),
			[5]ua.PermissionType{browse | read, browse | read, browse | read | write, browse | read | write, browse | read | write | admin}},
		{"8.55 one that nobody writes", variable(ua.AccessLevelTypeCurrentRead, Permissions{}),
			[5]ua.PermissionType{browse | read, browse | read, browse | read, browse | read, browse | read | admin}},
		{"5.2.9 permissions of its own", variable(rw, only),
			[5]ua.PermissionType{browse, browse, browse | read, browse | write, browse | read | admin}},
		{"8.55 an object", &Node{ID: wire.TextID(2, "o"), BrowseName: "o", Attributes: &Attributes{Class: ua.NodeClassObject}},
			[5]ua.PermissionType{browse, browse, browse, browse | call, browse | call | admin}},
		{"8.55 a method that is never carried out", &Node{ID: wire.TextID(2, "m"), BrowseName: "m", Attributes: &Attributes{Class: ua.NodeClassMethod}},
			[5]ua.PermissionType{browse, browse, browse, browse, browse | admin}},
	} {
		if err := s.Add([]*Node{row.n}, nil); err != nil {
			t.Fatal(err)
		}
		s.Grant(RoleRights{})
		if got := permissionsOf(s, row.n, granted[4].With(Admin)); got != nil {
			t.Errorf("%s: %v before the roles are known", row.name, got)
		}
		s.Grant(granted)
		all := permissionsOf(s, row.n, granted[4].With(Admin))
		for i, want := range row.want {
			if all[roleIDs[i]] != want {
				t.Errorf("%s: %v may %b, want %b", row.name, Roles(1)<<i, all[roleIDs[i]], want)
			}
			rights := granted[i].With(Roles(1) << i)
			value := []ReadItem{{Node: row.n, Attribute: ua.AttributeIDValue}}
			if s.Read(t.Context(), rights, value); row.n.Class == ua.NodeClassVariable && (value[0].Result.Status == tag.Good) != (want&read != 0) {
				t.Errorf("%s: %v reads: %v", row.name, Roles(1)<<i, value[0].Result.Status)
			}
		}
	}
}

// permissionsOf reads RolePermissions, by the number of the role's id; nil: it cannot be read.
func permissionsOf(s *Space, n *Node, rights Rights) map[uint32]ua.PermissionType {
	items := []ReadItem{{Node: n, Attribute: ua.AttributeIDRolePermissions}}
	s.Read(context.Background(), rights, items)
	if items[0].Result.Status != tag.Good {
		return nil
	}
	r := wire.NewReader(items[0].Result.Value.Bytes())
	r.Uint8()
	out := map[uint32]ua.PermissionType{}
	for range r.Uint32() {
		x := r.Extension()
		b := wire.NewReader(x.Body)
		role := b.NodeID()
		out[role.Num] = ua.PermissionType(b.Uint32())
	}
	return out
}
