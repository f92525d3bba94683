package projections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Usage changes say which days of usage changed, so that what was summed up of a day is known to hold without reading it.
// A tally says the same of a month, of which every sample of the day changes the current one. Stores note changes with the
// rows. The store in memory keeps them in memory alone: after a start, nothing is known of the days before but that no record
// after the snapshot changed them.

// UsageChange is the last change of a day's usage hours of a cluster, or of a shard of one.
type UsageChange struct {
	Partition int
	Scope     string
	Day       int64 // its first hour, since 1970
	// Offset is that of the last record that changed them. Views of one log with equal offsets have equal rows.
	Offset int64
}

// Compare orders changes by partition, scope and day.
func (c UsageChange) Compare(d UsageChange) int {
	return cmp.Or(cmp.Compare(c.Partition, d.Partition), strings.Compare(c.Scope, d.Scope), cmp.Compare(c.Day, d.Day))
}

// UsageChanges are the last changes of a view. Floors has, by partition, the offset for days without an entry.
type UsageChanges struct {
	Days   []UsageChange // by [UsageChange.Compare]
	Floors map[int]int64
}

// UsageChangesOf returns the last changes of days of usage that begin at an hour or later. It fails with [ErrNoTallies] if the
// view does not know them.
func UsageChangesOf(v View, from int64) (*UsageChanges, error) {
	t, ok := Stored(v).(interface {
		UsageChanges(from int64) (*UsageChanges, error)
	})
	if !ok {
		return nil, ErrNoTallies
	}
	all, err := t.UsageChanges(from)
	if err != nil {
		return nil, fmt.Errorf("read changes of usage: %w", err)
	}
	return all, nil
}

// UsageChanges implements the view of [UsageChangesOf].
func (v memoryView) UsageChanges(from int64) (*UsageChanges, error) {
	all := &UsageChanges{Floors: map[int]int64{}}
	for tp, p := range v.m.parts {
		if tp.Topic != domain.TopicTelemetry {
			continue
		}
		all.Floors[tp.Partition] = p.days.floor
		for k, offset := range p.days.of {
			if k.day < from {
				continue
			}
			all.Days = append(all.Days, UsageChange{tp.Partition, k.scope, k.day, offset})
		}
	}
	slices.SortFunc(all.Days, UsageChange.Compare)
	return all, nil
}

// UsageChanges implements the view of [UsageChangesOf]. What was left to parts has not changed.
func (v *overView) UsageChanges(from int64) (*UsageChanges, error) {
	return UsageChangesOf(v.View, from)
}

// UsageChanges implements the view of [UsageChangesOf].
func (b besideView) UsageChanges(from int64) (*UsageChanges, error) {
	all := &UsageChanges{Floors: map[int]int64{}}
	for _, v := range b {
		some, err := UsageChangesOf(v, from)
		if err != nil {
			return nil, err
		}
		all.Days = append(all.Days, some.Days...)
		maps.Copy(all.Floors, some.Floors)
	}
	slices.SortFunc(all.Days, UsageChange.Compare)
	return all, nil
}

// UsageChanged returns what changed since [WorkingSet.Settle]. Partition is not set.
func (r *WorkingSet) UsageChanged() (all []UsageChange) {
	for k, offset := range r.days {
		all = append(all, UsageChange{Scope: k.scope, Day: k.day, Offset: offset})
	}
	slices.SortFunc(all, UsageChange.Compare)
	return all
}

// usageDays are the last changes of a partition.
type usageDays struct {
	of    map[usageDay]int64
	floor int64
	// newest is the latest day, and trimmed the one for which older ones were dropped.
	newest, trimmed int64
}

type usageDay struct {
	scope string
	day   int64
}

// mostUsageDays is how many days back changes are kept.
const mostUsageDays = 64

func usageDayOf(k Key) usageDay { return usageDay{k.Scope, k.Hour - k.Hour%24} }

// add adds what a transaction changed.
func (d *usageDays) add(changed map[usageDay]int64) {
	for k, offset := range changed {
		if d.of == nil {
			d.of = map[usageDay]int64{}
		}
		d.of[k] = offset
		d.newest = max(d.newest, k.day)
	}
	if d.newest == d.trimmed {
		return
	}
	d.trimmed = d.newest
	for k, offset := range d.of {
		if k.day+24*mostUsageDays <= d.newest {
			d.floor = max(d.floor, offset)
			delete(d.of, k)
		}
	}
}
