package main

import (
	"encoding/json"
	"io"
	"strings"
)

//go:generate sh -c "go run . check --schema > site.schema.new && mv site.schema.new site.schema.json"

// keyNote is what people want to know about a key and what its reader cannot tell: the rest of its schema is noted by
// the reader itself.
type keyNote struct {
	doc     string
	value   any      // the default
	pattern string   // of texts that a driver checks
	words   []string // of texts that a driver checks, where these are all
	example any
}

func init() {
	for _, role := range roleNames {
		at := "server.security.roles." + role.name
		siteNotes[at] = keyNote{doc: "Nodes of this role."}
		siteNotes[at+".browse"] = keyNote{doc: "Nodes that are shown to it. Default: all.", example: []any{"boiler", "*.temperature"}}
		siteNotes[at+".read"] = keyNote{doc: "Nodes whose values it reads. Default: those of browse."}
		siteNotes[at+".write"] = keyNote{doc: "Nodes that it writes. Default: those of browse; none for observer.", example: []any{"boiler.setpoint"}}
	}
}

// siteNotes are the notes by the path of the key; those of all devices and tags stand once.
var siteNotes = map[string]keyNote{
	"server":                        {doc: "The OPC UA server."},
	"server.listen":                 {doc: "HOST:PORT to listen on; port 0 is any free one.", value: "0.0.0.0:4840"},
	"server.name":                   {doc: "Application name, for people.", value: "edged"},
	"server.application_uri":        {doc: "Identity of the server and part of its certificate. Default: urn:edged: and the host name.", pattern: `^[A-Za-z][A-Za-z0-9+.-]*:[^ ]*$`, example: "urn:edged:boiler-house"},
	"server.security":               {doc: "Who may connect, and how."},
	"server.security.key_size":      {doc: "Bits of the RSA key of the gateway's own certificate, where one is made.", value: 2048},
	"server.security.policies":      {doc: "Security policies. None and the deprecated Basic256 and Basic128Rsa15 must be named to be had.", value: []any{"Basic256Sha256", "Aes128_Sha256_RsaOaep", "Aes256_Sha256_RsaPss"}},
	"server.security.modes":         {doc: "Modes of every policy but None.", value: []any{"Sign", "SignAndEncrypt"}},
	"server.security.anonymous":     {doc: "What a client without a user may do.", value: "none"},
	"server.security.users":         {doc: "File of users, beside the site file, which `edged users` makes; none: there are none.", value: "users.yaml"},
	"server.security.roles":         {doc: "With which nodes a role may do something: names of devices, folders and tags, with * for any text. A role without patterns has all nodes."},
	"server.security.trust_all":     {doc: "Take any valid client certificate, with a warning in the log.", value: false},
	"server.reverse":                {doc: "URLs of clients that the gateway connects to by itself (ReverseConnect).", example: []any{"opc.tcp://scada:4843"}},
	"server.limits":                 {doc: "What all clients together may have."},
	"server.limits.sessions":        {doc: "Sessions.", value: 100},
	"server.limits.connections":     {doc: "Connections, at least sessions + 3.", value: 110},
	"server.limits.subscriptions":   {doc: "Subscriptions of all clients.", value: 1000},
	"server.limits.monitored_items": {doc: "Monitored items of all clients.", value: 500_000},
	"server.limits.queue":           {doc: "Longest queue of a monitored item.", value: 10_000},
	"server.limits.min_publishing":  {doc: "Shortest publishing interval.", value: "10ms"},
	"server.limits.memory":          {doc: "Bytes that queues, kept messages and connections may take together.", value: "auto"},
	"server.queue":                  {doc: "Queue sizes are those that the client asks for; auto raises those above one to what the rate of the values needs.", value: queueAsked},
	"server.raise_events":           {doc: "Clients who may call methods may raise events with RaiseEvent: for load tests.", value: false},
	"web":                           {doc: "Web page, metrics and health checks."},
	"web.listen":                    {doc: "HOST:PORT, or none to switch them off.", value: "127.0.0.1:8080"},
	"store":                         {doc: "History, last values and all else that outlives a restart."},
	"store.retention":               {doc: "How long history is kept.", value: "720h"},
	"store.max_size":                {doc: "Bytes that the files may take; the oldest history goes first.", value: "1GiB"},
	"store.commit":                  {doc: "How long what was read may wait for the disk; a power cut loses no more than that.", value: "10s"},
	"store.history":                 {doc: "Tags whose history is kept: names of devices, folders and tags, with * for any text. A tag's own history: true adds it.", example: []any{"boiler", "*.temperature"}},
	"buses":                         {doc: "Lines and hosts that devices are reached by. A bus owns its line: its devices never talk at the same time."},
	"buses.name":                    {doc: "Unique name; no dot, no $, no /."},
	"buses.url": {doc: "tcp://HOST:PORT (port 502 when left out), rtuovertcp://HOST:PORT, or rtu:///dev/NAME?baud=19200&data=8&parity=even&stop=1.",
		pattern: `^((tcp|tcp\+tls|rtuovertcp|rtu|ascii|serial|serial\+tcp)://.+|(rtu|ascii|serial):usb:[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}.*)$`, example: "tcp://10.0.0.5:502"},
	"buses.timeout":                 {doc: "How long an answer may take, beside the time that its characters take on a serial line.", value: "500ms"},
	"buses.retries":                 {doc: "Retries of a read that got no proper answer.", value: 1},
	"buses.write_retries":           {doc: "Retries of a write: a repeated write may happen twice.", value: 0},
	"buses.turnaround":              {doc: "Silence between an answer and the next request; a serial line has at least 3.5 characters.", value: "0s"},
	"buses.broadcast":               {doc: "How long a broadcast write is given.", value: "100ms"},
	"buses.echo":                    {doc: "The line brings back what is sent.", value: false},
	"buses.pipeline":                {doc: "Transactions in flight, over one connection, each of another device.", value: 1},
	"buses.overbook":                {doc: "What becomes of a serial line that has no time for its tags: refuse is a mistake of the file, warn a line in the log.", value: "refuse"},
	"devices":                       {doc: "Devices with their tags."},
	"devices.name":                  {doc: "Unique name; no dot, no $, no /, not Devices."},
	"devices.driver":                {doc: "modbus, serial for instruments that speak lines and frames of their own, or memory for tags that live in the gateway.", value: "modbus"},
	"devices.tags":                  {doc: "What is read and written."},
	"devices.bus":                   {doc: "Name of its bus."},
	"devices.unit":                  {doc: "Modbus unit; on a serial line 0 is a broadcast, which can only be written.", value: 0},
	"devices.writes":                {doc: "auto: functions 5 and 6 for one value, 15 and 16 for more; or always single, always multiple, or both (23).", value: "auto"},
	"devices.poll":                  {doc: "Poll period of tags that give none.", value: "1s"},
	"devices.max_registers":         {doc: "How far one read of registers may reach.", value: 125},
	"devices.max_bits":              {doc: "How far one read of coils or discrete inputs may reach.", value: 2000},
	"devices.gaps":                  {doc: "How many unused registers one read may bridge.", value: 0},
	"devices.holes":                 {doc: "Ranges that are never touched.", example: []any{"holding:12-19"}},
	"devices.together":              {doc: "Tags that one request must read.", example: []any{[]any{"temperature", "counter"}}},
	"devices.quirks":                {doc: "What the device does otherwise than the standard has it, named by symptom."},
	"devices.tags.name":             {doc: "Unique in the device; a dot makes a folder; does not begin with $. With repeat, {n} is the number."},
	"devices.tags.repeat":           {doc: "Makes so many tags: {n} in the name is 0 to N-1, each address after the one before.", value: 1},
	"devices.tags.unit":             {doc: "Engineering unit of a number, such as °C."},
	"devices.tags.description":      {doc: "For people."},
	"devices.tags.range":            {doc: "[low, high]: the EURange of a number, and the limits of a write.", example: []any{0, 150}},
	"devices.tags.instrument_range": {doc: "[low, high]: what the instrument can give.", example: []any{-50, 250}},
	"devices.tags.states":           {doc: "Texts of the values of a bool (both) or an integer; such an integer takes no other value in a write.", example: map[string]any{"0": "off", "1": "heating"}},
	"devices.tags.access":           {doc: "What clients may do.", value: "read"},
	"devices.tags.history":          {doc: "Keep its history: each change of its value or status.", value: false},
	"devices.tags.deadband":         {doc: "Of history alone: a number that moved by no more is no change.", value: 0},
	"devices.tags.address": {doc: "coil:, discrete:, input: or holding: with a number from 0, holding:30.4 for bit 4 (bit 0 is the least significant), or five or six digits from 1 (40021 is holding:20).",
		pattern: `^((coil|discrete|input|holding):[0-9]+(\.[0-9]+)?|[0134][0-9]{4,5}(\.[0-9]+)?)$`, example: "holding:0"},
	"devices.tags.type": {doc: "bool, int16, uint16, int32, uint32, int64, uint64, float32, float64, string(n), bytes(n), time of an instrument, or a list type[n]. Default: bool for bits, uint16 for registers, float64 in memory.",
		pattern: `^(bool|u?int(8|16|32|64)|float(32|64)|(string|bytes)(\([0-9]+\))?|time)(\[[0-9]+\])?$`, example: "float32"},
	"devices.tags.order":              {doc: "Order of the bytes; A is the most significant.", value: "ABCD", words: []string{"ABCD", "DCBA", "BADC", "CDAB", "ABCDEFGH", "HGFEDCBA", "BADCFEHG", "GHEFCDAB"}},
	"devices.tags.scale":              {doc: "value = raw * scale + offset, exact as decimal text; such a tag is a Double.", example: 0.1},
	"devices.tags.offset":             {doc: "See scale.", example: -273.15},
	"devices.tags.decimals":           {doc: "Places that are worth showing, the ValuePrecision of a float; a value that is read from a device is rounded to them."},
	"devices.tags.nan":                {doc: "good takes NaN as a value.", value: "bad", words: []string{"bad", "good"}},
	"devices.tags.sentinel":           {doc: "Raw values that mean that there is none; they read as BadOutOfRange.", example: []any{0x8000}},
	"devices.profile":                 {doc: "Description of the instrument: a name that `edged profiles` lists, or a file beside the site file. Keys of the device come before those of its profile; messages and tags are added to it.", example: "mt-sics"},
	"devices.address":                 {doc: "What {address} stands for in what is sent and in patterns, for instruments that share a line.", example: "01"},
	"devices.stale":                   {doc: "An instrument that talks unasked is gone when nothing came for so long; 0: never.", value: "30s"},
	"devices.frame":                   {doc: "How what it says is cut into messages. Default: lines that end with CR, LF or both."},
	"devices.frame.start":             {doc: `Bytes that each frame begins with: a text with \r, \n, \t and \xHH, or hex: and bytes in hexadecimal.`, example: "$"},
	"devices.frame.end":               {doc: `Bytes that each frame ends with.`, example: `\r\n`},
	"devices.frame.length":            {doc: "Instead of end: bytes of a frame, or where its length stands: at from 0, of size 1 or 2, in order high_first or low_first, and plus what is added for all of the frame.", example: map[string]any{"at": 2, "size": 1, "plus": 5}},
	"devices.frame.silence":           {doc: "Instead of end: a frame ends when nothing came for so long."},
	"devices.frame.max":               {doc: "Bytes of the longest frame.", value: 1024},
	"devices.frame.checksum":          {doc: "How a frame says that it is whole: one that is wrong is never data."},
	"devices.frame.checksum.kind":     {doc: "How it is computed; xor is the BCC of many instruments."},
	"devices.frame.checksum.form":     {doc: "hex: as hexadecimal digits.", value: "binary"},
	"devices.frame.checksum.order":    {doc: "Order of its bytes. Default: what is usual for the kind."},
	"devices.frame.checksum.place":    {doc: "Before or behind the end of the frame.", value: "before_end"},
	"devices.frame.checksum.mark":     {doc: "Text between what is covered and the checksum.", example: "*"},
	"devices.frame.checksum.from":     {doc: "Bytes at the beginning that are not covered.", value: 0},
	"devices.frame.checksum.optional": {doc: "A frame without the mark has no checksum.", value: false},
	"devices.ignore":                  {doc: "Regular expression of what it says and nobody needs."},
	"devices.messages":                {doc: "What it says."},
	"devices.messages.name":           {doc: "Unique in the device."},
	"devices.messages.send":           {doc: `What asks for it; without, it comes unasked. {address} and {checksum} are filled in.`, example: `SI\r\n`},
	"devices.messages.unasked":        {doc: "It comes unasked too.", value: false},
	"devices.messages.poll":           {doc: "How often it is asked for. Default: the device's."},
	"devices.messages.timeout":        {doc: "How long the answer may take. Default: the bus's."},
	"devices.messages.begins":         {doc: "How it begins; ? is any character.", example: "??GGA,"},
	"devices.messages.pattern":        {doc: "Regular expression of it, whose groups are its fields, by number or name.", example: `^S (?P<state>[SD]) +(?P<value>[-0-9.]+)`},
	"devices.messages.scan":           {doc: "Pattern as of scanf, whose conversions are its fields: %d, %f, %x, %s, %c.", example: "S %c %f %s"},
	"devices.messages.split":          {doc: "What separates its fields.", example: ","},
	"devices.messages.none":           {doc: "Regular expression of an answer that there is no value: its tags are BadOutOfRange."},
	"devices.messages.busy":           {doc: "Regular expression of an answer that asks for patience."},
	"devices.messages.refused":        {doc: "Regular expression of an answer that refuses."},
	"devices.tags.message":            {doc: "Its message, where there are several."},
	"devices.tags.field":              {doc: "Number or name of its field; several are joined.", example: "value"},
	"devices.tags.columns":            {doc: "Its characters, from 1.", example: "5-12"},
	"devices.tags.at":                 {doc: "Its first byte in the frame, from 0, or a bit of it.", example: "3.4"},
	"devices.tags.pattern":            {doc: "Regular expression that is searched in the message; its first group is the value."},
	"devices.tags.counts":             {doc: "Its value is how many messages came.", value: false},
	"devices.tags.format":             {doc: "Form of a number that is not decimal: hex, degrees_minutes, bcd; or the layout of a time.", example: "YYMMDDhhmmss"},
	"devices.tags.sign":               {doc: "Field that makes the number negative when it is S, W or -."},
	"devices.tags.values":             {doc: "Texts and the values that they stand for.", example: map[string]any{"S": true, "D": false}},
	"devices.tags.send":               {doc: "What writes it; {value}, {value:%.2f}, {address} and {checksum} are filled in. Without {value}, true sends it.", example: `T\r\n`},
	"devices.tags.done":               {doc: "Regular expression of the answer that it is done. Without, the instrument says nothing."},
	"devices.tags.busy":               {doc: "Regular expression of an answer that asks for patience."},
	"devices.tags.refused":            {doc: "Regular expression of an answer that refuses."},
	"devices.tags.timeout":            {doc: "How long the answer to a write may take. Default: the bus's."},
	"devices.tags.poll":               {doc: "Poll period. Default: the device's."},
	"devices.tags.hold":               {doc: "Keeps the last good value so long after the device fell silent, as uncertain.", value: "0s"},
	"devices.tags.verify":             {doc: "A confirming reading that differs from what was written makes the write BadDeviceFailure.", value: false},
	"devices.tags.value":              {doc: "First value. Default: zero."},
	"devices.tags.wave":               {doc: "Makes the tag move by itself."},
	"devices.tags.wave.kind":          {doc: "Form of the movement.", words: []string{"counter", "sine", "square", "random", "text"}},
	"devices.tags.wave.every":         {doc: "Time between two values."},
	"devices.tags.wave.phase":         {doc: "How much later the values come than those of a wave without phase; less than every."},
	"devices.tags.wave.period":        {doc: "Length of a sine or square."},
	"devices.tags.wave.min":           {doc: "Least value."},
	"devices.tags.wave.max":           {doc: "Greatest value."},
	"devices.tags.retain":             {doc: "Keep the value over a restart.", value: false},
}

// siteSchema is the JSON Schema of the site file. Keys, types, ranges and words come from the readers.
func siteSchema() *schema {
	r := &siteReader{document: document{file: "site.yaml"}, site: defaultSite("site.yaml")}
	root := &schema{Dialect: "http://json-schema.org/draft-07/schema#", Title: "Site file of edged", Required: []string{"devices"}}
	r.within(root, func() { r.read(&node{}) })

	bus := &schema{}
	r.within(bus, func() { r.bus(&node{}) })
	*root.property("buses") = schema{Type: typeList, Items: bus}

	// Which keys a device has depends on its driver, which need not be named.
	named := func(driver string) *schema {
		return &schema{Properties: properties{{"driver", &schema{Enum: []any{driver}}}}, Required: []string{"driver"}}
	}
	*root.property("devices") = schema{Type: typeList, MinItems: 1, MaxItems: maxDevices, Items: &schema{
		Type: typeMap, If: named(driverMemory), Then: r.deviceSchema(driverMemory), Else: &schema{
			If: named(driverSerial), Then: r.deviceSchema(driverSerial), Else: r.deviceSchema(driverModbus),
		},
	}}
	root.annotate("")
	return root
}

// deviceSchema is the schema of a device with a driver.
func (r *siteReader) deviceSchema(driver string) *schema {
	device, one := &schema{}, &schema{}
	d := deviceReader{siteReader: r}
	r.within(device, func() { d.keys(&node{}, driver) })
	t := tagReader{deviceReader: &d}
	r.within(one, func() {
		switch driver {
		case driverModbus:
			t.readModbus(&node{})
		case driverSerial:
			t.readSerial(&node{})
		default:
			t.readMemory(&node{})
		}
	})
	*device.property("tags") = schema{Type: typeList, MinItems: 1, Items: one}
	return device
}

// annotate adds the notes to the keys below path.
func (s *schema) annotate(path string) {
	for _, p := range s.Properties {
		at := strings.TrimPrefix(path+"."+p.name, ".")
		if note, ok := siteNotes[at]; ok && p.value.Not == nil {
			note.add(p.value)
		}
		p.value.annotate(at)
	}
	for _, below := range []*schema{s.Items, s.Then, s.Else} {
		if below != nil {
			below.annotate(path)
		}
	}
}

// add puts a note on a key's schema.
func (k *keyNote) add(s *schema) {
	s.Description = strings.TrimSpace(k.doc + " " + s.Description)
	s.Default = k.value
	if k.pattern != "" {
		s.Pattern = k.pattern
	}
	if k.words != nil {
		s.word(k.words...)
	}
	if k.example != nil {
		s.Examples = []any{k.example}
	}
}

// write prints a schema as a file.
func (s *schema) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
