// Package snapshotfile keeps snapshots of rows as files in a directory.
//
// Invariants:
//
//   - A file under its final name is complete and synced. Among the files of one
//     kind, the newest has the greatest name.
//   - A kept snapshot stays until a person removes it. Of the snapshots that
//     commands save on their own, the newest two stay: one is removed only after a newer
//     one is in place. A scheduled snapshot stays as long as a retention policy says
//     ([Old]), and for ever without one.
//   - A file that a crash left half-written is removed when another is written, a
//     day later or more.
//   - Any number of processes may read and write at a time. Reading needs no right
//     to write. Whoever may read the directory may read the files in it.
package snapshotfile

import (
	"cmp"
	"crypto/sha256"
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
	"quartermaster/domain"
	"quartermaster/projections"
)

const (
	// Suffix is the suffix of every snapshot's name.
	Suffix = ".snapshot"
	// saved is how many snapshots that commands save on their own stay: the newest, and the one
	// before it in case the newest is damaged.
	saved = 2
	// abandoned is the age after which a half-written file cannot belong to a running process.
	abandoned = 24 * time.Hour
)

// Save writes an automatic snapshot at a position, which makes the next opening faster. It removes
// the snapshots that it replaces.
func Save(dir string, at domain.Position, write func(io.Writer) error) (path string, err error) {
	path, err = put(dir, fmt.Sprintf("%020d", at.Records()), write)
	if err != nil {
		return "", err
	}
	return path, errors.Join(prune(dir), sweep(dir))
}

// Keep writes a snapshot at a position that stays until a person removes it. It replaces one of the
// same position and method, which has the same bytes.
func Keep(dir string, at domain.Position, write func(io.Writer) error) (path string, err error) {
	path, err = put(dir, nameAt(at), write)
	if err != nil {
		return "", err
	}
	return path, sweep(dir)
}

// KeepScheduled writes a snapshot at a position that stays until [Remove] removes it.
func KeepScheduled(dir string, at domain.Position, write func(io.Writer) error) (path string, err error) {
	path, err = put(dir, nameAt(at)+scheduledMark, write)
	if err != nil {
		return "", err
	}
	return path, sweep(dir)
}

// nameAt returns a name for a snapshot at a position. Positions of equal length need not be equal.
func nameAt(at domain.Position) string {
	sum := sha256.Sum256([]byte(projections.Method + "\n" + at.String()))
	return fmt.Sprintf("%020d-%x", at.Records(), sum[:6])
}

// put writes a file. Names begin with the number of records before the snapshot's position.
func put(dir, name string, write func(io.Writer) error) (path string, err error) {
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
	err = errors.Join(write(f), readable(f, dir), f.Sync(), f.Close())
	if err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	path = filepath.Join(dir, name+Suffix)
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	if err := durable.SyncDirectory(dir); err != nil {
		return "", fmt.Errorf("save snapshot: %w", err)
	}
	return path, nil
}

// readable lets those who may read dir read f.
func readable(f *os.File, dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return f.Chmod(0o600 | st.Mode().Perm()&0o444)
}

// Kind says how long a snapshot stays.
type Kind string

// The kinds of snapshots.
const (
	Kept      Kind = "kept"      // until a person removes it
	Scheduled Kind = "scheduled" // as long as a retention policy says
	Saved     Kind = "saved"     // until two newer ones are in place
)

// scheduledMark ends the name of a scheduled snapshot, before the suffix.
const scheduledMark = "-scheduled"

func kindOf(path string) Kind {
	name := strings.TrimSuffix(filepath.Base(path), Suffix)
	switch {
	case strings.HasSuffix(name, scheduledMark):
		return Scheduled
	case strings.Contains(name, "-"):
		return Kept
	default:
		return Saved
	}
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
		if strings.HasSuffix(e.Name(), Suffix) && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths, nil
}

// Info describes a snapshot without its rows.
type Info struct {
	Path string
	Kind Kind
	Size int64
	Made domain.Instant // when the file was last written
	projections.SnapshotInfo
	// Err says why the snapshot cannot be used: its header or end is damaged, or it cannot be read.
	// The embedded SnapshotInfo is unknown then.
	Err error
}

// InfoOf returns the description of a file.
func InfoOf(path string) Info {
	in := Info{Path: path, Kind: kindOf(path)}
	in.Err = func() error {
		f, size, err := Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in.Size = size
		if st, err := f.Stat(); err == nil {
			in.Made = domain.InstantOf(st.ModTime())
		}
		in.SnapshotInfo, err = projections.ReadSnapshotInfo(f, size)
		return err
	}()
	return in
}

// Open opens a snapshot for reading.
func Open(path string) (f *os.File, size int64, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// Infos returns the descriptions of all snapshots in a directory, newest first.
func Infos(dir string) ([]Info, error) {
	paths, err := List(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(paths))
	for _, path := range paths {
		if in := InfoOf(path); !errors.Is(in.Err, fs.ErrNotExist) { // replaced just now
			infos = append(infos, in)
		}
	}
	return infos, nil
}

// Nearest returns the snapshots of a log that are at or before a position and can be folded further
// to it, the one with the most records first. It returns all of them because the nearest may be
// damaged.
func Nearest(dir, log string, to domain.Position) ([]Info, error) {
	infos, err := Infos(dir)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(in Info) bool {
		return in.Err != nil || in.Log != log || in.Method != projections.Method || !to.Covers(in.Position)
	})
	slices.SortStableFunc(infos, func(a, b Info) int { return cmp.Compare(b.Position.Records(), a.Position.Records()) })
	return infos, nil
}

func prune(dir string) error {
	paths, err := List(dir)
	if err != nil {
		return err
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return kindOf(p) != Saved })
	for _, p := range paths[min(saved, len(paths)):] {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
	}
	return nil
}

// sweep removes files that a crash left half-written.
func sweep(dir string) error {
	stale, err := filepath.Glob(filepath.Join(dir, "new-*"))
	if err != nil {
		return fmt.Errorf("list half-written snapshots: %w", err)
	}
	for _, p := range stale {
		st, err := os.Stat(p)
		if err == nil && time.Since(st.ModTime()) > abandoned {
			err = os.Remove(p)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove half-written snapshot: %w", err)
		}
	}
	return nil
}
