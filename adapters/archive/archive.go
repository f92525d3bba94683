// Package archive keeps snapshots of rows as files in a directory.
//
// What always holds: a file under its final name is complete and synced, the
// newest has the greatest name, and a snapshot is only removed once a newer
// one is in place. Any number of processes may read while one writes.
package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quartermaster/domain"
)

const (
	suffix = ".snapshot"
	// keep is how many snapshots stay: the newest, and the one before in case
	// the newest is damaged.
	keep = 2
)

// Save writes a snapshot taken at a position.
func Save(dir string, at domain.Position, write func(io.Writer) error) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	path = filepath.Join(dir, name(at))
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	return path, prune(dir)
}

// name orders snapshots by how many records they stand for.
func name(at domain.Position) string {
	return fmt.Sprintf("%020d%s", at.Records(), suffix)
}

// List returns the paths of the snapshots in a directory, newest first. A
// directory that does not exist has none.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths, nil
}

func prune(dir string) error {
	paths, err := List(dir)
	if err != nil || len(paths) <= keep {
		return err
	}
	for _, p := range paths[keep:] {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
	}
	// What a crash left half-written is of no use to anyone.
	stale, err := filepath.Glob(filepath.Join(dir, "new-*"))
	if err != nil {
		return fmt.Errorf("list half-written snapshots: %w", err)
	}
	for _, p := range stale {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove half-written snapshot: %w", err)
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
