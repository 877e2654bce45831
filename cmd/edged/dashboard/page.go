package dashboard

import (
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"edged/drivers/tag"
)

//go:embed page.html page.css page.js
var assets embed.FS

var indexTemplate = template.Must(template.ParseFS(assets, "page.html"))

// What one answer holds at most. A browser shows a page of tags and asks for the next.
const (
	pageTags    = 100
	maxPageTags = 1000
	maxFilter   = 200 // bytes
	maxText     = 200 // bytes of a value
	maxDevices  = 1000
)

// page answers what a browser asks.
type page struct{ source Source }

// gatewayView is the gateway as the page shows it.
type gatewayView struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	State          string `json:"state"`
	Problem        string `json:"problem,omitempty"`
	Endpoint       string `json:"endpoint"`
	Uptime         int64  `json:"uptime"` // seconds
	Sessions       int    `json:"sessions"`
	Subscriptions  int    `json:"subscriptions"`
	MonitoredItems int    `json:"monitoredItems"`
	Tags           int    `json:"tags"`
	Sent           uint64 `json:"sent"`        // notifications
	Lost           uint64 `json:"lost"`        // notifications, whatever the reason
	Unaccounted    uint64 `json:"unaccounted"` // 0, or the ledger does not add up

	Losses []string `json:"losses,omitempty"` // what clients lose or are about to, a sentence each

	Generation   int      `json:"generation"`             // of the site file, from 1
	Applied      string   `json:"applied"`                // when, RFC 3339
	Restart      []string `json:"restart,omitempty"`      // keys of the site file that wait for a restart
	ReloadFailed string   `json:"reloadFailed,omitempty"` // when the site file was not taken, RFC 3339
	ReloadError  string   `json:"reloadError,omitempty"`  // why, a line a mistake
}

// deviceView is a device as the page shows it.
type deviceView struct {
	Name      string  `json:"name"`
	Bus       string  `json:"bus"`
	State     string  `json:"state"`
	LastGood  float64 `json:"lastGood"` // seconds ago; -1: never
	Latency   float64 `json:"latency"`  // milliseconds
	Requests  uint64  `json:"requests"`
	Errors    uint64  `json:"errors"`
	LastError string  `json:"lastError"`
}

// tagView is a tag as the page shows it.
type tagView struct {
	Name    string  `json:"name"`
	Value   string  `json:"value"`
	Unit    string  `json:"unit"`
	Status  string  `json:"status"`
	Quality string  `json:"quality"` // good, uncertain or bad
	Age     float64 `json:"age"`     // seconds since the value was last verified; -1: never
	Access  string  `json:"access"`
}

// tagsView is one page of tags.
type tagsView struct {
	Tags   []tagView `json:"tags"`
	Found  int       `json:"found"` // tags that the filter lets through
	Offset int       `json:"offset"`
	Limit  int       `json:"limit"`
}

// stateView is all but the tags.
type stateView struct {
	Gateway gatewayView  `json:"gateway"`
	Devices []deviceView `json:"devices"`
	More    int          `json:"more"` // devices left out
}

func asset(name, kind string) http.HandlerFunc {
	body, err := assets.ReadFile(name)
	if err != nil {
		panic(err) // embedded: a missing one is found by the first test
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(body)
	}
}

// index is the page with its first rows, so that it says something without a script too.
func (p *page) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = indexTemplate.Execute(w, struct {
		stateView
		tagsView
	}{p.stateNow(), p.tagsNow("", 0, pageTags)}) // an error is the browser that left
}

func (p *page) state(w http.ResponseWriter, r *http.Request) { answer(w, p.stateNow()) }

func (p *page) tags(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter := q.Get("filter")
	offset, limit := number(q.Get("offset"), 0), number(q.Get("limit"), pageTags)
	if len(filter) > maxFilter || offset < 0 || limit < 1 || limit > maxPageTags {
		plain(w, http.StatusBadRequest, "filter has at most 200 bytes, offset is 0 or more, limit is 1 to 1000\n")
		return
	}
	answer(w, p.tagsNow(filter, offset, limit))
}

// number reads a parameter; -1 is what is no number.
func number(s string, missing int) int {
	if s == "" {
		return missing
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error is the browser that left
}

func (p *page) stateNow() stateView {
	g, c, now := p.source.Gateway(), p.source.Clients(), time.Now()
	v := stateView{Gateway: gatewayView{
		Name: g.Name, Version: g.Version, State: g.State, Endpoint: g.Endpoint,
		Uptime:   int64(now.Sub(g.Since) / time.Second),
		Sessions: c.Sessions, Subscriptions: c.Subscriptions, MonitoredItems: c.MonitoredItems,
		Tags: p.source.Table().Len(),
	}}
	v.Gateway.ledger(&c)
	v.Gateway.Generation, v.Gateway.Restart = g.Site.Generation, g.Site.Pending
	v.Gateway.Applied = g.Site.Applied.UTC().Format(time.RFC3339)
	if !g.Site.Failed.IsZero() {
		v.Gateway.ReloadFailed = g.Site.Failed.UTC().Format(time.RFC3339)
		v.Gateway.ReloadError = g.Site.Failure
		first, _, _ := strings.Cut(g.Site.Failure, "\n")
		v.Gateway.Problem = "the site file was not taken: " + clip(first)
	}
	if err := p.source.Ready(); err != nil {
		v.Gateway.Problem = err.Error()
	}
	devices := p.source.Devices()
	if len(devices) > maxDevices {
		devices, v.More = devices[:maxDevices], len(devices)-maxDevices
	}
	v.Devices = make([]deviceView, len(devices))
	for i, d := range devices {
		v.Devices[i] = deviceView{
			Name: d.Name, Bus: d.Bus, State: d.State, LastGood: age(d.LastGood, tag.TimeOf(now)),
			Latency:  float64(d.Latency.Microseconds()) / 1000,
			Requests: d.Requests, LastError: clip(d.LastError),
		}
		for _, e := range d.Errors {
			v.Devices[i].Errors += e.N
		}
	}
	return v
}

// maxLosses bounds the sentences about losses that the page shows.
const maxLosses = 20

// ledger is what the page shows of what became of the notifications. What went because its client disabled or deleted it
// is no loss.
func (g *gatewayView) ledger(c *Clients) {
	g.Sent, g.Unaccounted = c.Sent, c.Unaccounted
	for _, d := range c.Discarded {
		if d.Kind != "disabled" && d.Kind != "deleted" {
			g.Lost += d.N
		}
	}
	if c.Unaccounted != 0 {
		g.Problem = "the ledger of notifications does not add up: this is a fault of the gateway"
	}
	for _, a := range c.Advice {
		g.Losses = append(g.Losses, clipTo(a.Text, 2*maxText))
	}
	for _, a := range c.Away {
		g.Losses = append(g.Losses, clipTo(a.Text, 2*maxText))
	}
	if over := len(g.Losses) - maxLosses; over > 0 {
		g.Losses = append(g.Losses[:maxLosses], "and "+strconv.Itoa(over)+" more")
	}
}

// tagsNow is a page of the tags whose name, unit or status holds the filter, whatever its case.
func (p *page) tagsNow(filter string, offset, limit int) tagsView {
	v := tagsView{Tags: []tagView{}, Offset: offset, Limit: limit}
	filter = strings.ToLower(strings.TrimSpace(filter))
	now := tag.Now()
	for ref, def := range p.source.Table().All() {
		if filter == "" {
			if v.Found >= offset && v.Found < offset+limit {
				v.Tags = append(v.Tags, p.tagNow(ref, def, now))
			}
			v.Found++
			continue
		}
		row := p.tagNow(ref, def, now)
		if !strings.Contains(strings.ToLower(row.Name), filter) && !strings.Contains(strings.ToLower(row.Status), filter) &&
			!strings.EqualFold(row.Unit, filter) {
			continue
		}
		if v.Found >= offset && v.Found < offset+limit {
			v.Tags = append(v.Tags, row)
		}
		v.Found++
	}
	return v
}

func (p *page) tagNow(ref tag.Ref, def *tag.Tag, now tag.Time) tagView {
	v := tagView{Name: def.FullName(), Unit: def.Unit, Status: tag.BadWaitingForInitialData.String(), Quality: "bad", Age: -1}
	switch def.Access {
	case tag.Readable | tag.Writable:
		v.Access = "read/write"
	case tag.Writable:
		v.Access = "write"
	default:
		v.Access = "read"
	}
	s, verified, ok := p.source.Last(ref)
	if !ok {
		return v
	}
	v.Status, v.Age = s.Status.String(), age(verified, now)
	if def.Memory {
		v.Age = 0 // what lives in the gateway is true whenever it is looked at
	}
	if !s.Value.IsNull() {
		v.Value = clip(s.Value.String())
	}
	switch {
	case s.Status.IsGood():
		v.Quality = "good"
	case s.Status.IsUncertain():
		v.Quality = "uncertain"
	}
	return v
}

// age is how long ago t was in seconds, and -1 if never.
func age(t, now tag.Time) float64 {
	if t.IsZero() {
		return -1
	}
	return max(0, float64(now.Sub(t)/time.Millisecond)/1000)
}

// clip shortens a text for the page, between characters.
func clip(s string) string { return clipTo(s, maxText) }

func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
