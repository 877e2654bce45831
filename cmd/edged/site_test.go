package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// marked cuts the marks out of a text. Each mark stands where a mistake is expected; columns count characters from 1.
func marked(text string) (clean string, places []string) {
	var b strings.Builder
	line, col := 1, 1
	for _, c := range text {
		switch c {
		case '§':
			places = append(places, fmt.Sprintf("%d:%d", line, col))
			continue
		case '\n':
			line, col = line+1, 0
		}
		b.WriteRune(c)
		col++
	}
	return b.String(), places
}

// shell wraps a device's tags into a site without mistakes.
func withTags(tags string) string {
	return "buses: [{name: line1, url: \"tcp://10.0.0.5:502\"}]\ndevices:\n- name: boiler\n  bus: line1\n  tags:\n" + tags
}

const oneDevice = "devices: [{name: d, driver: memory, tags: [{name: t}]}]\n"

// mistakeRows are sites with every mistake marked, and what each message must say, in order.
var mistakeRows = []struct {
	name string
	text string
	want []string
}{
	{"empty", "§", []string{"is empty"}},
	{"comment alone", "§# nothing\n", []string{"is empty"}},
	{"a list", "§- a\n", []string{"the site is a list"}},
	{"a word", "§word\n", []string{"the site is a single value"}},
	{"zero byte", "§a: \x00\n", []string{"not a text file"}},
	{"no devices", "§server: {name: x}\n", []string{"devices is missing"}},
	{"devices empty", "devices: §[]\n", []string{"devices is empty"}},
	{"devices a map", "devices: §{a: b}\n", []string{"devices is a map"}},
	{"unknown key with suggestion", "§servr: {}\n" + oneDevice, []string{`unknown key "servr"; did you mean server?`}},
	{"unknown key without", "server: {§zzz: 1}\n" + oneDevice, []string{"known are listen, name"}},
	{"key twice", "server: {name: a, §name: b}\n" + oneDevice, []string{"the first is on line 1"}},
	{"section twice", oneDevice + "§" + oneDevice, []string{"devices stands here a second time, the first is on line 1"}},
	{"syntax", "server: {name: a\n§devices: x\n", []string{"not valid YAML"}},
	{"second document", oneDevice + "---\n§server: {}\n", []string{"a second document"}},
	{"anchor and alias", "server: §&a {name: x}\nweb: §*a\n" + oneDevice, []string{"anchors", "anchors"}},
	{"merge", "server: {§<<: {name: x}}\n" + oneDevice, []string{"merges"}},
	{"tag", "server: {name: §!!binary aGk=}\n" + oneDevice, []string{"YAML tag"}},
	{"too deep", "devices: " + strings.Repeat("[", 20) + "§" + "[" + strings.Repeat("]", 21) + "\n", []string{"deeper than 20"}},
	{"too deep with dashes", strings.Repeat("- ", 20) + "§- a\n", []string{"deeper than 20"}},

	{"listen", "server: {listen: §4840}\n" + oneDevice, []string{"it is HOST:PORT"}},
	{"listen port", "server: {listen: §\"0.0.0.0:66000\"}\n" + oneDevice, []string{"0 to 65535"}},
	{"web", "web: {listen: §everywhere}\n" + oneDevice, []string{"web: listen"}},
	{"uri", "server: {application_uri: §boiler house}\n" + oneDevice, []string{"urn:edged:boiler-house"}},
	{"key size", "server: {security: {key_size: §1024}}\n" + oneDevice, []string{"one of 2048, 3072, 4096"}},
	{"key size and deprecated policy", "server: {security: {policies: [Basic256], key_size: §3072}}\n" + oneDevice, []string{"2048 at most"}},
	{"policy misspelt", "server: {security: {policies: [§Basic256Sha265]}}\n" + oneDevice, []string{"did you mean Basic256Sha256?"}},
	{"policy twice", "server: {security: {policies: [None, §None]}}\n" + oneDevice, []string{"named twice"}},
	{"no policy", "server: {security: {policies: §[]}}\n" + oneDevice, []string{"policies is empty"}},
	{"mode None", "server: {security: {modes: [§None]}}\n" + oneDevice, []string{"comes with the policy None"}},
	{"anonymous", "server: {security: {anonymous: §yes}}\n" + oneDevice, []string{"one of none, read, write"}},
	{"trust_all", "server: {security: {trust_all: §yes}}\n" + oneDevice, []string{"true or false"}},
	{"store", "store: {retention: §1m, max_size: §1MiB, commit: §1ms, history: [nothing], §sync: true}\n" + oneDevice,
		[]string{"store: retention", "store: max_size", "store: commit", "store: unknown key \"sync\""}},
	{"store: a pattern of no tag", "store: {history: [\"*\", §nothing]}\n" + oneDevice, []string{"store: history: \"nothing\" is the name of no device"}},
	{"reverse", "server: {reverse: [§scada, §\"opc.tcp://scada\", \"opc.tcp://a:1\", §\"opc.tcp://a:1\", §\"opc.tcp://u@b:1\"]}\n" + oneDevice,
		[]string{"URL of a client, such as opc.tcp://scada:4843", "needs the port", "twice", "URL of a client"}},
	{"reverse not a list", "server: {reverse: §{a: b}}\n" + oneDevice, []string{"it is a list"}},
	{"users", "server: {security: {users: §\"\"}}\n" + oneDevice, []string{"name a file such as users.yaml"}},
	{"roles", "server: {security: {roles: {§operater: {write: [a]}}}}\n" + oneDevice, []string{"did you mean operator?"}},
	{"rights of a role", "server: {security: {roles: {operator: {§writes: [a]}}}}\n" + oneDevice, []string{"did you mean write?"}},
	{"patterns of a role", "server: {security: {roles: {operator: {write: [§boiler.setpoint]}}}}\n" + oneDevice, []string{"is the name of no device, folder or tag"}},
	{"queue", "server: {queue: §longest}\n" + oneDevice, []string{"it is one of asked, auto"}},
	{"limits", "server: {limits: {sessions: §0, queue: §many, min_publishing: §10, memory: §12XB}}\n" + oneDevice,
		[]string{"may be 1 to", "whole number", "10ms or 10s", "64MiB"}},
	{"sessions and connections", "server: {limits: {sessions: 50, connections: §52}}\n" + oneDevice, []string{"at least sessions + 3"}},
	{"sessions alone", "server: {limits: §{sessions: 200}}\n" + oneDevice, []string{"at least sessions + 3"}},

	{"bus without name and url", "buses: [§{retries: 1}]\n" + oneDevice, []string{"name is missing", "url is missing"}},
	{"bus twice", "buses:\n- {name: a, url: \"tcp://h:1\"}\n- {name: §a, url: \"tcp://h:2\"}\n" + oneDevice, []string{"the first is on line 2"}},
	{"bus url", "buses: [{name: a, url: §\"http://h\"}]\n" + oneDevice, []string{"scheme http is not known"}},
	{"quirk values", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, quirks: {pause_after_connect: §1h, bit_order: §msb, busy_codes: [§0], writes: §never, echo: §2}, tags: [{name: t, address: \"coil:0\"}]}]\n",
		[]string{"pause_after_connect", "bit_order", "busy_codes", "writes", "echo"}},
	{"quirk that a tag cannot have", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, quirks: {bits_from_zero: §true}, tags: [{name: t, address: \"coil:2000\"}]}]\n", []string{"beyond what one read from 0 reaches"}},
	{"quirk that no pipeline can bear", "buses: [{name: l, url: \"tcp://h\", pipeline: 2}]\ndevices: [{name: a, bus: l, quirks: {transaction_ids: §any}, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"a bus with pipeline 1"}},
	{"writes twice", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, writes: single, quirks: {writes: §single}, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"remove one"}},
	{"D19 conflicting serial settings", "buses:\n- {name: a, url: \"rtu:///dev/ttyS1?baud=9600\"}\n- {name: b, url: §\"rtu:///dev/ttyS1?baud=19200\"}\n" + oneDevice,
		[]string{"runs at 19200 8E1 here and at 9600 8E1 for bus a on line 2"}},
	{"D19 one line twice", "buses:\n- {name: a, url: \"rtu:///dev/ttyS1\"}\n- {name: b, url: §\"rtu:///dev/ttyS1\"}\n" + oneDevice, []string{"is bus a already"}},
	{"bus values", "buses: [{name: a, url: \"tcp://h\", timeout: §2h, retries: §-1, turnaround: §5, pipeline: §17, echo: §maybe, overbook: §perhaps}]\n" + oneDevice,
		[]string{"may be 1ms to 1m0s", "may be 0 to 10", "without a unit", "may be 1 to 16", "true or false", "one of refuse, warn"}},
	{"pipeline of a serial line", "buses: [{name: a, url: \"rtuovertcp://h:1\", pipeline: §2}]\n" + oneDevice, []string{"no transaction ids"}},
	{"over-booked line", "buses: [§{name: l, url: \"rtu:///dev/ttyS1?baud=9600\"}]\ndevices:\n- {name: a, bus: l, unit: 1, poll: 50ms, tags: [{name: \"r{n}\", repeat: 20, address: \"holding:0\"}, {name: s, address: \"coil:0\", poll: 10s}]}\n",
		[]string{"need 138 % of the line's time: poll less often, or on another line, a.r0 to a.r19 every 50ms (137 %); or have"}},
	{"column after letters of two bytes", "buses: [{name: \"ä°ö\", url: \"tcp://h\", timeout: §2h}]\n" + oneDevice, []string{"may be"}},

	{"device name with dot", "devices: [{name: §a.b, driver: memory, tags: [{name: t}]}]\n", []string{`holds "."`}},
	{"device name with dollar", "devices: [{name: §a$, driver: memory, tags: [{name: t}]}]\n", []string{`holds "$"`}},
	{"device name reserved", "devices: [{name: §Devices, driver: memory, tags: [{name: t}]}]\n", []string{"reserved"}},
	{"device name empty", "devices: [{name: §\"\", driver: memory, tags: [{name: t}]}]\n", []string{"is empty"}},
	{"device twice", "devices:\n- {name: a, driver: memory, tags: [{name: t}]}\n- {name: §a, driver: memory, tags: [{name: t}]}\n", []string{"the first is on line 2"}},
	{"driver", "devices: [{name: a, driver: §modbuss, tags: [{name: t}]}]\n", []string{"did you mean modbus?"}},
	{"no bus", "devices: [§{name: a, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"bus is missing"}},
	{"unknown bus", "buses: [{name: line1, url: \"tcp://h\"}]\ndevices: [{name: a, bus: §lime1, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"did you mean line1?"}},
	{"unit", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, unit: §256, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"may be 0 to 255"}},
	{"D15 broadcast unit read", "buses: [{name: l, url: \"rtu:///dev/ttyS1\"}]\ndevices: [{name: a, bus: l, unit: §0, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"nobody answers"}},
	{"D15 unit left out on a line", "buses: [{name: l, url: \"rtuovertcp://h:1\"}]\ndevices: [§{name: a, bus: l, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"a unit from 1"}},
	{"quirks", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, quirks: {§x: 1}, tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"unknown key"}},
	{"together", "buses: [{name: l, url: \"tcp://h\"}]\ndevices: [{name: a, bus: l, together: [§t], tags: [{name: t, address: \"coil:0\"}]}]\n", []string{"a list of lists"}},
	{"no tags", "devices:\n- §{name: a, driver: memory}\n", []string{"tags is missing"}},
	{"tags empty", "devices:\n- {name: a, driver: memory, tags: §[]}\n", []string{"tags is empty"}},
	{"tags nothing", "devices:\n- name: a\n  driver: memory\n  §tags:\n", []string{"tags is nothing here"}},

	{"tag without address", withTags("  - §{name: t}\n"), []string{"boiler.t: address is missing"}},
	{"address misspelt is told once", withTags("  - {name: t, §adress: \"coil:0\"}\n"), []string{"did you mean address?"}},
	{"address", withTags("  - {name: t, address: §\"holding:65536\"}\n"), []string{"65535"}},
	{"address ambiguous", withTags("  - {name: t, address: §\"21\"}\n"), []string{"ambiguous"}},
	{"address table", withTags("  - {name: t, address: §\"register:1\"}\n"), []string{"not known"}},
	{"column after degrees", withTags("  - {name: t, unit: \"°C\", address: §\"x:1\"}\n"), []string{"not known"}},
	{"tag twice", withTags("  - {name: t, address: \"coil:0\"}\n  - {name: §t, address: \"coil:1\"}\n"), []string{"the first is on line 6"}},
	{"folder and tag", withTags("  - {name: a, address: \"coil:0\"}\n  - {name: §a.b, address: \"coil:1\"}\n"), []string{"a is on line 6"}},
	{"tag and folder", withTags("  - {name: a.b.c, address: \"coil:0\"}\n  - {name: §a.b, address: \"coil:1\"}\n"), []string{"a.b.c is on line 6"}},
	{"tag name with dollar", withTags("  - {name: §$state, address: \"coil:0\"}\n"), []string{"begins with $"}},
	{"part of a tag name with dollar", withTags("  - {name: §a.$EURange, address: \"coil:0\"}\n"), []string{"begins with $"}},
	{"tag name with empty folder", withTags("  - {name: §a..b, address: \"coil:0\"}\n"), []string{"empty part"}},
	{"range order", withTags("  - {name: t, address: \"holding:0\", range: §[5, 1]}\n"), []string{"first number must be the lower"}},
	{"range form", withTags("  - {name: t, address: \"holding:0\", range: §5}\n"), []string{"a list of two numbers"}},
	{"instrument range order", withTags("  - {name: t, address: \"holding:0\", instrument_range: §[5, 5]}\n"), []string{"instrument_range is [5, 5]: the first number must be the lower"}},
	{"instrument range form", withTags("  - {name: t, address: \"holding:0\", instrument_range: §[1, 2, 3]}\n"), []string{"a list of two numbers"}},
	{"instrument range number", withTags("  - {name: t, address: \"holding:0\", instrument_range: [§low, 3]}\n"), []string{"finite number"}},
	{"instrument range of a bit", withTags("  - {name: t, address: \"coil:0\", instrument_range: §[0, 1]}\n"), []string{"of a number without states"}},
	{"decimals of a bit", withTags("  - {name: t, address: \"coil:0\", decimals: §1}\n"), []string{"decimals: only a number has one"}},
	{"unit and range of a bit", withTags("  - {name: t, address: \"holding:0.1\", unit: §m, range: §[0, 1]}\n"),
		[]string{"unit is of a number, and this is bool", "range is of a number, and this is bool"}},
	{"unit of a bit with states", withTags("  - {name: t, address: \"coil:0\", unit: §m, states: {true: a, false: b}}\n"), []string{"unit is of a number"}},
	{"unit and range of a text", withTags("  - {name: t, address: \"holding:0\", type: string(8), range: §[0, 1], unit: §m}\n"),
		[]string{"range is of a number, and this is string", "unit is of a number, and this is string"}},
	{"memory: unit, range of a text", "devices: [{name: d, driver: memory, tags: [{name: t, type: \"string[2]\", unit: §m, range: §[0, 1]}]}]\n",
		[]string{"unit is of a number, and this is string[2]", "range is of a number, and this is string[2]"}},
	{"memory: decimals of a text", "devices: [{name: d, driver: memory, tags: [{name: t, type: string, decimals: §1}]}]\n",
		[]string{"decimals is of float32 and float64, and this is string"}},
	{"memory: decimals of a whole number", "devices: [{name: d, driver: memory, tags: [{name: t, type: int32, decimals: §0}]}]\n",
		[]string{"decimals is of float32 and float64, and this is int32"}},
	{"memory: too many decimals", "devices: [{name: d, driver: memory, tags: [{name: t, decimals: §16}]}]\n", []string{"may be 0 to 15"}},
	{"states form", withTags("  - {name: t, address: \"coil:0\", states: §[closed, open]}\n"), []string{"a map of values and their texts"}},
	{"states empty", withTags("  - {name: t, address: \"coil:0\", states: §{}}\n"), []string{"is empty"}},
	{"states of a bool that are none", withTags("  - {name: t, address: \"coil:0\", states: {false: a, true: b, §maybe: c, §1: d}}\n"), []string{`"maybe" is no value of a bool`, `"1" is no value of a bool`}},
	{"states of a bool by half", withTags("  - {name: t, address: \"coil:0\", states: {§true: open}}\n"), []string{"false has no text"}},
	{"states outside of the type", withTags("  - {name: t, address: \"holding:0\", states: {0: off, §65536: a, §-1: b, §1.5: c, §on: d}}\n"),
		[]string{"whole number from 0 to 65535", "whole number from 0 to 65535", "whole number from 0 to 65535", "whole number from 0 to 65535"}},
	{"state twice", withTags("  - {name: t, address: \"holding:0\", states: {1: off, §0x1: on}}\n"), []string{"0x1 stands here a second time"}},
	{"states of a float", withTags("  - {name: t, address: \"holding:0\", type: float32, states: §{0: off}}\n"), []string{"without scale, and this is float32"}},
	{"states of a scaled number", withTags("  - {name: t, address: \"holding:0\", scale: 0.1, states: §{0: off}}\n"), []string{"without scale, and this is float64"}},
	{"states of a list", withTags("  - {name: t, address: \"holding:0\", type: \"uint16[2]\", states: §{0: off}}\n"), []string{"this is uint16[2]"}},
	{"states with a unit", withTags("  - {name: t, address: \"holding:0\", unit: §m, states: {0: off}}\n"), []string{"has no unit"}},
	{"states with an instrument", withTags("  - {name: t, address: \"holding:0\", instrument_range: §[0, 1], states: {0: off}}\n"), []string{"without states"}},
	{"state of a list", withTags("  - {name: t, address: \"holding:0\", states: {0: §[off]}}\n"), []string{"single value"}},
	{"memory states", "devices: [{name: d, driver: memory, tags: [{name: t, states: §{0: off}}]}]\n", []string{"this is float64"}},
	{"access", withTags("  - {name: t, address: \"holding:0\", access: §rw}\n"), []string{"one of read, write, readwrite"}},
	{"poll", withTags("  - {name: t, address: \"holding:0\", poll: §100}\n"), []string{"100ms or 100s"}},
	{"history and deadband", withTags("  - {name: t, address: \"holding:0\", history: §some, deadband: §-0.5}\n"),
		[]string{"history", "deadband is -0.5"}},
	{"deadband of a bool", withTags("  - {name: t, address: \"coil:0\", deadband: §0.5}\n"), []string{"deadband is of a number"}},
	{"retain of a device's tag", withTags("  - {name: t, address: \"holding:0\", retain: §true}\n"), []string{"retain is not available"}},
	{"retain", "devices: [{name: d, driver: memory, tags: [{name: t, retain: §some}]}]\n", []string{"retain"}},
	{"repeat without n", withTags("  - {name: §t, repeat: 2, address: \"coil:0\"}\n"), []string{"put {n}"}},
	{"repeat beyond the table", withTags("  - {name: \"t{n}\", repeat: §10, address: \"holding:65530\"}\n"), []string{"65535"}},
	{"repeat makes a name twice", withTags("  - {name: t1, address: \"coil:0\"}\n  - {name: §\"t{n}\", repeat: 2, address: \"coil:1\"}\n"), []string{"t1 is defined twice"}},
	{"repeat bound", "devices: [{name: d, driver: memory, tags: [{name: \"t{n}\", repeat: §1000000}]}]\n", []string{"250000"}},
	{"tags in all", "devices: [{name: d, driver: memory, tags: [{name: \"t{n}\", repeat: 250000}, §{name: more}]}]\n", []string{"more than 250000"}},
	{"type", withTags("  - {name: t, address: \"holding:0\", type: §float23}\n"), []string{"float23"}},
	{"memory type", "devices: [{name: d, driver: memory, tags: [{name: t, type: §float23}]}]\n", []string{"float23"}},
	{"memory value", "devices: [{name: d, driver: memory, tags: [{name: t, type: uint16, value: §70000}]}]\n", []string{"70000"}},
	{"memory wave", "devices: [{name: d, driver: memory, tags: [{name: t, wave: {kind: §sin}}]}]\n", []string{"sin"}},
}

func TestEveryMistakeIsNamed(t *testing.T) {
	for _, row := range mistakeRows {
		t.Run(row.name, func(t *testing.T) {
			text, places := marked(row.text)
			_, err := parseSite("site.yaml", []byte(text))
			var got fileError
			if !errors.As(err, &got) {
				t.Fatalf("no mistake was found in\n%s\nerror: %v", text, err)
			}
			for i, m := range got {
				if i >= len(row.want) {
					t.Errorf("one mistake too many: %v", m)
					continue
				}
				at := places[min(i, len(places)-1)]
				if !strings.HasPrefix(m.Error(), "site.yaml:"+at+": ") || !strings.Contains(m.Text, row.want[i]) {
					t.Errorf("got  %v\nwant site.yaml:%s: ... %s", m, at, row.want[i])
				}
			}
			if len(got) < len(row.want) {
				t.Errorf("%d mistakes, want %d:\n%v", len(got), len(row.want), err)
			}
		})
	}
}

func TestMistakesAreBounded(t *testing.T) {
	text := "devices:\n" + strings.Repeat("- {name: a.b}\n", 1000)
	_, err := parseSite("site.yaml", []byte(text))
	var got fileError
	if !errors.As(err, &got) || len(got) != maxMistakes+1 || !strings.Contains(got[maxMistakes].Text, "more mistakes") {
		t.Errorf("%d mistakes, want %d and a last line that counts the rest", len(got), maxMistakes)
	}
}

func TestDemoSite(t *testing.T) {
	s, err := parseSite("demo.yaml", demoSite)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tags) != 1011 || len(s.Devices) != 3 || len(s.Buses) != 2 {
		t.Errorf("%d tags, %d devices, %d buses", len(s.Tags), len(s.Devices), len(s.Buses))
	}
	for i, want := range map[int]string{0: "boiler.temperature", 2: "boiler.setpoint", 11: "scratch.m0", 1010: "scratch.m999"} {
		if got := s.Tags[i].FullName(); got != want {
			t.Errorf("tag %d is %s, want %s", i, got, want)
		}
	}
	for i, want := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 4: time.Second} {
		if d := s.Tags[i]; d.Poll != want {
			t.Errorf("%s is polled every %v, want %v", d.Name, d.Poll, want)
		}
	}
	if hold := s.Devices[0].Modbus.Tags[4].Hold; hold != 5*time.Second {
		t.Errorf("level holds its value for %v, want 5s", hold)
	}
}

func TestDefaults(t *testing.T) {
	s, err := parseSite("site.yaml", []byte(oneDevice))
	if err != nil {
		t.Fatal(err)
	}
	if s.Server.Listen != "0.0.0.0:4840" || s.Web.Listen != "127.0.0.1:8080" || s.Server.Security.Anonymous != anonymousNone ||
		s.Server.Security.TrustAll || s.Server.Limits.Sessions != 100 || s.Server.Limits.MinPublishing != 10*time.Millisecond {
		t.Errorf("defaults are %+v %+v", s.Server, s.Web)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "nobody can log in") {
		t.Errorf("notes are %q", s.Notes)
	}
	s, err = parseSite("site.yaml", []byte("server: {security: {policies: [Basic256, Basic128Rsa15], anonymous: read, key_size: 2048}}\n"+oneDevice))
	if err != nil || len(s.Notes) != 2 || !strings.Contains(s.Notes[0], "Basic256 is deprecated") || !strings.Contains(s.Notes[1], "Basic128Rsa15 is deprecated") {
		t.Errorf("notes on deprecated policies: %v, %v", s.Notes, err)
	}
	s, err = parseSite("site.yaml", []byte("web: {listen: none}\n"+oneDevice))
	if err != nil || s.Web.Listen != "" {
		t.Errorf("web.listen none is %q, %v", s.Web.Listen, err)
	}
}

func TestFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("# ", maxFileBytes/2+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadSite(path); err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Errorf("error is %v", err)
	}
	if _, err := loadSite(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error is %v", err)
	}
	if _, err := loadSite(t.TempDir()); err == nil {
		t.Error("a folder was taken for a file")
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"1GiB": 1 << 30, "1.5 MiB": 3 << 19, "64KiB": 64 << 10, "10MB": 10_000_000, "5B": 5} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "GiB", "1", "-1MiB", "NaNMiB", "1e30TiB", "1 XiB"} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q was taken for %d", text, got)
		}
	}
}

func FuzzSite(f *testing.F) {
	for _, row := range mistakeRows {
		text, _ := marked(row.text)
		f.Add([]byte(text))
	}
	f.Add(demoSite)
	f.Fuzz(func(t *testing.T, text []byte) {
		// A parser that does not come back is a find too, which the fuzzing engine would not see.
		watch := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("no end: %q", text)) })
		defer watch.Stop()
		s, err := parseSite("site.yaml", text)
		if err == nil {
			if len(s.Tags) == 0 || len(s.Tags) > maxTags {
				t.Errorf("a site with %d tags passed", len(s.Tags))
			}
			return
		}
		var file fileError
		if !errors.As(err, &file) || len(file) == 0 || len(file) > maxMistakes+1 {
			t.Fatalf("%T: %v", err, err)
		}
		for _, m := range file {
			if m.Line < 1 || m.Col < 1 || m.Text == "" || strings.ContainsAny(m.Text, "\n\r") {
				t.Errorf("mistake without a place or with more than a line: %+v", m)
			}
		}
	})
}
