package parts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bucket has the files of parts instead of a directory. It is implemented by adapters/bucket. Methods
// MUST be safe for concurrent use, and return when ctx ends.
type Bucket interface {
	// Upload stores what body has as an object, which is durable when Upload returns. It MUST NOT
	// replace one: it fails with [fs.ErrExist] if there is an object with the name. It MUST NOT store
	// anything if body fails. After any other error there may be an object.
	Upload(ctx context.Context, name string, body io.Reader) error
	// Get returns an object, or [fs.ErrNotExist].
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Size returns the size of an object in bytes, or [fs.ErrNotExist].
	Size(ctx context.Context, name string) (int64, error)
	// List returns the names of the objects whose names begin with prefix, which ends in a slash, in
	// their order.
	List(ctx context.Context, prefix string) ([]string, error)
	// String names the bucket for people.
	String() string
}

// ErrBucket means that a bucket refuses, cannot be reached, or is too slow. Nothing was changed that
// a reader sees. Try again when it answers.
var ErrBucket = errors.New("the bucket of parts does not answer")

// In a bucket, a manifest is a sequence of objects, of which the last counts: nothing in a bucket is
// replaced, so of two writers one fails.
const manifestNumbered = "manifest-%08d.json"

// patience is how long a bucket may take for the next bytes.
const patience = 30 * time.Second

// object returns the name of an object.
func (d Directory) object(name string) string { return d.Log + "/" + name }

// ask calls work with a context that ends when the bucket did not answer for too long. work calls
// alive whenever it did.
func (d Directory) ask(work func(ctx context.Context, alive func()) error) error {
	wait := cmp.Or(d.Patience, patience)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	t := time.AfterFunc(wait, func() { cancel(fmt.Errorf("nothing came for %s", wait)) })
	defer t.Stop()
	err := work(ctx, func() { t.Reset(wait) })
	var local *localError
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist):
		return err
	case errors.As(err, &local):
		return local.error
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return fmt.Errorf("%w: %s: %w", ErrBucket, d.Bucket, err)
}

// localError is an error of this machine, not of the bucket.
type localError struct{ error }

// lively is a reader that says when bytes came.
type lively struct {
	io.Reader
	alive func()
}

func (l lively) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if n > 0 {
		l.alive()
	}
	return n, err
}

// local marks the errors of a writer as those of this machine.
type local struct{ io.Writer }

func (l local) Write(b []byte) (int, error) {
	n, err := l.Writer.Write(b)
	if err != nil {
		err = &localError{err}
	}
	return n, err
}

// get writes an object to a writer, at most limit bytes.
func (d Directory) get(name string, limit int64, to io.Writer) error {
	return d.ask(func(ctx context.Context, alive func()) error {
		r, err := d.Bucket.Get(ctx, d.object(name))
		if err != nil {
			return err
		}
		_, err = io.Copy(local{to}, io.LimitReader(lively{r, alive}, limit))
		return errors.Join(err, r.Close())
	})
}

// counted is a hash that counts its bytes.
type counted struct {
	hash.Hash
	n int64
}

func newCounted() *counted { return &counted{Hash: sha256.New()} }

func (c *counted) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.Hash.Write(b)
}

func (c *counted) sum() Digest { return Digest(c.Sum(nil)) }

// download returns an object as a file of the cache. It fails with [ErrMissing] if there is none,
// and with [ErrDamaged] unless it has these bytes.
func (d Directory) download(name string, size int64, sha Digest) (_ *os.File, err error) {
	f, sum, err := d.receive(name, size+1)
	if err != nil {
		return nil, err
	}
	switch {
	case sum.n != size || sum.sum() != sha:
		err = fmt.Errorf("%s: %w: the bucket has %d bytes or more with SHA-256 %s, the manifest says %d with %s",
			d.where(name), ErrDamaged, sum.n, sum.sum(), size, sha)
	default:
		err = os.Rename(f.Name(), d.cached(sha))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	d.evict()
	return f, nil
}

// receive returns at most limit bytes of an object as a new file, which the caller renames or removes, and their hash.
// It fails with [ErrMissing] if there is no such object.
func (d Directory) receive(name string, limit int64) (_ *os.File, _ *counted, err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, nil, err
	}
	sweepOld(d.Path)
	f, err := os.CreateTemp(d.Path, "new-*")
	if err != nil {
		return nil, nil, err
	}
	sum := newCounted()
	if err = d.get(name, limit, io.MultiWriter(f, sum)); err == nil {
		return f, sum, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s", ErrMissing, d.where(name))
	}
	return nil, nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// cached returns the path of a file in the cache: its name is the SHA-256 of its bytes.
func (d Directory) cached(sha Digest) string { return filepath.Join(d.Path, sha.String()+".parquet") }

// fromCache returns a file of the cache, nil if it is not there or is not what was downloaded.
func (d Directory) fromCache(size int64, sha Digest) *os.File {
	path := d.cached(sha)
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	if matches(f, size, sha) != nil {
		f.Close()
		_ = os.Remove(path) // or it is replaced by what is downloaded next
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // else it is evicted sooner
	return f
}

// evict removes the files that were used least recently, until the cache is within its bound. Who has
// one open can read on.
func (d Directory) evict() {
	type file struct {
		name string
		used time.Time
		size int64
	}
	var files []file
	var total int64
	list, _ := os.ReadDir(d.Path) // a cache that cannot be listed is not used either
	for _, e := range list {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".parquet") {
			files = append(files, file{e.Name(), info.ModTime(), info.Size()})
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	for _, f := range files {
		if total <= d.CacheBytes {
			return
		}
		_ = os.Remove(filepath.Join(d.Path, f.name)) // another process may have removed it
		total -= f.size
	}
}

// abandoned is the age after which a half-written file cannot belong to a running process.
const abandoned = 24 * time.Hour

// sweepOld removes files that a crash left half-written, of any process.
func sweepOld(dir string) {
	stale, _ := filepath.Glob(filepath.Join(dir, "new-*")) // the pattern is valid
	for _, p := range stale {
		if st, err := os.Stat(p); err == nil && time.Since(st.ModTime()) > abandoned {
			_ = os.Remove(p) // it only takes space
		}
	}
}

// upload stores what write writes as an object, and returns its size and SHA-256. It counts as stored
// only once the bucket has returned the same bytes.
func (d Directory) upload(name string, write func(*os.File) error) (size int64, sha Digest, err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return 0, sha, err
	}
	sweepOld(d.Path)
	f, err := os.CreateTemp(d.Path, "new-*")
	if err != nil {
		return 0, sha, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := write(f); err != nil {
		return 0, sha, err
	}
	sum := newCounted()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, sha, err
	}
	if _, err := io.Copy(sum, f); err != nil {
		return 0, sha, err
	}
	if err := d.store(name, sum.n, sum.sum(), f); err != nil {
		return 0, sha, err
	}
	return sum.n, sum.sum(), nil
}

// store puts an object, and reads it back. It fails with [ErrDamaged] if there is one of other bytes.
func (d Directory) store(name string, size int64, sha Digest, body io.ReadSeeker) error {
	err := d.ask(func(ctx context.Context, alive func()) error {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return &localError{err}
		}
		return d.Bucket.Upload(ctx, d.object(name), lively{body, alive})
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	back := newCounted()
	if err := d.get(name, size+1, back); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s took %s and does not have it", ErrBucket, d.Bucket, name)
	} else if err != nil {
		return err
	}
	if back.n != size || back.sum() != sha {
		return fmt.Errorf("%s: %w: the bucket has %d bytes or more with SHA-256 %s, and %d with %s were to be stored",
			d.where(name), ErrDamaged, back.n, back.sum(), size, sha)
	}
	return nil
}

// size returns the size of a file.
func (d Directory) size(name string) (size int64, err error) {
	if d.Bucket == nil {
		st, err := os.Stat(d.path(name))
		if err != nil {
			return 0, err
		}
		return st.Size(), nil
	}
	err = d.ask(func(ctx context.Context, _ func()) (err error) {
		size, err = d.Bucket.Size(ctx, d.object(name))
		return err
	})
	return size, err
}

// names returns the names of all objects below a folder.
func (d Directory) names(folder string) (names []string, err error) {
	err = d.ask(func(ctx context.Context, _ func()) error {
		list, err := d.Bucket.List(ctx, d.object(folder))
		for _, name := range list {
			names = append(names, strings.TrimPrefix(name, d.Log+"/"))
		}
		return err
	})
	return names, err
}

// readManifest returns the manifest in a folder, with an error that is [fs.ErrNotExist] if there is
// none. number is that of the manifest in a bucket.
func (d Directory) readManifest(folder string) (text []byte, number int, err error) {
	if d.Bucket == nil {
		text, err = os.ReadFile(d.path(folder + "/" + manifestName))
		return text, 0, err
	}
	list, err := d.names(folder + "/")
	if err != nil {
		return nil, 0, err
	}
	for _, name := range list {
		var n int
		base := strings.TrimPrefix(name, folder+"/")
		if _, err := fmt.Sscanf(base, manifestNumbered, &n); err == nil && fmt.Sprintf(manifestNumbered, n) == base {
			number = max(number, n)
		}
	}
	if number == 0 {
		return nil, 0, fs.ErrNotExist
	}
	var b bytes.Buffer
	err = d.get(fmt.Sprintf(folder+"/"+manifestNumbered, number), maxManifest+1, &b)
	return b.Bytes(), number, err
}

// manifestName names a manifest for people.
func (d Directory) manifestName(folder string, number int) string {
	if d.Bucket == nil {
		return d.where(folder + "/" + manifestName)
	}
	return d.where(fmt.Sprintf(folder+"/"+manifestNumbered, number))
}

// putManifest replaces the manifest in a folder. In a bucket it adds the one after number, and fails
// with [ErrLocked] if another process did meanwhile.
func (d Directory) putManifest(folder string, number int, text []byte) error {
	if d.Bucket == nil {
		return place(d.path(folder+"/"+manifestName), func(f *os.File) error {
			_, err := f.Write(text)
			return err
		})
	}
	name := fmt.Sprintf(folder+"/"+manifestNumbered, number+1)
	err := d.store(name, int64(len(text)), sha256.Sum256(text), bytes.NewReader(text))
	if errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: it has put %s", ErrLocked, d.where(name))
	}
	return err
}
