package parts

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain"
)

// A file is kept once, is read as it was, and is never answered from when its bytes are others.
func TestImportsAreKept(t *testing.T) {
	vault := newVault()
	for name, d := range map[string]Directory{
		"directory": {Path: filepath.Join(t.TempDir(), "log"), Log: "log"},
		"bucket":    inVault(t, vault),
	} {
		t.Run(name, func(t *testing.T) {
			first, second := []byte("a,b\n1,2\n"), bytes.Repeat([]byte("3,4\n"), 1<<16)
			keep := func(b []byte) Digest {
				t.Helper()
				digest := Digest(sha256.Sum256(b))
				for range 2 {
					n, err := d.KeepFile(bytes.NewReader(b), digest)
					if err != nil || n != int64(len(b)) {
						t.Fatalf("%d bytes: %v", n, err)
					}
				}
				return digest
			}
			read := func(digest Digest) ([]byte, error) {
				f, err := d.OpenFile(digest)
				if err != nil {
					return nil, err
				}
				defer f.Close()
				return io.ReadAll(f)
			}
			a, b := keep(first), keep(second)
			for digest, want := range map[Digest][]byte{a: first, b: second} {
				if got, err := read(digest); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
				}
			}
			if _, err := read(Digest{1}); !errors.Is(err, ErrMissing) {
				t.Errorf("a file that is not kept: %v", err)
			}
			if _, err := d.KeepFile(strings.NewReader("other"), Digest{2}); err == nil {
				t.Error("other bytes were kept under the digest")
			}
			if _, err := read(Digest{2}); err == nil {
				t.Error("other bytes are answered from")
			}

			of := Import{Source: Digest{9}, Received: domain.Hour, Files: []ImportedFile{
				{Name: "a.csv", SHA256: a, Bytes: 8}, {Name: "b.csv", SHA256: b, Bytes: 1 << 18, Before: 2},
			}}
			later := of
			later.Received = 2 * domain.Hour
			for _, im := range []Import{of, of, later} {
				if err := d.KeepImport(im); err != nil {
					t.Fatal(err)
				}
			}
			got, err := d.Import(of.Source)
			if err != nil || got.Received != domain.Hour || len(got.Files) != 2 || got.Files[1].SHA256 != b {
				t.Fatalf("%+v: %v", got, err)
			}
			for line, want := range map[uint64]struct {
				file string
				line uint64
			}{1: {"a.csv", 1}, 2: {"a.csv", 2}, 3: {"b.csv", 1}, 70: {"b.csv", 68}} {
				if f, at := got.FileOf(line); f == nil || f.Name != want.file || at != want.line {
					t.Errorf("line %d is line %d of %+v, want %+v", line, at, f, want)
				}
			}
			if f, _ := got.FileOf(0); f != nil {
				t.Errorf("line 0 is of %+v", f)
			}
			if all, err := d.Imports(); err != nil || len(all) != 1 || all[0] != of.Source {
				t.Errorf("%v: %v", all, err)
			}
			if _, err := d.Import(Digest{3}); !errors.Is(err, ErrMissing) {
				t.Errorf("an import that is not kept: %v", err)
			}
			other := d
			other.Log = "other"
			if d.Bucket == nil {
				if _, err := other.Import(of.Source); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `of log "log"`) {
					t.Errorf("an import of another log: %v", err)
				}
			}

			if d.Bucket == nil {
				path := d.path(rawFile(a))
				if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte("a,b\n1,3\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			} else {
				vault.objects["log/"+rawFile(a)] = []byte("a,b\n1,3\n")
			}
			if _, err := read(a); !errors.Is(err, ErrDamaged) {
				t.Errorf("a damaged file: %v", err)
			}
			if _, err := d.KeepFile(bytes.NewReader(first), a); d.Bucket == nil && err != nil {
				t.Errorf("a damaged file is not mended by importing it again: %v", err)
			} else if d.Bucket != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("a damaged object, which is not replaced: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(d.Path, "*", draftPattern)); err != nil || len(left) > 0 {
				t.Errorf("drafts were left: %q %v", left, err)
			}
		})
	}
}
