package address

import (
	"context"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// Statuses that package tag has no name for.
const (
	badAttributeIDInvalid     = tag.Status(0x80350000)
	badIndexRangeDataMismatch = tag.Status(0x80EA0000)

	badSecurityModeInsufficient = tag.Status(0x80E60000)
)

// Read reads attributes; each item gets its Result. Values of managed nodes come from their managers, with the
// manager's timestamps, a run of neighbours of one manager at a time; a static value has the time when the Space was
// made as SourceTimestamp. Every other answer has the ServerTimestamp of now. Which timestamps the client asked for is
// the caller's business.
//
// Status of an item: BadNodeIdUnknown (its Node is nil), BadAttributeIdInvalid, BadNotReadable, BadUserAccessDenied,
// BadIndexRangeInvalid, BadIndexRangeNoData, or what the manager says.
func (s *Space) Read(ctx context.Context, rights Rights, items []ReadItem) {
	var now tag.Time // looked up when it is needed, which with values of managers alone it is not
	var manager NodeManager
	from, to := 0, 0 // the run that manager is still to read
	for i := range items {
		it := &items[i]
		it.Result = wire.DataValue{}
		if n := it.Node; n != nil && it.Attribute == ua.AttributeIDValue && n.Manager != nil {
			if st := n.readable(rights); st != tag.Good {
				if now == 0 {
					now = tag.Now()
				}
				it.Result.Status, it.Result.Server = st, now
				continue
			}
			if n.Manager != manager || to == from {
				if to > from {
					manager.Read(ctx, items[from:to])
				}
				manager, from = n.Manager, i
			}
			to = i + 1
			continue
		}
		if to > from {
			manager.Read(ctx, items[from:to])
			from = to
		}
		if now == 0 {
			now = tag.Now()
		}
		s.readStatic(it, rights, now)
	}
	if to > from {
		manager.Read(ctx, items[from:to])
	}
}

// readStatic answers an item without a manager.
func (s *Space) readStatic(it *ReadItem, rights Rights, now tag.Time) {
	it.Result.Server = now
	n := s.now.Load().current(it.Node)
	var v tag.Value
	var st tag.Status
	if n != nil && (it.Attribute == ua.AttributeIDRolePermissions || it.Attribute == ua.AttributeIDUserRolePermissions) {
		v, st = s.permissions(n, it.Attribute, rights)
	} else {
		v, st = n.attribute(it.Attribute, rights)
	}
	if st == tag.Good {
		v, st = rangeOf(v, it.Range)
	}
	it.Result.Value, it.Result.Status = v, st
	if it.Attribute == ua.AttributeIDValue && st == tag.Good {
		it.Result.Source = s.born
	}
}

// readable tells whether the Value may be read. What nobody may do comes before what this user may not.
func (n *Node) readable(rights Rights) tag.Status {
	rights = rights.On(n)
	switch {
	case n.Class != ua.NodeClassVariable:
		return badAttributeIDInvalid
	case n.Access&ua.AccessLevelTypeCurrentRead == 0:
		return tag.BadNotReadable
	case rights&MayRead == 0, n.Audit && rights&MayAudit == 0:
		return tag.BadUserAccessDenied
	case n.Audit && rights&Exposed != 0:
		return badSecurityModeInsufficient
	}
	return tag.Good
}

// classes that have an attribute.
const (
	classObject        = uint32(ua.NodeClassObject)
	classVariable      = uint32(ua.NodeClassVariable)
	classMethod        = uint32(ua.NodeClassMethod)
	classObjectType    = uint32(ua.NodeClassObjectType)
	classVariableType  = uint32(ua.NodeClassVariableType)
	classReferenceType = uint32(ua.NodeClassReferenceType)
	classDataType      = uint32(ua.NodeClassDataType)
	classView          = uint32(ua.NodeClassView)
	everyClass         = uint32(0xFF)
	everyType          = classObjectType | classVariableType | classReferenceType | classDataType
	valued             = classVariable | classVariableType
)

// attributeClasses is the classes that have the attribute (Part 3, 5.9).
var attributeClasses = [...]uint32{
	ua.AttributeIDNodeID:                  everyClass,
	ua.AttributeIDNodeClass:               everyClass,
	ua.AttributeIDBrowseName:              everyClass,
	ua.AttributeIDDisplayName:             everyClass,
	ua.AttributeIDDescription:             everyClass,
	ua.AttributeIDWriteMask:               everyClass,
	ua.AttributeIDUserWriteMask:           everyClass,
	ua.AttributeIDIsAbstract:              everyType,
	ua.AttributeIDSymmetric:               classReferenceType,
	ua.AttributeIDInverseName:             classReferenceType,
	ua.AttributeIDContainsNoLoops:         classView,
	ua.AttributeIDEventNotifier:           classObject | classView,
	ua.AttributeIDValue:                   valued,
	ua.AttributeIDDataType:                valued,
	ua.AttributeIDValueRank:               valued,
	ua.AttributeIDArrayDimensions:         valued,
	ua.AttributeIDAccessLevel:             classVariable,
	ua.AttributeIDUserAccessLevel:         classVariable,
	ua.AttributeIDMinimumSamplingInterval: classVariable,
	ua.AttributeIDHistorizing:             classVariable,
	ua.AttributeIDExecutable:              classMethod,
	ua.AttributeIDUserExecutable:          classMethod,
	ua.AttributeIDDataTypeDefinition:      classDataType,
	ua.AttributeIDRolePermissions:         everyClass,
	ua.AttributeIDUserRolePermissions:     everyClass,
	ua.AttributeIDAccessRestrictions:      everyClass,
	ua.AttributeIDAccessLevelEx:           classVariable,
}

// has reports whether the node's class has the attribute.
func (n *Node) has(a ua.AttributeID) bool {
	return int64(a) < int64(len(attributeClasses)) && attributeClasses[a]&uint32(n.Class) != 0
}

// attribute is the value of an attribute of an unmanaged node.
func (n *Node) attribute(a ua.AttributeID, rights Rights) (tag.Value, tag.Status) {
	if n == nil {
		return tag.Value{}, tag.BadNodeIDUnknown
	}
	rights = rights.On(n)
	switch {
	case !n.has(a):
		return tag.Value{}, badAttributeIDInvalid
	case a == ua.AttributeIDValue:
		return n.staticValue(rights)
	case rights&MayBrowse == 0:
		return tag.Value{}, tag.BadUserAccessDenied
	case a >= ua.AttributeIDDataType && a <= ua.AttributeIDHistorizing || a == ua.AttributeIDAccessLevelEx:
		return n.valueAttribute(a, rights)
	}
	return n.baseAttribute(a, rights)
}

// staticValue is the Value of an unmanaged variable, or of a variable type that gives one.
func (n *Node) staticValue(rights Rights) (tag.Value, tag.Status) {
	if n.Class == ua.NodeClassVariableType {
		if n.Value.IsNull() {
			return tag.Value{}, badAttributeIDInvalid
		}
		return n.Value, tag.Good
	}
	st := n.readable(rights)
	switch {
	case st != tag.Good:
		return tag.Value{}, st
	case n.live && n.Value.IsNull(): // told rather than given as a null: the server has no such value
		return tag.Value{}, tag.BadNotReadable
	}
	return n.Value, tag.Good
}

// baseAttribute is an attribute of Part 3, 5.2 to 5.5, 5.7 and 5.8.
func (n *Node) baseAttribute(a ua.AttributeID, rights Rights) (tag.Value, tag.Status) {
	switch a {
	case ua.AttributeIDNodeID:
		return tag.OfRaw(wire.AppendNodeID([]byte{17}, n.ID)), tag.Good
	case ua.AttributeIDNodeClass:
		return tag.Of(int32(n.Class)), tag.Good
	case ua.AttributeIDBrowseName:
		return tag.OfRaw(wire.AppendQualifiedName([]byte{20}, n.BrowseNS, n.BrowseName)), tag.Good
	case ua.AttributeIDDisplayName:
		return localized(n.DisplayName()), tag.Good
	case ua.AttributeIDDescription:
		return localized(n.Description()), tag.Good
	case ua.AttributeIDWriteMask, ua.AttributeIDUserWriteMask:
		return tag.Of(uint32(0)), tag.Good
	case ua.AttributeIDIsAbstract:
		return tag.Of(n.Abstract), tag.Good
	case ua.AttributeIDSymmetric:
		return tag.Of(n.Symmetric), tag.Good
	case ua.AttributeIDInverseName:
		if n.more().InverseName == "" { // optional, and only for types that read differently backwards (Part 3, 5.3.2)
			return tag.Value{}, badAttributeIDInvalid
		}
		return localized(n.more().InverseName), tag.Good
	case ua.AttributeIDContainsNoLoops:
		return tag.Of(true), tag.Good
	case ua.AttributeIDEventNotifier:
		return tag.Of(n.EventNotifier), tag.Good
	case ua.AttributeIDExecutable:
		return tag.Of(n.Executable), tag.Good
	case ua.AttributeIDUserExecutable:
		return tag.Of(n.Executable && rights&MayCall != 0), tag.Good
	case ua.AttributeIDAccessRestrictions:
		if n.Audit { // it is read over encrypted channels alone (Part 3, 5.2.11)
			return tag.Of(uint16(ua.AccessRestrictionTypeEncryptionRequired)), tag.Good
		}
	case ua.AttributeIDDataTypeDefinition:
		if !n.Value.IsNull() {
			return n.Value, tag.Good
		}
	}
	return tag.Value{}, badAttributeIDInvalid
}

// valueAttribute is an attribute of Part 3, 5.6.2 and 5.6.5, but Value.
func (n *Node) valueAttribute(a ua.AttributeID, rights Rights) (tag.Value, tag.Status) {
	switch a {
	case ua.AttributeIDDataType:
		return tag.OfRaw(wire.AppendNodeID([]byte{17}, n.DataType)), tag.Good
	case ua.AttributeIDValueRank:
		return tag.Of(n.Rank), tag.Good
	case ua.AttributeIDArrayDimensions:
		switch {
		case len(n.Dims()) > 0:
			return tag.OfSlice(n.Dims()), tag.Good
		case n.Rank > 0: // lengths not known are 0 (Part 3, 5.6.2)
			return tag.OfSlice(make([]uint32, n.Rank)), tag.Good
		}
		return tag.Value{}, badAttributeIDInvalid
	case ua.AttributeIDAccessLevel:
		return tag.Of(uint8(n.Access)), tag.Good
	case ua.AttributeIDAccessLevelEx:
		return tag.Of(uint32(n.Access)), tag.Good
	case ua.AttributeIDUserAccessLevel:
		return tag.Of(uint8(n.UserAccess(rights))), tag.Good
	case ua.AttributeIDMinimumSamplingInterval:
		return tag.Of(n.MinSampling), tag.Good
	case ua.AttributeIDHistorizing:
		return tag.Of(n.Historizing), tag.Good
	}
	return tag.Value{}, badAttributeIDInvalid
}

// UserAccess is the UserAccessLevel: what of the AccessLevel the rights leave.
func (n *Node) UserAccess(rights Rights) ua.AccessLevelType {
	const reads = ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeHistoryRead
	const writes = ua.AccessLevelTypeCurrentWrite | ua.AccessLevelTypeHistoryWrite |
		ua.AccessLevelTypeStatusWrite | ua.AccessLevelTypeTimestampWrite
	access := n.Access
	rights = rights.On(n)
	if rights&MayRead == 0 || n.Audit && rights&(MayAudit|Exposed) != MayAudit {
		access &^= reads
	}
	if rights&MayWrite == 0 {
		access &^= writes
	}
	return access
}

func localized(text string) tag.Value {
	return tag.OfRaw(wire.AppendLocalizedText([]byte{21}, "", text))
}
