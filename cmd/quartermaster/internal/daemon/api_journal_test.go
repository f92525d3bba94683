package daemon

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/access"
)

// A journal becomes one event for each principal. A line that was cut by the end of the process was not answered, and does
// not count.
func TestJournal(t *testing.T) {
	j, err := openJournal(filepath.Join(t.TempDir(), "a"), "a")
	if err != nil {
		t.Fatal(err)
	}
	minute := time.Unix(1_780_000_020, 0).Truncate(time.Minute)
	at := domain.Position{{Topic: domain.TopicFleet, Partition: 1}: 7}
	whole := func(name, operation string, refused bool) *entry {
		return entryOf(app.Principal{Name: name, Scope: access.Whole()}, api.Asked{
			Operation: operation, Question: sha256.Sum256([]byte(operation)), Refused: refused, Position: at,
		})
	}
	for _, e := range []*entry{
		whole("user:corp/ana", "fleet", false), whole("account:ci", "usage", false), whole("user:corp/ana", "fleet", false),
		whole("user:corp/ana", "costs", true),
	} {
		if err := j.add(minute.Add(3*time.Second), e); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := j.past(minute.Add(59*time.Second), false); err != nil || len(names) != 0 {
		t.Errorf("in its minute: %q, %v", names, err)
	}
	names, err := j.past(minute.Add(time.Minute), false)
	if err != nil || len(names) != 1 {
		t.Fatalf("after its minute: %q, %v", names, err)
	}
	file, err := os.OpenFile(filepath.Join(j.dir, names[0]), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"p":"user:corp/ana","o":"flee`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := j.events(names[0])
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for _, e := range events {
		if err := domain.Validate(e); err != nil {
			t.Error(err)
		}
	}
	of := func(operation string, count, refused uint64, at string) domain.AccessRead {
		sum := sha256.Sum256([]byte(operation))
		return domain.AccessRead{Operation: operation, Count: count, Refused: refused, Position: at, Digest: sum[:]}
	}
	begin := domain.InstantOf(minute)
	want := &domain.AccessRecorded{
		Principal: "user:corp/ana", Journal: strings.TrimSuffix(names[0], journalEnd), Window: domain.Interval{From: begin, To: begin + 60*domain.Second},
		Asked: []domain.AccessRead{of("costs", 1, 1, ""), of("fleet", 2, 0, at.String())},
	}
	if got := events[1].Event; events[1].Workspace != app.Platform || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	again, err := j.events(names[0])
	if err != nil || !reflect.DeepEqual(again, events) {
		t.Errorf("the same journal becomes other events: %v", err)
	}
}

// Two processes that write in one minute, one after the other, have a journal each.
func TestJournalAfterRestart(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1_780_000_020, 0)
	for range 2 {
		j, err := openJournal(dir, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := j.add(now, &entry{Principal: "account:ci", Operation: "fleet", Digest: make([]byte, 32)}); err != nil {
			t.Fatal(err)
		}
	}
	j, err := openJournal(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	names, err := j.past(now, false)
	if err != nil || len(names) != 2 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		if events, err := j.events(name); err != nil || len(events) != 1 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

func TestJournalThatCannotBeRead(t *testing.T) {
	j, err := openJournal(t.TempDir(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"60-a" + journalEnd: "{\n", "x-a" + journalEnd: "", "60-b" + journalEnd: strings.Repeat("x", 2<<20) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(j.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if events, err := j.events(name); err == nil {
			t.Errorf("%s: %d events", name, len(events))
		}
		if err := j.setAside(name); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := j.past(time.Now(), true); err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"p":"user:corp/ana","o":"fleet","d":"AAAA"}` + "\n"))
	f.Add([]byte("{}\n{\"p\":1}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		j, err := openJournal(t.TempDir(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(j.dir, "60-a"+journalEnd), content, 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := j.events("60-a" + journalEnd)
		for _, e := range events {
			if e.Event.(*domain.AccessRecorded).Asked == nil && err == nil {
				t.Errorf("%q: an event without a question", content)
			}
		}
	})
}
