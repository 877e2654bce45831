package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/uaserver/uatest"
)

// clientSite has what the client commands meet: units, lists, texts, and nodes that refuse.
const clientSite = siteHead + `
devices:
- name: d
  driver: memory
  tags:
  - {name: level, value: 7.5, unit: "m³", range: [0, 10], access: readwrite}
  - {name: small, type: int16, value: -3, access: readwrite}
  - {name: flag, type: bool, access: readwrite}
  - {name: text, type: "string(20)", value: "hi", access: readwrite}
  - {name: blob, type: "bytes(4)", access: readwrite}
  - {name: list, type: "int32[3]", value: [1, 2, 3], access: readwrite}
  - {name: fixed, type: uint16, value: 1}
  - {name: hidden, type: uint16, access: write}
  - {name: sub.counter, type: uint32, wave: {kind: counter, every: 20ms}}
  - {name: "many{n}", repeat: 250}
`

// ask carries out a client command against a server; data is the folder of its certificates.
func ask(t *testing.T, data, command0, url string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return command(t, append([]string{command0, url, "--data", data}, args...)...)
}

// rows are the lines of a command's output, each cut into its columns, without the titles.
func rows(stdout string) [][]string {
	var out [][]string
	for line := range strings.Lines(stdout) {
		out = append(out, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return out[min(1, len(out)):]
}

func TestReadCommand(t *testing.T) {
	g, _ := startSite(t, clientSite)
	url, data := endpointUp(t, g), t.TempDir()
	for _, row := range []struct {
		args   string
		status int
		want   string // each of these words stands in stdout
		wrong  string // and these in stderr
	}{
		{"d.level", exitDone, "ns=2;s=d.level\t7.5\tm³\tDouble\tGood", ""},
		{"ns=2;s=d.small", exitDone, "\t-3\t\tInt16\tGood", ""},
		{"nsu=urn:edged:plant;s=d.text", exitDone, "\thi\t\tString\tGood", ""},
		{"d.list", exitDone, "[1,|2,|3]|Int32[]", ""},
		{"i=2259", exitDone, "i=2259\t0\t\tInt32\tGood", ""},
		{"d.level --json", exitDone, `"node":"ns=2;s=d.level","value":7.5,"unit":"m³","type":"Double","status":"Good","source":"20|"server":"20`, ""},
		{"d.list --json", exitDone, `"value":[1,2,3]`, ""},
		{"d.level --attribute DisplayName", exitDone, "DisplayName\tlevel", ""},
		{"d.level --attribute all", exitDone, "NodeClass|DataType\ti=11|AccessLevel", ""},
		{"d.level --security none", exitDone, "7.5", ""},
		{"d.level --security sign", exitDone, "7.5", ""},
		{"d.level --security encrypt", exitDone, "7.5", ""},
		{"d.nothing", exitFailed, "BadNodeIdUnknown", "d.nothing|BadNodeIdUnknown|edged browse"},
		{"d.level d.nothing d.hidden", exitFailed, "7.5|BadNodeIdUnknown", "of 3 nodes|d.nothing"},
		{"d.level --attribute IsAbstract", exitFailed, "BadAttributeIdInvalid", "no such attribute"},
		{"nsu=urn:nowhere;s=x", exitUsage, "", "urn:nowhere|urn:edged:plant"},
		{"i=x", exitUsage, "", "i=x|number"},
		{"d.level --attribute colour", exitUsage, "", "--attribute colour|DisplayName"},
		{"d.level --security strong", exitUsage, "", "--security"},
		{"d.level --timeout 0s", exitUsage, "", "--timeout"},
		{"", exitUsage, "", "expected"},
	} {
		status, stdout, stderr := ask(t, data, "read", url, strings.Fields(row.args)...)
		expect(t, "read "+row.args, status, row.status, stdout, strings.Join(strings.Split(row.want, ", "), "|"), stderr, row.wrong)
	}
}

// expect compares an exit status, and finds words in the output.
func expect(t *testing.T, what string, status, wantStatus int, stdout, want, stderr, wrong string) {
	t.Helper()
	if status != wantStatus {
		t.Errorf("%s: exit status %d, want %d\n%s%s", what, status, wantStatus, stdout, stderr)
	}
	for _, side := range [][2]string{{stdout, want}, {stderr, wrong}} {
		for word := range strings.SplitSeq(side[1], "|") {
			if !strings.Contains(side[0], word) {
				t.Errorf("%s: %q lacks %q", what, side[0], word)
			}
		}
	}
	if wantStatus != exitDone {
		last := strings.TrimSpace(stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:])
		if !strings.HasPrefix(last, "edged: ") || strings.Contains(stderr, "goroutine") {
			t.Errorf("%s: the last line of stderr is %q", what, last)
		}
	}
}

func TestWriteCommand(t *testing.T) {
	g, _ := startSite(t, clientSite)
	url, data := endpointUp(t, g), t.TempDir()
	for _, row := range []struct {
		args   []string
		status int
		want   string
		wrong  string
	}{
		{[]string{"d.level=9.25"}, exitDone, "ns=2;s=d.level\t9.25\tDouble\tGood", ""},
		{[]string{"ns=2;s=d.small=-0x10", "d.flag=on"}, exitDone, "d.small\t-16\tInt16\tGood|d.flag\ttrue\tBoolean\tGood", ""},
		{[]string{"d.text=a=b"}, exitDone, "d.text\ta=b\tString\tGood", ""},
		{[]string{"d.blob=0x0aff"}, exitDone, "0x0aff\tByteString\tGood", ""},
		{[]string{"d.list=4,5,6"}, exitDone, "[4, 5, 6]\tInt32[]\tGood", ""},
		{[]string{"d.level=1", "--json"}, exitDone, `{"node":"ns=2;s=d.level","value":1,"type":"Double","status":"Good"}`, ""},
		{[]string{"d.$state=1", "d.$latency=5", "d.$lastGood=now"}, exitFailed, "$state\t1\tInt32\tBadNotWritable|$latency\t5\tDouble\tBadNotWritable|\tDateTime\tBadNotWritable", "3 of 3"},
		{[]string{"d.hidden=5"}, exitDone, "5\tUInt16\tGood", ""},
		{[]string{"d.level=11"}, exitFailed, "BadOutOfRange", "d.level|BadOutOfRange|outside"},
		{[]string{"d.fixed=2"}, exitFailed, "BadNotWritable", "only be read"},
		{[]string{"d.nothing=2"}, exitFailed, "BadNodeIdUnknown", "edged browse"},
		{[]string{"d.level=3", "d.fixed=2"}, exitFailed, "d.level\t3\tDouble\tGood|BadNotWritable", "1 of 2 nodes|d.fixed"},
		{[]string{"d.level=2", "--type", "Int16"}, exitFailed, "BadTypeMismatch", "--type"},
		{[]string{"d.level=hot"}, exitUsage, "", "d.level|hot|Double|number"},
		{[]string{"d.level=4", "d.small=70000"}, exitUsage, "", "d.small|from -32768 to 32767"},
		{[]string{"d.list=1,x,3"}, exitUsage, "", "element 1"},
		{[]string{"d.level"}, exitUsage, "", "NODE=VALUE"},
		{[]string{"d.level=1", "--type", "Colour"}, exitUsage, "", "--type Colour|Double"},
		{nil, exitUsage, "", "expected"},
	} {
		status, stdout, stderr := ask(t, data, "write", url, row.args...)
		expect(t, fmt.Sprint("write ", row.args), status, row.status, stdout, row.want, stderr, row.wrong)
	}
	_, stdout, _ := ask(t, data, "read", url, "d.level", "d.small", "d.list", "d.text")
	for i, want := range []string{"3", "-16", "[4, 5, 6]", "a=b"} {
		if got := rows(stdout)[i][1]; got != want {
			t.Errorf("row %d reads back %s, want %s: with a mistake in one value none is written", i, got, want)
		}
	}
}

func TestBrowseCommand(t *testing.T) {
	g, _ := startSite(t, clientSite)
	url, data := endpointUp(t, g), t.TempDir()
	_, stdout, _ := ask(t, data, "browse", url)
	tree := rows(stdout)
	var nodes []string
	for _, r := range tree {
		nodes = append(nodes, r[1])
	}
	for _, want := range []string{"i=85", "i=2253", "ns=2;s=Devices", "ns=2;s=d", "ns=2;s=d.level", "ns=2;s=d.sub", "ns=2;s=d.many249"} {
		if n := len(slices.DeleteFunc(slices.Clone(nodes), func(s string) bool { return s != want })); n != 1 {
			t.Errorf("%s stands there %d times", want, n)
		}
	}
	if strings.Contains(stdout, "ServerStatus") || strings.Contains(stdout, "sub.counter") || strings.Contains(stdout, "EURange") {
		t.Errorf("the tree is deeper or wider than asked for:\n%.3000s", stdout)
	}
	for _, row := range []struct {
		args   string
		status int
		want   string
		wrong  string
	}{
		{"d --depth 1", exitDone, "  level\tns=2;s=d.level\tVariable\tDouble\t7.5\tGood\t1|  sub\t", ""},
		{"d --depth 0", exitDone, "    counter\tns=2;s=d.sub.counter", ""},
		{"d.level --all", exitDone, "  EngineeringUnits\t|  EURange\t|{Low: 0, High: 10}", ""},
		{"i=2253 --depth 1", exitDone, "  ServerStatus\ti=2256", ""},
		{"d --depth 1 --json", exitDone, `{"name":"level","node":"ns=2;s=d.level","class":"Variable","type":"Double","value":7.5,"status":"Good","depth":1}`, ""},
		{"i=84 --depth 0 --all", exitDone, "Organizes|FolderType| ...", ""},
		{"d.nothing", exitFailed, "BadNodeIdUnknown", "1 node of 1|edged browse"},
		{"d d.nothing", exitFailed, "d.level|BadNodeIdUnknown", "1 node of 2"},
		{"d --depth=-1", exitUsage, "", "--depth -1"},
		{"ns=2;boiler", exitUsage, "", "begins with i="},
	} {
		status, stdout, stderr := ask(t, data, "browse", url, strings.Fields(row.args)...)
		expect(t, "browse "+row.args, status, row.status, stdout, row.want, stderr, row.wrong)
	}
}

func TestWatchCommand(t *testing.T) {
	g, _ := startSite(t, clientSite)
	url, data := endpointUp(t, g), t.TempDir()
	_, stdout, stderr := ask(t, data, "watch", url, "d.sub.counter", "d.nothing", "--interval", "100ms", "--count", "20", "--json")
	last := -1.0
	n := 0
	for line := range strings.Lines(stdout) {
		var v struct {
			Time, Node, Status string
			Value              float64
			Overflow           bool
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if v.Node != "ns=2;s=d.sub.counter" || v.Status != "Good" || v.Overflow || (last >= 0 && v.Value != last+1) || v.Time == "" {
			t.Errorf("after %v came %s", last, line)
		}
		last = v.Value
		n++
	}
	if n != 20 || !strings.Contains(stderr, "d.nothing") {
		t.Errorf("%d changes, and %q", n, stderr)
	}
	_, stdout, _ = ask(t, data, "watch", url, "d.sub.counter", "--interval", "400ms", "--queue", "2", "--count", "6")
	if !strings.Contains(stdout, "Overflow") {
		t.Errorf("a queue of 2 shows no Overflow:\n%s", stdout)
	}
	start := time.Now()
	status, stdout, _ := ask(t, data, "watch", url, "d.level", "--for", "1s")
	if status != exitDone || len(rows(stdout)) != 1 || time.Since(start) > 20*time.Second {
		t.Errorf("--for 1s: exit status %d after %v:\n%s", status, time.Since(start), stdout)
	}
	for _, row := range []struct {
		args   string
		status int
		wrong  string
	}{
		{"d.nothing", exitFailed, "d.nothing|BadNodeIdUnknown"},
		{"d.level --interval 0s", exitUsage, "--interval"},
		{"d.level --interval 2h", exitUsage, "--interval|1h"},
		{"d.level --sampling -1s", exitUsage, "--sampling"},
		{"d.level --queue 0", exitUsage, "--queue"},
		{"d.level --count -1", exitUsage, "--count"},
		{"i=x", exitUsage, "i=x"},
	} {
		status, stdout, stderr := ask(t, data, "watch", url, strings.Fields(row.args)...)
		expect(t, "watch "+row.args, status, row.status, stdout, "", stderr, row.wrong)
	}
}

// TestWatchOutlivesTheServer ends the server under a watch and starts it again.
func TestWatchOutlivesTheServer(t *testing.T) {
	t.Parallel()
	address := freePort(t)
	site := strings.Replace(clientSite, "127.0.0.1:0", address, 1)
	run := func() (stop func()) {
		s, err := parseSite("site.yaml", []byte(site))
		if err != nil {
			t.Fatal(err)
		}
		g, err := newGateway(s, t.TempDir(), newLog(io.Discard, "text", "error"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); g.run(ctx) }()
		endpointUp(t, g)
		return func() { cancel(); <-done }
	}
	stop := run()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, book := &logBook{}, &logBook{}
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"watch", address, "d.level", "--security", "none", "--data", t.TempDir()}, out, book)
	}()
	shown := func() int { return out.count("ns=2;s=d.level") }
	eventually(t, "the first value", func() bool { return shown() > 0 })
	stop()
	eventually(t, "a word about the lost server", func() bool { return book.count("trying again") > 0 })
	before := shown()
	stop = run()
	defer stop()
	eventually(t, "a value of the server that came back", func() bool { return shown() > before })
	if book.count("connected again") != 1 {
		t.Errorf("log:\n%s", book)
	}
	cancel()
	if status := <-ended; status != exitDone {
		t.Errorf("exit status %d", status)
	}
}

// TestClientCertificates goes the way of an engineer whose client the gateway does not know yet.
func TestClientCertificates(t *testing.T) {
	s, err := parseSite("site.yaml", []byte("server: {listen: \"127.0.0.1:0\", security: {policies: [Basic256Sha256], anonymous: read}}\nweb: {listen: none}\n"+oneDevice))
	if err != nil {
		t.Fatal(err)
	}
	gatewayData, data := t.TempDir(), t.TempDir()
	g, err := newGateway(s, gatewayData, newLog(io.Discard, "text", "error"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); g.run(ctx) }()
	defer func() { cancel(); <-done }()
	url := endpointUp(t, g)

	status, stdout, stderr := ask(t, data, "read", url, "d.t")
	own := filepath.Join(data, "pki", "own", "certificate.der")
	expect(t, "an unknown client", status, exitFailed, stdout, "", stderr, own+"|pki/trusted")
	if strings.Contains(stderr, "--security none") {
		t.Errorf("a way out that is none: %s", stderr)
	}
	status, stdout, stderr = ask(t, data, "read", url, "d.t", "--security", "none")
	expect(t, "none is not offered", status, exitFailed, stdout, "", stderr, "it offers Basic256Sha256")

	der, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gatewayData, "pki", "trusted", "client.der"), der, 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = ask(t, data, "read", url, "d.t")
	expect(t, "a trusted client", status, exitDone, stdout, "Double\tGood", stderr, "")
	status, stdout, stderr = ask(t, data, "write", url, "d.t=1")
	expect(t, "anonymous may only read", status, exitFailed, stdout, "BadNotWritable", stderr, "")
	if again, err := os.ReadFile(own); err != nil || !bytes.Equal(again, der) {
		t.Errorf("the certificate was made twice: %v", err)
	}

	// Another certificate under the same address: somebody between, or a renewed one.
	seen, err := filepath.Glob(filepath.Join(data, "pki", "servers", "*.der"))
	if err != nil || len(seen) != 1 {
		t.Fatalf("servers that were seen: %v, %v", seen, err)
	}
	if err := os.WriteFile(seen[0], der, 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = ask(t, data, "read", url, "d.t")
	expect(t, "another certificate", status, exitFailed, stdout, "", stderr, "another certificate than before|--trust|"+seen[0])
	status, stdout, stderr = ask(t, data, "read", url, "d.t", "--trust")
	expect(t, "renewed", status, exitDone, stdout, "Good", stderr, "remembered")
	status, stdout, stderr = ask(t, "/proc/nowhere", "read", url, "d.t")
	expect(t, "no folder", status, exitFailed, stdout, "", stderr, "/proc/nowhere|--data")
}

// TestClientUsers logs in with passwords and with a certificate, by each way to give them.
func TestClientUsers(t *testing.T) {
	path := usersSite(t, "policies: [None, Basic256Sha256, Aes128_Sha256_RsaOaep], trust_all: true")
	dir := filepath.Dir(path)
	password, wrong := filepath.Join(dir, "password"), filepath.Join(dir, "wrong")
	write(t, password, "open sesame\n")
	write(t, wrong, "guess\n")
	carl := uatest.ClientIdentity(t)
	pair := filepath.Join(dir, "carl.pem")
	write(t, pair, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: carl.DER}))+
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(carl.Key)})))
	for _, args := range [][]string{{"anna", "--role", "operator", "--password-file", password}, {"carl", "--certificate", pair}} {
		if status, _, stderr := command(t, append([]string{"users", "add", "--config", path}, args...)...); status != exitDone {
			t.Fatal(stderr)
		}
	}
	g, _, _ := startFile(t, path)
	url, data := endpointUp(t, g), t.TempDir()
	t.Setenv("EDGED_TEST_PASSWORD", "open sesame")
	const set, node = "boiler.setpoint=2.5", "boiler.setpoint"
	for _, row := range []struct {
		name   string
		args   []string
		status int
		want   string
		wrong  string
	}{
		{"nobody", []string{"read", node}, exitFailed, "", "it offers|user name|certificate"},
		{"a file", []string{"write", set, "--user", "anna", "--password-file", password}, exitDone, "2.5\tDouble\tGood", ""},
		{"an environment variable", []string{"read", node, "-u", "anna", "--password-env", "EDGED_TEST_PASSWORD"}, exitDone, "2.5", ""},
		{"policy and mode", []string{"browse", "boiler", "-u", "anna", "--password-file", password, "--policy", "Aes128_Sha256_RsaOaep", "--mode", "Sign"}, exitDone, "setpoint", ""},
		{"policy None", []string{"watch", node, "--count", "1", "-u", "anna", "--password-file", password, "--policy", "None"}, exitDone, "2.5", ""},
		{"a certificate", []string{"read", node, "--user-certificate", pair}, exitDone, "2.5", ""},
		{"a certificate that may look on alone", []string{"write", set, "--user-certificate", pair}, exitFailed, "BadUserAccessDenied", ""},
		{"a wrong password", []string{"read", node, "-u", "anna", "--password-file", wrong}, exitFailed, "", "user anna|BadIdentityTokenRejected"},
		{"a user that there is not", []string{"read", node, "-u", "eve", "--password-file", password}, exitFailed, "", "user eve"},
		{"no such variable", []string{"read", node, "-u", "anna", "--password-env", "EDGED_NONE"}, exitUsage, "", "EDGED_NONE"},
		{"no such file", []string{"read", node, "-u", "anna", "--password-file", "/nowhere"}, exitFailed, "", "/nowhere"},
		{"a password alone", []string{"read", node, "--password-file", password}, exitUsage, "", "--user"},
		{"two passwords", []string{"read", node, "-u", "anna", "--password-file", password, "--password-env", "EDGED_TEST_PASSWORD"}, exitUsage, "", "one of them"},
		{"two users", []string{"read", node, "-u", "anna", "--password-file", password, "--user-certificate", pair}, exitUsage, "", "one of them"},
		{"a file that is no pair", []string{"read", node, "--user-certificate", password}, exitFailed, "", "PEM"},
		{"a file that is not there", []string{"read", node, "--user-certificate", "/nowhere"}, exitFailed, "", "/nowhere"},
		{"a policy that is not offered", []string{"read", node, "-u", "anna", "--password-file", password, "--policy", "Basic256"}, exitFailed, "", "--policy Basic256|it offers"},
	} {
		status, stdout, stderr := ask(t, data, row.args[0], url, row.args[1:]...)
		expect(t, row.name, status, row.status, stdout, row.want, stderr, row.wrong)
		if strings.Contains(stdout+stderr, "open sesame") {
			t.Errorf("%s: the password is shown", row.name)
		}
	}
}

// TestDowngrade takes the security from a server that had some.
func TestDowngrade(t *testing.T) {
	address := freePort(t)
	data, gatewayData := t.TempDir(), t.TempDir()
	for i, policies := range []string{"[None, Basic256Sha256]", "[None]"} {
		s, err := parseSite("site.yaml", []byte("server: {listen: \""+address+"\", security: {policies: "+policies+", anonymous: read, trust_all: true}}\nweb: {listen: none}\n"+oneDevice))
		if err != nil {
			t.Fatal(err)
		}
		g, err := newGateway(s, gatewayData, newLog(io.Discard, "text", "error"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); g.run(ctx) }()
		url := endpointUp(t, g)
		status, stdout, stderr := ask(t, data, "read", url, "d.t")
		if i == 0 {
			expect(t, "with security", status, exitDone, stdout, "Good", stderr, "")
		} else {
			expect(t, "without", status, exitFailed, stdout, "", stderr, "offered security before|--security none")
			status, stdout, stderr = ask(t, data, "read", url, "d.t", "--security", "none")
			expect(t, "none is meant", status, exitDone, stdout, "Good", stderr, "")
		}
		cancel()
		<-done
	}
}

func TestNobodyHome(t *testing.T) {
	for _, row := range []struct {
		url    string
		status int
		wrong  string
	}{
		{freePort(t), exitFailed, "refuses connections"},
		{"http://plc", exitUsage, "opc.tcp"},
		{"plc:99999", exitUsage, "65535"},
		{"no-such-host.invalid", exitFailed, "no-such-host.invalid:4840"},
	} {
		for _, args := range [][]string{{"browse"}, {"read", "x"}, {"write", "x=1"}, {"watch", "x"}} {
			status, stdout, stderr := ask(t, t.TempDir(), args[0], row.url, append(args[1:], "--timeout", "3s")...)
			expect(t, fmt.Sprint(args, row.url), status, row.status, stdout, "", stderr, row.wrong)
		}
	}
}

// TestClientIsInterrupted presses Ctrl-C before anything was answered.
func TestClientIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"browse"}, {"read", "x"}, {"write", "x=1"}} {
		var out, err bytes.Buffer
		status := execute(ctx, append([]string{args[0], freePort(t), "--data", t.TempDir()}, args[1:]...), &out, &err)
		expect(t, fmt.Sprint(args), status, exitFailed, out.String(), "", err.String(), "interrupted")
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	tab := &table{out: &b, aligned: true}
	for _, v := range []string{"1", "äöü", "long text"} {
		if err := tab.row(column{"name", v, v}, column{"n", "x", 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.flush(); err != nil {
		t.Fatal(err)
	}
	if want := "name       n\n1          x\näöü        x\nlong text  x\n"; b.String() != want {
		t.Errorf("aligned:\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	tab = &table{out: &b, json: true}
	if err := tab.row(column{"a", "x", "<x>\n"}, column{"b", "", nil}, column{"c", "1", 1.5}); err != nil {
		t.Fatal(err)
	}
	if want := "{\"a\":\"<x>\\n\",\"c\":1.5}\n"; b.String() != want {
		t.Errorf("JSON is %q, want %q", b.String(), want)
	}
}
