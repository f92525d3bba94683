package quartermaster_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	mdFence  = regexp.MustCompile("^ *(```|~~~)")
	mdCode   = regexp.MustCompile("`[^`]*`")
	mdLink   = regexp.MustCompile(`\]\(([^)\s]+)(?: "[^"]*")?\)`)
	mdSource = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	mdRest   = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
	mdFunc   = regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([^)\\s]+\\.go)\\)")
	// A page of this repository that a message or a comment names.
	namedPage = regexp.MustCompile(`(^|[^/\w.-])(docs/[\w/-]+\.md)(#[\w-]+)?`)
)

// page is a document: its links and the anchors that its headings make.
type page struct {
	links   []link
	anchors map[string]bool
}

type link struct {
	line   int
	target string
}

// readPage reads the links and headings of Markdown as GitHub renders it.
func readPage(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if mdFence.MatchString(line) {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			anchor := anchorOf(title)
			for n := 1; p.anchors[anchor]; n++ {
				anchor = fmt.Sprintf("%s-%d", anchorOf(title), n)
			}
			p.anchors[anchor] = true
		}
		bare := mdCode.ReplaceAllString(line, "")
		for _, re := range []*regexp.Regexp{mdLink, mdSource} {
			for _, m := range re.FindAllStringSubmatch(bare, -1) {
				p.links = append(p.links, link{i + 1, m[1]})
			}
		}
	}
	return p
}

// anchorOf returns GitHub's anchor for a heading.
func anchorOf(title string) string {
	title = mdLink.ReplaceAllString(title, "]")
	title = strings.Map(unicode.ToLower, strings.TrimSpace(title))
	return strings.ReplaceAll(mdRest.ReplaceAllString(title, ""), " ", "-")
}

// broken says why a link has no target. It returns "" for a good link and for other sites.
func broken(from, target string, pages map[string]page) string {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
		if strings.HasPrefix(u.Path, "/") || strings.HasPrefix(to, "..") {
			return "it leaves the repository"
		}
		if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
			return "there is no such file"
		}
	}
	if u.Fragment == "" {
		return ""
	}
	p, ok := pages[to]
	switch {
	case !ok:
		return "it is not Markdown, so it has no headings"
	case !p.anchors[u.Fragment]:
		return "no heading there has this anchor"
	}
	return ""
}

// declares reports whether Go source declares a function, a method as Type.Method, or a type.
func declares(source, name string) bool {
	if typ, method, ok := strings.Cut(name, "."); ok {
		return regexp.MustCompile(`(?m)^func \(\w* ?\*?` + typ + `\) ` + method + `\(`).MatchString(source)
	}
	return regexp.MustCompile(`(?m)^(func|type) ` + name + `\b`).MatchString(source)
}

// In ARCHITECTURE.md, a link whose text is the name of a function must lead to the file that
// declares it.
func TestNamedFunctions(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range mdFunc.FindAllStringSubmatch(string(text), -1) {
		source, err := os.ReadFile(filepath.FromSlash(m[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		found++
		if !declares(string(source), m[1]) {
			t.Errorf("%s declares no %s", m[2], m[1])
		}
	}
	if found < 30 {
		t.Errorf("found only %d names of functions", found)
	}
	if declares("func (x *T) Read(", "T.Write") || declares("func f(", "g") || !declares("func (T) Read(", "T.Read") {
		t.Error("declares gives a wrong answer")
	}
}

// The first documents for newcomers stay short.
func TestSizes(t *testing.T) {
	architecture, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(architecture); n > 10<<10 {
		t.Errorf("ARCHITECTURE.md has %d bytes, want at most %d: it must be readable in ten minutes", n, 10<<10)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(readme))); n > 900 {
		t.Errorf("README.md has %d words, want at most 900: move details to docs", n)
	}
}

// Every test that guarantees.md names exists. A name that ends in … stands for all tests with
// this prefix.
func TestNamedTests(t *testing.T) {
	var have []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllSubmatch(b, -1) {
			have = append(have, string(m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("docs", "evidence", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)(…?)`).FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		exists := func(name string) bool { return name == m[1] || m[2] != "" && strings.HasPrefix(name, m[1]) }
		if !slices.ContainsFunc(have, exists) {
			t.Errorf("guarantees.md names %s, which does not exist", m[1]+m[2])
		}
	}
	if len(named) < 50 {
		t.Errorf("found only %d names of tests", len(named))
	}
}

// Every link between documents leads to a file and a heading, and every page that code or a
// script names exists.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	named := map[string][]link{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "node_modules" || name == ".git" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		name = filepath.ToSlash(name)
		switch ext := path.Ext(name); ext {
		case ".md", ".go", ".sh", ".yaml", ".txt", ".sql", ".proto", "":
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if ext == ".md" {
				pages[name] = readPage(string(b))
			}
			if ext == ".md" || name == "links_test.go" {
				return nil
			}
			for i, line := range strings.Split(string(b), "\n") {
				if !strings.Contains(line, "docs/") {
					continue
				}
				for _, m := range namedPage.FindAllStringSubmatch(line, -1) {
					named[name] = append(named[name], link{i + 1, m[2] + m[3]})
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for name, p := range pages {
		for _, l := range p.links {
			links++
			if why := broken(name, l.target, pages); why != "" {
				t.Errorf("%s:%d: link to %s: %s", name, l.line, l.target, why)
			}
		}
	}
	for name, ls := range named {
		for _, l := range ls {
			if why := broken("README.md", l.target, pages); why != "" {
				t.Errorf("%s:%d names %s: %s", name, l.line, l.target, why)
			}
		}
	}
	if links < 20 || len(named) < 5 {
		t.Errorf("found only %d links and %d files that name pages", links, len(named))
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	pages := map[string]page{
		"README.md": readPage("# A `b` c: d_e, [f](docs)!\n## Same\n## Same\n```\n# no heading\n[x](none)\n```\n" +
			"`[x](none)` [y](docs/a.md#z \"t\") <img src=\"p.svg\">\n"),
		"go.mod": {},
	}
	if got := fmt.Sprint(pages["README.md"].links); got != "[{1 docs} {8 docs/a.md#z} {8 p.svg}]" {
		t.Errorf("links are %s", got)
	}
	for target, fails := range map[string]bool{
		"#a-b-c-d_e-f": false, "#same-1": false, "#same-2": true, "#no-heading": true, "https://example.com/#x": false,
		"none.md": true, "README.md#same": false, "Makefile": false, "../x": true, "/etc/passwd": true, "Makefile#x": true,
	} {
		if why := broken("README.md", target, pages); (why != "") != fails {
			t.Errorf("%s: %q", target, why)
		}
	}
}
