package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/durable"
)

// Store is where the objects of an archive are: a directory or a bucket. It is safe for concurrent
// use.
type Store interface {
	// Put stores an object, which is durable when Put returns. It MUST NOT replace one: it fails with
	// [fs.ErrExist] if there is an object with the name: the caller compares its content. After any
	// other error there may be one.
	Put(ctx context.Context, name string, body []byte) error
	// Get returns an object, or [fs.ErrNotExist].
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the names of the objects whose names begin with prefix, which ends in a slash, in
	// the order of their names.
	List(ctx context.Context, prefix string) ([]string, error)
	// String names the store for people.
	String() string
}

// abandoned is the age after which a half-written file cannot belong to a running process.
const abandoned = 24 * time.Hour

const unfinished = ".new-" // begins the names of files that are being written

// OpenStore returns the store at an address: the path of a directory, or a file:// URL of one.
func OpenStore(url string) (Store, error) {
	scheme, path, ok := strings.Cut(url, "://")
	switch {
	case url == "":
		return nil, errors.New("open archive: no place is named")
	case !ok:
		return Directory(url), nil
	case scheme == "file" && filepath.IsAbs(path):
		return Directory(path), nil
	}
	return nil, fmt.Errorf("open archive: %q is neither the path of a directory nor file:///path", url)
}

// Directory is a [Store] in a directory of a file system.
type Directory string

// String returns the path.
func (d Directory) String() string { return string(d) }

func (d Directory) path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

// Put implements [Store]. The object gets its name by a hard link, which never replaces a file.
func (d Directory) Put(_ context.Context, name string, body []byte) (err error) {
	path := d.path(name)
	dir := filepath.Dir(path)
	if err := d.makeDir(dir); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	sweep(dir)
	f, err := os.CreateTemp(dir, unfinished+"*")
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(body)
	if err = errors.Join(err, f.Chmod(0o400|modeOf(dir)&0o444), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if err := durable.SyncDirectory(dir); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

// modeOf returns the permissions of a directory; those who may read it may read its files.
func modeOf(dir string) fs.FileMode {
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	return info.Mode().Perm()
}

// makeDir creates a directory and makes its name durable.
func (d Directory) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if dir != string(d) && parent != dir {
		if err := d.makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.SyncDirectory(parent)
}

// sweep removes files that a crash left half-written.
func sweep(dir string) {
	stale, _ := filepath.Glob(filepath.Join(dir, unfinished+"*")) // the pattern is valid
	for _, p := range stale {
		if st, err := os.Stat(p); err == nil && time.Since(st.ModTime()) > abandoned {
			_ = os.Remove(p) // it only takes space
		}
	}
}

// Get implements [Store].
func (d Directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	return f, nil
}

// List implements [Store].
func (d Directory) List(_ context.Context, prefix string) (names []string, err error) {
	err = filepath.WalkDir(d.path(prefix), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), unfinished) {
			return err
		}
		name, err := filepath.Rel(string(d), path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	slices.Sort(names)
	return names, nil
}
