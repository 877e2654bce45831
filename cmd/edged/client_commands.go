package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/cmd/edged/client"
)

// serverFlags are what every command needs that talks to a server.
type serverFlags struct {
	URL             string        `arg:"" name:"url" help:"Server: HOST, HOST:PORT or opc.tcp://HOST:PORT (port 4840 unless named)."`
	Security        string        `default:"auto" enum:"auto,none,sign,encrypt" help:"auto takes the most secure endpoint that is offered; or none, sign, encrypt."`
	Policy          string        `placeholder:"POLICY" help:"Security policy, such as Basic256Sha256, of the endpoint to take (default: the best)."`
	Mode            string        `enum:",None,Sign,SignAndEncrypt" default:"" placeholder:"MODE" help:"Security mode of the endpoint to take: None, Sign or SignAndEncrypt."`
	User            string        `short:"u" placeholder:"NAME" help:"Log in as this user; the password is asked for, unless one of the next says where it is."`
	PasswordFile    string        `placeholder:"FILE" help:"File whose first line is the password, - for standard input."`
	PasswordEnv     string        `placeholder:"NAME" help:"Environment variable that holds the password, instead of a file."`
	UserCertificate string        `placeholder:"FILE" help:"Log in with a certificate: PEM file that has it and its key."`
	Trust           bool          `help:"Take the server's certificate even if it is another one than before."`
	Data            string        `placeholder:"DIR" help:"Folder of this client's certificate and of the servers' (default: edged in the user's configuration folder)."`
	Timeout         time.Duration `default:"10s" help:"How long each answer may take (default: ${default})."`
	JSON            bool          `name:"json" help:"One JSON object a line instead of a table."`

	password []byte // of User; nil: not asked for yet
}

// dial opens a session, after nodes that no server could understand were refused.
func (f *serverFlags) dial(p *program, nodes []string) (*client.Conn, error) {
	if f.Timeout <= 0 {
		return nil, usageError{fmt.Errorf("--timeout %v: it is longer than nothing, such as 10s", f.Timeout)}
	}
	if err := client.CheckNodes(nodes); err != nil {
		return nil, usage(err)
	}
	if f.Data == "" {
		f.Data = client.DefaultData()
	}
	if err := f.askPassword(p); err != nil {
		return nil, err
	}
	c, err := client.Dial(p.ctx, client.Options{
		URL: f.URL, Security: f.Security, Policy: f.Policy, Mode: f.Mode, User: f.User, Password: string(f.password), Login: f.UserCertificate,
		Trust: f.Trust, Data: f.Data, Timeout: f.Timeout, Log: p.log,
	})
	return c, usage(err)
}

// askPassword finds the user's password, once: a watch dials again and again.
func (f *serverFlags) askPassword(p *program) (err error) {
	switch {
	case f.User == "" && (f.PasswordFile != "" || f.PasswordEnv != ""):
		return usageError{errors.New("a password without a user: name one with --user")}
	case f.PasswordFile != "" && f.PasswordEnv != "":
		return usageError{errors.New("--password-file and --password-env: give one of them")}
	case f.User == "" || f.password != nil:
		return nil
	case f.PasswordEnv != "":
		text, ok := os.LookupEnv(f.PasswordEnv)
		if !ok {
			return usageError{fmt.Errorf("--password-env %s: there is no such environment variable", f.PasswordEnv)}
		}
		f.password = []byte(text)
		return nil
	}
	s := secretFlags{PasswordFile: f.PasswordFile}
	f.password, err = s.readOnce(p)
	return err
}

// usage marks what the user wrote wrongly as a wrong use of the command line.
func usage(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before all was done")
	}
	var mistake client.Mistake
	if errors.As(err, &mistake) {
		return usageError{err}
	}
	return err
}

type browseCommand struct {
	serverFlags
	Nodes []string `arg:"" optional:"" name:"node" help:"Where to begin: ns=2;s=boiler, i=85, or boiler for ns=2;s=boiler (default: the Objects folder)."`
	Depth int      `default:"3" help:"Levels to go down; 0 for all (default: ${default})."`
	All   bool     `help:"Properties too, and what is below the Server object."`
}

// Run prints the tree of nodes.
func (c *browseCommand) Run(p *program) error {
	if c.Depth < 0 {
		return usageError{fmt.Errorf("--depth %d: it is 0 for all levels, or more", c.Depth)}
	}
	conn, err := c.dial(p, c.Nodes)
	if err != nil {
		return err
	}
	defer conn.Close()
	nodes, err := conn.Nodes(c.Nodes)
	if err != nil {
		return usage(err)
	}
	t := newTable(p.stdout, c.JSON)
	unknown := 0
	err = conn.Browse(p.ctx, nodes, client.BrowseOptions{Depth: c.Depth, All: c.All}, func(b *client.Browsed) error {
		if b.Depth == 0 && client.IsBad(b.Status) && b.Class == "" {
			unknown++
		}
		return t.row(browseRow(b)...)
	})
	if err := errors.Join(err, t.flush()); err != nil {
		return usage(err)
	}
	if unknown > 0 {
		return fmt.Errorf("%s of %d cannot be browsed: `edged browse %s` lists what there is", counted(unknown, "node", "nodes"), len(nodes), c.URL)
	}
	return nil
}

func browseRow(b *client.Browsed) []column {
	name, value, status := strings.Repeat("  ", b.Depth)+b.Name, "", ""
	if b.Again {
		name += " ..."
	}
	if b.Class == "Variable" && b.Value != nil {
		value = client.ValueText(b.Value)
	}
	if b.Status != ua.StatusOK || b.Class == "Variable" {
		status = client.StatusName(b.Status)
	}
	cols := []column{
		{"name", name, b.Name}, {"node", b.Node, b.Node}, {"class", b.Class, optional(b.Class)}, {"type", b.Type, optional(b.Type)},
		{"value", value, client.ValueJSON(b.Value)}, {"status", status, optional(status)},
	}
	return append(cols, column{name: "depth", text: fmt.Sprint(b.Depth), json: b.Depth})
}

// optional is a JSON value that is left out where there is none.
func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

type readCommand struct {
	serverFlags
	Nodes     []string `arg:"" name:"node" help:"What to read: ns=2;s=boiler.temperature, i=2258, or boiler.temperature for ns=2;s=boiler.temperature."`
	Attribute string   `default:"Value" help:"Attribute by its name or number, or all (default: ${default})."`
}

// Run prints values of nodes.
func (c *readCommand) Run(p *program) error {
	attributes, err := client.Attributes(c.Attribute)
	if err != nil {
		return usage(err)
	}
	conn, err := c.dial(p, c.Nodes)
	if err != nil {
		return err
	}
	defer conn.Close()
	nodes, err := conn.Nodes(c.Nodes)
	if err != nil {
		return usage(err)
	}
	readings, err := conn.Read(p.ctx, nodes, attributes)
	if err != nil {
		return usage(err)
	}
	t := newTable(p.stdout, c.JSON)
	var bad []outcome
	for i, r := range readings {
		if len(attributes) > 1 && r.Status == ua.StatusBadAttributeIDInvalid {
			continue // of all attributes a node has those of its class
		}
		if len(attributes) > 1 && r.Attribute == ua.AttributeIDRolePermissions && r.Status == ua.StatusBadUserAccessDenied {
			continue // it is for administrators (Part 3, 8.55)
		}
		if client.IsBad(r.Status) {
			bad = append(bad, outcome{c.Nodes[i/len(attributes)], r.Status})
		}
		if err := t.row(c.row(r)...); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	return badOutcomes("read", bad, len(nodes))
}

func (c *readCommand) row(r client.Reading) []column {
	value := ""
	if r.Value != nil {
		value = client.ValueText(r.Value)
	}
	cols := []column{{"node", r.Node.String(), r.Node.String()}}
	if !strings.EqualFold(c.Attribute, "value") {
		name := client.AttributeName(r.Attribute)
		cols = append(cols, column{"attribute", name, name})
	}
	source, server := client.TimeText(r.Source), client.TimeText(r.Server)
	return append(cols, column{"value", value, client.ValueJSON(r.Value)}, column{"unit", r.Unit, optional(r.Unit)},
		column{"type", r.Type, optional(r.Type)}, column{"status", client.StatusName(r.Status), client.StatusName(r.Status)},
		column{"source", source, optional(source)}, column{"server", server, optional(server)})
}

// outcome is a node with a status that is not good.
type outcome struct {
	node   string
	status ua.StatusCode
}

// badOutcomes is one sentence about what went wrong, or nil.
func badOutcomes(did string, bad []outcome, of int) error {
	if len(bad) == 0 {
		return nil
	}
	first := client.StatusName(bad[0].status)
	if hint := client.Hint(bad[0].status); hint != "" {
		first += ", " + hint
	}
	if of == 1 {
		return fmt.Errorf("%s was not %s: %s", bad[0].node, map[string]string{"read": "read", "write": "written"}[did], first)
	}
	return fmt.Errorf("%d of %d nodes could not be %s; the first is %s: %s", len(bad), of, map[string]string{"read": "read", "write": "written"}[did], bad[0].node, first)
}

type writeCommand struct {
	serverFlags
	Values []string `arg:"" name:"node=value" help:"What to write: boiler.setpoint=71.5, ns=2;s=boiler.setpoint=71.5; lists as 1,2,3."`
	Type   string   `placeholder:"TYPE" help:"Type to send instead of the node's own, such as Int16 or Double[]."`
}

// Run writes values and prints what became of them.
func (c *writeCommand) Run(p *program) error {
	list := make([]client.Assignment, len(c.Values))
	names := make([]string, len(c.Values))
	for i, text := range c.Values {
		a, err := client.SplitAssignment(text)
		if err != nil {
			return usage(err)
		}
		list[i], names[i] = a, a.Node
	}
	if c.Type != "" {
		if _, err := client.ParseType(c.Type); err != nil {
			return usage(err)
		}
	}
	conn, err := c.dial(p, names)
	if err != nil {
		return err
	}
	defer conn.Close()
	written, err := conn.Write(p.ctx, list, c.Type)
	if err != nil {
		return usage(err)
	}
	t := newTable(p.stdout, c.JSON)
	var bad []outcome
	for i, w := range written {
		if client.IsBad(w.Status) {
			bad = append(bad, outcome{names[i], w.Status})
		}
		name, status := w.Node.String(), client.StatusName(w.Status)
		err := t.row(column{"node", name, name}, column{"value", client.ValueText(w.Value), client.ValueJSON(w.Value)},
			column{"type", w.Type, w.Type}, column{"status", status, status})
		if err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	return badOutcomes("write", bad, len(written))
}

type watchCommand struct {
	serverFlags
	Nodes    []string      `arg:"" name:"node" help:"What to watch: ns=2;s=boiler.temperature, or boiler.temperature for the same."`
	Interval time.Duration `default:"500ms" help:"Publishing interval: how often the server sends what it has (default: ${default})."`
	Sampling time.Duration `default:"0s" help:"Sampling interval; 0s for every change that the server sees (default: ${default})."`
	Queue    uint32        `default:"100" help:"How many values of a node wait between two publishings (default: ${default})."`
	Count    int           `placeholder:"N" help:"End after so many changes."`
	For      time.Duration `placeholder:"TIME" help:"End after this time, such as 10s."`
}

// How long to wait before a lost server is tried again: the double of the last time, between these.
const (
	firstRedial = 500 * time.Millisecond
	lastRedial  = 5 * time.Second
)

// errEnough ends a watch that has shown what was asked for.
var errEnough = errors.New("enough")

// Run prints changes until it is told to end. A lost connection is told and made again.
func (c *watchCommand) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx := p.ctx
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	inner := *p
	inner.ctx = ctx
	w := watching{watchCommand: c, program: &inner, table: newTable(p.stdout, c.JSON)}
	conn, err := c.dial(&inner, c.Nodes)
	for pause := firstRedial; ; {
		if err == nil {
			pause = firstRedial
			err = w.until(conn)
			conn.Close()
		}
		switch {
		case errors.Is(err, errEnough), ctx.Err() != nil:
			return nil
		case !w.began || w.fatal:
			return usage(err)
		}
		if text := err.Error(); text != w.told {
			p.log.Warn(text+"; trying again", "url", c.URL)
			w.told = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRedial)
		if conn, err = c.dial(&inner, c.Nodes); err == nil {
			p.log.Info("connected again: changes in between are not shown", "url", c.URL)
			w.told = ""
		}
	}
}

func (c *watchCommand) check() error {
	switch {
	case c.Interval < time.Millisecond || c.Interval > client.MostInterval:
		return usageError{fmt.Errorf("--interval %v: it may be 1ms to %v", c.Interval, client.MostInterval)}
	case c.Sampling < 0 || c.Sampling > client.MostInterval:
		return usageError{fmt.Errorf("--sampling %v: it may be 0s to %v", c.Sampling, client.MostInterval)}
	case c.Queue == 0:
		return usageError{errors.New("--queue 0: it is at least 1")}
	case c.Count < 0 || c.For < 0:
		return usageError{errors.New("--count and --for are more than nothing")}
	}
	return nil
}

// watching is a watch over its connections. Owned by the command's goroutine.
type watching struct {
	*watchCommand
	*program
	table *table
	shown int
	began bool   // a server was watched once: from then on a failure is tried again
	fatal bool   // no further try can help
	told  string // the failure that was told last
}

// until watches by one connection until something ends it.
func (w *watching) until(conn *client.Conn) error {
	nodes, err := conn.Nodes(w.Nodes)
	if err != nil {
		return err
	}
	o := client.WatchOptions{Interval: w.Interval, Sampling: w.Sampling, Queue: w.Queue}
	return conn.Watch(w.ctx, nodes, o, func(items []client.Item) error { return w.created(nodes, items) }, func(change client.Change) error {
		if err := w.print(nodes, change); err != nil {
			w.fatal = true
			return err
		}
		if w.shown++; w.shown == w.Count {
			return errEnough
		}
		return nil
	})
}

// created tells of nodes that cannot be watched, once.
func (w *watching) created(nodes []*ua.NodeID, items []client.Item) error {
	var bad []outcome
	for i, item := range items {
		switch {
		case client.IsBad(item.Status):
			bad = append(bad, outcome{w.Nodes[i], item.Status})
		case item.Queue < w.Queue && !w.began:
			w.log.Warn("the server gives a shorter queue than asked", "node", nodes[i].String(), "asked", w.Queue, "given", item.Queue)
		}
	}
	first := !w.began
	if len(bad) == len(items) {
		return badOutcomes("read", bad, len(items))
	}
	w.began = true
	if first && len(bad) > 0 {
		w.log.Warn(badOutcomes("read", bad, len(items)).Error())
	}
	return nil
}

func (w *watching) print(nodes []*ua.NodeID, change client.Change) error {
	value, overflow, node := "", "", nodes[change.Item].String()
	if change.Value != nil {
		value = client.ValueText(change.Value)
	}
	var lost any
	if change.Overflow {
		overflow, lost = "Overflow", true
	}
	at, status := client.TimeText(change.Time), client.StatusName(change.Status)
	err := w.table.row(column{"time", at, at}, column{"node", node, node}, column{"value", value, client.ValueJSON(change.Value)},
		column{"status", status, status}, column{"overflow", overflow, lost})
	return errors.Join(err, w.table.flush())
}
