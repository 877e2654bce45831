package main

import (
	"edged/drivers/memory"
)

func (t *tagReader) checkMemory(n *node, m *memory.Tag) {}
