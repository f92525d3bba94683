// Package buildinfo says what a program is built from.
package buildinfo

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Version is what a program is built from.
type Version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`  // of the module; (devel) for a build of a working tree
	Commit   string `json:"commit"`   // unknown where the build did not say
	Date     string `json:"date"`     // of the commit, RFC 3339; empty where it is unknown
	Modified bool   `json:"modified"` // the tree had changes that are in no commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Methods are the versions of what computes results, by name: a result names
	// the one that made it.
	Methods map[string]string `json:"methods,omitempty"`
}

// commit is set by the linker where a build has no repository at hand:
//
//	-ldflags "-X quartermaster/adapters/buildinfo.commit=COMMIT"
var commit string

// Of reads what is known of this build. Methods are named as
// "folds/7": the name, a slash, and the version.
func Of(program string, methods ...string) Version {
	v := Version{Program: program, Version: "unknown", Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(info.Main.Version, v.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Date = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	v.Commit = cmp.Or(v.Commit, "unknown")
	for _, m := range methods {
		name, _, _ := strings.Cut(m, "/")
		if v.Methods == nil {
			v.Methods = map[string]string{}
		}
		v.Methods[name] = m
	}
	return v
}

// String is a line of the program, one of the toolchain and one for each method.
func (v Version) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, commit %s", v.Program, v.Version, v.Commit)
	if v.Date != "" {
		fmt.Fprintf(&b, " of %s", v.Date)
	}
	if v.Modified {
		b.WriteString(", modified")
	}
	fmt.Fprintf(&b, "\n%s %s\n", v.Go, v.Platform)
	for _, name := range slices.Sorted(maps.Keys(v.Methods)) {
		fmt.Fprintf(&b, "%s\n", v.Methods[name])
	}
	return b.String()
}
