package uatest

import (
	"encoding/binary"
	"fmt"
)

// ReverseHello reads what a server says first on a connection that it made (Part 6, 7.1.2.6).
func (c *Client) ReverseHello() (uri, url string, err error) {
	kind, b, err := c.ReadChunk()
	if err != nil {
		return "", "", err
	}
	if kind != "RHEF" {
		return "", "", fmt.Errorf("%q instead of a ReverseHello", kind)
	}
	var texts [2]string
	b = b[8:]
	for i := range texts {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return "", "", fmt.Errorf("a ReverseHello that is cut short")
		}
		n := binary.LittleEndian.Uint32(b)
		texts[i], b = string(b[4:4+n]), b[4+n:]
	}
	if len(b) > 0 {
		return "", "", fmt.Errorf("%d bytes behind a ReverseHello", len(b))
	}
	return texts[0], texts[1], nil
}
