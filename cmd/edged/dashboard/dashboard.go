// Package dashboard is the gateway's web side: a live page, metrics and health checks, all of them read only.
// It hides HTTP; what it shows comes from a Source.
package dashboard

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"edged/drivers/tag"
)

// Source is what the page, the metrics and the health checks are about. Its methods are called from many goroutines
// and return snapshots that the caller may keep.
type Source interface {
	Gateway() Gateway
	Devices() []Device
	Buses() []Bus
	Clients() Clients
	Accounts() []Account
	// Store is how the store does: the same metrics each time.
	Store() []Metric
	// Table is the current table of tags.
	Table() *tag.Table
	// Last is a tag's newest reading, and when it was last verified; false before the first.
	Last(ref tag.Ref) (v tag.Sample, verified tag.Time, ok bool)
	// Ready says in one sentence why the gateway does not serve clients, or nil.
	Ready() error
}

// Gateway is the gateway itself.
type Gateway struct {
	Name     string
	Version  string
	State    string // in the words of OPC UA's ServerState
	Endpoint string // OPC UA
	Since    time.Time
	Site     Site
	// CertificateEnd is when the gateway's own certificate ends; zero without one.
	CertificateEnd time.Time
}

// Site is the site file as it is applied.
type Site struct {
	Generation int       // from 1; each reload that changed something counts
	Applied    time.Time // when
	Pending    []string  // keys of the file that wait for a restart
	Failed     time.Time // of the last reading, if the file was not taken; zero if it was
	Failure    string    // why, a line a mistake
}

// Device is one field device.
type Device struct {
	Name      string
	Bus       string // "" for a device without a line
	State     string // offline, online or degraded
	LastGood  tag.Time
	LastError string
	Latency   time.Duration // of the last exchange
	Requests  uint64
	Samples   uint64
	Errors    []Count // by kind
	Lost      float64 // seconds that its line waited for answers that did not come or were none
	// PredictedSilent is the share of its line's time that it costs the others when it is silent.
	PredictedSilent float64
}

// Count is a number of something by its kind.
type Count struct {
	Kind string
	N    uint64
}

// Bus is one line.
type Bus struct {
	Name        string
	Up          bool
	Utilization float64 // 0 to 1, of the last 10 to 20 s
	Cycle       float64 // seconds: each request once
	Wait        float64 // seconds: the longest of a write
	// The same, as the requests of its tags have it when every device answers at once; above 1: over-booked.
	PredictedUtilization, PredictedCycle, PredictedWait float64

	Overruns uint64
	Commands uint64
	Poll     Histogram
}

// Histogram is a distribution: N[i] counts what was at most Bounds[i] seconds; N has one more, for what was above all.
type Histogram struct {
	Bounds []float64 // seconds, ascending
	N      []uint64  // not cumulative
	Sum    float64   // seconds
}

// Clients is the client side.
type Clients struct {
	Sessions       int
	Subscriptions  int
	MonitoredItems int
	Sent           uint64  // notifications
	New            uint64  // samples that items saw
	Waiting        uint64  // notifications, in queues
	Discarded      []Count // notifications, by reason
	Unaccounted    uint64  // zero, or the ledger does not add up
	Messages       []Count // by what became of them; held ones are still there
	Republished    uint64  // messages, again
	Short          int     // items of which more comes in a publishing interval than their queue holds
	Advice         []Advice
	Away           []Away
	Latency        Histogram
	Requests       []Count // by service
}

// Advice is what a client loses, and what would keep it from that.
type Advice struct {
	Client string
	Kind   string
	Lost   uint64 // notifications since it began
	Text   string // one sentence
}

// Away is a client without a Publish request.
type Away struct {
	Client string
	Left   time.Duration // until it loses something; 0: it does
	Text   string        // one sentence
}

// Account is the memory of one purpose.
type Account struct {
	Name  string
	Used  int64 // bytes
	Limit int64 // bytes; 0 is none
}

// Metric is one number with what Prometheus needs to know of it.
type Metric struct {
	Name    string // without edged_
	Help    string
	Counter bool // it only grows; else a gauge
	Value   float64
}

// The bounds of the web side: it is for people and a scraper, not for the internet.
const (
	maxConnections = 64
	maxHeaderBytes = 16 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 60 * time.Second
)

// Server serves the web side.
type Server struct {
	http http.Server
}

// New makes the web side of a source.
func New(source Source, logger *slog.Logger) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&metrics{source})
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	return &Server{http: http.Server{
		Handler:           answering(handler(source, registry, errorLog)),
		ConnContext:       withPlace,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}}
}

// handler is every path of the web side.
func handler(source Source, registry *prometheus.Registry, errorLog *log.Logger) http.Handler {
	p := &page{source: source}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.index)
	mux.HandleFunc("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", asset("page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /api/state", p.state)
	mux.HandleFunc("GET /api/tags", p.tags)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             requestTimeout / 2,
		ErrorLog:            errorLog,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := source.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		plain(w, http.StatusOK, "ready\n")
	})
	return secure(mux)
}

// secure sets the headers that keep a browser from doing anything but show the page.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
			"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// ownHosts refuses requests for hosts that are not this machine by name or any machine by address. A page of somebody
// else, whose name he made point to this machine, cannot have a browser here read values for it.
func ownHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host) {
			plain(w, http.StatusMisdirectedRequest, "This page listens for this machine alone: ask for it as localhost. A proxy has to send that as Host.\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a Host, with or without a port, is localhost, a name below it, an address, or not given.
func ownHost(s string) bool {
	host := s
	if h, _, err := net.SplitHostPort(s); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the peer that does not listen is its own loss
}

// Serve answers on l until Shutdown, which is no error. It is called once.
func (s *Server) Serve(l net.Listener) error {
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		s.http.Handler = ownHosts(s.http.Handler)
	}
	if err := s.http.Serve(newBounded(l, maxConnections)); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Shutdown lets the requests in flight end, at the latest when ctx is done.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}
