package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"edged/cmd/edged/bench"
	"edged/drivers/tag"
)

type benchCommand struct {
	Workload string `arg:"" help:"${bench_workloads}"`
	URL      string `name:"url" placeholder:"URL" help:"Server to load, such as opc.tcp://127.0.0.1:4840 (default: a gateway of its own, with tags in memory)."`
	Nodes    string `placeholder:"PATTERN" help:"Node ids of the server at URL, %d in the place of the number: 'ns=1;i=%d'."`
	Base     int    `default:"0" help:"Number of the first node (default: ${default})."`
	Count    int    `default:"0" placeholder:"N" help:"How many nodes there are (default: 1000)."`
	Type     string `placeholder:"TYPE" help:"Type of all nodes, as in a site file: int32, uint32 ... (default: the workload's)."`
	Random   bool   `help:"Take the nodes of each request at random."`

	Sessions int            `default:"0" placeholder:"N" help:"Sessions (default: the workload's)."`
	Queue    int            `default:"0" placeholder:"N" help:"Queue size of each item (default: the workload's)."`
	Field    string         `default:"" enum:",modbus" placeholder:"KIND" help:"Where the values come from: modbus has the gateway poll them from a simulated device over TCP (default: tags in memory)."`
	Security string         `default:"" enum:",None,Basic256Sha256,Aes128_Sha256_RsaOaep,Aes256_Sha256_RsaPss" placeholder:"POLICY" help:"None, or with sign and encrypt Basic256Sha256, Aes128_Sha256_RsaOaep or Aes256_Sha256_RsaPss (default: the workload's)."`
	Duration time.Duration  `default:"0" placeholder:"TIME" help:"Measured time of a round (default: the workload's)."`
	Warmup   *time.Duration `placeholder:"TIME" help:"Time before it (default: the workload's)."`
	Rounds   int            `default:"0" placeholder:"N" help:"Rounds (default: the workload's)."`
	Scale    float64        `default:"1" help:"Shrink sessions and times that are not given, for a quick look (default: ${default})."`

	Pid     int    `default:"0" placeholder:"PID" help:"Process of the server at URL (default: the one that listens there, on this machine)."`
	Metrics string `placeholder:"URL" help:"Prometheus metrics of the server at URL, if it is a Go program."`
	JSON    bool   `name:"json" help:"Print one JSON object a line; its keys are the table's columns."`
}

// Run puts a server under load and prints what it did.
func (c *benchCommand) Run(p *program) error {
	cfg := bench.Config{
		Workload: c.Workload, URL: c.URL, PID: c.Pid, Metrics: c.Metrics, Nodes: c.Nodes, Base: c.Base, Count: c.Count,
		Random: c.Random, Sessions: c.Sessions, Queue: c.Queue, Field: c.Field, Security: c.Security, Duration: c.Duration,
		Rounds: c.Rounds, Scale: c.Scale, JSON: c.JSON, Out: p.stdout,
	}
	if c.Warmup != nil {
		if cfg.Warmup = *c.Warmup; cfg.Warmup <= 0 {
			cfg.Warmup = -1 // none, which is not the same as nothing given
		}
	}
	if c.Type != "" {
		t, err := tag.ParseType(strings.ToLower(c.Type))
		if err == nil && (t.Len > 0 || !t.Kind.Number() || t.Kind < tag.Int16 || t.Kind > tag.Uint64) {
			err = fmt.Errorf("%s: the values are whole numbers of 16 bits and more", t)
		}
		if err != nil {
			return usageError{fmt.Errorf("--type %w", err)}
		}
		cfg.Kind = t.Kind
	}
	var err error
	if cfg.Program, err = os.Executable(); err != nil {
		return err
	}
	if err = bench.Run(p.ctx, cfg); errors.Is(err, bench.ErrUsage) {
		return usageError{err}
	}
	return err
}
