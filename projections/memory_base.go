package projections

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

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
		return rawOf(m.Source, part, k)
	}
	var found []byte
	if err := m.Source.Scan(part, Query{}, func(at Key, b []byte) error {
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
	return read(NewPartReader(Over(memoryView{m}, m.Source, slices.Collect(maps.Values(p.base)))), p.next)
}

// Detach leaves rows to parts: it drops the rows of their months from memory, and reads them from
// [Memory.Source] from then on. The parts MUST have the rows that [PartReader.Rows] gave at the offset
// next of the partition. It does nothing and reports false if the partition has
// been folded further, or its fold failed.
func (m *Memory) Detach(tp domain.TopicPartition, next int64, parts []PartDigest) bool {
	p := m.parts[tp]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken || p.next != next {
		return false
	}
	months := map[int64]bool{}
	for _, part := range parts {
		p.base[part.Month] = part
		months[part.Month] = true
		delete(p.reads, part.Month)
	}
	p.rows.drop(months)
	return true
}

// Own returns how many rows of a partition are in memory.
func (m *Memory) Own(tp domain.TopicPartition) int {
	p := m.parts[tp]
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.rows.Len()
}

// drop removes the rows of months from the working set. Nothing in it may be changed and not yet
// stored.
func (r *WorkingSet) drop(months map[int64]bool) {
	if len(months) == 0 {
		return
	}
	var start, end int64 // of the month that the answer is known of
	var dropped bool
	in := func(hour int64) bool {
		if hour < start || hour >= end {
			start = monthOfHour(hour)
			end, dropped = nextMonth(start), months[start]
		}
		return dropped
	}
	for t := range r.tables {
		if Table(t).Timed() {
			maps.DeleteFunc(r.tables[t], func(k Key, _ *entry) bool { return in(k.Hour) })
		}
	}
	maps.DeleteFunc(r.hours, func(k Key, _ *entry) bool { return in(k.Hour) })
	for at, s := range r.shelves {
		if !slices.ContainsFunc(s.hours, in) {
			continue
		}
		kept := &shelf{}
		for i, hour := range s.hours {
			if !in(hour) {
				// A copy, because the rows of a snapshot that was read share the memory of a chunk.
				kept.hours, kept.raws = append(kept.hours, hour), append(kept.raws, bytes.Clone(s.raws[i]))
			}
		}
		r.sealed -= len(s.hours) - len(kept.hours)
		if len(kept.hours) == 0 {
			delete(r.shelves, at)
			continue
		}
		kept.hours, kept.raws = slices.Clip(kept.hours), slices.Clip(kept.raws)
		r.shelves[at] = kept
	}
}
