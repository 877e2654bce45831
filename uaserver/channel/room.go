package channel

// MaxResponse is how many bytes of a response fit: what the client said in its Hello that it takes, and Limits.Response.
// It is never 0.
func (c *Channel) MaxResponse() int {
	most := c.s.cfg.Limits.Response
	if c.maxMessage > 0 {
		most = min(most, c.maxMessage)
	}
	if c.maxChunks > 0 && c.maxChunks <= most/c.body {
		most = c.maxChunks * c.body
	}
	return most
}
