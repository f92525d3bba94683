package parts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Imported files are kept as they were, beside the parts:
//
//	imports/<SHA-256 of the file>.raw
//	imports/<SHA-256 of the source>.json
//
// The second says which files a source of events was imported from. Mostly that is one file, and both digests
// are the same; files that were imported together have a source that is named by a digest of theirs. Neither is ever
// changed. Several processes may write them at a time.

// importFormat is the version of the JSON.
const importFormat = "quartermaster.import/1"

const (
	importsFolder = "imports"
	rawSuffix     = ".raw"
	importSuffix  = ".json"
	maxImport     = 16 << 20 // bytes of the JSON
	mostRaw       = 1 << 40  // bytes of a file
)

// Import says which files a source was imported from.
type Import struct {
	Format string `json:"format"`
	Log    string `json:"log"`
	// Source is the SHA-256 that names the source.
	Source Digest `json:"source_sha256"`
	// Received is when the import began that kept the files.
	Received domain.Instant `json:"received"`
	Files    []ImportedFile `json:"files"`
	// With are the mapping and the tables by which they were read, if the user gave them.
	With []ImportedFile `json:"with,omitempty"`
}

// ImportedFile is a file as it was imported.
type ImportedFile struct {
	Name   string `json:"name"` // without folders
	SHA256 Digest `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Before is the number of lines in the files before it: lines of a source are counted across its files.
	Before uint64 `json:"lines_before,omitempty"`
}

func rawFile(digest Digest) string    { return importsFolder + "/" + digest.String() + rawSuffix }
func importFile(source Digest) string { return importsFolder + "/" + source.String() + importSuffix }

// KeepFile keeps the bytes of a file, which MUST have the digest, and returns their number. If they are kept already,
// nothing changes.
func (d Directory) KeepFile(file io.ReadSeeker, digest Digest) (n int64, err error) {
	name := rawFile(digest)
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep %s: %w", d.where(name), err)
		}
	}()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	changed := errors.New("the file changed while it was read")
	if d.Bucket != nil {
		sum := newCounted() // first, because an object of other bytes cannot be replaced
		if _, err := io.Copy(sum, file); err != nil {
			return 0, err
		}
		if sum.sum() != digest {
			return 0, changed
		}
		return sum.n, d.store(name, sum.n, digest, file)
	}
	if f, n, err := openNamed(d.path(name), digest); err == nil {
		return n, f.Close()
	}
	draft, err := newDraft(d.path(importsFolder))
	if err != nil {
		return 0, err
	}
	if err := sweepDrafts(d.path(importsFolder)); err != nil {
		return 0, errors.Join(err, draft.Discard())
	}
	if n, err = io.Copy(draft, file); err == nil && Digest(draft.hash.Sum(nil)) != digest {
		err = changed
	}
	if err != nil {
		return 0, errors.Join(err, draft.Discard())
	}
	return n, draft.place(d.path(name))
}

// OpenFile opens a kept file, after reading all of it to compare its digest. The caller closes it. It fails with
// [ErrMissing] if it is not kept, and with [ErrDamaged] if the bytes are others.
func (d Directory) OpenFile(digest Digest) (*os.File, error) {
	name := rawFile(digest)
	if d.Bucket != nil {
		return d.fetch(name, digest)
	}
	f, _, err := openNamed(d.path(name), digest)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return f, err
}

// fetch returns an object of a bucket as a file without a name.
func (d Directory) fetch(name string, digest Digest) (*os.File, error) {
	f, sum, err := d.receive(name, mostRaw)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil && sum.sum() != digest {
		err = fmt.Errorf("%s: %w: it has %d bytes with SHA-256 %s", d.where(name), ErrDamaged, sum.n, sum.sum())
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// KeepImport says which files, that are kept, a source was imported from. If that is known already, nothing changes.
func (d Directory) KeepImport(im Import) error {
	if _, err := d.Import(im.Source); !errors.Is(err, ErrMissing) {
		return err
	}
	im.Format, im.Log = importFormat, d.Log
	text, err := json.MarshalIndent(im, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	name := importFile(im.Source)
	if d.Bucket != nil {
		sum := newCounted()
		_, _ = sum.Write(text) // a hash
		if err := d.store(name, sum.n, sum.sum(), bytes.NewReader(text)); !errors.Is(err, ErrDamaged) {
			return err
		}
		_, err := d.Import(im.Source) // another process was first
		return err
	}
	draft, err := newDraft(d.path(importsFolder))
	if err != nil {
		return err
	}
	if _, err := draft.Write(text); err != nil {
		return errors.Join(err, draft.Discard())
	}
	return draft.place(d.path(name))
}

// Import returns which files a source was imported from. It fails with [ErrMissing] if they are not kept.
func (d Directory) Import(source Digest) (*Import, error) {
	name := importFile(source)
	var text bytes.Buffer
	var err error
	if d.Bucket != nil {
		err = d.get(name, maxImport+1, &text)
	} else {
		var f *os.File
		if f, err = os.Open(d.path(name)); err == nil {
			_, err = io.Copy(&text, io.LimitReader(f, maxImport+1))
			err = errors.Join(err, f.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, d.where(name))
	}
	if err != nil {
		return nil, err
	}
	im := &Import{}
	dec := json.NewDecoder(&text)
	dec.DisallowUnknownFields()
	err = dec.Decode(im)
	switch {
	case err != nil:
	case im.Format != importFormat:
		err = fmt.Errorf("its format is %q, this program reads %q", im.Format, importFormat)
	case im.Log != d.Log:
		err = fmt.Errorf("it is of log %q, this is %q", im.Log, d.Log)
	case im.Source != source:
		err = fmt.Errorf("it is of source %s", im.Source)
	case len(im.Files) == 0:
		err = errors.New("it has no files")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", d.where(name), ErrDamaged, err)
	}
	return im, nil
}

// Imports returns the sources whose files are kept, by digest.
func (d Directory) Imports() (sources []Digest, err error) {
	var names []string
	if d.Bucket != nil {
		names, err = d.names(importsFolder + "/")
	} else {
		names, err = filepath.Glob(filepath.Join(d.path(importsFolder), "*"+importSuffix))
	}
	if err != nil {
		return nil, fmt.Errorf("list imports: %w", err)
	}
	for _, name := range names {
		var digest Digest
		text, is := strings.CutSuffix(path.Base(filepath.ToSlash(name)), importSuffix)
		if is && digest.UnmarshalText([]byte(text)) == nil {
			sources = append(sources, digest)
		}
	}
	slices.SortFunc(sources, func(a, b Digest) int { return bytes.Compare(a[:], b[:]) })
	return sources, nil
}

// FileOf returns the file of a line of a source, and its line in the file; nil if there is none.
func (im *Import) FileOf(line uint64) (*ImportedFile, uint64) {
	for i := range slices.Backward(im.Files) {
		if f := &im.Files[i]; line > f.Before {
			return f, line - f.Before
		}
	}
	return nil, 0
}
