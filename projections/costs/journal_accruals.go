package costs

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// An accrual is booked for one month at a time. The journal of the month has it on the last day, and that of the next
// month takes it back on the first day. While the supplier's invoice has not come, it is then booked again. Once the
// invoice has come, the division of the accrued month no longer has the accrual: its reversal is posted, and the
// journal does not book it again. So what the entries of a month about accruals come to is what was accrued for it and
// posted into it.

func (k slipKey) part() invoicePart {
	return invoicePart{k.month, k.workspace, k.currency, k.issuer, k.account, k.invoice}
}

func (k *journalLine) part() invoicePart {
	return invoicePart{k.month, k.workspace, k.currency, k.issuer, k.billing, k.invoice}
}

// openAccrual is what a journal books of an accrual at the end of its month.
type openAccrual struct {
	total             attribution.Minor
	billed, effective attribution.Amount
	lines             map[journalLine]booked // without a stage and a type
	documents         map[string]string      // by entity
}

// accrues reports whether a journal has accruals at the end of its month.
func (j *Journal) accrues() bool { return j != nil && len(j.accruals) > 0 }

// open returns an accrual that is to be taken back; nil if there is none.
func (j *Journal) open(k invoicePart) *openAccrual {
	if j == nil {
		return nil
	}
	return j.accruals[k]
}

// stage says why and when a line is booked.
type stage int

const (
	stageMonth   stage = iota // on the last day of the month
	stageReverse              // takes back an accrual, on the first day
	stageAccrue               // on the last day, until the first day of the next month
)

// reversedByPostings returns the accruals that postings end: what is left of them is nothing. Their parts of the postings
// are the accruals as they were booked, to the minor unit.
func (in *JournalInput) reversedByPostings(slips map[slipKey]*journalSlip) map[invoicePart]bool {
	ended := map[invoicePart]bool{}
	for k, s := range slips {
		open := in.Before.open(k.part())
		if k.typ == "" || open == nil {
			continue
		}
		billed, effective := s.sums()
		if billed == open.billed.Neg() && effective == open.effective.Neg() {
			ended[k.part()] = true
			s.total, s.fixed = attribution.Minor{Decimals: open.total.Decimals}.Sub(open.total), true
		}
	}
	return ended
}

// reverse takes back the accruals of the month before, and books those again that postings did not end.
func (j *journalMaker) reverse(ended map[invoicePart]bool) {
	if j.in.Before == nil {
		return
	}
	for k, open := range j.in.Before.accruals {
		for line, amount := range open.lines {
			line.stage = stageReverse
			j.post(line, zeroOf(amount.billed).Sub(amount.billed)).rebook(zeroOf(amount.books.booked).Sub(amount.books.booked), amount.books.currency)
			if !ended[k] {
				line.stage, line.typ = stageAccrue, string(PostedAccrual)
				j.post(line, amount.billed).rebook(amount.books.booked, amount.books.currency)
			}
		}
	}
}

func zeroOf(m attribution.Minor) attribution.Minor { return attribution.Minor{Decimals: m.Decimals} }

// rebook adds what was booked before in the currency of the books.
func (b *booked) rebook(m attribution.Minor, currency string) {
	b.books.currency = currency
	b.books.fixed = attribution.Minor{Amount: b.books.fixed.Amount.Add(m.Amount), Decimals: m.Decimals}
}

// keepAccruals keeps what the journal books of accruals, for the journal of the next month.
func (j *journalMaker) keepAccruals(out *Journal, slips map[slipKey]*journalSlip, ended map[invoicePart]bool) {
	out.accruals = map[invoicePart]*openAccrual{}
	at := func(k invoicePart) *openAccrual {
		if out.accruals[k] == nil {
			out.accruals[k] = &openAccrual{lines: map[journalLine]booked{}, documents: map[string]string{}}
		}
		return out.accruals[k]
	}
	for k, s := range slips {
		if k.typ == "" && j.accrues(k) && len(s.shares) > 0 { // even if it rounds to nothing
			at(k.part())
		}
	}
	if j.in.Before != nil {
		for k := range j.in.Before.accruals {
			if !ended[k] {
				at(k)
			}
		}
	}
	for k, sum := range j.lines {
		if k.stage != stageAccrue || sum.billed.Amount.IsZero() && sum.books.booked.Amount.IsZero() {
			continue
		}
		of := at(k.part())
		of.documents[k.entity] = j.documents[k.document()]
		k.stage, k.typ = stageMonth, ""
		of.lines[k] = *sum
	}
	for k, of := range out.accruals {
		if before := j.in.Before.open(k); before != nil && !ended[k] {
			of.total, of.billed, of.effective = before.total, before.billed, before.effective
		}
	}
	for k, s := range slips {
		of := out.accruals[k.part()]
		if of == nil || ended[k.part()] || !j.accrues(k) {
			continue
		}
		billed, effective := s.sums()
		of.total.Decimals = s.total.Decimals
		of.total, of.billed, of.effective = of.total.Add(s.total), of.billed.Add(billed), of.effective.Add(effective)
	}
}

// accrues reports whether a slip is of an accrual that is reversed in the next month. A posting about an accrual that no
// journal has booked is booked for good, as any other posting.
func (j *journalMaker) accrues(k slipKey) bool {
	return isAccrual(k.invoice) && (k.typ == "" || j.in.Before.open(k.part()) != nil)
}

// FirstAccrual returns the earliest month that an accrual was recorded for. It reports false if none was.
func FirstAccrual(view projections.View) (month domain.Interval, found bool, err error) {
	err = view.Scan(projections.Query{Table: projections.TableInvoices}, func(_ projections.Key, row projections.Row) error {
		in := row.(*projections.History).Latest().Event.(*domain.InvoiceReceived)
		if !isAccrual(in.InvoiceID) {
			return nil
		}
		if of := projections.MonthOf(in.BillingPeriod); !found || of.From < month.From {
			month, found = of, true
		}
		return nil
	})
	if err != nil {
		return month, false, fmt.Errorf("read invoices: %w", err)
	}
	return month, found, nil
}

// JournalChain makes the journals of closed months up to the last of inputs, which are by month, and returns that one.
// Each takes back what the one before accrued. A month whose chart of accounts lacks something is passed over if nothing
// was accrued until then.
func JournalChain(inputs []func() (*JournalInput, error)) (*Journal, error) {
	var last *Journal
	for i, next := range inputs {
		in, err := next()
		if err != nil {
			return nil, err
		}
		in.Before = last
		j, err := NewJournal(in)
		switch {
		case err == nil:
			last = j
		case i == len(inputs)-1:
			return nil, err
		case last.accrues():
			return nil, fmt.Errorf("accruals of %s are taken back in %s: %w", monthText(last.Month), monthText(in.Division.Month), err)
		default:
			last = nil
		}
	}
	return last, nil
}
