package projections

import (
	"bytes"
	"fmt"
	"maps"

	"quartermaster/domain"
)

// A part lies below the rows of a memory store from [Memory.Detach] until another version of it is
// attached, or until folds ask for many of its rows. A fold that asks for a row of it gets a copy,
// which is the store's own from then on.

// thawAfter is how many rows of a part folds may ask for. Then all its rows are taken into memory,
// because each takes a page of the part to find. An import of past months needs that.
const thawAfter = 256

// below returns the row that the partition left to a part, nil if there is none.
func (m *Memory) below(p *memoryPartition, k Key) ([]byte, error) {
	if len(p.base) == 0 {
		return nil, nil
	}
	month := monthOfHour(k.Hour)
	part, ok := p.base[month]
	if !ok {
		return nil, nil
	}
	if p.reads[month]++; p.reads[month] <= thawAfter {
		return RowInPart(m.Source, part.PartDigest, k)
	}
	var found []byte
	if err := m.Source.Scan(part.PartDigest, Query{}, func(at Key, b []byte) error {
		raw, err := rowOf(b)
		if err != nil || p.rows.lookup(at) != nil {
			return err
		}
		raw = bytes.Clone(raw)
		if at == k {
			found = raw // the caller enters it
			return nil
		}
		at.Scope, at.ID = p.rows.keep(at.Scope), p.rows.keep(at.ID)
		p.rows.addSealed(at, raw)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the rows of part %s again: %w", part.PartKey, err)
	}
	delete(p.base, month)
	return found, nil
}

// ReadPartition calls read with the rows of one partition and the offset that they go to. Only
// folding this partition waits while read runs.
func (m *Memory) ReadPartition(tp domain.TopicPartition, read func(r *PartReader, next int64) error) error {
	p := m.parts[tp]
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.broken {
		return fmt.Errorf("read %s: its fold failed halfway, and begins again", tp)
	}
	return read(NewPartReader(Over(memoryView{m}, m.Source, p.parts())), p.next)
}

// Detach leaves rows to parts: it drops the rows of their months from memory, and reads them from
// [Memory.Source] from then on. The parts MUST have the rows that [PartReader.Rows] gave at the offset
// next of the partition. It does nothing and reports false if the partition has been folded further,
// or its fold failed.
//
// The last row of each node stays, as a copy. So questions about the last report read no part.
func (m *Memory) Detach(tp domain.TopicPartition, next int64, parts []PartDigest) bool {
	p := m.parts[tp]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken || p.next != next {
		return false
	}
	for _, part := range parts {
		p.attach(basePart{PartDigest: part})
		delete(p.reads, part.Month)
	}
	p.drop()
	return true
}

// Own returns how many rows of a partition are in memory.
func (m *Memory) Own(tp domain.TopicPartition) int {
	p := m.parts[tp]
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.rows.Len()
}

// basePart is a part below the rows of a partition.
type basePart struct {
	PartDigest
	// changed says that rows of its month were changed since. Otherwise all rows of the month that are
	// in memory are copies, and the digest of the month is that of the part.
	changed bool
}

func (p *memoryPartition) attach(part basePart) {
	p.base[part.Month] = part
	p.end = max(p.end, nextMonth(part.Month))
}

// parts returns the parts below the rows.
func (p *memoryPartition) parts() (parts []PartDigest) {
	for _, part := range p.base {
		parts = append(parts, part.PartDigest)
	}
	return parts
}

// note marks the parts of whose months rows were changed.
func (p *memoryPartition) note(changed []*entry) {
	for _, e := range changed {
		if e.key.Hour >= p.end || !e.key.Table.Timed() {
			continue
		}
		month := monthOfHour(e.key.Hour)
		if part, ok := p.base[month]; ok && !part.changed {
			part.changed = true
			p.base[month] = part
		}
	}
}

// unchanged reports whether the digest of a month is that of the part below it.
func (v memoryView) unchanged(d PartDigest) bool {
	part, ok := v.m.parts[d.Partition].base[d.Month]
	return ok && !part.changed && part.PartDigest == d
}

// hasLast reports whether the last row of each node is in memory. A snapshot of a store that keeps
// no copies of them lacks those that it left to parts.
func (v memoryView) hasLast() bool {
	for _, p := range v.m.parts {
		if p.lacksLast {
			return false
		}
	}
	return true
}

// node identifies the rows of a node in a table.
type node struct {
	table     Table
	scope, id string
}

// drop removes the rows from memory that are copies of a part's, except the last one of each node.
// Nothing may be changed and not yet stored.
func (p *memoryPartition) drop() {
	r := p.rows
	last := map[node]int64{}
	see := func(k Key) {
		n := node{k.Table, k.Scope, k.ID}
		if hour, ok := last[n]; !ok || k.Hour > hour {
			last[n] = k.Hour
		}
	}
	for t, rows := range r.tables {
		if !ofNodes(Table(t)) {
			continue
		}
		for _, in := range rows {
			for k := range in {
				see(k)
			}
		}
	}
	for k := range r.hours {
		see(k)
	}
	for at, s := range r.shelves {
		if n := len(s.hours); n > 0 {
			see(Key{TableUsage, at.scope, at.id, s.hours[n-1]})
		}
	}
	var start, end int64 // of the month that the answer is known of
	var inPart bool
	copied := func(k Key) bool {
		if k.Hour < start || k.Hour >= end {
			start = monthOfHour(k.Hour)
			end = nextMonth(start)
			part, ok := p.base[start]
			inPart = ok && !part.changed
		}
		return inPart && (!ofNodes(k.Table) || last[node{k.Table, k.Scope, k.ID}] != k.Hour)
	}
	for t, rows := range r.tables {
		if Table(t).Timed() {
			rows.remove(func(k Key, _ *entry) bool { return copied(k) })
		}
	}
	maps.DeleteFunc(r.hours, func(k Key, _ *entry) bool { return copied(k) })
	for at, s := range r.shelves {
		kept := &shelf{}
		for i, hour := range s.hours {
			if !copied(Key{TableUsage, at.scope, at.id, hour}) {
				kept.hours, kept.raws = append(kept.hours, hour), append(kept.raws, s.raws[i])
			}
		}
		if len(kept.hours) == len(s.hours) {
			continue
		}
		r.sealed -= len(s.hours) - len(kept.hours)
		if len(kept.hours) == 0 {
			delete(r.shelves, at)
			continue
		}
		for i, raw := range kept.raws { // which share the memory of a chunk if they are of a snapshot
			kept.raws[i] = bytes.Clone(raw)
		}
		r.shelves[at] = kept
	}
}
