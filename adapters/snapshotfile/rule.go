package snapshotfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Rule says which scheduled snapshots stay: the newest of each of the latest Days days that have
// one, and the newest of each of the latest Months months that have one. Days and months are UTC,
// by the time at which a file was written. The newest snapshot always stays.
//
// A snapshot whose header is damaged counts for nothing and is not removed, so that a person sees
// it.
type Rule struct{ Days, Months int }

// apply removes the scheduled snapshots of a directory that the rule does not keep.
func (r Rule) apply(dir string) (removed []string, err error) {
	infos, err := Infos(dir)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(in Info) bool { return in.Kind != Scheduled || in.Err != nil })
	slices.SortStableFunc(infos, func(a, b Info) int { return cmp.Compare(b.Made, a.Made) })
	days, months := map[string]bool{}, map[string]bool{}
	for i, in := range infos {
		day, month := in.Made.Time().Format("2006-01-02"), in.Made.Time().Format("2006-01")
		ofDay, ofMonth := first(days, day, r.Days), first(months, month, r.Months)
		if i == 0 || ofDay || ofMonth {
			continue
		}
		if err := os.Remove(in.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("remove an old scheduled snapshot: %w", err)
		}
		removed = append(removed, in.Path)
	}
	return removed, nil
}

// first reports whether a period is new and among the first n, and remembers it.
func first(seen map[string]bool, period string, n int) bool {
	if seen[period] || len(seen) >= n {
		return false
	}
	seen[period] = true
	return true
}
