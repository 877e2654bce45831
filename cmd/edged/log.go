package main

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/log"
)

// newLog makes the log of the process. The text form has colours only when w is a terminal and NO_COLOR is not set.
func newLog(w io.Writer, format, level string) *slog.Logger {
	// Loggers that were made by With do not share the library's lock; a file brings its own.
	if _, file := w.(*os.File); !file {
		w = &lineWriter{w: w}
	}
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
	return slog.New(log.NewWithOptions(w, options))
}

// lineWriter lets one line through at a time.
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
