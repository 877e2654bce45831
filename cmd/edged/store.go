package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"edged/cmd/edged/client"
	"edged/drivers/tag"
	"edged/store"
)

type storeCommand struct {
	Check   storeCheck   `cmd:"" help:"Read every file of a store and all that is in it."`
	Compact storeCompact `cmd:"" help:"Write history files anew where that makes them smaller; the gateway must be stopped."`
	Backup  storeBackup  `cmd:"" help:"Write a store into a tar archive, while the gateway runs or not."`
}

// storeFlags say whose store it is.
type storeFlags struct {
	Config string `placeholder:"FILE" help:"Site file of the gateway."`
	Data   string `placeholder:"DIR" help:"Its data folder (default: edged-data beside the site file)."`
}

// dir is the folder of the store: of the gateway that the flags name, or the path if one is given.
func (f *storeFlags) dir(path string) (string, error) {
	switch {
	case path != "":
		if inner := filepath.Join(path, storeFolder); isFolder(inner) {
			return inner, nil // a data folder
		}
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
		return path, nil
	case f.Data == "" && f.Config == "":
		return "", usageError{errors.New("whose store? name the gateway's data folder with --data DIR, or its site file with --config FILE")}
	}
	data := f.Data
	if data == "" {
		data = dataBeside(f.Config)
	}
	dir := filepath.Join(data, storeFolder)
	if !isFolder(dir) {
		return "", fmt.Errorf("%s: there is no such store: name another data folder with --data, or start the gateway once", dir)
	}
	return dir, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

type storeCheck struct {
	storeFlags
	File string `arg:"" optional:"" placeholder:"FILE" help:"A data folder, a store's folder, or one file of it."`
	JSON bool   `name:"json" help:"One JSON object a line instead of text."`
}

// Run prints a line a file.
func (c *storeCheck) Run(p *program) error {
	path, err := c.dir(c.File)
	if err != nil {
		return err
	}
	reports, err := store.Check(path)
	if err != nil {
		return err
	}
	t := newTable(p.stdout, c.JSON)
	bad := 0
	for _, r := range reports {
		state := "ok"
		switch {
		case r.Err != nil:
			bad++
			state = r.Err.Error()
		case r.Torn:
			state = "ok, but for a last record that was never committed"
		}
		from, to := "", ""
		if r.Samples > 0 {
			from, to = r.From.String(), r.To.String()
		}
		err := t.row(column{"file", r.File, r.File}, column{"bytes", fmt.Sprint(r.Size), r.Size}, column{"tags", fmt.Sprint(r.Tags), r.Tags},
			column{"samples", fmt.Sprint(r.Samples), r.Samples}, column{"from", from, optional(from)}, column{"to", to, optional(to)},
			column{"state", state, state})
		if err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%s damaged: the gateway sets them aside by itself, and keeps what can be read of them", counted(bad, "file is", "files are"))
	}
	return nil
}

type storeCompact struct {
	storeFlags
	File string `arg:"" optional:"" placeholder:"DIR" help:"A data folder, or a store's folder."`
}

// Run compacts and prints what it brought.
func (c *storeCompact) Run(p *program) error {
	dir, err := c.dir(c.File)
	if err != nil {
		return err
	}
	if !isFolder(dir) {
		return usageError{fmt.Errorf("%s is no folder: compact takes a whole store", dir)}
	}
	before, after, err := store.Compact(dir)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("%s: %w: stop the gateway first", dir, err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s: history files had %d bytes and have %d\n", dir, before, after)
	return err
}

type storeBackup struct {
	storeFlags
	File string `arg:"" placeholder:"FILE" help:"Archive to write, - for standard output. Unpacked into an empty folder named store in a data folder, it is the store as it was."`
}

// Run writes the archive, which is there whole or not at all.
func (c *storeBackup) Run(p *program) error {
	dir, err := c.dir("")
	if err != nil {
		return err
	}
	if c.File == "-" {
		return store.Backup(dir, p.stdout)
	}
	fresh := c.File + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = store.Backup(dir, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return os.Rename(fresh, c.File)
}

type historyCommand struct {
	storeFlags
	Nodes []string `arg:"" optional:"" name:"node" help:"Tags: boiler.temperature, or ns=2;s=boiler.temperature. Without one, the names of all tags that have had one are listed."`
	From  string   `placeholder:"TIME" help:"From when, that time included: 2026-03-01T12:00:00Z, or 1h for an hour ago (default: from the beginning)."`
	To    string   `placeholder:"TIME" help:"To when, that time not included (default: to the end). A time before --from prints backward."`
	Count int      `placeholder:"N" help:"At most so many of each tag."`
	CSV   bool     `name:"csv" xor:"form" help:"Comma-separated values."`
	JSON  bool     `name:"json" xor:"form" help:"One JSON object a line."`
}

// Run prints history from the files of a gateway that runs or not. Of one that runs, what it has not committed is missing.
func (c *historyCommand) Run(p *program) error {
	if c.Count < 0 {
		return usageError{fmt.Errorf("--count %d: it is 1 or more", c.Count)}
	}
	now := time.Now()
	from, err := parseMoment(c.From, now, time.Time{})
	if err != nil {
		return usageError{fmt.Errorf("--from: %w", err)}
	}
	to, err := parseMoment(c.To, now, tag.MaxTime.Time())
	if err != nil {
		return usageError{fmt.Errorf("--to: %w", err)}
	}
	dir, err := c.dir("")
	if err != nil {
		return err
	}
	s, err := store.Open(store.Config{Dir: dir, ReadOnly: true, Log: p.log})
	if err != nil {
		return err
	}
	defer s.Close(p.ctx)
	if len(c.Nodes) == 0 {
		for _, name := range s.Names() {
			if _, err := fmt.Fprintln(p.stdout, name); err != nil {
				return err
			}
		}
		return nil
	}
	out := historyWriter{program: p, csv: c.CSV, table: newTable(p.stdout, c.JSON)}
	for _, node := range c.Nodes {
		if err := out.tag(s, strings.TrimPrefix(node, "ns=2;s="), from, to, c.Count); err != nil {
			return err
		}
	}
	return out.table.flush()
}

// parseMoment reads a time, or how long ago it is.
func parseMoment(text string, now, none time.Time) (time.Time, error) {
	if text == "" {
		return none, nil
	}
	if text == "now" {
		return now, nil
	}
	if d, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	return none, fmt.Errorf("%q is no time: write 2026-03-01T12:00:00Z, or 1h for an hour ago", clip(text))
}

// historyWriter prints samples in one of three forms.
type historyWriter struct {
	*program
	table *table
	csv   bool
	begun bool
}

func (w *historyWriter) tag(s *store.Store, name string, from, to time.Time, most int) error {
	var key []byte
	var page []tag.Sample
	for left := most; ; {
		limit := 10_000
		if most > 0 {
			limit = min(limit, left)
		}
		var err error
		page, key, err = s.ReadName(name, from, to, key, limit, page[:0])
		if err != nil {
			return err
		}
		for i := range page {
			if err := w.sample(name, &page[i]); err != nil {
				return err
			}
		}
		if left -= len(page); key == nil || most > 0 && left <= 0 || w.ctx.Err() != nil {
			return w.ctx.Err()
		}
	}
}

func (w *historyWriter) sample(name string, v *tag.Sample) error {
	at, value := v.At.Time().Format("2006-01-02T15:04:05.0000000Z"), ""
	if !v.Value.IsNull() {
		value = v.Value.String()
	}
	status := client.StatusName(ua.StatusCode(v.Status))
	if w.csv {
		if !w.begun {
			w.begun = true
			if _, err := fmt.Fprintln(w.stdout, "node,time,value,status"); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w.stdout, "%s,%s,%s,%s\n", csvText(name), at, csvText(value), status)
		return err
	}
	return w.table.row(column{"node", name, name}, column{"time", at, at}, column{"value", value, jsonValue(v.Value)}, column{"status", status, status})
}

// jsonValue is a value as JSON has it: what JSON has no form for, such as NaN, is a text.
func jsonValue(v tag.Value) any {
	if f, ok := v.Float(); ok && !math.IsNaN(f) && !math.IsInf(f, 0) || v.IsNull() || v.Kind() == tag.Bool && !v.IsArray() {
		return v.Any()
	}
	return v.String()
}

// csvText quotes a text where it has to be (RFC 4180).
func csvText(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
