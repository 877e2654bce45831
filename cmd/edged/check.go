package main

import (
	"encoding/json"
	"fmt"
)

type checkCommand struct {
	Config string `required:"" placeholder:"FILE" help:"Site file to check."`
	JSON   bool   `name:"json" help:"One JSON object a line instead of text."`
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
	s, err := loadSite(c.Config)
	if err != nil {
		return c.mistakes(p, err)
	}
	sum := checkSummary{File: s.File, Buses: len(s.Buses), Devices: len(s.Devices), Tags: len(s.Tags), Notes: s.Notes}
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
