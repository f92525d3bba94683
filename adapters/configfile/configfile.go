// Package configfile reads the configuration of a program into a struct: from a small YAML
// file, then from environment variables that override it, then from defaults.
//
// The struct is the manual: a field has its key in the tag yaml, its default in the tag
// default, and its meaning in a comment. A field is a string, boolean, integer, duration,
// list of strings, map of strings, struct or list of structs. The environment cannot set
// maps and lists of structs.
//
// Messages name file, line, column and field. They quote a value only if a boolean, an
// integer or a duration was expected, because a string may be a secret in the wrong place.
// Secrets are in files of their own: see [Secret].
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
)

// Origin is where a value came from.
type Origin struct {
	Kind string // FromFile, FromEnvironment or FromDefault
	At   string // file:line:column, or the name of the variable
}

// The kinds of [Origin].
const (
	FromFile        = "file"
	FromEnvironment = "environment"
	FromDefault     = "default"
)

// File is a configuration with the origin of each value and the faults found in it.
type File struct {
	name   string
	prefix string
	into   any
	from   map[string]Origin
	list   []error
}

const (
	maxFile    = 64 << 10 // bytes; a long configuration has two hundred lines
	maxSecret  = 16 << 10 // bytes
	mostFaults = 20       // faults shown
)

// Read fills into, a pointer to a struct, from a file, the environment and defaults. A
// variable's name is prefix and the path of the key in capitals ([Variable]). An empty path
// means no file. The error joins all faults.
func Read(path, prefix string, getenv func(string) string, into any) (*File, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = Small(path, maxFile); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	return Parse(path, data, prefix, getenv, into)
}

// Parse is [Read] with the content of the file.
func Parse(path string, data []byte, prefix string, getenv func(string) string, into any) (*File, error) {
	f := &File{name: path, prefix: prefix, into: into, from: map[string]Origin{}}
	if path == "" {
		f.name = "environment"
	}
	(&reader{f}).read(data, reflect.ValueOf(into).Elem())
	for _, field := range f.fields() {
		name := Variable(prefix, field.path)
		if getenv(name) == "" || !field.plain() {
			continue
		}
		// The variable replaces a list as a whole, so forget where its entries came from.
		maps.DeleteFunc(f.from, func(p string, _ Origin) bool { return strings.HasPrefix(p, field.path+"[") })
		f.from[field.path] = Origin{FromEnvironment, name}
		if err := set(field.value, getenv(name)); err != nil {
			f.Add(field.path, "%v", err)
		}
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	for _, field := range f.fields() {
		if _, given := f.from[field.path]; given {
			continue
		}
		f.from[field.path] = Origin{Kind: FromDefault}
		if field.standard == "" {
			continue
		}
		if err := set(field.value, field.standard); err != nil {
			f.Add(field.path, "%v", err)
		}
	}
	return f, f.Err()
}

// New returns an empty File that collects the faults of another source, such as flags. The
// name is the origin that its messages show.
func New(name string) *File { return &File{name: name, from: map[string]Origin{}} }

// Afresh returns a File with the same values and no faults.
func (f *File) Afresh() *File {
	return &File{name: f.name, prefix: f.prefix, into: f.into, from: f.from}
}

// Drop clears the value of a field that another field overrides.
func (f *File) Drop(path string) {
	for _, field := range f.fields() {
		if field.path == path {
			field.value.SetZero()
			f.from[path] = Origin{Kind: FromDefault}
		}
	}
}

// Given reports whether the environment sets any field of a struct.
func Given(prefix string, getenv func(string) string, into any) bool {
	f := &File{into: into}
	return slices.ContainsFunc(f.fields(), func(field field) bool {
		return getenv(Variable(prefix, field.path)) != ""
	})
}

// Origin returns where the value of the field at a path such as "gateway.url" came from.
func (f *File) Origin(path string) Origin { return f.from[path] }

// Resolve makes a relative path from the file relative to the file's directory. A path from
// the environment stays relative to the working directory.
func (f *File) Resolve(field string, path *string) {
	if *path != "" && f.from[field].Kind == FromFile && !filepath.IsAbs(*path) {
		*path = filepath.Join(filepath.Dir(f.name), *path)
	}
}

// Unknown returns the environment variables that begin with the prefix and match no field:
// most likely misspelt.
func (f *File) Unknown(environ []string) (unknown []string) {
	var known []string
	for _, field := range f.fields() {
		if field.plain() {
			known = append(known, Variable(f.prefix, field.path))
		}
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, f.prefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Add records a fault of a field.
func (f *File) Add(path, format string, args ...any) {
	at := f.name
	for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if o := f.from[p]; o.At != "" {
			at = o.At
			break
		}
	}
	f.addAt(at, path, format, args...)
}

func (f *File) addAt(at, path, format string, args ...any) {
	if path != "" {
		at += ": " + path
	}
	f.list = append(f.list, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

// Err returns the recorded faults, or nil when there are none.
func (f *File) Err() error {
	if n := len(f.list); n > mostFaults {
		return errors.Join(append(f.list[:mostFaults:mostFaults], fmt.Errorf("and %d more", n-mostFaults))...)
	}
	return errors.Join(f.list...)
}

// Variable returns the name of the environment variable of a field.
func Variable(prefix, path string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// field holds one value.
type field struct {
	path     string // its keys, joined by dots
	standard string // its default
	value    reflect.Value
}

// plain reports whether an environment variable can set the field.
func (f field) plain() bool {
	kind := f.value.Kind()
	return kind != reflect.Map && (kind != reflect.Slice || f.value.Type().Elem().Kind() == reflect.String)
}

func (f *File) fields() []field { return fieldsOf(reflect.ValueOf(f.into).Elem(), "") }

func fieldsOf(v reflect.Value, path string) (out []field) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := tag.Get("yaml")
		switch {
		case key == "":
		case v.Field(i).Kind() == reflect.Struct:
			out = append(out, fieldsOf(v.Field(i), path+key+".")...)
		default:
			out = append(out, field{path + key, tag.Get("default"), v.Field(i)})
		}
	}
	return out
}

// set parses text into v.
func set(v reflect.Value, text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("holds a control character, such as the end of a line; leave it out")
	}
	switch v.Interface().(type) {
	case string:
		v.SetString(text)
	case bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration; write for example 4s or 250ms", text)
		}
		v.SetInt(int64(d))
	case []string:
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		v.Set(reflect.ValueOf(list))
	default:
		return fmt.Errorf("cannot read a %s from text", v.Type())
	}
	return nil
}

// Value is one effective value.
type Value struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from"`         // file, environment or default
	At    string `json:"at,omitempty"` // file:line:column, or the variable
}

// Values returns the effective values in the order of the struct.
func (f *File) Values() (out []Value) {
	for _, field := range f.fields() {
		origin := f.from[field.path]
		v := Value{Key: field.path, Value: field.value.Interface(), From: origin.Kind, At: origin.At}
		if d, ok := v.Value.(time.Duration); ok {
			v.Value = d.String()
		} else if list, ok := v.Value.([]string); ok {
			v.Value = append([]string{}, list...)
		}
		out = append(out, v)
	}
	return out
}

// YAML writes values as a configuration file, with the origin of each in a comment.
func YAML(values []Value) ([]byte, error) {
	var out bytes.Buffer
	var open []string // keys of the enclosing mappings
	for _, v := range values {
		keys := strings.Split(v.Key, ".")
		above, key := keys[:len(keys)-1], keys[len(keys)-1]
		for i, k := range above {
			if i >= len(open) || open[i] != k || !slices.Equal(open[:i], above[:i]) {
				fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", i), k)
			}
		}
		open = above
		text, err := yaml.MarshalWithOptions(v.Value, yaml.Flow(true))
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", v.Key, err)
		}
		from := v.From
		if v.At != "" {
			from = v.At
		}
		fmt.Fprintf(&out, "%s%s: %s # %s\n", strings.Repeat("  ", len(above)), key, bytes.TrimSpace(text), from)
	}
	return out.Bytes(), nil
}

// Small returns the content of a regular file of at most most bytes.
func Small(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d KiB", path, most>>10)
	}
	return data, nil
}

// Secret returns the content of a file without trailing line ends. It refuses a file that
// users other than its owner may open. The exceptions are files of root that no one else may
// write: with group access (mode 0440, as Kubernetes sets with fsGroup), or below the
// directories where container engines mount secrets. Errors never quote the content.
func Secret(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no file %s; create it, readable by this program alone", path)
	}
	if err != nil {
		return "", err
	}
	if Exposed(path, info) {
		return "", fmt.Errorf(
			"%s is open to users other than its owner (mode %04o); if nobody read it: chmod 600 %s",
			path, info.Mode().Perm(), path,
		)
	}
	data, err := Small(path, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty; write the secret into it", path)
	}
	return secret, nil
}

var secretMounts = []string{"/run/secrets/", "/var/run/secrets/"}

// Exposed reports whether a file is accessible to users that it is not meant for, by the
// rules of [Secret].
func Exposed(path string, info fs.FileInfo) bool {
	perm := info.Mode().Perm()
	if perm&0o077 == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 || perm&0o022 != 0 {
		return true
	}
	if perm&0o007 == 0 {
		return false
	}
	return !slices.ContainsFunc(secretMounts, func(dir string) bool {
		return strings.HasPrefix(filepath.Clean(path), dir)
	})
}
