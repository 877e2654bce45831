package main

import (
	_ "embed"
	"fmt"
	"io"

	"edged/drivers/port"
	"edged/drivers/sim"
)

// Defaults of the demo's flags.
const (
	demoListen = "127.0.0.1:4840"
	demoWeb    = "127.0.0.1:8080"
)

//go:embed demo.yaml
var demoSite []byte

type demoCommand struct {
	Listen string `default:"${demo_listen}" placeholder:"HOST:PORT" help:"Address of the OPC UA server (default: ${default})."`
	Web    string `default:"${demo_web}" placeholder:"HOST:PORT" help:"Address of the web page, or none (default: ${default})."`
	Data   string `default:"${demo_data}" placeholder:"DIR" help:"Folder of certificates and all that is kept (default: ${default})."`
	Print  bool   `help:"Print the demo's site file, to begin one of your own, and end."`
}

// Run runs a simulated plant, the gateway and the web page in this process until it is told to end.
func (c *demoCommand) Run(p *program) error {
	if c.Print {
		_, err := p.stdout.Write(demoSite)
		return err
	}
	s, err := c.site()
	if err != nil {
		return err
	}
	plant, err := sim.New(sim.Demo())
	if err != nil {
		return err
	}
	if err := plant.Start(); err != nil {
		return err
	}
	defer plant.Close()
	if err := s.connect(plant); err != nil {
		return err
	}
	g, err := newGateway(s, c.Data, p.log)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		g.greet(p.stdout, done)
	}()
	g.run(p.ctx)
	close(done)
	<-printed
	return nil
}

// site is the demo's site file with the command line's addresses.
func (c *demoCommand) site() (*site, error) {
	s, err := parseSite("demo.yaml", demoSite)
	if err != nil {
		return nil, err
	}
	if why := badListenAddress(c.Listen); why != "" {
		return nil, usageError{fmt.Errorf("--listen %s: %s", c.Listen, why)}
	}
	s.Server.Listen, s.Web.Listen = c.Listen, c.Web
	if c.Web == "none" {
		s.Web.Listen = ""
	} else if why := badListenAddress(c.Web); why != "" {
		return nil, usageError{fmt.Errorf("--web %s: %s", c.Web, why)}
	}
	return s, nil
}

// connect puts the addresses of a plant's lines in place of those of the buses of the same names.
func (s *site) connect(plant *sim.Plant) error {
	for i := range s.Buses {
		line := plant.Line(s.Buses[i].Name)
		if line == nil {
			continue
		}
		address, err := port.Parse(line.URL())
		if err != nil {
			return err
		}
		s.Buses[i].Address = address
	}
	return nil
}

// greet prints where the gateway is to be had, once it listens, or nothing if done comes first.
func (g *gateway) greet(out io.Writer, done <-chan struct{}) {
	sockets := []*listening{g.opcua}
	if g.page != nil {
		sockets = append(sockets, g.page)
	}
	for _, l := range sockets {
		select {
		case <-l.up:
		case <-done:
			return
		}
	}
	fmt.Fprintf(out, "OPC UA    %s\n", g.endpoint())
	if g.page != nil {
		fmt.Fprintf(out, "web page  http://%s\n", g.page.place())
	}
	fmt.Fprint(out, "nodes     ns=2;s=boiler.temperature   moves\n"+
		"          ns=2;s=boiler.counter       counts every 100 ms\n"+
		"          ns=2;s=boiler.setpoint      can be written, 0 to 120\n"+
		"          ns=2;s=burner.pressure      on a serial line\n"+
		"          ns=2;s=scratch.m0           can be written\n"+
		"Any client certificate is trusted. Ctrl-C ends.\n")
}
