package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// CommitmentBook is the roll-forward of commitments in a month: what was prepaid or accrued before,
// what was billed and consumed, and what is left.
type CommitmentBook struct {
	Position    string            `json:"position"`
	Month       domain.Interval   `json:"period"`
	Commitments []CommitmentMonth `json:"commitments"` // by issuer, commitment and currency
	Exceptions  []CommitmentFault `json:"exceptions"`
	registry.Completeness
}

// CommitmentMonth is a commitment in a month and one currency.
//
// Opening + Purchased - Used - Unused - Expired = Closing, exactly. A positive balance is prepaid, a
// negative one accrued. Over the whole term the effective cost of used and unused equals the billed
// cost of the purchases (FOCUS, commitment discounts), so that the balance ends at 0.
type CommitmentMonth struct {
	Issuer     string          `json:"issuer"`
	Commitment string          `json:"commitment"`
	Currency   string          `json:"currency"`
	Contract   string          `json:"contract,omitempty"`
	Workspace  string          `json:"workspace,omitempty"` // that declared it
	Term       domain.Interval `json:"term"`                // zero: not declared
	NoticeBy   domain.Instant  `json:"notice_by,omitempty"`
	Owners     []domain.Share  `json:"owners"` // who are charged for what stays unused

	Opening   attribution.Amount `json:"opening"`
	Purchased attribution.Amount `json:"purchased"` // billed cost of purchases
	Used      attribution.Amount `json:"used"`      // effective cost of covered usage
	Unused    attribution.Amount `json:"unused"`    // effective cost of the unused part
	Expired   attribution.Amount `json:"expired"`   // prepaid and not consumed by the end of the term
	Closing   attribution.Amount `json:"closing"`

	// Utilization is Used of Used and Unused, in per mille rounded down; null without either.
	Utilization *int64 `json:"utilization_permille"`
	// WithoutIt is what the covered usage costs without the commitment: its ContractedCost, else its
	// ListCost. Null if a line of it has neither.
	WithoutIt *attribution.Amount `json:"cost_without_commitment"`
	// Savings is WithoutIt less Used and Unused.
	Savings *attribution.Amount `json:"savings"`
	// BreakEven is the utilization from which the commitment saves money, in per mille rounded up:
	// the cost of all of it / what all of it would cost without it. Null if that is not known.
	BreakEven *int64 `json:"break_even_permille"`
}

// CommitmentFault is something about a commitment that its books cannot explain.
type CommitmentFault struct {
	Kind       CommitmentFaultKind `json:"kind"`
	Commitment string              `json:"commitment"`
	Detail     string              `json:"detail"`
}

// CommitmentFaultKind names a kind of [CommitmentFault].
type CommitmentFaultKind string

// The kinds of faults of commitments.
const (
	CommitmentUndeclared CommitmentFaultKind = "commitment_undeclared"    // on a bill, and nobody declared its contract
	CommitmentUnbilled   CommitmentFaultKind = "commitment_unbilled"      // in its term, and no bill names it
	LedgerBeginsLater    CommitmentFaultKind = "ledger_begins_later"      // bills before the first month of the ledger are missing
	PurchaseMissing      CommitmentFaultKind = "commitment_accrued"       // more was consumed than billed when its term ended
	PrepaidLeft          CommitmentFaultKind = "commitment_prepaid_left"  // less was consumed than billed when its term ended
	CommitmentLineBad    CommitmentFaultKind = "commitment_line_unusable" // an amount of a line cannot be used
)

type commitmentKey struct{ issuer, commitment, currency string }

// commitmentSum adds up the lines of a commitment.
type commitmentSum struct {
	CommitmentMonth
	unknown bool // a line of covered usage has neither ContractedCost nor ListCost
	without attribution.Amount
}

// NewCommitmentBook returns the roll-forward of all commitments with a balance or lines in a month. It
// reads the ledger from the first term on.
func NewCommitmentBook(view projections.View, month domain.Interval) (*CommitmentBook, error) {
	if month != projections.BillingMonth(month.From) {
		return nil, fmt.Errorf("read commitments from %s to %s: want a calendar month in UTC", month.From, month.To)
	}
	b := &CommitmentBook{
		Position: view.Position().String(), Month: month, Commitments: []CommitmentMonth{}, Exceptions: []CommitmentFault{},
	}
	contracts, err := declaredCommitments(view, month)
	if err != nil {
		return nil, err
	}
	months, err := BillingMonths(view)
	if err != nil {
		return nil, err
	}
	sums := map[commitmentKey]*commitmentSum{}
	before := domain.Instant(0)
	past := slices.DeleteFunc(slices.Clone(months), func(m domain.Interval) bool { return m.From >= month.From })
	for _, m := range append(past, month) {
		for k, s := range sums {
			s.expire(contracts[k.commitment], before, m.From)
		}
		before = m.From
		if err := b.read(view, m, sums); err != nil {
			return nil, err
		}
	}
	if len(months) > 0 {
		b.missing(contracts, sums, months[0])
	}
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(x, y commitmentKey) int {
		return cmp.Or(cmp.Compare(x.issuer, y.issuer), cmp.Compare(x.commitment, y.commitment), cmp.Compare(x.currency, y.currency))
	}) {
		if s := sums[k]; s.close(b, contracts[k.commitment]) {
			b.Commitments = append(b.Commitments, s.CommitmentMonth)
		}
	}
	slices.SortStableFunc(b.Exceptions, func(x, y CommitmentFault) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Commitment, y.Commitment))
	})
	b.Completeness, err = registry.CompletenessOf(view, "", "", month, costTopics...)
	return b, err
}

// declaredCommitment is a contract with what its purchase says.
type declaredCommitment struct {
	*contract
	purchase *domain.CommitmentPurchased
	noticeBy domain.Instant
	prices   []termPrice       // of the purchase and its renewals, those that are decided for later months too
	times    []domain.Interval // its terms, with renewals that are decided; those that touch are one
}

// termPrice is what a term of a commitment costs.
type termPrice struct {
	term            domain.Interval
	units           uint32
	upfront, hourly domain.Money // hourly: per unit
}

// ended reports whether the commitment ended after a time and until another. A term that is renewed
// without a gap does not end: what is prepaid goes on.
func (c *declaredCommitment) ended(after, until domain.Instant) bool {
	return slices.ContainsFunc(c.times, func(t domain.Interval) bool { return after < t.To && t.To <= until })
}

// expire drops what was prepaid before a month, if the commitment ended since the month before it
// that was read.
func (s *commitmentSum) expire(c *declaredCommitment, before, month domain.Instant) {
	if c != nil && s.Opening.Sign() > 0 && c.ended(before, month) {
		s.Opening = attribution.Amount{}
	}
}

// declaredCommitments reads the contracts in effect before the end of a month.
func declaredCommitments(view projections.View, month domain.Interval) (map[string]*declaredCommitment, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	all := map[string]*declaredCommitment{}
	err = view.Scan(projections.Query{Table: projections.TableCommitments}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		c := contractOf(a, k, h, month.To)
		if c == nil {
			return nil
		}
		if other := all[k.ID]; other != nil && other.order.After(c.order) {
			return nil // costs list the conflict
		}
		d := &declaredCommitment{contract: c}
		if whole := contractOf(a, k, h, inventory.Forever); whole.order == c.order {
			d.times = inventory.Joined(byTime(whole.terms))
		} else {
			d.times = inventory.Joined(byTime(c.terms)) // bought again, later
		}
		for i := range h.Versions {
			if a.Judge(k, h, i) != "" {
				continue
			}
			later := h.Versions[i].Order.Effective >= month.To
			switch ev := h.Versions[i].Event.(type) {
			case *domain.CommitmentPurchased:
				if later { // bought again
					all[k.ID] = d
					return nil
				}
				d.purchase, d.noticeBy = ev, ev.NoticeBy
				d.prices = []termPrice{{ev.Term, ev.Units, ev.Upfront, ev.Hourly}}
			case *domain.CommitmentRenewed:
				d.prices = append(d.prices, termPrice{ev.Term, ev.Units, ev.Upfront, ev.Hourly})
				if !later {
					d.noticeBy = ev.NoticeBy
				}
			}
		}
		all[k.ID] = d
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read commitments: %w", err)
	}
	return all, nil
}

// byTime returns intervals by their beginning.
func byTime(all []domain.Interval) []domain.Interval {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y domain.Interval) int { return cmp.Compare(x.From, y.From) })
	return all
}

// term returns the term in effect at the end of a month, else the last before it.
func (c *contract) term(month domain.Interval) domain.Interval {
	var in domain.Interval
	for _, t := range c.terms {
		if t.From < month.To && t.From >= in.From {
			in = t
		}
	}
	return in
}

// read adds the lines of a month.
func (b *CommitmentBook) read(view projections.View, month domain.Interval, sums map[commitmentKey]*commitmentSum) error {
	now := month == b.Month
	return EachLine(view, month, func(line *LedgerLine) error {
		id := cmp.Or(line.CommitmentDiscountID, line.CapacityReservationID)
		if id == "" {
			return nil
		}
		l, err := attribution.LineOf(&line.BillingLine)
		if err != nil {
			b.except(CommitmentLineBad, id, "%s: %v", line.name(), err)
			return nil
		}
		if l.Class == attribution.Tax || l.Class == attribution.Credit || l.Class == attribution.Rounding {
			return nil // they follow other lines
		}
		k := commitmentKey{line.InvoiceIssuerName, id, line.BillingCurrency}
		s := sums[k]
		if s == nil {
			s = &commitmentSum{CommitmentMonth: CommitmentMonth{
				Issuer: k.issuer, Commitment: id, Currency: k.currency, Owners: []domain.Share{},
			}}
			sums[k] = s
		}
		purchase := line.ChargeCategory == "Purchase"
		if purchase && !line.EffectiveCost.Valid {
			l.Effective = attribution.Amount{} // it is billed, and consumed by the lines for its use
		}
		switch {
		case !now && purchase:
			s.Opening = s.Opening.Add(l.Billed).Sub(l.Effective)
		case !now:
			s.Opening = s.Opening.Sub(l.Effective)
		case purchase:
			// Some suppliers state the unused part as the effective cost of the fee.
			s.Purchased, s.Unused = s.Purchased.Add(l.Billed), s.Unused.Add(l.Effective)
		case l.Unused:
			s.Unused = s.Unused.Add(l.Effective)
		default:
			s.Used = s.Used.Add(l.Effective)
			s.compare(&line.BillingLine)
		}
		return nil
	})
}

// compare adds what a line of covered usage costs without the commitment.
func (s *commitmentSum) compare(line *domain.BillingLine) {
	price := line.ContractedCost
	if !price.Valid || price.Decimal.IsZero() {
		price = line.ListCost
	}
	amount, err := attribution.AmountOf(price.Decimal)
	if !price.Valid || err != nil || amount.IsZero() {
		s.unknown = true
		return
	}
	s.without = s.without.Add(amount)
}

// close computes what follows from the sums, and reports whether there is anything to show.
func (s *commitmentSum) close(b *CommitmentBook, c *declaredCommitment) bool {
	left := s.Opening.Add(s.Purchased).Sub(s.Used).Sub(s.Unused)
	moved := !s.Purchased.IsZero() || !s.Used.IsZero() || !s.Unused.IsZero()
	if c == nil {
		if moved {
			b.except(CommitmentUndeclared, s.Commitment, "%s bills it, and no contract of this id is declared", s.Issuer)
		}
	} else {
		s.Term, s.Workspace, s.NoticeBy = c.term(b.Month), c.scope, c.noticeBy
		s.Contract = c.purchase.Contract
		s.Owners = append(s.Owners, c.owners...)
		if c.ended(b.Month.From, b.Month.To) && !left.IsZero() {
			if left.Sign() > 0 {
				s.Expired, left = left, attribution.Amount{}
				b.except(PrepaidLeft, s.Commitment, "%s %s of what was billed was not consumed when its term ended", s.Expired, s.Currency)
			} else {
				b.except(PurchaseMissing, s.Commitment, "%s %s more was consumed than billed when its term ended", left.Neg(), s.Currency)
			}
		}
	}
	s.Closing = left
	all := s.Used.Add(s.Unused)
	if all.Sign() > 0 {
		used := permille(s.Used, all, false)
		s.Utilization = &used
	}
	if !s.unknown && s.without.Sign() > 0 && s.Used.Sign() > 0 {
		without, savings := s.without, s.without.Sub(all)
		s.WithoutIt, s.Savings = &without, &savings
		// All of it would cost without × all / used, and it costs all: used / without.
		even := permille(s.Used, s.without, true)
		s.BreakEven = &even
	}
	return moved || !s.Opening.IsZero() || !left.IsZero()
}

// permille returns a part of a whole in per mille, rounded down or up.
func permille(part, whole attribution.Amount, up bool) int64 {
	q, rest := part.Decimal().Mul(decimal.New(1000, 0)).QuoRem(whole.Decimal(), 0)
	if up && rest.Sign() > 0 {
		q = q.Add(decimal.New(1, 0))
	}
	return q.IntPart()
}

// missing reports commitments in term that no bill names, and balances that earlier bills would
// change.
func (b *CommitmentBook) missing(contracts map[string]*declaredCommitment, sums map[commitmentKey]*commitmentSum, first domain.Interval) {
	billed := map[string]bool{}
	for k := range sums {
		billed[k.commitment] = true
	}
	for _, id := range slices.Sorted(maps.Keys(contracts)) {
		c := contracts[id]
		term := c.term(b.Month)
		switch {
		case term.Intersect(b.Month).Empty():
		case !billed[id]:
			b.except(CommitmentUnbilled, id, "its term is %s to %s, and no bill until then names it", term.From, term.To)
		case c.terms[0].From < first.From:
			b.except(LedgerBeginsLater, id, "its term began at %s, and the first bills are of %s; its balance lacks what came before",
				c.terms[0].From, monthText(first))
		}
	}
}

func (b *CommitmentBook) except(kind CommitmentFaultKind, id, format string, args ...any) {
	b.Exceptions = append(b.Exceptions, CommitmentFault{Kind: kind, Commitment: id, Detail: fmt.Sprintf(format, args...)})
}
