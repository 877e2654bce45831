package main

import _ "embed"

// Defaults of the demo's flags.
const (
	demoListen = "127.0.0.1:4840"
	demoWeb    = "127.0.0.1:8080"
)

//go:embed demo.yaml
var demoSite []byte

type demoCommand struct {
	Listen string `default:"${demo_listen}" placeholder:"HOST:PORT" help:"Address of the OPC UA server (${default})."`
	Web    string `default:"${demo_web}" placeholder:"HOST:PORT" help:"Address of the web page, or none (${default})."`
	Data   string `default:"${demo_data}" placeholder:"DIR" help:"Folder of certificates and all that is kept (${default})."`
	Print  bool   `help:"Print the demo's site file, to begin one of your own, and end."`
}

func (c *demoCommand) Run(p *program) error {
	if c.Print {
		_, err := p.stdout.Write(demoSite)
		return err
	}
	return nil
}
