package main

import (
	"context"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"

	"edged/uaserver/address"
	"edged/uaserver/pki"
	"edged/uaserver/uatest"
)

// usersSite writes a site file into a folder of its own, and returns its path.
func usersSite(t *testing.T, security string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.yaml")
	write(t, path, "server: {listen: \"127.0.0.1:0\", security: {"+security+"}}\nweb: {listen: none}\n"+plantOfUsers)
	return path
}

const plantOfUsers = `devices:
  - {name: boiler, driver: memory, tags: [{name: setpoint, access: readwrite}, {name: zone.1.level, access: readwrite}]}
  - {name: burner, driver: memory, tags: [{name: setpoint, access: readwrite}, {name: pressure}]}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUsersCommand(t *testing.T) {
	site := usersSite(t, "policies: [None]")
	dir := filepath.Dir(site)
	password, other, empty := filepath.Join(dir, "password"), filepath.Join(dir, "other"), filepath.Join(dir, "empty")
	write(t, password, "open sesame\r\nsecond line\n")
	write(t, other, "another")
	write(t, empty, "\n")
	cert := filepath.Join(dir, "carl.pem")
	carl := uatest.ClientIdentity(t)
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: carl.DER})))
	users := func(args ...string) (int, string, string) {
		return command(t, append([]string{"users"}, append(args, "--config", site)...)...)
	}
	expect := func(what string, wantStatus int, want string, args ...string) {
		t.Helper()
		status, stdout, stderr := users(args...)
		if status != wantStatus || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: %d %s%s, want %d and %q", what, status, stdout, stderr, wantStatus, want)
		}
	}
	_, stdout, _ := command(t, "check", "--config", site)
	if !strings.Contains(stdout, "nobody can log in") || !strings.Contains(stdout, "edged users add") {
		t.Errorf("check of a site that nobody can enter: %s", stdout)
	}
	expect("list of none", exitDone, "name", "list")
	expect("add", exitDone, "", "add", "anna", "--role", "operator", "--role", "engineer", "--password-file", password)
	expect("add with a certificate", exitDone, "", "add", "carl", "--certificate", cert)
	expect("add twice", exitFailed, "is there already", "add", "anna", "--password-file", password)
	expect("certificate twice", exitFailed, "user carl has this certificate", "add", "eve", "--certificate", cert)
	expect("no such role", exitUsage, "must be one of", "add", "eve", "--role", "king", "--password-file", password)
	expect("no name", exitUsage, "no name", "add", "a\nb", "--password-file", password)
	expect("empty password", exitFailed, "empty", "add", "eve", "--password-file", empty)
	expect("no file", exitFailed, "cannot be read", "add", "eve", "--password-file", filepath.Join(dir, "nothing"))
	expect("no certificate", exitFailed, "password", "add", "eve", "--certificate", password)
	expect("list", exitDone, "anna  operator, engineer  password", "list")
	expect("list", exitDone, "carl  observer            certificate "+pki.ThumbprintOf(carl.DER).String(), "list")
	expect("add by name", exitDone, "", "add", "dora", "--trusted")
	expect("list by name", exitDone, "any trusted certificate of this name", "list")
	expect("both ways", exitUsage, "can't be used together", "add", "otto", "--trusted", "--certificate", cert)
	expect("remove by name", exitDone, "", "remove", "dora")
	expect("list as JSON", exitDone, `{"name":"anna","roles":["operator","engineer"]}`, "list", "--json")
	_, stdout, _ = command(t, "check", "--config", site)
	if strings.Contains(stdout, "note") {
		t.Errorf("check of a site with users: %s", stdout)
	}
	path := filepath.Join(dir, defaultUsers)
	book, err := readUsers(path)
	if err != nil {
		t.Fatal(err)
	}
	before := book.byName["anna"].Password
	expect("passwd", exitDone, "", "passwd", "anna", "--password-file", other)
	if book, _ = readUsers(path); book.byName["anna"].Password == before || strings.Contains(before, "sesame") {
		t.Error("the password is the old one, or can be read")
	}
	expect("passwd of nobody", exitFailed, "has no user eve", "passwd", "eve", "--password-file", other)
	expect("remove nobody", exitFailed, "has no user eve", "remove", "eve")
	expect("remove", exitDone, "", "remove", "carl")
	if book, err = readUsers(path); err != nil || len(book.users) != 1 {
		t.Errorf("%d users are left: %v", len(book.users), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of users can be read by others: %v %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".users-*")); left != nil {
		t.Errorf("files are left over: %v", left)
	}
}

func TestUserFileMistakes(t *testing.T) {
	const hash = "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"
	for _, row := range []struct{ name, text, want string }{
		{"no list", "users: anna\n", "1:8: users is a single value here"},
		{"another key", "user: []\n", "did you mean users?"},
		{"no name", "users: [{password: \"" + hash + "\"}]\n", "name is missing"},
		{"plain password", "users: [{name: anna, password: secret}]\n", "is not a bcrypt hash"},
		{"nothing to log in with", "users: [{name: anna}]\n", "neither password nor certificate"},
		{"role", "users: [{name: anna, roles: [operater], password: \"" + hash + "\"}]\n", "did you mean operator?"},
		{"thumbprint", "users: [{name: anna, certificate: 12ab}]\n", "40 hexadecimal digits, or trusted"},
		{"twice", "users: [{name: anna, password: \"" + hash + "\"}, {name: anna, password: \"" + hash + "\"}]\n", "a second time"},
	} {
		site := usersSite(t, "policies: [None]")
		write(t, filepath.Join(filepath.Dir(site), defaultUsers), row.text)
		status, _, stderr := command(t, "check", "--config", site)
		if status != exitUsage || !strings.Contains(stderr, row.want) || !strings.Contains(stderr, defaultUsers+":1:") {
			t.Errorf("%s: %d %s, want %q", row.name, status, stderr, row.want)
		}
	}
}

// TestUserFileChanges: users come and go while the gateway runs; a broken file changes nothing.
func TestUserFileChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), defaultUsers)
	u := newUserFile(path, slog.New(slog.DiscardHandler))
	has := func(what, name string, want bool) {
		t.Helper()
		user, ok := u.ByName(name)
		if ok != want || ok && user.Rights != rightsOf([]string{"operator"}) {
			t.Errorf("%s: %s is there: %v, with %b", what, name, ok, user.Rights)
		}
	}
	entry := func(name string) userEntry {
		return userEntry{Name: name, Roles: []string{"operator"}, Password: "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"}
	}
	save := func(users ...userEntry) {
		t.Helper()
		if err := writeUsers(path, users); err != nil {
			t.Fatal(err)
		}
	}
	has("no file", "anna", false)
	save(entry("anna"))
	has("added", "anna", true)
	save(entry("anna"), entry("true"), entry("0x10: [\"'#"))
	has("names that YAML takes for something else", "true", true)
	has("names that YAML takes for something else", "0x10: [\"'#", true)
	write(t, path, "users: broken\n")
	has("broken", "anna", true)
	save(entry("bert"))
	has("removed", "anna", false)
	has("another", "bert", true)
	if passwords, certificates := u.Offers(); !passwords || certificates {
		t.Errorf("offers %v %v", passwords, certificates)
	}
	os.Remove(path)
	has("file removed", "bert", false)
}

func TestPatterns(t *testing.T) {
	for _, row := range []struct {
		pattern, name string
		covers, shows bool
	}{
		{"boiler.setpoint", "boiler.setpoint", true, true},
		{"boiler.setpoint", "boiler", false, true},
		{"boiler.setpoint", "boiler.setpoint2", false, false},
		{"boiler", "boiler.setpoint", true, true},
		{"boiler", "boiler2.setpoint", false, false},
		{"boiler.zone", "boiler.zone.1.level", true, true},
		{"*.setpoint", "boiler.setpoint", true, true},
		{"*.setpoint", "boiler.pressure", false, true}, // it may have a setpoint below
		{"b*r.*int", "burner.setpoint", true, true},
		{"b?r", "bur", true, true},
		{"b?r", "bor.x", true, true},
		{"b?r", "boiler", false, false},
		{"*", "boiler", true, true},
		{"", "boiler", false, false},
		{strings.Repeat("*a", 50), strings.Repeat("a", 200) + "b", false, true},
	} {
		if got := covers(row.pattern, row.name); got != row.covers {
			t.Errorf("%s covers %s: %v", row.pattern, row.name, got)
		}
		if got := shows([]string{row.pattern}, row.name); got != row.shows {
			t.Errorf("%s shows %s: %v", row.pattern, row.name, got)
		}
	}
}

func TestPermissionsOfRoles(t *testing.T) {
	s, err := parseSite("site.yaml", []byte("server: {security: {users: none, anonymous: read, roles: {operator: {write: [boiler.setpoint]}, "+
		"engineer: {browse: boiler}, observer: {browse: \"*\", read: burner, write: \"*.zone\"}, admin: {write: []}}}}\n"+plantOfUsers))
	if err != nil {
		t.Fatal(err)
	}
	const anon, obs, op, eng, adm = address.Anonymous, address.Observer, address.Operator, address.Engineer, address.Admin
	permit := s.permissions()
	for _, row := range []struct {
		name string
		want address.Permissions
	}{
		{"boiler.setpoint", address.Permissions{Browse: anon | obs | op | eng | adm, Read: anon | op | eng | adm, Write: op | eng, Call: eng | adm}},
		{"boiler.zone.1.level", address.Permissions{Browse: anon | obs | op | eng | adm, Read: anon | op | eng | adm, Write: obs | eng, Call: eng | adm}},
		{"burner.setpoint", address.Permissions{Browse: anon | obs | op | adm, Read: anon | obs | op | adm, Write: 0, Call: adm}},
	} {
		got := permit(row.name)
		for _, r := range []*address.Roles{&got.Browse, &got.Read, &got.Write, &got.Call} {
			*r &^= address.Nobody
		}
		if got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
	if plain, err := parseSite("site.yaml", []byte(plantOfUsers)); err != nil || plain.permissions() != nil {
		t.Errorf("a site without roles has permissions: %v", err)
	}
}

// TestRolesOfAGateway: an operator writes what his role says, over the whole way from the files to the client.
func TestRolesOfAGateway(t *testing.T) {
	path := usersSite(t, "policies: [None], roles: {operator: {write: [boiler.setpoint]}, engineer: {browse: [burner]}}")
	dir := filepath.Dir(path)
	password := filepath.Join(dir, "password")
	write(t, password, "open sesame\n")
	for _, role := range []string{"operator", "engineer"} {
		if status, _, stderr := command(t, "users", "add", role, "--role", role, "--config", path, "--password-file", password); status != exitDone {
			t.Fatal(stderr)
		}
	}
	s, err := loadSite(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGateway(s, filepath.Join(dir, "data"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	runs, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.run(runs)
	}()
	defer func() { end(); <-done }()
	<-g.opcua.up
	for _, row := range []struct {
		role                    string
		boiler, level, burner   ua.StatusCode
		showsBoiler, showBurner bool
	}{
		{"operator", ua.StatusGood, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied, true, true},
		{"engineer", ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied, ua.StatusGood, false, true},
	} {
		endpoints, err := opcua.GetEndpoints(ctx, g.endpoint())
		if err != nil {
			t.Fatal(err)
		}
		c, err := opcua.NewClient(g.endpoint(), opcua.SecurityFromEndpoint(endpoints[0], ua.UserTokenTypeUserName),
			opcua.AuthUsername(row.role, "open sesame"), opcua.AutoReconnect(false))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Connect(ctx); err != nil {
			t.Fatalf("%s: %v", row.role, err)
		}
		set := func(name string) ua.StatusCode {
			r, err := c.Write(ctx, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{
				NodeID: ua.NewStringNodeID(2, name), AttributeID: ua.AttributeIDValue,
				Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(1.5)},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			return r.Results[0]
		}
		if a, b, d := set("boiler.setpoint"), set("boiler.zone.1.level"), set("burner.setpoint"); a != row.boiler || b != row.level || d != row.burner {
			t.Errorf("%s writes: %v %v %v", row.role, a, b, d)
		}
		refs, err := c.Node(ua.NewStringNodeID(2, "Devices")).References(ctx, 35, ua.BrowseDirectionForward, ua.NodeClassAll, true)
		shown := map[string]bool{}
		for _, r := range refs {
			shown[r.BrowseName.Name] = true
		}
		if err != nil || shown["boiler"] != row.showsBoiler || shown["burner"] != row.showBurner {
			t.Errorf("%s is shown %v: %v", row.role, shown, err)
		}
		c.Close(ctx)
	}
}
