package dashboard

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edged/uaserver/pki"
)

// metrics turns snapshots into Prometheus metrics, at the moment of a scrape.
type metrics struct{ source Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("edged_"+name, help, labels, nil)
}

var (
	samplesDesc     = desc("samples_total", "Readings of a device's tags.", "device")
	pollErrorsDesc  = desc("poll_errors_total", "Failed requests to a device by kind.", "device", "kind")
	pollSecondsDesc = desc("poll_seconds", "Time of one exchange on a bus.", "bus")
	busyDesc        = desc("bus_utilization", "Share of the time in which a bus has an exchange in flight.", "bus")
	busUpDesc       = desc("bus_up", "1 while the line can be reached.", "bus")
	busBookedDesc   = desc("bus_predicted_utilization", "Share of its time that a bus needs if every device answers at once; above 1 it is over-booked.", "bus")
	cycleDesc       = desc("bus_cycle_seconds", "How long each request of a bus once takes, of the last 10 to 20 s.", "bus")
	cycleBookedDesc = desc("bus_predicted_cycle_seconds", "The same if every device answers at once.", "bus")
	waitDesc        = desc("bus_write_wait_seconds", "The longest that a write waited for the line, of the last 10 to 20 s.", "bus")
	waitBookedDesc  = desc("bus_predicted_write_wait_seconds", "The same if every device answers at once.", "bus")
	overrunsDesc    = desc("bus_overruns_total", "Scans left out because the line was too slow for them.", "bus")
	commandsDesc    = desc("bus_commands_total", "Exchanges that clients asked for.", "bus")
	lostDesc        = desc("device_lost_seconds_total", "Time that a line has lost waiting for answers of a device that did not come or were none.", "device")
	silentDesc      = desc("device_predicted_silent_share", "Share of its line's time that a device costs the others when it is silent.", "device")
	sessionsDesc    = desc("sessions", "Open sessions.")
	subsDesc        = desc("subscriptions", "Open subscriptions.")
	itemsDesc       = desc("monitored_items", "Monitored items.")
	sentDesc        = desc("notifications_sent_total", "Notifications sent.")
	discardedDesc   = desc("notifications_discarded_total", "Notifications that were not delivered, by reason.", "reason")
	newDesc         = desc("notifications_new_total", "Changes and readings that monitored items saw.")
	waitingDesc     = desc("notifications_waiting", "Notifications that wait in queues.")
	messagesDesc    = desc("messages", "Messages with notifications by what became of them; those that are held may still be asked for.", "fate")
	republishedDesc = desc("messages_republished_total", "Messages that were asked for again.")
	shortDesc       = desc("items_short", "Items of which more comes in a publishing interval than their queue holds.")
	adviceDesc      = desc("advice", "Notifications lost since a client began to lose them, by kind; the ledger node has the advice.", "client", "kind")
	awayDesc        = desc("time_to_loss_seconds", "Until the first loss of a client that is away.", "client")
	unaccountedDesc = desc("unaccounted", "Notifications that the ledger cannot account for; anything but 0 is a fault of the gateway.")
	latencyDesc     = desc("publish_latency_seconds", "Time from a change to the notification of it.")
	requestsDesc    = desc("requests_total", "Requests by service.", "service")
	memoryDesc      = desc("memory_bytes", "Memory taken by purpose.", "account")
	generationDesc  = desc("config_generation", "Generation of the site file that is applied, from 1.")
	appliedDesc     = desc("config_applied_timestamp_seconds", "When the site file was applied.")
	takenDesc       = desc("config_last_reload_successful", "1, or 0 when the site file that was read last was not taken.")
	pendingDesc     = desc("config_restart_pending", "Keys of the site file that wait for a restart.")
	certificateDesc = desc("certificate_days_left", "Whole days until the gateway's own certificate ends; below 0 once it has ended.")
	limitDesc       = desc("memory_limit_bytes", "Most memory that a purpose may take.", "account")
)

// Describe lists the metrics.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{samplesDesc, pollErrorsDesc, pollSecondsDesc, busyDesc, sessionsDesc, subsDesc,
		itemsDesc, newDesc, sentDesc, waitingDesc, discardedDesc, messagesDesc, republishedDesc, shortDesc, adviceDesc, awayDesc,
		unaccountedDesc, latencyDesc, requestsDesc, memoryDesc, limitDesc,
		generationDesc, appliedDesc, takenDesc, pendingDesc, certificateDesc, busUpDesc, busBookedDesc, cycleDesc, cycleBookedDesc,
		waitDesc, waitBookedDesc, overrunsDesc, commandsDesc, lostDesc, silentDesc} {
		out <- d
	}
	for _, s := range m.source.Store() {
		out <- desc(s.Name, s.Help)
	}
}

// Collect reads a snapshot of everything.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, valid(labels)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, valid(labels)...)
	}
	for _, d := range m.source.Devices() {
		counter(samplesDesc, float64(d.Samples), d.Name)
		for _, e := range d.Errors {
			counter(pollErrorsDesc, float64(e.N), d.Name, e.Kind)
		}
		if d.Bus != "" {
			counter(lostDesc, d.Lost, d.Name)
			gauge(silentDesc, d.PredictedSilent, d.Name)
		}
	}
	for _, b := range m.source.Buses() {
		histogram(out, pollSecondsDesc, &b.Poll, b.Name)
		gauge(busyDesc, b.Utilization, b.Name)
		up := 0.0
		if b.Up {
			up = 1
		}
		gauge(busUpDesc, up, b.Name)
		gauge(busBookedDesc, b.PredictedUtilization, b.Name)
		gauge(cycleDesc, b.Cycle, b.Name)
		gauge(cycleBookedDesc, b.PredictedCycle, b.Name)
		gauge(waitDesc, b.Wait, b.Name)
		gauge(waitBookedDesc, b.PredictedWait, b.Name)
		counter(overrunsDesc, float64(b.Overruns), b.Name)
		counter(commandsDesc, float64(b.Commands), b.Name)
	}
	c := m.source.Clients()
	gauge(sessionsDesc, float64(c.Sessions))
	gauge(subsDesc, float64(c.Subscriptions))
	gauge(itemsDesc, float64(c.MonitoredItems))
	counter(newDesc, float64(c.New))
	counter(sentDesc, float64(c.Sent))
	gauge(waitingDesc, float64(c.Waiting))
	for _, d := range c.Discarded {
		counter(discardedDesc, float64(d.N), d.Kind)
	}
	gauge(unaccountedDesc, float64(c.Unaccounted))
	for _, m := range c.Messages {
		gauge(messagesDesc, float64(m.N), m.Kind)
	}
	counter(republishedDesc, float64(c.Republished))
	gauge(shortDesc, float64(c.Short))
	m.losses(&c, gauge)
	histogram(out, latencyDesc, &c.Latency)
	for _, r := range c.Requests {
		counter(requestsDesc, float64(r.N), r.Kind)
	}
	g := m.source.Gateway()
	if !g.CertificateEnd.IsZero() {
		gauge(certificateDesc, float64(pki.DaysUntil(g.CertificateEnd, time.Now())))
	}
	site := g.Site
	gauge(generationDesc, float64(site.Generation))
	gauge(appliedDesc, float64(site.Applied.UnixMilli())/1000)
	taken := 1.0
	if !site.Failed.IsZero() {
		taken = 0
	}
	gauge(takenDesc, taken)
	gauge(pendingDesc, float64(len(site.Pending)))
	for _, s := range m.source.Store() {
		if s.Counter {
			counter(desc(s.Name, s.Help), s.Value)
		} else {
			gauge(desc(s.Name, s.Help), s.Value)
		}
	}
	for _, a := range m.source.Accounts() {
		gauge(memoryDesc, float64(a.Used), a.Name)
		gauge(limitDesc, float64(a.Limit), a.Name)
	}
}

// losses sends what clients lose and when they will. Clients of one name count as one: the names are theirs to choose.
func (m *metrics) losses(c *Clients, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	lost := map[[2]string]float64{}
	for _, a := range c.Advice {
		lost[[2]string{strings.ToValidUTF8(a.Client, "?"), a.Kind}] += float64(a.Lost)
	}
	for of, n := range lost {
		gauge(adviceDesc, n, of[0], of[1])
	}
	left := map[string]float64{}
	for _, a := range c.Away {
		name := strings.ToValidUTF8(a.Client, "?")
		if v, ok := left[name]; !ok || a.Left.Seconds() < v {
			left[name] = a.Left.Seconds()
		}
	}
	for name, v := range left {
		gauge(awayDesc, v, name)
	}
}

// histogram sends a distribution; one without bounds has not been measured and is left out.
func histogram(out chan<- prometheus.Metric, d *prometheus.Desc, h *Histogram, labels ...string) {
	if len(h.Bounds) == 0 || len(h.N) != len(h.Bounds)+1 {
		return
	}
	buckets, total := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, le := range h.Bounds {
		total += h.N[i]
		buckets[le] = total
	}
	total += h.N[len(h.Bounds)]
	out <- prometheus.MustNewConstHistogram(d, total, h.Sum, buckets, valid(labels)...)
}

// valid makes label values UTF-8, which Prometheus insists on.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "?")
	}
	return labels
}
