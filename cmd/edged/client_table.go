package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// tableBatch is how many rows wait for each other, to be aligned together.
const tableBatch = 200

// widestColumn is the widest that a column grows: one long value does not push all others away.
const widestColumn = 60

// column is one value of a row: its name, which is the key of the JSON form, and what either form shows.
type column struct {
	name string
	text string
	json any // nil: the key is left out
}

// table prints rows: aligned on a terminal, separated by tabs elsewhere, or one JSON object a line. The text forms
// begin with the names of the columns.
type table struct {
	out     io.Writer
	json    bool
	aligned bool
	titled  bool
	waiting [][]string
	widths  []int
}

func newTable(out io.Writer, asJSON bool) *table {
	return &table{out: out, json: asJSON, aligned: isTerminal(out)}
}

// isTerminal reports whether w is the screen of a person.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// row prints a row, perhaps not before flush.
func (t *table) row(columns ...column) error {
	if t.json {
		return t.object(columns)
	}
	if !t.titled {
		t.titled = true
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = c.name
		}
		t.waiting = append(t.waiting, names)
	}
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = c.text
	}
	t.waiting = append(t.waiting, texts)
	if len(t.waiting) >= tableBatch || !t.aligned {
		return t.flush()
	}
	return nil
}

// object writes the columns as JSON, in their order.
func (t *table) object(columns []column) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	separator := byte('{')
	for _, c := range columns {
		if c.json == nil {
			continue
		}
		b.WriteByte(separator)
		separator = ','
		fmt.Fprintf(&b, "%q:", c.name)
		if err := encoder.Encode(c.json); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the line end that Encode writes
	}
	b.WriteString("}\n")
	_, err := t.out.Write(b.Bytes())
	return err
}

// flush prints what waits.
func (t *table) flush() error {
	var b strings.Builder
	for _, texts := range t.waiting {
		for i, s := range texts {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], min(utf8.RuneCountInString(s), widestColumn))
		}
	}
	for _, texts := range t.waiting {
		line := strings.Join(texts, "\t")
		if t.aligned {
			var l strings.Builder
			for i, s := range texts {
				l.WriteString(s)
				l.WriteString(strings.Repeat(" ", 2+max(0, t.widths[i]-utf8.RuneCountInString(s))))
			}
			line = strings.TrimRight(l.String(), " ")
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	t.waiting = t.waiting[:0]
	_, err := io.WriteString(t.out, b.String())
	return err
}
