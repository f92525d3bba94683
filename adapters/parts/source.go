package parts

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"quartermaster/projections"
)

// Source reads the rows that stores left to parts, of any version. It implements
// [projections.PartSource].
//
// Size and SHA-256 of a file are compared with the manifest when the first row is read from it, and
// not again while the source lives. So a process finds damage before it uses a row, and pays for it
// once.
type Source struct {
	dir Directory
	max int // files that stay open while nobody reads them

	mu    sync.Mutex
	files map[projections.PartDigest]*sourceFile
	open  int
	bytes int64 // of the open files
	clock int64
}

// maxOpen is the number of files that stay open while nobody reads them.
const maxOpen = 64

// sourceFile is a version of a part.
type sourceFile struct {
	version *Version

	open  sync.Mutex // held while part is opened
	part  *Part      // nil while it is closed
	whole bool       // it is what was written
	// scopes are those of the rows, once they were asked for, of a version that was superseded.
	scopes map[string][][]byte

	readers int // guarded by Source.mu
	used    int64
}

// NewSource returns a source of the parts in a directory.
func NewSource(d Directory) *Source {
	return &Source{dir: d, max: maxOpen, files: map[projections.PartDigest]*sourceFile{}}
}

// remedy says what to do about a part that cannot be read.
const remedy = "restore the file from a copy, or remove it: the rows are then folded from the log, and the part is made again"

// file finds the version of a part.
func (s *Source) file(p projections.PartDigest) (*sourceFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[p]; f != nil {
		return f, nil
	}
	m, err := s.dir.Manifest(p.PartKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no manifest", ErrMissing, s.dir.where(folder(p.PartKey)))
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Versions, func(v Version) bool {
		return v.Digest == Digest(p.Digest) && v.Rows == p.Rows && v.Method == projections.Method
	})
	if i < 0 {
		return nil, fmt.Errorf("%w: the manifest in %s has no version %x of %s", ErrMissing,
			s.dir.where(folder(p.PartKey)), p.Digest, projections.Method)
	}
	f := &sourceFile{version: &m.Versions[i]}
	s.files[p] = f
	return f, nil
}

// Has implements [projections.PartSource]. It compares the size of the file.
func (s *Source) Has(p projections.PartDigest) error {
	f, err := s.file(p)
	if err != nil {
		return err
	}
	name := fileOf(p.PartKey, f.version.Digest)
	size, err := s.dir.size(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s", ErrMissing, s.dir.where(name))
	case err != nil:
		return err
	case size != f.version.Bytes:
		return fmt.Errorf("%s: %w: it has %d bytes, the manifest says %d", s.dir.where(name), ErrDamaged, size, f.version.Bytes)
	}
	return nil
}

// Verify reads a whole part, and fails unless its file is what was written, and its rows have its
// digest. A scan trusts the manifest for that. Of a bucket it reads the object, not the cache.
func (s *Source) Verify(p projections.PartDigest) error {
	f, err := s.file(p)
	if err == nil {
		err = s.dir.read(p.PartKey, f.version, true, (*Part).Verify)
	}
	if err != nil {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return nil
}

// with calls read with an open part.
func (s *Source) with(p projections.PartDigest, read func(*sourceFile) error) error {
	f, err := s.file(p)
	if err != nil {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	s.mu.Lock()
	s.clock++
	f.used = s.clock
	f.readers++
	s.mu.Unlock()
	defer s.release(f)
	if err := s.ready(p.PartKey, f); err != nil {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return read(f)
}

// ready opens a file that is closed.
func (s *Source) ready(k projections.PartKey, f *sourceFile) error {
	f.open.Lock()
	defer f.open.Unlock()
	if f.part != nil {
		return nil
	}
	part, err := s.dir.open(k, f.version, !f.whole)
	if err != nil {
		return err
	}
	f.part, f.whole = part, true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.bytes += f.version.Bytes
	return nil
}

// release ends a read, and closes the files that were not read for the longest time.
func (s *Source) release(f *sourceFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.readers--
	for s.open > s.max || s.dir.Bucket != nil && s.bytes > s.dir.CacheBytes { // which may be evicted already
		var oldest *sourceFile
		for _, f := range s.files {
			if f.readers == 0 && f.part != nil && (oldest == nil || f.used < oldest.used) {
				oldest = f
			}
		}
		if oldest == nil {
			return
		}
		_ = oldest.part.Close() // it was only read
		oldest.part = nil
		s.open--
		s.bytes -= oldest.version.Bytes
	}
}

// Close closes all files. Nobody may read.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, f := range s.files {
		if f.part != nil {
			err = errors.Join(err, f.part.Close())
			f.part = nil
		}
	}
	s.open, s.bytes = 0, 0
	return err
}

// Scopes implements [projections.PartSource]. It reads the manifest alone, or once the rows of a version
// that was superseded.
func (s *Source) Scopes(p projections.PartDigest, t projections.Table) (scopes []string, err error) {
	f, err := s.file(p)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, remedy)
	}
	of := f.version.Scopes
	if of == nil {
		if err := s.with(p, func(f *sourceFile) error {
			f.open.Lock()
			defer f.open.Unlock()
			if f.scopes == nil {
				f.scopes, err = f.part.check()
			}
			of = f.scopes
			return err
		}); err != nil {
			return nil, err
		}
	}
	for _, scope := range of[t.String()] {
		scopes = append(scopes, string(scope))
	}
	return scopes, nil
}

// Scan implements [projections.PartSource].
func (s *Source) Scan(p projections.PartDigest, q projections.Query, yield func(projections.Key, []byte) error) error {
	return s.with(p, func(f *sourceFile) error { return f.part.Scan(q, yield) })
}
