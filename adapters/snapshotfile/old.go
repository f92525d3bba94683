package snapshotfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
)

// Old returns the scheduled snapshots of a directory, newest first, but for those that stay: the
// newest of each of the latest keep.Days days that have one, and the newest of each of the latest
// keep.Months months that have one. Days and months are UTC, by the time at which a file was written.
// The newest snapshot always stays.
//
// A snapshot whose header is damaged counts for nothing and is not removed, so that a person sees
// it.
func Old(dir string, keep domain.Keep) (old []Info, err error) {
	infos, err := Infos(dir)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(in Info) bool { return in.Kind != Scheduled || in.Err != nil })
	slices.SortStableFunc(infos, func(a, b Info) int { return cmp.Compare(b.Made, a.Made) })
	days, months := map[string]bool{}, map[string]bool{}
	for i, in := range infos {
		day, month := in.Made.Time().Format("2006-01-02"), in.Made.Time().Format("2006-01")
		ofDay, ofMonth := first(days, day, keep.Days), first(months, month, keep.Months)
		if i > 0 && !ofDay && !ofMonth {
			old = append(old, in)
		}
	}
	return old, nil
}

// Remove removes a scheduled snapshot of a directory by its name. One that does not exist is removed
// already.
func Remove(dir, name string) error {
	if filepath.Base(name) != name || kindOf(name) != Scheduled {
		return fmt.Errorf("remove %s: it is no scheduled snapshot", name)
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an old scheduled snapshot: %w", err)
	}
	return durable.SyncDirectory(dir)
}

// first reports whether a period is new and among the first n, and remembers it.
func first(seen map[string]bool, period string, n int) bool {
	if seen[period] || len(seen) >= n {
		return false
	}
	seen[period] = true
	return true
}
