package archive

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
)

// TestCheckpoints shows what only a checkpoint can: that the end of an archive is missing.
func TestCheckpoints(t *testing.T) {
	a, l, dir := archived(t)
	id := identify(t, l)
	private, public, err := note.GenerateKey(nil, SignerName(id.ID))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second has nothing new
		if n, err := a.Checkpoint(t.Context(), domain.AllPartitions(), signer); n != 500 || err != nil {
			t.Fatal(i, n, err)
		}
	}
	fill(t, l, fleet, 500, 900)
	if err := run(t, a, l, fleet, 2000); err != nil {
		t.Fatal(err)
	}
	check := func(v note.Verifier) *Checked {
		t.Helper()
		c, err := New(dir, id).CheckCheckpoints(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := check(verifier); c.Checkpoints != 1 || c.Records != 500 || len(c.Faults) > 0 {
		t.Fatalf("%+v", c)
	}
	_, other, err := note.GenerateKey(nil, SignerName(id.ID))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := note.NewVerifier(other)
	if err != nil {
		t.Fatal(err)
	}
	if c := check(stranger); len(c.Faults) != 1 {
		t.Fatalf("signed by another key: %+v", c)
	}

	manifests, err := dir.List(t.Context(), manifestsOf(fleet))
	if err != nil {
		t.Fatal(err)
	}
	names, err := dir.List(t.Context(), checkpoints)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	path := dir.path(names[0])
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]string{
		"other text":    strings.Replace(string(good), "next=500", "next=490", 1),
		"other archive": strings.Replace(string(good), "archive ", "archive 0", 1),
		"no signature":  string(good)[:strings.Index(string(good), "\n\n")+1],
		"empty":         "",
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := check(verifier); len(c.Faults) != 1 {
			t.Errorf("%s: %+v", what, c)
		}
		if c := check(nil); len(c.Faults) != 1 {
			t.Errorf("%s, without a key: %+v", what, c)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}

	for len(manifests) > 2 { // newest first, so that each chain that is left is whole
		last := manifests[len(manifests)-1]
		manifests = manifests[:len(manifests)-1]
		if err := os.Remove(dir.path(last)); err != nil {
			t.Fatal(err)
		}
	}
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 {
		t.Fatal(v.Faults)
	}
	if c := check(verifier); len(c.Faults) != 1 || !strings.Contains(c.Faults[0].Error(), "2 manifests are there") {
		t.Fatalf("%+v", c)
	}
}
