//go:build !unix

package channel

// Where a socket's descriptor cannot be read directly, an idle connection holds a buffer and every response is sent by the
// writer goroutine.
type (
	rawInput  struct{}
	rawOutput struct{}
)

func (c *Channel) attach() {}

func (c *Channel) read() error { return c.readConn() }

// abort closes the connection. Any goroutine may call it; it does not wait.
func (c *Channel) abort() { c.conn.Close() }

func (o *output) writeNow([]byte) (int, error) { return 0, nil }
