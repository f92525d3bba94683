package check_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// solvers are the packages that find solutions, and where their sources are.
var solvers = map[string]string{
	"quartermaster/domain/procurement":       "../*.go",
	"quartermaster/domain/procurement/joint": "../joint/*.go",
}

// The checker uses the solvers' types and constants and calls none of their functions: a shared
// mistake would prove itself.
func TestSharesNoCodeWithTheSolver(t *testing.T) {
	for _, file := range []string{"check.go", "joint.go", "hour.go", "windows.go"} {
		for _, name := range called(t, file, nil) {
			t.Errorf("%s uses %s", file, name)
		}
	}
	for _, path := range imported(t, "small.go") {
		if strings.HasPrefix(path, "quartermaster/") {
			t.Errorf("small.go imports %s", path)
		}
	}
	if files, err := filepath.Glob("*.go"); err != nil || len(slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })) != 5 {
		t.Errorf("there are other files: %q, %v", files, err)
	}
	bad := `package check
import "quartermaster/domain/procurement"
func f(p *procurement.Pool, s *procurement.Solution) { _ = p.Validate(); _, _ = procurement.Solve(p); g := s.Gap; _ = g }`
	if got := strings.Join(called(t, "bad.go", bad), " "); got != "Validate Solve Gap" {
		t.Errorf("of Validate, Solve and Gap this test sees %q", got)
	}
	bad = `package check
import "quartermaster/domain/procurement/joint"
func f(p *joint.Problem, s *joint.Solution) { _ = p.Validate(); _, _ = joint.Evaluate(p, s.Units); _, _ = s.Certificate.Bound(p) }`
	if got := strings.Join(called(t, "bad.go", bad), " "); got != "Validate Evaluate Bound" {
		t.Errorf("of Validate, Evaluate and Bound this test sees %q", got)
	}
}

// The question is read without the planner and the solvers: package question imports nothing of this
// module but package domain, and package certificate uses the solvers' types and constants alone.
func TestQuestionIsReadApart(t *testing.T) {
	allowed := []string{"quartermaster/domain", "github.com/shopspring/decimal"}
	for _, path := range imported(t, "question/*.go") {
		if strings.Contains(path, ".") && !slices.Contains(allowed, path) || strings.HasPrefix(path, "quartermaster/") && !slices.Contains(allowed, path) {
			t.Errorf("package question imports %s", path)
		}
	}
	allowed = append(allowed, "quartermaster/domain/procurement", "quartermaster/domain/procurement/joint",
		"quartermaster/domain/procurement/check", "quartermaster/domain/procurement/check/question")
	for _, path := range imported(t, "certificate/*.go") {
		if strings.HasPrefix(path, "quartermaster/") && !slices.Contains(allowed, path) {
			t.Errorf("package certificate imports %s", path)
		}
	}
	for _, name := range called(t, "certificate/certificate.go", nil) {
		t.Errorf("certificate.go uses %s", name)
	}
}

// imported lists what the files of a package import, its tests apart.
func imported(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			paths = append(paths, strings.Trim(i.Path.Value, `"`))
		}
	}
	return paths
}

// solverOnly imports the solvers from their sources and nothing else. Declarations of other
// packages are not needed; the type checker's errors about them are ignored.
type solverOnly struct {
	t    *testing.T
	fset *token.FileSet
}

func config(i types.Importer) *types.Config {
	return &types.Config{Importer: i, Error: func(error) {}}
}

func (i solverOnly) Import(path string) (*types.Package, error) {
	sources, is := solvers[path]
	if !is {
		return nil, errors.New("not imported")
	}
	names, err := filepath.Glob(sources)
	if err != nil {
		i.t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(i.fset, name, nil, 0)
		if err != nil {
			i.t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, _ := config(i).Check(path, i.fset, files, nil)
	pkg.MarkComplete()
	return pkg, nil
}

// called lists what a file uses of the solver besides types, fields and
// constants.
func called(t *testing.T, file string, source any) (names []string) {
	t.Helper()
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, file, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	_, _ = config(solverOnly{t, fset}).Check("check", fset, []*ast.File{syntax}, info)
	seen := 0
	ast.Inspect(syntax, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		obj := info.Uses[id]
		if obj == nil || obj.Pkg() == nil || solvers[obj.Pkg().Path()] == "" {
			return true
		}
		seen++
		switch o := obj.(type) {
		case *types.TypeName, *types.Const:
		case *types.Var:
			if !o.IsField() {
				names = append(names, id.Name)
			}
		default:
			names = append(names, id.Name)
		}
		return true
	})
	if seen == 0 {
		t.Fatalf("%s uses nothing of the solvers: this test sees nothing", file)
	}
	return names
}
