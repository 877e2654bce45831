package modbus

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"edged/drivers/tag"
)

// spans writes a plan as "holding:0+4 holding:10+2".
func spans(rs []*request) (out []string) {
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s:%d+%d", r.table, r.start, r.count()))
	}
	return out
}

func fieldsOf(t testing.TB, tags ...Tag) (units []unit) {
	t.Helper()
	for _, tg := range tags {
		var u unit
		tg.Access = tag.Readable
		u.add(mustField(t, tg))
		units = append(units, u)
	}
	return units
}

func TestPlan(t *testing.T) {
	var floats []Tag // D5: 60 contiguous Float32 on a device that refuses more than 20 registers
	for i := range 60 {
		floats = append(floats, Tag{Address: fmt.Sprintf("holding:%d", 2*i), Type: "float32"})
	}
	odd := []Tag{{Address: "holding:0"}}
	for i := range 15 {
		odd = append(odd, Tag{Address: fmt.Sprintf("holding:%d", 1+2*i), Type: "float32"})
	}
	at := func(addresses ...string) (tags []Tag) {
		for _, a := range addresses {
			tags = append(tags, Tag{Address: a})
		}
		return tags
	}
	for _, row := range []struct {
		name string
		tags []Tag
		l    limits
		want []string
	}{
		{"D5 limit below the standard's", floats, limits{registers: 20}, []string{
			"holding:0+20", "holding:20+20", "holding:40+20", "holding:60+20", "holding:80+20", "holding:100+20"}},
		{"D5 a value is never split", odd, limits{registers: 20}, []string{"holding:0+19", "holding:19+12"}},
		{"gap bridged", at("holding:0", "holding:9"), limits{registers: 125, gaps: 8}, []string{"holding:0+10"}},
		{"gap too wide", at("holding:0", "holding:10"), limits{registers: 125, gaps: 8}, []string{"holding:0+1", "holding:10+1"}},
		{"hole in the gap", at("holding:0", "holding:4"), limits{registers: 125, gaps: 8, holes: []span{{Holding, 2, 3}}}, []string{"holding:0+1", "holding:4+1"}},
		{"hole of another table", at("holding:0", "holding:4"), limits{registers: 125, gaps: 8, holes: []span{{Input, 2, 3}}}, []string{"holding:0+5"}},
		{"tables apart, in order", at("holding:0", "coil:0", "input:0", "discrete:0", "coil:1"), limits{registers: 125, bits: 2000},
			[]string{"coil:0+2", "discrete:0+1", "input:0+1", "holding:0+1"}},
		{"bits of one register", at("holding:3.1", "holding:3.9", "holding:3"), limits{registers: 125}, []string{"holding:3+1"}},
		{"a value inside another", []Tag{{Address: "holding:0", Type: "string(20)"}, {Address: "holding:4"}, {Address: "holding:10"}}, limits{registers: 125}, []string{"holding:0+11"}},
		{"bits by their own limit", at("coil:0", "coil:99", "coil:100"), limits{bits: 100, gaps: 200}, []string{"coil:0+100", "coil:100+1"}},
	} {
		if got := spans(plan(fieldsOf(t, row.tags...), &row.l)); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

func TestTogether(t *testing.T) {
	cfg := Config{Name: "d", Unit: 1, Together: [][]string{{"a", "b"}}, Tags: []Tag{
		{Ref: 1, Name: "a", Address: "holding:0"}, {Ref: 2, Name: "b", Address: "holding:60"}, {Ref: 3, Name: "c", Address: "holding:30"},
		{Ref: 4, Name: "far", Address: "holding:124"}, {Ref: 5, Name: "farther", Address: "holding:125"},
	}}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := spans(d.requests); !slices.Equal(got, []string{"holding:0+61", "holding:124+2"}) {
		t.Errorf("%v", got)
	}
	if left, right, ok := d.requests[0].split(); !ok || slices.Equal(spans([]*request{left}), spans([]*request{right})) {
		t.Error("no split")
	} else if got := spans([]*request{left, right}); !slices.Equal(got, []string{"holding:0+61", "holding:30+1"}) {
		t.Errorf("the group was torn apart: %v", got)
	}
}

var allTypes = []string{"uint16", "int32", "float32", "float64", "string(5)", "uint16[7]"}

// drawTags draws a device's tags, all readable.
func drawTags(t *rapid.T) []Tag {
	n := rapid.IntRange(1, 40).Draw(t, "n")
	tags := make([]Tag, n)
	for i := range tags {
		table := Table(rapid.IntRange(0, 3).Draw(t, "table"))
		tags[i] = Tag{Ref: tag.Ref(i + 1), Name: fmt.Sprintf("t%d", i), Address: Address{table, rapid.IntRange(0, 300).Draw(t, "number"), -1}.String()}
		if !table.Bits() {
			tags[i].Type = rapid.SampledFrom(allTypes).Draw(t, "type")
		}
	}
	return tags
}

func TestPlanProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tags := drawTags(t)
		l := limits{registers: rapid.IntRange(7, 125).Draw(t, "registers"), bits: rapid.IntRange(1, 2000).Draw(t, "bits"), gaps: rapid.IntRange(0, 20).Draw(t, "gaps")}
		for range rapid.IntRange(0, 5).Draw(t, "holes") {
			start := rapid.IntRange(0, 310).Draw(t, "hole")
			l.holes = append(l.holes, span{Table(rapid.IntRange(0, 3).Draw(t, "holed")), start, start + rapid.IntRange(1, 5).Draw(t, "length")})
		}
		var units []unit
		fields := map[tag.Ref]*field{}
		for i := range tags {
			f, errs := tags[i].field(&Config{})
			if len(errs) > 0 {
				t.Fatal(errs[0])
			}
			if _, in := l.hole(f.table, f.start, f.end()); in {
				continue
			}
			fields[f.ref] = f
			var u unit
			u.add(f)
			units = append(units, u)
		}
		image := memory(7)
		read := map[tag.Ref]bool{}
		for _, r := range plan(units, &l) {
			if r.count() < 1 || r.count() > l.most(r.table) || r.end > lastAddress+1 {
				t.Fatalf("%v is beyond the limits %+v", spans([]*request{r}), l)
			}
			if h, in := l.hole(r.table, r.start, r.end); in {
				t.Fatalf("%v touches the hole %s", spans([]*request{r}), h)
			}
			covered, reached := 0, r.start
			data := image.read(r.table, r.start, r.count())
			for _, f := range r.fields {
				if f.table != r.table || f.start < r.start || f.end() > r.end || read[f.ref] {
					t.Fatalf("%s:%d+%d of %s in %v", f.table, f.start, f.count, tags[f.ref-1].Name, spans([]*request{r}))
				}
				read[f.ref] = true
				if gap := f.start - reached; gap > l.gaps {
					t.Fatalf("a gap of %d is bridged", gap)
				}
				reached = max(reached, f.end())
				covered++
				got, _ := f.decode(data, r.start)
				alone, _ := f.decode(image.read(f.table, f.start, f.count), f.start)
				if !got.Equal(alone) {
					t.Fatalf("%s reads %v in the plan and %v alone", tags[f.ref-1].Name, got, alone)
				}
			}
		}
		if len(read) != len(fields) {
			t.Fatalf("%d of %d tags are read", len(read), len(fields))
		}
	})
}

// possible reports whether one request may read all the units.
func (l *limits) possible(units []unit) bool {
	sortUnits(units)
	start, end := units[0].start, units[0].end
	for _, u := range units {
		if u.table != units[0].table || u.start-end > l.gaps {
			return false
		}
		end = max(end, u.end)
	}
	_, in := l.hole(units[0].table, start, end)
	return end-start <= l.most(units[0].table) && !in
}

// fewest tries every way to share the units out among requests.
func (l *limits) fewest(units []unit) int {
	best := map[uint]int{0: 0}
	all := uint(1)<<len(units) - 1
	for done := uint(0); done < all; done++ {
		n, ok := best[done]
		if !ok {
			continue
		}
		first := uint(bits.TrailingZeros(^done)) // some request has to read it
		rest := all &^ done &^ (1 << first)
		for sub := rest; ; sub = (sub - 1) & rest {
			var some []unit
			for i := range units {
				if (sub|1<<first)>>i&1 == 1 {
					some = append(some, units[i])
				}
			}
			if next := done | sub | 1<<first; l.possible(some) {
				if had, ok := best[next]; !ok || n+1 < had {
					best[next] = n + 1
				}
			}
			if sub == 0 {
				break
			}
		}
	}
	return best[all]
}

// No other plan has fewer requests.
func TestPlanIsTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits{registers: rapid.IntRange(8, 20).Draw(t, "registers"), bits: 20, gaps: rapid.IntRange(0, 6).Draw(t, "gaps")}
		for range rapid.IntRange(0, 2).Draw(t, "holes") {
			start := rapid.IntRange(0, 40).Draw(t, "hole")
			l.holes = append(l.holes, span{Holding, start, start + rapid.IntRange(1, 3).Draw(t, "length")})
		}
		var units []unit
		for range rapid.IntRange(1, 7).Draw(t, "n") {
			u := unit{table: Holding, start: rapid.IntRange(0, 40).Draw(t, "start")}
			u.end = u.start + rapid.IntRange(1, 8).Draw(t, "count")
			if _, in := l.hole(u.table, u.start, u.end); in {
				continue
			}
			f := &field{form: &form{shape: shape{table: Holding, count: u.end - u.start}}, start: u.start}
			u.fields = []*field{f}
			units = append(units, u)
		}
		if len(units) == 0 {
			return
		}
		if got, want := len(plan(units, &l)), l.fewest(slices.Clone(units)); got != want {
			t.Fatalf("%d requests for %+v within %+v, and %d are possible", got, units, l, want)
		}
	})
}

func TestSplitAtGaps(t *testing.T) {
	for _, row := range []struct {
		addresses []int
		want      int // units on the left
	}{
		{[]int{0, 1, 2, 3}, 2}, {[]int{0, 1, 2, 5}, 3}, {[]int{0, 3, 4, 5, 6, 7}, 1}, {[]int{0, 2, 4, 6, 8, 10}, 3}, {[]int{0, 1}, 1},
	} {
		var units []unit
		for _, at := range row.addresses {
			units = append(units, unit{table: Holding, start: at, end: at + 1})
		}
		if got := middle(units); got != row.want {
			t.Errorf("%v is cut at %d, want %d", row.addresses, got, row.want)
		}
	}
}

// memory is a device's tables, filled from a seed: what stands at an address is a function of both.
type memory uint32

func (m memory) register(t Table, n int) uint16 {
	x := (uint32(n)+1)*2654435761 ^ uint32(m)*40503 ^ uint32(t)<<20
	return uint16(x >> 13)
}

// read packs as an answer does.
func (m memory) read(t Table, start, count int) []byte {
	if t.Bits() {
		b := make([]byte, (count+7)/8)
		for i := range count {
			if m.register(t, start+i)&1 == 1 {
				b[i/8] |= 1 << (i % 8)
			}
		}
		return b
	}
	b := make([]byte, 2*count)
	for i := range count {
		r := m.register(t, start+i)
		b[2*i], b[2*i+1] = byte(r>>8), byte(r)
	}
	return b
}

func TestTagsThatAreAlikeShareTheirForm(t *testing.T) {
	scaled := Tag{Type: "int16", Scale: "0.1", Sentinel: []string{"0x8000"}}
	other, none := scaled, scaled
	other.Scale, none.Sentinel = "0.01", nil
	var cfg Config
	for i, tg := range []Tag{scaled, {}, scaled, other, none, {}} {
		tg.Ref, tg.Name, tg.Address = tag.Ref(i+1), fmt.Sprint(i), fmt.Sprintf("holding:%d", i)
		cfg.Tags = append(cfg.Tags, tg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*form]int{}
	for i, want := range []int{0, 1, 0, 2, 3, 1} { // which of the forms, in the order in which they come
		f := d.fields[i].form
		if _, ok := seen[f]; !ok {
			seen[f] = len(seen)
		}
		if seen[f] != want {
			t.Errorf("tag %d has form %d, want %d", i, seen[f], want)
		}
	}
}
