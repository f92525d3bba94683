package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// doormanOf returns a doorman of a new home.
func doormanOf(t *testing.T) *doorman {
	t.Helper()
	on := &app.App{Dir: t.TempDir()}
	conn, err := on.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	s := New(on, io.Discard, false).newService()
	s.conn = conn
	d, err := s.newDoorman(config.API{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// asked returns how often principals asked operations, by the log, and the names of the journals that are left.
func (d *doorman) asked(t *testing.T) (counts map[string]int, left []string) {
	t.Helper()
	if err := d.conn.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	audit, err := d.conn.Sharing()(app.Everyone).For(app.Everyone).AuditAccess(t.Context(), "", app.AccessAuditQuestion{})
	if err != nil {
		t.Fatal(err)
	}
	counts = map[string]int{}
	for _, a := range audit.Asked {
		counts[string(a.Principal)+" "+a.Operation] += int(a.Count)
	}
	entries, err := os.ReadDir(d.journal.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return counts, left
}

// TestJournalKeepsTheRest: what can never be in the log, and a journal that cannot be read, keep nothing else out of it.
func TestJournalKeepsTheRest(t *testing.T) {
	d := doormanOf(t)
	now := time.Now()
	long := domain.AccountOf(strings.Repeat("x", 256)) // longer than the log takes
	for i, who := range []domain.Principal{"account:a", long, "account:b"} {
		at := now.Add(time.Duration(i/2-5) * time.Minute)
		for range 3 {
			if err := d.journal.add(at, &entry{Principal: who, Operation: "fleet"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	broken := fmt.Sprintf("%d-broken%s", now.Unix()/60*60-600, journalEnd)
	if err := os.WriteFile(filepath.Join(d.journal.dir, broken), []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.keepLast(t.Context())
	counts, left := d.asked(t)
	if len(counts) != 2 || counts["account:a fleet"] != 3 || counts["account:b fleet"] != 3 {
		t.Errorf("in the log: %v", counts)
	}
	if len(left) != 2 || left[0] != broken+".unreadable" || !strings.HasSuffix(left[1], ".unreadable") {
		t.Errorf("left: %v", left)
	}
}

// TestJournalAppendedAgain: what a process that ended had appended, and appends again, counts once, also if another
// instance appended in between.
func TestJournalAppendedAgain(t *testing.T) {
	d := doormanOf(t)
	at := time.Now().Add(-5 * time.Minute)
	if err := d.journal.add(at, &entry{Principal: "account:a", Operation: "fleet"}); err != nil {
		t.Fatal(err)
	}
	names, err := d.journal.past(time.Now(), true)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	data, err := os.ReadFile(filepath.Join(d.journal.dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		d.keepLast(t.Context())
		d.stream = nil
	}
	again()
	if err := d.journal.add(at, &entry{Principal: "account:a", Operation: "fleet"}); err != nil {
		t.Fatal(err)
	}
	again()
	if err := os.WriteFile(filepath.Join(d.journal.dir, names[0]), data, 0o600); err != nil {
		t.Fatal(err)
	}
	again()
	if counts, left := d.asked(t); counts["account:a fleet"] != 2 || len(left) > 0 {
		t.Errorf("in the log: %v, left: %v", counts, left)
	}
}

// TestJournalLogAway: journals wait while nothing can be appended, and none is removed for the events of another.
func TestJournalLogAway(t *testing.T) {
	d := doormanOf(t)
	at := time.Now().Add(-5 * time.Minute)
	var away atomic.Bool
	away.Store(true)
	d.conn.Log.Guard = func(context.Context, domain.TopicPartition, bool) error {
		if away.Load() {
			return errors.New("away")
		}
		return nil
	}
	for i := range 16 { // of one minute: their order by name is random
		if err := d.journal.add(at, &entry{Principal: "account:a", Operation: "fleet"}); err != nil {
			t.Fatal(err)
		}
		if err := d.journal.close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			d.keepPast(t.Context(), false)
			if d.stream.Held() == 0 || d.sending == "" {
				t.Fatal("nothing waits")
			}
			away.Store(false)
		}
	}
	d.keepLast(t.Context())
	if counts, left := d.asked(t); counts["account:a fleet"] != 16 || len(left) > 0 {
		t.Errorf("in the log: %v, left: %v", counts, left)
	}
}

// TestJournalOfAnother: a directory is of one process alone.
func TestJournalOfAnother(t *testing.T) {
	d := doormanOf(t)
	other, err := openJournal(d.journal.dir, "api")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.own(); err == nil {
		t.Error("two have one directory")
	}
	if err := d.journal.unlock(); err != nil {
		t.Fatal(err)
	}
	if err := other.own(); err != nil {
		t.Fatal(err)
	}
	if err := other.unlock(); err != nil {
		t.Fatal(err)
	}
}
