package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"quartermaster/domain"
)

// Memory is the store that keeps rows in memory. It serves the embedded log, simulations and an
// auditor's replay. Snapshots persist it (snapshot.go). Rows of sealed months may be left to parts
// ([Memory.Detach]), and are then read from them. Its limit is the memory for all other rows: about
// 700 bytes for a past hour of a node with eight GPUs, three times that for the current hour.
type Memory struct {
	// Strict makes every transaction check that the fold touches only the keys that it announced,
	// because stores that load rows by key rely on it. It also seals as many rows as possible. For
	// tests.
	Strict bool
	// Source reads the parts that rows were left to. It may be nil while there are none.
	Source PartSource

	parts map[domain.TopicPartition]*memoryPartition
}

type memoryPartition struct {
	mu   sync.RWMutex
	next int64
	last domain.Anchor // the record before next
	// broken is set if a fold failed halfway: the rows are ahead of next.
	broken bool
	rows   *WorkingSet
	// base are the parts below rows, by month.
	base map[int64]basePart
	end  int64 // the hour after their months
	// lacksLast says that a part may have the last row of a node that is not in rows.
	lacksLast bool
	// reads counts the rows that folds asked a part for, by month.
	reads map[int64]int
	// tallies are of all rows, also those that were left to parts.
	tallies tallies
	days    usageDays
}

// NewMemory returns an empty store for the given topics.
func NewMemory(topics []domain.TopicSpec) *Memory {
	m := &Memory{parts: make(map[domain.TopicPartition]*memoryPartition)}
	for _, t := range topics {
		for i := range t.Partitions {
			p := &memoryPartition{}
			m.empty(domain.TopicPartition{Topic: t.Topic, Partition: i}, p)
			m.parts[domain.TopicPartition{Topic: t.Topic, Partition: i}] = p
		}
	}
	return m
}

// empty makes a partition one from which nothing was folded.
func (m *Memory) empty(tp domain.TopicPartition, p *memoryPartition) {
	p.rows, p.next, p.last, p.broken = NewWorkingSet(), 0, domain.Anchor{}, false
	p.base, p.reads, p.end, p.lacksLast = map[int64]basePart{}, map[int64]int{}, 0, false
	p.tallies, p.days = tallies{}, usageDays{floor: -1}
	p.rows.below = func(k Key) ([]byte, error) { return m.below(p, k) }
}

// Begin implements [Store].
func (m *Memory) Begin(_ context.Context, tp domain.TopicPartition) (Tx, error) {
	p := m.parts[tp]
	if p == nil {
		return nil, fmt.Errorf("fold %s: no such partition", tp)
	}
	p.mu.Lock()
	if p.broken {
		m.empty(tp, p)
	}
	return &memoryTx{p: p, strict: m.Strict}, nil
}

type memoryTx struct {
	p      *memoryPartition
	strict bool
	done   bool
}

func (t *memoryTx) Next() int64 { return t.p.next }

func (t *memoryTx) Anchor() domain.Anchor { return t.p.last }

func (t *memoryTx) Load(_ context.Context, keys iter.Seq[Key]) (*WorkingSet, error) {
	t.p.rows.declared, t.p.rows.trespass = nil, nil
	if t.strict {
		t.p.rows.least = 0
		t.p.rows.declared = make(map[Key]bool)
		for k := range keys {
			t.p.rows.declared[k.clone()] = true
		}
	}
	return t.p.rows, nil
}

// Due implements [Tx]. A commit costs little, and readers wait for it.
func (t *memoryTx) Due(Pending) bool { return true }

func (t *memoryTx) Commit(_ context.Context, next int64, last domain.Anchor) error {
	if t.done {
		return errors.New("commit: the transaction has ended")
	}
	if next < t.p.next {
		return fmt.Errorf("commit: position would move back from %d to %d", t.p.next, next)
	}
	if err := t.p.rows.err; err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	trespass := t.p.rows.trespass
	t.p.next, t.p.last = next, last
	t.p.tallies.add(&t.p.rows.changes)
	t.p.note(t.p.rows.changed)
	t.p.days.add(t.p.rows.days)
	t.p.rows.Settle()
	t.p.rows.seal()
	t.Rollback()
	if len(trespass) > 0 {
		return fmt.Errorf("fold touched %s without announcing it", trespass[0])
	}
	return nil
}

// Rollback ends the transaction. Changes of rows in memory cannot be undone. But folding fails only
// because of a program error, and then the partition restarts from its first record. Until then no
// view shows it.
func (t *memoryTx) Rollback() {
	if !t.done {
		t.p.broken = len(t.p.rows.changed) > 0
		t.done = true
		t.p.rows.declared, t.p.rows.trespass = nil, nil
		t.p.mu.Unlock()
	}
}

// View implements [Store]. Folding waits while read runs.
func (m *Memory) View(_ context.Context, read func(View) error) error {
	for _, tp := range m.partitions() {
		m.parts[tp].mu.RLock()
		defer m.parts[tp].mu.RUnlock()
		if m.parts[tp].broken {
			return fmt.Errorf("view: folding %s failed halfway, and begins again", tp)
		}
	}
	var base []PartDigest
	for _, p := range m.parts {
		base = append(base, p.parts()...)
	}
	return read(ByCluster(Over(memoryView{m}, m.Source, base)))
}

func (m *Memory) partitions() []domain.TopicPartition {
	return slices.SortedFunc(maps.Keys(m.parts), domain.TopicPartition.Compare)
}

type memoryView struct{ m *Memory }

func (v memoryView) Position() domain.Position {
	p := domain.Position{}
	for tp, part := range v.m.parts {
		p[tp] = part.next
	}
	return p
}

func (v memoryView) Anchors() map[domain.TopicPartition]domain.Anchor {
	anchors := map[domain.TopicPartition]domain.Anchor{}
	for tp, part := range v.m.parts {
		if !part.last.IsZero() {
			anchors[tp] = part.last
		}
	}
	return anchors
}

func (v memoryView) Get(k Key) (Row, error) {
	tp, _ := sectionOf(k)
	if part := v.m.parts[tp]; part != nil {
		if e := part.rows.lookup(k); e != nil {
			return e.read()
		}
	}
	return nil, nil
}

// each calls yield with every entry that a query selects, in no particular order.
func (v memoryView) each(q Query, yield func(*entry)) {
	if q.Scope != "" {
		tp, _ := sectionOf(Key{Table: q.Table, Scope: q.Scope})
		if part := v.m.parts[tp]; part != nil {
			part.rows.each(q, yield)
		}
		return
	}
	for _, part := range v.m.parts {
		part.rows.each(q, yield)
	}
}

func (v memoryView) Scopes(t Table) ([]string, error) {
	scopes := map[string]bool{}
	for _, part := range v.m.parts {
		if t != TableUsage {
			part.rows.each(Query{Table: t}, func(e *entry) { scopes[e.key.Scope] = true })
			continue
		}
		for k := range part.rows.hours {
			scopes[k.Scope] = true
		}
		for at := range part.rows.shelves {
			scopes[at.scope] = true
		}
	}
	return slices.Sorted(maps.Keys(scopes)), nil
}

func (v memoryView) Scan(q Query, yield func(Key, Row) error) error {
	var found []*entry
	v.each(q, func(e *entry) { found = append(found, e) })
	slices.SortFunc(found, func(a, b *entry) int { return a.key.Compare(b.key) })
	for i, e := range found {
		if q.Last && i+1 < len(found) && found[i+1].key.Scope == e.key.Scope && found[i+1].key.ID == e.key.ID {
			continue
		}
		row, err := e.read()
		if err != nil {
			return err
		}
		if err := yield(e.key, row); err != nil {
			return err
		}
	}
	return nil
}

// ScanByCluster scans as the function [ScanByCluster] does, with all shards at once.
func (v memoryView) ScanByCluster(q Query, yield func(Key, Row) error) error {
	all := q
	all.Scope = ""
	type hit struct {
		of Key // by cluster
		*entry
	}
	var found []hit
	for _, part := range v.m.parts {
		part.rows.each(all, func(e *entry) {
			of := e.key
			if of.Scope = domain.ClusterOf(of.Scope); q.Scope == "" || of.Scope == q.Scope {
				found = append(found, hit{of, e})
			}
		})
	}
	slices.SortFunc(found, func(a, b hit) int {
		return cmp.Or(a.of.Compare(b.of), strings.Compare(a.key.Scope, b.key.Scope))
	})
	for i, e := range found {
		if q.Last && i+1 < len(found) {
			if next := found[i+1].of; next.Scope == e.of.Scope && next.ID == e.of.ID && next.Hour > e.of.Hour {
				continue
			}
		}
		row, err := e.read()
		if err != nil {
			return err
		}
		if err := yield(e.key, row); err != nil {
			return err
		}
	}
	return nil
}
