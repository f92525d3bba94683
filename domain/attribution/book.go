package attribution

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// The book holds every line while usage is read. A line takes about 140 bytes plus its id, because
// repeated texts are stored as numbers, and what lines have in common is stored once.

// name is the number of a text in the book's table; 0 is "". After [book.seal], names compare as
// their texts do.
type name uint32

// record is one line of the book.
type record struct {
	*common
	id                string
	charge            domain.Interval
	billed, effective Amount
	recoverable       Amount // tax, of billed; effective is without it
	nodeMs, gpuMs     int64  // as stated
	number            uint32 // see [Line.Number]

	// Results of matching.
	match          int32 // index into matches, for a line divided by use
	follow         int32 // index into tallies, for a line that follows others
	reconciliation int32 // index into reconciliations
	bought         int64 // GPU time; see [run.buyTime]
	sold           Meter // its meter, or Alone if that counts
	buyer          bool  // may buy machine time; see [record.mayBuy]
	stance         stance
	basis          basis
	method         MatchMethod
	how            how
}

// common is what lines have in common: the hourly lines of a machine differ in what is in their record alone. It is shared
// and MUST NOT be changed once the book is read.
type common struct {
	issuer, account, invoice, detail, currency             name
	category, reason, resource, region, sku, commit, fixes name
	badQuantity, meterReason, product, to, toRule, taxRule name
	billing                                                domain.Interval
	class                                                  Class
	meter, alone                                           Meter
	unused, recurring, generated                           bool
}

// basis is the rule by which a line is divided.
type basis uint8

const (
	byUse     basis = iota + 1 // among the users of what it matched
	byOwner                    // among the owners of a commitment
	byCovered                  // like the lines that the commitment covered
	byPrepaid                  // held until it is consumed over the term
	byOthers                   // like the charges that it belongs to
	byNobody
	byRule // to whom a rule says, or among them
)

type book struct {
	tax     map[string]Amount // of rules for tax: what is recoverable
	ids     map[string]name
	texts   []string
	records []record
	shared  [][]common         // in blocks, so that none is ever moved
	known   map[common]*common // some of them, while lines are read
}

const (
	commonBlock = 256
	// mostKnown bounds what is looked up, so that lines that have nothing in common take little more.
	mostKnown = 1 << 16
)

// commonOf returns what is equal to c and shared.
func (b *book) commonOf(c *common) *common {
	if known := b.known[*c]; known != nil {
		return known
	}
	if len(b.known) == mostKnown {
		clear(b.known)
	}
	if n := len(b.shared); n == 0 || len(b.shared[n-1]) == commonBlock {
		b.shared = append(b.shared, make([]common, 0, commonBlock))
	}
	last := &b.shared[len(b.shared)-1]
	*last = append(*last, *c)
	known := &(*last)[len(*last)-1]
	b.known[*c] = known
	return known
}

func (b *book) name(s string) name {
	if n, ok := b.ids[s]; ok {
		return n
	}
	s = strings.Clone(s) // the line's buffer may be large, and is reused
	n := name(len(b.texts))
	b.ids[s] = n
	b.texts = append(b.texts, s)
	return n
}

// readBook reads all lines. Of different lines with the same id, the first by content counts and
// the others are exceptions.
func readBook(in *Input, ex *exceptions) (*book, error) {
	tax, err := taxRules(in.Rules)
	if err != nil {
		return nil, err
	}
	b := &book{tax: tax, ids: map[string]name{"": 0}, texts: []string{""}, known: map[common]*common{}}
	if in.Lines == nil {
		return b, nil
	}
	b.records = make([]record, 0, in.About)
	// If the total of all magnitudes fits, so does every sum over lines and allocations.
	var total Amount
	err = in.Lines(func(l *Line) error {
		if l.Class < Committed || l.Class > Rounding {
			return fmt.Errorf("line %q of account %q: class %d is unknown", l.ID, l.Account, l.Class)
		}
		if l.Currency == "" {
			return fmt.Errorf("line %q of account %q: has no currency", l.ID, l.Account)
		}
		for _, a := range []Amount{l.Billed, l.Effective} {
			var ok bool
			if a.hi == math.MinInt64 {
				return errTooMuch
			}
			if total, ok = total.TryAdd(a.Abs()); !ok {
				return errTooMuch
			}
		}
		r := b.record(l)
		if err := b.reclaim(&r, l); err != nil {
			return err
		}
		b.records = append(b.records, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.known = nil
	b.seal()
	b.dedupe(ex)
	return b, nil
}

var errTooMuch = errors.New("the magnitudes of the lines' amounts add up to more than 1.7e20")

func (b *book) record(l *Line) record {
	return record{
		common: b.commonOf(&common{
			issuer: b.name(l.Issuer), account: b.name(l.Account), invoice: b.name(l.Invoice),
			detail: b.name(l.Detail), currency: b.name(l.Currency),
			category: b.name(l.Category), reason: b.name(l.ClassReason),
			resource: b.name(l.Resource), region: b.name(l.Region), sku: b.name(l.SKU),
			commit: b.name(l.Commitment), fixes: b.name(l.Corrects), badQuantity: b.name(l.UnusableQuantity),
			meterReason: b.name(l.MeterReason), product: b.name(l.Product), to: b.name(l.To), toRule: b.name(l.ToRule),
			taxRule: b.name(l.TaxRule),
			billing: l.BillingPeriod, class: l.Class, meter: l.Meter.orStated(l), alone: l.Alone,
			unused: l.Unused, recurring: l.Recurring, generated: l.Generated,
		}),
		id: strings.Clone(l.ID), charge: l.ChargePeriod,
		billed: l.Billed, effective: l.Effective, nodeMs: l.NodeMs, gpuMs: l.GPUMs, number: l.Number,
		match: -1, follow: -1,
	}
}

// line restores the Line of a record.
func (b *book) line(r *record, l *Line) {
	*l = Line{
		Issuer: b.texts[r.issuer], Account: b.texts[r.account], ID: r.id,
		Invoice: b.texts[r.invoice], Detail: b.texts[r.detail], Currency: b.texts[r.currency],
		BillingPeriod: r.billing, ChargePeriod: r.charge,
		Class: r.class, ClassReason: b.texts[r.reason], Category: b.texts[r.category],
		Meter: r.meter, Alone: r.alone, MeterReason: b.texts[r.meterReason], Product: b.texts[r.product],
		Resource: b.texts[r.resource], Region: b.texts[r.region], SKU: b.texts[r.sku],
		Commitment: b.texts[r.commit], Unused: r.unused, Recurring: r.recurring,
		Billed: r.billed, Effective: r.effective, NodeMs: r.nodeMs, GPUMs: r.gpuMs, UnusableQuantity: b.texts[r.badQuantity],
		To: b.texts[r.to], ToRule: b.texts[r.toRule], TaxRule: b.texts[r.taxRule], Corrects: b.texts[r.fixes], Generated: r.generated, Number: r.number,
	}
}

// seal renumbers the names in the order of their texts, so that numbers compare as texts do and the
// order of input lines has no effect.
func (b *book) seal() {
	old := b.texts
	b.texts = slices.Sorted(slices.Values(old))
	renamed := make([]name, len(old))
	for i, s := range b.texts {
		renamed[b.ids[s]] = name(i)
	}
	for i, s := range b.texts {
		b.ids[s] = name(i)
	}
	for _, block := range b.shared {
		for i := range block {
			for _, n := range block[i].names() {
				*n = renamed[*n]
			}
		}
	}
}

func (c *common) names() [18]*name {
	return [...]*name{
		&c.issuer, &c.account, &c.invoice, &c.detail, &c.currency,
		&c.category, &c.reason, &c.resource, &c.region, &c.sku,
		&c.commit, &c.fixes, &c.badQuantity, &c.meterReason, &c.product, &c.to, &c.toRule, &c.taxRule,
	}
}

// byID is the order of lines in every report.
func byID(a, b *record) int {
	return cmp.Or(cmp.Compare(a.issuer, b.issuer), cmp.Compare(a.account, b.account), strings.Compare(a.id, b.id))
}

// byContent orders by everything but the id.
func byContent(a, b *record) int {
	if a.common != b.common {
		x, y := a.names(), b.names()
		for i := range x {
			if c := cmp.Compare(*x[i], *y[i]); c != 0 {
				return c
			}
		}
	}
	return cmp.Or(
		byPeriod(a.charge, b.charge), byPeriod(a.billing, b.billing),
		a.billed.Cmp(b.billed), a.effective.Cmp(b.effective),
		cmp.Compare(a.nodeMs, b.nodeMs), cmp.Compare(a.gpuMs, b.gpuMs),
		cmp.Compare(a.class, b.class), cmp.Compare(a.meter, b.meter), cmp.Compare(a.alone, b.alone),
		compareBool(a.unused, b.unused), compareBool(a.recurring, b.recurring), compareBool(a.generated, b.generated))
}

func byPeriod(a, b domain.Interval) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// dedupe sorts the records and keeps one for each id.
func (b *book) dedupe(ex *exceptions) {
	slices.SortFunc(b.records, func(x, y record) int { return cmp.Or(byID(&x, &y), byContent(&x, &y)) })
	kept := b.records[:0]
	for i := range b.records {
		r := &b.records[i]
		if n := len(kept); n > 0 && byID(&kept[n-1], r) == 0 {
			// Records of one id are adjacent, and equal ones are next to each other.
			if byContent(&b.records[i-1], r) != 0 {
				subject := b.texts[r.issuer] + "/" + b.texts[r.account] + "/" + r.id
				ex.money(LineConflict, subject, "another line has this id: this one is not counted", b, r)
			}
			continue
		}
		kept = append(kept, *r)
	}
	clear(b.records[len(kept):])
	b.records = kept
}

// lookalikes reports lines that differ only in their id.
func (b *book) lookalikes(ex *exceptions) {
	order := make([]int32, len(b.records))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int {
		return cmp.Or(byContent(&b.records[x], &b.records[y]), cmp.Compare(x, y))
	})
	for i := 1; i < len(order); i++ {
		first, r := &b.records[order[i-1]], &b.records[order[i]]
		if byContent(first, r) == 0 && !(r.billed.IsZero() && r.effective.IsZero()) {
			ex.money(DuplicateLooking, b.subject(r), "differs from another line only in its id; both are counted", b, r)
		}
	}
}

// subject names what a line is for.
func (b *book) subject(r *record) string {
	parts := []string{b.texts[r.account]}
	if r.resource != 0 {
		parts = append(parts, b.texts[r.resource])
	} else {
		for _, n := range []name{r.region, r.sku} {
			if n != 0 {
				parts = append(parts, b.texts[n])
			}
		}
	}
	if len(parts) == 1 && r.category != 0 {
		parts = append(parts, b.texts[r.category])
	}
	return strings.Join(parts, "/")
}
