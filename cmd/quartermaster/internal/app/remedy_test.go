package app

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Only the command line words flags: what stands below it is read by servers and pages too.
func TestNoFlagsBelowTheCommandLine(t *testing.T) {
	flag := regexp.MustCompile(`(^|[ "(])(--[a-z]|-o (json|csv|wide))`)
	files := 0
	for _, dir := range []string{".", "../../../../projections", "../../../../simulations", "../../../../domain"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				l, ok := n.(*ast.BasicLit)
				// Kafka's own tool has flags of its own.
				if ok && l.Kind == token.STRING && flag.MatchString(l.Value) && !strings.Contains(l.Value, "kafka-configs.sh") {
					t.Errorf("%s: %s names a flag: give the error a remedy", set.Position(l.Pos()), l.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
}

func TestRemedyOf(t *testing.T) {
	err := fmt.Errorf("read: %w", &helped{&DeniedError{Err: errors.New("no")}, RemedyAuthority})
	if RemedyOf(err) != RemedyAuthority || KindOf(err) != KindDenied || err.Error() != "read: no" {
		t.Errorf("%q is of kind %s with remedy %s", err, KindOf(err), RemedyOf(err))
	}
	if RemedyOf(errors.New("x")) != RemedyNone {
		t.Error("an error without a remedy has one")
	}
}
