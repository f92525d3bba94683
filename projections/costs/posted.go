package costs

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// postedRow is what a posting has besides the difference of its costs: the line as it was last stated, what the
// allocation is for, and the differences of everything else that adds up. An export has all of it, and so has the form
// in which postings of a closed period are kept, because the line may be stated otherwise later.
type postedRow struct {
	line   *attribution.Line
	texts  *[chargeTexts]string
	target *target
	method string // version that divided the line last
	hour   domain.Instant
	// Differences: of the allocation's share of the line, and of bought, allocated, useful and measured GPU time.
	share attribution.Amount
	ms    [4]int64
	// numbers of the line: differences of what is divided, and prices as they are.
	numbers [chargeNumbers]string
	moved   []movedCost // differences of units on machines, which add up to those above
}

// part returns a posting as if it were an allocation.
func (p *Posting) part() (*part, error) {
	r := p.row
	if r == nil {
		return nil, fmt.Errorf("the posting of %s has no line", p.Allocation)
	}
	month, err := projections.ParseMonth(p.Period)
	if err != nil {
		return nil, fmt.Errorf("a posting about %q: %w", p.Period, err)
	}
	t := r.target
	var prices priced
	for i, to := range []struct {
		amount *attribution.Amount
		has    *bool
	}{{&prices.list, &prices.hasList}, {&prices.contracted, &prices.hasContracted}} {
		text := r.numbers[i]
		if text == "" {
			continue
		}
		stated, err := decimal.NewFromString(text)
		if err == nil {
			*to.amount, err = attribution.AmountOf(stated)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of the posting of %s: %w", chargeNumber[i].name, p.Allocation, err)
		}
		*to.has = true
	}
	at := &part{
		month: month.From, keptCharge: &Charge{r.texts, r.numbers}, priced: prices, moved: r.moved,
		allocation: &attribution.Allocation{
			Line: r.line, Hour: r.hour,
			Billed: p.Billed, Effective: p.Effective, Weight: r.share, Of: attribution.Whole(1),
			BoughtMs: r.ms[0], AllocatedMs: r.ms[1], UsefulMs: r.ms[2], MeasuredMs: r.ms[3],
		},
	}
	t.set(at)
	return at, nil
}

// costDelta is a difference in both ledgers.
type costDelta struct{ billed, effective attribution.Amount }

// delta is the difference of one allocation.
type delta struct {
	costDelta
	before, after shareOf
	row           postedRow // as last stated, with the differences so far
	sums          [chargeNumbers]domain.Decimal
	stated        [chargeNumbers]bool // by any side
	held          map[[2]string]*figures
}

// targets are those of the allocations of a difference: most have one in common with others.
type targets map[target]*target

func (t targets) of(p *part) *target {
	want := p.target()
	known := t[want]
	if known == nil {
		known = &want
		t[want] = known
	}
	return known
}

// describe takes what an allocation is for.
func (d *delta) describe(l *attribution.Line, c *Charge, to *target, hour domain.Instant, method string) {
	d.row.line, d.row.texts, d.row.target, d.row.hour, d.row.method = l, c.texts, to, hour, method
	for i := range chargeNumber {
		if !chargeNumber[i].divided {
			d.row.numbers[i] = c.numbers[i]
		}
	}
}

// take adds an allocation's figures, or subtracts them.
func (d *delta) take(subtract bool, l *attribution.Allocation, share attribution.Amount, numbers *[chargeNumbers]string) error {
	billed, effective, ms := l.Billed, l.Effective, [...]int64{l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs}
	if subtract {
		billed, effective, share = billed.Neg(), effective.Neg(), share.Neg()
		for i := range ms {
			ms[i] = -ms[i]
		}
	}
	d.billed, d.effective, d.row.share = d.billed.Add(billed), d.effective.Add(effective), d.row.share.Add(share)
	for i := range ms {
		d.row.ms[i] += ms[i]
	}
	for i := range chargeNumber {
		if !chargeNumber[i].divided || numbers[i] == "" {
			continue
		}
		n, err := decimal.NewFromString(numbers[i])
		if err != nil {
			return fmt.Errorf("%s of %s: %w", chargeNumber[i].name, l.Ref(), err)
		}
		if subtract {
			n = n.Neg()
		}
		d.sums[i], d.stated[i] = d.sums[i].Add(n), true
	}
	return nil
}

// takeHeld adds what each unit has on each machine, or subtracts it.
func (d *delta) takeHeld(subtract bool, p *part) {
	if d.held == nil {
		d.held = map[[2]string]*figures{}
	}
	_ = p.divide(func(p *part) error {
		pair := [2]string{p.unit(), p.node()}
		f := d.held[pair]
		if f == nil {
			f = &figures{}
			d.held[pair] = f
		}
		l := p.allocation
		to := func(at *attribution.Amount, a attribution.Amount) {
			if subtract {
				a = a.Neg()
			}
			*at = at.Add(a)
		}
		to(&f.billed, l.Billed)
		to(&f.effective, l.Effective)
		to(&f.list, p.priced.list)
		to(&f.contracted, p.priced.contracted)
		for i, ms := range [...]int64{l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs} {
			if subtract {
				ms = -ms
			}
			f.ms[i] += ms
		}
		return nil
	})
}

// posted returns what the posting has besides its costs.
func (d *delta) posted() *postedRow {
	r := d.row
	r.moved = nil
	for pair, f := range d.held {
		if *f != (figures{}) {
			r.moved = append(r.moved, movedCost{pair[0], pair[1], *f})
		}
	}
	slices.SortFunc(r.moved, func(a, b movedCost) int { return a.compare(&b) })
	for i := range d.sums {
		if d.stated[i] {
			r.numbers[i] = d.sums[i].String()
		}
	}
	return &r
}

// PostingRates translate postings: with the rates of the month whose books have them, or if these lack one, with those of
// the month that they are about.
type PostingRates struct {
	rates      *Rates
	earlier    func(month string) (*Rates, error)
	months     map[string]*Rates
	problems   map[string]bool
	translator translator

	// last is what was found for line in month: the postings of a line follow each other.
	line  *attribution.Line
	month string
	last  *Rates
}

// NewPostingRates returns rates for postings; nil for the currencies that were billed, if rates is nil. earlier returns the
// rates of a closed month, such as 2026-05, nil for none.
func NewPostingRates(rates *Rates, earlier func(month string) (*Rates, error)) *PostingRates {
	if rates == nil {
		return nil
	}
	return &PostingRates{rates: rates, earlier: earlier, months: map[string]*Rates{}, problems: map[string]bool{}}
}

// of returns the rates for a line of a month.
func (r *PostingRates) of(month string, l *attribution.Line) (*Rates, error) {
	if l == r.line && month == r.month {
		return r.last, nil
	}
	last, err := r.find(month, l)
	r.line, r.month, r.last = l, month, last
	return last, err
}

func (r *PostingRates) find(month string, l *attribution.Line) (*Rates, error) {
	known := func(r *Rates) bool {
		return !slices.ContainsFunc(r.all(), func(of *Rates) bool { return of.of(l).problem != "" })
	}
	if known(r.rates) {
		return r.rates, nil
	}
	of, ok := r.months[month]
	if !ok {
		var err error
		if of, err = r.earlier(month); err != nil {
			return nil, err
		}
		r.months[month] = of
	}
	if of == nil || !known(of) {
		return r.rates, nil
	}
	return of, nil
}

// in translates a posting; nil, with the problem noted, if a rate is missing.
func (r *PostingRates) in(month string, p *part) (*part, error) {
	rates, err := r.of(month, p.allocation.Line)
	if err != nil {
		return nil, err
	}
	rates = rates.ofEntity(p.ownership().entity)
	in, err := r.translator.to(rates, p)
	if in == nil && err == nil {
		r.problems[rates.of(p.allocation.Line).problem] = true
	}
	return in, err
}

// missing returns an error of [RatesError] if rates were missing.
func (r *PostingRates) missing() error {
	if r == nil {
		return nil
	}
	return r.rates.lacking(r.problems)
}

// PostingsIn returns postings in the currency of the books.
func PostingsIn(posted []Posting, rates *PostingRates) ([]Posting, error) {
	out := make([]Posting, 0, len(posted))
	for i := range posted {
		p, err := posted[i].part()
		if err != nil {
			return nil, err
		}
		if p, err = rates.in(posted[i].Period, p); err != nil {
			return nil, err
		}
		if p == nil {
			continue // missing says why
		}
		in := posted[i]
		in.Currency, in.Billed, in.Effective = p.allocation.Line.Currency, p.allocation.Billed, p.allocation.Effective
		out = append(out, in)
	}
	return out, rates.missing()
}

// ExportPostings calls yield with a row for every posting that the filter selects, in their order, until yield returns
// an error. A row is that of the allocation, as [Division.Export] writes it, with the difference in everything that adds
// up, and is reused. With rates, which may be nil, it has the amounts in the currency of the books too. It returns what
// the rows add up to, by currency.
func ExportPostings(posted []Posting, filter AllocationFilter, rates *PostingRates, yield func(row []string) error) ([]ControlTotal, error) {
	picker, err := dimensions.Picker(filter.Where)
	if err != nil {
		return nil, fmt.Errorf("postings where %v: %w", filter.Where, err)
	}
	sum := totals{}
	e := newExporter()
	divided := byHolder(nil, filter.Where)
	var some, inBooks selection
	for i := range posted {
		p, err := posted[i].part()
		if err != nil {
			return nil, err
		}
		if !filter.accepts(p.allocation) || !divided && !picker.Picks(p) {
			continue
		}
		whole := p
		if divided {
			if some.selecting(p, picker.Picks); !some.some {
				continue
			}
			p = &some.part
		}
		if rates != nil {
			e.inBooks = nil
			in, err := rates.in(posted[i].Period, whole)
			if err != nil {
				return nil, err
			}
			if in != nil {
				e.inBooks = in.allocation
				if divided {
					inBooks.selecting(in, picker.Picks)
					e.inBooks = &inBooks.l
				}
			}
		}
		sum.add(ControlTotal{p.allocation.Line.Currency, 1, p.allocation.Billed, p.allocation.Effective})
		e.posting(&posted[i], whole)
		if divided {
			e.selected(whole, &some)
		}
		if err := yield(e.fill(p, true)); err != nil {
			return nil, err
		}
	}
	return sum.sorted(), rates.missing()
}

// ExportPostedGroups calls yield with a row for every group of postings, by the month that they are about, type and the
// dimensions of a query, which has a cell for each of [GroupColumns] and is reused. With rates, which may be nil, amounts are
// in the currency of the books. It returns what the rows add up to, by currency.
func ExportPostedGroups(posted []Posting, q *MonthsQuery, rates *PostingRates, yield func(row []string) error) ([]ControlTotal, error) {
	type of struct {
		period string
		typ    PostingType
	}
	groups, books := map[of]*sums{}, ""
	for i := range posted {
		p, err := posted[i].part()
		if err != nil {
			return nil, err
		}
		if rates != nil {
			if p, err = rates.in(posted[i].Period, p); err != nil {
				return nil, err
			}
			if p == nil {
				continue
			}
		}
		k := of{posted[i].Period, posted[i].Type}
		if books = posted[i].Books; groups[k] == nil {
			if groups[k], err = newSums(&Query{Workspace: q.Workspace, By: q.By, Where: q.Where}); err != nil {
				return nil, err
			}
		}
		groups[k].add(p)
	}
	if err := rates.missing(); err != nil {
		return nil, err
	}
	sum := totals{}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b of) int {
		return cmp.Or(strings.Compare(a.period, b.period), strings.Compare(string(a.typ), string(b.typ)))
	})
	for _, k := range keys {
		var err error
		groups[k].each(func(_ *costKey, g Group) {
			if err != nil {
				return
			}
			sum.add(ControlTotal{g.Currency, 1, g.Billed, g.Effective})
			err = yield(groupRow(nil, k.period, books, string(k.typ), q.By, &MonthsGroup{Key: g.Key, MonthsCost: MonthsCost{Cost: g.Cost}}, q.Compare))
		})
		if err != nil {
			return nil, err
		}
	}
	return sum.sorted(), nil
}

// PostingsFormat is the version of the form in which postings into a closed period are kept: this line, and a
// line of JSON for each posting, by period and allocation. It ends with the rest of the row that an export has, in the
// form of a record of [CanonicalFormat].
const PostingsFormat = "quartermaster.postings/5"

// keptPosting is a posting as it is kept.
type keptPosting struct {
	Posting
	Method string      `json:"method"`
	Row    []byte      `json:"row"`
	Held   []keptMoved `json:"held"`
}

// keptMoved is what a posting changes of a unit on a machine.
type keptMoved struct {
	Unit       string             `json:"unit"`
	Node       string             `json:"node"`
	Billed     attribution.Amount `json:"billed"`
	Effective  attribution.Amount `json:"effective"`
	List       attribution.Amount `json:"list"`
	Contracted attribution.Amount `json:"contracted"`
	GPUMs      [4]int64           `json:"gpu_ms"` // bought, allocated, useful, measured
}

func keptHeld(all []movedCost) []keptMoved {
	kept := make([]keptMoved, len(all))
	for i := range all {
		m := &all[i]
		kept[i] = keptMoved{m.unit, m.node, m.billed, m.effective, m.list, m.contracted, m.ms}
	}
	return kept
}

// WritePostings writes postings.
func WritePostings(w io.Writer, all []Posting) error {
	b := bufio.NewWriter(w)
	if _, err := b.WriteString(PostingsFormat + "\n"); err != nil {
		return err
	}
	enc := json.NewEncoder(b)
	var row bytes.Buffer
	rows := newEncoder(&row)
	same := map[[chargeTexts]string]*[chargeTexts]string{} // the texts of lines, which may come from several months
	for i := range all {
		p, err := all[i].part()
		if err != nil {
			return err
		}
		if texts := same[*p.keptCharge.texts]; texts != nil {
			p.keptCharge.texts = texts
		} else {
			same[*p.keptCharge.texts] = p.keptCharge.texts
		}
		row.Reset()
		rows.line = attribution.Line{} // each has a charge, with its own numbers
		if err := errors.Join(rows.allocation(p), rows.w.Flush()); err != nil {
			return err
		}
		if err := enc.Encode(&keptPosting{all[i], all[i].row.method, row.Bytes(), keptHeld(all[i].row.moved)}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// ReadPostings reads what [WritePostings] wrote. It returns an error of [ErrCanonical] for anything else.
func ReadPostings(text []byte) ([]Posting, error) {
	rest, ok := bytes.CutPrefix(text, []byte(PostingsFormat+"\n"))
	if !ok {
		return nil, fmt.Errorf("%w: postings that begin with %.40q", ErrCanonical, text)
	}
	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	r := &decoder{ended: io.EOF}
	to := targets{}
	all := []Posting{}
	for {
		var k keptPosting
		err := dec.Decode(&k)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			err = k.read(r, to)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: posting %d: %w", ErrCanonical, len(all)+1, err)
		}
		all = append(all, k.Posting)
	}
}

// read reads the row of a posting.
func (k *keptPosting) read(r *decoder, to targets) error {
	r.b, r.at = k.Row, 0
	p := part{allocation: &attribution.Allocation{}}
	more := r.next(&p)
	l := p.allocation
	switch {
	case r.err != nil:
		return r.err
	case !more || r.at < len(r.b):
		return errors.New("its row is not one record")
	case l.Ref() != k.Allocation || l.Line.Currency != k.Currency || l.Line.Invoice != k.Invoice ||
		l.Billed != k.Billed || l.Effective != k.Effective:
		return fmt.Errorf("its row is of %s", l.Ref())
	}
	line := *l.Line
	var moved []movedCost
	var sum figures
	for i := range k.Held {
		m := &k.Held[i]
		moved = append(moved, movedCost{m.Unit, m.Node, figures{m.Billed, m.Effective, m.List, m.Contracted, m.GPUMs}})
		var billed, effective bool
		sum.billed, billed = sum.billed.TryAdd(m.Billed)
		sum.effective, effective = sum.effective.TryAdd(m.Effective)
		if !billed || !effective {
			return errors.New("its units on machines add up to too much")
		}
	}
	if len(moved) == 0 || sum.billed != l.Billed || sum.effective != l.Effective {
		return fmt.Errorf("its units on machines have %s billed and %s effective of %s and %s", sum.billed, sum.effective, l.Billed, l.Effective)
	}
	k.row = &postedRow{
		line: &line, texts: p.keptCharge.texts, target: to.of(&p), method: k.Method, hour: l.Hour, share: l.Weight,
		ms: [4]int64{l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs}, numbers: p.keptCharge.numbers, moved: moved,
	}
	return nil
}
