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

// site is the site file of a gateway of its own: nothing but tags in memory.
func (b *bench) site() string {
	var s strings.Builder
	sessions := b.cfg.Sessions + 1 + spareSessions
	fmt.Fprintf(&s, `server:
  listen: 127.0.0.1:0
  name: edged bench
  security: {policies: [None, Basic256Sha256, Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss], modes: [SignAndEncrypt], anonymous: write, trust_all: true}
  limits: {sessions: %d, connections: %d}
web: {listen: "127.0.0.1:0"}
devices:
  - name: %s
    driver: memory
    tags:
`, sessions, sessions+spareSessions, ownDevice)
	for _, g := range b.groups() {
		kind := tag.Type{Kind: g.kind}
		fmt.Fprintf(&s, "      - {name: \"%s_{n}\", repeat: %d, type: %s, access: readwrite}\n", kind, g.count, kind)
	}
	return s.String()
}

// server is a gateway of its own.
type server struct {
	cmd     *exec.Cmd
	dir     string
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
	s := &server{dir: dir}
	file := filepath.Join(dir, "site.yaml")
	if err := os.WriteFile(file, []byte(site), 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.cmd = exec.Command(program, "--log-format", "json", "run", "--config", file, "--data", filepath.Join(dir, "data"))
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
