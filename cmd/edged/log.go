package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/charmbracelet/log"
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
	return slog.New(log.NewWithOptions(w, options))
}
