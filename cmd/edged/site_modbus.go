package main

import (
	"edged/drivers/memory"
	"edged/drivers/modbus"
	"edged/drivers/tag"
)

func (t *tagReader) checkModbus(n *node, m *modbus.Tag) {
	if _, err := modbus.ParseAddress(m.Address); err != nil {
		t.fieldFault(n, t.what, "address", err.Error())
	}
}
func (t *tagReader) checkMemory(n *node, m *memory.Tag) {}

func (t *tagReader) advance(n *node, m *modbus.Tag, i int) bool { return true }
func definition(m *modbus.Tag) string                           { return m.Address }
func (d *deviceReader) finishModbus(n *node)                    {}

var _ tag.Kind
