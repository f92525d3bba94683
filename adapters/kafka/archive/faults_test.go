package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// stub is a store that fails as told.
type stub struct {
	Store
	put func(name string, body []byte, next func(string, []byte) error) error
	get func(name string) (io.ReadCloser, error)
	ls  func(names []string) ([]string, error)
}

func (s *stub) Put(ctx context.Context, name string, body []byte) error {
	next := func(name string, body []byte) error { return s.Store.Put(ctx, name, body) }
	if s.put == nil {
		return next(name, body)
	}
	return s.put(name, body, next)
}

func (s *stub) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if s.get != nil {
		if r, err := s.get(name); r != nil || err != nil {
			return r, err
		}
	}
	return s.Store.Get(ctx, name)
}

func (s *stub) List(ctx context.Context, prefix string) ([]string, error) {
	names, err := s.Store.List(ctx, prefix)
	if err == nil && s.ls != nil {
		return s.ls(names)
	}
	return names, err
}

var errGone = errors.New("the bucket is gone")

// TestFailures ends archiving at each request, before and after it took effect, as a crash or a bucket
// that is full or gone would. The next run continues, and nothing counts that was not read back.
func TestFailures(t *testing.T) {
	l, _ := newLog(t)
	fill(t, l, fleet, 0, 100)
	want := raw(t, l, fleet)
	id := identify(t, l)
	for _, after := range []bool{false, true} {
		done := false
		for fail := 1; !done; fail++ {
			dir := Directory(t.TempDir())
			calls := 0
			s := &stub{Store: dir}
			s.put = func(name string, body []byte, next func(string, []byte) error) error {
				if calls++; calls < fail {
					return next(name, body)
				}
				if after {
					if err := next(name, body); err != nil {
						return err
					}
				}
				return errGone
			}
			err := run(t, New(s, id), l, fleet, 1000)
			done = err == nil
			if err != nil && !errors.Is(err, errGone) {
				t.Fatalf("failure %d: %v", fail, err)
			}
			a := New(dir, id)
			if end, err := a.End(t.Context(), fleet); err != nil || done != (end == 100) && !after {
				t.Fatalf("failure %d: the archive ends at %d: %v", fail, end, err)
			}
			fill := 1000 + int64(fail) // another size: objects of the failed run are not used again
			if err := run(t, a, l, fleet, fill); err != nil {
				t.Fatalf("after failure %d: %v", fail, err)
			}
			var got []byte
			if err := a.Batches(t.Context(), fleet, 0, func(b kafka.Batches) error {
				got = append(got, b.Bytes...)
				return nil
			}); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("after failure %d: other bytes: %v", fail, err)
			}
			if v := verify(t, a); len(v.Faults) > 0 {
				t.Fatalf("after failure %d: %v", fail, v.Faults)
			}
		}
	}
}

// TestStoreKeepsOtherBytes has a store that takes something else than it was given, or nothing.
func TestStoreKeepsOtherBytes(t *testing.T) {
	l, _ := newLog(t)
	fill(t, l, fleet, 0, 100)
	id := identify(t, l)
	spoil := map[string]func([]byte) []byte{
		"changed": func(b []byte) []byte { b = bytes.Clone(b); b[len(b)-2] ^= 1; return b },
		"short":   func(b []byte) []byte { return b[:len(b)-1] },
		"longer":  func(b []byte) []byte { return append(bytes.Clone(b), 0) },
		"empty":   func([]byte) []byte { return nil },
		"nothing": nil,
	}
	for what, change := range spoil {
		for _, kind := range []string{"segments/", "manifests/"} {
			s := &stub{Store: Directory(t.TempDir())}
			s.put = func(name string, body []byte, next func(string, []byte) error) error {
				switch {
				case !strings.HasPrefix(name, kind):
				case change == nil:
					return nil
				default:
					body = change(body)
				}
				return next(name, body)
			}
			err := run(t, New(s, id), l, fleet, 1000)
			if !errors.Is(err, kafka.ErrArchive) {
				t.Errorf("%s %s: %v", what, kind, err)
			}
			manifests, err := s.Store.List(t.Context(), manifestsOf(fleet))
			if kind == "segments/" && (len(manifests) > 0 || err != nil) {
				t.Errorf("%s: a wrong segment counts as archived: %v", what, manifests)
			}
		}
	}
	// Once only: the wrong object is superseded.
	dir := Directory(t.TempDir())
	spoiled := false
	s := &stub{Store: dir}
	s.put = func(name string, body []byte, next func(string, []byte) error) error {
		if strings.HasPrefix(name, "segments/") && !spoiled {
			spoiled = true
			body = spoil["changed"](body)
		}
		return next(name, body)
	}
	if err := run(t, New(s, id), l, fleet, 1000); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 || v.Unreferenced != 1 || v.Records != 100 {
		t.Fatalf("%+v", v)
	}
}

// TestDamage changes every object of an archive in turn. Each change is found and named by verify, and
// by readers that need the object.
func TestDamage(t *testing.T) {
	_, l, dir := archived(t)
	id := identify(t, l)
	names, err := dir.List(t.Context(), "./")
	if err != nil || len(names) < 7 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		path := dir.path(name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, bad := range map[string][]byte{
			"changed": changed(good), "shortened": good[:len(good)-1], "emptied": {}, "removed": nil,
		} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if bad != nil {
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := New(dir, id)
			last := strings.HasPrefix(name, "manifests/") && !slices.ContainsFunc(names, func(n string) bool {
				return strings.HasPrefix(n, "manifests/") && n > name
			})
			v := verify(t, a)
			lost := what == "removed" && last // only a checkpoint can show it: TestCheckpoints
			if lost != (len(v.Faults) == 0) {
				t.Errorf("%s %s: faults are %v", name, what, v.Faults)
			}
			err := a.Batches(t.Context(), fleet, 0, func(kafka.Batches) error { return nil })
			if lost != (err == nil) || err != nil && !errors.Is(err, kafka.ErrArchive) {
				t.Errorf("%s %s: read: %v", name, what, err)
			}
			if end, err := a.Confirm(t.Context(), l, fleet, 0, 500); lost && end == 500 || !lost && !errors.Is(err, kafka.ErrArchive) {
				t.Errorf("%s %s: confirmed up to %d: %v", name, what, end, err)
			}
			if bad != nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 {
		t.Fatal(v.Faults)
	}
}

func changed(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return b
}

// TestLies rewrites manifests so that each is well-formed and says something wrong.
func TestLies(t *testing.T) {
	_, l, dir := archived(t)
	id := identify(t, l)
	names, err := dir.List(t.Context(), manifestsOf(fleet))
	if err != nil {
		t.Fatal(err)
	}
	path := dir.path(names[1])
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, lie := range map[string]func(*Manifest){
		"previous":  func(m *Manifest) { m.Previous[0]++ },
		"number":    func(m *Manifest) { m.Number++ },
		"last":      func(m *Manifest) { m.Last++ },
		"less":      func(m *Manifest) { m.Last-- },
		"batches":   func(m *Manifest) { m.Batches-- },
		"bytes":     func(m *Manifest) { m.Bytes++ },
		"object":    func(m *Manifest) { m.ObjectBytes++ },
		"stored":    func(m *Manifest) { m.ObjectSHA256[0]++ },
		"unstored":  func(m *Manifest) { m.ObjectSHA256 = nil },
		"sum":       func(m *Manifest) { m.SHA256[0]++ },
		"latest":    func(m *Manifest) { m.Latest++ },
		"earliest":  func(m *Manifest) { m.Earliest-- },
		"record":    func(m *Manifest) { m.LastRecord.SHA256[0]++ },
		"epoch":     func(m *Manifest) { m.LastRecord.Epoch++ },
		"root":      func(m *Manifest) { m.Tree.Root[0]++ },
		"tree":      func(m *Manifest) { m.Tree.Frontier[0][0]++; m.Tree.Root = merkle.RootOf(m.Tree.Frontier) },
		"from":      func(m *Manifest) { m.Tree.From = 0 },
		"blocks":    func(m *Manifest) { m.Tree.Blocks = append(m.Tree.Blocks, merkle.Hash{}) },
		"no tree":   func(m *Manifest) { m.Tree = nil },
		"format":    func(m *Manifest) { m.Format, m.Tree, m.ObjectSHA256 = firstFormat, nil, nil },
		"note":      func(m *Manifest) { m.Checkpoint = "note" },
		"aborted":   func(m *Manifest) { m.Aborted = append(m.Aborted, kafka.Transaction{Producer: 1, First: 2}) },
		"partition": func(m *Manifest) { m.Partition++ },
		"log":       func(m *Manifest) { m.Log = "other" },
		"archive":   func(m *Manifest) { m.Archive = strings.Repeat("0", 2*idBytes) },
		"name":      func(m *Manifest) { m.Object = "segments/other.zst" },
		"place":     func(m *Manifest) { m.Object = "../" + m.Object },
		"inside":    func(m *Manifest) { m.Object = strings.Replace(m.Object, "/0/", "/0/../0/", 1) },
		"prefix":    func(m *Manifest) { m.Object = strings.Replace(m.Object, "segments/", "manifests/", 1) },
		"segment":   func(m *Manifest) { m.Object = segmentName(fleet, m.First+1, m.SHA256, 0) },
		"attempt":   func(m *Manifest) { m.Object = strings.TrimSuffix(m.Object, ".zst") + "-01.zst" },
		"no topic":  func(m *Manifest) { m.Topic = "../qm.fleet" },
	} {
		m, err := parseManifest(good)
		if err != nil {
			t.Fatal(err)
		}
		lie(m)
		if err := errors.Join(os.Remove(path), os.WriteFile(path, m.encode(), 0o600)); err != nil {
			t.Fatal(err)
		}
		if v := verify(t, New(dir, id)); len(v.Faults) == 0 {
			t.Errorf("%s: verify finds nothing", what)
		}
	}
}

// A manifest names an object that can only be its own. Otherwise two segments could share one, or it could lead elsewhere.
func TestManifestOwnsItsObject(t *testing.T) {
	_, _, dir := archived(t)
	names, err := dir.List(t.Context(), manifestsOf(fleet))
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(dir.path(names[1]))
	if err != nil {
		t.Fatal(err)
	}
	m, err := parseManifest(good)
	if err != nil {
		t.Fatal(err)
	}
	own := m.Object
	m.Object = segmentName(fleet, m.First, m.SHA256, 12)
	if _, err := parseManifest(m.encode()); err != nil {
		t.Errorf("the object of a later attempt: %v", err)
	}
	for _, name := range []string{
		"", "segments/other.zst", "../" + own, "/" + own, own + "/../x.zst", own + ".zst", strings.Replace(own, "/0/", "/0/../0/", 1),
		strings.Replace(own, "segments/", "manifests/", 1), segmentName(fleet, m.First+1, m.SHA256, 0), segmentName(fleet, m.First, Sum{}, 0),
		strings.TrimSuffix(own, ".zst") + "-01.zst", strings.TrimSuffix(own, ".zst") + "-0.zst", strings.TrimSuffix(own, ".zst") + "--1.zst",
	} {
		m.Object = name
		if _, err := parseManifest(m.encode()); err == nil || !strings.Contains(err.Error(), "cannot be its own") {
			t.Errorf("object %q: %v", name, err)
		}
	}
}

func TestOtherLog(t *testing.T) {
	_, l, dir := archived(t)
	other, _ := newLog(t)
	fill(t, other, fleet, 0, 600)
	id := identify(t, other)
	var wrong *OtherLogError
	if id.ID == identify(t, l).ID { // kfake's clusters have one id: the topics tell them apart
		id.ID = "another cluster"
	}
	if err := run(t, New(dir, id), other, fleet, 2000); !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	// The same cluster with topics that were created again.
	id = identify(t, l)
	id.Topics = func(context.Context) (map[domain.Topic]string, error) {
		return map[domain.Topic]string{fleet.Topic: "another topic"}, nil
	}
	if err := run(t, New(dir, id), l, fleet, 2000); !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	// A log that says it is the same, and has other records.
	id.Topics = nil
	changed, _ := newLog(t)
	fill(t, changed, fleet, 1, 601)
	if err := run(t, New(dir, id), changed, fleet, 2000); !errors.Is(err, kafka.ErrArchive) || !errors.Is(err, kafka.ErrDiverged) {
		t.Fatal(err)
	}
	if _, err := New(dir, id).Confirm(t.Context(), changed, fleet, 0, 500); !errors.Is(err, kafka.ErrArchive) {
		t.Fatal(err)
	}
	// And is trimmed: the seam is compared.
	if _, err := changed.DeleteRecords(t.Context(), fleet, 255); err != nil {
		t.Fatal(err)
	}
	changed.Archive = New(dir, id)
	var seam *kafka.SeamError
	if err := changed.Read(t.Context(), fleet, 0, 600, func([]domain.Record) error { return nil }); !errors.As(err, &seam) {
		t.Fatal(err)
	}
}

// TestTwoArchives mixes two archives of one log in one place, and archives one log by two processes.
func TestTwoArchives(t *testing.T) {
	a, l, dir := archived(t)
	fill(t, l, fleet, 500, 600)
	second := Directory(t.TempDir())
	if err := run(t, New(second, identify(t, l)), l, fleet, 3000); err != nil {
		t.Fatal(err)
	}
	names, err := second.List(t.Context(), "./")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		body, err := os.ReadFile(second.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Put(t.Context(), name, body); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	v := verify(t, a)
	if len(v.Faults) == 0 || !strings.Contains(fmt.Sprint(v.Faults), "there are two archives of this log") {
		t.Fatal(v.Faults)
	}

	// Another process writes the manifest first.
	l2, _ := newLog(t)
	fill(t, l2, fleet, 0, 100)
	dir = Directory(t.TempDir())
	id := identify(t, l2)
	s := &stub{Store: dir}
	s.put = func(name string, body []byte, next func(string, []byte) error) error {
		if strings.HasPrefix(name, "manifests/") {
			if err := run(t, New(dir, id), l2, fleet, 2000); err != nil {
				t.Error(err)
			}
		}
		return next(name, body)
	}
	if err := run(t, New(s, id), l2, fleet, 1000); !errors.Is(err, ErrForked) {
		t.Fatal(err)
	}
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 || v.Records != 100 {
		t.Fatalf("%+v", v)
	}
}

// TestBucketGone reads while the store fails: the error is temporary, and no damage is claimed.
func TestBucketGone(t *testing.T) {
	_, l, dir := archived(t)
	if _, err := l.DeleteRecords(t.Context(), fleet, 200); err != nil {
		t.Fatal(err)
	}
	fails := 3
	s := &stub{Store: dir}
	s.get = func(name string) (io.ReadCloser, error) {
		if strings.HasPrefix(name, "segments/") && fails > 0 {
			fails--
			return io.NopCloser(io.MultiReader(strings.NewReader("\x28\xb5\x2f\xfd"), failing{})), nil
		}
		return nil, nil
	}
	l.Archive = New(s, identify(t, l))
	if got := hashes(t, l, fleet, 0); len(got) != 500 {
		t.Fatal(len(got))
	}
	s.get = func(string) (io.ReadCloser, error) { return nil, errGone }
	l.Archive = New(s, identify(t, l))
	err := l.Read(t.Context(), fleet, 0, 500, func([]domain.Record) error { return nil })
	if !errors.Is(err, errGone) || errors.Is(err, kafka.ErrArchive) {
		t.Fatal(err)
	}
	if _, err := New(s, identify(t, l)).Confirm(t.Context(), l, fleet, 200, 500); !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	// A listing without an object that was there.
	s.get = nil
	a := New(s, identify(t, l))
	if _, err := a.End(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	s.ls = func(names []string) ([]string, error) { return slices.Delete(names, 1, 2), nil }
	if _, err := a.End(t.Context(), fleet); !errors.Is(err, kafka.ErrArchive) {
		t.Fatal(err)
	}
	if _, err := New(s, identify(t, l)).End(t.Context(), fleet); !errors.Is(err, kafka.ErrArchive) {
		t.Fatal(err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errGone }
