package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -X main.version=1.2.3.
var version = "devel"

type versionCommand struct{}

// Run prints version, revision, toolchain and platform on one line.
func (versionCommand) Run(p *program) error {
	_, err := fmt.Fprintf(p.stdout, "edged %s (%s, %s, %s/%s)\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// revision is the commit that the program was built from.
func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown revision"
	}
	rev, dirty := "unknown revision", ""
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+"
			}
		}
	}
	return rev + dirty
}
