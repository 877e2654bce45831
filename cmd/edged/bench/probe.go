package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// probe looks at the server's process and at its metrics. What cannot be known is NaN.
type probe struct {
	pid     int    // 0: not known
	metrics string // URL; "": there are none
}

// sample is how the two processes are at a moment.
type sample struct {
	cpu     float64 // seconds of the server
	client  float64 // seconds of this process
	rss     float64 // bytes of the server's anonymous memory
	alloc   float64 // bytes that the server has allocated
	mallocs float64 // objects that the server has allocated
	gc      float64 // collections
	pause   float64 // seconds of them in which the server stood still

	discarded   float64 // notifications that the server counts as not delivered: overwritten in a queue
	unaccounted float64 // notifications that its ledger cannot account for
}

// at waits until t and takes a sample. Fetching metrics costs the server some work: the first sample of a round begins
// with it and the last ends with it, and what one fetch allocates is taken off, so that it does not count.
func (p *probe) at(ctx context.Context, t time.Time, first bool) sample {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(t)):
	}
	var s sample
	if !first {
		s.process(p.pid)
		s.fetched(ctx, p.metrics)
		return s
	}
	var again sample
	s.fetched(ctx, p.metrics)
	again.fetched(ctx, p.metrics)
	s.alloc = again.alloc + (again.alloc - s.alloc)
	s.mallocs = again.mallocs + (again.mallocs - s.mallocs)
	s.gc, s.pause, s.discarded, s.unaccounted = again.gc, again.pause, again.discarded, again.unaccounted
	s.process(p.pid)
	return s
}

func (s *sample) process(pid int) {
	s.cpu, s.rss = math.NaN(), math.NaN()
	if pid != 0 {
		if s.cpu = cpuClock(pid); math.IsNaN(s.cpu) {
			s.cpu = cpuOf(strconv.Itoa(pid))
		}
		s.rss = rssOf(pid)
	}
	s.client = cpuOf("self")
}

// clockTick is what /proc counts CPU time in: USER_HZ is 100 on every architecture of Linux that Go knows.
const clockTick = 100

// cpuOf is the CPU time of a process in seconds, or NaN.
func cpuOf(process string) float64 {
	stat, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return math.NaN()
	}
	return parseStat(stat)
}

// parseStat adds user and system time. The fields are counted behind the name, which may hold blanks and brackets.
func parseStat(stat []byte) float64 {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // as proc(5) numbers them; the state, which is 3, comes first
	if len(fields) <= system {
		return math.NaN()
	}
	u, err1 := strconv.ParseUint(string(fields[user]), 10, 64)
	s, err2 := strconv.ParseUint(string(fields[system]), 10, 64)
	if err1 != nil || err2 != nil {
		return math.NaN()
	}
	return float64(u+s) / clockTick
}

// rssOf is the anonymous memory of a process in bytes, or NaN.
func rssOf(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return math.NaN()
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			if err == nil {
				return float64(kib) * 1024
			}
		}
	}
	return math.NaN()
}

// metricsLimit bounds what is read of a server's metrics.
const metricsLimit = 4 << 20

// fetched sets what a Go program's metrics say.
func (s *sample) fetched(ctx context.Context, url string) {
	s.mallocs = math.NaN()
	s.alloc, s.gc, s.pause, s.discarded, s.unaccounted = math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if url == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	s.parse(io.LimitReader(resp.Body, metricsLimit))
}

func (s *sample) parse(r io.Reader) {
	overflowed, coalesced := math.NaN(), math.NaN()
	wanted := map[string]*float64{
		"go_memstats_alloc_bytes_total": &s.alloc, "go_memstats_mallocs_total": &s.mallocs,
		"go_gc_duration_seconds_count": &s.gc, "go_gc_duration_seconds_sum": &s.pause,
		"edged_unaccounted": &s.unaccounted,
		`edged_notifications_discarded_total{reason="overflow"}`:  &overflowed,
		`edged_notifications_discarded_total{reason="coalesced"}`: &coalesced,
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := wanted[name]
		if to == nil {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			*to = v
		}
	}
	s.discarded = overflowed + coalesced
}

// listenerOf is the process of this machine that listens on a TCP port, or 0. Another user's is not found.
func listenerOf(port int) int {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for _, inode := range listening(string(text), port) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, d := range descriptors {
		if target, err := os.Readlink(d); err == nil && sockets[target] {
			pid, _ := strconv.Atoi(strings.Split(d, "/")[2])
			return pid
		}
	}
	return 0
}

// listening are the inodes of the sockets in a table of /proc/net that listen on a port.
func listening(table string, port int) []string {
	const listen = "0A" // the state LISTEN
	var inodes []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}
