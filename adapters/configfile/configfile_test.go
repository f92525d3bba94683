package configfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

type inner struct {
	File string        `yaml:"file"`
	Wait time.Duration `yaml:"wait" default:"4s"`
}

type rule struct {
	To     string            `yaml:"to"`
	Labels map[string]string `yaml:"labels"`
}

type sample struct {
	Name  string   `yaml:"name" default:"n"`
	Count int      `yaml:"count" default:"7"`
	On    bool     `yaml:"on"`
	List  []string `yaml:"list"`
	Inner inner    `yaml:"inner"`
	Rules []rule   `yaml:"rules"`
	_     int      // not a field: it has no tag
}

func getenv(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestRead(t *testing.T) {
	text := "name: a\nlist: [x, y]\ninner: {file: f}\nrules:\n  - to: w\n    labels: {k: v, 'a/b': '*'}\n"
	var s sample
	f, err := Parse("/etc/x.yaml", []byte(text), "QX_", getenv(map[string]string{"QX_INNER_WAIT": "9s", "QX_ON": "true", "QX_NAME": ""}), &s)
	if err != nil {
		t.Fatal(err)
	}
	want := sample{
		Name: "a", Count: 7, On: true, List: []string{"x", "y"}, Inner: inner{"f", 9 * time.Second},
		Rules: []rule{{"w", map[string]string{"k": "v", "a/b": "*"}}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v", s)
	}
	f.Resolve("inner.file", &s.Inner.File)
	if s.Inner.File != "/etc/f" || f.Origin("name").At != "/etc/x.yaml:1:7" || f.Origin("inner.wait") != (Origin{FromEnvironment, "QX_INNER_WAIT"}) || f.Origin("count").Kind != FromDefault {
		t.Errorf("%+v, %+v", s.Inner, f.from)
	}
	shown, err := YAML(f.Values())
	if err != nil || !strings.Contains(string(shown), "  wait: 9s # QX_INNER_WAIT\n") {
		t.Errorf("%s: %v", shown, err)
	}
	var again sample
	if _, err := Parse("again.yaml", shown, "", getenv(nil), &again); err != nil {
		t.Errorf("what is shown cannot be read: %v\n%s", err, shown)
	}
	if got := f.Unknown([]string{"QX_NAME=a", "QX_NAMES=b", "PATH=c"}); !reflect.DeepEqual(got, []string{"QX_NAMES"}) {
		t.Errorf("unknown %v", got)
	}
}

// A variable replaces a list of the file as a whole, a value can be dropped, and only the
// file can set a list of structs.
func TestOverrules(t *testing.T) {
	var s sample
	f, err := Parse("f", []byte("name: a\nlist: [x, y]\ninner: {file: f}\n"), "QX_", getenv(map[string]string{"QX_LIST": "z,"}), &s)
	if err != nil {
		t.Fatal(err)
	}
	f.Add("list[1]", "is empty")
	if err := f.Err(); err == nil || err.Error() != "QX_LIST: list[1]: is empty" {
		t.Errorf("%v", err)
	}
	again := f.Afresh()
	again.Drop("inner.file")
	if err := again.Err(); err != nil || s.Inner.File != "" || f.Origin("inner.file").Kind != FromDefault {
		t.Errorf("%v, %+v", err, s)
	}
	if got := f.Unknown([]string{"QX_RULES=a", "QX_LIST=b"}); !reflect.DeepEqual(got, []string{"QX_RULES"}) {
		t.Errorf("unknown %v", got)
	}
	if Given("QX_", getenv(map[string]string{"QX_NAMES": "a"}), &s) || !Given("QX_", getenv(map[string]string{"QX_INNER_WAIT": "1s"}), &s) {
		t.Error("Given is wrong")
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"nam: a":                          "f:1:1: nam: unknown field",
		"name: a\nname: b":                "f:2:1: name: stands on line 1 already",
		"count: seven":                    `f:1:8: count: "seven" is not a whole number`,
		"on: yes":                         "neither true nor false",
		"inner: {wait: 5}":                "is not a duration",
		"list: a":                         "want a list",
		"rules: [{labels: [a]}]":          "rules[0].labels: is a list, want keys with values",
		"rules: [{labels: {a: [b]}}]":     "want one word after each key",
		"rules: [{labels: {a: b, a: c}}]": "duplicate key",
		"a: &x 1":                         "anchors",
		"name: [":                         "is not YAML",
		"name: a\n---\nname: b":           "second document",
		"\x00":                            "not text",
	} {
		var s sample
		if _, err := Parse("f", []byte(text), "QX_", getenv(nil), &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if _, err := Secret(path); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Secret(path); err != nil || s != "hush" {
		t.Errorf("%q: %v", s, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Secret(path); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "open to users other") {
		t.Error(err)
	}
}

// info describes a file with an owner and a mode.
type info struct {
	fs.FileInfo
	mode fs.FileMode
	uid  uint32
}

func (i info) Mode() fs.FileMode { return i.mode }
func (i info) Sys() any          { return &syscall.Stat_t{Uid: i.uid} }

// A secret may be open to its owner, to a group that root chose, and to everyone in a
// container when its engine mounted the secret.
func TestSecretsAreClosed(t *testing.T) {
	for _, c := range []struct {
		path    string
		mode    fs.FileMode
		uid     uint32
		exposed bool
	}{
		{"/etc/s", 0o600, 1000, false},
		{"/etc/s", 0o400, 1000, false},
		{"/etc/s", 0o400, 0, false},
		{"/etc/s", 0o640, 1000, true},
		{"/etc/s", 0o440, 1000, true},
		{"/etc/s", 0o440, 0, false},
		{"/etc/s", 0o640, 0, false},
		{"/etc/s", 0o660, 0, true},
		{"/etc/s", 0o444, 0, true},
		{"/etc/s", 0o604, 0, true},
		{"/run/secrets/s", 0o444, 0, false},
		{"/var/run/secrets/a/s", 0o644, 0, false},
		{"/run/secrets/../s", 0o444, 0, true},
		{"/run/secrets/s", 0o666, 0, true},
		{"/run/secrets/s", 0o444, 1000, true},
	} {
		if got := Exposed(c.path, info{mode: c.mode, uid: c.uid}); got != c.exposed {
			t.Errorf("%s, mode %04o of user %d: exposed %t", c.path, c.mode, c.uid, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: a\nlist: [x]\nrules:\n  - to: w\n    labels: {k: v}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s sample
		file, err := Parse("f", text, "QX_", getenv(nil), &s)
		if err != nil {
			return
		}
		shown, err := YAML(file.Values())
		if err != nil {
			t.Fatalf("%q cannot be shown: %v", text, err)
		}
		_ = shown
	})
}
