package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"edged/drivers/sim"
)

type simCommand struct {
	Config string `required:"" placeholder:"FILE" help:"File that describes the devices."`
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
	if err := plant.Start(); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w: stop the program that holds it, or give port 0 in %s for any free one", err, c.Config)
		}
		return err
	}
	defer plant.Close()
	printPlant(p, cfg, plant)
	<-p.ctx.Done()
	return nil
}

// printPlant prints a line for each device: its name, its unit, and its bus as a site file writes it.
func printPlant(p *program, cfg *sim.Config, plant *sim.Plant) {
	for _, d := range cfg.Devices {
		fmt.Fprintf(p.stdout, "%s\tunit %d\t%s\n", d.Name, d.Unit, plant.Line(d.Line).URL())
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
