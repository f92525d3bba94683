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
//
// An entity may keep its books in a currency of its own. Its allocations are then translated to that one, each from the
// currency that it was billed in. [Rates.Group] translates everything to the currency of the others.
type Rates struct {
	Currency string            // of the books of all entities without one of their own
	entities map[string]*Rates // of the others, by entity; those of one currency are the same. They have no entities
	month    domain.Interval
	stated   []domain.FXRateSet   // valid decisions; of one pair, kind and time the last
	prepaid  map[string][]prepaid // by commitment and billing currency, of each term, by time; none of a term is paid at once: none
	frozen   bool                 // all rates are known
	closing  map[string]*bookRate // of frozen rates, those for balances, by currency
	known    map[rateKey]*bookRate
	declared map[string]bool // commitments; nil of frozen rates
	doubtful map[string]bool // commitments that nobody declared, whose use has the average rate so far
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

// Group returns the rates that translate everything to the currency of the books of all entities; nil of nil.
func (r *Rates) Group() *Rates {
	if r == nil || len(r.entities) == 0 {
		return r
	}
	group := *r
	group.entities = nil
	return &group
}

// ofEntity returns the rates of an entity.
func (r *Rates) ofEntity(name string) *Rates {
	if own := r.entities[name]; own != nil {
		return own
	}
	return r
}

// all returns the rates to each currency of the books, by currency.
func (r *Rates) all() []*Rates {
	all := []*Rates{r}
	for _, own := range r.entities {
		if !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	slices.SortFunc(all, func(a, b *Rates) int { return strings.Compare(a.Currency, b.Currency) })
	return all
}

// to returns the rates to a currency of the books; nil if there are none.
func (r *Rates) to(currency string) *Rates {
	all := r.all()
	if i := slices.IndexFunc(all, func(of *Rates) bool { return of.Currency == currency }); i >= 0 {
		return all[i]
	}
	return nil
}

// currencies returns the currencies of entities with one of their own; nil if there are none.
func (r *Rates) currencies() map[string]string {
	var of map[string]string
	for entity, own := range r.entities {
		if of == nil {
			of = map[string]string{}
		}
		of[entity] = own.Currency
	}
	return of
}

// Translation returns the rates that were needed so far; nil without rates.
func (r *Rates) Translation() *Translation {
	if r == nil {
		return nil
	}
	return &Translation{Currency: r.Currency, Entities: r.currencies(), Frozen: r.frozen, Rates: r.Used()}
}

// Translation says how amounts were translated to the currency of the books.
type Translation struct {
	Currency string             `json:"currency"`
	Entities map[string]string  `json:"entities,omitempty"` // currencies of entities that keep their books in another one
	Frozen   bool               `json:"frozen"`             // the rates are those that the month was closed with
	Rates    []domain.BooksRate `json:"rates"`              // by currency and commitment
}

// RatesError lists the rates that a translation lacks.
type RatesError struct {
	Currency string // of the books; several have commas between them
	Month    domain.Interval
	Problems []string
}

// Error names them all.
func (e *RatesError) Error() string {
	return fmt.Sprintf("%s cannot be translated to %s: %s", monthText(e.Month), e.Currency, strings.Join(e.Problems, "; "))
}

// BooksCurrencies asks for the books of each entity in its own currency.
const BooksCurrencies = "books"

// ErrNoBooksCurrency is returned if no policy says which currency the books are kept in.
var ErrNoBooksCurrency = errors.New("no policy of kind books_currency says which currency the books are kept in")

// ReadRates reads the rates that translate an open month. It returns [ErrNoBooksCurrency] if the books have no
// currency when the month begins.
func ReadRates(view projections.View, month domain.Interval) (*Rates, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	currencies, err := booksCurrencies(view, a, month.From)
	if err != nil {
		return nil, err
	}
	if currencies[""] == "" {
		return nil, ErrNoBooksCurrency
	}
	r := newRates(currencies, func(currency string) *Rates {
		return &Rates{Currency: currency, month: month, prepaid: map[string][]prepaid{}, known: map[rateKey]*bookRate{}}
	})
	contracts, err := declaredCommitments(view, month)
	if err != nil {
		return nil, err
	}
	for _, of := range r.all() {
		if err := of.readStated(view, a); err != nil {
			return nil, err
		}
		of.declared, of.doubtful = map[string]bool{}, map[string]bool{}
		for id, c := range contracts {
			of.declared[id] = true
			of.pay(id, c.prices)
		}
	}
	return r, nil
}

// newRates returns rates for the currencies of the books, by entity; "" is for all others.
func newRates(currencies map[string]string, to func(currency string) *Rates) *Rates {
	r := to(currencies[""])
	own := map[string]*Rates{}
	for entity, currency := range currencies {
		if entity == "" || currency == r.Currency {
			continue
		}
		if own[currency] == nil {
			own[currency] = to(currency)
		}
		if r.entities == nil {
			r.entities = map[string]*Rates{}
		}
		r.entities[entity] = own[currency]
	}
	return r
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

// booksCurrencies returns the currencies that the root workspace's policies state at a time, by entity; that of all
// others is for "". Of several policies for one entity the last one counts.
func booksCurrencies(view projections.View, a *registry.Authority, at domain.Instant) (map[string]string, error) {
	latest, currencies := map[string]projections.Version{}, map[string]string{}
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil || k.Scope != a.Root() {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		ended := p.EffectiveTo != 0 && p.EffectiveTo <= at
		entity := p.Columns[entityColumn]
		if before, twice := latest[entity]; p.Kind != domain.PolicyBooksCurrency || ended || twice && before.Order.After(v.Order) {
			return nil
		}
		latest[strings.Clone(entity)], currencies[strings.Clone(entity)] = *v, strings.Clone(p.Value)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return currencies, nil
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

// bases returns the currencies that a rate was stated of, in either direction.
func (r *Rates) bases() (all []string) {
	for i := range r.stated {
		for _, currency := range []string{r.stated[i].Base, r.stated[i].Quote} {
			if currency != r.Currency && !slices.Contains(all, currency) {
				all = append(all, currency)
			}
		}
	}
	return all
}

// FrozenRates returns the rates that a month was closed with. They do not change any more. It returns
// [ErrNoBooksCurrency] if the month was closed without a translation.
func FrozenRates(p *domain.ClosePrepared) (*Rates, error) {
	if len(p.Translated) == 0 {
		return nil, ErrNoBooksCurrency
	}
	currencies := map[string]string{}
	for i := range p.Translated {
		currencies[p.Translated[i].Entity] = p.Translated[i].Currency
	}
	r := newRates(currencies, func(currency string) *Rates {
		return &Rates{Currency: currency, month: p.Period, frozen: true, known: map[rateKey]*bookRate{}, closing: map[string]*bookRate{}}
	})
	for i := range p.Rates {
		b := &bookRate{BooksRate: p.Rates[i]}
		var err error
		if b.rate, err = attribution.RateOf(b.Rate); err != nil {
			return nil, fmt.Errorf("the rate of %s in %s that %s was closed with: %w", b.Base, b.Quote, monthText(p.Period), err)
		}
		switch of := r.to(b.Quote); {
		case of == nil: // no books are kept in it
		case b.Kind == domain.FXClosing:
			of.closing[b.Base] = b
		default:
			of.known[rateKey{b.Base, b.Commitment, b.TermFrom, b.Kind}] = b
		}
	}
	return r, nil
}

// Used returns the rates that were needed so far, by currency of the books, currency and commitment, without those from a
// currency to itself.
func (r *Rates) Used() []domain.BooksRate {
	out := []domain.BooksRate{}
	for _, of := range r.all() {
		for _, k := range of.keys() {
			if b := of.known[k]; b.problem == "" && k.base != of.Currency {
				out = append(out, b.BooksRate)
			}
		}
	}
	return out
}

// missing returns an error that lists the rates that were needed so far and are not known; nil if there is none.
func (r *Rates) missing() error {
	if r == nil {
		return nil
	}
	var problems, to []string
	for _, of := range r.all() {
		before := len(problems)
		for _, k := range of.keys() {
			if b := of.known[k]; b.problem != "" && !slices.Contains(problems, b.problem) {
				problems = append(problems, b.problem)
			}
		}
		if len(problems) > before {
			to = append(to, of.Currency)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &RatesError{strings.Join(to, ", "), r.month, problems}
}

// lacking returns an error of problems with rates to the currencies of the books; nil if there are none.
func (r *Rates) lacking(problems map[string]bool) error {
	if len(problems) == 0 {
		return nil
	}
	var to []string
	for _, of := range r.all() {
		to = append(to, of.Currency)
	}
	return &RatesError{strings.Join(to, ", "), r.month, slices.Sorted(maps.Keys(problems))}
}

// Doubtful returns the commitments that nobody declared and whose use, which was not billed when it was used, was translated
// at the average rate of the month so far. If they were paid at once, that is not their rate.
func (r *Rates) Doubtful() []string {
	all := map[string]bool{}
	for _, of := range r.all() {
		maps.Copy(all, of.doubtful)
	}
	return append([]string{}, slices.Sorted(maps.Keys(all))...)
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
		if r.declared != nil && !r.declared[l.Commitment] && l.Billed.IsZero() && !l.Effective.IsZero() && k.base != r.Currency {
			r.doubtful[l.Commitment] = true
		}
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
	b := &bookRate{BooksRate: domain.BooksRate{Base: k.base, Quote: r.Currency, Commitment: k.commitment, TermFrom: k.term, Kind: k.kind}}
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
		b.problem = fmt.Sprintf("it was closed without the %s rate of %s in %s for commitment %s", k.kind, k.base, r.Currency, k.commitment)
	case r.frozen:
		b.problem = fmt.Sprintf("it was closed without a rate of %s in %s", k.base, r.Currency)
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
		return rate, "", fmt.Sprintf("it was closed without the closing rate of %s in %s", base, r.Currency)
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
	rates      *Rates
	of         lineKey // the line that lines are of, and its currency
	currency   string
	lines      map[*Rates]*translatedLine // to the currencies of the books that its allocations have
	allocation attribution.Allocation
	part       part
}

// translatedLine is a line in a currency of the books, and how far its allocations are translated.
type translatedLine struct {
	attribution.Line
	rate              *bookRate
	billed, effective attribution.Translation
}

// translate returns a translated allocation, which is valid until the next call; nil if its rate is missing.
func (t *translator) translate(p *part) (*part, error) {
	rates := t.rates
	if len(rates.entities) > 0 {
		rates = rates.ofEntity(p.ownership().entity)
	}
	return t.to(rates, p)
}

// to is translate with the rates of an entity.
func (t *translator) to(rates *Rates, p *part) (*part, error) {
	l := p.allocation
	if key := (lineKey{l.Line.Issuer, l.Line.Account, l.Line.ID}); t.lines == nil || key != t.of || l.Line.Currency != t.currency {
		t.of, t.currency, t.lines = key, l.Line.Currency, map[*Rates]*translatedLine{}
	}
	line := t.lines[rates]
	if line == nil {
		line = &translatedLine{Line: *l.Line, rate: rates.of(l.Line)}
		var ok, fits bool
		line.Currency = rates.Currency
		line.Billed, ok = line.Line.Billed.Translate(line.rate.rate)
		line.Effective, fits = line.Line.Effective.Translate(line.rate.rate)
		if !ok || !fits {
			return nil, tooLarge(l, line.rate)
		}
		line.billed, line.effective = attribution.TranslationAt(line.rate.rate), attribution.TranslationAt(line.rate.rate)
		t.lines[rates] = line
	}
	if line.rate.problem != "" {
		return nil, nil
	}
	t.part, t.allocation = *p, *l
	t.part.allocation, t.allocation.Line = &t.allocation, &line.Line
	prices := &t.part.priced
	if len(p.moved) > 0 {
		defer t.move(p, line.rate)
	}
	var fit [4]bool
	t.allocation.Billed, fit[0] = line.billed.Next(l.Billed)
	t.allocation.Effective, fit[1] = line.effective.Next(l.Effective)
	prices.list, fit[2] = prices.list.Translate(line.rate.rate)
	prices.contracted, fit[3] = prices.contracted.Translate(line.rate.rate)
	if fit != [4]bool{true, true, true, true} {
		return nil, tooLarge(l, line.rate)
	}
	return &t.part, nil
}

// move translates the differences of units on machines. They add up to the translated posting: the last has what
// rounding leaves.
func (t *translator) move(p *part, at *bookRate) {
	left := figures{billed: t.allocation.Billed, effective: t.allocation.Effective, list: t.part.priced.list, contracted: t.part.priced.contracted}
	t.part.moved = slices.Clone(p.moved)
	for i := range t.part.moved {
		m := &t.part.moved[i]
		for _, of := range [...]struct{ amount, left *attribution.Amount }{
			{&m.billed, &left.billed}, {&m.effective, &left.effective}, {&m.list, &left.list}, {&m.contracted, &left.contracted},
		} {
			in, ok := of.amount.Translate(at.rate)
			if !ok || i == len(t.part.moved)-1 {
				in = *of.left
			}
			*of.amount, *of.left = in, of.left.Sub(in)
		}
	}
}

func tooLarge(l *attribution.Allocation, r *bookRate) error {
	return fmt.Errorf("%s at %s %s is too large", ledgerName(l.Line.Issuer, l.Line.Account, l.Line.ID), r.Rate, r.Quote)
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
	Balances []FXBalance `json:"balances"` // by currency of the books and currency, without those from one to itself
	// Problems are the rates that are missing. With any, there are no balances.
	Problems []string `json:"problems"`
	// Undeclared are commitments of which nothing is known but their use, which was paid before. It has the average rate
	// of the month: if they were paid at once, declare them.
	Undeclared []string `json:"undeclared_commitments"`
}

// FXBalance compares what was billed in a currency, as it is expense, with what is owed for it at the end of the month.
type FXBalance struct {
	Books    string             `json:"books"`    // the currency of the books
	Currency string             `json:"currency"` // that was billed
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
	m := &FXMonth{Position: d.position, Month: d.Month, Balances: []FXBalance{}, Problems: []string{}, Undeclared: []string{}}
	type pair struct{ books, currency string }
	sums := map[pair]*FXBalance{}
	t := translator{rates: r}
	err := d.each(func(p *part) error {
		in, err := t.translate(p)
		if in == nil || err != nil {
			return err
		}
		l := p.allocation
		of := pair{in.allocation.Line.Currency, l.Line.Currency}
		b := sums[of]
		if b == nil {
			b = &FXBalance{Books: of.books, Currency: of.currency}
			sums[of] = b
		}
		b.Billed, b.Expense = b.Billed.Add(l.Billed), b.Expense.Add(in.allocation.Billed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Translation, m.Undeclared = *r.Translation(), r.Doubtful()
	var missing *RatesError
	if errors.As(r.missing(), &missing) {
		m.Problems = missing.Problems
		return m, nil
	}
	for _, b := range sums {
		if b.Currency == b.Books {
			continue
		}
		if err := b.close(r, now); err != nil {
			return nil, err
		}
		m.Balances = append(m.Balances, *b)
	}
	slices.SortFunc(m.Balances, func(x, y FXBalance) int {
		return cmp.Or(strings.Compare(x.Books, y.Books), strings.Compare(x.Currency, y.Currency))
	})
	return m, nil
}

// close takes the closing rate that the month was closed with, else that of now.
func (b *FXBalance) close(r, now *Rates) error {
	var closing *Rates
	if now != nil {
		closing = now.to(b.Books)
	}
	if frozen := r.to(b.Books); r.frozen {
		if _, _, problem := frozen.Closing(b.Currency); problem == "" {
			closing = frozen
		}
	}
	if closing == nil {
		b.Problem = "the books are not kept in " + b.Books + " any more, and the month was closed without a closing rate"
		return nil
	}
	stated, citation, problem := closing.Closing(b.Currency)
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
