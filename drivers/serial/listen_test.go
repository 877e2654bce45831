package serial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/port"
	"edged/drivers/tag"
)

// notes is an ear that writes down what it hears.
type notes struct {
	samples  []tag.Sample
	messages int
	misheard int
	faults   []string
	heard    func()
}

func (n *notes) Heard(batch []tag.Sample, messages int) {
	n.samples = append(n.samples, batch...)
	if n.messages += messages; n.heard != nil {
		n.heard()
	}
}

func (n *notes) Misheard(f *drivers.Fault, count int) {
	n.misheard += count
	n.faults = append(n.faults, f.Error())
}

func gps(tags ...Tag) Config {
	return Config{Frame: frames["nmea"], Ignore: `^GPGSV`, Messages: []Message{{Name: "rmc", Begins: "??RMC,", Split: ","}, {Name: "gga", Begins: "??GGA,", Split: ","}}, Tags: tags}
}

// sentence is a body with its checksum.
func sentence(body string) string { return fmt.Sprintf("$%s*%02X\r\n", body, xor([]byte(body))) }

// TestListen hears an instrument that talks unasked.
func TestListen(t *testing.T) {
	d, in := rig(t, gps(Tag{Name: "speed", Message: "rmc", Field: "2"}, Tag{Name: "height", Message: "gga", Field: "3"}, Tag{Name: "n", Message: "rmc", Counts: true}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ear := &notes{}
	ear.heard = func() {
		if ear.messages == 3 {
			cancel()
		}
	}
	go func() {
		for _, part := range []string{"noise" + sentence("GPRMC,12.5") + sentence("GPGSV,1") + "$GPRMC,99*00\r\n", sentence("GPXYZ\x07"), sentence("GPGGA,1,545.4")[:9]} {
			in.conn.Write([]byte(part))
		}
		in.conn.Write([]byte(sentence("GPGGA,1,545.4")[9:] + sentence("GPRMC,---")))
	}()
	if err := d.Listen(ctx, ear); err != nil {
		t.Fatal(err)
	}
	expect(t, ear.samples, []string{"Good 12.5", "Good 1", "Good 545.4", "BadCommunicationError null", "Good 2"})
	if ear.samples[0].At != ear.samples[1].At {
		t.Error("the values of one message have two times")
	}
	// A wrong checksum, an unknown sentence and a field that is no number are counted and told, control characters escaped.
	if told := strings.Join(ear.faults, "\n"); ear.misheard < 2 || !strings.Contains(told, `the checksum is wrong: "$GPRMC,99*00\r\n"`) || !strings.Contains(told, `"$GPXYZ\a*`) {
		t.Errorf("misheard %d:\n%s", ear.misheard, told)
	}
}

// TestE6Stale is E6: an instrument that says nothing more is gone after its time, and one that says what is no message
// has garbled it. No CPU is spent meanwhile (E1).
func TestE6Stale(t *testing.T) {
	for _, row := range []struct {
		says string
		kind drivers.FaultKind
		want string
	}{{"", drivers.Mute, "nothing came within 100ms"}, {"\x80\x00garbage", drivers.Garbled, `nothing that is a message came within 100ms: "\u0080\x00garbage"`}} {
		cfg := gps(Tag{Name: "speed", Message: "rmc", Field: "2"})
		cfg.Stale = 100 * time.Millisecond
		d, in := rig(t, cfg, nil)
		if row.says != "" {
			go in.conn.Write([]byte(row.says))
		}
		err := d.Listen(t.Context(), &notes{})
		var f *drivers.Fault
		if !errors.As(err, &f) || f.Kind != row.kind || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v", err)
		}
	}
}

// TestE6OneMessage is E6: of an instrument that has but one thing to say, a line that does not match makes its tags bad,
// and never 0.
func TestE6OneMessage(t *testing.T) {
	for _, says := range []string{"ST,+  12.5kg\r\n", "US,---kg\r\n", "OL\r\n"} {
		cfg := Config{Messages: []Message{{Name: "m", Scan: "%2s,%f%s"}}, Tags: []Tag{{Name: "w", Field: "2"}}}
		d, in := rig(t, cfg, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ear := &notes{heard: cancel}
		go in.conn.Write([]byte(says))
		if err := d.Listen(ctx, ear); err != nil {
			t.Fatal(err)
		}
		want := "BadCommunicationError null"
		if strings.HasPrefix(says, "ST") {
			want = "Good 12.5"
		}
		expect(t, ear.samples, []string{want})
	}
}

// TestListenGivesWay is a client's write to an instrument that talks: what it says meanwhile is not lost.
func TestListenGivesWay(t *testing.T) {
	cfg := gps(Tag{Name: "speed", Message: "rmc", Field: "2"}, Tag{Name: "rate", Access: tag.Writable, Send: `$PMTK220,{value}*{checksum}\r\n`, Done: `^PMTK001,220,3`})
	d, in := rig(t, cfg, always(sentence("GPRMC,7")+sentence("PMTK001,220,3")))
	cmds := []tag.Command{{Ref: 2, Value: tag.Of(200.0)}}
	if err := d.Write(t.Context(), 0, cmds); err != nil || cmds[0].Status != tag.Good {
		t.Fatal(err, cmds[0].Status)
	}
	if got := in.says(0); got != "$PMTK220,200*2C\r\n" {
		t.Errorf("%q was sent", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ear := &notes{heard: cancel}
	if err := d.Listen(ctx, ear); err != nil {
		t.Fatal(err)
	}
	expect(t, ear.samples, []string{"Good 7"})
}

// flood is a stream that never ends.
type flood struct {
	port.Port
	text  string
	reads int
	most  int
	end   func()
}

func (f *flood) SetDeadline(time.Time) error { return nil }
func (f *flood) Close() error                { return nil }
func (f *flood) Discard() error              { return nil }
func (f *flood) Read(p []byte) (int, error) {
	if f.reads++; f.reads == f.most {
		f.end()
	}
	n := 0
	for n+len(f.text) <= len(p) {
		n += copy(p[n:], f.text)
	}
	return n, nil
}

// steady is a device that hears a stream without an end.
func steady(t testing.TB, cfg Config, text string) (*Device, *flood) {
	t.Helper()
	f := &flood{text: text}
	link := NewLink(LinkConfig{Open: port.OpenFunc(func(context.Context) (port.Port, error) { return f, nil })})
	for i := range cfg.Tags {
		cfg.Tags[i].Ref, cfg.Tags[i].Access = tag.Ref(i+1), tag.Readable
	}
	d, err := New(cfg, link)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d, f
}

// deaf is an ear that keeps nothing.
type deaf struct{ messages, misheard int }

func (e *deaf) Heard(_ []tag.Sample, messages int) { e.messages += messages }
func (e *deaf) Misheard(_ *drivers.Fault, n int)   { e.misheard += n }

// TestTalkerWithoutEnd bounds what one that never stops may take: it is read so many times a second at most, from a
// buffer that does not grow.
func TestTalkerWithoutEnd(t *testing.T) {
	d, f := steady(t, gps(Tag{Name: "speed", Message: "rmc", Field: "2"}), sentence("GPRMC,12.5"))
	ctx, cancel := context.WithCancel(t.Context())
	f.end, f.most = cancel, 20
	began, size := time.Now(), cap(d.framer.buf)
	ear := &deaf{}
	if err := d.Listen(ctx, ear); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 18*pace || cap(d.framer.buf) != size || ear.messages == 0 {
		t.Errorf("20 reads took %v, the buffer is %d, %d messages", took, cap(d.framer.buf), ear.messages)
	}
}

// kinds of lines, as steady talkers have them.
var talkers = map[string]struct {
	cfg  Config
	text string
}{
	"split": {gps(Tag{Name: "speed", Message: "rmc", Field: "2", Scale: "1.852"}, Tag{Name: "at", Message: "rmc", Field: "4,3", Type: "time", Format: "DDMMYYhhmmss"}), sentence("GPRMC,12.5,123519.00,230324")},
	"scan": {Config{Messages: []Message{{Name: "m", Scan: "%2s,%f%s"}},
		Tags: []Tag{{Name: "w", Field: "2"}, {Name: "u", Field: "3", Type: "string"}, {Name: "s", Field: "1", Type: "bool", Values: []Text{{"ST", "true"}}}}}, "ST,+  12.5kg\r\n"},
	"pattern":    {Config{Messages: []Message{{Name: "m"}}, Tags: []Tag{{Name: "w", Pattern: `w=([0-9.]+)`}}}, "w=12.5\r\n"},
	"unmatched":  {Config{Messages: []Message{{Name: "m", Pattern: `^x$`}}, Tags: []Tag{{Name: "w", Columns: "1"}}}, "w=12.5\r\n"},
	"wrong sums": {gps(Tag{Name: "speed", Message: "rmc", Field: "2"}), "$GPRMC,12.5*00\r\n"},
	"binary": {Config{Frame: Frame{Start: "hex:AA", Length: Length{Fixed: 6}, Checksum: Checksum{Kind: "sum16"}}, Messages: []Message{{Name: "m"}},
		Tags: []Tag{{Name: "w", At: "1", Type: "int16", Scale: "0.1"}}}, "\xAA\x01\x02\x03\x00\xB0"},
}

// TestLineDoesNotAllocate counts the allocations of lines in the steady state.
func TestLineDoesNotAllocate(t *testing.T) {
	for name, row := range talkers {
		d, f := steady(t, row.cfg, row.text)
		d.last = time.Now()
		ear := &deaf{}
		line := func() {
			n, _ := f.Read(d.framer.room()[:len(row.text)])
			d.framer.add(n)
			d.tell(ear)
		}
		line()
		if n := testing.AllocsPerRun(500, line); n != 0 {
			t.Errorf("%s: %v allocations a line", name, n)
		}
		if ear.messages+ear.misheard < 500 {
			t.Errorf("%s: %d lines were heard, %d misheard", name, ear.messages, ear.misheard)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	for name, row := range talkers {
		b.Run(name, func(b *testing.B) {
			d, f := steady(b, row.cfg, row.text)
			ear := &deaf{}
			b.ReportAllocs()
			for b.Loop() {
				n, _ := f.Read(d.framer.room()[:len(row.text)])
				d.framer.add(n)
				d.tell(ear)
			}
		})
	}
}

// processTime is the CPU time of the process.
func processTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSpeedOverPty measures a talker of 1,000 lines/s at 115,200 baud: this process reads, another one writes.
// EDGED_LONG=1 judges the 2 % of a core that the plan allows; a machine that others load is given four times that.
func TestSpeedOverPty(t *testing.T) {
	path, talk := talker(t, "w=+12.50\r\n", time.Millisecond)
	a, err := port.Parse("serial://" + path + "?baud=115200")
	if err != nil {
		t.Fatal(err)
	}
	link := NewLink(Links(a))
	cfg := Config{Name: "d", Messages: []Message{{Name: "m", Scan: "w=%f"}}, Tags: []Tag{{Name: "w", Ref: 1, Field: "1", Access: tag.Readable}}}
	d, err := New(cfg, link)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	span, most := 500*time.Millisecond, 0.08
	if os.Getenv("EDGED_LONG") != "" {
		span, most = 10*time.Second, 0.02
	}
	talk()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	ear := &deaf{}
	before := processTime()
	if err := d.Listen(ctx, ear); err != nil {
		t.Fatal(err)
	}
	used := float64(processTime()-before) / float64(span)
	rate := float64(ear.messages) / span.Seconds()
	t.Logf("%.0f lines/s cost %.2f %% of a core", rate, 100*used)
	if ear.misheard > 1 || rate > 100 && used > most*max(1, rate/1000) {
		t.Errorf("%d were misheard; %.0f lines/s cost %.2f %% of a core", ear.misheard, rate, 100*used)
	}
	if ear.messages == 0 {
		t.Error("nothing was heard")
	}
}
