package subscription

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"edged/uaserver/address"
)

// Report is the ledger by client and by tag, with what there is to say to the clients.
type Report struct {
	Stats
	Short   int            // items of which more comes in a publishing interval than their queue holds
	Clients []ClientReport // those with Subscriptions or Publish requests, by name
	Tags    []TagReport    // that lost something or of which an item is short, the most lost first
	More    int            // such tags that are left out
	Advice  []Advice
	Away    []Away // the next loss first
}

// ClientReport is the ledger of one session, or of what one left behind.
type ClientReport struct {
	Name          string
	Session       uint32 // 0: it has ended
	Subscriptions int
	Items, Short  int
	Requests      int // Publish requests that wait
	Counts
	Messages
	Unaccounted uint64
}

// TagReport is the ledger of one node over all items that are there.
type TagReport struct {
	Node         *address.Node
	Items, Short int
	Counts
	Evicted uint64  // notifications in messages that were given up before they were acknowledged
	Rate    float64 // values a second, as the busiest item gets them
	Need    int     // queue size that the neediest item would have to ask for
}

// Away is a Subscription whose client has no Publish request waiting, and how long until that costs it something: until the
// queue of one of its items is full, at the rate that was measured, or until its lifetime ends and all of it goes. A queue of
// one is not looked at: that it is overwritten was asked for. Messages that were sent stay for Republish meanwhile, since
// none are sent that could take their place.
type Away struct {
	Client       string
	Subscription uint32
	Since        time.Duration // the last Publish request
	Left         time.Duration // until the first loss; 0: it is there
	By           string        // queue or lifetime
	Node         *address.Node // of the queue
}

// maxTags bounds the tags that a Report looks at, and so its memory.
const maxTags = 20_000

// Report makes the report, with at most so many tags. It takes each client's lock in turn, and looks at each item.
func (e *Engine) Report(tags int) (r Report) {
	now := e.now()
	var byNode map[*address.Node]*TagReport
	r.Stats = e.gather(func() func(c *Client, st *Stats) {
		r, byNode = Report{}, make(map[*address.Node]*TagReport)
		return func(c *Client, st *Stats) {
			r.client(c, st, byNode, now)
		}
	})
	slices.SortFunc(r.Clients, func(a, b ClientReport) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Session, b.Session))
	})
	slices.SortFunc(r.Away, func(a, b Away) int { return cmp.Compare(a.Left, b.Left) })
	for _, t := range byNode {
		r.Tags = append(r.Tags, *t)
	}
	slices.SortFunc(r.Tags, func(a, b TagReport) int {
		return cmp.Or(cmp.Compare(b.Lost()+b.Evicted, a.Lost()+a.Evicted), strings.Compare(nodeName(a.Node), nodeName(b.Node)))
	})
	if len(r.Tags) > tags {
		r.Tags, r.More = r.Tags[:tags], len(r.Tags)-tags
	}
	return r
}

// client adds a client, under its lock.
func (r *Report) client(c *Client, st *Stats, byNode map[*address.Node]*TagReport, now int64) {
	if len(c.subs.list) == 0 && c.queued == 0 && c.worries == nil {
		return
	}
	of := ClientReport{Name: c.name, Session: c.session, Subscriptions: len(c.subs.list), Requests: c.queued}
	if c.closed {
		of.Session = 0
	}
	for _, s := range c.subs.list {
		n, m, off := s.total(func(slot uint32, n *Counts) {
			if s.byTag(byNode, slot, n, now) {
				of.Short++
			}
		})
		st.take(&n, &m, off)
		of.Counts.add(&n)
		of.Messages.add(&m)
		of.Unaccounted += off
		of.Items += int(s.live)
		if a, ok := s.away(now); ok {
			r.Away = append(r.Away, a)
		}
	}
	r.Short += of.Short
	r.Clients = append(r.Clients, of)
	r.Advice = c.advice(r.Advice)
}

// byTag adds an item that lost something, or is short, to the report of its node, and tells whether it is short.
func (s *Subscription) byTag(all map[*address.Node]*TagReport, slot uint32, n *Counts, now int64) bool {
	rate, need, short := s.short(slot, now)
	short = short && s.items[slot].flags&reporting != 0 // one that only samples keeps the last by design
	var evicted uint64
	if int(slot) < len(s.tolls) {
		evicted = s.tolls[slot].evicted
	}
	if !short && n.Lost() == 0 && evicted == 0 {
		return false
	}
	node := s.nodeOf(slot)
	t := all[node]
	if t == nil {
		if len(all) == maxTags {
			return short
		}
		t = &TagReport{Node: node}
		all[node] = t
	}
	if short {
		t.Short++
	}
	t.Items++
	t.Counts.add(n)
	t.Evicted += evicted
	t.Rate, t.Need = max(t.Rate, rate), max(t.Need, need)
	return short
}

// away tells how long until the Subscription loses something, if its client is away.
func (s *Subscription) away(now int64) (a Away, ok bool) {
	c := s.client
	since := time.Duration(now - c.heard)
	if c.queued > 0 || !c.closed && since < 2*s.interval {
		return a, false
	}
	a = Away{Client: c.name, Subscription: s.id, Since: since, By: "lifetime",
		Left: time.Duration(s.lifetime-1)*s.interval + time.Duration(max(0, s.nextTick-now))}
	for i := range s.items {
		slot := uint32(i)
		it := &s.items[i]
		queue := s.settings.list[it.set].queue
		if it.flags&reporting == 0 || queue == 1 {
			continue
		}
		rate := s.rate(slot, now)
		if rate == 0 {
			continue
		}
		room := 0.0
		if o := s.ownOf(it); o != nil {
			n := o.counted()
			room = float64(queue) - float64(n.Waiting)
		} else if waiting, lost := it.series.Behind(it.cursor, int(queue)); lost == 0 {
			room = float64(queue) - float64(waiting)
		}
		// The loss is the change after the last one that fits.
		if left := time.Duration(room / rate * float64(time.Second)); left < a.Left {
			a.Left, a.By, a.Node = left, "queue", s.nodeOf(slot)
		}
	}
	return a, true
}

// String is the identities of the samples with their numbers, for people.
func (n *Counts) String() string {
	return fmt.Sprintf("new %d = unchanged %d + filtered %d + sampled out %d + queued %d; queued = sent %d + waiting %d + "+
		"overwritten %d + overflowed %d + out of memory %d + disabled %d + deleted %d + expired %d", n.New, n.Unchanged, n.Filtered, n.SampledOut,
		n.Queued, n.Sent, n.Waiting, n.Overwritten, n.Overflowed, n.Exhausted, n.Disabled, n.Deleted, n.Expired)
}

// String is the identities of what was sent with their numbers, for people.
func (m *Messages) String() string {
	return fmt.Sprintf("sent = acknowledged %d + evicted %d + abandoned %d + held %d", m.AcknowledgedIn, m.EvictedIn,
		m.AbandonedIn, m.HeldIn)
}

// String is one line for people.
func (c *ClientReport) String() string {
	who := fmt.Sprintf("session %d", c.Session)
	if c.Session == 0 {
		who = "session ended"
	}
	return fmt.Sprintf("%s (%s): %d subscriptions, %d items, %d too short, %d Publish requests; %v; %v; unaccounted %d", c.Name, who,
		c.Subscriptions, c.Items, c.Short, c.Requests, &c.Counts, &c.Messages, c.Unaccounted)
}

// String is one line for people.
func (t *TagReport) String() string {
	text := fmt.Sprintf("%s: lost %d, evicted %d; %d items, %d too short", nodeName(t.Node), t.Lost(), t.Evicted, t.Items, t.Short)
	if t.Rate > 0 {
		text += fmt.Sprintf("; changes %s/s: queue %d holds it", digits(t.Rate), t.Need)
	}
	return text + fmt.Sprintf("; %v", &t.Counts)
}

// String is one line for people.
func (a *Away) String() string {
	text := fmt.Sprintf("%s, subscription %d: no Publish request for %s, ", a.Client, a.Subscription, span(a.Since))
	switch {
	case a.By == "lifetime":
		return text + fmt.Sprintf("ends in %s with its lifetime", span(a.Left))
	case a.Left == 0:
		return text + "loses values of " + nodeName(a.Node)
	}
	return text + fmt.Sprintf("the queue of %s is full in %s", nodeName(a.Node), span(a.Left))
}
