package parts

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// A source gives the rows of each query, as the store did that left them to parts, also of a
// superseded version, and whether many or few files are open.
func TestSource(t *testing.T) {
	d := Directory{Path: t.TempDir(), Log: "log"}
	l := year(t, 3, 1, 2, 3, 4, 5, 6, 7, 8)
	s := NewSource(d)
	s.max = 3
	defer s.Close()
	same := func(r *projections.PartReader, p projections.PartDigest) {
		var queries []projections.Query
		if err := r.Rows(p.PartKey, func(k projections.Key, _ []byte) error {
			queries = append(queries,
				projections.Query{Table: k.Table, Scope: k.Scope, ID: k.ID, From: k.Hour, To: k.Hour + 1},
				projections.Query{Table: k.Table, Scope: k.Scope, From: k.Hour, Last: true})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		queries = append(queries[:min(20, len(queries))], projections.Query{})
		for _, q := range queries {
			var got, want []string
			if err := s.Scan(p, q, func(_ projections.Key, b []byte) error { got = append(got, string(b)); return nil }); err != nil {
				t.Fatal(err)
			}
			part := storetest.Parts{}
			if err := part.Put(r, p); err != nil {
				t.Fatal(err)
			}
			if err := part.Scan(p, q, func(_ projections.Key, b []byte) error { want = append(want, string(b)); return nil }); err != nil {
				t.Fatal(err)
			}
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s: %+v gives %d rows, want %d", p.PartKey, q, len(got), len(want))
			}
			for _, table := range projections.Tables() {
				got, err := s.Scopes(p, table)
				want, errB := part.Scopes(p, table)
				if err = errors.Join(err, errB); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s has scopes %q in %s, want %q: %v", p.PartKey, got, table, want, err)
				}
			}
		}
	}
	look(t, l, func(v projections.View) {
		put(t, d, v)
		all := digests(t, v)
		for _, p := range all {
			if err := s.Has(p); err != nil {
				t.Error(err)
			}
			same(projections.NewPartReader(v), p)
		}
		if s.open > s.max || len(all) <= s.max {
			t.Errorf("%d files of %d parts are open", s.open, len(all))
		}
	})
	first := slices.Clone(slices.Collect(func(yield func(projections.PartDigest) bool) {
		look(t, l, func(v projections.View) {
			for _, p := range digests(t, v) {
				yield(p)
			}
		})
	}))
	l.Append(storetest.Sampled("late", 60, 120, storetest.Held("research")))
	look(t, l, func(v projections.View) { put(t, d, v) })
	again := NewSource(d)
	defer again.Close()
	for _, p := range first {
		if err := again.Scan(p, projections.Query{}, func(projections.Key, []byte) error { return nil }); err != nil {
			t.Errorf("%s after it was superseded: %v", p.PartKey, err)
		}
	}
}

// A file that is not what was written is refused before a row of it is used, and the error says
// what to do. A missing file is found when a snapshot is opened, and is made again.
func TestSourceOfDamage(t *testing.T) {
	d := Directory{Path: t.TempDir(), Log: "log"}
	look(t, year(t, 2, 5), func(v projections.View) {
		put(t, d, v)
		all := digests(t, v)
		p := all[slices.IndexFunc(all, func(p projections.PartDigest) bool { return p.Partition.Topic == domain.TopicTelemetry })]
		path := d.File(p.PartKey, Digest(p.Digest))
		scan := func(s *Source) error {
			return s.Scan(p, projections.Query{}, func(projections.Key, []byte) error { return errors.New("a row was used") })
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		edit(t, path, func(b []byte) []byte { b[len(b)/3] ^= 1; return b })
		if err := scan(NewSource(d)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("altered: %v", err)
		}
		edit(t, path, func(b []byte) []byte { return b[:len(b)-1] })
		if err := NewSource(d).Has(p); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := NewSource(d).Has(p); !errors.Is(err, ErrMissing) {
			t.Errorf("gone: %v", err)
		}
		if err := scan(NewSource(d)); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("gone: %v", err)
		}
		if got := put(t, d, v); got[Restored] != 1 {
			t.Errorf("made again: %v", got)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != string(whole) {
			t.Errorf("the file that was made again differs: %v", err)
		}
		other := p
		other.Digest[0] ^= 1
		if err := NewSource(d).Has(other); !errors.Is(err, ErrMissing) {
			t.Errorf("a version that was never made: %v", err)
		}
		if err := os.RemoveAll(d.Path); err != nil {
			t.Fatal(err)
		}
		if err := NewSource(d).Has(p); !errors.Is(err, ErrMissing) || errors.Is(err, os.ErrNotExist) {
			t.Errorf("no directory: %v", err)
		}
	})
}

// Whoever may read the directory of parts may read the parts in it, and nobody else.
func TestPartsAreAsReadableAsTheirDirectory(t *testing.T) {
	for _, mode := range []os.FileMode{0o700, 0o750, 0o755} {
		d := Directory{Path: t.TempDir(), Log: "log"}
		if err := os.Chmod(d.Path, mode); err != nil {
			t.Fatal(err)
		}
		look(t, year(t, 1, 5), func(v projections.View) {
			put(t, d, v)
			for _, p := range digests(t, v)[:1] {
				file := d.File(p.PartKey, Digest(p.Digest))
				for _, path := range []string{file, filepath.Join(filepath.Dir(file), manifestName)} {
					if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode&0o644 {
						t.Errorf("%s in a directory with %v: %v %v", path, mode, st.Mode(), err)
					}
				}
				for dir := filepath.Dir(file); dir != d.Path; dir = filepath.Dir(dir) {
					if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != mode {
						t.Errorf("%s in a directory with %v: %v %v", dir, mode, st.Mode(), err)
					}
				}
			}
		})
	}
}

// BenchmarkScan reads a month of usage hours of nodes with eight GPUs.
func BenchmarkScan(b *testing.B) {
	d := Directory{Path: b.TempDir(), Log: "log"}
	l := storetest.Fleet(8, 31*24, storetest.Start)
	var all []projections.PartDigest
	look(b, l, func(v projections.View) {
		put(b, d, v)
		all = digests(b, v)
	})
	s := NewSource(d)
	defer s.Close()
	for _, work := range []struct {
		name string
		row  func(projections.Key, []byte) error
	}{
		{"rows", func(projections.Key, []byte) error { return nil }},
		{"decoded", func(k projections.Key, row []byte) error {
			_, raw, err := projections.SplitRow(row)
			if err == nil {
				_, err = projections.DecodeRow(k.Table, raw)
			}
			return err
		}},
	} {
		b.Run(work.name, func(b *testing.B) {
			rows, bytes := 0, 0
			for b.Loop() {
				for _, p := range all {
					if err := s.Scan(p, projections.Query{Table: projections.TableUsage}, func(k projections.Key, row []byte) error {
						rows++
						bytes += len(row)
						return work.row(k, row)
					}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(bytes)/float64(rows), "B/row")
		})
	}
}

// Rows of another store under the name of a part, with a manifest that vouches for them, are found by
// verifying.
func TestSourceVerifiesRows(t *testing.T) {
	d, other := Directory{Path: t.TempDir(), Log: "log"}, Directory{Path: t.TempDir(), Log: "log"}
	var p, q projections.PartDigest
	look(t, year(t, 1, 5), func(v projections.View) { put(t, d, v); p = digests(t, v)[len(digests(t, v))-1] })
	look(t, year(t, 2, 5), func(v projections.View) {
		put(t, other, v)
		for _, o := range digests(t, v) {
			if o.PartKey == p.PartKey {
				q = o
			}
		}
	})
	if err := NewSource(d).Verify(p); err != nil || q.Digest == p.Digest || q.Rows == 0 {
		t.Errorf("%+v, %+v: %v", p, q, err)
	}
	forged, err := os.ReadFile(other.File(q.PartKey, q.Digest))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, d.File(p.PartKey, p.Digest), func([]byte) []byte { return forged })
	m, err := d.Manifest(p.PartKey)
	if err != nil {
		t.Fatal(err)
	}
	m.Last().Bytes, m.Last().SHA256 = int64(len(forged)), sha256.Sum256(forged)
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	edit(t, d.path(folder(p.PartKey)+"/"+manifestName), func([]byte) []byte { return b })
	if err := NewSource(d).Verify(p); !errors.Is(err, ErrDamaged) {
		t.Errorf("other rows: %v", err)
	}
}
