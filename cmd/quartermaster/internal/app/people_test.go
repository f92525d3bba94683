package app_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// contents returns the SHA-256 of every file below a directory, and whether one has a text.
func contents(t *testing.T, dir, text string) (sums map[string][32]byte, found []string) {
	t.Helper()
	sums = map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(b)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums, found
}

// A name can be read until its key is destroyed, which a policy decides and a legal hold stops. The archive, which
// every proof is over, stays as it was. An erasure that was interrupted is finished.
func TestEraseAPerson(t *testing.T) {
	const name = "Zebediah Quillfeather"
	a := &app.App{Dir: t.TempDir()}
	c := a.For(app.Everyone)
	_, key := apptest.FirstOperator(t, a)
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	apptest.Decide(t, a, key, app.RegisterOperator(app.Platform, &domain.OperatorRegistered{Operator: "p-2", Role: domain.RolePlanner, PublicKey: pub}))
	draft, err := c.NamePerson(t.Context(), "p-2", name)
	if err != nil {
		t.Fatal(err)
	}
	apptest.Decide(t, a, key, draft)
	if _, err := c.NamePerson(t.Context(), "p-3", name); app.KindOf(err) != app.KindNotFound {
		t.Errorf("a name for nobody: %v", err)
	}
	state := func() app.Person {
		t.Helper()
		list, err := c.People(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Person == "p-2" {
				return p
			}
		}
		t.Fatal("p-2 is not listed")
		return app.Person{}
	}
	if p := state(); p.State != app.NameReadable || p.Name != name {
		t.Fatalf("%+v", p)
	}
	refused := func(now domain.Instant, why string) {
		t.Helper()
		if _, err := c.ErasePerson(t.Context(), "p-2", now, false); app.KindOf(err) != app.KindDenied || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q: %v", why, err)
		}
		if p := state(); p.State != app.NameReadable {
			t.Errorf("after a refusal: %+v", p)
		}
	}
	refused(app.Now(), "has a role")
	_, revoked, err := c.RevokeOperator(t.Context(), app.Platform, "p-2", nil, "left")
	if err != nil {
		t.Fatal(err)
	}
	apptest.Decide(t, a, key, revoked)
	refused(app.Now(), "no retention policy")
	apptest.Apply(t, a, key, "policies: [{id: people, kind: retention, scope: people, value: 30 days}]\n")
	refused(app.Now(), "keeps it for 30 days")
	later := app.Now() + 31*domain.Day
	apptest.Apply(t, a, key, "legal_holds: [{id: case-7, reason: a lawsuit}]\n")
	refused(later, "legal hold case-7")
	h, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if done, err := h.RemoveAll(t.Context(), "test", later); err != nil || len(done) > 0 {
		t.Errorf("removed in spite of a hold: %v %v", done, err)
	}
	if err := h.Shut(); err != nil {
		t.Fatal(err)
	}
	apptest.Apply(t, a, key, "legal_holds: [{id: case-7, reason: a lawsuit, lifted: true}]\n")

	if _, err := c.Archive(t.Context(), true, nil); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(a.Dir, "archive")
	before, _ := contents(t, archive, name)
	if len(before) == 0 {
		t.Fatalf("there is no archive in %s", archive)
	}
	// Nobody signs a removal: one that claims an erasure erases nothing.
	h, err = a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claimed := []domain.Removed{{Person: "p-2", Records: 1}}
	if err := errors.Join(h.RecordRemoval(t.Context(), &domain.RemovalStarted{
		Entity: app.Platform, Removal: "people/claimed", What: domain.RetainedPeople, Policy: "people", Rule: "30 days", By: "test", Removed: claimed,
	}, app.Now()), h.RecordRemoval(t.Context(), &domain.RecordsRemoved{
		Entity: app.Platform, Removal: "people/claimed", What: domain.RetainedPeople, Policy: "people", Rule: "30 days", By: "test", Removed: claimed,
	}, app.Now()), h.Shut()); err != nil {
		t.Fatal(err)
	}
	if p := state(); p.State != app.NameReadable || p.Name != name {
		t.Errorf("after a removal that claims an erasure: %+v", p)
	}
	// A removal begins, and its process dies before the key is destroyed.
	h, err = a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.RecordRemoval(t.Context(), &domain.RemovalStarted{
		Entity: app.Platform, Removal: "people/interrupted", What: domain.RetainedPeople, Policy: "people", Rule: "30 days", By: "test",
		Removed: []domain.Removed{{Person: "p-2", Records: 1}},
	}, app.Now()); err != nil {
		t.Fatal(err)
	}
	if err := h.Shut(); err != nil {
		t.Fatal(err)
	}
	if p := state(); p.State != app.NameReadable {
		t.Errorf("after a removal began: %+v", p)
	}
	done, err := c.ErasePerson(t.Context(), "p-2", later, false)
	if err != nil || len(done.Removed) != 1 || done.Removed[0].Person != "p-2" || !done.Resumed {
		t.Fatalf("%+v: %v", done, err)
	}
	if p := state(); p.State != app.NameErased || p.Name != "" {
		t.Errorf("after the erasure: %+v", p)
	}
	if done, err := c.ErasePerson(t.Context(), "p-2", later, false); err != nil || len(done.Removed) != 0 {
		t.Errorf("erased twice: %+v %v", done, err)
	}
	if _, err := c.NamePerson(t.Context(), "p-2", name); app.KindOf(err) != app.KindConflict {
		t.Errorf("named again: %v", err)
	}
	if _, found := contents(t, a.Dir, name); len(found) > 0 {
		t.Errorf("the name is in %q", found)
	}
	after, _ := contents(t, archive, name)
	for path, sum := range before {
		if after[path] != sum {
			t.Errorf("%s has changed", path)
		}
	}
	if check, err := c.VerifyArchive(t.Context(), "", nil, nil); err != nil || len(check.Faults) > 0 {
		t.Errorf("the archive: %+v %v", check, err)
	}
	if err := errors.Join(a.Close()); err != nil {
		t.Fatal(err)
	}
}
