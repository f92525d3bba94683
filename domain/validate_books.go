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
	if len(e.Translated) == 0 && len(e.Rates) > 0 {
		c.bad("rates", "translate into no currency")
	}
	quotes := map[string]bool{}
	if !c.listed("translated", len(e.Translated)) {
		return
	}
	for i := range e.Translated {
		c.in("translated", i)
		t := &e.Translated[i]
		quotes[t.Currency] = true
		c.total(t)
		switch c.optionalID("entity", t.Entity); {
		case i == 0 && t.Entity != "":
			c.bad("entity", "is %q, want the total of all entities first", t.Entity)
		case i > 0 && t.Entity <= e.Translated[i-1].Entity:
			c.bad("entity", "%q follows %q: want each entity once, in order", t.Entity, e.Translated[i-1].Entity)
		}
	}
	c.out()
	if !c.listed("rates", len(e.Rates)) {
		return
	}
	for i := range e.Rates {
		c.in("rates", i)
		r := &e.Rates[i]
		c.currency("base", r.Base)
		if c.currency("quote", r.Quote); !quotes[r.Quote] {
			c.bad("quote", "%s is the currency of no books", r.Quote)
		}
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
		if c.total(&all[i]); all[i].Entity != "" {
			c.bad("entity", "is %q: these totals are of all entities", all[i].Entity)
		}
		if i > 0 && all[i].Currency <= all[i-1].Currency {
			c.bad("currency", "%s follows %s: want each currency once, in order", all[i].Currency, all[i-1].Currency)
		}
	}
	c.out()
}

func (c *checker) total(t *BooksTotal) {
	c.currency("currency", t.Currency)
	c.decimal("billed", t.Billed)
	c.decimal("effective", t.Effective)
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
