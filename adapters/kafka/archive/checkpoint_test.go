package archive

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

var (
	signing  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	stranger = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
)

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// rewrite replaces an object by other bytes.
func rewrite(t testing.TB, dir Directory, name string, body []byte) {
	t.Helper()
	if err := errors.Join(os.Remove(dir.path(name)), os.WriteFile(dir.path(name), body, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, dir Directory, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(dir.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(t testing.TB, dir Directory, prefix string) []string {
	t.Helper()
	names, err := dir.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// sign archives a partition with signed manifests, and signs a checkpoint.
func sign(t testing.TB, a *Archive, l *kafka.Log, key ed25519.PrivateKey) *merkle.Head {
	t.Helper()
	firsts, nexts, err := l.BrokerBounds(t.Context(), []domain.TopicPartition{fleet})
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Bytes: 2000, Key: key}
	if err := a.Seal(t.Context(), l, fleet, firsts[fleet], nexts[fleet], p, nil); err != nil {
		t.Fatal(err)
	}
	h, _, err := a.Checkpoint(t.Context(), domain.AllPartitions(), nil, key)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func check(t testing.TB, dir Directory, id Log, keys ...ed25519.PublicKey) *Checked {
	t.Helper()
	c, err := New(dir, id).CheckCheckpoints(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCheckpoints shows what only a checkpoint can: that the end of an archive is missing.
func TestCheckpoints(t *testing.T) {
	l, _ := newLog(t)
	dir, id := Directory(t.TempDir()), identify(t, l)
	a := New(dir, id)
	if h, note, err := a.Checkpoint(t.Context(), domain.AllPartitions(), nil, signing); h != nil || note != nil || err != nil {
		t.Fatal("an archive that does not exist has a checkpoint", h, err)
	}
	for i := range 4 {
		fill(t, l, fleet, 300*i, 300*(i+1))
		for range 2 { // the second has nothing new
			if h := sign(t, a, l, signing); h.Number != int64(i) || h.Records != int64(300*(i+1)) {
				t.Fatalf("%d: %+v", i, h)
			}
		}
	}
	if c := check(t, dir, id, public(signing)); c.Checkpoints != 4 || c.Heads != 4 || c.Records != 1200 || len(c.Faults) > 0 {
		t.Fatalf("%+v", c)
	}
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 {
		t.Fatal(v.Faults)
	}
	manifests := list(t, dir, manifestsOf(fleet))
	if c := check(t, dir, id, public(stranger), public(signing)); len(c.Faults) > 0 {
		t.Fatalf("signed by one of two keys: %v", c.Faults)
	}
	if c := check(t, dir, id, public(stranger)); len(c.Faults) != 4+len(manifests) || !strings.Contains(c.Faults[0].Error(), "a key that was not given") {
		t.Fatalf("signed by another key: %d faults with %d manifests", len(c.Faults), len(manifests))
	}

	// The root is that of all records of the log.
	var tree merkle.Builder
	if err := l.Read(t.Context(), fleet, 0, 1200, func(recs []domain.Record) error {
		for i := range recs {
			tree.AddRecord(&recs[i])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	v, err := merkle.Verifier(merkle.Origin(id.ID), public(signing))
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{0, 255, 256, 777, 1023, 1199} {
		p, err := a.Prove(t.Context(), fleet, offset)
		if err != nil {
			t.Fatal(err)
		}
		proven, err := p.Check(v)
		if err != nil || string(proven.Record.Value) != fmt.Sprint("value ", offset) || proven.Heads != 4 {
			t.Fatalf("%d: %+v, %v", offset, proven, err)
		}
	}
	if _, err := a.Prove(t.Context(), fleet, 1200); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("a record that there is not: %v", err)
	}
	if _, err := New(Directory(t.TempDir()), id).Prove(t.Context(), fleet, 0); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("no archive: %v", err)
	}
	if h, err := a.head(t.Context(), 3); err != nil || h.Lines[0].Root != tree.Root() {
		t.Fatalf("another root than that of the log: %+v, %v", h, err)
	}

	names := slices.Concat(list(t, dir, heads), list(t, dir, checkpoints))
	if len(names) != 8 {
		t.Fatal(names)
	}
	for _, name := range names {
		good := read(t, dir, name)
		for what, bad := range map[string][]byte{
			"other number": bytes.Replace(good, []byte("\n"), []byte("\n1"), 1),
			"changed":      changed(good),
			"cut":          good[:len(good)-1],
			"empty":        {},
		} {
			rewrite(t, dir, name, bad)
			if c := check(t, dir, id, public(signing)); len(c.Faults) == 0 {
				t.Errorf("%s %s: %+v", name, what, c)
			}
		}
		rewrite(t, dir, name, good)
	}

	// An exchanged head and one that is missing, each well-formed.
	third := read(t, dir, headName(2))
	rewrite(t, dir, headName(2), read(t, dir, headName(1)))
	if c := check(t, dir, id); len(c.Faults) == 0 {
		t.Error("an exchanged head is not found")
	}
	rewrite(t, dir, headName(2), third)
	if err := os.Remove(dir.path(headName(3))); err != nil {
		t.Fatal(err)
	}
	if c := check(t, dir, id); len(c.Faults) != 1 || !strings.Contains(c.Faults[0].Error(), "has 4 heads, 3 are there") {
		t.Errorf("a missing head: %+v", c)
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
	if c := check(t, dir, id, public(signing)); len(c.Faults) == 0 || !strings.Contains(c.Faults[0].Error(), "2 manifests are there") {
		t.Fatalf("%+v", c)
	}
}

// TestRewrittenHistory has an archive of other records under the same ids, whole and signed by the same
// key. Only the checkpoints that were kept elsewhere show it.
func TestRewrittenHistory(t *testing.T) {
	write := func(first int) (Directory, Log) {
		l, _ := newLog(t)
		fill(t, l, fleet, first, first+300)
		dir, id := Directory(t.TempDir()), identify(t, l)
		id.ID, id.Topics = "log", nil
		if err := dir.Put(t.Context(), identityFile, (&identity{Format, strings.Repeat("ab", idBytes), "log"}).encode()); err != nil {
			t.Fatal(err)
		}
		sign(t, New(dir, id), l, signing)
		return dir, id
	}
	honest, id := write(0)
	forged, _ := write(1)
	if c := check(t, forged, id, public(signing)); len(c.Faults) > 0 {
		t.Fatal(c.Faults)
	}
	name := list(t, honest, checkpoints)[0]
	if err := forged.Put(t.Context(), name, read(t, honest, name)); err != nil {
		t.Fatal(err)
	}
	if c := check(t, forged, id, public(signing)); len(c.Faults) != 1 || !strings.Contains(c.Faults[0].Error(), "the root of its 1 heads") {
		t.Fatalf("%+v", c)
	}
}

// TestFirstFormat continues an archive without trees.
func TestFirstFormat(t *testing.T) {
	_, l, dir := archived(t)
	id := identify(t, l)
	var before *Manifest
	for _, name := range list(t, dir, manifestsOf(fleet)) {
		m, err := parseManifest(read(t, dir, name))
		if err != nil {
			t.Fatal(err)
		}
		m.Format, m.Tree, m.ObjectSHA256 = firstFormat, nil, nil
		if before != nil {
			m.Previous = sha256.Sum256(before.encode())
		}
		rewrite(t, dir, name, m.encode())
		before = m
	}
	rewrite(t, dir, identityFile, bytes.Replace(read(t, dir, identityFile), []byte(Format), []byte(firstFormat), 1))
	a := New(dir, id)
	if h := sign(t, a, l, signing); h.Records != 500 { // a head of manifests without trees
		t.Fatal(h)
	}
	fill(t, l, fleet, 500, 900)
	sign(t, a, l, signing)
	if v := verify(t, New(dir, id)); len(v.Faults) > 0 || v.Records != 900 {
		t.Fatalf("%+v", v)
	}
	if c := check(t, dir, id, public(signing)); len(c.Faults) > 0 || c.Heads != 2 {
		t.Fatalf("%+v", c)
	}
	m, err := a.Head(t.Context(), fleet)
	if err != nil {
		t.Fatal(err)
	}
	var blocks int
	for _, name := range list(t, dir, manifestsOf(fleet)) {
		if m, err := parseManifest(read(t, dir, name)); err == nil && m.Tree != nil {
			blocks += len(m.Tree.Blocks)
		}
	}
	if blocks != 900/merkle.Width || m.Tree == nil {
		t.Errorf("%d blocks are stored of 900 records", blocks)
	}
	for _, offset := range []int64{3, 499, 500, 899} {
		if _, err := a.Prove(t.Context(), fleet, offset); err != nil {
			t.Errorf("record %d: %v", offset, err)
		}
	}
	// A head that lies about segments without trees.
	good := string(read(t, dir, headName(0)))
	h, err := merkle.ParseHead([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	h.Lines[0].Root[0]++
	rewrite(t, dir, headName(0), h.Encode())
	if c := check(t, dir, id); len(c.Faults) == 0 {
		t.Error("a head with another root is not found")
	}
}
