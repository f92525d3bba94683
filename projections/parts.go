package projections

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash"
	"iter"
	"slices"

	"quartermaster/domain"
)

// A part holds the rows of one month of one partition: those in tables that are split by time. Its
// digest is the SHA-256 of its rows in the form of [AppendRow], ordered by key. A late fact changes
// the rows of a past month, and so its digest.
//
// A month is sealed once observations of it are too old to be accepted. Imports, corrections and
// repairs may still change it.

// PartKey identifies a part.
type PartKey struct {
	Partition domain.TopicPartition
	// Month is the first hour of the month, in hours since 1970 UTC.
	Month int64
}

// Compare orders parts by partition and month.
func (k PartKey) Compare(l PartKey) int {
	return cmp.Or(k.Partition.Compare(l.Partition), cmp.Compare(k.Month, l.Month))
}

// String returns "topic/partition month".
func (k PartKey) String() string { return k.Partition.String() + " " + MonthName(k.Month) }

// MonthName returns the month that an hour lies in, as in 2026-05.
func MonthName(hour int64) string { return atHour(hour).Time().Format("2006-01") }

// monthOfHour returns the first hour of the month that an hour lies in.
func monthOfHour(hour int64) int64 { return MonthStart(atHour(hour)) }

func atHour(hour int64) domain.Instant { return domain.Instant(hour) * domain.Hour }

// nextMonth returns the first hour of the month after one.
func nextMonth(month int64) int64 {
	return HourOf(domain.InstantOf(atHour(month).Time().AddDate(0, 1, 0)))
}

// Timed reports whether the table is split by time, so that [Key.Hour] places its rows in a month.
func (t Table) Timed() bool {
	switch t {
	case TableUsage, TableNodeGPUs, TableServing, TableServers, TableDemand, TableEnergy,
		TableFaults, TableHealth, TableReplicas, TableBillingLines, TableOffers,
		TableSpotInterruptions, TableFXRates, TableCheckpoints, TableDenials:
		return true
	default:
		return false
	}
}

// PartOf returns the part that a row belongs to. It reports false for rows of tables without time.
func PartOf(k Key) (PartKey, bool) {
	tp, ok := sectionOf(k)
	if !ok || !k.Table.Timed() {
		return PartKey{}, false
	}
	return PartKey{tp, monthOfHour(k.Hour)}, true
}

// SealedBefore returns the first hour of the first month that is not sealed. newest is the latest
// time at which a record was appended, by the log, so that the answer does not depend on when it is
// asked for.
func SealedBefore(newest domain.Instant) int64 { return MonthStart(newest - maxLate) }

// PartDigest is the digest of a part.
type PartDigest struct {
	PartKey
	Rows   int64
	Digest [32]byte
}

// PartitionDigest divides the digest of the rows of a partition.
type PartitionDigest struct {
	Partition domain.TopicPartition
	// Parts are the sealed months that have rows, in order.
	Parts []PartDigest
	// Rest is the SHA-256 of all other rows: open months and tables without time.
	Rest [32]byte
}

// PartReader reads the rows of a view by partition and month.
type PartReader struct {
	v      View
	scopes scopesByPartition
}

// NewPartReader returns a reader of the rows of a view as they are stored.
func NewPartReader(v View) *PartReader {
	v = Stored(v)
	return &PartReader{v: v, scopes: scopesByPartition{v: v}}
}

// Parallel reports whether several goroutines may use the reader at a time.
func (r *PartReader) Parallel() bool {
	_, ok := r.v.(memoryView)
	return ok
}

// Digest digests a partition in one pass over its rows. Months that end at the hour before or
// earlier are sealed. It holds a few hundred bytes for each month.
func (r *PartReader) Digest(tp domain.TopicPartition, before int64) (PartitionDigest, error) {
	type sum struct {
		hash.Hash
		rows int64
	}
	months := map[int64]*sum{}
	rest := &sum{Hash: sha256.New()}
	var b []byte
	month, to := int64(0), int64(0) // the month of the row before
	if err := r.each(tp, 0, 0, func(k Key, row Row, raw []byte) (err error) {
		s := rest
		if k.Table.Timed() {
			if k.Hour < month || k.Hour >= to {
				month = monthOfHour(k.Hour)
				to = nextMonth(month)
			}
			if to <= before {
				if s = months[month]; s == nil {
					s = &sum{Hash: sha256.New()}
					months[month] = s
				}
			}
		}
		if b, err = appendStored(b[:0], k, row, raw); err != nil {
			return err
		}
		s.Write(b)
		s.rows++
		return nil
	}); err != nil {
		return PartitionDigest{}, fmt.Errorf("digest the months of %s: %w", tp, err)
	}
	d := PartitionDigest{Partition: tp, Rest: [32]byte(rest.Sum(nil))}
	for m, s := range months {
		d.Parts = append(d.Parts, PartDigest{PartKey{tp, m}, s.rows, [32]byte(s.Sum(nil))})
	}
	slices.SortFunc(d.Parts, func(a, b PartDigest) int { return a.Compare(b.PartKey) })
	return d, nil
}

// Rows calls yield with each row of a part by key, in the form of [AppendRow]. The bytes are valid
// until yield returns.
func (r *PartReader) Rows(k PartKey, yield func(Key, []byte) error) error {
	var b []byte
	if err := r.each(k.Partition, k.Month, nextMonth(k.Month), func(key Key, row Row, raw []byte) (err error) {
		if !key.Table.Timed() || monthOfHour(key.Hour) != k.Month {
			return nil
		}
		if b, err = appendStored(b[:0], key, row, raw); err != nil {
			return err
		}
		return yield(key, b)
	}); err != nil {
		return fmt.Errorf("read the rows of %s: %w", k, err)
	}
	return nil
}

func appendStored(b []byte, k Key, row Row, raw []byte) ([]byte, error) {
	if row == nil {
		return append(appendKey(b, k), raw...), nil
	}
	return AppendRow(b, k, row)
}

// each calls yield with the rows of a partition by key. If to is not 0, it may leave out rows outside
// from and to, and tables without time.
func (r *PartReader) each(tp domain.TopicPartition, from, to int64, yield rowYield) error {
	mv, ok := r.v.(memoryView)
	if !ok {
		return r.scopes.rows(tp, from, to, yield)
	}
	p := mv.m.parts[tp]
	if p == nil {
		return nil
	}
	return p.between(from, to, yield)
}

// FirstDifference returns the first row by key that differs between two sequences of rows, each
// ordered by key and in the form of [AppendRow]. It reports false if there is none.
func FirstDifference(a, b iter.Seq2[Key, []byte]) (Difference, bool) {
	next, stop := iter.Pull2(b)
	defer stop()
	inB, enc, more := next()
	for k, want := range a {
		switch {
		case !more || k.Compare(inB) < 0:
			return Difference{k.clone(), true, false}, true
		case k.Compare(inB) > 0:
			return Difference{inB.clone(), false, true}, true
		case !bytes.Equal(want, enc):
			return Difference{k.clone(), true, true}, true
		}
		inB, enc, more = next()
	}
	if more {
		return Difference{inB.clone(), false, true}, true
	}
	return Difference{}, false
}

// SplitRow divides a row in the form of [AppendRow] into its key and its own encoding, which
// [DecodeRow] decodes.
func SplitRow(b []byte) (k Key, raw []byte, err error) {
	r := cborReader{b: b}
	r.tuple(5)
	name := r.text()
	k.Scope, k.ID, k.Hour = r.text(), r.text(), r.integer()
	if r.err != nil {
		return k, nil, fmt.Errorf("read the key of a row: %w", r.err)
	}
	var ok bool
	if k.Table, ok = tableNamed(name); !ok {
		return k, nil, fmt.Errorf("read the key of a row: table %q is not known", name)
	}
	return k, r.b, nil
}
