package uaserver

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/address"
)

// How many lines about writes the log gets in chatterSpan: of one session, and of all. A client that writes all the time
// neither fills the disk nor hides what others write.
const (
	maxWritten    = maxChatter
	maxWrittenAll = 10 * maxChatter
)

// maxShown is how much of a value a line shows, in bytes; a longer one is named by its size.
const maxShown = 128

// written is what the log tells of one item of a Write.
type written struct {
	item           int
	old, new, part string
}

// take counts n lines, of which it lets through as many as the log takes. missed is what was left out in an earlier span.
func (c *chatter) take(n, most int) (told, missed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.since) >= chatterSpan {
		missed = c.more
		c.since, c.lines, c.more = now, 0, 0
	}
	told = min(n, max(0, most-c.lines))
	c.lines += told
	c.more += n - told
	return told, missed
}

// noteWrites notes the values before a Write for the lines that the log has room for. It is called before the items are
// carried out, and before what they alias is gone.
func (s *Server) noteWrites(c *call, w *writing) []written {
	if !s.log.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	told, missed := c.client.writes.take(len(w.items), maxWritten)
	if told > 0 {
		told, _ = s.writes.take(told, maxWrittenAll)
	}
	if missed > 0 {
		s.log.Info("writes came too fast for the log", "session", c.client.Peer.Name, "user", c.client.userName(), "lines left out", missed)
	}
	if told == 0 {
		return nil
	}
	notes := make([]written, 0, told)
	for i := range w.items[:told] {
		it := &w.items[i]
		note := written{item: i, new: shown(it.Value.Value), part: strings.Clone(it.Range[:min(len(it.Range), maxShown)])}
		if it.Node != nil && it.Node.Class == ua.NodeClassVariable {
			old := []address.ReadItem{{Node: it.Node, Attribute: ua.AttributeIDValue}}
			s.space.Read(s.ctx, address.MayRead.With(address.Everybody|address.Nobody), old)
			note.old = shown(old[0].Result.Value)
			if st := old[0].Result.Status; st.IsBad() {
				note.old = st.String()
			}
		}
		notes = append(notes, note)
	}
	return notes
}

// logWrites tells what a Write has done: who, what, from which value to which, and the result.
func (s *Server) logWrites(c *call, w *writing, notes []written) {
	for _, n := range notes {
		it := &w.items[n.item]
		if it.Node == nil {
			continue // an id that nobody knows is nothing that was written
		}
		args := []any{"node", it.Node.ID.String(), "old", n.old, "new", n.new, "status", it.Status.String(),
			"user", c.client.userName(), "session", c.client.Peer.Name, "client", c.client.Peer.ApplicationName, "from", c.ch.RemoteAddr()}
		if n.part != "" {
			args = append(args, "range", n.part)
		}
		if it.Attribute != ua.AttributeIDValue {
			args = append(args, "attribute", uint32(it.Attribute))
		}
		s.log.Info("write", args...)
	}
}

// shown is a value as a line of the log has it.
func shown(v tag.Value) string {
	if v.Size() > maxShown {
		return strconv.Itoa(v.Size()) + " bytes"
	}
	text := v.String()
	if len(text) > maxShown {
		return text[:maxShown] + "..."
	}
	return text
}
