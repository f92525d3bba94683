package parts

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// Divided months are kept beside the parts of their month, in their canonical form (see
// projections/costs/canonical.go):
//
//	month=2026-05/allocations/manifest.json
//	month=2026-05/allocations/<SHA-256 of the file>.allocations
//
// A file is named by its own digest, and is never changed. One that a close names is never removed. Of the
// others, only the last is kept: each can be divided again.
//
// With a bucket, they are beside its cache, and evicting leaves them there. What a close names, and postings, are
// in the bucket too, under the same names. A machine that does not have one of them fetches it.

// allocationsFormat is the version of the manifest of divided months.
const allocationsFormat = "quartermaster.allocations-manifest/1"

const (
	allocationsSuffix = ".allocations"
	draftPattern      = "draft-*"
)

// AllocationsVersion is one kept division of a month.
type AllocationsVersion struct {
	Methods costs.Methods `json:"methods"`
	// Position is the position of the rows.
	Position string `json:"position"`
	// Reads says what was read, and Inputs is a digest of that at Position. Where it is the same, the division
	// is.
	Reads  *projections.Reads `json:"reads"`
	Inputs Digest             `json:"inputs"`
	Rows   int                `json:"rows"`
	Bytes  int64              `json:"bytes"`
	// Digest is the SHA-256 of the file, and its name.
	Digest Digest `json:"digest"`
	// Books: a close names it.
	Books bool `json:"books,omitempty"`
}

type allocationsManifest struct {
	Format   string               `json:"format"`
	Log      string               `json:"log"`
	Month    string               `json:"month"`
	Versions []AllocationsVersion `json:"versions"`
}

func monthName(month domain.Interval) string {
	return projections.MonthName(projections.HourOf(month.From))
}

func (d Directory) allocationsFolder(month domain.Interval) string {
	return filepath.Join(d.Path, "month="+monthName(month), "allocations")
}

// AllocationsFile returns the path of a kept division.
func (d Directory) AllocationsFile(month domain.Interval, digest Digest) string {
	return d.path(booksFile(month, digest, allocationsSuffix))
}

// AllocationsVersions returns the kept divisions of a month, oldest first. If there is none, the error is
// [fs.ErrNotExist].
func (d Directory) AllocationsVersions(month domain.Interval) ([]AllocationsVersion, error) {
	path := filepath.Join(d.allocationsFolder(month), manifestName)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &allocationsManifest{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrManifest, err)
	}
	switch {
	case m.Format != allocationsFormat:
		err = fmt.Errorf("%w: its format is %q, this program reads %q", ErrManifest, m.Format, allocationsFormat)
	case m.Log != d.Log:
		err = fmt.Errorf("%w: it is of log %q, this is %q", ErrLog, m.Log, d.Log)
	case m.Month != monthName(month):
		err = fmt.Errorf("%w: it is of %s", ErrManifest, m.Month)
	case slices.ContainsFunc(m.Versions, func(v AllocationsVersion) bool { return v.Reads == nil }):
		err = fmt.Errorf("%w: a version does not say what it read", ErrManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m.Versions, nil
}

// OpenAllocations opens a kept division by its digest, after reading all of it to compare the digest. The file
// stays open, so that it can be read when it was superseded, until the result is collected.
func (d Directory) OpenAllocations(month domain.Interval, digest Digest) (costs.Open, error) {
	f, n, err := d.openBooks(month, digest, allocationsSuffix)
	if err != nil {
		return nil, err
	}
	return func() (io.ReadSeekCloser, error) { return section{io.NewSectionReader(f, 0, n)}, nil }, nil
}

// mostBooks bounds what is fetched from a bucket, in bytes, before its digest can show that it is another file. A month
// of 100,000 GPUs takes some GiB; postings are read into memory.
var mostBooks = map[string]int64{allocationsSuffix: 64 << 30, postingsSuffix: 1 << 30}

// openBooks opens a file that its digest names, and fetches it from the bucket if it is missing or damaged here.
func (d Directory) openBooks(month domain.Interval, digest Digest, suffix string) (*os.File, int64, error) {
	name := booksFile(month, digest, suffix)
	f, n, err := openNamed(d.path(name), digest)
	if d.Bucket == nil || !errors.Is(err, ErrMissing) && !errors.Is(err, ErrDamaged) {
		return f, n, err
	}
	draft, err := d.NewDraft(month)
	if err != nil {
		return nil, 0, err
	}
	most := mostBooks[suffix]
	switch err = d.get(name, most+1, draft); {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: %s", ErrMissing, d.where(name))
	case err == nil && draft.n > most:
		err = fmt.Errorf("%s: %w: it has more than %d bytes", d.where(name), ErrDamaged, most)
	case err == nil && Digest(draft.hash.Sum(nil)) != digest:
		err = fmt.Errorf("%s: %w: it has %d bytes with SHA-256 %x", d.where(name), ErrDamaged, draft.n, draft.hash.Sum(nil))
	}
	if err != nil {
		return nil, 0, errors.Join(err, draft.Discard())
	}
	if err := draft.place(d.path(name)); err != nil {
		return nil, 0, err
	}
	return openNamed(d.path(name), digest)
}

// openNamed opens a file that has a digest, and returns its size.
func openNamed(path string, digest Digest) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%w: %s", ErrMissing, path)
	}
	if err != nil {
		return nil, 0, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if sum := Digest(h.Sum(nil)); err == nil && sum != digest {
		err = fmt.Errorf("%s: %w: it has %d bytes with SHA-256 %s", path, ErrDamaged, n, sum)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, n, nil
}

// booksFile is the name of a file that a close names, in a directory and in a bucket.
func booksFile(month domain.Interval, digest Digest, suffix string) string {
	return "month=" + monthName(month) + "/allocations/" + digest.String() + suffix
}

// storeBooks puts a file that a close names into the bucket, if there is one.
func (w *Writer) storeBooks(month domain.Interval, digest Digest, suffix string) error {
	if w.Bucket == nil {
		return nil
	}
	name := booksFile(month, digest, suffix)
	f, n, err := openNamed(w.path(name), digest)
	if err != nil {
		return err
	}
	return errors.Join(w.store(name, n, digest, f), f.Close())
}

// section reads a part of a file that stays open.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// Draft is a file that is being written. It has no name until [Writer.PutAllocations] or
// [Writer.PutPostings], and needs no lock of the directory before.
type Draft struct {
	f    *os.File
	buf  *bufio.Writer
	hash hash.Hash
	n    int64
}

// NewDraft begins a file of a month. The caller MUST put or discard it.
func (d Directory) NewDraft(month domain.Interval) (*Draft, error) {
	return newDraft(d.allocationsFolder(month))
}

func newDraft(folder string) (*Draft, error) {
	if err := durable.MakeDirectory(folder); err != nil {
		return nil, err
	}
	for _, path := range []string{filepath.Dir(folder), folder} {
		if err := readable(path, 0o700, 0o555); err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
	}
	f, err := os.CreateTemp(folder, draftPattern)
	if err != nil {
		return nil, err
	}
	// The lock says that the draft is still being written.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	w := &Draft{f: f, hash: sha256.New()}
	w.buf = bufio.NewWriterSize(f, 1<<18)
	return w, nil
}

// Write implements [io.Writer].
func (w *Draft) Write(b []byte) (int, error) {
	w.hash.Write(b)
	w.n += int64(len(b))
	return w.buf.Write(b)
}

// Discard removes the draft.
func (w *Draft) Discard() error { return errors.Join(w.f.Close(), os.Remove(w.f.Name())) }

// place gives the draft its name, complete and synced. A file of that name has the same bytes or is damaged,
// so it is replaced.
func (w *Draft) place(path string) error {
	err := errors.Join(w.buf.Flush(), readable(w.f.Name(), 0o600, 0o444), w.f.Sync())
	if err == nil {
		err = os.Rename(w.f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, w.Discard())
	}
	return errors.Join(w.f.Close(), durable.SyncDirectory(filepath.Dir(path)))
}

// PutAllocations keeps a divided month, whose canonical form is in the draft, and returns its digest. Bytes and
// Digest of the version are set here. If the month is kept already, the last statement about it counts.
func (w *Writer) PutAllocations(month domain.Interval, v AllocationsVersion, draft *Draft) (Digest, error) {
	v.Bytes, v.Digest = draft.n, Digest(draft.hash.Sum(nil))
	if err := w.putAllocations(month, v, draft); err != nil {
		return v.Digest, fmt.Errorf("keep the allocations of %s: %w", monthName(month), err)
	}
	return v.Digest, nil
}

func (w *Writer) putAllocations(month domain.Interval, v AllocationsVersion, draft *Draft) error {
	folder := w.allocationsFolder(month)
	if err := errors.Join(sweep(folder), sweepDrafts(folder)); err != nil {
		return errors.Join(err, draft.Discard())
	}
	if err := draft.place(w.AllocationsFile(month, v.Digest)); err != nil {
		return err
	}
	if v.Books {
		if err := w.storeBooks(month, v.Digest, allocationsSuffix); err != nil {
			return err
		}
	}
	// Without a valid manifest only the list of superseded versions is lost. A close names its digest itself.
	versions, err := w.AllocationsVersions(month)
	if err != nil {
		versions = nil
	}
	kept := []AllocationsVersion{}
	var gone []Digest
	for _, o := range versions {
		switch {
		case o.Digest == v.Digest:
			v.Books = v.Books || o.Books
		case o.Books:
			kept = append(kept, o)
		default:
			gone = append(gone, o.Digest)
		}
	}
	if err := w.placeAllocations(month, append(kept, v)); err != nil {
		return err
	}
	for _, digest := range gone {
		if err := os.Remove(w.AllocationsFile(month, digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (w *Writer) placeAllocations(month domain.Interval, versions []AllocationsVersion) error {
	text, err := json.MarshalIndent(allocationsManifest{
		Format: allocationsFormat, Log: w.Log, Month: monthName(month), Versions: versions,
	}, "", "  ")
	if err != nil {
		return err
	}
	return place(filepath.Join(w.allocationsFolder(month), manifestName), func(f *os.File) error {
		_, err := f.Write(append(text, '\n'))
		return err
	})
}

// NameAllocations notes that a close names a kept division, which then stays.
func (w *Writer) NameAllocations(month domain.Interval, digest Digest) error {
	versions, err := w.AllocationsVersions(month)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(versions, func(v AllocationsVersion) bool { return v.Digest == digest })
	if i < 0 {
		return fmt.Errorf("allocations %s of %s: %w", digest, monthName(month), fs.ErrNotExist)
	}
	if versions[i].Books {
		return nil
	}
	if err := w.storeBooks(month, digest, allocationsSuffix); err != nil {
		return err
	}
	versions[i].Books = true
	return w.placeAllocations(month, versions)
}

// sweepDrafts removes drafts that nobody writes any more.
func sweepDrafts(folder string) error {
	stale, err := filepath.Glob(filepath.Join(folder, draftPattern))
	if err != nil {
		return err
	}
	for _, path := range stale {
		f, err := os.Open(path)
		if err != nil {
			continue // it was put or discarded
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.Remove(path)
		}
		if err := errors.Join(err, f.Close()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Postings into a closed period are kept beside its allocations, named by the SHA-256 of the file. They are never
// removed.

const postingsSuffix = ".postings"

// PostingsFile returns the path of kept postings.
func (d Directory) PostingsFile(month domain.Interval, digest Digest) string {
	return d.path(booksFile(month, digest, postingsSuffix))
}

// PutPostings keeps postings into a month and returns their digest.
func (w *Writer) PutPostings(month domain.Interval, draft *Draft) (Digest, error) {
	digest := Digest(draft.hash.Sum(nil))
	err := draft.place(w.PostingsFile(month, digest))
	if err == nil {
		err = w.storeBooks(month, digest, postingsSuffix)
	}
	if err != nil {
		return digest, fmt.Errorf("keep the postings into %s: %w", monthName(month), err)
	}
	return digest, nil
}

// Postings reads kept postings by their digest.
func (d Directory) Postings(month domain.Interval, digest Digest) ([]costs.Posting, error) {
	f, n, err := d.openBooks(month, digest, postingsSuffix)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	all, err := costs.ReadPostings(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.Name(), ErrDamaged, err)
	}
	return all, nil
}
