package durable

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The directory that has the name of a new one is synced after it was made, from the top down, and
// nothing is synced again.
func TestMakeDirectory(t *testing.T) {
	usual := Sync
	defer func() { Sync = usual }()
	var synced []string
	Sync = func(f *os.File) error {
		synced = append(synced, filepath.Base(f.Name()))
		return usual(f)
	}
	root := t.TempDir()
	path := filepath.Join(root, "a", "b", "c")
	for _, want := range [][]string{{filepath.Base(root), "a", "b"}, nil} {
		synced = nil
		if err := MakeDirectory(path); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(synced, want) {
			t.Errorf("synced %q, want %q", synced, want)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != os.ModeDir|0o700 {
		t.Error(st, err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if err := MakeDirectory(path); err == nil {
			t.Errorf("made %s, which is or is below a file", path)
		}
	}
	if err := SyncDirectory(filepath.Join(root, "none")); err == nil {
		t.Error("synced a directory that is not there")
	}
}
