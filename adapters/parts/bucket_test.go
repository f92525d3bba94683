package parts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quartermaster/projections"
)

// vault is a bucket in memory. A test sets what goes wrong.
type vault struct {
	mu      sync.Mutex
	objects map[string][]byte
	// wrong is called before each operation; its error is the answer. It may block until ctx ends.
	wrong func(ctx context.Context, op, name string) error
	// stored is called instead of storing an object; nil: it is stored.
	stored func(name string, body []byte) error
	// read changes what is returned.
	read func(name string, body []byte) []byte
	gets int
}

func newVault() *vault { return &vault{objects: map[string][]byte{}} }

func (v *vault) String() string { return "s3://vault" }

func (v *vault) ask(ctx context.Context, op, name string) error {
	if v.wrong != nil {
		return v.wrong(ctx, op, name)
	}
	return nil
}

func (v *vault) Upload(ctx context.Context, name string, body io.Reader) error {
	if err := v.ask(ctx, "upload", name); err != nil {
		return err
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.objects[name]; ok {
		return fs.ErrExist
	}
	if v.stored != nil {
		return v.stored(name, b)
	}
	v.objects[name] = b
	return nil
}

func (v *vault) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := v.ask(ctx, "get", name); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	b, ok := v.objects[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	v.gets++
	if v.read != nil {
		b = v.read(name, b)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (v *vault) Size(ctx context.Context, name string) (int64, error) {
	if err := v.ask(ctx, "size", name); err != nil {
		return 0, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	b, ok := v.objects[name]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return int64(len(b)), nil
}

func (v *vault) List(ctx context.Context, prefix string) (names []string, err error) {
	if err := v.ask(ctx, "list", prefix); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// inVault returns the parts in a bucket as another machine sees them: with an empty cache.
func inVault(t testing.TB, v *vault) Directory {
	return Directory{Path: t.TempDir(), Log: "log", Bucket: v, CacheBytes: 1 << 30}
}

// one returns a part of a view and its rows.
func one(t testing.TB, v projections.View) (projections.PartDigest, Rows) {
	t.Helper()
	r := projections.NewPartReader(v)
	for _, p := range digests(t, v) {
		if p.Rows > 20 {
			return p, func(yield func(projections.Key, []byte) error) error { return r.Rows(p.PartKey, yield) }
		}
	}
	t.Fatal("no part has rows")
	return projections.PartDigest{}, nil
}

func cacheSize(t testing.TB, d Directory) (total int64) {
	t.Helper()
	for _, text := range files(t, d.Path) {
		total += int64(len(text))
	}
	return total
}

// What is in a bucket is what would be in a directory, whoever reads it, and the cache stays within
// its bound.
func TestBucketHasTheSameFiles(t *testing.T) {
	look(t, year(t, 3, 1, 2, 3, 4), func(v projections.View) {
		b := newVault()
		w := inVault(t, b)
		dir := Directory{Path: t.TempDir(), Log: "log"}
		first := put(t, w, v)
		if all := put(t, dir, v); !maps.Equal(first, all) {
			t.Fatalf("wrote %v into the bucket and %v into the directory", first, all)
		}
		for name, text := range files(t, dir.Path) {
			if name == "lock" {
				continue
			}
			name = strings.Replace("log/"+filepath.ToSlash(name), manifestName, "manifest-00000001.json", 1)
			if string(b.objects[name]) != text {
				t.Errorf("%s differs from the directory", name)
			}
		}
		if again := put(t, inVault(t, b), v); again[Unchanged] != first[New] {
			t.Errorf("writing again: %v", again)
		}
		keys, err := inVault(t, b).List()
		want, errDir := dir.List()
		if err != nil || errDir != nil || !slices.Equal(keys, want) {
			t.Fatalf("%v: %v, %v", keys, err, errDir)
		}
		var most int64
		for _, body := range b.objects {
			most = max(most, int64(len(body)))
		}
		d := inVault(t, b)
		d.CacheBytes = 2 * most
		s := NewSource(d)
		defer s.Close()
		r := projections.NewPartReader(v)
		for range 2 {
			for _, p := range digests(t, v) {
				if err := s.Has(p); err != nil {
					t.Fatal(err)
				}
				var got, want [][]byte
				if err := s.Scan(p, projections.Query{}, collect(&got)); err != nil {
					t.Fatal(err)
				}
				if err := r.Rows(p.PartKey, collect(&want)); err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("%s has other rows", p.PartKey)
				}
				if n := cacheSize(t, d); n > d.CacheBytes {
					t.Fatalf("the cache has %d bytes, more than %d", n, d.CacheBytes)
				}
				if s.bytes > d.CacheBytes {
					t.Fatalf("%d bytes are open while nobody reads", s.bytes)
				}
			}
		}
	})
}

func collect(to *[][]byte) func(projections.Key, []byte) error {
	return func(_ projections.Key, b []byte) error {
		*to = append(*to, bytes.Clone(b))
		return nil
	}
}

// A file that is in the cache is not fetched again, and one that was altered there is.
func TestCacheIsCompared(t *testing.T) {
	look(t, year(t, 3, 1), func(v projections.View) {
		b := newVault()
		put(t, inVault(t, b), v)
		p, _ := one(t, v)
		d := inVault(t, b)
		read := func() {
			t.Helper()
			s := NewSource(d)
			defer s.Close()
			if err := s.Scan(p, projections.Query{}, func(projections.Key, []byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		read()
		was := b.gets
		read()
		if b.gets != was+1 { // the manifest
			t.Errorf("%d objects were fetched for a file in the cache", b.gets-was)
		}
		list, err := filepath.Glob(filepath.Join(d.Path, "*.parquet"))
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		text, err := os.ReadFile(list[0])
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(list[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		was = b.gets
		read()
		if b.gets != was+2 {
			t.Errorf("%d objects were fetched for a file that was altered in the cache", b.gets-was)
		}
	})
}

// Whatever a bucket does, an error says so, nothing counts as a part that the bucket does not have,
// and the next run with a healthy bucket makes it.
func TestBucketFails(t *testing.T) {
	refuse := errors.New("access denied")
	hang := func(of string) func(context.Context, string, string) error {
		return func(ctx context.Context, op, _ string) error {
			if op != of {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	fail := func(of, suffix string) func(context.Context, string, string) error {
		return func(_ context.Context, op, name string) error {
			if op == of && strings.HasSuffix(name, suffix) {
				return refuse
			}
			return nil
		}
	}
	cases := map[string]struct {
		ill  func(*vault)
		want error
		text string
	}{
		"gone":                    {func(v *vault) { v.wrong = func(context.Context, string, string) error { return refuse } }, ErrBucket, "s3://vault: access denied"},
		"slow to list":            {func(v *vault) { v.wrong = hang("list") }, ErrBucket, "nothing came for"},
		"slow to store":           {func(v *vault) { v.wrong = hang("upload") }, ErrBucket, "nothing came for"},
		"slow to return":          {func(v *vault) { v.wrong = hang("get") }, ErrBucket, "nothing came for"},
		"full":                    {func(v *vault) { v.wrong = fail("upload", ".parquet") }, ErrBucket, "access denied"},
		"full for the manifest":   {func(v *vault) { v.wrong = fail("upload", ".json") }, ErrBucket, "access denied"},
		"cannot be read back":     {func(v *vault) { v.wrong = fail("get", ".parquet") }, ErrBucket, "access denied"},
		"takes and forgets":       {func(v *vault) { v.stored = func(string, []byte) error { return nil } }, ErrBucket, "does not have it"},
		"returns other bytes":     {func(v *vault) { v.read = func(_ string, b []byte) []byte { return append(bytes.Clone(b[1:]), 'x') } }, ErrDamaged, "were to be stored"},
		"returns less":            {func(v *vault) { v.read = func(_ string, b []byte) []byte { return b[:len(b)/2] } }, ErrDamaged, "were to be stored"},
		"returns more than there": {func(v *vault) { v.read = func(_ string, b []byte) []byte { return append(bytes.Clone(b), b...) } }, ErrDamaged, "were to be stored"},
	}
	look(t, year(t, 3, 1), func(v projections.View) {
		p, rows := one(t, v)
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				b := newVault()
				c.ill(b)
				d := inVault(t, b)
				d.Patience = 20 * time.Millisecond
				write := func() (Outcome, error) {
					w, err := NewWriter(d)
					if err != nil {
						t.Fatal(err)
					}
					defer w.Close()
					return w.Put(p, nil, 7, rows)
				}
				if _, err := write(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					t.Fatalf("%v, want %v with %q", err, c.want, c.text)
				}
				b.wrong, b.stored, b.read = nil, nil, nil
				if err := NewSource(inVault(t, b)).Has(p); !errors.Is(err, ErrMissing) {
					t.Fatalf("a part that was not stored is there: %v", err)
				}
				left, err := filepath.Glob(filepath.Join(d.Path, "new-*"))
				if err != nil || len(left) > 0 {
					t.Errorf("half-written files stay: %v, %v", left, err)
				}
				if o, err := write(); o != New || err != nil {
					t.Fatal(o, err)
				}
				if err := NewSource(inVault(t, b)).Verify(p); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// The answer to a write may be lost although the object is there.
func TestBucketLosesAnswer(t *testing.T) {
	look(t, year(t, 3, 1), func(v projections.View) {
		p, rows := one(t, v)
		for _, suffix := range []string{".parquet", ".json"} {
			b := newVault()
			b.stored = func(name string, body []byte) error {
				b.objects[name] = body
				if strings.HasSuffix(name, suffix) {
					return errors.New("connection reset")
				}
				return nil
			}
			d := inVault(t, b)
			w, err := NewWriter(d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Put(p, nil, 7, rows); !errors.Is(err, ErrBucket) {
				t.Fatal(err)
			}
			b.stored = nil
			want := New
			if suffix == ".json" {
				want = Unchanged
			}
			if o, err := w.Put(p, nil, 7, rows); o != want || err != nil {
				t.Fatal(o, err)
			}
			if err := errors.Join(w.Close(), NewSource(inVault(t, b)).Verify(p)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An object that is lost or replaced is named, also where the cache still has it.
func TestBucketLosesObject(t *testing.T) {
	look(t, year(t, 3, 1), func(v projections.View) {
		b := newVault()
		d := inVault(t, b)
		put(t, d, v)
		p, rows := one(t, v)
		name := "log/" + fileOf(p.PartKey, p.Digest)
		whole := b.objects[name]
		scan := func(d Directory) error {
			s := NewSource(d)
			defer s.Close()
			return s.Scan(p, projections.Query{}, func(projections.Key, []byte) error { return nil })
		}
		warm := inVault(t, b)
		if err := scan(warm); err != nil {
			t.Fatal(err)
		}
		is := func(want error, errs ...error) {
			t.Helper()
			for _, err := range errs {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
					t.Errorf("%v, want %v of %s", err, want, name)
				}
			}
		}

		delete(b.objects, name)
		is(ErrMissing, NewSource(warm).Has(p), NewSource(warm).Verify(p), scan(inVault(t, b)))
		if err := scan(warm); err != nil { // the cache has the bytes that the manifest names
			t.Error(err)
		}

		other := bytes.Clone(whole)
		other[len(other)/2] ^= 1
		b.objects[name] = other
		is(ErrDamaged, NewSource(warm).Verify(p), scan(inVault(t, b)))

		delete(b.objects, name)
		w, err := NewWriter(d)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if o, err := w.Put(p, nil, 7, rows); o != Restored || err != nil {
			t.Fatal(o, err)
		}
		if err := NewSource(inVault(t, b)).Verify(p); err != nil {
			t.Error(err)
		}

		// Without its manifest a part is not known.
		for object := range b.objects {
			if strings.HasPrefix(object, "log/"+folder(p.PartKey)) && strings.HasSuffix(object, ".json") {
				delete(b.objects, object)
			}
		}
		if err := NewSource(warm).Has(p); !errors.Is(err, ErrMissing) {
			t.Error(err)
		}
	})
}

// Of two machines that make a part, one fails and says why. Nothing of the other is lost.
func TestTwoMachinesWrite(t *testing.T) {
	look(t, year(t, 3, 1), func(v projections.View) {
		b := newVault()
		p, rows := one(t, v)
		put := func(position int64) error {
			w, err := NewWriter(inVault(t, b))
			if err != nil {
				return err
			}
			defer w.Close()
			_, err = w.Put(p, nil, position, rows)
			return err
		}
		once := false
		b.wrong = func(_ context.Context, op, name string) error {
			if op == "upload" && strings.HasSuffix(name, ".json") && !once {
				once = true
				return put(8) // another machine is faster
			}
			return nil
		}
		if err := put(7); !errors.Is(err, ErrLocked) {
			t.Fatal(err)
		}
		m, err := inVault(t, b).Manifest(p.PartKey)
		if err != nil || len(m.Versions) != 1 || m.Last().Position != 8 {
			t.Fatalf("%+v: %v", m, err)
		}
	})
}
