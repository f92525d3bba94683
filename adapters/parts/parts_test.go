package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// year is a log of a few nodes with a day of each month of 2026, and an example of every event.
func year(t testing.TB, nodes int, months ...int) *storetest.Log {
	t.Helper()
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	for _, m := range months {
		at := domain.InstantOf(time.Date(2026, time.Month(m), 3, 0, 0, 0, 0, time.UTC))
		fleet := storetest.Fleet(nodes, 24, at)
		for tp := range fleet.End() {
			for _, rec := range fleet.Records(tp) {
				env := *fleet.Event(&rec)
				env.Incarnation, env.Sequence = uint64(m), 0
				l.Append(env)
			}
		}
	}
	return l
}

// look passes the view of a folded log.
func look(t testing.TB, l *storetest.Log, read func(projections.View)) {
	t.Helper()
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.View(context.Background(), func(v projections.View) error {
		read(v)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// put writes every part of a view, and returns how many had which outcome.
func put(t testing.TB, d Directory, v projections.View) map[Outcome]int {
	t.Helper()
	w, err := NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := projections.NewPartReader(v)
	count := map[Outcome]int{}
	for _, p := range digests(t, v) {
		o, err := w.Put(p, nil, v.Position()[p.Partition], func(yield func(projections.Key, []byte) error) error {
			return r.Rows(p.PartKey, yield)
		})
		if err != nil {
			t.Fatal(err)
		}
		count[o]++
	}
	return count
}

func digests(t testing.TB, v projections.View) (all []projections.PartDigest) {
	t.Helper()
	r := projections.NewPartReader(v)
	for _, tp := range domain.AllPartitions() {
		d, err := r.Digest(tp)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d.Parts...)
	}
	slices.SortFunc(all, func(a, b projections.PartDigest) int { return a.Compare(b.PartKey) })
	return all
}

func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// Equal rows give equal files and manifests. Writing again changes nothing. What is read is what was
// written, by every query.
func TestPutAndRead(t *testing.T) {
	look(t, year(t, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), func(v projections.View) {
		a, b := Directory{Path: t.TempDir(), Log: "log"}, Directory{Path: t.TempDir(), Log: "log"}
		first := put(t, a, v)
		if all := len(digests(t, v)); first[New] != all || all < 15 {
			t.Fatalf("wrote %v of %d parts", first, all)
		}
		put(t, b, v)
		was := files(t, a.Path)
		for name, text := range files(t, b.Path) {
			if was[name] != text {
				t.Errorf("%s differs between two runs", name)
			}
		}
		if again := put(t, a, v); again[Unchanged] != first[New] || len(again) != 1 {
			t.Errorf("writing again: %v", again)
		}
		keys, err := a.List()
		if err != nil || len(keys) != first[New] {
			t.Fatalf("%d parts are listed: %v", len(keys), err)
		}
		r := projections.NewPartReader(v)
		for _, k := range keys {
			if err := a.Read(k, func(p *Part) error {
				if err := p.Verify(); err != nil {
					return err
				}
				sameRows(t, r, p)
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// sameRows compares the answers of a part with those of the view, for queries about each of some
// rows.
func sameRows(t *testing.T, r *projections.PartReader, p *Part) {
	t.Helper()
	var keys []projections.Key
	rows := map[projections.Key]string{}
	if err := r.Rows(p.Key, func(k projections.Key, b []byte) error {
		keys = append(keys, k)
		rows[k] = string(b)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if i%7 > 0 {
			continue
		}
		for _, q := range []projections.Query{
			{Table: k.Table}, {Table: k.Table, Scope: k.Scope}, {Table: k.Table, ID: k.ID},
			{Table: k.Table, Scope: k.Scope, ID: k.ID, From: k.Hour, To: k.Hour + 1}, {Table: k.Table, To: k.Hour},
			{Table: k.Table, From: k.Hour + 1}, {Table: k.Table, Last: true}, {Table: k.Table, ID: "nobody"},
		} {
			var want, got []projections.Key
			for j, l := range keys {
				last := j+1 == len(keys) || keys[j+1].Table != l.Table || keys[j+1].Scope != l.Scope || keys[j+1].ID != l.ID
				if l.Table == q.Table && q.Holds(l) && (!q.Last || last) {
					want = append(want, l)
				}
			}
			if err := p.Scan(q, func(l projections.Key, b []byte) error {
				got = append(got, l)
				if rows[l] != string(b) {
					t.Errorf("%s has other bytes", l)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %+v gives %v, want %v", p.Key, q, got, want)
			}
		}
	}
}

// A part of many row groups and pages is read by the pages that a query needs.
func TestReadManyGroups(t *testing.T) {
	const nodes, hours = 200, 400
	k := projections.Key{Table: projections.TableUsage, Scope: "lab"}
	month := projections.MonthStart(storetest.Start)
	each := func(yield func(projections.Key, []byte) error) error {
		for n := range nodes {
			k.ID = strings.Repeat("a-very-long-prefix-of-a-name-", 3) + string(rune('a'+n/26)) + string(rune('a'+n%26))
			for h := range hours {
				k.Hour = month + int64(h)
				b, err := projections.AppendRow(nil, k, &projections.UsageHour{Holders: []projections.Holder{{Workspace: "w"}}})
				if err != nil {
					return err
				}
				if err := yield(k, b); err != nil {
					return err
				}
			}
		}
		return nil
	}
	h := sha256.New()
	if err := each(func(_ projections.Key, b []byte) error { h.Write(b); return nil }); err != nil {
		t.Fatal(err)
	}
	key, _ := projections.PartOf(projections.Key{Table: projections.TableUsage, Scope: "lab", Hour: month})
	d := Directory{Path: t.TempDir(), Log: "log"}
	w, err := NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := NewWriter(d); !errors.Is(err, ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	if _, err := w.Put(projections.PartDigest{PartKey: key, Rows: nodes * hours, Digest: [32]byte(h.Sum(nil))}, nil, 1, each); err != nil {
		t.Fatal(err)
	}
	if err := d.Read(key, func(p *Part) error {
		if groups := len(p.file.RowGroups()); groups < 3 {
			t.Errorf("%d row groups", groups)
		}
		n := 0
		q := projections.Query{Table: k.Table, Scope: "lab", ID: k.ID, From: month + 7, To: month + 9}
		if err := p.Scan(q, func(projections.Key, []byte) error { n++; return nil }); err != nil || n != 2 {
			t.Errorf("%d rows: %v", n, err)
		}
		read := int64(0)
		for _, g := range p.file.RowGroups() {
			from, to, err := rangeOf(g, q)
			if err != nil {
				return err
			}
			read += max(0, to-from)
		}
		if read > nodes*hours/8 {
			t.Errorf("%d of %d rows are read for two", read, nodes*hours)
		}
		return p.Verify()
	}); err != nil {
		t.Fatal(err)
	}
}

// A late fact adds a version, and the file of the one before stays.
func TestSupersede(t *testing.T) {
	d := Directory{Path: t.TempDir(), Log: "log"}
	l := year(t, 2, 5)
	look(t, l, func(v projections.View) { put(t, d, v) })
	before := files(t, d.Path)
	late := storetest.Sampled("late", 60, 120, storetest.Held("research"))
	l.Append(late)
	look(t, l, func(v projections.View) {
		if got := put(t, d, v); got[Superseded]+got[New] == 0 || got[Unchanged] == 0 {
			t.Errorf("a late fact: %v", got)
		}
		put(t, d, v)
		now := files(t, d.Path)
		for name, text := range before {
			if strings.HasSuffix(name, ".parquet") && now[name] != text {
				t.Errorf("%s was changed or removed", name)
			}
		}
		for _, p := range digests(t, v) {
			m, err := d.Manifest(p.PartKey)
			if err != nil || m.Last().Digest != Digest(p.Digest) {
				t.Errorf("%s: %+v, %v", p.PartKey, m, err)
				continue
			}
			for _, version := range m.Versions {
				if err := d.read(p.PartKey, &version, false, (*Part).Verify); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Whatever is altered is named by its own error.
func TestDamage(t *testing.T) {
	var key, other projections.PartKey
	whole := t.TempDir()
	look(t, year(t, 2, 4, 5), func(v projections.View) {
		put(t, Directory{Path: whole, Log: "log"}, v)
		for _, p := range digests(t, v) {
			if p.Partition.Topic == domain.TopicTelemetry && p.Rows > 20 {
				other, key = key, p.PartKey
			}
		}
	})
	for _, c := range []struct {
		name string
		want error
		do   func(d *Directory, file, manifest string)
	}{
		{"cut", ErrDamaged, func(_ *Directory, file, _ string) { edit(t, file, func(b []byte) []byte { return b[:len(b)/2] }) }},
		{"byte", ErrDamaged, func(_ *Directory, file, _ string) {
			edit(t, file, func(b []byte) []byte { b[len(b)/3] ^= 1; return b })
		}},
		{"swapped", ErrDamaged, func(d *Directory, file, _ string) {
			m, err := d.Manifest(other)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(d.File(other, m.Last().Digest))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, file, func([]byte) []byte { return b })
		}},
		{"gone", ErrMissing, func(_ *Directory, file, _ string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}},
		{"other log", ErrLog, func(d *Directory, _, _ string) { d.Log = "another" }},
		{"other method", ErrMethod, func(_ *Directory, _, manifest string) {
			edit(t, manifest, func(b []byte) []byte { return bytes.Replace(b, []byte(projections.Method), []byte("rows/0"), 1) })
		}},
		{"manifest of another part", ErrManifest, func(d *Directory, _, manifest string) {
			b, err := os.ReadFile(d.path(folder(other) + "/" + manifestName))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, manifest, func([]byte) []byte { return b })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Directory{Path: t.TempDir(), Log: "log"}
			if err := os.CopyFS(d.Path, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			m, err := d.Manifest(key)
			if err != nil {
				t.Fatal(err)
			}
			c.do(&d, d.File(key, m.Last().Digest), d.path(folder(key)+"/"+manifestName))
			if err := d.Read(key, (*Part).Verify); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The decoder of files never panics and never accepts other rows, even if the manifest vouches for
// the altered bytes.
func TestLyingManifest(t *testing.T) {
	look(t, year(t, 1, 5), func(v projections.View) {
		d := Directory{Path: t.TempDir(), Log: "log"}
		put(t, d, v)
		p := digests(t, v)[len(digests(t, v))-1]
		m, err := d.Manifest(p.PartKey)
		if err != nil {
			t.Fatal(err)
		}
		path := d.File(p.PartKey, m.Last().Digest)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(good); i += 13 {
			b := bytes.Clone(good)
			b[i] ^= 0x55
			edit(t, path, func([]byte) []byte { return b })
			version := *m.Last()
			version.SHA256 = sha256.Sum256(b)
			err := d.read(p.PartKey, &version, false, func(part *Part) error {
				if err := part.Verify(); err != nil {
					return err
				}
				h := sha256.New()
				err := part.Scan(projections.Query{}, func(_ projections.Key, b []byte) error { h.Write(b); return nil })
				if err == nil && [32]byte(h.Sum(nil)) != p.Digest {
					t.Errorf("byte %d is changed, and other rows are accepted", i)
				}
				return err
			})
			if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrLog) {
				t.Errorf("byte %d is changed: %v", i, err)
			}
		}
	})
}

// The root has the hashes of RFC 6962, as another implementation computes them.
func TestPartsRoot(t *testing.T) {
	var parts []projections.PartDigest
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
		for _, i := range at {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	for i := range 70 {
		want, err := tlog.TreeHash(int64(i), reader)
		if err != nil {
			t.Fatal(err)
		}
		if got := projections.PartsRoot(parts); i > 0 && tlog.Hash(got) != want || i == 0 && got != sha256.Sum256(nil) {
			t.Errorf("of %d parts the root is %x, want %s", i, got, want)
		}
		p := projections.PartDigest{
			PartKey: projections.PartKey{Partition: domain.TopicPartition{Topic: domain.TopicFleet}, Month: int64(i) * 744},
			Digest:  [32]byte{byte(i)},
		}
		parts = append(parts, p)
		more, err := tlog.StoredHashes(int64(i), []byte(p.String()+" "+Digest(p.Digest).String()+"\n"), reader)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, more...)
	}
}
