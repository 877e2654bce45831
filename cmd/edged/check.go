package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

// connectLimit is how long --connect waits for answers, or twice the longest time-out of a bus.
const connectLimit = 5 * time.Second

type checkCommand struct {
	Config  string `placeholder:"FILE" help:"Site file to check."`
	Schema  bool   `help:"Print the JSON Schema of the site file, for editors, instead."`
	Connect bool   `help:"Connect to the devices, poll each tag once, and name those that are not good."`
	JSON    bool   `name:"json" help:"One JSON object a line instead of text."`
}

// checkSummary is what check says of a file without mistakes. Its keys are those of the text form.
type checkSummary struct {
	File    string   `json:"file"`
	Buses   int      `json:"buses"`
	Devices int      `json:"devices"`
	Tags    int      `json:"tags"`
	Notes   []string `json:"notes,omitempty"`
}

// Run checks a site file: every mistake on stdout with --json and on stderr without, or a summary.
func (c *checkCommand) Run(p *program) error {
	switch {
	case c.Schema:
		return siteSchema().write(p.stdout)
	case c.Config == "":
		return usageError{errors.New("check: which file? name it with --config FILE")}
	}
	s, err := loadSite(c.Config)
	if err != nil {
		return c.mistakes(p, err)
	}
	sum := checkSummary{File: s.File, Buses: len(s.Buses), Devices: len(s.Devices), Tags: len(s.Tags), Notes: s.Notes}
	if err := c.print(p, sum); err != nil {
		return err
	}
	if err := c.printBudgets(p, s); err != nil || !c.Connect {
		return err
	}
	return c.connect(p, s)
}

func (c *checkCommand) print(p *program, sum checkSummary) error {
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(sum)
	}
	fmt.Fprintf(p.stdout, "%s: good: %s, %s, %s\n", sum.File,
		counted(sum.Buses, "bus", "buses"), counted(sum.Devices, "device", "devices"), counted(sum.Tags, "tag", "tags"))
	for _, note := range sum.Notes {
		fmt.Fprintf(p.stdout, "note: %s\n", note)
	}
	return nil
}

// checkedTag is what --connect says of one tag. Its keys are the columns of the text form.
type checkedTag struct {
	Tag    string `json:"tag"`
	Status string `json:"status"`
	Value  string `json:"value"`
}

// connect runs the field side until the devices have answered for every tag that can be read, or the time is up, and
// prints the tags.
func (c *checkCommand) connect(p *program, s *site) error {
	table, err := tag.NewTable(s.Tags)
	if err != nil {
		return err
	}
	first := newFirstReadings(s.Tags)
	f, err := newField(s, table, first, p.log, nil)
	if err != nil {
		return err
	}
	fleet, err := drivers.NewFleet(f.Config)
	if err != nil {
		return err
	}
	limit := connectLimit
	for _, b := range s.Buses {
		limit = max(limit, 2*b.Timeout*time.Duration(b.Retries+1))
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	var field sync.WaitGroup
	field.Go(func() { fleet.Run(ctx) }) // its end is ours
	select {
	case <-first.all:
	case <-ctx.Done():
	}
	cancel()
	field.Wait()
	bad := 0
	for ref, def := range table.All() {
		if def.Access&tag.Readable == 0 {
			continue
		}
		v := first.reading(ref)
		if !v.Status.IsGood() {
			bad++
		}
		row := checkedTag{def.FullName(), v.Status.String(), v.Value.String()}
		if c.JSON {
			if err := json.NewEncoder(p.stdout).Encode(row); err != nil {
				return err
			}
		} else if !v.Status.IsGood() {
			fmt.Fprintf(p.stdout, "%s: %s\n", row.Tag, row.Status)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s of %d cannot be read: look at the log above and at the addresses of these tags", counted(bad, "tag", "tags"), table.Len())
	}
	if !c.JSON {
		fmt.Fprintf(p.stdout, "every tag was read\n")
	}
	return nil
}

// firstReadings is a sink that keeps the first reading of each tag that its device answered; until there is one, why not.
type firstReadings struct {
	mu   sync.Mutex // guards the fields below
	last []tag.Sample
	open []bool        // by Ref-1: the device has not answered
	left int           // how many are open
	all  chan struct{} // closed when none is
}

func newFirstReadings(defs []tag.Def) *firstReadings {
	f := &firstReadings{last: make([]tag.Sample, len(defs)), open: make([]bool, len(defs)), all: make(chan struct{})}
	for i := range defs {
		if defs[i].Access&tag.Readable != 0 {
			f.last[i].Status, f.open[i] = tag.BadWaitingForInitialData, true
			f.left++
		}
	}
	if f.left == 0 {
		close(f.all)
	}
	return f
}

// Publish implements tag.Sink.
func (f *firstReadings) Publish(batch []tag.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range batch {
		if !f.open[v.Ref-1] {
			continue
		}
		f.last[v.Ref-1] = v
		if v.Status == tag.BadNoCommunication || v.Status == tag.BadWaitingForInitialData {
			continue
		}
		f.open[v.Ref-1] = false
		if f.left--; f.left == 0 {
			close(f.all)
		}
	}
}

func (f *firstReadings) reading(ref tag.Ref) tag.Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[ref-1]
}

// mistakes prints the mistakes of a file as results where the caller asked for JSON.
func (c *checkCommand) mistakes(p *program, err error) error {
	file, ok := err.(fileError)
	if !ok || !c.JSON {
		return err
	}
	out := json.NewEncoder(p.stdout)
	for _, m := range file {
		if err := out.Encode(m); err != nil {
			return err
		}
	}
	return usageError{fmt.Errorf("%s: %s", c.Config, counted(len(file), "mistake", "mistakes"))}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
