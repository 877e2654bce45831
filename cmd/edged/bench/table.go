package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fact is a name and a value that each line for scripts begins with.
type fact struct {
	name  string
	value any
}

// column is one figure of a round. A figure that is not known is NaN.
type column[R any] struct {
	name     string
	decimals int
	total    bool // the last row has the sum, not the median
	optional bool // left out where no round has it
	of       func(r R) float64
}

// operations are all requests that were answered in the measured time.
func (r *result) operations() float64 { return float64(r.reads.sum + r.aside) }

func micros(q float64) func(*result) float64 {
	return func(r *result) float64 { return float64(r.reads.quantile(q).Nanoseconds()) / 1e3 }
}

func orNaN(v float64, known bool) float64 {
	if known {
		return v
	}
	return math.NaN()
}

// columns are the table, from left to right. An operation is a request with its answer.
var columns = []column[*result]{
	{name: "rate", of: func(r *result) float64 { return float64(r.reads.sum) / r.seconds }},
	{name: "values/s", optional: true, of: func(r *result) float64 {
		return orNaN(float64(r.reads.sum)*float64(r.values)/r.seconds, r.values > 1)
	}},
	{name: "writes/s", decimals: 1, optional: true, of: func(r *result) float64 { return orNaN(float64(r.aside)/r.seconds, r.aside > 0) }},
	{name: "errors", total: true, of: func(r *result) float64 { return float64(r.errors) }},
	{name: "p50_us", of: micros(0.5)},
	{name: "p90_us", of: micros(0.9)},
	{name: "p99_us", of: micros(0.99)},
	{name: "p99.9_us", of: micros(0.999)},
	{name: "max_us", of: func(r *result) float64 { return float64(r.reads.max.Nanoseconds()) / 1e3 }},
	{name: "cpu_us/op", decimals: 2, of: func(r *result) float64 { return (r.after.cpu - r.before.cpu) * 1e6 / r.operations() }},
	{name: "client_us/op", decimals: 2, of: func(r *result) float64 { return (r.after.client - r.before.client) * 1e6 / r.operations() }},
	{name: "alloc_B/op", decimals: 1, of: func(r *result) float64 { return max(0, r.after.alloc-r.before.alloc) / r.operations() }},
	{name: "rss_MiB", decimals: 1, of: func(r *result) float64 { return r.after.rss / (1 << 20) }},
	{name: "gc", of: func(r *result) float64 { return r.after.gc - r.before.gc }},
	{name: "gc_pause_ms", decimals: 2, of: func(r *result) float64 { return (r.after.pause - r.before.pause) * 1e3 }},
}

// table prints rounds as they end, for people or for scripts: then an object a line, whose keys are the columns.
type table[R any] struct {
	out     io.Writer
	json    bool
	heading string
	facts   []fact
	columns []column[R]
	rounds  []R
	shown   []column[R]
}

func (t *table[R]) row(name string, r R) {
	if len(t.rounds) == 0 {
		t.begin(r)
	}
	t.rounds = append(t.rounds, r)
	values := make([]float64, len(t.shown))
	for i, c := range t.shown {
		values[i] = c.of(r)
	}
	t.print(name, values, "")
}

// begin chooses the columns by the first round.
func (t *table[R]) begin(r R) {
	for _, c := range t.columns {
		if !c.optional || !math.IsNaN(c.of(r)) {
			t.shown = append(t.shown, c)
		}
	}
	if t.json {
		return
	}
	if t.heading != "" {
		fmt.Fprintln(t.out, t.heading)
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%-8s", "round")
	for _, c := range t.shown {
		fmt.Fprintf(&line, " %*s", c.width(), c.name)
	}
	fmt.Fprintln(t.out, line.String())
}

func (c *column[R]) width() int { return max(len(c.name), 8) }

// end prints the median of the rounds, and the verdict with what it is about.
func (t *table[R]) end(verdict, gate string) {
	values := make([]float64, len(t.shown))
	for i, c := range t.shown {
		all := make([]float64, len(t.rounds))
		for k, r := range t.rounds {
			all[k] = c.of(r)
		}
		if c.total {
			for _, v := range all {
				values[i] += v
			}
		} else {
			values[i] = median(all)
		}
	}
	t.print("median", values, verdict)
	if verdict != "" && !t.json {
		fmt.Fprintf(t.out, "%s (%s)\n", verdict, gate)
	}
}

func (t *table[R]) print(name string, values []float64, verdict string) {
	var line strings.Builder
	if t.json {
		t.printJSON(&line, name, values, verdict)
	} else {
		fmt.Fprintf(&line, "%-8s", name)
		for i, c := range t.shown {
			fmt.Fprintf(&line, " %*s", c.width(), c.text(values[i], "n/a"))
		}
	}
	fmt.Fprintln(t.out, line.String())
}

func (t *table[R]) printJSON(line *strings.Builder, name string, values []float64, verdict string) {
	facts := append(slices.Clone(t.facts), fact{"round", name})
	if verdict != "" {
		facts = append(facts, fact{"verdict", verdict})
	}
	for i, f := range facts {
		text, err := json.Marshal(f.value)
		if err != nil {
			text = []byte("null")
		}
		fmt.Fprintf(line, "%c%q:%s", "{,"[min(i, 1)], f.name, text)
	}
	for i, c := range t.shown {
		fmt.Fprintf(line, ",%q:%s", c.name, c.text(values[i], "null"))
	}
	line.WriteByte('}')
}

func (c *column[R]) text(v float64, unknown string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return unknown
	}
	return strconv.FormatFloat(v, 'f', c.decimals, 64)
}

// median is the middle of what is known, or NaN.
func median(all []float64) float64 {
	all = slices.DeleteFunc(slices.Clone(all), math.IsNaN)
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
