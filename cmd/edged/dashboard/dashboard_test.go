package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/drivers/tag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plant is a source whose tags hold their own number.
type plant struct {
	table *tag.Table
	ready error
	site  Site
}

func newPlant(t testing.TB, defs ...tag.Def) *plant {
	t.Helper()
	table, err := tag.NewTable(defs)
	if err != nil {
		t.Fatal(err)
	}
	return &plant{table: table}
}

func (p *plant) Gateway() Gateway {
	return Gateway{Name: `Boiler <b>house</b> "1"`, Version: "1.2.3", State: "Running", Endpoint: "opc.tcp://127.0.0.1:4840", Since: time.Now().Add(-time.Minute), Site: p.site,
		CertificateEnd: time.Now().Add(30*24*time.Hour + time.Hour)}
}

func (p *plant) Devices() []Device {
	return []Device{{
		Name: "boiler", Bus: "line1", State: "degraded", LastGood: tag.Now().Add(-2 * time.Second), Latency: 1500 * time.Microsecond,
		Requests: 100, Samples: 600, LastError: "exception 2 <script>", Errors: []Count{{"mute", 3}, {"refused", 4}},
		Lost: 1.5, PredictedSilent: 0.06,
	}, {Name: "scratch", State: "online"}}
}

func (p *plant) Buses() []Bus {
	return []Bus{{Name: "line1", Up: true, Utilization: 0.25, PredictedUtilization: 0.2, Cycle: 0.5, PredictedCycle: 0.4,
		Wait: 0.03, PredictedWait: 0.02, Overruns: 4, Commands: 5, Poll: Histogram{Bounds: []float64{0.001, 0.01}, N: []uint64{5, 3, 2}, Sum: 0.5}}}
}

func (p *plant) Clients() Clients {
	return Clients{Sessions: 2, Subscriptions: 3, MonitoredItems: 1000, New: 13000, Sent: 12345, Waiting: 3,
		Discarded: []Count{{"overflow", 7}, {"lifetime", 2}, {"deleted", 100}},
		Messages:  []Count{{"acknowledged", 50}, {"held", 4}}, Republished: 1, Short: 5,
		Advice:  []Advice{{"scada-2", "queue", 7, "client scada-2, <b>queue 1</b>: queue 6 holds it"}, {"scada-2", "queue", 3, "its twin"}, {"x\xff", "requests", 1, "text"}},
		Away:    []Away{{"scada-2", 8 * time.Second, "full in 8 s"}, {"scada-2", 2500 * time.Millisecond, "full in 2.5 s"}},
		Latency: Histogram{Bounds: []float64{0.1}, N: []uint64{9, 1}, Sum: 0.3}, Requests: []Count{{"Read", 42}}}
}

func (p *plant) Accounts() []Account { return []Account{{"subscriptions", 1 << 20, 1 << 28}} }

func (p *plant) Store() []Metric {
	return []Metric{{Name: "store_up", Help: "Up.", Value: 1}, {Name: "store_samples_total", Help: "Samples.", Counter: true, Value: 7}}
}

func (p *plant) Table() *tag.Table { return p.table }

func (p *plant) Last(ref tag.Ref) (tag.Sample, tag.Time, bool) {
	if ref == 1 {
		return tag.Sample{}, 0, false
	}
	s := tag.Sample{Ref: ref, Value: tag.Of(uint32(ref)), At: tag.Now()}
	if ref == 2 {
		s.Status, s.Value = tag.BadNoCommunication, tag.Value{}
	}
	if ref == 3 {
		s.Status = tag.UncertainNoCommunicationLastUsableValue
	}
	return s, s.At, true
}

func (p *plant) Ready() error { return p.ready }

// ask gets a path of a fresh server.
func ask(t *testing.T, source Source, method, path string) (*http.Response, string) {
	t.Helper()
	s := New(source, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	r := w.Result()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

func someTags(n int) []tag.Def {
	defs := make([]tag.Def, n)
	for i := range defs {
		defs[i] = tag.Def{Device: "boiler", Name: fmt.Sprintf("t%d", i), Kind: tag.Uint32, Access: tag.Readable, Unit: "°C"}
	}
	return defs
}

func TestPageShowsTextAsText(t *testing.T) {
	defs := append(someTags(3), tag.Def{Device: "x", Name: "<img src=y onerror=z>", Access: tag.Readable | tag.Writable, Unit: "<u>"})
	r, body := ask(t, newPlant(t, defs...), "GET", "/")
	if r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("status %d, type %s", r.StatusCode, r.Header.Get("Content-Type"))
	}
	for _, raw := range []string{"<b>house", "<script>", "<img src=y", "<u>"} {
		if strings.Contains(body, raw) {
			t.Errorf("the page holds %q unescaped", raw)
		}
	}
	for _, want := range []string{"Boiler &lt;b&gt;house", "x.&lt;img src=y onerror=z&gt;", "boiler.t0", "BadWaitingForInitialData", "BadNoCommunication", "degraded", "read/write"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("Content-Security-Policy is %q", csp)
	}
}

func TestPageNamesNoOtherHost(t *testing.T) {
	for _, path := range []string{"/", "/page.css", "/page.js"} {
		_, body := ask(t, newPlant(t, someTags(1)...), "GET", path)
		for _, scheme := range []string{"http://", "https://", `="//`, "url("} {
			if strings.Contains(body, scheme) {
				t.Errorf("%s holds %s: the page must work without a network", path, scheme)
			}
		}
	}
}

func TestTags(t *testing.T) {
	defs := append(someTags(250), tag.Def{Device: "Burner", Name: "fan", Unit: "rpm", Access: tag.Writable})
	source := newPlant(t, defs...)
	for _, row := range []struct {
		query string
		found int
		first string
		n     int
	}{
		{"", 251, "boiler.t0", 100},
		{"?offset=200", 251, "boiler.t200", 51},
		{"?offset=1000", 251, "", 0},
		{"?limit=1000", 251, "boiler.t0", 251},
		{"?filter=BURNER", 1, "Burner.fan", 1},
		{"?filter=rpm", 1, "Burner.fan", 1},
		{"?filter=badno", 1, "boiler.t1", 1},
		{"?filter=uncertain", 1, "boiler.t2", 1},
		{"?filter=t24&offset=10&limit=5", 11, "boiler.t249", 1},
		{"?filter=nothing", 0, "", 0},
	} {
		r, body := ask(t, source, "GET", "/api/tags"+row.query)
		var v tagsView
		if err := json.Unmarshal([]byte(body), &v); err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: status %d, %v", row.query, r.StatusCode, err)
		}
		first := ""
		if len(v.Tags) > 0 {
			first = v.Tags[0].Name
		}
		if v.Found != row.found || len(v.Tags) != row.n || first != row.first {
			t.Errorf("%s: found %d, %d from %q; want %d, %d from %q", row.query, v.Found, len(v.Tags), first, row.found, row.n, row.first)
		}
	}
	for _, query := range []string{"?offset=-1", "?offset=x", "?limit=0", "?limit=1001", "?filter=" + strings.Repeat("x", 201)} {
		if r, _ := ask(t, source, "GET", "/api/tags"+query); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", query, r.StatusCode)
		}
	}
}

func TestState(t *testing.T) {
	source := newPlant(t, someTags(5)...)
	source.ready = errors.New("OPC UA: 0.0.0.0:4840 is in use")
	_, body := ask(t, source, "GET", "/api/state")
	var v stateView
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	g, d := v.Gateway, v.Devices[0]
	if g.Uptime < 60 || g.Sessions != 2 || g.Subscriptions != 3 || g.MonitoredItems != 1000 || g.Tags != 5 || g.Problem == "" {
		t.Errorf("gateway is %+v", g)
	}
	if d.Errors != 7 || d.Latency != 1.5 || d.LastGood < 1.5 || d.LastGood > 30 || v.Devices[1].LastGood != -1 {
		t.Errorf("devices are %+v", v.Devices)
	}
}

// TestLosses: the page tells what was sent, what was lost, and what clients can do about it.
func TestLosses(t *testing.T) {
	_, body := ask(t, newPlant(t), "GET", "/api/state")
	var v stateView
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	if g := v.Gateway; g.Sent != 12345 || g.Lost != 9 || g.Unaccounted != 0 || g.Problem != "" || len(g.Losses) != 5 || !strings.Contains(g.Losses[0], "queue 6") {
		t.Errorf("%+v", g)
	}
	_, body = ask(t, newPlant(t), "GET", "/")
	for _, want := range []string{"&lt;b&gt;queue 1", "full in 2.5 s", `<dd id="lost">9</dd>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	var g gatewayView
	g.ledger(&Clients{Unaccounted: 1, Advice: make([]Advice, 30)})
	if g.Problem == "" || len(g.Losses) != maxLosses+1 || g.Losses[maxLosses] != "and 10 more" {
		t.Errorf("%+v", g)
	}
}

func TestStateOfTheSiteFile(t *testing.T) {
	source := newPlant(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		site Site
		want []string // of /api/state
		lack []string
		taken,
		pending string
	}{
		{Site{Generation: 3, Applied: at}, []string{`"generation":3`, `"applied":"2026-01-02T03:04:05Z"`},
			[]string{"reloadError", "restart", "problem"}, "1", "0"},
		{Site{Generation: 1, Applied: at, Pending: []string{"server.listen", "web.listen"}}, []string{`"restart":["server.listen","web.listen"]`},
			[]string{"reloadError"}, "1", "2"},
		{Site{Generation: 1, Applied: at, Failed: at.Add(time.Minute), Failure: "site.yaml:1:2: a\nsite.yaml:3:4: b"},
			[]string{`"reloadFailed":"2026-01-02T03:05:05Z"`, `"reloadError":"site.yaml:1:2: a\nsite.yaml:3:4: b"`,
				`"problem":"the site file was not taken: site.yaml:1:2: a"`}, nil, "0", "0"},
	} {
		source.site = row.site
		_, body := ask(t, source, "GET", "/api/state")
		for _, want := range row.want {
			if !strings.Contains(body, want) {
				t.Errorf("%+v: the state lacks %s: %s", row.site, want, body)
			}
		}
		for _, lack := range row.lack {
			if strings.Contains(body, lack) {
				t.Errorf("%+v: the state has %s: %s", row.site, lack, body)
			}
		}
		_, body = ask(t, source, "GET", "/metrics")
		for _, want := range []string{fmt.Sprintf("edged_config_generation %d", row.site.Generation), "edged_config_last_reload_successful " + row.taken,
			"edged_config_restart_pending " + row.pending, "edged_config_applied_timestamp_seconds 1.767323045e+09", "edged_certificate_days_left 30"} {
			if !strings.Contains(body, "\n"+want+"\n") {
				t.Errorf("%+v: metrics lack %s", row.site, want)
			}
		}
	}
}

func TestReadOnly(t *testing.T) {
	for _, path := range []string{"/", "/api/tags", "/api/state", "/metrics", "/healthz"} {
		if r, _ := ask(t, newPlant(t), "POST", path); r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: status %d, want 405", path, r.StatusCode)
		}
	}
	if r, _ := ask(t, newPlant(t), "GET", "/../etc/passwd"); r.StatusCode == http.StatusOK {
		t.Error("a path outside of the page was answered")
	}
}

func TestHealth(t *testing.T) {
	source := newPlant(t)
	if r, body := ask(t, source, "GET", "/healthz"); r.StatusCode != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", r.StatusCode, body)
	}
	if r, _ := ask(t, source, "GET", "/readyz"); r.StatusCode != 200 {
		t.Errorf("readyz: %d", r.StatusCode)
	}
	source.ready = errors.New("OPC UA does not listen")
	if r, body := ask(t, source, "GET", "/readyz"); r.StatusCode != 503 || body != "OPC UA does not listen\n" {
		t.Errorf("readyz: %d %q", r.StatusCode, body)
	}
	if r, _ := ask(t, source, "GET", "/healthz"); r.StatusCode != 200 {
		t.Errorf("healthz of a gateway that is not ready: %d", r.StatusCode)
	}
}

func TestMetrics(t *testing.T) {
	r, body := ask(t, newPlant(t), "GET", "/metrics")
	if r.StatusCode != 200 {
		t.Fatalf("status %d: %s", r.StatusCode, body)
	}
	for _, want := range []string{
		`edged_samples_total{device="boiler"} 600`,
		`edged_poll_errors_total{device="boiler",kind="mute"} 3`,
		`edged_poll_seconds_bucket{bus="line1",le="0.001"} 5`,
		`edged_poll_seconds_bucket{bus="line1",le="0.01"} 8`,
		`edged_poll_seconds_bucket{bus="line1",le="+Inf"} 10`,
		`edged_poll_seconds_sum{bus="line1"} 0.5`,
		`edged_bus_utilization{bus="line1"} 0.25`, `edged_bus_predicted_utilization{bus="line1"} 0.2`, `edged_bus_up{bus="line1"} 1`,
		`edged_bus_cycle_seconds{bus="line1"} 0.5`, `edged_bus_predicted_cycle_seconds{bus="line1"} 0.4`,
		`edged_bus_write_wait_seconds{bus="line1"} 0.03`, `edged_bus_predicted_write_wait_seconds{bus="line1"} 0.02`,
		`edged_bus_overruns_total{bus="line1"} 4`, `edged_bus_commands_total{bus="line1"} 5`,
		`edged_device_lost_seconds_total{device="boiler"} 1.5`, `edged_device_predicted_silent_share{device="boiler"} 0.06`,
		`edged_sessions 2`,
		`edged_subscriptions 3`,
		`edged_monitored_items 1000`,
		`edged_notifications_sent_total 12345`,
		`edged_notifications_discarded_total{reason="overflow"} 7`,
		`edged_unaccounted 0`,
		`edged_notifications_new_total 13000`,
		`edged_notifications_waiting 3`,
		`edged_messages{fate="held"} 4`,
		`edged_messages_republished_total 1`,
		`edged_items_short 5`,
		`edged_advice{client="scada-2",kind="queue"} 10`,
		`edged_advice{client="x?",kind="requests"} 1`,
		`edged_time_to_loss_seconds{client="scada-2"} 2.5`,
		`edged_publish_latency_seconds_count 10`,
		`edged_requests_total{service="Read"} 42`,
		`edged_memory_bytes{account="subscriptions"} 1.048576e+06`,
		`edged_memory_limit_bytes{account="subscriptions"} 2.68435456e+08`,
		"go_goroutines", "process_start_time_seconds",
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestConnectionsAreBounded opens more connections than there are places.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := newBounded(l, 2)
	accepted := make(chan net.Conn, 8)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		return c
	}
	closed := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	dial()
	first := (<-accepted).(*place)
	first.setBusy(true)
	silent := dial()
	second := <-accepted
	dial()
	third := (<-accepted).(*place)
	if !closed(silent) {
		t.Error("the oldest that is not answered is to give way")
	}
	second.Close() // its place is another's now
	third.setBusy(true)
	if !closed(dial()) {
		t.Error("all are being answered: the next is to be closed")
	}
	first.setBusy(false)
	first.Close()
	dial()
	fourth := <-accepted
	if n := len(b.open); n != 2 {
		t.Errorf("%d connections", n)
	}
	b.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
	third.Close()
	fourth.Close()
	if n := len(b.open); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestSilentPeers: peers that begin requests and never end them keep nobody from the answer that the gateway is well.
func TestSilentPeers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(newPlant(t, someTags(10)...), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for range 3 * maxConnections {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte("GET /healthz HTTP/1.1\r\n"))
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s.Shutdown(ctx)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestServeAndShutdown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(newPlant(t, someTags(10)...), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get("http://" + l.Addr().String() + "/api/state")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	client.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

// TestForeignHosts: a page in a browser on this machine, by a name that its owner made point here, reads nothing.
func TestForeignHosts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(newPlant(t, someTags(10)...), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	client := http.Client{Timeout: 5 * time.Second}
	for _, row := range []struct {
		host string
		want int
	}{
		{l.Addr().String(), http.StatusOK},
		{"localhost", http.StatusOK},
		{"LOCALHOST.:8080", http.StatusOK},
		{"edged.localhost:8080", http.StatusOK},
		{"[::1]:8080", http.StatusOK},
		{"[::1]", http.StatusOK},
		{"10.0.0.5:8080", http.StatusOK}, // through a tunnel; no name server can give it to another
		{"rebound.example:8080", http.StatusMisdirectedRequest},
		{"localhost.example", http.StatusMisdirectedRequest},
		{"127.0.0.1.example:8080", http.StatusMisdirectedRequest},
		{"notlocalhost:8080", http.StatusMisdirectedRequest},
	} {
		for _, path := range []string{"/", "/api/tags", "/api/state", "/metrics", "/healthz"} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = row.host
			r, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != row.want {
				t.Errorf("%s of %s: %d, want %d", path, row.host, r.StatusCode, row.want)
			}
		}
	}
	client.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// BenchmarkFilter is the dearest question of the page: a filter over 10,000 tags.
func BenchmarkFilter(b *testing.B) {
	p := page{newPlant(b, someTags(10_000)...)}
	for b.Loop() {
		if v := p.tagsNow("t99", 0, pageTags); v.Found == 0 {
			b.Fatal("nothing was found")
		}
	}
}
