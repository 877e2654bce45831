package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/uatest"
)

// watcher is a subscriber that has some Publish requests in flight, and renews its token while values come.
type watcher struct {
	*uatest.Client
	name     string
	next     []float64 // the value that comes next, by item
	least    atomic.Int64
	tokens   map[uint32]int // messages by the token that secured them
	overlap  int            // messages secured by the token before the newest
	renewed  atomic.Int32
	nonces   chan []byte
	opened   chan uint32
	answered chan *ua.SubscriptionAcknowledgement // of a message that is taken
}

// watchAll subscribes to scratch.m0 and so on.
func watchAll(c *uatest.Client, name string, tags int) (*watcher, error) {
	w := &watcher{
		Client: c, name: name, next: make([]float64, tags), tokens: map[uint32]int{}, nonces: make(chan []byte, 1),
		opened: make(chan uint32, 1), answered: make(chan *ua.SubscriptionAcknowledgement, 100),
	}
	sub, err := uatest.Ask[*ua.CreateSubscriptionResponse](c, 3, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 100, RequestedLifetimeCount: 3000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
	if err != nil {
		return nil, err
	}
	req := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub.SubscriptionID}
	for n := range tags {
		req.ItemsToCreate = append(req.ItemsToCreate, monitor(fmt.Sprintf("scratch.m%d", n), uint32(n), 1000))
	}
	r, err := uatest.Ask[*ua.CreateMonitoredItemsResponse](c, 4, req)
	if err != nil {
		return nil, err
	}
	for i, item := range r.Results {
		if item.StatusCode != ua.StatusOK || item.RevisedQueueSize != 1000 {
			return nil, fmt.Errorf("item %d: %v, queue %d", i, item.StatusCode, item.RevisedQueueSize)
		}
	}
	return w, nil
}

// receive takes what comes until the connection ends.
func (w *watcher) receive() error {
	known := w.Token
	for message := uint32(1); ; {
		m, err := w.Receive()
		if err != nil {
			return err
		}
		if m.IsOpen() {
			token, err := w.Opened(m, <-w.nonces)
			if err != nil {
				return err
			}
			known = token
			w.opened <- token
			continue
		}
		w.tokens[m.Token]++
		if m.Token != known {
			w.overlap++
		}
		v, err := uatest.Decode(m.Body)
		if err != nil {
			return err
		}
		r, ok := v.(*ua.PublishResponse)
		if !ok {
			return fmt.Errorf("%T", v)
		}
		if len(r.NotificationMessage.NotificationData) == 0 {
			w.answered <- nil
			continue
		}
		if n := r.NotificationMessage.SequenceNumber; n != message {
			return fmt.Errorf("message %d, want %d", n, message)
		}
		message++
		for _, x := range r.NotificationMessage.NotificationData {
			if err := w.take(x.Value); err != nil {
				return err
			}
		}
		w.answered <- &ua.SubscriptionAcknowledgement{SubscriptionID: r.SubscriptionID, SequenceNumber: r.NotificationMessage.SequenceNumber}
	}
}

// take checks that each item's values follow each other.
func (w *watcher) take(notification any) error {
	d, ok := notification.(*ua.DataChangeNotification)
	if !ok {
		return fmt.Errorf("%T", notification)
	}
	for _, item := range d.MonitoredItems {
		i := item.ClientHandle
		if item.Value.Status != ua.StatusOK {
			return fmt.Errorf("item %d: %v", i, item.Value.Status)
		}
		if v := item.Value.Value.Value(); v != w.next[i] {
			return fmt.Errorf("item %d: %v comes after %v", i, v, w.next[i]-1)
		}
		w.next[i]++
	}
	least := w.next[0]
	for _, n := range w.next {
		least = min(least, n)
	}
	w.least.Store(int64(least))
	return nil
}

// send keeps Publish requests in flight and renews the token, so often, until stop. A new token is used only when some
// time has passed since it came.
func (w *watcher) send(renewals int, every time.Duration, stop <-chan struct{}) error {
	id := uint32(100)
	publish := func(acks ...*ua.SubscriptionAcknowledgement) error {
		id++
		return sendPublish(w.Client, id, acks...)
	}
	for range 5 {
		if err := publish(); err != nil {
			return err
		}
	}
	renew := time.NewTicker(every)
	defer renew.Stop()
	use := time.NewTimer(time.Hour)
	defer use.Stop()
	var token uint32
	for {
		var err error
		select {
		case <-stop:
			return nil
		case ack := <-w.answered:
			if ack == nil {
				err = publish()
			} else {
				err = publish(ack)
			}
		case <-renew.C:
			if renewals--; renewals < 0 {
				renew.Stop()
				break
			}
			var nonce []byte
			nonce, err = w.SendOpen(ua.SecurityTokenRequestTypeRenew)
			w.nonces <- nonce
		case token = <-w.opened:
			use.Reset(every / 5)
		case <-use.C:
			w.Token = token
			w.renewed.Add(1)
		}
		if err != nil {
			return err
		}
	}
}

// writeNumbers writes one number into scratch.m0 and so on.
func writeNumbers(t *testing.T, c *opcua.Client, tags int, v float64) {
	t.Helper()
	req := &ua.WriteRequest{}
	for n := range tags {
		req.NodesToWrite = append(req.NodesToWrite, &ua.WriteValue{NodeID: tagID(fmt.Sprintf("scratch.m%d", n)), AttributeID: ua.AttributeIDValue,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}})
	}
	r, err := c.Write(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, code := range r.Results {
		if code != ua.StatusOK {
			t.Fatalf("writing item %d: %v", i, code)
		}
	}
}

// TestRenewals renews the tokens of two clients, one secured and one not, while notifications come: tokens live for two
// seconds, and the old one is used for a while when the new one is there. No notification is lost or out of order.
func TestRenewals(t *testing.T) {
	t.Parallel()
	const life, every = 2 * time.Second, 1500 * time.Millisecond
	tags, renewals := pick(1000, 200), pick(20, 3) // of which each changes 20 times a second
	f := fortified(t, "")
	stop := make(chan struct{})
	var watchers []*watcher
	ends := make(chan error, 4)
	for _, secured := range []bool{false, true} {
		c, err := f.dial(t, secured, func(o *uatest.Options) { o.Lifetime = life })
		if err == nil {
			err = c.Login(time.Minute)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		c.Conn.SetDeadline(time.Now().Add(3 * time.Minute))
		if c.Lifetime != life {
			t.Fatalf("a token lives for %v", c.Lifetime)
		}
		w, err := watchAll(c, fmt.Sprint("secured ", secured), tags)
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
		go func() { ends <- w.receive() }()
		go func() { ends <- w.send(renewals, every, stop) }()
	}
	writer := connect(t, "opc.tcp://"+f.addr, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	begun, written := time.Now(), 0
	all := func(ok func(w *watcher) bool) bool {
		select {
		case err := <-ends:
			t.Fatal(err)
		default:
		}
		for _, w := range watchers {
			if !ok(w) {
				return false
			}
		}
		return true
	}
	for !all(func(w *watcher) bool { return int(w.renewed.Load()) == renewals }) {
		if time.Since(begun) > pick(3*time.Minute, patience) {
			t.Fatal("the renewals do not come to an end")
		}
		written++
		writeNumbers(t, writer, tags, float64(written))
		time.Sleep(time.Until(begun.Add(time.Duration(written) * 50 * time.Millisecond)))
	}
	took := time.Since(begun)
	eventually(t, "the last values", func() bool { return all(func(w *watcher) bool { return w.least.Load() == int64(written)+1 }) })
	close(stop)
	for range watchers { // who sends ends first
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	for _, w := range watchers {
		w.Close()
	}
	for range watchers {
		if err := <-ends; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	for _, w := range watchers {
		if w.overlap == 0 || len(w.tokens) < renewals {
			t.Errorf("%s: %d messages by an old token, %d tokens in use", w.name, w.overlap, len(w.tokens))
		}
		t.Logf("%s: %d renewals; %d notifications in %v (%.0f/s), none lost, none out of order; %d messages by the token before the newest", w.name,
			renewals, (written+1)*tags, took.Round(time.Millisecond), float64(written*tags)/took.Seconds(), w.overlap)
	}
}

// asSubscriber makes the test's own binary a client that subscribes to the texts of the gateway at the address it is set to.
const asSubscriber = "EDGED_TEST_AS_SUBSCRIBER"

// texts is how many a subscriber has, each of 4,000 bytes. Of 300, more waits for a client that reads no more than is kept for
// one; of 100 it is kept, until the client has taken nothing for a minute.
func texts() int { return pick(100, 300) }

// subscriber keeps 20 Publish requests in flight, and says that it does when the first was answered.
func subscriber(addr string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	c, err := uatest.Dial(addr, uatest.Options{})
	fail(err)
	c.Conn.SetDeadline(time.Time{})
	c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	fail(c.Login(10 * time.Second))
	sub, err := uatest.Ask[*ua.CreateSubscriptionResponse](c, 3, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: 50, RequestedLifetimeCount: 3000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
	fail(err)
	req := &ua.CreateMonitoredItemsRequest{SubscriptionID: sub.SubscriptionID}
	for n := range texts() {
		req.ItemsToCreate = append(req.ItemsToCreate, monitor(fmt.Sprintf("moving.text%d", n), uint32(n), 5))
	}
	_, err = uatest.Ask[*ua.CreateMonitoredItemsResponse](c, 4, req)
	fail(err)
	for id := uint32(100); ; id++ {
		fail(sendPublish(c, id))
		if id < 119 {
			continue
		}
		_, err := c.Receive()
		fail(err)
		if id == 140 {
			fmt.Println("ready")
		}
	}
}

// startSubscriber runs one in a process of its own.
func startSubscriber(t *testing.T, addr string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asSubscriber+"="+addr)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the subscriber says %q", line)
	}
	return cmd
}

// TestStoppedClient stops a client with 20 Publish requests in flight, as a debugger would. No other client and no poll
// becomes slower for it, what it holds is bounded, and it is dropped in the end.
func TestStoppedClient(t *testing.T) {
	t.Parallel()
	_, plant := lossPlant(t, &told{})
	f := fortifiedWith(t, "", plant)
	bystander := f.login(t, true, time.Hour)
	writer := connect(t, "opc.tcp://"+f.addr, ua.SecurityPolicyURINone, ua.MessageSecurityModeNone)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // changes texts six times a second
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
			req := &ua.WriteRequest{}
			text := ua.MustVariant(strings.Repeat(fmt.Sprint(n%10), 4000))
			for i := range texts() {
				req.NodesToWrite = append(req.NodesToWrite, &ua.WriteValue{NodeID: tagID(fmt.Sprintf("moving.text%d", i)),
					AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: text}})
			}
			if _, err := writer.Write(t.Context(), req); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	polled := func() (n float64) {
		for name, v := range f.metrics(t) {
			if strings.HasPrefix(name, "edged_samples_total{device=\"d") {
				n += v
			}
		}
		return n
	}
	eventually(t, "polling", func() bool { return polled() > 2*lossDevices*lossCounters })
	sessions := f.metrics(t)["edged_sessions"]
	const held = `edged_memory_bytes{account="connections"}`
	// watch looks at how fast others are for a while: the longest of reads, and samples polled a second.
	number := uint32(10)
	watch := func(length time.Duration, ended func() bool) (slowest time.Duration, rate float64) {
		begun, before := time.Now(), polled()
		for time.Since(begun) < length || !ended() {
			if time.Since(begun) > pick(3*time.Minute, patience) {
				m := f.metrics(t)
				t.Fatalf("the stopped client is not dropped: %v sessions, not %v, %v bytes in connections", m["edged_sessions"], sessions, m[held])
			}
			number++
			start := time.Now()
			bystander.Conn.SetDeadline(start.Add(patience))
			if _, err := readOne(bystander, number, "moving.c1"); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(start))
			time.Sleep(20 * time.Millisecond)
		}
		return slowest, (polled() - before) / time.Since(begun).Seconds()
	}
	client := startSubscriber(t, f.addr)
	usual, rate := watch(2*time.Second, func() bool { return true })
	before := f.resident(t)
	if err := client.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	slowest, rateThen := watch(3*time.Second, func() bool {
		m := f.metrics(t)
		for _, account := range []string{"queues", "subscriptions", "connections"} {
			if used, limit := m[`edged_memory_bytes{account="`+account+`"}`], m[`edged_memory_limit_bytes{account="`+account+`"}`]; used > limit || limit == 0 {
				t.Errorf("account %s holds %v of %v bytes", account, used, limit)
			}
		}
		return m["edged_sessions"] == sessions && m[held] == 0 &&
			f.book.count("does not read its responses")+f.book.count("did not read its responses") == 1
	})
	if slowest > max(4*usual, 500*time.Millisecond) {
		t.Errorf("a read of another client took %v, before at most %v", slowest, usual)
	}
	if rateThen < 0.7*rate {
		t.Errorf("%.0f samples a second were polled, before %.0f", rateThen, rate)
	}
	if grown := f.peak(t) - before; grown > 192<<20 && !raceEnabled {
		t.Errorf("the gateway grew by %d KiB", grown>>10)
	}
	t.Logf("longest read %v, before %v; %.0f samples/s polled, before %.0f; %d KiB of RAM more at most", slowest, usual, rateThen, rate, (f.peak(t)-before)>>10)
}
