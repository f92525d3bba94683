package projections

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"quartermaster/domain"
)

// A snapshot is a file of rows at a position, in this order:
//
//	magic     8 bytes, "QMSNAP4\n"
//	header    length and CBOR map: method version, log, position, anchors, parts, tallies
//	sections  for each partition in order its chunks, each length and bytes, and
//	          a length of 0 after the last
//	content   32 bytes: the digest of the sections
//	digest    32 bytes: the digest of the rows
//	seal      32 bytes: the SHA-256 of header, content and digest
//
// Lengths are 8 bytes, big-endian. The chunks of a section form a CBOR sequence (RFC
// 8742) of [table, scope, id, hour, row], ordered by key. A chunk holds whole rows and
// ends with the row that brings it to chunkSize. The rows of the snapshot are those of the
// sections and those of the parts that the header names, of which a row of a section takes
// precedence.
//
// The content is the SHA-256 of every partition's name and the SHA-256 of its sequence, in
// order. The digest of the rows is the SHA-256 of every partition's name and digest
// ([PartitionDigest]), so that equal rows have equal digests in every store, whatever is in
// parts. Equal rows over equal parts at one position of one log give equal files.

const (
	snapshotMagic = "QMSNAP4\n"
	chunkSize     = 1 << 20
)

// olderMagics are those of earlier forms, whose rows no folds here can use.
var olderMagics = []string{"QMSNAP1\n", "QMSNAP2\n", "QMSNAP3\n"}

type snapshotHeader struct {
	Method   string `cbor:"method"`
	Log      string `cbor:"log"`
	Position string `cbor:"position"`
	// Anchors are the last records before the position, by partition. They identify the log.
	Anchors []snapshotAnchor `cbor:"anchors"`
	// Parts are the parts below the rows, by [PartKey.Compare].
	Parts []snapshotPart `cbor:"parts"`
	// Last says that the sections have the last row of each node, also where a part has it.
	Last    bool            `cbor:"last"`
	Tallies []snapshotTally `cbor:"tallies"`
}

type snapshotPart struct {
	Topic     domain.Topic `cbor:"topic"`
	Partition int          `cbor:"partition"`
	Month     int64        `cbor:"month"` // its first hour, since 1970
	Rows      int64        `cbor:"rows"`
	Digest    []byte       `cbor:"digest"`
	// Changed says that the sections have rows of the month that differ from those of the part.
	Changed bool `cbor:"changed"`
}

type snapshotTally struct {
	_         struct{} `cbor:",toarray"`
	Topic     domain.Topic
	Partition int
	Table     string
	Month     int64
	Rows      int64
	Changed   int64
}

type snapshotAnchor struct {
	Topic     domain.Topic `cbor:"topic"`
	Partition int          `cbor:"partition"`
	Offset    int64        `cbor:"offset"`
	Epoch     int32        `cbor:"epoch"`
	Hash      []byte       `cbor:"hash"`
}

func snapshotHeaderOf(v View, log string) (h snapshotHeader, err error) {
	h = snapshotHeader{
		Method: Method, Log: log, Position: v.Position().String(), Anchors: []snapshotAnchor{}, Parts: []snapshotPart{},
		Tallies: []snapshotTally{},
	}
	anchors := v.Anchors()
	for _, tp := range slices.SortedFunc(maps.Keys(anchors), domain.TopicPartition.Compare) {
		a := anchors[tp]
		h.Anchors = append(h.Anchors, snapshotAnchor{tp.Topic, tp.Partition, a.Offset, a.Epoch, a.Hash[:]})
	}
	if own, over := divided(Stored(v)); over != nil {
		mv, ok := own.(memoryView)
		h.Last = ok && mv.hasLast()
		for _, p := range over.parts {
			changed := !ok || !mv.unchanged(p)
			h.Parts = append(h.Parts, snapshotPart{
				p.Partition.Topic, p.Partition.Partition, p.Month, p.Rows, p.Digest[:], changed,
			})
		}
	}
	all, err := TalliesOf(v)
	for _, t := range all {
		h.Tallies = append(h.Tallies, snapshotTally{
			Topic: t.Partition.Topic, Partition: t.Partition.Partition, Table: t.Table.String(), Month: t.Month,
			Rows: t.Rows, Changed: t.Changed,
		})
	}
	return h, err
}

// AppendRow appends a row with its key, in the form of sections and digests.
func AppendRow(b []byte, k Key, row Row) ([]byte, error) {
	b = appendKey(b, k)
	switch row := row.(type) {
	case *UsageHour:
		return appendUsage(b, row), nil
	case *DemandMonth:
		return appendDemand(b, row), nil
	}
	enc, err := EncodeRow(row)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	return append(b, enc...), nil
}

// appendKey appends the head of a row's array and the four parts of its key.
func appendKey(b []byte, k Key) []byte {
	b = appendHead(b, majorArray, 5)
	b = appendText(appendText(appendText(b, k.Table.String()), k.Scope), k.ID)
	if k.Hour >= 0 {
		return appendHead(b, majorUint, uint64(k.Hour))
	}
	return appendHead(b, majorNegative, uint64(-1-k.Hour))
}

// digest is a running digest over partitions. They MUST be added in order.
type digest struct{ total hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

// add adds a partition with its digest.
func (d digest) add(tp domain.TopicPartition, sum [32]byte) {
	fmt.Fprintf(d.total, "%s %x\n", tp, sum)
}

func (d digest) sum() [32]byte { return [32]byte(d.total.Sum(nil)) }

// DigestOf returns the digest of a view's rows.
func DigestOf(v View) ([32]byte, error) {
	r := NewPartReader(v)
	tps := domain.AllPartitions()
	sums := make([][32]byte, len(tps))
	var g errgroup.Group
	g.SetLimit(1)
	if r.Parallel() {
		g.SetLimit(runtime.GOMAXPROCS(0))
	}
	for i, tp := range tps {
		g.Go(func() error {
			d, err := r.Digest(tp)
			sums[i] = d.sum()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return [32]byte{}, fmt.Errorf("digest rows: %w", err)
	}
	total := newDigest()
	for i, tp := range tps {
		total.add(tp, sums[i])
	}
	return total.sum(), nil
}

// DigestOfPartitions returns what [DigestOf] does, from the digests of [domain.AllPartitions], in their
// order.
func DigestOfPartitions(all []PartitionDigest) [32]byte {
	total := newDigest()
	for i := range all {
		total.add(all[i].Partition, all[i].sum())
	}
	return total.sum()
}

// Digester computes the digest of rows that are passed in the order of [Key.Compare]. Its zero
// value is the digest of no rows.
type Digester struct {
	sections map[domain.TopicPartition]*months
}

// Add adds a row in the form of [AppendRow].
func (d *Digester) Add(k Key, encoded []byte) {
	if d.sections == nil {
		d.sections = map[domain.TopicPartition]*months{}
	}
	tp, ok := sectionOf(k)
	if !ok {
		return // no partition has such a row
	}
	m := d.sections[tp]
	if m == nil {
		m = newMonths()
		d.sections[tp] = m
	}
	m.add(k, encoded)
}

// Sum returns the digest, equal to [DigestOf] for a view with these rows.
func (d *Digester) Sum() [32]byte {
	total := newDigest()
	for _, tp := range domain.AllPartitions() {
		m := d.sections[tp]
		if m == nil {
			m = newMonths()
		}
		of := m.digest(tp)
		total.add(tp, of.sum())
	}
	return total.sum()
}

// sectionOf returns the partition whose section contains a row.
func sectionOf(k Key) (domain.TopicPartition, bool) {
	if topic := k.Table.Topic(); topic != "" {
		return domain.TopicPartition{Topic: topic, Partition: domain.PartitionOf([]byte(k.Scope), topic.Partitions())}, true
	}
	tp, ok := sectionOfStream[k.Scope]
	return tp, ok
}

var sectionOfStream = func() map[string]domain.TopicPartition {
	m := map[string]domain.TopicPartition{}
	for _, tp := range domain.AllPartitions() {
		m[StreamScope(tp)] = tp
	}
	return m
}()

// WriteSnapshot writes the rows of a view and their position, and returns their digest. log
// identifies the log that they were folded from; a snapshot is of no use with another log. It holds
// a few chunks and the keys of one table in memory, however many rows there are.
func WriteSnapshot(w io.Writer, v View, log string) ([32]byte, error) {
	sum, err := writeSnapshot(w, v, log)
	if err != nil {
		return sum, fmt.Errorf("write snapshot: %w", err)
	}
	return sum, nil
}

func writeSnapshot(w io.Writer, v View, log string) (sum [32]byte, err error) {
	h, err := snapshotHeaderOf(v, log)
	if err != nil {
		return sum, err
	}
	head, err := canonical.Marshal(h)
	if err != nil {
		return sum, fmt.Errorf("encode header: %w", err)
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	block := func(b []byte) error {
		if _, err := bw.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))); err != nil {
			return err
		}
		_, err := bw.Write(b)
		return err
	}
	if _, err := bw.WriteString(snapshotMagic); err != nil {
		return sum, err
	}
	if err := block(head); err != nil {
		return sum, err
	}
	r := NewPartReader(v)
	content, rows := newDigest(), newDigest()
	if err := r.sections(block, func(s section) error {
		content.add(s.months.Partition, s.content)
		if err := r.addBase(&s.months); err != nil {
			return err
		}
		rows.add(s.months.Partition, s.months.sum())
		return block(nil)
	}); err != nil {
		return sum, err
	}
	sum = rows.sum()
	sums := slices.Concat(content.total.Sum(nil), sum[:])
	seal := sha256.Sum256(append(head, sums...))
	bw.Write(sums) // Flush reports errors
	bw.Write(seal[:])
	return sum, bw.Flush()
}

// Digest returns the digest of the rows and their position.
func (m *Memory) Digest() (sum [32]byte, at domain.Position, err error) {
	err = m.View(context.Background(), func(v View) (err error) {
		at = v.Position()
		sum, err = DigestOf(v)
		return err
	})
	return sum, at, err
}

// WriteSnapshot writes a snapshot of the whole store, like the function [WriteSnapshot].
func (m *Memory) WriteSnapshot(w io.Writer, log string) (sum [32]byte, at domain.Position, err error) {
	err = m.View(context.Background(), func(v View) (err error) {
		at = v.Position()
		sum, err = WriteSnapshot(w, v, log)
		return err
	})
	return sum, at, err
}

// section is what is known of a section once it is encoded.
type section struct {
	content [32]byte        // the SHA-256 of its sequence
	months  PartitionDigest // of the rows in it
}

// sections encodes the rows of every partition in order that the store has itself. It calls chunk
// with each chunk of a section, and end after the last chunk.
func (r *PartReader) sections(chunk func([]byte) error, end func(section) error) error {
	if mv, ok := r.own.(memoryView); ok {
		return mv.m.sections(chunk, end)
	}
	hand := func(b []byte) ([]byte, error) { return b, chunk(b) }
	for _, tp := range domain.AllPartitions() {
		s, err := encodeSection(tp, func(yield rowYield) error { return r.scopes.rows(tp, 0, 0, yield) }, hand)
		if err != nil {
			return err
		}
		if err := end(s); err != nil {
			return err
		}
	}
	return nil
}

// rowYield takes a row, either decoded or, if row is nil, encoded.
type rowYield func(k Key, row Row, raw []byte) error

// encodeSection encodes rows, which must come in order. hand takes each chunk, and returns memory
// for the next.
func encodeSection(tp domain.TopicPartition, each rowScan, hand func([]byte) ([]byte, error)) (s section, err error) {
	h, m := sha256.New(), newMonths()
	var b []byte
	flush := func() (err error) {
		h.Write(b)
		b, err = hand(b)
		b = b[:0]
		return err
	}
	if err := each(func(k Key, row Row, raw []byte) error {
		from := len(b)
		if b, err = appendStored(b, k, row, raw); err != nil {
			return err
		}
		m.add(k, b[from:])
		if len(b) < chunkSize {
			return nil
		}
		return flush()
	}); err != nil {
		return s, err
	}
	if len(b) > 0 {
		if err := flush(); err != nil {
			return s, err
		}
	}
	return section{[32]byte(h.Sum(nil)), m.digest(tp)}, nil
}

// scopesByPartition finds the rows of a partition in a view without partitions: those of its
// topic's tables whose scope hashes to it, and the rows about the partition itself.
type scopesByPartition struct {
	v     View
	topic domain.Topic
	of    map[Table][]string // all scopes, by table of the topic
}

// rows calls yield with the rows of a partition by key. If to is not 0, it leaves out tables without
// time, and rows outside from and to.
func (s *scopesByPartition) rows(tp domain.TopicPartition, from, to int64, yield rowYield) error {
	if s.topic != tp.Topic {
		s.topic, s.of = tp.Topic, map[Table][]string{}
	}
	for _, t := range tablesByName() {
		if to != 0 && !t.Timed() {
			continue
		}
		scopes := []string{StreamScope(tp)}
		if t.Topic() != "" {
			if t.Topic() != tp.Topic {
				continue
			}
			all, ok := s.of[t]
			if !ok {
				var err error
				if all, err = s.v.Scopes(t); err != nil {
					return fmt.Errorf("list the scopes of %s: %w", t, err)
				}
				s.of[t] = all
			}
			scopes = nil
			for _, scope := range all {
				if domain.PartitionOf([]byte(scope), tp.Topic.Partitions()) == tp.Partition {
					scopes = append(scopes, scope)
				}
			}
			slices.Sort(scopes)
		}
		for _, scope := range scopes {
			var last *Key
			if err := s.v.Scan(Query{Table: t, Scope: scope, From: from, To: to}, func(k Key, row Row) error {
				// A database that sorts text by a locale would give another digest.
				if last != nil && last.Compare(k) >= 0 {
					return fmt.Errorf("scan %s: %s comes after %s", t, k, last)
				}
				last = &k
				return yield(k, row, nil)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tablesByName returns the tables in the order of [Key.Compare].
func tablesByName() []Table {
	return slices.SortedFunc(slices.Values(Tables()), func(a, b Table) int { return strings.Compare(a.String(), b.String()) })
}

// The maximum number of partitions that are encoded at a time, and of chunks of each that may wait
// for earlier partitions. They bound memory while a snapshot is written.
const (
	encoders    = 4
	chunksAhead = 8
)

// sections encodes as [PartReader.sections] does, several partitions at a time.
func (m *Memory) sections(chunk func([]byte) error, end func(section) error) error {
	type encoded struct {
		chunks  chan []byte
		section // it and err are valid once chunks is closed
		err     error
	}
	tps := m.partitions()
	out := make([]encoded, len(tps))
	for i := range out {
		out[i].chunks = make(chan []byte, chunksAhead)
	}
	slots := make(chan struct{}, min(encoders, runtime.GOMAXPROCS(0)))
	spare := make(chan []byte, cap(slots)*(chunksAhead+2))
	stop := make(chan struct{})
	hand := func(chunks chan []byte) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) {
			select {
			case chunks <- b:
			case <-stop:
				return nil, errors.New("nobody takes the rows any more")
			}
			select {
			case b = <-spare:
				return b, nil
			default:
				return make([]byte, 0, chunkSize+chunkSize/16), nil
			}
		}
	}
	// The caller holds the read locks until this returns, so no encoder may outlive it.
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	wg.Go(func() {
		for i, tp := range tps {
			select {
			case slots <- struct{}{}:
			case <-stop:
				return
			}
			wg.Go(func() {
				o := &out[i]
				defer close(o.chunks)
				o.section, o.err = encodeSection(tp, m.parts[tp].each, hand(o.chunks))
			})
		}
	})
	for i := range tps {
		for b := range out[i].chunks {
			if err := chunk(b); err != nil {
				return err
			}
			select {
			case spare <- b:
			default:
			}
		}
		if err := out[i].err; err != nil {
			return err
		}
		if err := end(out[i].section); err != nil {
			return err
		}
		<-slots
	}
	return nil
}

// each calls yield with every row of the partition, by key.
func (p *memoryPartition) each(yield rowYield) error { return p.between(0, 0, yield) }

// between is each. If to is not 0, it leaves out tables without time, and rows outside from and to.
func (p *memoryPartition) between(from, to int64, yield rowYield) error {
	take := func(e *entry) error { return yield(e.key, e.row, e.raw) }
	var found []*entry
	for _, t := range tablesByName() {
		if to != 0 && !t.Timed() {
			continue
		}
		q := Query{Table: t, From: from, To: to}
		if t == TableUsage {
			if err := p.rows.eachHour(q, take); err != nil {
				return err
			}
			continue
		}
		found = found[:0]
		p.rows.each(q, func(e *entry) { found = append(found, e) })
		slices.SortFunc(found, func(a, b *entry) int { return a.key.Compare(b.key) })
		for _, e := range found {
			if err := take(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachHour calls yield with the usage hours that a query selects, by key. It holds the keys of
// shelves, not of hours.
func (r *WorkingSet) eachHour(q Query, yield func(*entry) error) error {
	open := map[shelfKey][]*entry{}
	for k, e := range r.hours {
		if q.Holds(k) {
			open[shelfOf(k)] = append(open[shelfOf(k)], e)
		}
	}
	var places []shelfKey
	for at, s := range r.shelves {
		if s.reaches(q) {
			places = append(places, at)
		}
	}
	for at := range open {
		if s := r.shelves[at]; s == nil || !s.reaches(q) {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b shelfKey) int {
		return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.id, b.id), cmp.Compare(a.month, b.month))
	})
	for _, at := range places {
		hours := open[at]
		slices.SortFunc(hours, func(a, b *entry) int { return cmp.Compare(a.key.Hour, b.key.Hour) })
		if s := r.shelves[at]; s != nil {
			for i, hour := range s.hours {
				if !q.Holds(Key{TableUsage, at.scope, at.id, hour}) {
					continue
				}
				for len(hours) > 0 && hours[0].key.Hour < hour {
					if err := yield(hours[0]); err != nil {
						return err
					}
					hours = hours[1:]
				}
				if err := yield(&entry{key: Key{TableUsage, at.scope, at.id, hour}, raw: s.raws[i]}); err != nil {
					return err
				}
			}
		}
		for _, e := range hours {
			if err := yield(e); err != nil {
				return err
			}
		}
	}
	return nil
}
