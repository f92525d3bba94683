package parts

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// What a close names is read on another machine, from the bucket. What is not of a close stays on the machine
// that divided it. A damaged object is never an answer.
func TestBooksInBucket(t *testing.T) {
	b := newVault()
	here, month := inVault(t, b), storetest.MayBill
	draft := func(text string) *Draft {
		d, err := here.NewDraft(month)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(d, text); err != nil {
			t.Fatal(err)
		}
		return d
	}
	_, reads := projections.Record(nil)
	put := func(text string, books bool) Digest {
		w, err := NewWriter(here)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := w.PutAllocations(month, AllocationsVersion{Reads: reads, Position: "0", Books: books}, draft(text))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return digest
	}
	read := func(d Directory, digest Digest) (string, error) {
		open, err := d.OpenAllocations(month, digest)
		if err != nil {
			return "", err
		}
		f, err := open()
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(f)
		return string(text), err
	}
	closed, named := put("closed", true), put("named", false)
	w, err := NewWriter(here)
	if err != nil {
		t.Fatal(err)
	}
	posted, err := w.PutPostings(month, draft(""))
	if err := errors.Join(w.NameAllocations(month, named), err, w.Close()); err != nil {
		t.Fatal(err)
	}
	open := put("open", false)

	there := inVault(t, b)
	for digest, want := range map[Digest]string{closed: "closed", named: "named"} {
		for range 2 { // fetched, then found
			if text, err := read(there, digest); err != nil || text != want {
				t.Errorf("%q, want %q: %v", text, want, err)
			}
		}
	}
	if _, err := read(there, open); !errors.Is(err, ErrMissing) {
		t.Errorf("a division of no close: %v", err)
	}
	if all, err := there.Postings(month, posted); len(all) > 0 || errors.Is(err, ErrMissing) {
		t.Errorf("%d postings: %v", len(all), err)
	}
	// A file that is damaged here is fetched again.
	if err := os.Chmod(there.AllocationsFile(month, closed), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there.AllocationsFile(month, closed), []byte("clased"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := read(there, closed); err != nil || text != "closed" {
		t.Errorf("%q: %v", text, err)
	}
	// Whoever has the file cannot close with another in the bucket.
	// No more is fetched than a file may have, whatever the bucket has under its name.
	usual := mostBooks
	mostBooks = map[string]int64{allocationsSuffix: 6, postingsSuffix: 6}
	endless := 0
	b.read = func(string, []byte) []byte {
		endless++
		return bytes.Repeat([]byte("closed"), 1<<20)
	}
	other := inVault(t, b)
	if _, err := read(other, closed); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "more than 6 bytes") || endless != 1 {
		t.Errorf("an object that is too long: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(other.allocationsFolder(month), "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q: %v", left, err)
	}
	if _, err := other.Postings(month, posted); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "more than 6 bytes") {
		t.Errorf("postings that are too long: %v", err)
	}
	b.read = nil
	if text, err := read(other, closed); err != nil || text != "closed" {
		t.Errorf("an object of the largest size: %q: %v", text, err)
	}
	mostBooks = usual
	name := "log/" + booksFile(month, closed, allocationsSuffix)
	b.objects[name] = bytes.ToUpper(b.objects[name])
	if _, err := read(inVault(t, b), closed); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged object: %v", err)
	}
	if text, err := read(there, closed); err != nil || text != "closed" {
		t.Errorf("%q: %v", text, err)
	}
}
