package sealing

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What was sealed opens for its person and place alone, shows no byte of the name, and no changed byte of
// it is accepted.
func TestSeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, -1, MaxName).Draw(t, "name")
		k := newKey()
		sealed, err := k.Seal("p-1", "event-1", name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Open("p-1", "event-1", sealed); err != nil || got != name {
			t.Fatalf("opened %q, %v, want %q", got, err, name)
		}
		if len(name) > 6 && bytes.Contains(sealed, []byte(name)) {
			t.Fatal("the name is in the sealed bytes")
		}
		for _, other := range [][2]string{{"p-2", "event-1"}, {"p-1", "event-2"}, {"p-1e", "vent-1"}} {
			if _, err := k.Open(other[0], other[1], sealed); !errors.Is(err, ErrDamaged) {
				t.Fatalf("opened for %v: %v", other, err)
			}
		}
		if _, err := newKey().Open("p-1", "event-1", sealed); !errors.Is(err, ErrOtherKey) {
			t.Fatalf("opened with another key: %v", err)
		}
		changed := bytes.Clone(sealed)
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")
		changed[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		want := ErrDamaged
		if i == 0 {
			want = ErrFormat
		} else if i < headSize {
			want = ErrOtherKey
		}
		if _, err := k.Open("p-1", "event-1", changed); !errors.Is(err, want) {
			t.Fatalf("byte %d changed: %v, want %v", i, err, want)
		}
		if _, err := k.Open("p-1", "event-1", sealed[:i]); err == nil {
			t.Fatalf("opened the first %d bytes", i)
		}
	})
}

// The length tells names apart only by blocks, and two seals of a name are not alike.
func TestSealHidesLength(t *testing.T) {
	k := newKey()
	short, _ := k.Seal("p-1", "event-1", "Bo")
	long, _ := k.Seal("p-1", "event-1", "Wilhelmina Featherstonehaugh <w@example.com>")
	again, _ := k.Seal("p-1", "event-1", "Bo")
	if len(short) != len(long) || len(short) != headSize+overhead+block {
		t.Errorf("sealed lengths %d and %d", len(short), len(long))
	}
	if bytes.Equal(short, again) {
		t.Error("two seals of a name are alike")
	}
	for _, name := range []string{"", strings.Repeat("x", MaxName+1)} {
		if _, err := k.Seal("p-1", "event-1", name); err == nil {
			t.Errorf("sealed a name of %d bytes", len(name))
		}
	}
}

// Destroying a key leaves the sealed bytes, takes the name and the key from every file of the directory,
// and touches nobody else's.
func TestDestroy(t *testing.T) {
	dir := t.TempDir()
	keys := NewKeys(filepath.Join(dir, "people"))
	const name = "Ada Lovelace <ada@example.com>"
	key, err := keys.Create("p-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Create("../p-2"); err != nil {
		t.Fatal(err)
	}
	sealed, err := key.Seal("p-1", "event-1", name)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	if !inFiles(t, dir, key[:]) || inFiles(t, dir, []byte("Ada")) {
		t.Fatal("the key must be in a file, and the name in none")
	}
	loaded, err := keys.Load("p-1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.Open("p-1", "event-1", sealed); err != nil || got != name {
		t.Fatalf("opened %q, %v", got, err)
	}
	if _, err := keys.Create("p-1"); !errors.Is(err, ErrKeyExists) {
		t.Fatalf("created a second key: %v", err)
	}

	if err := keys.Destroy("p-1"); err != nil {
		t.Fatal(err)
	}
	if inFiles(t, dir, key[:]) {
		t.Error("the key is still in a file")
	}
	if _, err := keys.Load("p-1"); !errors.Is(err, ErrNoKey) {
		t.Errorf("loaded: %v", err)
	}
	if err := keys.Destroy("p-1"); !errors.Is(err, ErrNoKey) {
		t.Errorf("destroyed twice: %v", err)
	}
	if after, err := os.ReadFile(log); err != nil || !bytes.Equal(after, sealed) {
		t.Errorf("the log changed: %v", err)
	}
	if _, err := keys.Load("../p-2"); err != nil {
		t.Errorf("another person's key: %v", err)
	}
	// A key that is made again opens nothing old.
	again, err := keys.Create("p-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Open("p-1", "event-1", sealed); !errors.Is(err, ErrOtherKey) {
		t.Errorf("opened with a new key: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	keys := NewKeys(t.TempDir())
	if _, err := keys.Create("p-1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(keys.file("p-1"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Load("p-1"); !errors.Is(err, ErrExposed) {
		t.Errorf("loaded a key that others may read: %v", err)
	}
	if err := errors.Join(os.Chmod(keys.file("p-1"), 0o600), os.Truncate(keys.file("p-1"), 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Load("p-1"); !errors.Is(err, ErrKeyFile) {
		t.Errorf("loaded half a key: %v", err)
	}
	if _, err := keys.Create(""); err == nil {
		t.Error("created a key of nobody")
	}
}

func inFiles(t *testing.T, dir string, what []byte) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
