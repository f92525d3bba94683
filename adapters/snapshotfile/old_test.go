package snapshotfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"quartermaster/domain"
)

// Two scheduled snapshots a day over half a year: the newest of each of the latest days and months
// stay, and no other file is touched.
func TestOld(t *testing.T) {
	dir := t.TempDir()
	l, _ := logOf(1)
	write := writer(t, l, domain.Position{}, "log")
	keptPath, err := Keep(dir, domain.Position{}, write)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, fmt.Sprintf("%020d-0123456789ab%s%s", 999, scheduledMark, Suffix))
	if err := os.WriteFile(damaged, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	ancient := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, p := range []string{keptPath, damaged} {
		if err := os.Chtimes(p, ancient, ancient); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(keptPath)
	if err != nil {
		t.Fatal(err)
	}
	var newest string
	start := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)
	for i := range 2 * 181 {
		newest = filepath.Join(dir, fmt.Sprintf("%020d-0123456789ab%s%s", i, scheduledMark, Suffix))
		at := start.Add(time.Duration(i) * 12 * time.Hour)
		if err := os.WriteFile(newest, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(newest, at, at); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := Old(dir, domain.Keep{Days: 3, Months: 4})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, as after a crash
		for _, in := range removed {
			if err := Remove(dir, filepath.Base(in.Path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range []string{keptPath, newest} {
		if err := Remove(dir, p); err == nil {
			t.Errorf("%s is removed by its path", p)
		}
	}
	if err := Remove(dir, filepath.Base(keptPath)); err == nil {
		t.Error("a snapshot that is kept is removed")
	}
	infos, err := Infos(dir)
	if err != nil {
		t.Fatal(err)
	}
	var stay []string
	for _, in := range infos {
		if in.Kind == Scheduled && in.Err == nil {
			stay = append(stay, in.Made.Time().Format("01-02T15"))
		}
	}
	slices.Sort(stay)
	if want := []string{"03-31T14", "04-30T14", "05-31T14", "06-28T14", "06-29T14", "06-30T14"}; !slices.Equal(stay, want) {
		t.Errorf("%v stay, want %v", stay, want)
	}
	if len(removed) != 2*181-len(stay) || len(infos) != len(stay)+2 {
		t.Errorf("%d removed, %d files left", len(removed), len(infos))
	}
	for _, p := range []string{keptPath, damaged, newest} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}

	// A rule that keeps nothing still keeps the newest.
	if removed, err = Old(dir, domain.Keep{}); err != nil || len(removed) != len(stay)-1 {
		t.Errorf("%d are old, want %d: %v", len(removed), len(stay)-1, err)
	}
}

// A scheduled snapshot that is written again at its position replaces itself.
func TestKeepScheduled(t *testing.T) {
	dir := t.TempDir()
	l, at := logOf(2)
	write := writer(t, l, at, "log")
	for range 2 {
		path, err := KeepScheduled(dir, at, write)
		if err != nil {
			t.Fatal(err)
		}
		if in := InfoOf(path); in.Err != nil || in.Kind != Scheduled {
			t.Errorf("%+v", in)
		}
	}
	if infos, err := Infos(dir); err != nil || len(infos) != 1 {
		t.Errorf("%d files: %v", len(infos), err)
	}
}
