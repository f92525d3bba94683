package quartermaster_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// beneath lists the functions that reach rows which somebody may not see, as folder, function and call. Each narrows its
// result before a question sees it, or is no question: it folds, decides, or is of an operation that needs the whole
// estate. "h.View" and "Conn.View" are narrowed, and not listed.
var beneath = []string{
	// Computed from all rows, and narrowed.
	"cmd/quartermaster/internal/app Decide access.Beneath",
	"cmd/quartermaster/internal/app division access.Beneath",
	"cmd/quartermaster/internal/app judged access.Beneath",
	"cmd/quartermaster/internal/app notesWithin access.Beneath",
	"cmd/quartermaster/internal/app ofOthers access.Beneath",
	"cmd/quartermaster/internal/app postedWithin access.Beneath",
	"cmd/quartermaster/internal/app useBudget access.Beneath", // a workspace's own share of commitments
	"projections/usage newReporter access.Beneath",

	// Below the division of costs, and of operations that need the whole estate.
	"cmd/quartermaster/internal/app divideAsClosed m.View",
	"cmd/quartermaster/internal/app explainClosed m.View",
	"cmd/quartermaster/internal/app generations db.View",
	"cmd/quartermaster/internal/app postedInto m.View",
	"cmd/quartermaster/internal/app postingsProposed m.View",

	// Who asks, and what they may see.
	"cmd/quartermaster/internal/daemon current d.conn.View",
	"cmd/quartermaster/internal/daemon principal d.conn.View",

	// No questions: folding, replaying, repairing and comparing.
	"cmd/quartermaster/internal/app Save h.store.View",
	"cmd/quartermaster/internal/app anew store.View",
	"cmd/quartermaster/internal/app compareUnread h.store.View",
	"cmd/quartermaster/internal/app correct fork.View",
	"cmd/quartermaster/internal/app load m.View",
	"cmd/quartermaster/internal/app replay fresh.View",
	"cmd/quartermaster/internal/app verify fresh.View",

	// Where a Conn narrows.
	"cmd/quartermaster/internal/app View h.DB.ViewOf",
	"cmd/quartermaster/internal/app View h.store.View",
}

// TestBeneath finds every call by which rows are reached that are not narrowed.
func TestBeneath(t *testing.T) {
	var found []string
	for _, root := range []string{"cmd/quartermaster", "projections", "simulations"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			dir := filepath.ToSlash(filepath.Dir(file))
			if dir == "projections" || dir == "projections/storetest" || dir == "cmd/quartermaster/internal/apptest" {
				return nil // stores, and tests
			}
			set := token.NewFileSet()
			syntax, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				return err
			}
			for _, decl := range syntax.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					of, ok := call.Fun.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					var text strings.Builder
					_ = printer.Fprint(&text, set, of)
					switch reads := (of.Sel.Name == "View" || of.Sel.Name == "ViewOf") && len(call.Args) >= 2; {
					case text.String() == "access.Beneath", reads && !narrows(text.String()):
						found = append(found, dir+" "+f.Name.Name+" "+text.String())
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	want := slices.Sorted(slices.Values(beneath))
	for _, f := range found {
		if !slices.Contains(want, f) {
			t.Errorf("%s: rows that are not narrowed are reached; narrow the result and list it, or use Conn.View", f)
		}
	}
	for _, w := range want {
		if !slices.Contains(found, w) {
			t.Errorf("%s is listed, and there is no such call", w)
		}
	}
}

// narrows reports whether a call is of the method of a Conn.
func narrows(call string) bool {
	return slices.Contains([]string{"h.View", "s.conn.View", "r.h.View", "r.conn.View", "g.conn.View", "in.conn.View"}, call)
}
