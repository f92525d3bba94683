// Package quartermaster_test checks rules of the whole module: which package may import which,
// and that links in documents have targets.
package quartermaster_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rules says what each package may import besides the standard library. The first line whose
// pattern matches a package is its rule. A package that no line matches is an error.
//
// A pattern is a folder. "x/*" is a folder directly under x, "x/..." is x and everything below
// it. The words after the colon are our folders and third-party modules that may be imported,
// in the same patterns ("x/..." only), or
//
//	pure    no packages of the standard library that access files, network, environment or
//	        randomness; see impure
//	own     everything below the folder that the pattern matches
//	any     every third-party module
//	-what   never, even if another word permits it
//
// Tests follow the rule of their package. They may also import the package itself, packages
// below it, those in testOnly and proving, and packages that pure forbids.
const rules = `
.:

domain:                 pure  github.com/shopspring/decimal
domain/long:            pgregory.net/rapid
domain/linear:          pure  domain  github.com/shopspring/decimal
domain/plan:            pure  domain/...  github.com/shopspring/decimal
domain/merkle:          pure  domain  github.com/transparency-dev/...  golang.org/x/mod/...
domain/instance:        pure  domain/...  github.com/shopspring/decimal  github.com/go-json-experiment/json/...
domain/procurement/joint: pure  domain  domain/linear  domain/procurement  github.com/shopspring/decimal
domain/procurement/baseline: pure  domain  domain/procurement
domain/procurement/check: pure  domain  domain/procurement  domain/procurement/joint  github.com/shopspring/decimal
domain/procurement/check/question: pure  domain  github.com/shopspring/decimal
domain/procurement/check/certificate: pure  domain  domain/procurement  domain/procurement/joint  domain/procurement/check  domain/procurement/check/question  github.com/shopspring/decimal
domain/recommend:       pure  domain  domain/advice  domain/linear  github.com/shopspring/decimal
domain/recommend/house: pure  domain  domain/advice  domain/recommend  github.com/shopspring/decimal
domain/packing/online:  pure  domain  domain/packing  github.com/shopspring/decimal
domain/*:               pure  domain  domain/linear  github.com/shopspring/decimal

projections:            pure  domain  github.com/shopspring/decimal  github.com/fxamacker/cbor/...  github.com/klauspost/compress/...  golang.org/x/sync/...
projections/storetest:  domain/...  projections/...  github.com/shopspring/decimal  pgregory.net/rapid
projections/*:          pure  domain/...  projections/...  github.com/shopspring/decimal

simulations/public:     domain/...
simulations/...:        pure  domain/...  projections/...  own  github.com/shopspring/decimal

schemas/events/...:     own  google.golang.org/protobuf/...  github.com/planetscale/vtprotobuf/...
schemas/delivery/...:   own  google.golang.org/protobuf/...  github.com/planetscale/vtprotobuf/...
schemas/frames/...:     own  google.golang.org/protobuf/...  github.com/planetscale/vtprotobuf/...
schemas/...:

adapters/bucket:        domain/...  projections/...  adapters/kafka/...  adapters/parts  any
adapters/wire/...:      domain/...  projections/...  simulations/...  own  schemas/...  any
adapters/dcgm/...:      domain/...  projections/...  simulations/...  own  schemas/...  any
adapters/focus/...:     domain/...  projections/...  simulations/...  own  adapters/tabular  schemas  any
adapters/bill/...:         domain/...  own  adapters/focus  adapters/tabular  schemas  any
adapters/ledger/...:    domain/...  projections/...  own  adapters/tabular  any
adapters/importer/...:  domain/...  projections/...  simulations/...  own  adapters/tabular  schemas  any
adapters/httpapi/...:   domain/...  projections/...  simulations/...  own  adapters/admission  adapters/transport  schemas  any
adapters/transport/...: domain/...  own  adapters/configfile  any
adapters/remotewrite/...: domain/...  projections/...  simulations/...  own  adapters/admission  schemas  any
adapters/durable:
adapters/coding:
adapters/web:           domain  adapters/coding
adapters/*/...:         domain/...  projections/...  simulations/...  own  adapters/durable  schemas  any

cmd/quartermaster-audit/...: github.com/shopspring/decimal  domain/...  projections/...  adapters/wire  adapters/commandline  adapters/buildinfo  own  schemas/...  github.com/spf13/...  github.com/klauspost/compress/...  github.com/pierrec/lz4/...  github.com/parquet-go/...  golang.org/x/mod/...
cmd/quartermaster/internal/config/...: domain/...  projections  own  adapters/...  any
cmd/quartermaster/internal/app/...: domain/...  projections/...  simulations/...  adapters/...  cmd/quartermaster/internal/config  schemas  deploy/runbooks  any  -net/http/...  -github.com/spf13/...  -github.com/jedib0t/...  -github.com/vbauerster/...  -adapters/commandline  -adapters/chart/...  -adapters/httpapi/...
cmd/quartermaster/internal/cli/...: domain/...  projections/...  simulations/...  adapters/...  cmd/quartermaster/internal/app  cmd/quartermaster/internal/config  schemas  deploy/runbooks  any
cmd/quartermaster/internal/api:   domain/...  projections/access  adapters/coding  cmd/quartermaster/internal/app  cmd/quartermaster/internal/cli  schemas  any
cmd/quartermaster/internal/daemon/...: domain/...  projections/...  simulations/...  adapters/...  cmd/quartermaster/internal/api  cmd/quartermaster/internal/app  cmd/quartermaster/internal/config  schemas  any
cmd/quartermaster/internal/apptest: domain/...  projections/...  adapters/...  cmd/quartermaster/internal/app  schemas  any
deploy/dev/idp:         any
deploy/runbooks:
cmd/*/...:              domain/...  projections/...  simulations/...  adapters/...  own  schemas  any
`

// testOnly may be imported by every test.
var testOnly = []string{
	"pgregory.net/rapid",
	"github.com/rogpeppe/go-internal/...",
}

// proving may be imported by every test: the solver of linear programs and its port, the
// checker, the public data, and the counts of random cases.
var proving = []string{"domain/long", "domain/linear", "adapters/highs", "domain/procurement/check", "simulations/public"}

// support lists packages for tests. Nothing else may import them.
var support = []string{"domain/long", "projections/storetest", "simulations/public", "adapters/transport/testcert", "adapters/oidc/oidctest", "adapters/witness/witnesstest", "adapters/kafka/freeport", "cmd/quartermaster/internal/config/configtest", "cmd/quartermaster/internal/apptest", "adapters/commandline/manual"}

// impure lists packages that a pure package may not import, because everything it needs is
// passed in. The linter forbids functions that read a clock (.golangci.yml), because package
// time also has pure functions.
var impure = []string{
	"C", "crypto/rand", "database/sql/...", "io/ioutil", "log/...", "math/rand/...", "net/...",
	"os/...", "plugin", "syscall/...",
}

// cgo lists the packages that may import "C". Everything else runs without a C
// compiler.
var cgo = []string{"cmd/dcgm-collector/..."}

const module = "quartermaster"

type rule struct {
	pattern string
	words   []string
}

func parseRules(t *testing.T, text string) []rule {
	t.Helper()
	var rs []rule
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		pattern, words, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("rule %q has no colon", line)
		}
		rs = append(rs, rule{pattern, strings.Fields(words)})
	}
	return rs
}

// match reports whether a folder or import path matches a pattern, and returns the leading part
// that the pattern matches.
func match(pattern, name string) (root string, ok bool) {
	pattern, below := strings.CutSuffix(pattern, "/...")
	want, have := strings.Split(pattern, "/"), strings.Split(name, "/")
	if len(have) < len(want) || len(have) > len(want) && !below {
		return "", false
	}
	for i, w := range want {
		if w != "*" && w != have[i] {
			return "", false
		}
	}
	return strings.Join(have[:len(want)], "/"), true
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { _, ok := match(p, name); return ok })
}

// refuse returns why the package in dir may not import a package, or "" if it may.
func refuse(rs []rule, dir, imported string, test bool) string {
	i := slices.IndexFunc(rs, func(r rule) bool { _, ok := match(r.pattern, dir); return ok })
	if i < 0 {
		return "the rules do not list this package"
	}
	root, _ := match(rs[i].pattern, dir)
	words := rs[i].words

	ours := strings.TrimPrefix(imported, module+"/")
	if imported == module {
		ours = "."
	}
	first, _, _ := strings.Cut(imported, "/")
	never := func(w string) bool {
		w, is := strings.CutPrefix(w, "-")
		return is && (matchAny([]string{w}, ours) || matchAny([]string{w}, imported))
	}
	switch {
	case !test && slices.ContainsFunc(words, never):
		return fmt.Sprintf("%s may never import it", rs[i].pattern)
	case first == module:
		switch {
		case test && ours == dir:
		case test && strings.HasPrefix(ours, dir+"/"): // packages below may help to test it
		case test && matchAny(proving, ours):
		// The audit program shares nothing with the server, and its tests read what the server writes.
		case test && matchAny([]string{"cmd/quartermaster-audit/..."}, dir) && matchAny([]string{"adapters/..."}, ours):
		case test && ours == "cmd/quartermaster/internal/apptest" && strings.HasPrefix(dir, "cmd/quartermaster/"):
		case !test && matchAny(support, ours) && !matchAny(support, dir):
			return "only tests may import it"
		case slices.Contains(words, "own") && strings.HasPrefix(ours+"/", root+"/"):
		case !matchAny(words, ours):
			return fmt.Sprintf("%s may not import it", rs[i].pattern)
		}
	case imported == "C" && !matchAny(cgo, dir):
		return "only the collector is built with cgo"
	case !strings.Contains(first, "."): // the standard library
		if slices.Contains(words, "pure") && !test && matchAny(impure, imported) {
			return fmt.Sprintf("%s is pure", rs[i].pattern)
		}
	case slices.Contains(words, "any"), test && matchAny(testOnly, imported):
	case !matchAny(words, imported):
		return fmt.Sprintf("%s may not import this module", rs[i].pattern)
	}
	return ""
}

type finding struct {
	file, imported, why string
}

// check applies the rules to every Go file under root. It ignores build tags, so that packages
// that this machine does not build are checked too. It also returns the folders with Go files.
func check(t *testing.T, rs []rule, root string) (found []finding, dirs []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); file != root && (n == "testdata" || strings.HasPrefix(n, ".") || strings.HasPrefix(n, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		// A file without imports must be in a listed package as well.
		if why := refuse(rs, dir, "fmt", false); why != "" {
			found = append(found, finding{rel, "", why})
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if why := refuse(rs, dir, imported, strings.HasSuffix(file, "_test.go")); why != "" {
				found = append(found, finding{rel, imported, why})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, dirs
}

func TestImports(t *testing.T) {
	found, dirs := check(t, parseRules(t, rules), ".")
	for _, f := range found {
		t.Errorf("%s imports %q: %s", f.file, f.imported, f.why)
	}
	if !slices.Contains(dirs, "domain") {
		t.Errorf("the check did not see the whole module, only %v", dirs)
	}
}

// The tree under testdata/imports violates every rule once. A comment marks each import that
// must be refused. No other import may be refused.
func TestImportsBite(t *testing.T) {
	const root = "testdata/imports"
	found, _ := check(t, parseRules(t, rules), root)
	var got []string
	for _, f := range found {
		got = append(got, f.file+" "+f.imported)
	}
	want := expected(t, root)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 20 {
		t.Errorf("only %d marked violations under %s: the tree was not read", len(want), root)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not refused: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("refused: %s", g)
		}
	}
}

var (
	refusedImport  = regexp.MustCompile(`"([^"]+)" +// refused$`)
	refusedPackage = regexp.MustCompile(`^package \w+ // refused$`)
)

// expected reads the comments that mark what must be refused.
func expected(t *testing.T, root string) []string {
	t.Helper()
	var want []string
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if m := refusedImport.FindStringSubmatch(line); m != nil {
				want = append(want, file+" "+m[1])
			} else if refusedPackage.MatchString(line) {
				want = append(want, file+" ")
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want
}
