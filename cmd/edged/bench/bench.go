// Package bench puts an OPC UA server under load from another process and measures what comes back and what it costs.
// It hides the load client: messages made once, answers scanned without decoding.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// The words of Config.Security. All but None sign and encrypt.
const (
	SecurityNone                = "None"
	SecurityBasic256Sha256      = "Basic256Sha256"
	SecurityAes128Sha256RsaOaep = "Aes128_Sha256_RsaOaep"
	SecurityAes256Sha256RsaPss  = "Aes256_Sha256_RsaPss"
)

var securities = []string{SecurityNone, SecurityBasic256Sha256, SecurityAes128Sha256RsaOaep, SecurityAes256Sha256RsaPss}

// FieldModbus is the word of Config.Field.
const FieldModbus = "modbus"

// Config is one run of a workload. Zero values leave what the workload says.
type Config struct {
	Workload string
	URL      string // of the server; "" starts a gateway of its own
	Program  string // executable of the gateway of its own
	PID      int    // process of the server at URL; 0: found if it listens on this machine's loopback
	Metrics  string // URL of the metrics of the server at URL; "": none

	Nodes string   // pattern of the node ids at URL, such as ns=1;i=%d
	Base  int      // number of the first
	Count int      // how many there are; of a gateway of its own, too
	Kind  tag.Kind // of all nodes

	Random   bool // each request takes nodes at random
	Sessions int
	Queue    int    // of each item
	Field    string // where the values of a gateway of its own come from: "" is its memory, "modbus" a simulated device
	Security string
	Duration time.Duration // of the measured part of a round
	Warmup   time.Duration // before it; negative: none
	Rounds   int
	Scale    float64 // of sessions and times that are not given here
	JSON     bool
	Out      io.Writer
}

// ErrUsage is a Config that makes no sense; what wraps it says why.
var ErrUsage = errors.New("wrong use of bench")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, args...))
}

// node is a variable that can be read and written.
type node struct {
	id   wire.NodeID
	kind tag.Kind
}

// bench is a run.
type bench struct {
	cfg   Config
	load  workload
	nodes []node
	peer  *peer
	own   *server // nil: another one at cfg.URL
	plant *plant  // nil: the values are tags in memory
	probe probe
	table *table[*result]
}

// Run carries out cfg and prints its table. A gate that is missed, or an answer with anything wrong in it, is an error. An
// end of ctx, which closes sockets under way, is told as its cause.
func Run(ctx context.Context, cfg Config) error {
	err := run(ctx, cfg)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func run(ctx context.Context, cfg Config) error {
	if cfg.Workload == fieldRTU || cfg.Workload == fieldTCP {
		return runField(ctx, cfg)
	}
	b := &bench{cfg: cfg}
	if err := b.plan(); err != nil {
		return err
	}
	// Half of the machine is the server's.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2)))
	if b.cfg.URL == "" {
		stop, err := b.startOwn(ctx)
		if err != nil {
			return err
		}
		defer stop()
	} else {
		b.probe = probe{pid: b.cfg.pid(), metrics: b.cfg.Metrics}
	}
	var err error
	if b.peer, err = newPeer(ctx, b.cfg.URL, b.cfg.Security); err != nil {
		return err
	}
	if b.load.watch != nil {
		return b.watchRounds(ctx)
	}
	return b.rounds(ctx)
}

// startOwn starts a gateway, with a device to poll if its values come from one.
func (b *bench) startOwn(ctx context.Context) (stop func(), err error) {
	if b.cfg.Field == FieldModbus {
		if b.plant, err = b.newPlant(); err != nil {
			return nil, err
		}
	}
	s, err := startServer(ctx, b.cfg.Program, b.site(b.plant != nil))
	if err != nil {
		if b.plant != nil {
			b.plant.close()
		}
		return nil, err
	}
	b.own, b.cfg.URL, b.probe = s, s.url, probe{pid: s.cmd.Process.Pid, metrics: s.metrics}
	return func() {
		s.stop()
		if b.plant != nil {
			b.plant.close()
		}
	}, nil
}

// rounds runs all rounds and prints their median.
func (b *bench) rounds(ctx context.Context) error {
	b.table = &table[*result]{out: b.cfg.Out, json: b.cfg.JSON, heading: b.heading(), facts: b.facts(), columns: columns}
	var wrong error
	failed, operations := uint64(0), 0.0
	for i := range b.cfg.Rounds {
		r, err := b.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if failed += r.errors; wrong == nil {
			wrong = r.first
		}
		operations += r.operations()
		b.table.row(strconv.Itoa(i+1), r)
	}
	verdict := ""
	if b.load.gate != "" {
		verdict = "PASS"
		if failed > 0 || operations == 0 {
			verdict = "FAIL"
		}
	}
	b.table.end(verdict, b.load.gate)
	if failed > 0 {
		return fmt.Errorf("%s: %d answers were wrong, the first: %w", b.load.name, failed, wrong)
	}
	if verdict == "FAIL" {
		return fmt.Errorf("%s: no request was answered", b.load.name)
	}
	return nil
}

// plan checks cfg and fills in what the workload says.
func (b *bench) plan() error {
	c := &b.cfg
	var ok bool
	if b.load, ok = workloadOf(c.Workload); !ok {
		return usage("there is no workload %q: there are %s", c.Workload, strings.Join(Workloads(), ", "))
	}
	if c.Scale == 0 {
		c.Scale = 1
	}
	if c.Scale < 0 || c.Scale > 100 {
		return usage("scale %v: it may be up to 100, and 1 is the workload as it is", c.Scale)
	}
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * c.Scale) }
	if c.Sessions == 0 {
		c.Sessions = max(1, int(float64(b.load.sessions)*c.Scale+0.5))
	}
	if c.Duration == 0 {
		c.Duration = scaled(b.load.duration)
	}
	if c.Warmup == 0 {
		c.Warmup = scaled(b.load.warmup)
	}
	c.Warmup = max(0, c.Warmup)
	if c.Rounds == 0 {
		c.Rounds = b.load.rounds
	}
	if c.Security == "" {
		c.Security = b.load.security
	}
	switch {
	case c.Sessions < 0 || c.Duration < 0 || c.Rounds < 0 || c.Count < 0:
		return usage("sessions, duration, rounds and count are positive")
	case !slices.Contains(securities, c.Security):
		return usage("security %q: it is one of %s", c.Security, strings.Join(securities, ", "))
	case c.URL == "" && (c.Nodes != "" || c.Metrics != "" || c.PID != 0):
		return usage("nodes, metrics and pid are of a server that runs already: give its url")
	}
	if err := b.planWatching(); err != nil {
		return err
	}
	return b.planNodes()
}

// planWatching checks and fills in what workloads of subscriptions alone have.
func (b *bench) planWatching() error {
	c := &b.cfg
	if c.Queue < 0 || c.Queue > 1<<30 {
		return usage("queue %d: give 1 or more", c.Queue)
	}
	if b.load.watch == nil {
		if c.Queue != 0 || c.Field != "" {
			return usage("%s has no queues and no field: they are for subscriptions", b.load.name)
		}
		return nil
	}
	w := *b.load.watch
	b.load.watch = &w
	if c.Queue != 0 {
		w.queue = uint32(c.Queue)
	}
	switch {
	case c.Field != "" && c.Field != FieldModbus:
		return usage("field %q: there is %s", c.Field, FieldModbus)
	case c.Field != "" && c.URL != "":
		return usage("field is for a gateway of the bench's own: leave the url out")
	case c.Field != "" && w.events:
		return usage("%s has no values: leave the field out", b.load.name)
	case c.Field != "" && w.twoWay:
		return usage("%s has text, which the simulated device does not change: leave the field out", b.load.name)
	}
	if w.twoWay {
		w.plan(c)
	}
	if c.Count != 0 && w.mover == byServer && !w.twoWay && !w.events {
		w.items = c.Count
	}
	return nil
}

// planNodes lists the nodes that the workload uses.
func (b *bench) planNodes() error {
	c := &b.cfg
	pattern := c.Nodes
	if c.URL != "" && pattern == "" && b.load.request != 0 {
		return usage("nodes is missing: a pattern of the server's node ids, such as ns=1;i=%%d")
	}
	if pattern != "" && strings.Count(pattern, "%d") != 1 {
		return usage("nodes %q: the pattern holds %%d once, in the place of the number", pattern)
	}
	if w := b.load.watch; w != nil && w.events {
		b.nodes = []node{{wire.NumericID(0, id.Server), tag.Null}}
		return nil
	}
	for _, g := range b.groups() {
		for i := range g.count {
			text := fmt.Sprintf("ns=2;s=%s.%s", ownDevice, g.name(i))
			if pattern != "" {
				text = strings.Replace(pattern, "%d", strconv.Itoa(c.Base+len(b.nodes)), 1)
			}
			id, err := ua.ParseNodeID(text)
			if err != nil {
				return usage("nodes: %s: %v", text, err)
			}
			b.nodes = append(b.nodes, node{wire.FromUA(id), g.kind})
		}
	}
	if len(b.nodes) < b.load.request {
		return usage("%s needs %d nodes, and count is %d", b.load.name, b.load.request, len(b.nodes))
	}
	return nil
}

// group are nodes of one kind.
type group struct {
	kind  tag.Kind
	count int
	label string // of their names; "": their type
	wave  string // by which a gateway of its own moves them, as a site file writes it; "": not at all
}

func (g *group) typeName() string { return tag.Type{Kind: g.kind}.String() }

// name is a node's name at a gateway of its own.
func (g *group) name(i int) string { return g.stem() + "_" + strconv.Itoa(i) }

func (g *group) stem() string {
	if g.label != "" {
		return g.label
	}
	return g.typeName()
}

// groups are the workload's nodes, or what Config says instead.
func (b *bench) groups() []group {
	if w := b.load.watch; w != nil && w.twoWay {
		return w.groups()
	}
	groups := append([]group(nil), b.load.groups...)
	for i := range groups {
		if b.cfg.Kind != tag.Null {
			groups[i].kind = b.cfg.Kind
		}
	}
	if len(groups) == 1 && b.cfg.Count != 0 {
		groups[0].count = b.cfg.Count
	}
	return groups
}

// heading says what is run, in words.
func (b *bench) heading() string {
	c := &b.cfg
	s := fmt.Sprintf("%s: %d sessions, %s, %v after %v of warm-up, %s", b.load.name, c.Sessions, c.Security, c.Duration, c.Warmup, c.URL)
	if c.Random {
		s += ", nodes at random"
	}
	if len(b.nodes) > 0 {
		s += fmt.Sprintf(", %d nodes", len(b.nodes))
	}
	if w := b.load.watch; w != nil {
		s += fmt.Sprintf("; %d items, queue %d, publishing %v, %d requests in flight a session", c.Sessions*len(b.items(0)), w.queue, w.publishing, w.requests)
	}
	if c.Field != "" {
		s += ", values polled by " + c.Field
	}
	if b.own != nil {
		s += "; " + b.limits()
	}
	if c.Scale != 1 {
		s += fmt.Sprintf("; SCALED by %v", c.Scale)
	}
	return s
}

// facts are the same for scripts.
func (b *bench) facts() []fact {
	c := &b.cfg
	return []fact{
		{"workload", b.load.name}, {"url", c.URL}, {"security", c.Security}, {"sessions", c.Sessions}, {"nodes", len(b.nodes)},
		{"random", c.Random}, {"queue", c.Queue}, {"field", c.Field}, {"seconds", c.Duration.Seconds()}, {"warmup_seconds", c.Warmup.Seconds()}, {"scale", c.Scale},
	}
}

// pid is the process of the server at URL, or 0 where it cannot be known.
func (c *Config) pid() int {
	if c.PID != 0 {
		return c.PID
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return 0
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return listenerOf(port)
}
