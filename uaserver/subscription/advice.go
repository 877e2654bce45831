package subscription

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"edged/uaserver/address"
	"edged/uaserver/wire"
)

// worry is a kind of loss, and what a client can do about it.
type worry uint8

const (
	queueOfOne    worry = iota // values are overwritten, as a queue of one asks for
	queueShort                 // more comes in a publishing interval than the queue holds
	requestsFew                // no Publish request waited when a message was due
	acksLate                   // messages pile up, or were given up, for want of acknowledgements
	memoryFull                 // messages were given up because the account has no room
	valuesFull                 // values that waited gave way to newer ones because the account has no room
	lifetimeShort              // a Subscription ended with notifications that waited
	worryKinds
)

var worryNames = [worryKinds]string{"queue_of_one", "queue", "requests", "acknowledgements", "memory", "values", "lifetime"}

// worries are what a client loses, and how.
type worries [worryKinds]*concern // nil: it has not lost anything of that kind for long

// concern is one kind of loss of one client, from its beginning until there was none for quiet.
type concern struct {
	on   bool
	told bool
	last int64  // time of the last loss
	lost uint64 // notifications
	worst
}

// worst is the worst case of a concern, for the advice.
type worst struct {
	sub      uint32
	node     *address.Node
	queue    int
	came     uint64 // in an interval, or while there was no Publish request
	interval time.Duration
	starved  time.Duration
	off      time.Duration // publishing was disabled; 0: it was not
	held     int
	life     time.Duration
}

// quiet is how long there is no loss of a kind before it counts as over. A client that loses again and again is told of
// twice in that time.
const quiet = int64(time.Minute)

// worry notes a loss of one kind, and returns the place for its worst case; nil: there was a worse one.
func (c *Client) worry(kind worry, lost, came uint64, now int64) *worst {
	if c.worries == nil {
		c.worries = new(worries)
	}
	k := c.worries[kind]
	if k == nil {
		k = new(concern)
		c.worries[kind] = k
	}
	k.last = now
	k.lost += lost
	if k.on && came <= k.came {
		return nil
	}
	k.on, k.worst = true, worst{came: came}
	return &k.worst
}

// noteLoss remembers that an item lost something, of so many that came. One that only samples keeps the last values for the
// item that triggers it: that older ones give way is what its client asked for (Part 4, 5.13.1.6).
func (s *Subscription) noteLoss(slot uint32, lost, came uint64, queue int) {
	if s.items[slot].flags&reporting == 0 {
		return
	}
	kind := queueShort
	switch {
	case s.starved >= s.interval/2:
		kind = requestsFew
	case queue <= 1:
		kind = queueOfOne
	}
	if w := s.client.worry(kind, lost, came, s.clock); w != nil {
		w.sub, w.node, w.queue, w.interval, w.starved = s.id, s.nodeOf(slot), queue, s.interval, s.starved
		if off := time.Duration(s.clock - s.chance); kind != requestsFew && off > s.interval+s.interval/2 {
			w.off = off
		}
	}
}

// noteLossOf is noteLoss for an item with a queue of its own, which loses one by one.
func (s *Subscription) noteLossOf(o *own, lost uint64, queue int) {
	o.recent += uint32(lost)
	s.noteLoss(o.slot, lost, uint64(o.recent)+uint64(queue), queue)
}

// noteExhausted remembers that values which waited in a queue gave way for want of memory.
func (s *Subscription) noteExhausted(o *own, lost uint64) {
	if w := s.client.worry(valuesFull, lost, uint64(o.count), s.clock); w != nil {
		w.sub, w.node, w.queue, w.held = s.id, s.nodeOf(o.slot), int(s.settings.list[o.set].queue), o.count
	}
}

// noteEvicted remembers that a message was given up before it was acknowledged.
func (s *Subscription) noteEvicted(h *held, memory bool) {
	kind := acksLate
	if memory {
		kind = memoryFull
	}
	if w := s.client.worry(kind, uint64(h.notifications), uint64(len(s.held)), s.clock); w != nil {
		w.sub, w.held = s.id, len(s.held)
	}
}

// notePiled remembers that more than half of the messages that a Subscription may keep are not acknowledged.
func (s *Subscription) notePiled() {
	if w := s.client.worry(acksLate, 0, uint64(len(s.held)), s.clock); w != nil {
		w.sub, w.held = s.id, len(s.held)
	}
}

// noteExpired remembers that a Subscription ended with notifications that waited.
func (s *Subscription) noteExpired(waiting uint64) {
	if waiting == 0 {
		return
	}
	if w := s.client.worry(lifetimeShort, waiting, waiting, s.clock); w != nil {
		w.sub, w.life = s.id, time.Duration(s.life)*s.interval
	}
}

// tick notes when an event came, and for how long a message had been waiting for a Publish request then.
func (s *Subscription) tick(now int64) {
	s.clock, s.starved = now, 0
	switch {
	case s.state == late:
		s.starved = time.Duration(now - s.lateSince)
	case s.more && s.enabled:
		s.starved = time.Duration(now - s.filled)
	}
}

// Advice is what a client loses, and what would keep it from that.
type Advice struct {
	Client string
	Kind   string // queue_of_one, queue, requests, acknowledgements, memory, values or lifetime
	Lost   uint64 // notifications since it began; 0: none yet
	Text   string // one sentence
}

// advice appends what there is to say to the client.
func (c *Client) advice(dst []Advice) []Advice {
	if c.worries == nil {
		return dst
	}
	for kind := range c.worries {
		if k := c.worries[kind]; k != nil && k.on {
			dst = append(dst, c.advise(worry(kind), k))
		}
	}
	return dst
}

// advise makes the sentence.
func (c *Client) advise(kind worry, k *concern) Advice {
	a := Advice{Client: c.name, Kind: worryNames[kind], Lost: k.lost}
	need := k.came + 1
	switch kind {
	case queueOfOne, queueShort:
		if k.off > 0 {
			a.Text = fmt.Sprintf("client %s, queue %d, switched publishing off for %s: queue %d for %s holds so long", c.name, k.queue,
				span(k.off), need, nodeName(k.node))
			break
		}
		a.Text = fmt.Sprintf("client %s, queue %d, publishes every %s, %s changes %s/s: queue %d holds it", c.name, k.queue,
			span(k.interval), nodeName(k.node), digits(float64(k.came)/k.interval.Seconds()), need)
		if most := c.engine.cfg.Queue; need > uint64(most) {
			a.Text += fmt.Sprintf(", but limits.queue is %d: publish more often", most)
		}
	case requestsFew:
		a.Text = fmt.Sprintf("client %s, subscription %d publishes every %s and had no Publish request for %s: "+
			"keep at least %d waiting for %d subscriptions; queue %d for %s, now %d, rides out such a gap", c.name, k.sub,
			span(k.interval), span(k.starved), len(c.subs.list)+1, len(c.subs.list), need, nodeName(k.node), k.queue)
	case acksLate:
		a.Text = fmt.Sprintf("client %s, subscription %d: %d messages are not acknowledged, of at most %d that are kept for "+
			"Republish: acknowledge each with the next Publish request", c.name, k.sub, k.held, c.engine.cfg.Held)
	case memoryFull:
		a.Text = fmt.Sprintf("client %s, subscription %d: no memory is left to keep messages for Republish, of which %d are not "+
			"acknowledged: acknowledge each with the next Publish request, or raise limits.memory", c.name, k.sub, k.held)
	case valuesFull:
		a.Text = fmt.Sprintf("client %s, subscription %d: no memory is left for values of %s that wait, of which its queue of %d "+
			"holds %d: publish more often, or raise limits.memory", c.name, k.sub, nodeName(k.node), k.queue, k.held)
	case lifetimeShort:
		a.Text = fmt.Sprintf("client %s, subscription %d ended after %s without a Publish request, with %d notifications waiting: "+
			"ask for a longer lifetime, or come back sooner", c.name, k.sub, span(k.life), k.came)
	}
	return a
}

// span is a time for people.
func span(d time.Duration) string {
	if d < time.Second {
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return digits(d.Seconds()) + " s"
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// nodeName is a node for people: a tag by its name.
func nodeName(n *address.Node) string {
	switch {
	case n == nil:
		return "?"
	case n.ID.NS == address.NamespacePlant && n.ID.Type == wire.Text:
		return n.ID.Str
	}
	return n.ID.String()
}

// line is one line to log.
type line struct {
	level slog.Level
	text  string
	Advice
}

// report hands on what began and what is over. It runs in the shard's goroutine, under the client's lock.
func (c *Client) report(now int64) {
	if c.worries == nil {
		return
	}
	for kind, k := range c.worries {
		if k == nil || !k.on {
			continue
		}
		level := slog.LevelWarn
		if worry(kind) == queueOfOne || k.lost == 0 {
			level = slog.LevelInfo
		}
		switch {
		case !k.told:
			k.told = true
			text := "notifications are lost"
			if k.lost == 0 {
				text = "notifications may be lost"
			}
			c.shard.lines = append(c.shard.lines, line{level, text, c.advise(worry(kind), k)})
		case now-k.last > quiet:
			c.shard.lines = append(c.shard.lines, line{slog.LevelInfo, "no notification was lost for a minute", c.advise(worry(kind), k)})
			c.worries[kind] = nil
		}
	}
}

// What a shard logs at most: so many lines a minute.
const (
	tellEvery = int64(time.Minute)
	tellLines = 20
)

// talk bounds a shard's lines.
type talk struct {
	since  int64
	lines  int
	silent int // lines that were not written
}

// speak writes the lines. No lock is held.
func (sh *shard) speak(now int64) {
	t := &sh.talk
	log := sh.engine.cfg.Log
	if now-t.since >= tellEvery {
		if t.silent > 0 {
			log.Warn("more clients lost notifications than were told", "lines", t.silent)
		}
		*t = talk{since: now}
	}
	for i := range sh.lines {
		if t.lines == tellLines {
			t.silent += len(sh.lines) - i
			break
		}
		t.lines++
		l := &sh.lines[i]
		log.Log(sh.engine.ctx, l.level, l.text, "client", l.Client, "kind", l.Kind, "lost", l.Lost, "advice", l.Text)
	}
	clear(sh.lines)
	sh.lines = sh.lines[:0]
}
