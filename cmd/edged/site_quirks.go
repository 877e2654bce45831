package main

import (
	"time"

	"edged/drivers/modbus"
)

// maxPause bounds the pauses that a device may ask for.
const maxPause = 10 * time.Second

func init() {
	for name, note := range map[string]keyNote{
		"pause_between_requests":  {doc: "Silence before each request to the device.", value: "0s"},
		"pause_after_connect":     {doc: "Time between a connect and the first request.", value: "0s"},
		"close_after_poll":        {doc: "The connection is closed after each poll.", value: false},
		"reconnect_after_timeout": {doc: "The connection is made anew after a request that was not answered.", value: false},
		"one_request_per_tag":     {doc: "Each tag has a request of its own; together keeps what it names.", value: false},
		"bits_from_zero":          {doc: "Reads of coils and discrete inputs begin at 0.", value: false},
		"bit_order":               {doc: "Order of the bits of coils and discrete inputs in each byte.", value: "low_first"},
		"register_bits":           {doc: "Which bit of a register is 0 in addresses such as holding:30.4.", value: "low_first"},
		"string_bytes":            {doc: "Which bytes of a register hold characters.", value: "both"},
		"string_order":            {doc: "Order of the two characters of a register; a tag's order comes before it.", value: "high_first"},
		"string_fill":             {doc: "What fills a text that is shorter than its registers.", value: "nul"},
		"writes":                  {doc: "Function codes of writes: auto (5 and 6 for one value, 15 and 16 for more), always single, always multiple, or both (23 for registers: write and read back at once).", value: "auto"},
		"mask_write":              {doc: "never writes bits of registers by function 22, but by reading and writing the register.", value: "auto"},
		"busy_codes":              {doc: "Exception codes that ask for patience, as 5 and 6 do.", example: []any{4}},
		"identification":          {doc: "Whether the device is asked for its identification (function 43/14) when it is first reached.", value: "ask"},
		"transaction_ids":         {doc: "any takes answers whatever their transaction id; after a time-out the connection is made anew.", value: "echoed"},
		"unit_ids":                {doc: "any takes answers whatever their unit.", value: "echoed"},
		"byte_counts":             {doc: "any takes answers to reads whatever their byte count says.", value: "exact"},
		"write_answers":           {doc: "any takes answers to writes that do not repeat what was written.", value: "echoed"},
		"echo":                    {doc: "The request comes back before the answer.", value: false},
		"crc_order":               {doc: "Order of the check sum's bytes on an RTU line.", value: "low_first"},
	} {
		siteNotes["devices.quirks."+name] = note
	}
}

// quirks are what a device does otherwise than the standard has it, named by the symptom that they cure.
func (d *deviceReader) quirks(n *node) {
	if _, sketching := d.sketching(); !sketching && n.kind == nullNode {
		return
	}
	d.section(n, d.what+": quirks", d.quirkKeys(&d.settings.Modbus.Quirks))
}

func (d *deviceReader) quirkKeys(q *modbus.Quirks) []key {
	what := func(name string) string { return d.what + ": quirks." + name }
	pause := func(name string, to *time.Duration) key {
		return key{name, func(v *node) { *to = d.duration(v, what(name), 0, maxPause) }}
	}
	flag := func(name string, to *bool) key {
		return key{name, func(v *node) { *to = d.boolean(v, what(name)) }}
	}
	// word reads one of two words, of which the second is the quirk.
	word := func(name, usual, odd string, to *bool) key {
		return key{name, func(v *node) { *to = d.choice(v, what(name), usual, odd) == odd }}
	}
	return []key{
		pause("pause_between_requests", &q.PauseBetween),
		pause("pause_after_connect", &q.PauseConnect),
		flag("close_after_poll", &q.CloseAfter),
		flag("reconnect_after_timeout", &q.Reconnect),
		flag("one_request_per_tag", &q.OneRequest),
		flag("bits_from_zero", &q.BitsFromZero),
		word("bit_order", "low_first", "high_first", &q.HighBitFirst),
		word("register_bits", "low_first", "high_first", &q.HighBitZero),
		{"string_bytes", func(v *node) {
			if q.StringBytes = d.choice(v, what("string_bytes"), "both", "high", "low"); q.StringBytes == "both" {
				q.StringBytes = ""
			}
		}},
		word("string_order", "high_first", "low_first", &q.StringSwapped),
		{"string_fill", func(v *node) {
			if q.StringFill = d.choice(v, what("string_fill"), "nul", "space"); q.StringFill == "nul" {
				q.StringFill = ""
			}
		}},
		{"writes", func(v *node) { q.Writes = d.choice(v, what("writes"), "auto", "single", "multiple", "both") }},
		word("mask_write", "auto", "never", &q.NoMask),
		{"busy_codes", func(v *node) {
			for _, c := range d.list(v, what("busy_codes")) {
				q.Busy = append(q.Busy, d.integer(c, what("busy_codes"), 1, 255))
			}
		}},
		word("identification", "ask", "never", &q.NoIdentity),
		word("transaction_ids", "echoed", "any", &q.AnyID),
		word("unit_ids", "echoed", "any", &q.AnyUnit),
		word("byte_counts", "exact", "any", &q.AnyCount),
		word("write_answers", "echoed", "any", &q.AnyAnswer),
		flag("echo", &q.Echo),
		word("crc_order", "low_first", "high_first", &q.CRCSwapped),
	}
}
