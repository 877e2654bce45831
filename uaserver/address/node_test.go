package address

import (
	"reflect"
	"testing"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// others are values that are not the zero one, for fields whose kind does not tell one.
var others = map[reflect.Type]any{
	reflect.TypeFor[wire.NodeID]():  wire.NumericID(1, 7),
	reflect.TypeFor[*More]():        &More{Dims: []uint32{3}},
	reflect.TypeFor[Permissions]():  Permissions{Write: Operator},
	reflect.TypeFor[tag.Value]():    tag.Of(uint16(1)),
	reflect.TypeFor[NodeManager]():  namespaceArray{},
	reflect.TypeFor[[]uint32]():     []uint32{1},
	reflect.TypeFor[ua.NodeClass](): ua.NodeClassVariable,
}

// differ calls yield with a copy of v for each exported field, which has another value in it.
func differ[T any](t *testing.T, yield func(field string, v *T)) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if !f.IsExported() || f.Anonymous || len(f.Index) > 1 {
			continue
		}
		v := new(T)
		at := reflect.ValueOf(v).Elem().FieldByIndex(f.Index)
		switch other, ok := others[f.Type]; {
		case ok:
			at.Set(reflect.ValueOf(other))
		case at.CanInt():
			at.SetInt(1)
		case at.CanUint():
			at.SetUint(1)
		case at.CanFloat():
			at.SetFloat(1)
		case at.Kind() == reflect.Bool:
			at.SetBool(true)
		case at.Kind() == reflect.String:
			at.SetString("x")
		default:
			t.Fatalf("no other value of field %s", f.Name)
		}
		yield(f.Name, v)
	}
}

func TestNodesThatDifferAreNotTheSame(t *testing.T) {
	node := func(a Attributes) *Node { return &Node{Attributes: &a} }
	differ(t, func(field string, n *Node) {
		n.Attributes = &Attributes{}
		if n.Same(node(Attributes{})) || node(Attributes{}).Same(n) || !n.Same(n) {
			t.Errorf("field %s does not count", field)
		}
	})
	differ(t, func(field string, a *Attributes) {
		if n := node(*a); n.Same(node(Attributes{})) || node(Attributes{}).Same(n) || !n.Same(node(*a)) {
			t.Errorf("field Attributes.%s does not count", field)
		}
	})
	differ(t, func(field string, m *More) {
		n := node(Attributes{More: m})
		if n.Same(node(Attributes{})) || node(Attributes{}).Same(n) || !n.Same(node(Attributes{More: &More{m.DisplayName, m.Description, m.InverseName, m.Dims}})) {
			t.Errorf("field More.%s does not count", field)
		}
	})
	if !node(Attributes{More: &More{}}).Same(node(Attributes{})) {
		t.Error("nothing more is not the same as an empty More")
	}
}
