package main

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/keyfile"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// TestGrowth proves that a checkpoint continues an older one, and that another history does not.
func TestGrowth(t *testing.T) {
	dir, key := archived(t)
	a := archive.New(archive.Directory(dir), archive.Log{ID: "log"})
	older, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*"))
	if err != nil || len(older) != 1 {
		t.Fatal(older, err)
	}
	for i := range 3 {
		rows := &merkle.Rows{Method: "folds/1", SHA256: [32]byte{byte(i)}, Position: "qm.books/0=50"}
		if _, _, err := a.Checkpoint(t.Context(), domain.AllPartitions(), rows, key); err != nil {
			t.Fatal(err)
		}
	}
	files := t.TempDir()
	text, err := keyfile.PublicPEM(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	pem := write(t, files, "key.pub", []byte(text))
	code, out, errs := does("prove-growth", dir, older[0])
	if code != 0 {
		t.Fatal(code, errs)
	}
	proof := write(t, files, "growth.json", []byte(out))
	if code, out, errs := does("check-growth", proof, "--signed-by", pem); code != 0 || !strings.Contains(out, "holds: 4 heads of quartermaster.log/log continue 1") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	all, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*"))
	if err != nil || len(all) != 4 {
		t.Fatal(all, err)
	}
	if code, _, errs := does("prove-growth", dir, all[1], all[2]); code != 0 {
		t.Errorf("between two: %d, %s", code, errs)
	}
	if code, _, errs := does("prove-growth", dir, all[2], all[1]); code != 1 {
		t.Errorf("backwards: %d, %s", code, errs)
	}
	// Another history of the same log, of one head.
	forged := merkle.Checkpoint{Origin: merkle.Origin("log"), Size: 1, Root: merkle.LeafHash([]byte("other"))}
	signed, err := forged.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := does("prove-growth", dir, write(t, files, "forged.note", signed)); code != 1 || !strings.Contains(errs, "does not hold") {
		t.Errorf("another history: %d, %s", code, errs)
	}
	kept, err := os.ReadFile(older[0])
	if err != nil {
		t.Fatal(err)
	}
	exchanged := write(t, files, "exchanged.json", []byte(strings.Replace(out, strings.Split(string(kept), "\n")[2], forged.Root.String(), 1)))
	if code, out, _ := does("check-growth", exchanged); code != 1 || !strings.Contains(out, "does not hold") {
		t.Errorf("an exchanged root: %d, %s", code, out)
	}
	if code, out, _ := does("check-growth", exchanged, "--signed-by", pem, "-o", "json"); code != 1 || !strings.Contains(out, "\"holds\": false") {
		t.Errorf("an exchanged root that is not signed: %d, %s", code, out)
	}
	if code, _, _ := does("check-growth", pem); code != 2 {
		t.Errorf("no proof exits %d", code)
	}
	// Rows are part of the heads, and the archive is whole with them.
	if code, out, errs := does("verify", dir, "--signed-by", pem); code != 0 {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
}
