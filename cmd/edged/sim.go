package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"edged/drivers/sim"
)

type simCommand struct {
	Config   string `required:"" placeholder:"FILE" help:"File that describes the devices."`
	Log      string `placeholder:"FILE" help:"Write each answer to this file, one JSON object a line: what was said, before anything went wrong with its frame."`
	Commands string `placeholder:"FILE" help:"Take commands from this file or pipe, a line each ('-': standard input): fault DEVICE KIND [times=N ...], heal DEVICE, set DEVICE ADDRESS NUMBER, down LINE, up LINE, drop LINE, status."`
}

// Run runs the devices of a plant until the process is told to end, and prints where they are to be had.
func (c *simCommand) Run(p *program) error {
	cfg, err := loadPlant(c.Config)
	if err != nil {
		return err
	}
	plant, err := sim.New(*cfg)
	if err != nil {
		return err
	}
	if c.Log != "" {
		said, err := newAnswerLog(c.Log)
		if err != nil {
			return err
		}
		defer said.close(p.log)
		plant.OnAnswer = said.hear
	}
	commands, err := c.open()
	if err != nil {
		return err
	}
	if err := plant.Start(); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: stop the program that holds it, or give port 0 in %s for any free one", err, c.Config)
		}
		return err
	}
	defer plant.Close() // before the log of answers is closed
	printPlant(p, cfg, plant)
	obeyed := make(chan struct{})
	if commands != nil {
		go func() { defer close(obeyed); obey(p, plant, commands) }()
	}
	<-p.ctx.Done()
	if commands != nil && commands != os.Stdin { // a read of standard input has no end but the process's
		commands.Close()
		<-obeyed
	}
	return nil
}

// open opens what commands come from; nil: nothing.
func (c *simCommand) open() (*os.File, error) {
	switch c.Commands {
	case "":
		return nil, nil
	case "-":
		return os.Stdin, nil
	}
	f, err := os.OpenFile(c.Commands, os.O_RDWR, 0) // a pipe that is opened for writing too has no end
	if err != nil {
		return nil, fmt.Errorf("%w; mkfifo %s makes a pipe for commands", err, c.Commands)
	}
	return f, nil
}

// obey carries out commands until there are no more.
func obey(p *program, plant *sim.Plant, commands io.Reader) {
	for lines := bufio.NewScanner(commands); lines.Scan() && p.ctx.Err() == nil; {
		switch says, err := plant.Command(lines.Text()); {
		case err != nil:
			p.log.Error("command was not carried out", "error", err)
		case says != "":
			p.log.Info(says)
		}
	}
}

// answerLog writes what devices said.
type answerLog struct {
	mu   sync.Mutex // guards the fields below
	file *os.File
	out  *bufio.Writer
	json *json.Encoder
	err  error // the first
}

// saidAnswer is one answer. Data are the registers or bits that were read or written, in hexadecimal.
type saidAnswer struct {
	At       time.Time `json:"at"`
	Device   string    `json:"device"`
	Function byte      `json:"function"`
	Table    string    `json:"table"`
	Address  int       `json:"address"`
	Count    int       `json:"count"`
	Data     string    `json:"data,omitempty"`
	Code     byte      `json:"exception,omitempty"`
	Fault    string    `json:"fault,omitempty"`
}

func newAnswerLog(path string) (*answerLog, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &answerLog{file: f, out: bufio.NewWriterSize(f, 64<<10)}
	l.json = json.NewEncoder(l.out)
	return l, nil
}

func (l *answerLog) hear(a *sim.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.json.Encode(saidAnswer{
			a.At.Time(), a.Device.Name(), a.Function, a.Bank.String(), a.Address, a.Count, hex.EncodeToString(a.Data), a.Code, string(a.Fault),
		})
	}
}

// close writes what is left.
func (l *answerLog) close(log *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.out.Flush(), l.file.Close()); err != nil {
		log.Error("the log of answers is not complete", "file", l.file.Name(), "error", err)
	}
}

// printPlant prints a line for each device: its name, its unit, and its bus as a site file writes it.
func printPlant(p *program, cfg *sim.Config, plant *sim.Plant) {
	for _, d := range cfg.Devices {
		fmt.Fprintf(p.stdout, "%s\tunit %d\t%s\n", d.Name, d.Unit, plant.Line(d.Line).URL())
	}
	for _, i := range cfg.Instruments {
		fmt.Fprintf(p.stdout, "%s\t%s\t%s\n", i.Name, i.Kind, plant.Line(i.Line).URL())
	}
}

// loadPlant reads the file of a simulated plant. A file with mistakes is a fileError that names all of them.
func loadPlant(path string) (*sim.Config, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return parsePlant(path, text)
}

func parsePlant(name string, text []byte) (*sim.Config, error) {
	var cfg sim.Config
	r := &plantReader{document: document{file: name}, places: map[string]*node{}}
	if root := r.parse(text); root != nil {
		r.value(root, reflect.ValueOf(&cfg).Elem(), "$")
		if len(r.mistakes) == 0 {
			for _, p := range cfg.Problems() {
				r.fault(r.nearestPlace(p.Path), "%s", p.Text)
			}
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return &cfg, nil
}

// plantReader fills sim.Config by its field tags: the plant's own package says what its keys are and what is wrong with
// their values, and this one says where they stand.
type plantReader struct {
	document
	places map[string]*node // by YAML path
}

// nearestPlace is the node of a path, or of the nearest one around it that the file has.
func (r *plantReader) nearestPlace(path string) *node {
	for {
		if n := r.places[path]; n != nil {
			return n
		}
		i := strings.LastIndexAny(path, ".[")
		if i <= 0 {
			return &node{line: 1, col: 1}
		}
		path = path[:i]
	}
}

var durationType = reflect.TypeFor[time.Duration]()

// most is the bound of a list in a plant's file.
const mostPlantItems = 100_000

// value reads n into to, whose place in the file is path.
func (r *plantReader) value(n *node, to reflect.Value, path string) {
	r.places[path] = n
	what := strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	switch {
	case to.Type() == durationType:
		to.SetInt(int64(r.duration(n, what, 0, 24*time.Hour)))
	case to.Kind() == reflect.Struct:
		r.structure(n, to, path)
	case to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8:
		for _, v := range r.list(n, what) {
			to.Set(reflect.Append(to, reflect.ValueOf(byte(r.integer(v, what, 0, 255)))))
		}
	case to.Kind() == reflect.Slice:
		items := r.list(n, what)
		if len(items) > mostPlantItems {
			r.fault(n, "%s has %d entries: at most %d", what, len(items), mostPlantItems)
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), len(items), len(items)))
		for i, v := range items {
			r.value(v, to.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case to.Kind() == reflect.String:
		to.SetString(r.text(n, what, 1024))
	case to.Kind() == reflect.Int:
		to.SetInt(int64(r.integer(n, what, -1<<31, 1<<31-1)))
	case to.Kind() == reflect.Float64:
		to.SetFloat(r.number(n, what))
	case to.Kind() == reflect.Bool:
		to.SetBool(r.boolean(n, what))
	case to.Kind() == reflect.Interface:
		if v := r.plain(n, what); v != nil {
			to.Set(reflect.ValueOf(v))
		}
	default:
		panic("edged: a plant's file has no values of " + to.Type().String()) // found by the first test
	}
}

func (r *plantReader) structure(n *node, to reflect.Value, path string) {
	var keys []key
	for i := range to.NumField() {
		name := to.Type().Field(i).Tag.Get("yaml")
		keys = append(keys, key{name, func(v *node) { r.value(v, to.Field(i), path+"."+name) }})
	}
	what := strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	if what == "" {
		what = "the plant"
	}
	r.section(n, what, keys)
}
