// Package buildinfo reports what a program was built from.
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

// Version is what a program was built from.
type Version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`  // of the module; (devel) for a build of a working tree
	Commit   string `json:"commit"`   // "unknown" where the build did not record it
	Date     string `json:"date"`     // of the commit, RFC 3339; empty where it is unknown
	Modified bool   `json:"modified"` // the working tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Methods are the method versions by name. A result carries the method version that
	// computed it.
	Methods map[string]string `json:"methods,omitempty"`
}

// commit is set by the linker where a build has no repository:
//
//	-ldflags "-X quartermaster/adapters/buildinfo.commit=COMMIT"
var commit string

// Of returns the version of this build. A method has the form name/version, such as
// "folds/7".
func Of(program string, methods ...string) Version {
	v := Version{
		Program:  program,
		Version:  "unknown",
		Commit:   commit,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
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

// String returns one line for the program, one for the toolchain and one for each method.
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
