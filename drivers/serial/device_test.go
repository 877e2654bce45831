package serial

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"edged/drivers"
	"edged/drivers/tag"
)

// scale is an instrument that is asked.
func scale(tags ...Tag) Config {
	return Config{
		Frame: Frame{End: `\r\n`},
		Messages: []Message{{Name: "weight", Send: `SI\r\n`, Pattern: `^S (?P<state>[SD]) +(?P<value>-? *[-0-9.]+) (?P<unit>\S+)`,
			None: `^S [+-]`, Busy: `^S I`, Refused: `^ES$`}},
		Tags: tags,
	}
}

var (
	weight = Tag{Name: "weight", Field: "value"}
	stable = Tag{Name: "stable", Field: "state", Type: "bool", Values: []Text{{"S", "true"}, {"D", "false"}}}
)

func TestPoll(t *testing.T) {
	for _, row := range []struct {
		name, answer string
		want         []string
		kind         drivers.FaultKind // with fault
		fault        string
	}{
		{"stable", "S S     100.25 g\r\n", []string{"Good 100.25", "Good true"}, 0, ""},
		{"moving", "S D    - 0.5 g\r\n", []string{"Good -0.5", "Good false"}, 0, ""},
		{"E6 overload is no number", "S +\r\n", []string{"BadOutOfRange null", "BadOutOfRange null"}, 0, ""},
		{"busy", "S I\r\n", []string{"BadResourceUnavailable null", "BadResourceUnavailable null"}, drivers.Busy, "asks for patience"},
		{"refused", "ES\r\n", []string{"BadDeviceFailure null", "BadDeviceFailure null"}, drivers.Refused, `it refuses: "ES\r\n"`},
		{"E6 marker instead of a number", "S S ----- g\r\n", []string{"BadCommunicationError null", "Good true"}, drivers.Refused, `"-----" is no value of tag weight`},
		{"E6 no match is bad, not 0", "hello\a\r\n", []string{"BadCommunicationError null", "BadCommunicationError null"}, drivers.Garbled, `"hello\a\r\n" does not match`},
		{"E6 half a line", "S S 10", []string{"BadCommunicationError null", "BadCommunicationError null"}, drivers.Garbled, `"S S 10" came`},
		{"E1 no answer", "", []string{"BadNoCommunication null", "BadNoCommunication null"}, drivers.Mute, "no answer within 200ms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, in := rig(t, scale(weight, stable), always(row.answer))
			got, err := d.Poll(t.Context(), 0, 0, nil)
			expect(t, got, row.want)
			var f *drivers.Fault
			if row.fault == "" && err != nil || row.fault != "" && (!errors.As(err, &f) || f.Kind != row.kind || !strings.Contains(err.Error(), row.fault)) {
				t.Errorf("the error is %v, want %v: %s", err, row.kind, row.fault)
			}
			if len(got) == 2 && got[0].At != got[1].At {
				t.Error("the values of one answer have two times")
			}
			if in.says(0) != "SI\r\n" {
				t.Errorf("%q was sent", in.says(0))
			}
		})
	}
}

func expect(t *testing.T, got []tag.Sample, want []string) {
	t.Helper()
	var texts []string
	for _, s := range got {
		texts = append(texts, s.Status.String()+" "+s.Value.String())
	}
	if strings.Join(texts, "|") != strings.Join(want, "|") {
		t.Errorf("read\n%q, want\n%q", texts, want)
	}
}

// TestWays takes values out of messages in each way.
func TestWays(t *testing.T) {
	line := func(m Message) Config { m.Name, m.Send = "m", `?\r\n`; return Config{Messages: []Message{m}} }
	for _, row := range []struct {
		name string
		cfg  Config
		says string
		tag  Tag
		want string
	}{
		{"all of it", line(Message{}), "12.5\r\n", Tag{}, "Good 12.5"},
		{"exact scale", line(Message{}), "68\r\n", Tag{Scale: "0.1"}, "Good 6.8"},
		{"exact offset", line(Message{}), "20.1\r\n", Tag{Offset: "-273.15"}, "Good -253.05"},
		{"decimals", line(Message{}), "1.23456\r\n", Tag{Decimals: "2"}, "Good 1.23"},
		{"exponent", line(Message{}), "-1.5e3\r\n", Tag{}, "Good -1500"},
		{"whole number of 64 bits", line(Message{}), "9007199254740993\r\n", Tag{Type: "int64"}, "Good 9007199254740993"},
		{"beyond its type", line(Message{}), "300\r\n", Tag{Type: "uint8"}, "BadCommunicationError null"},
		{"a fraction is no whole number", line(Message{}), "3.5\r\n", Tag{Type: "int16"}, "BadCommunicationError null"},
		{"sentinel", line(Message{}), "---\r\n", Tag{Sentinel: []string{"---"}}, "BadOutOfRange null"},
		{"E6 empty is not 0", line(Message{}), " \r\n", Tag{}, "BadCommunicationError null"},
		{"NaN is no number", line(Message{}), "NaN\r\n", Tag{}, "BadCommunicationError null"},
		{"scan", line(Message{Scan: "T=%f C H=%d"}), "T= 21.5 C H=40\r\n", Tag{Field: "2", Type: "uint8"}, "Good 40"},
		{"split", line(Message{Split: ";"}), "a;b;7\r\n", Tag{Field: "3"}, "Good 7"},
		{"split, not there", line(Message{Split: ";"}), "a;b\r\n", Tag{Field: "3"}, "BadCommunicationError null"},
		{"columns", line(Message{}), "ID  17.25kg\r\n", Tag{Columns: "4-9"}, "Good 17.25"},
		{"columns to the end", line(Message{}), "ID17\r\n", Tag{Columns: "3-"}, "Good 17"},
		{"columns beyond it", line(Message{}), "ID\r\n", Tag{Columns: "5-9"}, "BadCommunicationError null"},
		{"pattern of the tag", line(Message{}), "x=1 y=2\r\n", Tag{Pattern: `y=(\d+)`}, "Good 2"},
		{"hexadecimal", line(Message{}), "FFFE\r\n", Tag{Type: "int16", Format: "hex"}, "Good -2"},
		{"text", line(Message{}), "AB-12 \r\n", Tag{Type: "string(8)"}, "Good AB-12"},
		{"text of bytes that are no UTF-8", line(Message{}), "12\xb0C\r\n", Tag{Type: "string"}, "Good 12°C"},
		{"text too long", line(Message{}), "AB-12-34-56\r\n", Tag{Type: "string(8)"}, "BadCommunicationError null"},
		{"time", line(Message{}), "231103120000W\r\n", Tag{Type: "time", Format: "YYMMDDhhmmssX"}, "Good 2023-11-03T11:00:00.000Z"},
		{"time in summer", line(Message{}), "230703120000S\r\n", Tag{Type: "time", Format: "YYMMDDhhmmssX"}, "Good 2023-07-03T10:00:00.000Z"},
		{"no such day", line(Message{}), "230231\r\n", Tag{Type: "time", Format: "YYMMDD"}, "BadCommunicationError null"},
		{"degrees and minutes", line(Message{Split: ","}), "4807.038,S\r\n", Tag{Field: "1", Sign: "2", Format: "degrees_minutes", Decimals: "6"}, "Good -48.1173"},
		{"counted", line(Message{}), "x\r\n", Tag{Counts: true}, "Good 1"},
		{"begins with another", line(Message{Begins: "W"}), "V 1\r\nW 2\r\n", Tag{Pattern: `\d+`}, "Good 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.tag.Name = "t"
			row.cfg.Tags = []Tag{row.tag}
			d, _ := rig(t, row.cfg, always(row.says))
			got, _ := d.Poll(t.Context(), 0, 0, nil)
			expect(t, got, []string{row.want})
		})
	}
}

// TestBinary takes values out of frames of bytes: golden bytes, AA 55, length, fields, CRC-16.
func TestBinary(t *testing.T) {
	frame := Frame{Start: "hex:AA 55", Length: Length{At: 2, Size: 1, Plus: 5}, Checksum: Checksum{Kind: "crc16-modbus"}}
	c, _ := frame.ready()
	bytes := append([]byte("\xAA\x55\x12"), "\x01\x02\xff\xfe\x12\x34\x41\x48\x00\x00\x05ab\x00"...)
	bytes[2] = byte(len(bytes) - 3)
	bytes = c.check.append(bytes, bytes)
	for _, row := range []struct {
		tag  Tag
		want string
	}{
		{Tag{At: "3", Type: "uint16"}, "Good 258"},
		{Tag{At: "3", Type: "uint16", Order: "BA"}, "Good 513"},
		{Tag{At: "5", Type: "int16"}, "Good -2"},
		{Tag{At: "5", Type: "int16", Scale: "0.1"}, "Good -0.2"},
		{Tag{At: "5", Type: "int16", Sentinel: []string{"-2"}}, "BadOutOfRange null"},
		{Tag{At: "7", Type: "uint16", Format: "bcd"}, "Good 1234"},
		{Tag{At: "5", Type: "uint16", Format: "bcd"}, "BadCommunicationError null"},
		{Tag{At: "9", Type: "float32"}, "Good 12.5"},
		{Tag{At: "9", Type: "uint32", Order: "CDAB"}, "Good 16712"},
		{Tag{At: "13.2"}, "Good true"},
		{Tag{At: "13.1"}, "Good false"},
		{Tag{At: "14", Type: "string(3)"}, "Good ab"},
		{Tag{At: "20", Type: "uint16"}, "BadCommunicationError null"},
	} {
		t.Run(row.tag.At+row.tag.Type+row.tag.Order+row.tag.Format, func(t *testing.T) {
			row.tag.Name = "t"
			d, in := rig(t, Config{Frame: frame, Messages: []Message{{Name: "m", Send: "hex:01 03{checksum}0A"}}, Tags: []Tag{row.tag}}, always("\x00"+string(bytes)))
			got, _ := d.Poll(t.Context(), 0, 0, nil)
			expect(t, got, []string{row.want})
			if got := in.says(0); got != "\x01\x03\x40\x21\n" {
				t.Errorf("sent % x", got)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	tare := Tag{Name: "tare", Access: tag.Writable, Send: `T\r\n`, Done: `^T S`, Busy: `^T I`, Refused: `^T [+-]`}
	limit := Tag{Name: "limit", Access: tag.Writable, Type: "float64", Send: `L{address} {value:%07.2f}{{\r\n`, Done: `^OK`, Scale: "0.1", HasRange: true, Low: 0, High: 50}
	mode := Tag{Name: "mode", Access: tag.Writable, Type: "uint8", Send: `M {value}\r\n`, Values: []Text{{"AUTO", "0"}, {"MAN", "1"}}}
	label := Tag{Name: "label", Access: tag.Writable, Type: "string(10)", Send: `N "{value}"\r\n`}
	for _, row := range []struct {
		name   string
		tag    Tag
		value  tag.Value
		says   string
		sent   string
		status tag.Status
	}{
		{"tare", tare, tag.Of(true), "T S 1.00 g\r\n", "T\r\n", tag.Good},
		{"tare of false says nothing", tare, tag.Of(false), "", "", tag.BadOutOfRange},
		{"tare busy", tare, tag.Of(true), "T I\r\n", "T\r\n", tag.BadResourceUnavailable},
		{"tare refused", tare, tag.Of(true), "T +\r\n", "T\r\n", tag.BadDeviceFailure},
		{"tare unanswered", tare, tag.Of(true), "", "T\r\n", tag.BadTimeout},
		{"tare answered with something else", tare, tag.Of(true), "what?\r\n", "T\r\n", tag.BadCommunicationError},
		{"value by its format", limit, tag.Of(12.5), "OK\r\n", "L01 0125.00{\r\n", tag.Good},
		{"value out of range", limit, tag.Of(51.0), "OK\r\n", "", tag.BadOutOfRange},
		{"value of another type", limit, tag.Of(int32(1)), "OK\r\n", "", tag.BadTypeMismatch},
		{"text of a value", mode, tag.Of(uint8(1)), "", "M MAN\r\n", tag.Good},
		{"value without a text", mode, tag.Of(uint8(2)), "", "", tag.BadOutOfRange},
		{"text", label, tag.Of("line 1"), "", "N \"line 1\"\r\n", tag.Good},
		{"text that would be a command", label, tag.Of("a\r\nZ\r\n"), "", "", tag.BadOutOfRange},
		{"not writable", weight, tag.Of(1.0), "", "", tag.BadNotWritable},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := scale(row.tag)
			cfg.Address = "01"
			d, in := rig(t, cfg, always(row.says))
			cmds := []tag.Command{{Ref: 1, Value: row.value, Status: tag.BadNoCommunication}}
			err := d.Write(t.Context(), 0, cmds)
			if cmds[0].Status != row.status {
				t.Errorf("the status is %v, want %v (%v)", cmds[0].Status, row.status, err)
			}
			if row.sent == "" {
				d.link.Close()
			}
			for end := time.Now().Add(5 * time.Second); in.says(0) != row.sent && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if in.says(0) != row.sent {
				t.Errorf("%q was sent, want %q", in.says(0), row.sent)
			}
		})
	}
}

// TestAddresses is RS-485: each instrument is asked by its address, and answers of others are none.
func TestAddresses(t *testing.T) {
	cfg := scale(Tag{Name: "t", Field: "1"})
	cfg.Address = "1.7"
	cfg.Messages[0] = Message{Name: "m", Send: `#{address}?\r\n`, Pattern: `^#{address} (\d+)`}
	d, in := rig(t, cfg, always("#1x7 5\r\n#1.7 6\r\n"))
	got, err := d.Poll(t.Context(), 0, 0, nil)
	expect(t, got, []string{"Good 6"})
	if err != nil || in.says(0) != "#1.7?\r\n" {
		t.Errorf("%v; %q was sent", err, in.says(0))
	}
}

func TestChecksumThatFailsIsNoData(t *testing.T) {
	cfg := Config{Frame: frames["nmea"], Messages: []Message{{Name: "m", Send: `$Q*{checksum}\r\n`, Split: ","}}, Tags: []Tag{{Name: "t", Field: "2"}}}
	d, in := rig(t, cfg, always("$A,1*00\r\n"))
	got, err := d.Poll(t.Context(), 0, 0, nil)
	expect(t, got, []string{"BadCommunicationError null"})
	if err == nil || !strings.Contains(err.Error(), `the checksum is wrong: "$A,1*00\r\n"`) || in.says(0) != "$Q*51\r\n" {
		t.Errorf("%v; %q was sent", err, in.says(0))
	}
}

// TestLostLink tells the end of a link from the instrument's faults.
func TestLostLink(t *testing.T) {
	d, in := rig(t, scale(weight), always(""))
	in.conn.Close()
	_, err := d.Poll(t.Context(), 0, 0, nil)
	var f *drivers.Fault
	if err == nil || errors.As(err, &f) {
		t.Errorf("a link that is gone gives %v", err)
	}
	if _, err := d.Refresh(context.Background(), 0, []tag.Ref{99}, nil); !errors.Is(err, drivers.ErrSkipped) {
		t.Errorf("a tag that cannot be asked for gives %v", err)
	}
}

func TestMistakes(t *testing.T) {
	for _, row := range []struct {
		name string
		edit func(c *Config)
		want string
	}{
		{"two ends", func(c *Config) { c.Frame.Silence = time.Second }, "give one of end, length and silence"},
		{"escape", func(c *Config) { c.Frame.End = `\q` }, `\q is not known`},
		{"pattern", func(c *Config) { c.Messages[0].Pattern = "(" }, "no regular expression"},
		{"two ways", func(c *Config) { c.Messages[0].Split = "," }, "more than one of pattern, scan and split"},
		{"unknown slot", func(c *Config) { c.Messages[0].Send = "{adress}" }, "{adress} is not known"},
		{"checksum of none", func(c *Config) { c.Messages[0].Send = "{checksum}" }, "the frame has none"},
		{"field", func(c *Config) { c.Tags[0].Field = "vale" }, `no field "vale"`},
		{"field number", func(c *Config) { c.Tags[0].Field = "9" }, "no field 9: it has 3"},
		{"message", func(c *Config) { c.Tags[0].Message = "w" }, `"w" is no message`},
		{"two places", func(c *Config) { c.Tags[0].Columns = "1-2" }, "give one of field, columns"},
		{"columns", func(c *Config) { c.Tags[0].Field, c.Tags[0].Columns = "", "7-5" }, "FIRST-LAST"},
		{"type", func(c *Config) { c.Tags[0].Type = "real" }, "not known"},
		{"format", func(c *Config) { c.Tags[0].Format = "roman" }, "not known here"},
		{"write without send", func(c *Config) { c.Tags[0].Access = tag.Readable | tag.Writable }, "what is sent to write it"},
		{"value format", func(c *Config) {
			c.Tags[0] = Tag{Name: "t", Access: tag.Writable, Type: "float64", Send: "{value:%s}"}
		}, "is formatted by %"},
		{"kind of checksum", func(c *Config) { c.Frame.Checksum.Kind = "md5" }, "not one of"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := scale(Tag{Name: "t", Field: "value", Access: tag.Readable, Ref: 1})
			row.edit(&cfg)
			if _, err := New(cfg, NewLink(LinkConfig{})); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the error is %v, want %s", err, row.want)
			}
		})
	}
}
