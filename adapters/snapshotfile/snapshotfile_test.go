package snapshotfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// logOf returns a log with an event of each of n clusters, and a position at its end.
func logOf(n int) (*storetest.Log, domain.Position) {
	l := storetest.NewLog()
	for i := range n {
		cluster := fmt.Sprint("c", i)
		l.Append(domain.Envelope{
			Source: "test", Incarnation: 1, Sequence: 1, Time: storetest.Start, Cluster: cluster, Event: &domain.NodeRetired{Node: "n"},
		})
	}
	return l, l.End()
}

// writer returns a function that writes a snapshot of a log folded up to a position.
func writer(t *testing.T, l *storetest.Log, at domain.Position, name string) func(io.Writer) error {
	t.Helper()
	m := projections.NewMemory(domain.TopicSpecs())
	if err := l.Runner(m).CatchUp(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	return func(w io.Writer) error {
		_, _, err := m.WriteSnapshot(w, name)
		return err
	}
}

func names(infos []Info) []string {
	out := []string{}
	for _, in := range infos {
		out = append(out, filepath.Base(in.Path))
	}
	return out
}

// Saved snapshots are replaced, kept ones stay, and neither affects the other.
func TestKeepAndSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	if infos, err := Infos(dir); err != nil || len(infos) != 0 {
		t.Fatalf("a directory that is not there has %v: %v", infos, err)
	}
	for n := 1; n <= 4; n++ {
		l, at := logOf(n)
		write := writer(t, l, at, "log")
		saved, err := Save(dir, at, write)
		if err != nil {
			t.Fatal(err)
		}
		keptPath, err := Keep(dir, at, write)
		if err != nil || keptPath == saved {
			t.Fatalf("kept as %s: %v", keptPath, err)
		}
		if again, err := Keep(dir, at, write); err != nil || again != keptPath {
			t.Fatalf("kept again as %s, not %s: %v", again, keptPath, err)
		}
	}
	infos, err := Infos(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, in := range infos {
		if in.Err != nil || in.Size == 0 || in.Made == 0 || in.Log != "log" || in.Method != projections.Method || !strings.HasPrefix(filepath.Base(in.Path), fmt.Sprintf("%020d", in.Position.Records())) {
			t.Errorf("%+v", in)
		}
		if in.Kind == Kept {
			kept++
		}
	}
	if len(infos) != 6 || kept != 4 || infos[0].Position.Records() != 4 {
		t.Errorf("there are %v, %d kept; want 4 kept and 2 saved", names(infos), kept)
	}
}

// Nearest returns snapshots of this log and method that are not past the position in any partition,
// the one with the most records first.
func TestNearest(t *testing.T) {
	dir := t.TempDir()
	l, end := logOf(8)
	var two []domain.TopicPartition
	for tp, n := range end {
		if n > 0 {
			two = append(two, tp)
		}
	}
	slices.SortFunc(two, domain.TopicPartition.Compare)
	if len(two) < 2 {
		t.Fatalf("all is in %v", two)
	}
	a, b := two[0], two[1]
	keep := func(at domain.Position, name string) string {
		path, err := Keep(dir, at, writer(t, l, at, name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	nothing, onlyA, onlyB := keep(domain.Position{}, "log"), keep(domain.Position{a: 1}, "log"), keep(domain.Position{b: 1}, "log")
	if filepath.Base(onlyA)[:20] != filepath.Base(onlyB)[:20] || onlyA == onlyB {
		t.Errorf("%s and %s", onlyA, onlyB)
	}
	whole := keep(end, "log")
	other, err := Save(dir, domain.Position{a: 1}, writer(t, l, domain.Position{a: 1}, "another log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to   domain.Position
		want []string
	}{
		{domain.Position{}, []string{nothing}},
		{domain.Position{a: 1}, []string{onlyA, nothing}},
		{domain.Position{b: end[b]}, []string{onlyB, nothing}},
		{end, []string{whole, max(onlyA, onlyB), min(onlyA, onlyB), nothing}},
	} {
		got, err := Nearest(dir, "log", c.to)
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{}
		for _, in := range got {
			paths = append(paths, in.Path)
		}
		if !slices.Equal(paths, c.want) {
			t.Errorf("to %s: %v, want %v", c.to, names(got), c.want)
		}
	}

	// A snapshot that is visibly damaged is listed, but not proposed.
	if err := os.Truncate(whole, 90); err != nil {
		t.Fatal(err)
	}
	infos, err := Infos(dir)
	if err != nil || len(infos) != 5 || infos[0].Path != whole || !errors.Is(infos[0].Err, projections.ErrSnapshotDamaged) {
		t.Errorf("%v: %v", names(infos), err)
	}
	if got, err := Nearest(dir, "log", end); err != nil || len(got) != 3 || slices.ContainsFunc(got, func(in Info) bool { return in.Path == other }) {
		t.Errorf("proposed are %v: %v", names(got), err)
	}
}

// A failed write leaves no file. A file that a crash left is removed once no process can be writing
// it.
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	full := errors.New("no space left")
	if _, err := Keep(dir, domain.Position{}, func(io.Writer) error { return full }); !errors.Is(err, full) {
		t.Fatal(err)
	}
	old, busy := filepath.Join(dir, "new-1"), filepath.Join(dir, "new-2")
	for _, p := range []string{old, busy} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	longAgo := time.Now().Add(-2 * abandoned)
	l, at := logOf(1)
	for _, put := range []func(string, domain.Position, func(io.Writer) error) (string, error){Save, Keep} {
		if err := os.WriteFile(old, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(old, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
		path, err := put(dir, at, writer(t, l, at, "log"))
		if err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || !slices.Equal(left, []string{path, busy}) {
			t.Errorf("there are %v: %v", left, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever may read the directory may read snapshots that are saved there later.
func TestSnapshotsAreAsReadableAsTheirDirectory(t *testing.T) {
	l, at := logOf(1)
	for mode, want := range map[os.FileMode]os.FileMode{0o700: 0o600, 0o750: 0o640, 0o755: 0o644, 0o770: 0o640} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		path, err := Save(dir, at, writer(t, l, at, "log"))
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != want {
			t.Errorf("in a directory of mode %o a snapshot has mode %o, want %o", mode, got, want)
		}
	}
}
