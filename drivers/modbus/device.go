package modbus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	gomodbus "github.com/goburrow/modbus"

	"edged/drivers"
	"edged/drivers/tag"
)

// Device is one Modbus device, planned. It implements drivers.Driver. A bus asks it from one lane alone.
type Device struct {
	name   string
	tags   []tag.Ref
	fields []field // as tags
	first  tag.Ref // of index
	index  []int32 // of fields + 1, by Ref-first; 0: not ours
	hold   map[tag.Ref]time.Duration
	scans  []time.Duration
	limits limits
	lanes  []lane

	// Owned by the lane.
	plans    [][]int    // request numbers by scan
	requests []*request // by number
	noMask   bool       // the device does not know function 22
	scratch  []byte
}

type lane struct {
	link   *Link
	client gomodbus.Client
}

// New plans a device over the links of its bus, one a lane.
func New(cfg Config, links ...*Link) (*Device, error) {
	if errs := cfg.Check(); len(errs) > 0 {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, errs[0])
	}
	d := &Device{name: cfg.Name, hold: map[tag.Ref]time.Duration{}, limits: cfg.limits()}
	d.room(cfg.Tags)
	shared := forms{}
	byName := make(map[string]*field, len(cfg.Together))
	for _, group := range cfg.Together {
		for _, name := range group {
			byName[name] = nil // below
		}
	}
	for i := range cfg.Tags {
		t := &cfg.Tags[i]
		f, errs := t.field(&cfg)
		if len(errs) > 0 {
			return nil, fmt.Errorf("device %s: tag %s: %w", cfg.Name, t.Name, errs[0])
		}
		if d.index[t.Ref-d.first] != 0 {
			return nil, fmt.Errorf("device %s: tag %s has the slot of another", cfg.Name, t.Name)
		}
		f.form = shared.of(f.form)
		d.tags, d.fields = append(d.tags, t.Ref), append(d.fields, *f)
		d.index[t.Ref-d.first] = int32(len(d.fields))
		if _, named := byName[t.Name]; named {
			byName[t.Name] = &d.fields[i]
		}
		if t.Hold > 0 {
			d.hold[t.Ref] = t.Hold
		}
	}
	for _, l := range links {
		if errs := cfg.CheckLine(l.cfg.Framing); len(errs) > 0 {
			return nil, fmt.Errorf("device %s: %w", cfg.Name, errs[0])
		}
		d.lanes = append(d.lanes, lane{l, newClient(l, byte(cfg.Unit))})
	}
	d.plan(&cfg, byName)
	return d, nil
}

// room makes room for fields, which stay where they are from then on.
func (d *Device) room(tags []Tag) {
	if len(tags) == 0 {
		return
	}
	low, high := tags[0].Ref, tags[0].Ref
	for i := range tags {
		low, high = min(low, tags[i].Ref), max(high, tags[i].Ref)
	}
	d.first, d.index = low, make([]int32, high-low+1)
	d.fields, d.tags = make([]field, 0, len(tags)), make([]tag.Ref, 0, len(tags))
}

// field is a tag's field, or nil.
func (d *Device) field(ref tag.Ref) *field {
	if ref < d.first || int(ref-d.first) >= len(d.index) || d.index[ref-d.first] == 0 {
		return nil
	}
	return &d.fields[d.index[ref-d.first]-1]
}

// newClient joins goburrow's client and packager to our link.
func newClient(l *Link, unit byte) gomodbus.Client {
	if l.cfg.Framing == RTU {
		h := gomodbus.NewRTUClientHandler("")
		h.SlaveId = unit
		return gomodbus.NewClient2(h, l)
	}
	h := gomodbus.NewTCPClientHandler("")
	h.SlaveId = unit
	return gomodbus.NewClient2(h, l)
}

// plan makes the requests of every period. byName are the fields that groups name.
func (d *Device) plan(cfg *Config, byName map[string]*field) {
	units := map[time.Duration][]unit{}
	for _, names := range cfg.Together {
		u := new(unit)
		for _, name := range names {
			u.add(byName[name])
			byName[name].group = u
		}
		if len(u.fields) > 0 {
			p := cfg.poll(names[0])
			units[p] = append(units[p], *u)
		}
	}
	single := make([]*field, len(d.fields))
	for i := range d.fields {
		f := &d.fields[i]
		if f.group != nil || f.access&tag.Readable == 0 {
			continue
		}
		single[i] = f
		p := cfg.period(&cfg.Tags[i])
		units[p] = append(units[p], unit{f.table, f.start, f.end(), single[i : i+1]})
	}
	for p := range units {
		d.scans = append(d.scans, p)
	}
	slices.Sort(d.scans)
	for scan, p := range d.scans {
		var numbers []int
		for _, r := range plan(units[p], &d.limits) {
			r.scan = scan
			numbers = append(numbers, len(d.requests))
			d.requests = append(d.requests, r)
		}
		d.plans = append(d.plans, numbers)
	}
}

// Tags implements drivers.Driver.
func (d *Device) Tags() []tag.Ref { return d.tags }

// Hold are the tags whose last good value is kept for a while, for drivers.DeviceConfig.
func (d *Device) Hold() map[tag.Ref]time.Duration { return d.hold }

// Scans implements drivers.Driver.
func (d *Device) Scans() []time.Duration { return d.scans }

// Requests implements drivers.Driver.
func (d *Device) Requests(scan int) []int { return d.plans[scan] }

// Poll implements drivers.Driver.
func (d *Device) Poll(ctx context.Context, lane, number int, dst []tag.Sample) ([]tag.Sample, error) {
	r := d.requests[number]
	data, err := d.read(ctx, lane, r.table, r.start, r.count())
	if err == nil {
		return decodeAll(r.fields, r.start, r.end, data, dst), nil
	}
	if exceptionOf(err) == gomodbus.ExceptionCodeIllegalDataAddress && d.replan(number, r) {
		return dst, drivers.ErrReplanned
	}
	return d.failed(err, r, r.start, r.end, dst)
}

// replan halves a refused request, so that in the end the offending address alone is bad. The halves stay.
func (d *Device) replan(number int, r *request) bool {
	left, right, ok := r.split()
	if !ok {
		return false
	}
	d.requests[number] = left
	d.requests = append(d.requests, right)
	old := d.plans[r.scan]
	at := slices.Index(old, number) + 1
	d.plans[r.scan] = slices.Insert(slices.Clone(old), at, len(d.requests)-1)
	return true
}

// Refresh implements drivers.Driver: it reads no more than spans the tags that one request can bring.
func (d *Device) Refresh(ctx context.Context, lane int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error) {
	first := d.field(refs[0])
	if first == nil || first.request == nil {
		return dst, nil
	}
	r := first.request
	from, to := first.reach()
	start, end := from, to
	for _, ref := range refs[1:] {
		if f := d.field(ref); f != nil && f.request == r {
			low, high := f.reach()
			start, end = min(start, low), max(end, high)
		}
	}
	data, err := d.read(ctx, lane, r.table, start, end-start)
	wider := start != from || end != to
	if wider && exceptionOf(err) == gomodbus.ExceptionCodeIllegalDataAddress {
		start, end = from, to
		data, err = d.read(ctx, lane, r.table, start, end-start)
	}
	if err != nil {
		return d.failed(err, r, start, end, dst)
	}
	return decodeAll(r.fields, start, end, data, dst), nil
}

// decodeAll appends the readings of the fields that lie in what was read.
func decodeAll(fields []*field, start, end int, data []byte, dst []tag.Sample) []tag.Sample {
	at := tag.Now()
	for _, f := range fields {
		if f.start < start || f.end() > end {
			continue
		}
		v, status := f.decode(data, start)
		dst = append(dst, tag.Sample{Ref: f.ref, Status: status, Value: v, At: at})
	}
	return dst
}

// failed appends what a failed read means for its tags.
func (d *Device) failed(err error, r *request, start, end int, dst []tag.Sample) ([]tag.Sample, error) {
	status, fault := d.fault(err, false, fmt.Sprintf("read %s:%d+%d", r.table, start, end-start))
	if fault == nil {
		return dst, err
	}
	at := tag.Now()
	for _, f := range r.fields {
		if f.start >= start && f.end() <= end {
			dst = append(dst, tag.Sample{Ref: f.ref, Status: status, At: at})
		}
	}
	return dst, fault
}

// read brings registers, or bits packed as the protocol packs them; the count of what came was compared with count.
func (d *Device) read(ctx context.Context, lane int, t Table, start, count int) ([]byte, error) {
	l := &d.lanes[lane]
	l.link.begin(ctx)
	switch t {
	case Coils:
		return l.client.ReadCoils(uint16(start), uint16(count))
	case Discrete:
		return l.client.ReadDiscreteInputs(uint16(start), uint16(count))
	case Input:
		return l.client.ReadInputRegisters(uint16(start), uint16(count))
	}
	return l.client.ReadHoldingRegisters(uint16(start), uint16(count))
}

// Write implements drivers.Driver.
func (d *Device) Write(ctx context.Context, lane int, cmds []tag.Command) error {
	var first error
	for i := range cmds {
		err := d.write(ctx, lane, &cmds[i])
		var fault *drivers.Fault
		if err != nil && !errors.As(err, &fault) {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}

func (d *Device) write(ctx context.Context, lane int, c *tag.Command) error {
	f := d.field(c.Ref)
	if f == nil {
		c.Status = tag.BadNodeIDUnknown
		return nil
	}
	w, status := f.encode(c, d.scratch)
	if status != tag.Good {
		c.Status = status
		return nil
	}
	d.scratch = w.data
	err := d.send(ctx, lane, f, w)
	done := err == nil
	if done && f.verify {
		var same bool
		if same, err = d.confirm(ctx, lane, f, w); err == nil && !same {
			c.Status = tag.BadDeviceFailure
			return &drivers.Fault{Kind: drivers.Refused, Err: fmt.Errorf("%s: write %s:%d+%d: reads back another value than was written", d.name, f.table, w.start, w.count)}
		}
	}
	if err == nil {
		c.Status = tag.Good
		return nil
	}
	status, fault := d.fault(err, true, fmt.Sprintf("write %s:%d+%d", f.table, w.start, w.count))
	switch {
	case fault != nil:
		if fault.Kind == drivers.Mute && !d.lanes[lane].link.sent {
			status = tag.BadNoCommunication // the reading before the write of a bit
		}
		if done {
			status = tag.BadTimeout // what was not answered is the reading that verifies
		}
		c.Status = status
		return fault
	case d.lanes[lane].link.sent:
		c.Status = tag.BadTimeout
	}
	return err
}

// send chooses the function: 5 and 6 for one, 15 and 16 for more, unless the device is said to know only one of the
// two. There is no second try with the other.
func (d *Device) send(ctx context.Context, lane int, f *field, w write) error {
	l := &d.lanes[lane]
	l.link.begin(ctx)
	start, count := uint16(w.start), uint16(w.count)
	single := w.count == 1 && !f.multiOnly || f.singleOnly
	var err error
	switch {
	case f.bit >= 0:
		return d.writeBit(ctx, lane, f, w.data[0] != 0)
	case f.table == Coils && single:
		for i := 0; i < w.count && err == nil; i++ {
			var on uint16
			if bitAt(w.data, i) {
				on = 0xFF00
			}
			_, err = l.client.WriteSingleCoil(start+uint16(i), on)
		}
	case f.table == Coils:
		_, err = l.client.WriteMultipleCoils(start, count, w.data)
	case single:
		for i := 0; i < w.count && err == nil; i++ {
			_, err = l.client.WriteSingleRegister(start+uint16(i), binary.BigEndian.Uint16(w.data[2*i:]))
		}
	default:
		_, err = l.client.WriteMultipleRegisters(start, count, w.data)
	}
	return err
}

// writeBit changes one bit of a register: by mask where the device can, else by reading and writing it. Nothing of this
// gateway comes in between, since the lane is the only one to talk to the device.
func (d *Device) writeBit(ctx context.Context, lane int, f *field, on bool) error {
	l := &d.lanes[lane]
	if !d.noMask {
		and, or := masks(int(f.bit), on)
		_, err := l.client.MaskWriteRegister(uint16(f.start), and, or)
		if exceptionOf(err) != gomodbus.ExceptionCodeIllegalFunction {
			return err
		}
		d.noMask = true
	}
	register, err := d.read(ctx, lane, f.table, f.start, 1)
	if err != nil {
		return err
	}
	value := withBit(register, int(f.bit), on)
	if f.multiOnly {
		_, err = l.client.WriteMultipleRegisters(uint16(f.start), 1, binary.BigEndian.AppendUint16(nil, value))
	} else {
		_, err = l.client.WriteSingleRegister(uint16(f.start), value)
	}
	return err
}

// confirm reads back what was written.
func (d *Device) confirm(ctx context.Context, lane int, f *field, w write) (bool, error) {
	wrote := slices.Clone(w.data)
	data, err := d.read(ctx, lane, f.table, w.start, w.count)
	if err != nil {
		return false, err
	}
	if f.bit >= 0 {
		return binary.BigEndian.Uint16(data)>>f.bit&1 == uint16(wrote[0]), nil
	}
	if !f.table.Bits() {
		return bytes.Equal(data, wrote), nil
	}
	for i := range w.count {
		if bitAt(data, i) != bitAt(wrote, i) {
			return false, nil
		}
	}
	return true, nil
}
