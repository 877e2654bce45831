package main

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/log"
	"github.com/mattn/go-isatty"
	"github.com/muesli/termenv"
)

// newLog makes the log of the process. The text form has colours only when w is a terminal and NO_COLOR is not set.
func newLog(w io.Writer, format, level string) *slog.Logger {
	least, err := log.ParseLevel(level)
	if err != nil {
		least = log.InfoLevel
	}
	options := log.Options{
		ReportTimestamp: true,
		TimeFunction:    log.NowUTC,
		TimeFormat:      "2006-01-02T15:04:05.000Z07:00",
		Level:           least,
	}
	if format == "json" {
		options.Formatter = log.JSONFormatter
		options.TimeFormat = time.RFC3339Nano
	}
	logger := log.NewWithOptions(&lineWriter{w: w}, options)
	logger.SetColorProfile(colours(w))
	return slog.New(logger)
}

// colours is what w can show. The library would ask a terminal itself, and wait seconds for one that does not answer,
// such as a serial console: lineWriter hides the terminal from it.
func colours(w io.Writer) termenv.Profile {
	f, ok := w.(*os.File)
	term := os.Getenv("TERM")
	switch {
	case !ok || !isatty.IsTerminal(f.Fd()) || os.Getenv("NO_COLOR") != "" || term == "dumb" || term == "":
		return termenv.Ascii
	case strings.Contains(term, "256color") || os.Getenv("COLORTERM") != "":
		return termenv.ANSI256
	}
	return termenv.ANSI
}

// lineWriter lets one line through at a time: loggers that were made by With do not share the library's lock.
type lineWriter struct {
	mu sync.Mutex // held for one write
	w  io.Writer
}

// Write implements io.Writer.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
