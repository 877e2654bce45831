package address

import (
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// RoleRights are what each role may do with nodes without Permissions, by the number of the role's bit.
type RoleRights [len(roleNames)]Rights

// roleIDs are the well-known roles of namespace 0 (Part 3, 4.9.2) that the roles are, in the order of their bits. Admin is
// who sees what concerns security.
var roleIDs = [len(roleNames)]uint32{
	id.WellKnownRole_Anonymous, id.WellKnownRole_Observer, id.WellKnownRole_Operator, id.WellKnownRole_Engineer,
	id.WellKnownRole_SecurityAdmin,
}

// Grant tells what the roles may do, so that RolePermissions and UserRolePermissions can be read; before it, and with all
// of it zero, nodes have neither. What an identity may do is in its own Rights.
func (s *Space) Grant(r RoleRights) {
	if r == (RoleRights{}) {
		s.granted.Store(nil)
		return
	}
	s.granted.Store(&r)
}

// permissions is RolePermissions (Part 3, 5.2.9), for who may read them, or UserRolePermissions (5.2.10).
func (s *Space) permissions(n *Node, a ua.AttributeID, rights Rights) (tag.Value, tag.Status) {
	granted := s.granted.Load()
	own := rights.On(n)
	of := Everybody
	switch {
	case granted == nil:
		return tag.Value{}, badAttributeIDInvalid
	case own&MayBrowse == 0, a == ua.AttributeIDRolePermissions && own&(MayAudit|Exposed) != MayAudit:
		return tag.Value{}, tag.BadUserAccessDenied
	case a == ua.AttributeIDUserRolePermissions:
		of = rights.Roles()
	}
	var entries []byte
	count := uint32(0)
	for i, roleID := range roleIDs {
		role := Roles(1) << i
		may := granted[i].With(role).On(n)
		if granted[i] == 0 || of&role == 0 {
			continue
		}
		if a == ua.AttributeIDUserRolePermissions {
			may |= rights & Exposed
		}
		body := wire.AppendNodeID(nil, wire.NumericID(0, roleID))
		body = wire.AppendUint32(body, uint32(n.permitted(may)))
		entries = wire.AppendNodeID(entries, wire.NumericID(0, id.RolePermissionType_Encoding_DefaultBinary))
		entries = wire.AppendByteString(append(entries, 1), body)
		count++
	}
	return tag.OfRaw(append(wire.AppendUint32([]byte{0x80 | 22}, count), entries...)), tag.Good
}

// permitted are the permissions (Part 3, 8.55) that rights on a node are, as far as its class has them.
func (n *Node) permitted(may Rights) (p ua.PermissionType) {
	if may&MayBrowse != 0 {
		p |= ua.PermissionTypeBrowse
		if may&(MayAudit|Exposed) == MayAudit {
			p |= ua.PermissionTypeReadRolePermissions
		}
	}
	if n.Class == ua.NodeClassVariable {
		access := n.UserAccess(may)
		for _, one := range [...]struct {
			level ua.AccessLevelType
			p     ua.PermissionType
		}{
			{ua.AccessLevelTypeCurrentRead, ua.PermissionTypeRead}, {ua.AccessLevelTypeCurrentWrite, ua.PermissionTypeWrite},
			{ua.AccessLevelTypeHistoryRead, ua.PermissionTypeReadHistory},
		} {
			if access&one.level != 0 {
				p |= one.p
			}
		}
	}
	if n.EventNotifier != 0 && may&MayRead != 0 {
		p |= ua.PermissionTypeReceiveEvents
	}
	if may&MayCall != 0 && (n.Class == ua.NodeClassObject || n.Class == ua.NodeClassMethod && n.Executable) {
		p |= ua.PermissionTypeCall
	}
	return p
}
