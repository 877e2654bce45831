package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"edged/drivers/tag"
)

// What a site may hold. The bounds keep a slip of the pen (repeat: 10000000) from becoming the machine's memory.
const (
	maxTags    = 250_000
	maxDevices = 10_000
	maxName    = 200 // bytes of a device's or a tag's name; node ids are made of both
)

// site is a site file that passed every check: plain settings, defaults filled in.
type site struct {
	File    string
	Sum     [sha256.Size]byte // of the file's text
	Server  serverSettings
	Web     webSettings
	Store   storeSettings
	Buses   []busSettings
	Devices []deviceSettings
	// Tags are all tags in the file's order, repeats expanded: the order of their Refs, beginning with 1.
	Tags []tag.Def
	// Notes are what is not wrong and yet worth a line: shown by check, logged by run.
	Notes []string
}

// serverSettings are the file's server section.
type serverSettings struct {
	Listen         string
	Name           string
	ApplicationURI string
	Security       securitySettings
	Reverse        []string // URLs of clients that the gateway connects to
	Limits         limitSettings
	Queue          string // asked or auto
	RaiseEvents    bool   // clients may call RaiseEvent
}

type securitySettings struct {
	Policies  []string // short names, as in the file
	Modes     []string
	Anonymous string // none, read or write
	TrustAll  bool
	KeySize   int                     // bits of the own RSA key, where one is made
	Users     string                  // file, or none
	Roles     map[string]rolePatterns // by name; without those that the file gives no patterns
}

// limitSettings bound what clients may have.
type limitSettings struct {
	Sessions       int
	Connections    int
	Subscriptions  int
	MonitoredItems int
	Queue          int
	MinPublishing  time.Duration
	Memory         int64 // bytes; 0 is auto
}

// webSettings are the file's web section.
type webSettings struct {
	Listen string // "" switches the page, the metrics and the health checks off
}

// settings is the site without its buses, devices and tags, which take most of its memory.
func (s *site) settings() *site {
	own := *s
	own.Buses, own.Devices, own.Tags = nil, nil, nil
	return &own
}

// defaultSite holds every default of the file in one place, but those of buses, devices and tags, which stand beside
// their keys in defaultBus, defaultDevice and defaultTag.
func defaultSite(file string) *site {
	return &site{
		File: file,
		Server: serverSettings{
			Listen:         "0.0.0.0:4840",
			Name:           "edged",
			Queue:          queueAsked,
			ApplicationURI: "urn:edged:" + hostName(),
			Security: securitySettings{
				Policies:  slices.Clone(securePolicies),
				Modes:     []string{modeSign, modeSignAndEncrypt},
				Anonymous: anonymousNone,
				KeySize:   2048,
				Users:     defaultUsers,
			},
			Limits: limitSettings{
				Sessions:       100,
				Connections:    110,
				Subscriptions:  1000,
				MonitoredItems: 500_000,
				Queue:          10_000,
				MinPublishing:  10 * time.Millisecond,
			},
		},
		Web:   webSettings{Listen: "127.0.0.1:8080"},
		Store: storeSettings{Retention: 720 * time.Hour, MaxSize: 1 << 30, Commit: 10 * time.Second},
	}
}

// hostName is this machine's name, or localhost where it has none.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return strings.ToLower(name)
}

// loadSite reads and checks the site file at path. A file with mistakes is a fileError that names all of them.
func loadSite(path string) (*site, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	if len(text) >= largeFile {
		// Reading takes over a hundred times the text's size, which a small box would miss for minutes.
		defer debug.FreeOSMemory()
	}
	return parseSite(path, text)
}

// largeFile is the size in bytes from which a file's reading leaves a heap that is worth giving back.
const largeFile = 256 << 10

// manyTags is from how many tags the making of a plant leaves about as much as the plant takes, which a small box would
// miss until the next collection.
const manyTags = 10_000

// parseSite checks the text of a site file; name is how its mistakes call it.
func parseSite(name string, text []byte) (*site, error) {
	r := &siteReader{document: document{file: name}, site: defaultSite(name)}
	if root := r.parse(text); root != nil {
		r.read(root)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	r.site.Sum = sha256.Sum256(text)
	return r.site, nil
}

// siteReader turns nodes into a site and collects mistakes on the way.
type siteReader struct {
	document
	site  *site
	buses map[string]int // index by name
	// busItems are the entries of the file's buses, by name.
	busItems map[string]int
	lines    map[string]line // by the place of a line: a serial device's path, or host and port
	devices  map[string]int  // line of the first device of a name
	full     bool            // the bound on tags was told
	// patterns of roles, which are checked when the tags are known.
	patterns []pattern
}

// read reads the sections in the order in which they need each other, whatever their order in the file.
func (r *siteReader) read(root *node) {
	r.busItems = map[string]int{}
	r.buses, r.lines, r.devices = map[string]int{}, map[string]line{}, map[string]int{}
	var buses, devices *node
	r.section(root, "the site", []key{
		{"server", r.server},
		{"web", r.web},
		{"store", r.store},
		{"buses", func(v *node) { buses = v }},
		{"devices", func(v *node) { devices = v }},
	})
	if root.kind != mapNode {
		return
	}
	r.checkUsers()
	if buses != nil {
		r.readBuses(buses)
	}
	if devices == nil {
		r.fault(root, "the site: devices is missing: add it, with at least one device")
		return
	}
	r.readDevices(devices)
	r.checkLines(devices)
	if len(r.mistakes) == 0 {
		r.checkPatterns()
		r.site.markHistory()
	}
	if len(r.mistakes) == 0 && buses != nil {
		r.checkBudgets(buses)
	}
}

// dataFolder is the folder of certificates and everything else that is kept, beside the site file unless named.
const dataFolder = "edged-data"

// dataBeside is the default data folder of a site file.
func dataBeside(file string) string { return filepath.Join(filepath.Dir(file), dataFolder) }
