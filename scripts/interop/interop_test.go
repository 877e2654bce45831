//go:build interop

// Package interop runs the gateway between peers of other makes: libmodbus and modbus-serial in the field, node-opcua as
// the client.
// It hides how they are started and stopped; `make interop` builds what it needs.
package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to be ready on a loaded machine.
const patience = 30 * time.Second

// tool is the path of a program that the tests need; a missing one is a failure that says how to get it.
func tool(t *testing.T, name, remedy string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: %s", name, remedy)
	}
	return path
}

func edged(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "edged"))
	if err != nil {
		t.Fatal(err)
	}
	return tool(t, path, "run `make build`")
}

// process is a program that the test started; it is told to end at the end of the test.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu     sync.Mutex // guards last
	output bytes.Buffer
}

// start runs a program. Its output is shown when the test fails.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(name), cmd: exec.Command(name, args...), done: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	err = p.cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		defer out.Close()
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.mu.Lock()
			p.output.Write(append(lines.Bytes(), '\n'))
			p.mu.Unlock()
		}
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("%s %s said:\n%s", p.name, strings.Join(args, " "), p.said())
		}
	})
	return p
}

// stop tells the process to end and gives its exit status.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s did not end within %v of SIGTERM", p.name, patience)
		p.cmd.Process.Kill()
		<-p.done
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// await waits until ok is true while the process lives.
func (p *process) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before %s", p.name, what)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %s", p.name, patience, what)
		}
	}
}

// freePort is a port of the loopback that nobody listened on just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func listening(address string) func() bool {
	return func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		c.Close()
		return true
	}
}

// gateway starts edged and gives its endpoint; it must end with status 0.
func gateway(t *testing.T, args ...string) string {
	t.Helper()
	address := "127.0.0.1:" + freePort(t)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "LISTEN", address)
	}
	if i := slices.Index(args, "--config"); i >= 0 {
		site, err := os.ReadFile(args[i+1])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(args[i+1], bytes.ReplaceAll(site, []byte("LISTEN"), []byte(address)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, edged(t), args...)
	p.await(t, "it listens on "+address, listening(address))
	t.Cleanup(func() {
		if status := p.stop(t); status != 0 {
			t.Errorf("edged ended with status %d after SIGTERM", status)
		}
	})
	return "opc.tcp://" + address
}

// conversation is what the node-opcua client saw: the JSON that client.mjs prints.
type conversation struct {
	Policy  string
	Mode    string
	Samples []struct {
		Value  any
		Status string
	}
	Different int
	Write     struct{ Status string }
	Read      struct {
		Value  any
		Status string
	}
}

// certificates is where the client keeps its certificate over the tests, since making one takes it seconds.
var certificates string

func TestMain(m *testing.M) {
	var err error
	if certificates, err = os.MkdirTemp("", "interop-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(certificates)
	os.Exit(status)
}

// watched is a node that moves, and between what.
type watched struct {
	node      string
	low, high float64
}

// security is a policy and a mode, by the names that OPC UA and node-opcua have for them.
type security struct{ policy, mode string }

// usual is what most clients choose.
var usual = security{"Basic256Sha256", "SignAndEncrypt"}

// converse lets node-opcua watch one node until it has moved, and write another, whose value it reads back. more are
// further arguments of the client.
func converse(t *testing.T, endpoint string, over security, watch watched, write, value, kind string, more ...string) {
	t.Helper()
	node := tool(t, "node", "install Node.js 20 (apt-get install nodejs)")
	if _, err := os.Stat("node_modules/node-opcua-client"); err != nil {
		t.Fatal("node-opcua-client is missing: run scripts/setup.sh")
	}
	args := append([]string{"client.mjs", "--endpoint", endpoint, "--policy", over.policy, "--mode", over.mode, "--watch", "ns=2;s=" + watch.node, "--values", "3",
		"--write", "ns=2;s=" + write, "--value", value, "--type", kind, "--pki", certificates}, more...)
	cmd := exec.Command(node, args...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	timer := time.AfterFunc(3*patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("node-opcua's client: %v\n%s%s", err, out.String(), errors.String())
	}
	var c conversation
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") {
			continue // the library speaks too
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("node-opcua's client said %q: %v", line, err)
		}
	}
	if !strings.HasSuffix(c.Policy, "#"+over.policy) || c.Mode != over.mode {
		t.Errorf("the channel is %s %s", c.Policy, c.Mode)
	}
	if c.Different < 3 {
		t.Errorf("%s did not move: %v", watch.node, c.Samples)
	}
	for _, sample := range c.Samples {
		if v, ok := sample.Value.(float64); sample.Status == "Good" && (!ok || v < watch.low || v > watch.high) {
			t.Errorf("%s is %v, not from %v to %v", watch.node, sample.Value, watch.low, watch.high)
		}
	}
	if c.Write.Status != "Good" || c.Read.Status != "Good" || fmt.Sprint(c.Read.Value) != value {
		t.Errorf("%s: wrote %s: %s, read back %v: %s", write, value, c.Write.Status, c.Read.Value, c.Read.Status)
	}
}

var (
	temperature = watched{"boiler.temperature", 20, 90}
	counter     = watched{"boiler.counter", 0, 36_000} // an hour of steps
	pressure    = watched{"burner.pressure", 0.8, 4.2}
)

// TestPolicies: the demo offers every policy that is built, in both modes.
func TestPolicies(t *testing.T) {
	endpoint := gateway(t, "demo", "--listen", "LISTEN", "--web", "none", "--data", t.TempDir())
	all := []security{{"None", "None"}}
	for _, policy := range []string{"Basic256Sha256", "Aes128_Sha256_RsaOaep", "Aes256_Sha256_RsaPss"} {
		all = append(all, security{policy, "Sign"}, security{policy, "SignAndEncrypt"})
	}
	for i, over := range all {
		t.Run(over.policy+" "+over.mode, func(t *testing.T) {
			converse(t, endpoint, over, counter, "scratch.m7", fmt.Sprintf("%d.25", i+1), "Double")
		})
	}
}

func TestDemo(t *testing.T) {
	endpoint := gateway(t, "demo", "--listen", "LISTEN", "--web", "none", "--data", t.TempDir())
	t.Run("tcp", func(t *testing.T) { converse(t, endpoint, usual, temperature, "boiler.setpoint", "70.5", "Double") })
	t.Run("rtu", func(t *testing.T) { converse(t, endpoint, usual, pressure, "burner.modulation", "40", "UInt16") })
	t.Run("memory", func(t *testing.T) { converse(t, endpoint, usual, counter, "scratch.m7", "12.25", "Double") })
}

const reverseSite = `
server:
  listen: LISTEN
  security: {anonymous: write, trust_all: true}
  reverse: ["opc.tcp://CLIENT"]
web: {listen: none}
devices:
  - name: scratch
    driver: memory
    tags:
      - {name: counter, type: float64, wave: {kind: counter, every: 100ms}}
      - {name: m7, type: float64, access: readwrite}
`

// TestReverseConnect: the gateway connects to the client, twice: one connection after the other is ready.
func TestReverseConnect(t *testing.T) {
	client := "127.0.0.1:" + freePort(t)
	path, data := filepath.Join(t.TempDir(), "site.yaml"), t.TempDir()
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(reverseSite, "CLIENT", client)), 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint := gateway(t, "run", "--config", path, "--data", data)
	for _, value := range []string{"1.5", "2.5"} {
		converse(t, endpoint, usual, watched{"scratch.counter", 0, 36_000}, "scratch.m7", value, "Double",
			"--reverse", "opc.tcp://"+client, "--server", filepath.Join(data, "pki", "own", "certificate.der"))
	}
}

const site = `
server:
  listen: LISTEN
  security: {anonymous: write, trust_all: true}
web: {listen: none}
buses:
  - {name: line, url: "BUS", timeout: 1s, retries: 1}
devices:
  - name: boiler
    bus: line
    driver: modbus
    unit: 1
    poll: 100ms
    tags:
      - {name: temperature, address: "holding:0", type: float32, order: ABCD, unit: "°C", range: [0, 150]}
      - {name: counter, address: "holding:2", type: uint32}
      - {name: setpoint, address: "holding:10", type: uint16, scale: 0.1, range: [0, 120], access: readwrite, verify: true}
      - {name: running, address: "coil:3", access: readwrite}
      - {name: level, address: "40021", type: int16, poll: 1s}
      - {name: alarm, address: "holding:30.4"}
`

// siteFile writes the site for one bus; LISTEN is filled in by gateway.
func siteFile(t *testing.T, bus string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(site, "BUS", bus)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// libmodbusServer compiles the device.
func libmodbusServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libmodbus-server")
	compiler := tool(t, "gcc", "apt-get install gcc")
	out, err := exec.Command(compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, filepath.Join("device", "libmodbus-server.c"), "-lmodbus", "-lm").CombinedOutput()
	if err != nil {
		t.Fatalf("libmodbus-server.c does not compile (apt-get install libmodbus-dev): %v\n%s", err, out)
	}
	return path
}

// exercise lets the client move the device's set point and its coil, and asks the device itself what it was told.
func exercise(t *testing.T, device *process, bus string) {
	t.Helper()
	endpoint := gateway(t, "run", "--config", siteFile(t, bus), "--data", t.TempDir())
	converse(t, endpoint, usual, temperature, "boiler.setpoint", "70.5", "Double")
	converse(t, endpoint, usual, counter, "boiler.running", "false", "Boolean")
	for _, line := range []string{"wrote holding 10 705", "wrote coil 3 0"} {
		if !strings.Contains(device.said(), line+"\n") {
			t.Errorf("the device never said %q", line)
		}
	}
}

func TestLibmodbusTCP(t *testing.T) {
	port := freePort(t)
	device := start(t, libmodbusServer(t), "tcp", port)
	device.await(t, "it is ready", func() bool { return strings.Contains(device.said(), "ready") })
	exercise(t, device, "tcp://127.0.0.1:"+port)
}

func TestLibmodbusRTU(t *testing.T) {
	near, far := terminals(t)
	device := start(t, libmodbusServer(t), "rtu", far, "1")
	device.await(t, "it is ready", func() bool { return strings.Contains(device.said(), "ready") })
	exercise(t, device, "rtu://"+near+"?baud=19200&parity=even")
}

// terminals joins two pseudo terminals, and gives the paths of both ends.
func terminals(t *testing.T) (near, far string) {
	t.Helper()
	dir := t.TempDir()
	near, far = filepath.Join(dir, "gateway"), filepath.Join(dir, "device")
	line := start(t, tool(t, "socat", "apt-get install socat"), "pty,raw,echo=0,link="+near, "pty,raw,echo=0,link="+far)
	line.await(t, "both ends are there", func() bool {
		_, err1 := os.Stat(near)
		_, err2 := os.Stat(far)
		return err1 == nil && err2 == nil
	})
	return near, far
}

// modbusSerial starts the device of modbus-serial.
func modbusSerial(t *testing.T, args ...string) *process {
	t.Helper()
	node := tool(t, "node", "install Node.js 20 (apt-get install nodejs)")
	if _, err := os.Stat("node_modules/modbus-serial"); err != nil {
		t.Fatal("modbus-serial is missing: run scripts/setup.sh")
	}
	device := start(t, node, append([]string{filepath.Join("device", "modbus-serial.mjs")}, args...)...)
	device.await(t, "it is ready", func() bool { return strings.Contains(device.said(), "ready") })
	return device
}

func TestModbusSerialTCP(t *testing.T) {
	port := freePort(t)
	exercise(t, modbusSerial(t, "tcp", port), "tcp://127.0.0.1:"+port)
}

func TestModbusSerialRTU(t *testing.T) {
	near, far := terminals(t)
	exercise(t, modbusSerial(t, "rtu", far, "1"), "rtu://"+near+"?baud=19200&parity=even")
}

// TestIdentification: what a device of another make says of itself stands below its object.
func TestIdentification(t *testing.T) {
	port := freePort(t)
	modbusSerial(t, "tcp", port)
	endpoint := gateway(t, "run", "--config", siteFile(t, "tcp://127.0.0.1:"+port), "--data", t.TempDir())
	want := map[string]string{"boiler.$id.Manufacturer": "Acme", "boiler.$id.Model": "Boiler", "boiler.$id.SoftwareRevision": "V2.11"}
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		args := []string{"read", endpoint, "--json", "--data", certificates}
		for node := range want {
			args = append(args, node)
		}
		out, _ := exec.Command(edged(t), args...).CombinedOutput()
		all := true
		for _, text := range want {
			all = all && strings.Contains(string(out), `"`+text+`"`)
		}
		if all {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the device is not what it says:\n%s", out)
		}
	}
}
