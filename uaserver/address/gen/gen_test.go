package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/gopcua/opcua/schema"
)

func TestCommittedFormIsCurrent(t *testing.T) {
	want, err := generate(schema.OpcUaNodeSet2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := generate(schema.OpcUaNodeSet2)
	if err != nil || !bytes.Equal(want, again) {
		t.Errorf("two runs differ: %v", err)
	}
	got, err := os.ReadFile("../core.bin")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("core.bin is not what the generator writes now; run go generate")
	}
}

func TestWrongNodeSets(t *testing.T) {
	const head, tail = `<UANodeSet><Aliases><Alias Alias="X">i=1</Alias></Aliases>`, `</UANodeSet>`
	for _, row := range []struct{ name, xml string }{
		{"not XML", "<"},
		{"alias of another namespace", `<UANodeSet><Aliases><Alias Alias="X">ns=1;i=1</Alias></Aliases></UANodeSet>`},
		{"string id", head + `<UAObject NodeId="s=1" BrowseName="a"/>` + tail},
		{"twice", head + `<UAObject NodeId="i=1" BrowseName="a"/><UAObject NodeId="i=1" BrowseName="a"/>` + tail},
		{"data type", head + `<UAVariable NodeId="i=1" BrowseName="a" DataType="Unknown"/>` + tail},
		{"dimensions", head + `<UAVariable NodeId="i=1" BrowseName="a" ArrayDimensions="1,x"/>` + tail},
		{"value's type", head + `<UAVariable NodeId="i=1" BrowseName="a"><Value><Guid/></Value></UAVariable>` + tail},
		{"value's text", head + `<UAVariable NodeId="i=1" BrowseName="a"><Value><Int32>x</Int32></Value></UAVariable>` + tail},
		{"unknown structure", head + `<UAVariable NodeId="i=1" BrowseName="a"><Value><ExtensionObject><TypeId><Identifier>i=5</Identifier></TypeId></ExtensionObject></Value></UAVariable>` + tail},
		{"reference to nowhere", head + `<UAObject NodeId="i=1" BrowseName="a"><References><Reference ReferenceType="i=1">i=9</Reference></References></UAObject>` + tail},
		{"nothing to prune", head + `<UAObject NodeId="i=1" BrowseName="a"/>` + tail},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := generate([]byte(row.xml)); err == nil {
				t.Error("accepted")
			}
		})
	}
}
