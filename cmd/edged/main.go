// Command edged is an industrial edge gateway: drivers poll Modbus devices, and an OPC UA server publishes what they
// read through subscriptions that lose nothing silently.
//
// # Architecture
//
// The rooms, from the field to the clients:
//
//	drivers/tag          the vocabulary: Ref, Value, Status, Sample, Command, Table; it imports nothing of ours
//	drivers/port         byte streams: TCP, serial lines, pseudo terminals
//	drivers/modbus       one Modbus device: tags planned into the fewest requests, registers into values
//	drivers/memory       tags that live in the gateway
//	drivers              buses, which own a line each, and the fleet of them
//	drivers/sim          a simulated plant
//	store                what survives a power cut: history, last values, retained tags, durable subscriptions
//	uaserver/wire        bytes and messages of OPC UA; bounded decoding, appending encoding
//	uaserver/channel     one secure conversation          uaserver/pki           certificates
//	uaserver/session     who is logged in                 uaserver/address       nodes, references, namespace 0
//	uaserver/subscription   the engine of notifications   uaserver/tagspace      the tags as nodes
//	uaserver             the table of services and the server that joins these
//	cmd/edged            this program: command line, site file, wiring, web page
//	cmd/edged/client     the OPC UA client of browse, read, write and watch
//	cmd/edged/probe      what a line and its devices tell of themselves, for commissioning
//
// Three flows cross them. A polled register becomes a notification: the bus finds a scan due, the driver appends
// samples, tagspace appends those that changed to their tag's series, and each subscription takes what is new at its
// publishing tick. A client's write reaches the device: the server checks it, the fleet gives it to the bus, which
// carries it out after the exchange in flight; the confirming reading is published before the answer goes back. The
// device is the truth: a write never changes a node by itself. And the site file becomes all of this: parsed once into
// plain settings with every mistake told by line and column, then turned into tables and drivers before anything runs.
// A saved file goes the same way while the gateway runs (reload.go), and only what differs is carried out: first the
// nodes, then, between two exchanges of each line, the devices.
//
// run.go is the whole system on one page. imports_test.go holds the table of who may import whom.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"edged/cmd/edged/bench"
)

// Exit status of the program.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or an invalid file
)

// commandLine is what the program understands.
type commandLine struct {
	LogFormat string `enum:"text,json" default:"text" help:"Form of the log on stderr: text or json."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`

	Demo     demoCommand     `cmd:"" help:"Run a simulated plant, the gateway and its web page."`
	Run      runCommand      `cmd:"" help:"Run the gateway of a site file."`
	Check    checkCommand    `cmd:"" help:"Check a site file and name every mistake by line and column."`
	Probe    probeCommand    `cmd:"" help:"Look at a device or a line while commissioning."`
	Sim      simCommand      `cmd:"" help:"Run simulated field devices alone."`
	Browse   browseCommand   `cmd:"" help:"Show the nodes of an OPC UA server as a tree."`
	Read     readCommand     `cmd:"" help:"Read nodes of an OPC UA server."`
	Write    writeCommand    `cmd:"" help:"Write nodes of an OPC UA server."`
	Watch    watchCommand    `cmd:"" help:"Print each change of nodes of an OPC UA server."`
	Bench    benchCommand    `cmd:"" help:"Put a server under load and measure it."`
	History  historyCommand  `cmd:"" help:"Print the history of tags from a gateway's store."`
	Store    storeCommand    `cmd:"" help:"Check, compact or back up a gateway's store."`
	Certs    certsCommand    `cmd:"" help:"Certificates: the gateway's own, and those of its clients."`
	Users    usersCommand    `cmd:"" help:"Users who may log in, with their passwords and roles."`
	Profiles profilesCommand `cmd:"" help:"Show the descriptions of instruments that ship."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

// usageError is a wrong use of the command line.
type usageError struct{ error }

// program is what a command may use of the process that it runs in.
type program struct {
	ctx    context.Context // ends with the first SIGTERM or SIGINT
	stdout io.Writer       // results
	stderr io.Writer       // log and errors
	log    *slog.Logger
}

func main() {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		s := <-signals
		// The second signal finds the default handler again and ends the process at once. It does so before anybody
		// hears of the first, or one that follows quickly would be lost.
		signal.Stop(signals)
		end(fmt.Errorf("%v signal received", s))
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute carries out one command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	exited := false
	parser, err := kong.New(&line,
		kong.Name("edged"),
		kong.Description("An industrial edge gateway: field values in, OPC UA notifications out."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { exited = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"demo_listen": demoListen, "demo_web": demoWeb, "demo_data": dataFolder, "bench_workloads": bench.Help()},
	)
	if err != nil {
		fmt.Fprintln(stderr, "edged:", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if exited {
		return exitDone
	}
	if err != nil {
		fmt.Fprintf(stderr, "edged: %v; `edged --help` lists what can be given\n", err)
		return exitUsage
	}
	p := &program{ctx: ctx, stdout: stdout, stderr: stderr, log: newLog(stderr, line.LogFormat, line.LogLevel)}
	if err := command.Run(p); err != nil {
		return report(stderr, err)
	}
	return exitDone
}

// report prints a failure and returns its exit status.
func report(stderr io.Writer, err error) int {
	var file fileError
	var usage usageError
	if errors.As(err, &file) {
		fmt.Fprintln(stderr, file.Error())
		return exitUsage
	}
	fmt.Fprintln(stderr, "edged:", strings.TrimSpace(err.Error()))
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
