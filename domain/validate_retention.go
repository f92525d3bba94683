package domain

import "crypto/sha256"

func (c *checker) retention(e *PolicySet) {
	oneOf(c, "scope", Retained(e.Scope), AllRetained()...)
	if _, err := ParseKeep(Retained(e.Scope), e.Value); err != nil {
		c.bad("value", "%s", err)
	}
	if !e.Selector.IsZero() {
		c.bad("selector", "is given, and retention is for everything")
	}
}

func (c *checker) legalHold(e *LegalHoldSet) {
	c.id("hold", e.Hold)
	c.optionalID("workspace", e.Workspace)
	c.optionalID("cluster", e.Cluster)
	if e.Period != (Interval{}) {
		c.interval("period", e.Period)
	}
	c.text("reason", e.Reason)
	if e.Reason == "" {
		c.bad("reason", "is missing")
	}
}

func (c *checker) personNamed(e *PersonNamed) {
	c.id("person", e.Person)
	if n := len(e.Sealed); n == 0 || n > MaxSealed {
		c.bad("sealed", "has %d bytes, want 1 to %d", n, MaxSealed)
	}
}

func (c *checker) removal(entity, removal string, what Retained, policy, rule, by string) {
	c.id("entity", entity)
	c.id("removal", removal)
	oneOf(c, "what", what, AllRetained()...)
	c.id("policy", policy)
	c.id("rule", rule)
	c.id("by", by)
}

func (c *checker) removed(what Retained, list []Removed) {
	c.listed("removed", len(list))
	for i, r := range list {
		if c.err != nil {
			return
		}
		c.in("removed", i)
		switch what {
		case RetainedSnapshots:
			c.id("file", r.File)
		case RetainedPeople:
			c.id("person", r.Person)
		default:
			c.partition(r.Topic, r.Partition)
		}
		switch what {
		case RetainedLog, RetainedQuarantine:
			if r.From < 0 || r.To <= r.From {
				c.bad("to", "%d to before %d are no records", r.From, r.To)
			}
		case RetainedHours:
			c.instant("month", r.Month)
			c.bytes("digest", r.Digest, sha256.Size)
		}
		c.out()
	}
}
