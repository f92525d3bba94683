package costs

import (
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// A journal in the currency of the books has what was used at the rates of the month, what was paid for later months at
// those of its payment, and what is owed or due, balances of money, at those of the end of the month. What is left of a
// document is the difference of exchange rates. An accrual is taken back as it was booked. Entities whose books are in
// the currency that was billed have the same entries as in a journal of that.

// translatedShare is a share in the currency of the books: in that of the workspace's entity, and in that of the entity that
// gets the invoice.
type translatedShare struct{ own, issued costDelta }

// booksAmount is a line in the currency of the books of its entity.
type booksAmount struct {
	exact   attribution.Amount
	fixed   attribution.Minor // as it was booked before, in currency
	booked  attribution.Minor // both, rounded
	balance bool              // prepaid or recoverable tax

	currency string // once it is booked
}

// translate adds an allocation to a share in the currency of the books.
func (j *journalMaker) translate(s *journalSlip, of *journalShare, p *part) error {
	if j.in.Rates == nil {
		return nil
	}
	rates := j.in.Rates
	if s.typ != "" { // the rates of this month may lack those of an earlier one's commitments
		var err error
		if rates, err = j.posted.of(s.month, p.allocation.Line); err != nil {
			return err
		}
	}
	own := rates
	if entity, known := j.in.Chart.entity(of.ownership, s.workspace); known {
		own = rates.ofEntity(entity)
	}
	issued := rates
	if entity, known := j.in.Chart.invoiceEntity(s.issuer, s.account); known {
		issued = rates.ofEntity(entity)
	}
	amounts, ok := j.inCurrency(own, p)
	if !ok {
		return nil
	}
	of.books.own = of.books.own.add(amounts)
	if issued != own {
		if amounts, ok = j.inCurrency(issued, p); !ok {
			return nil
		}
	}
	of.books.issued = of.books.issued.add(amounts)
	return nil
}

func (d costDelta) add(o costDelta) costDelta {
	return costDelta{d.billed.Add(o.billed), d.effective.Add(o.effective)}
}

// inCurrency translates an allocation. It reports false, and notes the problem, if that cannot be.
func (j *journalMaker) inCurrency(rates *Rates, p *part) (costDelta, bool) {
	in, err := j.translator.to(rates, p)
	switch {
	case err != nil:
		j.problems[err.Error()] = true
		return costDelta{}, false
	case in == nil:
		j.problems[rates.of(p.allocation.Line).problem] = true
		return costDelta{}, false
	}
	return costDelta{in.allocation.Billed, in.allocation.Effective}, true
}

// closing is a balance of money of an entity at the rate of the end of the month.
func (j *journalMaker) closing(entity, currency string, billed attribution.Minor) attribution.Amount {
	if j.in.Rates == nil || billed.Amount.IsZero() {
		return attribution.Amount{}
	}
	rates := j.in.Rates.ofEntity(entity)
	if rates.Currency == currency {
		return billed.Amount
	}
	stated, _, problem := rates.Closing(currency)
	if problem == "" {
		rate, err := attribution.RateOf(stated)
		in, ok := billed.Amount.Translate(rate)
		if err == nil && ok {
			return in
		}
		problem = fmt.Sprintf("%s %s at %s %s is too large", billed, currency, stated, rates.Currency)
	}
	j.problems[problem] = true
	return attribution.Amount{}
}

// toBooks rounds lines to the currency of the books: those of an account and invoice once, and what is prepaid or
// recoverable once for all invoices. The rest of each document is the difference of exchange rates.
func (j *journalMaker) toBooks() error {
	if j.in.Rates == nil {
		return nil
	}
	if err := j.in.Rates.lacking(j.problems); err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(j.lines), func(a, b journalLine) int { return a.compare(&b) })
	groups := map[journalLine][]*booked{}
	for _, k := range keys {
		b := j.lines[k]
		currency := j.in.Rates.ofEntity(k.entity).Currency
		if was := b.books.currency; was != "" && was != currency {
			return fmt.Errorf("the books of %s were kept in %s, and are now kept in %s: take back what was accrued for %s by hand, and make this journal in the currencies that were billed",
				k.entity, was, currency, k.month)
		}
		b.books.currency = currency
		b.books.fixed.Decimals = domain.MinorUnits(currency)
		if currency == k.currency {
			b.books.booked = b.billed
			continue
		}
		k.workspace = ""
		if b.books.balance {
			k.issuer, k.billing, k.invoice = "", "", ""
		}
		groups[k] = append(groups[k], b)
	}
	for k, all := range groups {
		exact := make([]attribution.Amount, len(all))
		var sum attribution.Amount
		for i, b := range all {
			exact[i], sum = b.books.exact, sum.Add(b.books.exact)
		}
		for i, m := range attribution.Foot(exact, sum.Minor(j.in.Rates.ofEntity(k.entity).Currency)) {
			all[i].books.booked = m.Add(all[i].books.fixed)
		}
	}
	rest := map[journalLine]attribution.Minor{}
	for _, k := range keys {
		of := k.document()
		booked := j.lines[k].books.booked
		rest[of] = attribution.Minor{Amount: rest[of].Amount.Add(booked.Amount), Decimals: booked.Decimals}
	}
	for of, sum := range rest {
		if sum.Amount.IsZero() {
			continue
		}
		line := of
		line.account = j.difference(of)
		b := j.lines[line]
		if b == nil {
			b = &booked{billed: attribution.Minor{Decimals: domain.MinorUnits(of.currency)}}
			b.books.booked.Decimals, b.books.currency = sum.Decimals, j.in.Rates.ofEntity(of.entity).Currency
			j.lines[line] = b
		}
		b.books.booked = b.books.booked.Sub(sum)
	}
	return nil
}

// difference returns the account of differences of exchange rates of a document.
func (j *journalMaker) difference(of journalLine) string {
	account, ok := j.in.Chart.find(domain.LedgerFX, map[string]string{
		workspaceColumn: of.workspace, entityColumn: of.entity, "InvoiceIssuerName": of.issuer, "BillingAccountId": of.billing,
	})
	if !ok {
		j.missing[fmt.Sprintf("%s for entity %s", domain.LedgerFX, of.entity)] = true
	}
	return account
}

// translation says which rates a journal has.
func (in *JournalInput) translation() *Translation {
	t := in.Rates.Translation()
	if t == nil {
		return nil
	}
	for _, of := range in.Rates.all() {
		for _, base := range slices.Sorted(maps.Keys(of.closing)) {
			t.Rates = append(t.Rates, of.closing[base].BooksRate)
		}
	}
	return t
}
