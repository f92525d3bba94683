package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
)

// partsOf returns the digests of all parts of a store and of the rest, as text, and checks that the
// rows of each part are those of its digest.
func partsOf(t *testing.T, s projections.Store) (text string) {
	t.Helper()
	if err := s.View(context.Background(), func(v projections.View) error {
		r := projections.NewPartReader(v)
		for _, tp := range domain.AllPartitions() {
			d, err := r.Digest(tp)
			if err != nil {
				return err
			}
			text += fmt.Sprintf("%s %x\n", tp, d.Rest)
			for _, p := range d.Parts {
				text += fmt.Sprintf("%s %d %x\n", p.PartKey, p.Rows, p.Digest)
				h := sha256.New()
				if err := r.Rows(p.PartKey, func(_ projections.Key, b []byte) error {
					h.Write(b)
					return nil
				}); err != nil {
					return err
				}
				if sum := [32]byte(h.Sum(nil)); sum != p.Digest {
					t.Errorf("the rows of %s have digest %x, want %x", p.PartKey, sum, p.Digest)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return text
}

// Parts is a [projections.PartSource] that keeps parts in memory. The zero value has none.
type Parts struct {
	mu sync.Mutex
	of map[projections.PartDigest][]partRow
	// Scans counts the scans of each part.
	Scans map[projections.PartKey]int
}

type partRow struct {
	key projections.Key
	row []byte
}

// Put adds the part of a view's rows.
func (s *Parts) Put(r *projections.PartReader, p projections.PartDigest) error {
	var rows []partRow
	h := sha256.New()
	if err := r.Rows(p.PartKey, func(k projections.Key, b []byte) error {
		rows = append(rows, partRow{k, bytes.Clone(b)})
		h.Write(b)
		return nil
	}); err != nil {
		return err
	}
	if sum := [32]byte(h.Sum(nil)); sum != p.Digest || int64(len(rows)) != p.Rows {
		return fmt.Errorf("part %s: %d rows with digest %x, want %d with %x", p.PartKey, len(rows), sum, p.Rows, p.Digest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of, s.Scans = map[projections.PartDigest][]partRow{}, map[projections.PartKey]int{}
	}
	s.of[p] = rows
	return nil
}

func (s *Parts) rows(p projections.PartDigest) ([]partRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, ok := s.of[p]
	if !ok {
		return nil, fmt.Errorf("there is no part %s with digest %x", p.PartKey, p.Digest)
	}
	return rows, nil
}

// Has implements [projections.PartSource].
func (s *Parts) Has(p projections.PartDigest) error {
	_, err := s.rows(p)
	return err
}

// Scopes implements [projections.PartSource].
func (s *Parts) Scopes(p projections.PartDigest, t projections.Table) (scopes []string, err error) {
	rows, err := s.rows(p)
	for _, r := range rows {
		if r.key.Table == t && !slices.Contains(scopes, r.key.Scope) {
			scopes = append(scopes, r.key.Scope)
		}
	}
	return scopes, err
}

// Scan implements [projections.PartSource].
func (s *Parts) Scan(p projections.PartDigest, q projections.Query, yield func(projections.Key, []byte) error) error {
	rows, err := s.rows(p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.Scans[p.PartKey]++
	s.mu.Unlock()
	rows = slices.DeleteFunc(slices.Clone(rows), func(r partRow) bool {
		return q.Table != 0 && r.key.Table != q.Table || !q.Holds(r.key)
	})
	for i, r := range rows {
		if q.Last && i+1 < len(rows) && rows[i+1].key.Table == r.key.Table &&
			rows[i+1].key.Scope == r.key.Scope && rows[i+1].key.ID == r.key.ID {
			continue
		}
		if err := yield(r.key, r.row); err != nil {
			return err
		}
	}
	return nil
}

// Detached is a memory store that leaves every row that is in a month to parts, sealed or not,
// before each transaction.
type Detached struct {
	*projections.Memory
	Parts *Parts
}

// NewDetached returns an empty store.
func NewDetached() Detached {
	m, parts := projections.NewMemory(domain.TopicSpecs()), &Parts{}
	m.Strict, m.Source = true, parts
	return Detached{m, parts}
}

// Begin implements [projections.Store].
func (d Detached) Begin(ctx context.Context, tp domain.TopicPartition) (projections.Tx, error) {
	if slices.Contains(domain.AllPartitions(), tp) {
		if err := d.Detach(tp); err != nil {
			return nil, err
		}
	}
	return d.Memory.Begin(ctx, tp)
}

// Detach leaves the rows of a partition to parts, unless its fold failed.
func (d Detached) Detach(tp domain.TopicPartition) error {
	var parts []projections.PartDigest
	var at int64
	var failed error
	_ = d.ReadPartition(tp, func(r *projections.PartReader, next int64) error {
		at = next
		sums, err := r.Digest(tp)
		for _, p := range sums.Parts {
			if err == nil {
				err = d.Parts.Put(r, p)
			}
		}
		parts, failed = sums.Parts, err
		return err
	})
	if failed == nil {
		d.Memory.Detach(tp, at, parts)
	}
	return failed
}

// talliesOf returns the tallies of a store as text, and checks that they count its rows.
func talliesOf(t *testing.T, s projections.Store) (text string) {
	t.Helper()
	if err := s.View(context.Background(), func(v projections.View) error {
		all, err := projections.TalliesOf(v)
		if err != nil {
			return err
		}
		days, err := projections.UsageChangesOf(v, 1)
		if err != nil {
			return err
		}
		newest := int64(0)
		for _, c := range days.Days {
			newest = max(newest, c.Day)
		}
		for _, c := range days.Days { // earlier ones may be forgotten
			if c.Day > newest-60*24 {
				text += fmt.Sprintln("usage", c)
			}
		}
		left := map[projections.Table]int64{}
		for _, of := range all {
			text += fmt.Sprintf("%s %s %d: %d at %d\n", of.Partition, of.Table, of.Month, of.Rows, of.Changed)
			left[of.Table] += of.Rows
		}
		for _, table := range projections.Tables() {
			if err := projections.Stored(v).Scan(projections.Query{Table: table}, func(projections.Key, projections.Row) error {
				left[table]--
				return nil
			}); err != nil {
				return err
			}
			if left[table] != 0 {
				t.Errorf("the tallies count %d rows too many of %s", left[table], table)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return text
}
