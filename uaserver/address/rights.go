package address

import "strings"

// Rights are what an identity may do with nodes that do not say who may (Permissions), and its Roles for those that do.
type Rights uint16

// The rights.
const (
	MayBrowse Rights = 1 << iota
	MayRead
	MayWrite
	MayCall
	MayAudit // what concerns security: who is logged in, and how
	Exposed  // no right: the channel is not encrypted

	mayWithNode = MayBrowse | MayRead | MayWrite | MayCall // what Permissions decide
	rolesAt     = 8                                        // where the Roles lie in Rights
)

// Roles are roles that an identity has, or that have a permission (Part 3, 4.9).
type Roles uint8

// The roles: a client without a user, and those that users are given.
const (
	Anonymous Roles = 1 << iota
	Observer
	Operator
	Engineer
	Admin

	// Everybody is all of them.
	Everybody = Anonymous | Observer | Operator | Engineer | Admin

	// Nobody makes a permission that no role has differ from one that is not given.
	Nobody Roles = 1 << 7
)

// roleNames are the roles' names, in the order of their bits.
var roleNames = [...]string{"Anonymous", "Observer", "Operator", "Engineer", "Admin"}

// String names the roles.
func (r Roles) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Permissions are the roles that may do something with a node (RolePermissions: Part 3, 5.2.9). The zero Permissions
// leave it to each identity's Rights.
type Permissions struct{ Browse, Read, Write, Call Roles }

// With returns the rights with roles.
func (r Rights) With(roles Roles) Rights { return r | Rights(roles)<<rolesAt }

// Roles are the roles of the identity.
func (r Rights) Roles() Roles { return Roles(r >> rolesAt) }

// On is what the rights are with one node.
func (r Rights) On(n *Node) Rights {
	if n.Permissions == (Permissions{}) {
		return r
	}
	return r.by(n.Permissions)
}

func (r Rights) by(p Permissions) Rights {
	roles := r.Roles()
	r &^= mayWithNode
	for _, one := range [...]struct {
		roles Roles
		right Rights
	}{{p.Browse, MayBrowse}, {p.Read, MayRead}, {p.Write, MayWrite}, {p.Call, MayCall}} {
		if roles&one.roles != 0 {
			r |= one.right
		}
	}
	return r
}

// Shows reports whether an identity with these roles finds the node when it browses. A node without Permissions is
// shown: who may not browse at all is refused before.
func (n *Node) Shows(roles Roles) bool {
	return n.Permissions == (Permissions{}) || n.Permissions.Browse&roles != 0
}
