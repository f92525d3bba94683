package cli

import (
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
)

// TestEveryCommandIsServedOrSaysWhyNot holds the lists of the API to the commands.
func TestEveryCommandIsServedOrSaysWhyNot(t *testing.T) {
	root := (&Program{App: &app.App{}, out: io.Discard, err: io.Discard}).tree()
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		path := strings.TrimPrefix(c.CommandPath(), "quartermaster ")
		known[path] = true
		if !c.Runnable() || c == root || c.Annotations["group"] != "" {
			return
		}
		_, decides := decisions[path]
		if _, served := operations[path]; !served && !decides && whyNot(path) == whyNot("") {
			t.Errorf("%q is neither an operation nor says why not", path)
		}
	}
	walk(root)
	for path := range operations {
		if !known[path] {
			t.Errorf("operation %q is not a command", path)
		}
	}
	for path := range decisions {
		if !known[path] {
			t.Errorf("decision %q is not a command", path)
		}
	}
	for path := range notServed {
		if !known[path] && path != "serve" { // which the program adds
			t.Errorf("%q is not a command", path)
		}
	}
	for _, path := range withoutLog {
		if !known[path] {
			t.Errorf("%q is not a command", path)
		}
	}
}

// TestOperationsTakeNoFiles holds what the API takes to flags that are not about the machine of the person who asks.
func TestOperationsTakeNoFiles(t *testing.T) {
	for _, op := range append(Operations(), Decisions()...) {
		for _, name := range op.Files {
			if op.param(name) == nil || !op.Posted() {
				t.Errorf("%v: the file %s is not a parameter, or nothing sends it", op.Words, name)
			}
		}
		for _, p := range op.Params {
			words := strings.Join(op.Words, " ")
			if !slices.Contains(op.Files, p.Name) && words+" "+p.Name != "plan demand" && slices.Contains([]string{"out", "file", "key", "key_file", "layout", "demand", "chart", "public_key_of", "new_key", "checkpoint_key", "from_file", "data_dir", "config", "brokers", "server", "quiet", "output", "width", "help"}, p.Name) {
				t.Errorf("%v takes %s", op.Words, p.Name)
			}
			if p.Text == "" || p.Type == "" {
				t.Errorf("%v: %s has no text or type", op.Words, p.Name)
			}
		}
	}
}

// FuzzWords gives operations any query. Only parameters of the operation reach its command line, and arguments are
// never read as flags.
func FuzzWords(f *testing.F) {
	ops := append(Operations(), Decisions()...)
	for i := range ops {
		f.Add(i, "as_of=x&by=a&by=b&where=c")
		f.Add(i, "kind=--data-dir&name=/etc&plan=-o&id=--")
	}
	f.Fuzz(func(t *testing.T, i int, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		op := &ops[((i%len(ops))+len(ops))%len(ops)]
		words, err := op.words(q)
		if err != nil {
			return
		}
		words = words[len(op.Words):]
		end := slices.Index(words, "--")
		for _, w := range words[:end] {
			name, _, ok := strings.Cut(strings.TrimPrefix(w, "--"), "=")
			if !ok || !slices.ContainsFunc(op.Params, func(p Param) bool { return p.flag == name }) {
				t.Errorf("%v: %q", op.Words, w)
			}
		}
	})
}

// TestExamplesOfParameters holds that whoever reads the document of the API sees what each question needs.
func TestExamplesOfParameters(t *testing.T) {
	n := 0
	for _, op := range Operations() {
		for _, p := range op.Params {
			if p.Example != "" {
				n++
			} else if p.Required {
				t.Errorf("no example of %v has %s", op.Words, p.Name)
			}
		}
		q := url.Values{}
		for _, p := range op.Params {
			if p.Example != "" {
				q.Set(p.Name, p.Example)
			}
		}
		if err := op.Check(q); err != nil {
			t.Errorf("the examples of %v: %v", op.Words, err)
		}
	}
	if n < 100 {
		t.Errorf("%d parameters have examples", n)
	}
}

// TestArgumentsAreWords holds that no sign of a usage line is taken for an argument: nobody could give it.
func TestArgumentsAreWords(t *testing.T) {
	for _, op := range append(Operations(), Decisions()...) {
		for _, p := range op.Params {
			if !regexp.MustCompile(`^[a-z][a-z0-9_/]*$`).MatchString(p.Name) {
				t.Errorf("%v has a parameter %q", op.Words, p.Name)
			}
		}
	}
}
