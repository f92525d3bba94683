package domain

// postings checks the digest of what is posted into a period.
func (c *checker) postings(digest []byte) {
	if len(digest) > 0 {
		c.bytes("postings", digest, 32)
	}
}

func (c *checker) offset(field string, offset int64) {
	if offset < 0 {
		c.bad(field, "is %d, want an offset", offset)
	}
}

// translated checks the translation of a close.
func (c *checker) translated(e *ClosePrepared) {
	switch {
	case len(e.Translated) > 1:
		c.bad("translated", "has %d totals, want one", len(e.Translated))
	case len(e.Translated) == 0 && len(e.Rates) > 0:
		c.bad("rates", "translate into no currency")
	}
	c.totals("translated", e.Translated)
	if !c.listed("rates", len(e.Rates)) {
		return
	}
	for i := range e.Rates {
		c.in("rates", i)
		r := &e.Rates[i]
		c.currency("base", r.Base)
		if c.decimal("rate", r.Rate) && r.Rate.Sign() <= 0 {
			c.bad("rate", "%s is not above 0", r.Rate)
		}
		oneOf(c, "kind", r.Kind, FXAverage, FXPayment, FXClosing)
		c.optionalID("commitment", r.Commitment)
		c.optionalInstant("term_from", r.TermFrom)
		if r.Commitment == "" && !r.TermFrom.IsZero() {
			c.bad("term_from", "is of no commitment")
		}
		if r.Kind == FXClosing && r.Commitment != "" {
			c.bad("commitment", "has no closing rate: that is for balances of a currency")
		}
		c.text("citation", r.Citation)
	}
	c.out()
}

// totals checks totals of a close: each currency once, in order.
func (c *checker) totals(field string, all []BooksTotal) {
	if !c.listed(field, len(all)) {
		return
	}
	for i := range all {
		c.in(field, i)
		c.currency("currency", all[i].Currency)
		c.decimal("billed", all[i].Billed)
		c.decimal("effective", all[i].Effective)
		if i > 0 && all[i].Currency <= all[i-1].Currency {
			c.bad("currency", "%s follows %s: want each currency once, in order", all[i].Currency, all[i-1].Currency)
		}
	}
	c.out()
}

// checks checks the checklist of a close.
func (c *checker) checks(all []CloseCheck) {
	if !c.listed("checks", len(all)) {
		return
	}
	for i := range all {
		c.in("checks", i)
		c.id("check", all[i].Check)
		oneOf(c, "outcome", all[i].Outcome, CheckMet, CheckAccepted)
		c.text("detail", all[i].Detail)
		c.text("reason", all[i].Reason)
		if all[i].Outcome == CheckAccepted && all[i].Reason == "" {
			c.bad("reason", "is missing: a finding is accepted for a reason")
		}
	}
	c.out()
}
