package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fsnotify/fsnotify"

	"edged/cmd/edged/dashboard"
	"edged/drivers/tag"
)

// A saved file is read when it has been left alone for saveQuiet, so that one that is being written is not half read;
// at the latest after saveLimit.
const (
	saveQuiet = 200 * time.Millisecond
	saveLimit = 2 * time.Second
)

// generation is one site as it was applied. It is immutable.
type generation struct {
	number int // from 1
	at     time.Time
	notes  []string // of the site
	table  *tag.Table
	field  *field
	access accessSettings
	// pending are the keys of the file that wait for a restart.
	pending []string
}

// accessSettings are who may log in, and may do what where.
type accessSettings struct {
	anonymous, users string
	roles            map[string]rolePatterns
}

func (s *site) access() accessSettings {
	sec := &s.Server.Security
	return accessSettings{sec.Anonymous, sec.Users, sec.Roles}
}

// failure is a site file that was not taken.
type failure struct {
	at  time.Time
	err error
}

// reload goes over to another site: what differs in its buses, devices and tags is applied while the rest works on, and
// what takes effect with a restart alone is told. An error has changed nothing.
func (g *gateway) reload(next *site) error {
	was := g.config.Load()
	table, tags, err := was.table.Apply(next.Tags)
	if err != nil {
		return err
	}
	next.bind(table)
	f, err := newField(next, table, g.recorder, g.log, was.field)
	if err != nil {
		return err
	}
	change, err := g.fleet.Prepare(f.Config)
	if err != nil {
		return err
	}
	pending := restartKeys(g.site, next)
	if len(pending) > 0 {
		g.log.Warn("these keys of the site file take effect with a restart", "keys", strings.Join(pending, ", "))
	}
	access, err := g.admit(was.access, next)
	if err != nil {
		return err
	}
	d := f.diff
	if d.none() && len(tags.Added)+len(tags.Removed)+len(tags.Changed) == 0 {
		now := *was
		now.pending, now.access = pending, access
		g.config.Store(&now)
		g.log.Info("nothing else in the site file differs from what runs", "generation", was.number)
		return nil
	}
	// New nodes come first, so that no reading of a new tag is lost; readings of a tag that went are passed over.
	if err := g.tags.Apply(table, next.objects()); err != nil {
		return err
	}
	g.recorder.apply(table)
	g.recorder.bringBack(table, f, false, tags.Added)
	change.Apply()
	if err := g.lines.apply(); err != nil {
		g.log.Error("the nodes of the buses are those of before", "error", err)
	}
	g.config.Store(&generation{number: was.number + 1, at: time.Now(), notes: next.Notes, table: table, field: f, access: access, pending: pending})
	g.log.Info("site file applied", "generation", was.number+1,
		"tags", counts(len(tags.Added), len(tags.Removed), len(tags.Changed)),
		"devices", d.devices.String(), "buses", d.buses.String())
	g.tellReload(&d.devices)
	for _, note := range next.Notes {
		if !slices.Contains(was.notes, note) {
			g.log.Warn(note)
		}
	}
	return nil
}

// admit goes over to the site's users, roles and rights, where they differ from those of before: for sessions that there
// are at once. An error has changed nothing.
func (g *gateway) admit(was accessSettings, next *site) (accessSettings, error) {
	now := next.access()
	if reflect.DeepEqual(was, now) {
		return was, nil
	}
	if err := g.tags.Permit(next.permissions()); err != nil {
		return was, err
	}
	if was.users != now.users {
		g.users.Store(next.userFile(g.log))
	}
	g.space.Grant(next.roleRights())
	g.server.Authorize(next.anonymous(), asUsers(g.users.Load()))
	g.log.Info("users and roles of the site file applied")
	return now, nil
}

// counts says what a reload did to things of one kind.
func counts(added, removed, changed int) string {
	return fmt.Sprintf("%d added, %d removed, %d changed", added, removed, changed)
}

// follow reloads the site file when the process gets SIGHUP and when the file was saved, until ctx ends.
func (g *gateway) follow(ctx context.Context, hangup <-chan os.Signal) {
	f := follower{gateway: g, path: g.site.File, sum: g.site.Sum}
	saved, stop := f.watch()
	defer stop()
	// A file that was saved between its first reading and now is found by a look at it.
	quiet := time.NewTimer(saveQuiet)
	defer quiet.Stop()
	var since time.Time // of the first event that waits; zero: none
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			g.log.Info("SIGHUP: reading the site file", "file", f.path)
			f.read(true)
		case <-g.again:
			g.log.Info("Reload was called: reading the site file", "file", f.path)
			f.read(true)
		case <-saved:
			if since.IsZero() {
				since = time.Now()
			}
			quiet.Reset(max(0, min(saveQuiet, saveLimit-time.Since(since))))
		case <-quiet.C:
			since = time.Time{}
			f.read(false)
		}
	}
}

// follower reads one site file again and again. Owned by the goroutine of follow.
type follower struct {
	gateway *gateway
	path    string
	sum     [sha256.Size]byte // of what was read last
	told    string            // why it could not be read
	seen    fs.FileInfo       // nil: it is not there
}

// look notes how the file is, and reports whether it is another one than at the last look.
func (f *follower) look() bool {
	was := f.seen
	f.seen, _ = os.Stat(f.path)
	if was == nil || f.seen == nil {
		return was != f.seen
	}
	return !os.SameFile(was, f.seen) || was.Size() != f.seen.Size() || !was.ModTime().Equal(f.seen.ModTime())
}

// watch tells when the file may have been saved. It watches the folder: editors put a new file in the place of the old
// one, and some deployments turn a link around.
func (f *follower) watch() (saved <-chan struct{}, stop func()) {
	path, err := filepath.Abs(f.path)
	var w *fsnotify.Watcher
	if err == nil {
		w, err = fsnotify.NewWatcher()
	}
	if err == nil {
		if err = w.Add(filepath.Dir(path)); err != nil {
			w.Close()
		}
	}
	if err != nil {
		f.gateway.log.Warn("cannot see when the site file is saved: send SIGHUP to have it read", "file", f.path, "error", err)
		return nil, func() {}
	}
	out, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				if !e.Has(fsnotify.Create|fsnotify.Write|fsnotify.Rename|fsnotify.Remove) || !f.concerns(path, e.Name) {
					continue
				}
			case err, ok := <-w.Errors:
				if !ok {
					return
				}
				// Events were lost: a look at the file tells.
				f.gateway.log.Debug("watching the site file", "error", err)
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, func() { w.Close(); <-ended }
}

// concerns reports whether an event of the folder may be about the file.
func (f *follower) concerns(path, name string) bool {
	if filepath.Base(name) == filepath.Base(path) {
		return true
	}
	real, err := filepath.EvalSymlinks(path)
	return err != nil || real != path
}

// read takes the file if it is another than the last. asked: somebody wants an answer in any case.
func (f *follower) read(asked bool) {
	if !f.look() && !asked {
		return
	}
	g := f.gateway
	text, err := readBounded(f.path)
	if err != nil {
		if text := err.Error(); asked || text != f.told {
			f.told = text
			f.fail(err)
		}
		return
	}
	f.told = ""
	sum := sha256.Sum256(text)
	if sum == f.sum && !asked {
		return
	}
	f.sum = sum
	if len(text) >= largeFile {
		defer debug.FreeOSMemory()
	}
	next, err := parseSite(f.path, text)
	if err == nil {
		err = g.reload(next)
	}
	if err != nil {
		f.fail(err)
		return
	}
	g.failed.Store(nil)
}

// siteState is what the page and the metrics say of the site file.
func (g *gateway) siteState() dashboard.Site {
	c := g.config.Load()
	s := dashboard.Site{Generation: c.number, Applied: c.at, Pending: c.pending}
	if f := g.failed.Load(); f != nil {
		s.Failed, s.Failure = f.at, f.err.Error()
	}
	return s
}

// fail says why a file was not taken, every mistake by line and column.
func (f *follower) fail(err error) {
	g := f.gateway
	g.failed.Store(&failure{time.Now(), err})
	var mistakes fileError
	if !errors.As(err, &mistakes) {
		g.log.Error("the site file was not taken, everything works on as before", "file", f.path, "error", err)
		return
	}
	g.log.Error("the site file was not taken, everything works on as before", "file", f.path, "mistakes", len(mistakes))
	for _, m := range mistakes {
		g.log.Error(m.Error())
	}
}

// liveParts are the fields of a site that are applied while it runs, or are no setting.
var liveParts = map[string]bool{"File": true, "Sum": true, "Buses": true, "Devices": true, "Tags": true, "Notes": true}

// liveKeys are the keys of the other parts that are applied while it runs.
var liveKeys = map[string]bool{"server.security.anonymous": true, "server.security.users": true, "server.security.roles": true, "store.history": true}

// restartKeys are the keys of the file whose values differ and take effect with a restart alone: all that no reload
// applies.
func restartKeys(running, next *site) []string {
	var keys []string
	a, b := reflect.ValueOf(running).Elem(), reflect.ValueOf(next).Elem()
	for i := range a.NumField() {
		if name := a.Type().Field(i).Name; !liveParts[name] {
			keys = differing(keys, keyOf(name), a.Field(i), b.Field(i))
		}
	}
	return keys
}

// differing appends the keys below key whose values differ.
func differing(keys []string, key string, a, b reflect.Value) []string {
	if a.Kind() != reflect.Struct {
		if !liveKeys[key] && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			keys = append(keys, key)
		}
		return keys
	}
	for i := range a.NumField() {
		keys = differing(keys, key+"."+keyOf(a.Type().Field(i).Name), a.Field(i), b.Field(i))
	}
	return keys
}

// keyOf is the key that a setting's field has in the file: MinPublishing is min_publishing.
func keyOf(field string) string {
	var out strings.Builder
	runes := []rune(field)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// logNames is the most names that a line of the log lists.
const logNames = 5

// names is what a reload did to the things of one kind, by name.
type names struct{ added, removed, changed []string }

// String counts them, and names the first.
func (n *names) String() string {
	text := counts(len(n.added), len(n.removed), len(n.changed))
	var all []string
	for _, list := range []struct {
		sign  string
		names []string
	}{{"+", n.added}, {"-", n.removed}, {"~", n.changed}} {
		for _, name := range list.names {
			all = append(all, list.sign+name)
		}
	}
	if len(all) == 0 {
		return text
	}
	if more := len(all) - logNames; more > 0 {
		all = append(all[:logNames], fmt.Sprintf("%d more", more))
	}
	return text + " (" + strings.Join(all, " ") + ")"
}

// note puts a name among those that are new or changed.
func (n *names) note(name string, was bool) {
	if was {
		n.changed = append(n.changed, name)
	} else {
		n.added = append(n.added, name)
	}
}

func (n *names) none() bool { return len(n.added)+len(n.removed)+len(n.changed) == 0 }

// removedFrom are the names that are left of what was before.
func removedFrom[T any](before map[string]T) []string { return slices.Sorted(maps.Keys(before)) }
