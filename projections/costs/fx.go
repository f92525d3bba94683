package costs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Rates translate a month into the currency of the books. Amounts are divided in the currency that they were billed
// in, and translated last. Expense has the average rate of its month. What was paid at once for a term has the rate
// of the day of its payment until it is consumed, so that the prepaid balance ends at zero in the books as well. A
// missing or contradictory rate is an error that names it; no rate is guessed, and none is chained over a third
// currency.
type Rates struct {
	Currency string // of the books
	month    domain.Interval
	stated   []domain.FXRateSet   // valid decisions; of one pair, kind and time the last
	prepaid  map[string][]prepaid // by commitment and billing currency, of each term, by time; none of a term is paid at once: none
	frozen   bool                 // all rates are known
	closing  map[string]*bookRate // of frozen rates, those for balances, by currency
	known    map[rateKey]*bookRate
}

// rateKey is what a rate is for. Without a commitment it is everything of a currency.
type rateKey struct {
	base, commitment string
	term             domain.Instant    // when the term of the commitment begins
	kind             domain.FXRateKind // payment: for what was paid at once; average: for what is expense now
}

func (k *rateKey) compare(o *rateKey) int {
	return cmp.Or(strings.Compare(k.base, o.base), strings.Compare(k.commitment, o.commitment), cmp.Compare(k.term, o.term),
		cmp.Compare(k.kind, o.kind))
}

type bookRate struct {
	domain.BooksRate
	rate    attribution.Rate
	problem string // why there is no rate
}

// prepaid says how much of the price of a commitment's term was paid at once, when the term began.
type prepaid struct {
	at           domain.Instant
	upfront, all domain.Decimal
}

// Translation returns the rates that were needed so far; nil without rates.
func (r *Rates) Translation() *Translation {
	if r == nil {
		return nil
	}
	return &Translation{Currency: r.Currency, Frozen: r.frozen, Rates: r.Used()}
}

// Translation says how amounts were translated to the currency of the books.
type Translation struct {
	Currency string             `json:"currency"`
	Frozen   bool               `json:"frozen"` // the rates are those that the month was closed with
	Rates    []domain.BooksRate `json:"rates"`  // by currency and commitment
}

// RatesError lists the rates that a translation lacks.
type RatesError struct {
	Currency string
	Month    domain.Interval
	Problems []string
}

// Error names them all.
func (e *RatesError) Error() string {
	return fmt.Sprintf("%s cannot be translated to %s: %s", monthText(e.Month), e.Currency, strings.Join(e.Problems, "; "))
}

// ErrNoBooksCurrency is returned if no policy says which currency the books are kept in.
var ErrNoBooksCurrency = errors.New("no policy of kind books_currency says which currency the books are kept in")

// ReadRates reads the rates that translate an open month. It returns [ErrNoBooksCurrency] if the books have no
// currency when the month begins.
func ReadRates(view projections.View, month domain.Interval) (*Rates, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	r := &Rates{month: month, prepaid: map[string][]prepaid{}, known: map[rateKey]*bookRate{}}
	if r.Currency, err = booksCurrency(view, a, month.From); err != nil {
		return nil, err
	}
	if r.Currency == "" {
		return nil, ErrNoBooksCurrency
	}
	if err := r.readStated(view, a); err != nil {
		return nil, err
	}
	contracts, err := declaredCommitments(view, month)
	if err != nil {
		return nil, err
	}
	for id, c := range contracts {
		r.pay(id, c.prices)
	}
	return r, nil
}

// pay notes the prices of a commitment's terms, if one of them is paid at once.
func (r *Rates) pay(commitment string, prices []termPrice) {
	paid := map[string]map[domain.Instant]prepaid{} // by currency; of a term that is stated twice the last
	atOnce := map[string]bool{}
	for _, p := range prices {
		hours := decimal.NewFromInt(int64(p.term.To - p.term.From)).Div(decimal.NewFromInt(int64(domain.Hour)))
		hourly := p.hourly.Amount.Mul(decimal.NewFromInt(int64(p.units))).Mul(hours) // in the same currency, as is validated
		of := p.upfront.Currency
		if paid[of] == nil {
			paid[of] = map[domain.Instant]prepaid{}
		}
		paid[of][p.term.From] = prepaid{p.term.From, p.upfront.Amount, p.upfront.Amount.Add(hourly)}
		atOnce[of] = atOnce[of] || p.upfront.Amount.Sign() > 0
	}
	for currency, terms := range paid {
		if atOnce[currency] {
			for _, from := range slices.Sorted(maps.Keys(terms)) {
				r.prepaid[commitment+"\x00"+currency] = append(r.prepaid[commitment+"\x00"+currency], terms[from])
			}
		}
	}
}

// booksCurrency returns the currency that the root workspace's policy states at a time, "" for none.
func booksCurrency(view projections.View, a *registry.Authority, at domain.Instant) (currency string, err error) {
	var latest *projections.Version
	err = view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil || k.Scope != a.Root() {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		ended := p.EffectiveTo != 0 && p.EffectiveTo <= at
		if p.Kind != domain.PolicyBooksCurrency || ended || latest != nil && latest.Order.After(v.Order) {
			return nil
		}
		kept := *v
		latest, currency = &kept, strings.Clone(p.Value)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read policies: %w", err)
	}
	return currency, nil
}

// readStated reads the rates between the currency of the books and others. Of several of one pair and kind that begin at
// once, the last one counts, so that a rate with a wrong end can be stated again.
func (r *Rates) readStated(view projections.View, a *registry.Authority) error {
	type name struct {
		base, quote string
		kind        domain.FXRateKind
		from        domain.Instant
	}
	last := map[name]projections.Version{}
	err := view.Scan(projections.Query{Table: projections.TableFXRates}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			ev := h.Versions[i].Event.(*domain.FXRateSet)
			if ev.Base != r.Currency && ev.Quote != r.Currency || a.Judge(k, h, i) != "" {
				continue
			}
			n := name{ev.Base, ev.Quote, ev.Kind, ev.Effective.From}
			if before, twice := last[n]; !twice || h.Versions[i].Order.After(before.Order) {
				last[n] = h.Versions[i]
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableFXRates, err)
	}
	for _, v := range last {
		r.stated = append(r.stated, *v.Event.(*domain.FXRateSet))
	}
	slices.SortFunc(r.stated, func(x, y domain.FXRateSet) int {
		return cmp.Or(strings.Compare(x.Base, y.Base), strings.Compare(x.Quote, y.Quote), strings.Compare(string(x.Kind), string(y.Kind)),
			cmp.Compare(x.Effective.From, y.Effective.From), cmp.Compare(x.Effective.To, y.Effective.To))
	})
	return nil
}

// FrozenRates returns the rates that a month was closed with. They do not change any more. It returns
// [ErrNoBooksCurrency] if the month was closed without a translation.
func FrozenRates(p *domain.ClosePrepared) (*Rates, error) {
	if len(p.Translated) == 0 {
		return nil, ErrNoBooksCurrency
	}
	r := &Rates{Currency: p.Translated[0].Currency, month: p.Period, frozen: true, known: map[rateKey]*bookRate{}, closing: map[string]*bookRate{}}
	for i := range p.Rates {
		b := &bookRate{BooksRate: p.Rates[i]}
		var err error
		if b.rate, err = attribution.RateOf(b.Rate); err != nil {
			return nil, fmt.Errorf("the rate of %s that %s was closed with: %w", b.Base, monthText(p.Period), err)
		}
		if b.Kind == domain.FXClosing {
			r.closing[b.Base] = b
			continue
		}
		r.known[rateKey{b.Base, b.Commitment, b.TermFrom, b.Kind}] = b
	}
	return r, nil
}

// Used returns the rates that were needed so far, by currency and commitment, without that of the books.
func (r *Rates) Used() []domain.BooksRate {
	out := []domain.BooksRate{}
	for _, k := range r.keys() {
		if b := r.known[k]; b.problem == "" && k.base != r.Currency {
			out = append(out, b.BooksRate)
		}
	}
	return out
}

// missing returns an error that lists the rates that were needed so far and are not known; nil if there is none.
func (r *Rates) missing() error {
	if r == nil {
		return nil
	}
	var problems []string
	for _, k := range r.keys() {
		if b := r.known[k]; b.problem != "" && !slices.Contains(problems, b.problem) {
			problems = append(problems, b.problem)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &RatesError{r.Currency, r.month, problems}
}

func (r *Rates) keys() []rateKey {
	keys := make([]rateKey, 0, len(r.known))
	for k := range r.known {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b rateKey) int { return a.compare(&b) })
	return keys
}

// keyOf says which rate a line has.
func (r *Rates) keyOf(l *attribution.Line) rateKey {
	k := rateKey{base: l.Currency, kind: domain.FXAverage}
	purchase := l.Category == "Purchase"
	if l.Commitment == "" || purchase && l.Recurring { // it is paid every month
		return k
	}
	special := rateKey{base: l.Currency, commitment: l.Commitment, kind: domain.FXAverage}
	if purchase { // paid at once, whether anybody declared it or not
		special.kind = domain.FXPayment
	}
	terms := r.terms(special)
	switch {
	case len(terms) == 0 && !purchase:
		return k
	case len(terms) == 0:
	case purchase:
		special.term = slices.MinFunc(terms, func(a, b domain.Instant) int {
			return cmp.Or(cmp.Compare(apart(a, l.ChargePeriod.From), apart(b, l.ChargePeriod.From)), cmp.Compare(a, b))
		})
	default:
		special.term = terms[0]
		for _, from := range terms {
			if from <= l.ChargePeriod.From {
				special.term = from
			}
		}
	}
	return special
}

// terms returns when the terms of a commitment begin, by time, of which a line can be. A purchase is of the term that
// begins nearest to it, and usage of the last one that began until then. Of frozen rates the terms that had lines are
// known, and that is enough: each of these lines finds its own again.
func (r *Rates) terms(k rateKey) (from []domain.Instant) {
	for _, p := range r.prepaid[k.commitment+"\x00"+k.base] {
		if k.kind != domain.FXPayment || p.upfront.Sign() > 0 {
			from = append(from, p.at)
		}
	}
	if r.frozen {
		for known, b := range r.known {
			if known.base == k.base && known.commitment == k.commitment && known.kind == k.kind && b.problem == "" {
				from = append(from, known.term)
			}
		}
		slices.Sort(from)
	}
	return from
}

func apart(a, b domain.Instant) domain.Instant { return max(a-b, b-a) }

// of returns the rate of a line.
func (r *Rates) of(l *attribution.Line) *bookRate {
	k := r.keyOf(l)
	b := r.known[k]
	if b == nil {
		b = r.find(k)
		r.known[k] = b
	}
	return b
}

// find looks for a rate.
func (r *Rates) find(k rateKey) *bookRate {
	b := &bookRate{BooksRate: domain.BooksRate{Base: k.base, Commitment: k.commitment, TermFrom: k.term, Kind: k.kind}}
	var paid prepaid
	terms := r.prepaid[k.commitment+"\x00"+k.base]
	i := slices.IndexFunc(terms, func(p prepaid) bool { return p.at == k.term })
	if i >= 0 {
		paid = terms[i]
	}
	switch {
	case k.base == r.Currency:
		b.Rate = decimal.New(1, 0)
	case r.frozen && k.commitment != "":
		b.problem = fmt.Sprintf("it was closed without the %s rate of %s for commitment %s", k.kind, k.base, k.commitment)
	case r.frozen:
		b.problem = fmt.Sprintf("it was closed without a rate of %s", k.base)
	case k.commitment == "":
		b.Rate, b.Citation, b.problem = r.average(k.base)
	case i < 0:
		b.problem = fmt.Sprintf("when commitment %s was paid in %s is not known: declare it with its upfront payment and its term", k.commitment, k.base)
	case paid.upfront.Sign() <= 0: // a term that is paid as it goes, of a commitment with one that is not
		b.Rate, b.Citation, b.problem = r.average(k.base)
	case k.kind == domain.FXPayment:
		b.Rate, b.Citation, b.problem = r.payment(k, paid)
	default:
		b.Rate, b.Citation, b.problem = r.payment(k, paid)
		if b.problem == "" && !paid.upfront.Equal(paid.all) {
			average, citation, problem := r.average(k.base)
			rest := paid.all.Sub(paid.upfront)
			b.Rate = b.Rate.Mul(paid.upfront).Add(average.Mul(rest)).DivRound(paid.all, rateDigits)
			b.Citation, b.problem = fmt.Sprintf("%s of %s at %s; the rest at %s", paid.upfront, paid.all, b.Citation, citation), problem
		}
	}
	if b.problem == "" {
		var err error
		if b.rate, err = attribution.RateOf(b.Rate); err != nil {
			b.problem = fmt.Sprintf("the rate of %s: %v", k.base, err)
		}
	}
	return b
}

// rateDigits are the digits after the point of a rate.
const rateDigits = 18

func (r *Rates) average(base string) (rate domain.Decimal, citation, problem string) {
	return r.one(base, domain.FXAverage, r.month, "for all of "+monthText(r.month))
}

func (r *Rates) payment(k rateKey, p prepaid) (rate domain.Decimal, citation, problem string) {
	rate, citation, problem = r.one(k.base, domain.FXPayment, domain.Interval{From: p.at, To: p.at + 1}, "of "+dayOf(p.at))
	if problem != "" {
		problem += ", when commitment " + k.commitment + " was paid"
	}
	return rate, citation, problem
}

func dayOf(t domain.Instant) string { return t.Time().Format("2006-01-02") }

// one returns the only rate of a kind that is in effect in all of an interval. If there is none, a rate in the other
// direction is inverted, and rounded to 18 digits. Sources publish both directions rounded: they contradict each other
// only if they differ by more than that.
func (r *Rates) one(base string, kind domain.FXRateKind, in domain.Interval, when string) (rate domain.Decimal, citation, problem string) {
	direct, one, problem := r.ofPair(base, r.Currency, kind, in, when)
	inverse, other, problem2 := r.ofPair(r.Currency, base, kind, in, when)
	switch problem = cmp.Or(problem, problem2); {
	case problem != "":
	case direct == nil && inverse == nil:
		problem = fmt.Sprintf("the %s rate of %s in %s %s is missing", kind, base, r.Currency, when)
	case direct == nil:
		return decimal.New(1, 0).DivRound(*inverse, rateDigits), "1 / " + other, ""
	case inverse != nil && !roundedInverse(*direct, *inverse):
		problem = fmt.Sprintf("the %s rates of %s in %s %s contradict each other: %s, and %s", kind, base, r.Currency, when, one, other)
	default:
		return *direct, one, ""
	}
	return rate, "", problem
}

// roundedInverse reports whether two rates are each other's inverse, but for half a unit of the last digit of each.
func roundedInverse(x, y domain.Decimal) bool {
	half := func(d domain.Decimal) domain.Decimal { return decimal.New(5, min(0, d.Exponent())-1) }
	off := x.Mul(y).Sub(decimal.New(1, 0)).Abs()
	return off.LessThanOrEqual(x.Mul(half(y)).Add(y.Mul(half(x))))
}

// ofPair returns the only stated rate of a pair and kind that is in effect in all of an interval, nil if there is none.
func (r *Rates) ofPair(base, quote string, kind domain.FXRateKind, in domain.Interval, when string) (rate *domain.Decimal, citation, problem string) {
	for i := range r.stated {
		s := &r.stated[i]
		if s.Kind != kind || s.Effective.Intersect(in) != in || s.Base != base || s.Quote != quote {
			continue
		}
		text := fmt.Sprintf("%s/%s %s %s from %s to %s", s.Base, s.Quote, s.Rate, kind, dayOf(s.Effective.From), dayOf(s.Effective.To))
		if s.Citation != "" {
			text += " (" + s.Citation + ")"
		}
		if rate != nil && !rate.Equal(s.Rate) {
			return nil, "", fmt.Sprintf("the %s rates of %s in %s %s contradict each other: %s, and %s", kind, base, quote, when, citation, text)
		}
		if rate == nil {
			rate, citation = &s.Rate, text
		}
	}
	return rate, citation, ""
}

// Closing returns the rate of a currency for balances at the end of the month, and where it is from; or what is
// missing. A close freezes those that were declared until then.
func (r *Rates) Closing(base string) (rate domain.Decimal, citation, problem string) {
	if r.frozen {
		if b := r.closing[base]; b != nil {
			return b.Rate, b.Citation, ""
		}
		return rate, "", fmt.Sprintf("it was closed without the closing rate of %s", base)
	}
	end := domain.Interval{From: r.month.To - 1, To: r.month.To}
	return r.one(base, domain.FXClosing, end, "at the end of "+monthText(r.month))
}

// In returns the division in the currency of the books: its allocations are translated. What reconciles with
// suppliers' figures (invoices, statements, commitments, matches, exceptions) stays in the currency it was billed in.
func (d *Division) In(r *Rates) *Division {
	t := *d
	t.rates = r
	return &t
}

// translator translates the allocations of a division, which come line by line.
type translator struct {
	rates             *Rates
	line              *attribution.Line // translated; nil before the first
	of                lineKey
	currency          string
	rate              *bookRate
	billed, effective attribution.Translation
	allocation        attribution.Allocation
	part              part
}

// translate returns a translated allocation, which is valid until the next call; nil if its rate is missing.
func (t *translator) translate(p *part) (*part, error) {
	l := p.allocation
	if key := (lineKey{l.Line.Issuer, l.Line.Account, l.Line.ID}); t.line == nil || key != t.of || l.Line.Currency != t.currency {
		t.of, t.currency, t.rate = key, l.Line.Currency, t.rates.of(l.Line)
		line := *l.Line
		var ok, fits bool
		line.Currency = t.rates.Currency
		line.Billed, ok = line.Billed.Translate(t.rate.rate)
		line.Effective, fits = line.Effective.Translate(t.rate.rate)
		if !ok || !fits {
			return nil, t.large(l)
		}
		t.line = &line
		t.billed, t.effective = attribution.TranslationAt(t.rate.rate), attribution.TranslationAt(t.rate.rate)
	}
	if t.rate.problem != "" {
		return nil, nil
	}
	t.part, t.allocation = *p, *l
	t.part.allocation, t.allocation.Line = &t.allocation, t.line
	prices := &t.part.priced
	var fit [4]bool
	t.allocation.Billed, fit[0] = t.billed.Next(l.Billed)
	t.allocation.Effective, fit[1] = t.effective.Next(l.Effective)
	prices.list, fit[2] = prices.list.Translate(t.rate.rate)
	prices.contracted, fit[3] = prices.contracted.Translate(t.rate.rate)
	if fit != [4]bool{true, true, true, true} {
		return nil, t.large(l)
	}
	return &t.part, nil
}

func (t *translator) large(l *attribution.Allocation) error {
	return fmt.Errorf("%s at %s %s is too large", ledgerName(l.Line.Issuer, l.Line.Account, l.Line.ID), t.rate.Rate, t.rates.Currency)
}

// translated is each of a division that has rates. It returns an error of [RatesError] if one is missing.
func (d *Division) translated(yield func(*part) error) error {
	billed := *d
	billed.rates = nil
	t := translator{rates: d.rates}
	err := billed.each(func(p *part) error {
		in, err := t.translate(p)
		if in == nil || err != nil {
			return err
		}
		return yield(in)
	})
	if err != nil {
		return err
	}
	return d.rates.missing()
}

// FXMonth is a month in the currency of the books, with its rates.
type FXMonth struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Translation
	Balances []FXBalance `json:"balances"` // by currency, without that of the books
	// Problems are the rates that are missing. With any, there are no balances.
	Problems []string `json:"problems"`
}

// FXBalance compares what was billed in a currency, as it is expense, with what is owed for it at the end of the month.
type FXBalance struct {
	Currency string             `json:"currency"`
	Billed   attribution.Amount `json:"billed"`
	Expense  attribution.Amount `json:"billed_in_books"` // at the rates of the month
	// Rate is the closing rate, and Citation its source; null without one, and then Problem says why.
	Rate     *domain.Decimal `json:"closing_rate"`
	Citation string          `json:"closing_citation,omitempty"`
	Problem  string          `json:"closing_rate_absent,omitempty"`
	// Owed is Billed at the closing rate, and Difference is Owed - Expense: what the books lose by the change of the
	// rate until the end of the month, if all of it is unpaid then.
	Owed       *attribution.Amount `json:"billed_at_closing"`
	Difference *attribution.Amount `json:"fx_difference"`
}

// FX translates a division, and compares it with the closing rates: those that it was closed with, else those of now.
func (d *Division) FX(r, now *Rates) (*FXMonth, error) {
	m := &FXMonth{Position: d.position, Month: d.Month, Balances: []FXBalance{}, Problems: []string{}}
	sums := map[string]*FXBalance{}
	t := translator{rates: r}
	err := d.each(func(p *part) error {
		in, err := t.translate(p)
		if in == nil || err != nil {
			return err
		}
		l := p.allocation
		b := sums[l.Line.Currency]
		if b == nil {
			b = &FXBalance{Currency: l.Line.Currency}
			sums[l.Line.Currency] = b
		}
		b.Billed, b.Expense = b.Billed.Add(l.Billed), b.Expense.Add(in.allocation.Billed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Translation = *r.Translation()
	var missing *RatesError
	if errors.As(r.missing(), &missing) {
		m.Problems = missing.Problems
		return m, nil
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		if b := sums[currency]; currency != r.Currency {
			closing := now
			if _, _, problem := r.Closing(currency); r.frozen && problem == "" {
				closing = r
			}
			if err := b.close(closing); err != nil {
				return nil, err
			}
			m.Balances = append(m.Balances, *b)
		}
	}
	return m, nil
}

func (b *FXBalance) close(r *Rates) error {
	if r == nil {
		b.Problem = ErrNoBooksCurrency.Error()
		return nil
	}
	stated, citation, problem := r.Closing(b.Currency)
	if b.Problem = problem; problem != "" {
		return nil
	}
	rate, err := attribution.RateOf(stated)
	if err != nil {
		return fmt.Errorf("the closing rate of %s: %w", b.Currency, err)
	}
	owed, ok := b.Billed.Translate(rate)
	if !ok {
		return fmt.Errorf("%s %s at %s is too large", b.Billed, b.Currency, stated)
	}
	difference := owed.Sub(b.Expense)
	b.Rate, b.Citation, b.Owed, b.Difference = &stated, citation, &owed, &difference
	return nil
}
