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

// totals checks the totals of a close: each currency once, in order.
func (c *checker) totals(all []BooksTotal) {
	if !c.listed("totals", len(all)) {
		return
	}
	for i := range all {
		c.in("totals", i)
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
