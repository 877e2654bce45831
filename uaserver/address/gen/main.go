// Command gen writes core.bin, the compact form of namespace 0, from the OPC Foundation's NodeSet that gopcua carries.
// It hides the NodeSet's XML and what of it a gateway does not serve; its output depends on its input alone.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/gopcua/opcua/schema"
)

func main() {
	out := "core.bin"
	if len(os.Args) > 1 {
		out = os.Args[1]
	}
	data, err := generate(schema.OpcUaNodeSet2)
	if err == nil {
		err = os.WriteFile(out, data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// generate turns a NodeSet into the form that address.loadCore reads.
func generate(nodeSet []byte) ([]byte, error) {
	m, err := parse(bytes.NewReader(nodeSet))
	if err != nil {
		return nil, err
	}
	if err := m.prune(); err != nil {
		return nil, err
	}
	if err := m.define(); err != nil {
		return nil, err
	}
	return m.encode()
}
