package modbus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
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
	quirks Quirks
	lanes  []lane

	// Owned by the lane.
	scanPlans
	noMask  bool // the device does not know function 22
	who     identification
	scratch []byte
}

type lane struct {
	link     *Link
	client   gomodbus.Client
	packager gomodbus.Packager
}

// New plans a device over the links of its bus, one a lane.
func New(cfg Config, links ...*Link) (*Device, error) {
	if errs := cfg.Check(); len(errs) > 0 {
		return nil, fmt.Errorf("device %s: %w", cfg.Name, errs[0])
	}
	d := &Device{name: cfg.Name, hold: map[tag.Ref]time.Duration{}, limits: cfg.limits(), quirks: cfg.Quirks}
	d.noMask = cfg.Quirks.NoMask
	d.who.untold = cfg.Quirks.NoIdentity
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
		if errs := cfg.CheckLine(l.cfg.Framing, len(links)); len(errs) > 0 {
			return nil, fmt.Errorf("device %s: %w", cfg.Name, errs[0])
		}
		if cfg.Unit == 0 && l.cfg.Framing != TCP {
			d.who.untold = true
		}
		packager := newPackager(l.cfg.Framing, byte(cfg.Unit))
		d.lanes = append(d.lanes, lane{l, gomodbus.NewClient2(packager, l), packager})
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

// newPackager is goburrow's for a framing.
func newPackager(f Framing, unit byte) gomodbus.Packager {
	switch f {
	case RTU:
		h := gomodbus.NewRTUClientHandler("")
		h.SlaveId = unit
		return h
	case ASCII:
		h := gomodbus.NewASCIIClientHandler("")
		h.SlaveId = unit
		return h
	}
	h := gomodbus.NewTCPClientHandler("")
	h.SlaveId = unit
	return h
}

// plan makes the requests of every period. byName are the fields that groups name.
func (d *Device) plan(cfg *Config, byName map[string]*field) {
	units := map[time.Duration][]unit{}
	for _, names := range cfg.Together {
		u := new(unit)
		for _, name := range names {
			u.add(byName[name])
			byName[name].join(u)
		}
		if len(u.fields) > 0 {
			p := cfg.poll(names[0])
			units[p] = append(units[p], *u)
		}
	}
	single := make([]*field, len(d.fields))
	for i := range d.fields {
		f := &d.fields[i]
		if f.group() != nil || f.access&tag.Readable == 0 {
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
	for _, p := range d.scans {
		d.add(plan(units[p], &d.limits))
	}
}

// Tags implements drivers.Driver.
func (d *Device) Tags() []tag.Ref { return d.tags }

// Hold are the tags whose last good value is kept for a while, for drivers.DeviceConfig.
func (d *Device) Hold() map[tag.Ref]time.Duration { return d.hold }

// Scans implements drivers.Driver.
func (d *Device) Scans() []time.Duration { return d.scans }

// Requests implements drivers.Driver.
func (d *Device) Requests(scan int) []int { return d.plans[scan].numbers }

// Poll implements drivers.Driver.
func (d *Device) Poll(ctx context.Context, lane, number int, dst []tag.Sample) ([]tag.Sample, error) {
	r := d.requests[number]
	p := &d.plans[r.scan]
	switch {
	case number == p.numbers[0] && d.begin(p):
		return dst, errArranged
	case number != p.numbers[0] && r.rests(d.lanes[lane].link.opened):
		return dst, drivers.ErrSkipped
	}
	data, err := d.read(ctx, lane, r.table, r.start, r.count())
	if err == nil {
		d.answered(r)
		if number == p.numbers[len(p.numbers)-1] {
			d.left(lane)
		}
		return decodeAll(r.fields, r.start, r.end, data, dst), nil
	}
	r.failed = true
	if code := exceptionOf(err); refusesAddresses(code) && !d.quirks.busy(code) {
		if d.replan(number, r) {
			return dst, fmt.Errorf("%s: read %s:%d+%d: %w, and %w by its halves", d.name, r.table, r.start, r.count(), err, drivers.ErrReplanned)
		}
		r.refuse()
	}
	return d.failed(err, r, r.start, r.end, dst)
}

// Refresh implements drivers.Driver: it reads no more than spans the tags that one request can bring.
func (d *Device) Refresh(ctx context.Context, lane int, refs []tag.Ref, dst []tag.Sample) ([]tag.Sample, error) {
	first := d.field(refs[0])
	if first == nil || first.request == nil {
		return dst, nil
	}
	r := first.request
	from, to := first.reach()
	if d.limits.fromZero && r.table.Bits() {
		from = 0
	}
	start, end := from, to
	for _, ref := range refs[1:] {
		if f := d.field(ref); f != nil && f.request == r {
			low, high := f.reach()
			start, end = min(start, low), max(end, high)
		}
	}
	data, err := d.read(ctx, lane, r.table, start, end-start)
	wider := start != from || end != to
	if wider && refusesAddresses(exceptionOf(err)) {
		start, end = from, to
		data, err = d.read(ctx, lane, r.table, start, end-start)
	}
	if err != nil {
		return d.failed(err, r, start, end, dst)
	}
	d.left(lane)
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
func (d *Device) read(ctx context.Context, lane int, t Table, start, count int) (data []byte, err error) {
	l := &d.lanes[lane]
	l.link.begin(ctx, &d.quirks)
	switch t {
	case Coils:
		data, err = l.client.ReadCoils(uint16(start), uint16(count))
	case Discrete:
		data, err = l.client.ReadDiscreteInputs(uint16(start), uint16(count))
	case Input:
		return l.client.ReadInputRegisters(uint16(start), uint16(count))
	default:
		return l.client.ReadHoldingRegisters(uint16(start), uint16(count))
	}
	if d.quirks.HighBitFirst {
		reverseBits(data)
	}
	return data, err
}

func reverseBits(data []byte) {
	for i, b := range data {
		data[i] = bits.Reverse8(b)
	}
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
	left, err := d.send(ctx, lane, f, w)
	done := err == nil
	if done && f.verify {
		if left == nil {
			left, err = d.readBack(ctx, lane, f, w)
		}
		if err == nil && !f.same(left, w) {
			c.Status = tag.BadDeviceFailure
			return &drivers.Fault{Kind: drivers.Refused, Outcome: drivers.Done,
				Err: fmt.Errorf("%s: write %s:%d+%d: reads back another value than was written", d.name, f.table, w.start, w.count)}
		}
	}
	if err == nil {
		c.Status = tag.Good
		if f.access&tag.Readable == 0 {
			d.left(lane)
		}
		return nil
	}
	status, fault := d.fault(err, true, fmt.Sprintf("write %s:%d+%d", f.table, w.start, w.count))
	sent := d.lanes[lane].link.sent
	var part *partError
	switch {
	case fault != nil && done: // what was not answered is the reading that verifies
		status, fault.Outcome = tag.BadTimeout, drivers.Done
	case fault != nil && errors.As(err, &part):
		fault.Outcome = drivers.Unknown
	case fault != nil && !sent: // the reading before the write of a bit
		if fault.Outcome = drivers.NotDone; fault.Kind == drivers.Mute || fault.Kind == drivers.Garbled {
			status = tag.BadNoCommunication
		}
	case fault == nil && (sent || done || errors.As(err, &part)):
		status = tag.BadTimeout
	}
	c.Status = status
	if fault == nil {
		return err
	}
	return fault
}

// partError is the failure of a write of several requests of which some were carried out.
type partError struct {
	done, all int
	err       error
}

func (e *partError) Error() string {
	return fmt.Sprintf("%v, after %d of %d were written", e.err, e.done, e.all)
}
func (e *partError) Unwrap() error { return e.err }

// send chooses the function: 5 and 6 for one, 15 and 16 for more, unless the device is said to know only one of the two,
// or to write and read at once (23). There is no second try with another. left is what a write has left in the device,
// where its answer tells.
func (d *Device) send(ctx context.Context, lane int, f *field, w write) (left []byte, err error) {
	l := &d.lanes[lane]
	l.link.begin(ctx, &d.quirks)
	start, count := uint16(w.start), uint16(w.count)
	single := w.count == 1 && !f.multiOnly || f.singleOnly
	switch {
	case f.bit >= 0:
		return nil, d.writeBit(ctx, lane, f, w.data[0] != 0)
	case f.table == Coils && single:
		return nil, inTurn(w.count, func(i int) (err error) {
			var on uint16
			if bitAt(w.data, i) {
				on = 0xFF00
			}
			_, err = l.client.WriteSingleCoil(start+uint16(i), on)
			return err
		})
	case f.table == Coils:
		data := w.data
		if d.quirks.HighBitFirst {
			data = slices.Clone(data)
			reverseBits(data)
		}
		_, err = l.client.WriteMultipleCoils(start, count, data)
	case f.both:
		return l.client.ReadWriteMultipleRegisters(start, count, start, count, w.data)
	case single:
		return nil, inTurn(w.count, func(i int) (err error) {
			_, err = l.client.WriteSingleRegister(start+uint16(i), binary.BigEndian.Uint16(w.data[2*i:]))
			return err
		})
	default:
		_, err = l.client.WriteMultipleRegisters(start, count, w.data)
	}
	return nil, err
}

// inTurn writes n registers or coils one after the other.
func inTurn(n int, one func(i int) error) error {
	for i := range n {
		if err := one(i); err != nil {
			if i > 0 {
				return &partError{i, n, err}
			}
			return err
		}
	}
	return nil
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

// readBack reads what was written.
func (d *Device) readBack(ctx context.Context, lane int, f *field, w write) ([]byte, error) {
	if f.bit >= 0 || !f.table.Bits() || !d.limits.fromZero {
		return d.read(ctx, lane, f.table, w.start, w.count)
	}
	data, err := d.read(ctx, lane, f.table, 0, w.start+w.count)
	if err != nil {
		return nil, err
	}
	left := make([]byte, (w.count+7)/8)
	for i := range w.count {
		if bitAt(data, w.start+i) {
			left[i/8] |= 1 << (i % 8)
		}
	}
	return left, nil
}

// same reports whether what the device holds is what was written.
func (f *field) same(left []byte, w write) bool {
	if f.bit >= 0 {
		return binary.BigEndian.Uint16(left)>>f.bit&1 == uint16(w.data[0])
	}
	if !f.table.Bits() {
		return bytes.Equal(left, w.data)
	}
	for i := range w.count {
		if bitAt(left, i) != bitAt(w.data, i) {
			return false
		}
	}
	return true
}
