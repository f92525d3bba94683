package costs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"quartermaster/domain/attribution"
	"quartermaster/projections/dimension"
)

// The sums of a canonical form are what its records add up to, for each target and currency. They follow from the records,
// have the same digest, and answer queries by [targetDimensions] without reading millions of records.

// targetCost is what the allocations of a target cost in a currency.
type targetCost struct {
	target   target
	currency string
	cost     Cost // sums alone: nothing that follows from them
	records  int
}

// targetCosts adds up allocations, in the order of their first one.
type targetCosts struct {
	all     []*targetCost
	known   map[costOf]*targetCost
	inBlock map[numberedCost]*targetCost
	key     numberedCost // of last
	last    *targetCost
}

// costOf is a target and a currency.
type costOf struct {
	target   target
	currency string
}

// numberedCost is the same with the number of the target in a block.
type numberedCost struct {
	target   uint64
	currency string
}

func newTargetCosts() *targetCosts {
	return &targetCosts{known: map[costOf]*targetCost{}, inBlock: map[numberedCost]*targetCost{}}
}

// forget forgets the numbers of the targets of a block.
func (s *targetCosts) forget() {
	s.last = nil
	clear(s.inBlock)
}

func (s *targetCosts) add(n uint64, t *target, p *part) {
	k := numberedCost{n, p.allocation.Line.Currency}
	if s.last == nil || k != s.key {
		if s.key, s.last = k, s.inBlock[k]; s.last == nil {
			s.last = s.of(t, k.currency)
			s.inBlock[k] = s.last
		}
	}
	s.last.cost.add(p)
	s.last.records++
}

func (s *targetCosts) of(t *target, currency string) *targetCost {
	k := costOf{*t, currency}
	if s.known[k] == nil {
		s.known[k] = &targetCost{target: *t, currency: currency}
		s.all = append(s.all, s.known[k])
	}
	return s.known[k]
}

// amounts are the sums of a cost in both of its forms.
func (c *Cost) amounts() [5]*attribution.Amount {
	return [...]*attribution.Amount{&c.Billed, &c.Effective, &c.List, &c.Contracted, &c.Listed}
}

func (c *Cost) times() [4]*int64 { return [...]*int64{&c.Bought, &c.Allocated, &c.Measured, &c.useful} }

// section returns the part of the form with the sums. Its texts and targets are numbered by themselves.
func (s *targetCosts) section() ([]byte, error) {
	e := newEncoder(io.Discard)
	e.uint(uint64(len(s.all)))
	for _, t := range s.all {
		e.target(&t.target)
		e.text(t.currency)
		e.uint(uint64(t.records))
		for _, a := range t.cost.amounts() {
			e.b = a.AppendBytes(e.b)
		}
		for _, ms := range t.cost.times() {
			e.int(*ms)
		}
	}
	if e.bad != "" {
		return nil, fmt.Errorf("%w: %q", ErrText, e.bad)
	}
	return e.b, nil
}

// sums calls yield with what the allocations of each target cost in a currency.
func (o Open) sums(yield func(*targetCost) error) (err error) {
	f, err := o()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	ends, err := endsOf(f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(ends.sums, io.SeekStart); err != nil {
		return err
	}
	r := &decoder{r: io.LimitReader(f, ends.summary-ends.sums)}
	count := r.uint()
	for n := uint64(0); n < count && r.err == nil; n++ {
		var t targetCost
		if of := r.targetAt(); of != nil {
			t.target = *of
		}
		t.currency, t.records = r.text(), int(r.uint())
		for _, a := range t.cost.amounts() {
			*a = r.amount()
		}
		for _, ms := range t.cost.times() {
			*ms = r.int()
		}
		if t.records < 1 {
			r.fail("sum %d is of %d records", n+1, t.records)
		}
		if r.err != nil {
			break
		}
		if err := yield(&t); err != nil {
			return err
		}
	}
	if r.err == nil && (r.at < len(r.b) || r.ahead(1)) {
		r.fail("they go on after the last")
	}
	if r.err != nil {
		return fmt.Errorf("%w: its sums: %w", ErrCanonical, r.err)
	}
	return nil
}

// ends are where the parts of a canonical form begin that follow its records.
type ends struct{ index, sums, summary, sizes int64 }

func endsOf(f io.ReadSeeker) (at ends, err error) {
	var size [24]byte
	if at.sizes, err = f.Seek(-int64(len(size)), io.SeekEnd); err != nil {
		return at, fmt.Errorf("%w: it has no end", ErrCanonical)
	}
	if _, err := io.ReadFull(f, size[:]); err != nil {
		return at, err
	}
	begin := at.sizes
	for i, of := range [...]*int64{&at.summary, &at.sums, &at.index} { // from the end
		n := binary.BigEndian.Uint64(size[len(size)-8*(i+1):])
		if n > uint64(begin) {
			return at, fmt.Errorf("%w: its parts are of %x bytes, and it has %d", ErrCanonical, size, at.sizes)
		}
		begin -= int64(n)
		*of = begin
	}
	return at, nil
}

// sum is each for a query that the sums of a kept month answer: add is called with what allocations have in common and
// with what they cost. It reports false if the query needs the allocations.
func (d *Division) sum(q *Query, add func(*part, *Cost, int) error) (bool, error) {
	if d.scoped || d.canonical == nil || d.rates != nil || q.Largest > 0 || !ofTargets(q) {
		return false, nil
	}
	return true, d.canonical.sums(func(t *targetCost) error {
		p := &part{month: d.Month.From, allocation: &attribution.Allocation{Line: &attribution.Line{Currency: t.currency}}}
		t.target.set(p)
		return add(p, &t.cost, t.records)
	})
}

// ofTargets reports whether a query is about what allocations of one target have in common.
func ofTargets(q *Query) bool {
	return byTargets(q.By) && !slices.ContainsFunc(q.Where, func(c dimension.Condition) bool { return !targetDimensions[c.Dimension] })
}

// byTargets reports whether allocations of one target have one value in each of the dimensions.
func byTargets(by []Dimension) bool {
	return !slices.ContainsFunc(by, func(d Dimension) bool { return !targetDimensions[d] })
}

// ErrSums means that the sums of a kept month are not those of its allocations: a program that wrote it was wrong, or not
// ours.
var ErrSums = errors.New("its sums are not those of its allocations")

// CheckSums adds up the allocations of a kept month, and compares them with its sums. It returns [ErrSums] if they differ,
// and [ErrCanonical] if its index is not that of its lines.
func (d *Division) CheckSums() error {
	if d.canonical == nil {
		return nil
	}
	if err := d.canonical.checkBlocks(d.Month.From); err != nil {
		return err
	}
	left := map[costOf]*targetCost{} // of the records, without what the sums state
	at := func(t target, currency string) *targetCost {
		k := costOf{t, currency}
		if left[k] == nil {
			left[k] = &targetCost{}
		}
		return left[k]
	}
	if err := d.canonical.each(d.Month.From, func(p *part) error {
		t := at(p.target(), p.allocation.Line.Currency)
		t.cost.add(p)
		t.records++
		return nil
	}); err != nil {
		return err
	}
	if err := d.canonical.sums(func(s *targetCost) error {
		t := at(s.target, s.currency)
		amounts, times := t.cost.amounts(), t.cost.times()
		for i, a := range s.cost.amounts() {
			*amounts[i] = amounts[i].Sub(*a)
		}
		for i, ms := range s.cost.times() {
			*times[i] -= *ms
		}
		t.records -= s.records
		return nil
	}); err != nil {
		return err
	}
	for k, t := range left {
		if t.cost != (Cost{}) || t.records != 0 {
			return fmt.Errorf("%w: what %s is charged for %s in %s is off by %s billed, %s effective and %d allocations",
				ErrSums, k.target.workspace, k.target.component, k.currency, t.cost.Billed, t.cost.Effective, t.records)
		}
	}
	return nil
}
