// Package parts keeps the rows of sealed months as Parquet files in a directory or a bucket.
//
// The directory of a log has a folder for each part (month and topic partition):
//
//	month=2026-05/topic=qm.telemetry/partition=3/manifest.json
//	month=2026-05/topic=qm.telemetry/partition=3/<digest>.parquet
//
// What always holds:
//
//   - A Parquet file is named by the digest of its rows (see projections/parts.go). Under that name
//     it is complete and synced, and is never changed or replaced.
//   - The manifest lists the versions of a part in order. The last one counts. Each says which
//     digest it supersedes. A version is only ever added, after its file is in place.
//   - Size and SHA-256 of a file are compared with the manifest before it is decoded. The digest of
//     its rows is compared with its name when all are read to verify it, not when some are.
//   - Reading holds a page of a row group in memory, however long the part is.
//   - One process writes to a directory at a time. Any number may read.
//   - In a bucket no object is replaced: a manifest is a sequence of objects, manifest-00000001.json
//     and so on. What was stored counts once it was read back. Files are read through a bounded cache
//     on disk, and compared with the manifest there, too.
//
// docs/reference/parts.md describes the format for other programs.
package parts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
	"quartermaster/projections"
)

var (
	// ErrDamaged means that a file is not what was written: truncated, altered or another one. Restore
	// it from a copy, or remove its folder and make the part again.
	ErrDamaged = errors.New("part is damaged")
	// ErrMissing means that a manifest names a file that is not there. Restore it from a copy, or
	// remove its folder and make the part again.
	ErrMissing = errors.New("file of a part is missing")
	// ErrManifest means that a manifest is not valid or contradicts its folder. Restore it from a copy,
	// or remove its folder and make the part again.
	ErrManifest = errors.New("manifest of a part is not valid")
	// ErrLog means that a part is of another log. Name the directory of this log.
	ErrLog = errors.New("part is of another log")
	// ErrMethod means that a part was made by another version of the folds. Make it again.
	ErrMethod = errors.New("part was made by another version of the folds")
	// ErrLocked means that another process writes to the directory. Try again when it has ended.
	ErrLocked = errors.New("another process makes parts in this directory")
)

const manifestName = "manifest.json"

// Directory has the parts of one log.
type Directory struct {
	Path string // with a Bucket: of the cache
	Log  string // the log's id

	// Bucket has the files, in a folder that is named by the log. If it is nil they are in Path.
	Bucket Bucket
	// CacheBytes bounds the files of the bucket that stay in Path. Those in use may exceed it.
	CacheBytes int64
	// Patience is how long a bucket may take for the next bytes; 0: 30 s.
	Patience time.Duration
}

// String names the place for people.
func (d Directory) String() string {
	if d.Bucket != nil {
		return d.Bucket.String() + "/" + d.Log
	}
	return d.Path
}

// path returns the path of a file or folder in a directory.
func (d Directory) path(name string) string { return filepath.Join(d.Path, filepath.FromSlash(name)) }

// where names a file for people.
func (d Directory) where(name string) string {
	if d.Bucket != nil {
		return d.String() + "/" + name
	}
	return d.path(name)
}

// folder returns the folder of a part.
func folder(k projections.PartKey) string {
	return "month=" + projections.MonthName(k.Month) + "/topic=" + string(k.Partition.Topic) +
		"/partition=" + strconv.Itoa(k.Partition.Partition)
}

// fileOf returns the name of a version's Parquet file.
func fileOf(k projections.PartKey, digest Digest) string {
	return folder(k) + "/" + digest.String() + ".parquet"
}

// File returns the path of a version's Parquet file, or its address in a bucket.
func (d Directory) File(k projections.PartKey, digest Digest) string {
	return d.where(fileOf(k, digest))
}

// List returns the parts that have a folder, by partition and month. A directory that does not
// exist has none.
func (d Directory) List() ([]projections.PartKey, error) {
	folders, err := d.folders()
	if err != nil {
		return nil, fmt.Errorf("list parts: %w", err)
	}
	var keys []projections.PartKey
	for _, f := range folders {
		names := strings.Split(f, "/")
		k, err := parseKey(strings.TrimPrefix(names[0], "month="), strings.TrimPrefix(names[1], "topic="),
			strings.TrimPrefix(names[2], "partition="))
		if err != nil {
			return nil, fmt.Errorf("list parts: %s: %w", d.where(f), err)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, projections.PartKey.Compare)
	return keys, nil
}

// folders returns the folders of all parts.
func (d Directory) folders() (folders []string, err error) {
	if d.Bucket == nil {
		paths, err := filepath.Glob(filepath.Join(d.Path, "month=*", "topic=*", "partition=*"))
		for _, p := range paths {
			rel, err := filepath.Rel(d.Path, p)
			if err != nil {
				return nil, err
			}
			folders = append(folders, filepath.ToSlash(rel))
		}
		return folders, err
	}
	names, err := d.names("")
	for _, name := range names {
		f := path.Dir(name)
		if ok, err := path.Match("month=*/topic=*/partition=*", f); err != nil || !ok {
			continue
		}
		folders = append(folders, f)
	}
	slices.Sort(folders)
	return slices.Compact(folders), err
}

// parseKey reads the names of a part's folders.
func parseKey(month, topic, partition string) (k projections.PartKey, err error) {
	of, err := projections.ParseMonth(month)
	if err != nil || projections.MonthName(projections.HourOf(of.From)) != month {
		return k, fmt.Errorf("month %q: want year and month, as in 2026-05", month)
	}
	n, err := strconv.Atoi(partition)
	tp := domain.TopicPartition{Topic: domain.Topic(topic), Partition: n}
	if err != nil || !slices.Contains(domain.AllPartitions(), tp) || strconv.Itoa(n) != partition {
		return k, fmt.Errorf("topic %q has no partition %q", topic, partition)
	}
	return projections.PartKey{Partition: tp, Month: projections.HourOf(of.From)}, nil
}

// Manifest returns the manifest of a part, with an error that is [fs.ErrNotExist] if there is none.
func (d Directory) Manifest(k projections.PartKey) (*Manifest, error) {
	b, number, err := d.readManifest(folder(k))
	if err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", k, err)
	}
	m, err := ParseManifest(b)
	switch {
	case err != nil:
	case m.Log != d.Log:
		err = fmt.Errorf("%w: it is of log %q, this is %q", ErrLog, m.Log, d.Log)
	case m.key != k:
		err = fmt.Errorf("%w: it is of %s", ErrManifest, m.key)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.manifestName(folder(k), number), err)
	}
	m.number = number
	return m, nil
}

// Current returns the last version of a part, if these folds made it of rows that have these tallies,
// and its file is there. So rows with these tallies need not be read to know their digest.
func (d Directory) Current(
	k projections.PartKey, tallies []projections.Tally,
) (p projections.PartDigest, ok bool, err error) {
	m, err := d.Manifest(k)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	v := m.Last()
	if v.Method != projections.Method || len(tallies) == 0 || !slices.Equal(v.Tallies, talliesOf(tallies)) {
		return p, false, nil
	}
	p = projections.PartDigest{PartKey: k, Rows: v.Rows, Digest: v.Digest}
	if _, err := d.size(fileOf(k, v.Digest)); errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	} else if err != nil {
		return p, false, err
	}
	return p, true, nil
}

// readable lets those who may read the folder above read a file or folder.
func readable(path string, mode, access fs.FileMode) error {
	st, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	return os.Chmod(path, mode|st.Mode().Perm()&access)
}

// lock keeps other writers out until the returned function is called.
func (d Directory) lock() (unlock func() error, err error) {
	if err := durable.MakeDirectory(d.Path); err != nil {
		return nil, fmt.Errorf("make the directory of parts: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.Path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of parts: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", d.Path, ErrLocked)
		}
		return nil, fmt.Errorf("lock the directory of parts: %w", err)
	}
	return f.Close, nil
}

// place writes a file and gives it its name once it is complete and synced.
func place(path string, write func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), readable(f.Name(), 0o600, 0o444), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncDirectory(dir)
}
