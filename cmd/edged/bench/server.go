package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"edged/drivers/tag"
)

// ownDevice is the device of a gateway of its own.
const ownDevice = "load"

// spareSessions are those that a gateway of its own allows beside the workload's: they are for whoever looks on.
const spareSessions = 10

// What a gateway allows by itself.
const (
	defaultSessions      = 100
	defaultSubscriptions = 1000
	defaultItems         = 500_000
)

// limits are those of a gateway of its own, as its site file writes them: what the workload needs, where that is more
// than a gateway allows by itself.
func (b *bench) limits() string {
	sessions, subs, items := b.cfg.Sessions+1+spareSessions, 0, 0
	if w := b.load.watch; w != nil {
		subs, items = b.cfg.Sessions*w.subscriptions, b.cfg.Sessions*w.subscriptions*w.items
	}
	var parts []string
	if sessions > defaultSessions {
		parts = append(parts, fmt.Sprintf("sessions: %d, connections: %d", sessions, sessions+spareSessions))
	}
	if subs > defaultSubscriptions {
		parts = append(parts, fmt.Sprintf("subscriptions: %d", subs+spareSessions))
	}
	if items > defaultItems {
		parts = append(parts, fmt.Sprintf("monitored_items: %d", items))
	}
	if len(parts) == 0 {
		return "default limits"
	}
	return "limits: {" + strings.Join(parts, ", ") + "}"
}

// site is the site file of a gateway of its own: tags in memory, which move unless they are to stand still, or those of
// a simulated device.
func (b *bench) site(still bool) string {
	var s strings.Builder
	s.WriteString(`server:
  listen: 127.0.0.1:0
  name: edged bench
  security: {policies: [None, Basic256Sha256, Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss], modes: [SignAndEncrypt], anonymous: write, trust_all: true}
`)
	if w := b.load.watch; w != nil && w.events {
		s.WriteString("  raise_events: true\n")
	}
	if l := b.limits(); strings.HasPrefix(l, "limits:") {
		s.WriteString("  " + l + "\n")
	}
	s.WriteString("web: {listen: \"127.0.0.1:0\"}\n")
	if b.plant != nil {
		fmt.Fprintf(&s, "buses:\n  - {name: field, url: %q, timeout: 5s}\n", b.plant.sim.Lines()[0].URL())
	}
	fmt.Fprintf(&s, "devices:\n  - name: %s\n", ownDevice)
	if b.plant == nil {
		s.WriteString("    driver: memory\n")
	} else {
		fmt.Fprintf(&s, "    driver: modbus\n    bus: field\n    unit: 1\n    poll: %v\n", b.poll(still))
	}
	s.WriteString("    tags:\n")
	for i, g := range b.groups() {
		fmt.Fprintf(&s, "      - {name: \"%s_{n}\", repeat: %d, type: %s", g.stem(), g.count, g.typeName())
		switch {
		case b.plant != nil:
			fmt.Fprintf(&s, ", address: \"holding:%d\"}\n", b.plant.groups[i].at)
			continue
		case g.wave != "" && !still:
			s.WriteString(", wave: " + g.wave)
		}
		if g.kind == tag.String {
			s.WriteString(", value: \"0\"")
		}
		s.WriteString(", access: readwrite}\n")
	}
	return s.String()
}

// server is a gateway of its own.
type server struct {
	cmd     *exec.Cmd
	dir     string
	file    string // site file
	url     string
	metrics string
	log     *serverLog
}

// stopLimit is how long the gateway may take to end.
const stopLimit = 15 * time.Second

// startServer starts a gateway and waits until it listens.
func startServer(ctx context.Context, program, site string) (*server, error) {
	dir, err := os.MkdirTemp("", "edged-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, file: filepath.Join(dir, "site.yaml")}
	if err := os.WriteFile(s.file, []byte(site), 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.cmd = exec.Command(program, "--log-format", "json", "run", "--config", s.file, "--data", filepath.Join(dir, "data"))
	errs, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("the gateway does not start: %w", err)
	}
	s.log = newServerLog(errs)
	timeout := time.After(patience)
	for s.url == "" || s.metrics == "" {
		select {
		case <-ctx.Done():
			s.stop()
			return nil, context.Cause(ctx)
		case <-timeout:
			s.stop()
			return nil, fmt.Errorf("the gateway does not listen after %v; its log:\n%s", patience, s.log.text())
		case l, ok := <-s.log.listening:
			switch {
			case !ok:
				s.stop()
				return nil, fmt.Errorf("the gateway has ended; its log:\n%s", s.log.text())
			case l.what == "OPC UA":
				s.url = "opc.tcp://" + l.address
			default:
				s.metrics = "http://" + l.address + "/metrics"
			}
		}
	}
	return s, nil
}

// reload has the gateway take another site file.
func (s *server) reload(site string) error {
	next := s.file + ".next"
	if err := os.WriteFile(next, []byte(site), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, s.file); err != nil {
		return err
	}
	return s.cmd.Process.Signal(syscall.SIGHUP)
}

// stop ends the gateway and removes what it kept.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopLimit, func() { s.cmd.Process.Kill() })
	<-s.log.done // before Wait, which closes the pipe
	s.cmd.Wait()
	kill.Stop()
	os.RemoveAll(s.dir)
}

// listener is a socket that the gateway says it listens on.
type listener struct{ what, address string }

// keptLines is how much of the gateway's log is kept to explain a failure.
const keptLines = 20

// serverLog reads the gateway's log.
type serverLog struct {
	listening chan listener // closed at the end of the log
	done      chan struct{} // closed likewise
	lines     []string      // owned by the reader until done
}

func newServerLog(r io.Reader) *serverLog {
	l := &serverLog{listening: make(chan listener, 8), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer close(l.listening)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			l.line(lines.Bytes())
		}
		io.Copy(io.Discard, r) // after a line that is too long
	}()
	return l
}

func (l *serverLog) line(b []byte) {
	if l.lines = append(l.lines, string(b)); len(l.lines) > keptLines {
		l.lines = l.lines[1:]
	}
	var entry struct{ Msg, Address string }
	if json.Unmarshal(b, &entry) != nil {
		return
	}
	if what, ok := strings.CutSuffix(entry.Msg, " listens"); ok {
		select {
		case l.listening <- listener{what, entry.Address}:
		default: // nobody waits any more
		}
	}
}

// text is the end of the log, once it has ended.
func (l *serverLog) text() string {
	<-l.done
	return strings.Join(l.lines, "\n")
}
