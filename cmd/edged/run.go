package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"edged/cmd/edged/dashboard"
	"edged/drivers"
	"edged/drivers/tag"
	"edged/uaserver"
	"edged/uaserver/address"
	"edged/uaserver/pki"
	"edged/uaserver/subscription"
	"edged/uaserver/tagspace"
)

// How the gateway ends: clients read for shutdownNotice that it is about to, and everything is closed within
// shutdownLimit after that.
const (
	shutdownNotice = 2 * time.Second
	shutdownLimit  = 5 * time.Second
)

type runCommand struct {
	Config string `required:"" placeholder:"FILE" help:"Site file; it is read again when it was saved, and at SIGHUP."`
	Data   string `placeholder:"DIR" help:"Folder of certificates and all that is kept (default: edged-data beside the site file)."`
}

// Run runs the gateway of a site file until the process is told to end.
func (c *runCommand) Run(p *program) error {
	s, err := loadSite(c.Config)
	if err != nil {
		return err
	}
	if c.Data == "" {
		c.Data = dataBeside(c.Config)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from here on it does not end the process
	defer signal.Stop(hangup)
	g, err := newGateway(s, c.Data, p.log)
	if err != nil {
		return err
	}
	g.hangup = hangup
	g.run(p.ctx)
	return nil
}

// gateway is every part of a running gateway, joined.
type gateway struct {
	site     *site // its settings as the gateway was started with them; buses, devices and tags are config's
	log      *slog.Logger
	own      *pki.Keeper
	accounts []namedAccount
	space    *address.Space
	tags     *tagspace.Space
	fleet    *drivers.Fleet
	lines    *busNodes
	recorder *recorder
	server   *uaserver.Server
	web      *dashboard.Server
	opcua    *listening
	page     *listening // nil: the site switches it off
	since    time.Time

	users  atomic.Pointer[userFile]   // nil: there are none; replaced by reload
	config atomic.Pointer[generation] // as it is applied; replaced by reload
	failed atomic.Pointer[failure]    // the last reload, if its file was not taken
	hangup <-chan os.Signal           // SIGHUP; nil: the site file is not followed
	again  chan struct{}              // a client wants the site file to be read
}

// newGateway builds every part, from the vocabulary to the sockets. Nothing runs and nothing listens yet.
func newGateway(s *site, data string, log *slog.Logger) (*gateway, error) {
	g := &gateway{site: s.settings(), log: log, since: time.Now(), again: make(chan struct{}, 1)}
	queues, subscriptions, connections := g.account("queues", 2), g.account("subscriptions", 1), g.account("connections", 1)
	own, trust, err := g.certificates(filepath.Join(data, "pki"))
	if err != nil {
		return nil, err
	}
	userTrust, err := pki.OpenUsers(filepath.Join(data, "pki"), log)
	if err != nil {
		return nil, fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	g.own = own
	table, err := tag.NewTable(s.Tags)
	if err != nil {
		return nil, err
	}
	g.recorder = openRecorder(s, data, table, log)
	built := false
	defer func() {
		if !built {
			g.recorder.close(context.Background())
		}
	}()
	if g.space, err = address.New(s.Server.ApplicationURI); err != nil {
		return nil, err
	}
	g.tags, err = tagspace.New(tagspace.Config{
		Table: table, Address: g.space, Devices: s.objects(), State: g.deviceState, Permissions: s.permissions(), Account: queues,
		Log: g.recorder.log(),
	})
	if err != nil {
		return nil, err
	}
	g.recorder.tags = g.tags
	f, err := newField(s, table, g.recorder, log, nil)
	if err != nil {
		return nil, err
	}
	if g.fleet, err = drivers.NewFleet(f.Config); err != nil {
		return nil, err
	}
	g.config.Store(&generation{number: 1, at: g.since, notes: s.Notes, table: table, field: f, access: s.access()})
	g.recorder.bringBack(table, f, true, nil)
	g.tags.Join(g.fleet)
	g.lines = &busNodes{space: g.space, buses: g.Buses, devices: g.Devices}
	if err := g.lines.apply(); err != nil {
		return nil, err
	}
	if err := addStoreNodes(g.space, g.recorder.stats); err != nil {
		return nil, err
	}
	g.users.Store(s.userFile(log))
	g.space.Grant(s.roleRights())
	limits := &s.Server.Limits
	g.server, err = uaserver.New(uaserver.Config{
		Name: s.Server.Name, ApplicationURI: s.Server.ApplicationURI, Build: buildOf(), Hosts: pki.Hosts(),
		Policies: s.policies(), Certificate: own.Own, Trust: trust, Anonymous: s.anonymous(), Users: asUsers(g.users.Load()), UserTrust: userTrust, Space: g.space,
		History: g.recorder.store != nil,
		Limits:  uaserver.Limits{Sessions: limits.Sessions},
		Channel: channelLimits(limits),
		Subscription: subscription.Config{
			Account: subscriptions, Queues: queues, Subscriptions: limits.Subscriptions, Items: limits.MonitoredItems,
			Queue: limits.Queue, MinPublishing: limits.MinPublishing, Raise: s.Server.Queue == queueAuto,
		},
		Account: connections, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if err := addGatewayMethods(g); err != nil {
		return nil, err
	}
	g.opcua = newListening("OPC UA", s.Server.Listen, log, func(l net.Listener) error {
		if err := g.server.Serve(l); !errors.Is(err, uaserver.ErrStopped) {
			return err
		}
		return nil
	})
	if s.Web.Listen != "" {
		g.web = dashboard.New(g, log)
		g.page = newListening("web page", s.Web.Listen, log, g.web.Serve)
	}
	if table.Len() >= manyTags {
		debug.FreeOSMemory()
	}
	built = true
	return g, nil
}

// run works until ctx ends, then stops every part in the reverse order of newGateway and returns when none is left.
func (g *gateway) run(ctx context.Context) {
	for _, note := range g.site.Notes {
		g.log.Warn(note)
	}
	g.recorder.start()
	// Parts outlive ctx by as long as their clients need to hear of the end.
	var field, sockets sync.WaitGroup
	fieldCtx, stopField := context.WithCancel(context.WithoutCancel(ctx))
	socketCtx, stopSockets := context.WithCancel(context.WithoutCancel(ctx))
	defer stopField()
	defer stopSockets()
	field.Go(func() {
		if err := g.fleet.Run(fieldCtx); err != nil && fieldCtx.Err() == nil {
			g.log.Error("the field side has ended: restart the gateway", "error", err)
		}
	})
	sockets.Go(func() { g.opcua.run(socketCtx) })
	sockets.Go(func() { g.own.Watch(socketCtx) })
	sockets.Go(func() { g.reverse(socketCtx) })
	field.Go(func() { g.happen(fieldCtx) })
	if g.page != nil {
		sockets.Go(func() { g.page.run(socketCtx) })
	}
	g.log.Info("gateway started", "name", g.site.Server.Name, "devices", len(g.Devices()), "tags", g.Table().Len())
	var reloads sync.WaitGroup
	if g.hangup != nil {
		reloads.Go(func() { g.follow(ctx, g.hangup) })
	}
	sockets.Go(func() { g.checkUsers(socketCtx) })
	<-ctx.Done()
	notice := g.notice()
	g.log.Info("gateway is shutting down", "seconds", notice.Seconds())
	limit, cancel := context.WithTimeout(context.Background(), shutdownNotice+shutdownLimit)
	defer cancel()
	stopSockets() // a port that is still tried for is given up; what listens is closed by Shutdown
	g.server.Shutdown(limit, "the gateway was told to end", notice)
	if g.web != nil {
		if err := g.web.Shutdown(limit); err != nil {
			g.log.Debug("web page did not end cleanly", "error", err)
		}
	}
	sockets.Wait()
	stopField()
	field.Wait()
	reloads.Wait() // one that waited for an exchange has seen the field side end
	g.tags.Close()
	closing, cancel := context.WithTimeout(context.Background(), shutdownLimit) // nothing is published any more
	defer cancel()
	if err := g.recorder.close(closing); err != nil {
		g.log.Error("what was read last may not be in the store", "error", err)
	}
	g.log.Info("gateway ended", "after", time.Since(g.since).Round(time.Second))
}

// notice is how long clients are told about the end before it comes: nobody waits where there are none.
func (g *gateway) notice() time.Duration {
	if g.server.Stats().Sessions.Current == 0 {
		return 0
	}
	return shutdownNotice
}

// certificates opens the gateway's own certificate, made at the first start, and decides whom it trusts.
func (g *gateway) certificates(dir string) (*pki.Keeper, pki.Trust, error) {
	own, err := pki.Keep(dir, pki.Identity{
		ApplicationURI: g.site.Server.ApplicationURI, Name: g.site.Server.Name, Hosts: pki.Hosts(), KeyBits: g.site.Server.Security.KeySize,
	}, g.log)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	if g.site.Server.Security.TrustAll {
		return own, pki.TrustAll(g.log), nil
	}
	trust, err := pki.OpenFolder(dir, g.log)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; name a folder that can be written with --data", err)
	}
	return own, trust, nil
}
