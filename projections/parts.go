package projections

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash"
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
		TableSpotInterruptions, TableFXRates, TableCheckpoints, TableDenials, TableAccess:
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
	// Parts are the months that have rows, in order, sealed or not.
	Parts []PartDigest
	// Rest is the SHA-256 of the rows of tables without time.
	Rest [32]byte
}

// Sealed reports whether the month ends at the hour before or earlier.
func (k PartKey) Sealed(before int64) bool { return nextMonth(k.Month) <= before }

// Sealed returns the months that end at the hour before or earlier.
func (d *PartitionDigest) Sealed(before int64) []PartDigest {
	n := len(d.Parts)
	for n > 0 && !d.Parts[n-1].Sealed(before) {
		n--
	}
	return d.Parts[:n]
}

// sum returns the digest of all rows of the partition: the SHA-256 of Rest and the digest of each
// month, as text. So a month whose rows are in a part counts with its known digest.
func (d *PartitionDigest) sum() [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%x\n", d.Rest)
	for _, p := range d.Parts {
		fmt.Fprintf(h, "%s %x\n", MonthName(p.Month), p.Digest)
	}
	return [32]byte(h.Sum(nil))
}

// months is a running digest of the rows of a partition by month. It holds a few hundred bytes for
// each month.
type months struct {
	rest  hash.Hash
	of    map[int64]*month
	last  *month // of the row before
	start int64  // of it
	end   int64
}

type month struct {
	hash.Hash
	rows int64
}

func newMonths() *months { return &months{rest: sha256.New(), of: map[int64]*month{}} }

// add adds a row in the form of [AppendRow]. Rows of a month MUST come in order.
func (m *months) add(k Key, encoded []byte) {
	if !k.Table.Timed() {
		m.rest.Write(encoded)
		return
	}
	if m.last == nil || k.Hour < m.start || k.Hour >= m.end {
		m.start = monthOfHour(k.Hour)
		m.end = nextMonth(m.start)
		if m.last = m.of[m.start]; m.last == nil {
			m.last = &month{Hash: sha256.New()}
			m.of[m.start] = m.last
		}
	}
	m.last.Write(encoded)
	m.last.rows++
}

func (m *months) digest(tp domain.TopicPartition) PartitionDigest {
	d := PartitionDigest{Partition: tp, Rest: [32]byte(m.rest.Sum(nil))}
	for start, of := range m.of {
		d.Parts = append(d.Parts, PartDigest{PartKey{tp, start}, of.rows, [32]byte(of.Sum(nil))})
	}
	slices.SortFunc(d.Parts, func(a, b PartDigest) int { return a.Compare(b.PartKey) })
	return d
}

// PartReader reads the rows of a view by partition and month.
type PartReader struct {
	own    View
	over   *overView // nil if there are no parts below the rows
	scopes scopesByPartition
	counts map[domain.TopicPartition]map[int64][]Tally // nil: not read, or of memory
}

// NewPartReader returns a reader of the rows of a view as they are stored.
func NewPartReader(v View) *PartReader {
	own, over := divided(Stored(v))
	return &PartReader{own: own, over: over, scopes: scopesByPartition{v: own}}
}

// Tallies returns the tallies of the months of a partition that have rows, by month and table name.
// It reads no row. It fails with [ErrNoTallies] if the view has none.
func (r *PartReader) Tallies(tp domain.TopicPartition) (map[int64][]Tally, error) {
	if mv, ok := r.own.(memoryView); ok {
		p := mv.m.parts[tp]
		if p == nil {
			return nil, nil
		}
		return talliesByMonth(p.tallies.list(nil, tp))[tp], nil
	}
	if r.counts == nil {
		all, err := TalliesOf(r.own)
		if err != nil {
			return nil, err
		}
		r.counts = talliesByMonth(all)
	}
	return r.counts[tp], nil
}

func talliesByMonth(all []Tally) map[domain.TopicPartition]map[int64][]Tally {
	of := map[domain.TopicPartition]map[int64][]Tally{}
	slices.SortFunc(all, func(a, b Tally) int { return a.Compare(b.TallyKey) })
	for _, t := range all {
		if t.Rows == 0 || !t.Table.Timed() {
			continue
		}
		if of[t.Partition] == nil {
			of[t.Partition] = map[int64][]Tally{}
		}
		of[t.Partition][t.Month] = append(of[t.Partition][t.Month], t)
	}
	return of
}

// DigestMonth digests one month, and reads no other.
func (r *PartReader) DigestMonth(k PartKey) (PartDigest, error) {
	d := PartDigest{PartKey: k}
	for _, p := range r.base(k.Partition, 0, 0) {
		if mv, ok := r.own.(memoryView); ok && p.PartKey == k && mv.unchanged(p) {
			return p, nil
		}
	}
	h := sha256.New()
	err := r.Rows(k, func(_ Key, b []byte) error {
		h.Write(b)
		d.Rows++
		return nil
	})
	d.Digest = [32]byte(h.Sum(nil))
	return d, err
}

// Parallel reports whether several goroutines may use the reader at a time.
func (r *PartReader) Parallel() bool {
	_, ok := r.own.(memoryView)
	return ok
}

// Digest digests a partition by month. It reads the rows that the store has itself, once. A part
// below them is read only if the store has rows of its month.
func (r *PartReader) Digest(tp domain.TopicPartition) (PartitionDigest, error) {
	m := newMonths()
	var b []byte
	err := r.each(tp, 0, 0, func(k Key, row Row, raw []byte) (err error) {
		if b, err = appendStored(b[:0], k, row, raw); err == nil {
			m.add(k, b)
		}
		return err
	})
	d := m.digest(tp)
	if err == nil {
		err = r.addBase(&d)
	}
	if err != nil {
		return d, fmt.Errorf("digest the months of %s: %w", tp, err)
	}
	return d, nil
}

// addBase completes a digest of the rows that the store has itself by the parts below them.
func (r *PartReader) addBase(d *PartitionDigest) error {
	for _, p := range r.base(d.Partition, 0, 0) {
		i, both := slices.BinarySearchFunc(d.Parts, p.PartKey, func(p PartDigest, k PartKey) int { return p.Compare(k) })
		if !both {
			d.Parts = slices.Insert(d.Parts, i, p)
			continue
		}
		var err error
		if d.Parts[i], err = r.DigestMonth(p.PartKey); err != nil {
			return err
		}
	}
	return nil
}

// LeftTo reports whether the store has left rows to this part. It may have newer rows of its month.
func (r *PartReader) LeftTo(p PartDigest) bool {
	return r.over != nil && slices.Contains(r.over.parts, p)
}

// base returns the parts of a partition that may have rows within bounds, in order.
func (r *PartReader) base(tp domain.TopicPartition, from, to int64) (parts []PartDigest) {
	if r.over != nil {
		for _, p := range r.over.parts {
			if p.Partition == tp && p.reaches(from, to) {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// Rows calls yield with each row of a part by key, in the form of [AppendRow]. The bytes are valid
// until yield returns.
func (r *PartReader) Rows(k PartKey, yield func(Key, []byte) error) error {
	from, to := k.Month, nextMonth(k.Month)
	scans := []rowScan{func(yield rowYield) error { return r.each(k.Partition, from, to, yield) }}
	for _, p := range r.base(k.Partition, from, to) {
		scans = append(scans, r.over.rowsOf(p, Query{}))
	}
	var b []byte
	if err := mergeRows(scans, Key.Compare, func(key Key, row Row, raw []byte) (err error) {
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

// each calls yield with the rows of a partition by key that the store has itself. If to is not 0,
// it may leave out rows outside from and to, and tables without time.
func (r *PartReader) each(tp domain.TopicPartition, from, to int64, yield rowYield) error {
	mv, ok := r.own.(memoryView)
	if !ok {
		return r.scopes.rows(tp, from, to, yield)
	}
	p := mv.m.parts[tp]
	if p == nil {
		return nil
	}
	return p.between(from, to, yield)
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
	if k.Table, ok = TableNamed(name); !ok {
		return k, nil, fmt.Errorf("read the key of a row: table %q is not known", name)
	}
	return k, r.b, nil
}
