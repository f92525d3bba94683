package costs

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Changes are events about a month that were appended after a time.
type Changes struct {
	lines    map[lineKey]string  // the last event of each line that has one since
	with     map[lineKey]string  // the last event of each line that has one at that very time
	invoices map[lineKey]string  // the last event of each invoice that has one since
	accounts map[string][]string // those of lines, by issuer and account
	received map[string][]string // those of suppliers' invoices, by issuer and account
	ids      map[string]string   // of events, by text

	// What may have changed a line of a cluster, in order: usage, the fleet and decisions. Of wide things and of those
	// of each scope there are lists, because there may be as many lines as things.
	things []thing
	all    []string            // of every thing
	wide   []string            // of those that may change any line
	rules  []string            // of rules that say who is charged
	rule   map[string]string   // the same, by the rule's name
	usage  []string            // of all others
	scopes map[string][]string // the same, by scope
}

// eventID names an event as [Posting] does. key is that of its record.
func eventID(topic domain.Topic, key string, o *domain.Precedence) string {
	return fmt.Sprintf("%s#%d/%s/%d/%d", o.Source, o.Incarnation, topic, domain.PartitionOf([]byte(key), topic.Partitions()), o.Sequence)
}

// events returns the ids of causes that have one.
func (c *Changes) events(causes []string) []string {
	ids := []string{}
	for _, text := range causes {
		if c != nil && c.ids[text] != "" {
			ids = append(ids, c.ids[text])
		}
	}
	return ids
}

// thing is something that events are about.
type thing struct {
	scope string // cluster, workspace or contract
	wide  bool   // it may change any line
	text  string
	rule  string // that says who is charged for lines; "" for anything else
}

// mostCauses bounds the causes that a posting names.
const mostCauses = 8

// ReadChanges reads which events about a month were appended after a time.
func ReadChanges(view projections.View, month domain.Interval, since domain.Instant) (*Changes, error) {
	b, err := openBooks(view, month)
	if err != nil {
		return nil, err
	}
	c := &Changes{
		lines: map[lineKey]string{}, with: map[lineKey]string{}, invoices: map[lineKey]string{},
		accounts: map[string][]string{}, received: map[string][]string{}, ids: map[string]string{},
	}
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}
	err = view.Scan(q, func(_ projections.Key, row projections.Row) error {
		c.line(row.(*projections.History).Latest(), since)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	err = view.Scan(projections.Query{Table: projections.TableInvoices}, func(k projections.Key, row projections.Row) error {
		v := row.(*projections.History).Latest()
		if in := v.Event.(*domain.InvoiceReceived); v.Order.Appended > since {
			text := fmt.Sprintf("%s %s", v.Event.Type(), ledgerName(in.InvoiceIssuerName, in.BillingAccountID, in.InvoiceID))
			c.invoices[lineKey{in.InvoiceIssuerName, in.BillingAccountID, in.InvoiceID}] = text
			c.ids[text] = eventID(domain.TopicBilling, k.Scope, &v.Order)
			if !isAccrual(in.InvoiceID) {
				account := domain.AccountKey(in.InvoiceIssuerName, in.BillingAccountID)
				c.received[account] = append(c.received[account], text)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read invoices: %w", err)
	}
	// Events of the very time may be from after the position that was closed. They can have changed something.
	l := &lateness{b: b, month: month, first: since - 1, decisions: map[lateName]*lateEvents{}, sharded: map[string]bool{}}
	before := len(b.exceptions)
	if err := l.samples(); err != nil {
		return nil, err
	}
	for _, e := range b.exceptions[before:] {
		scope, _, _ := strings.Cut(e.Subject, "/")
		c.things = append(c.things, thing{scope: scope, text: fmt.Sprintf("%s %s", domain.TypeNodeSampled, e.Subject)})
	}
	if err := l.events(); err != nil {
		return nil, err
	}
	for name, e := range l.decisions {
		scope, _, _ := strings.Cut(name.subject, "/")
		wide := false
		switch name.typ {
		case domain.TypePolicySet, domain.TypeMappingRuleSet, domain.TypeCommitmentPurchased, domain.TypeCommitmentRenewed,
			domain.TypeCommitmentEnded:
			wide = true
		}
		of := thing{scope: scope, wide: wide, text: fmt.Sprintf("%s %s", name.typ, name.subject)}
		if e.charges {
			of.wide, of.rule = false, name.subject
		}
		text := of.text
		c.things = append(c.things, of)
		if e.id != "" {
			c.ids[text] = e.id
		}
	}
	if err := c.operators(view, since); err != nil {
		return nil, err
	}
	c.index()
	return c, nil
}

// index puts what is looked up for each line in order.
func (c *Changes) index() {
	slices.SortFunc(c.things, func(x, y thing) int { return strings.Compare(x.text, y.text) })
	c.scopes, c.rule = map[string][]string{}, map[string]string{}
	for _, t := range c.things {
		c.all = append(c.all, t.text)
		switch {
		case t.wide:
			c.wide = append(c.wide, t.text)
		case t.rule != "":
			c.rules = append(c.rules, t.text)
			c.rule[t.rule] = t.text
		default:
			c.usage = append(c.usage, t.text)
			c.scopes[t.scope] = append(c.scopes[t.scope], t.text)
		}
	}
	c.things = nil
	for _, texts := range c.received {
		slices.Sort(texts)
	}
}

// line notes the last event of a line, which may have removed it.
func (c *Changes) line(v *projections.Version, since domain.Instant) {
	var of lineKey
	switch ev := v.Event.(type) {
	case *domain.BillingLineRemoved:
		of = lineKey{ev.InvoiceIssuerName, ev.BillingAccountID, ev.LineID}
	default:
		l := billingLine(v)
		of = lineKey{l.InvoiceIssuerName, l.BillingAccountID, l.LineID}
	}
	if v.Order.Appended < since {
		return
	}
	text := fmt.Sprintf("%s %s", v.Event.Type(), ledgerName(of.issuer, of.account, of.line))
	c.ids[text] = eventID(domain.TopicBilling, domain.AccountKey(of.issuer, of.account), &v.Order)
	if v.Order.Appended == since {
		c.with[of] = text
		return
	}
	c.lines[of] = text
	account := domain.AccountKey(of.issuer, of.account)
	c.accounts[account] = append(c.accounts[account], text)
}

// operators notes events about operators who decided something: they can make decisions valid, and a revocation makes them
// void, though no decision was appended.
func (c *Changes) operators(view projections.View, since domain.Instant) error {
	var about []thing
	ids := map[string]string{} // of operators, by text
	err := view.Scan(projections.Query{Table: projections.TableOperators}, func(k projections.Key, row projections.Row) error {
		for i := range row.(*projections.History).Versions {
			if v := &row.(*projections.History).Versions[i]; v.Order.Appended >= since {
				text := fmt.Sprintf("%s %s/%s", v.Event.Type(), k.Scope, k.ID)
				about = append(about, thing{scope: k.Scope, wide: v.Event.Type() == domain.TypeOperatorRevoked, text: text})
				ids[text] = strings.Clone(k.ID)
				c.ids[text] = eventID(projections.TableOperators.Topic(), k.Scope, &v.Order)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read operators: %w", err)
	}
	if len(about) == 0 {
		return nil
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return err
	}
	decisions, err := a.Decisions(view, registry.DecisionFilter{})
	if err != nil {
		return err
	}
	decided := map[string]bool{}
	for i := range decisions {
		decided[decisions[i].Operator] = true
	}
	for _, t := range about {
		if decided[ids[t.text]] {
			c.things = append(c.things, t)
		}
	}
	return nil
}

// movement is what is known of a line that is posted.
type movement struct {
	invoice  string
	clusters []string  // in which it moved
	rules    [2]string // that said who is charged for it, and that do so now; "" for none
	shared   bool      // by the GPU time of all clusters
	follows  bool      // it goes where other lines go
}

// of returns the causes of a line's postings: the event of the line itself; for the rounding of an invoice those of
// the invoice or its account; else what is known about the clusters in which the line moved, decisions, other
// lines of the account, and then everything. A rule that says who is charged for lines is a cause for its lines, and
// for those that follow others.
func (c *Changes) of(line lineKey, typ PostingType, how *movement, before, after Methods) []string {
	if typ == PostedMethod {
		return []string{"method " + before.Attribution + " to " + after.Attribution}
	}
	if c == nil {
		return []string{}
	}
	if text, ok := c.lines[line]; ok {
		return []string{text}
	}
	account := domain.AccountKey(line.issuer, line.account)
	if isAccrual(line.line) {
		if received := c.received[account]; len(received) > 0 {
			return few(received)
		}
		return few(c.accounts[account]) // a line names the invoice
	}
	if strings.HasPrefix(line.line, roundingAdjustmentPrefix) {
		if text, ok := c.invoices[lineKey{line.issuer, line.account, how.invoice}]; ok {
			return []string{text}
		}
		return few(c.accounts[account])
	}
	var same []string
	if text, ok := c.with[line]; ok {
		same = []string{text}
	}
	near := [][]string{c.wide}
	if how.follows {
		near = append(near, c.rules)
	} else {
		for i, rule := range how.rules {
			if text, ok := c.rule[rule]; ok && (i == 0 || rule != how.rules[0]) {
				near = append(near, []string{text})
			}
		}
	}
	if how.shared {
		near = append(near, c.usage)
	} else {
		for _, cluster := range how.clusters {
			near = append(near, c.scopes[cluster])
		}
	}
	first, n := merged(near)
	if some := fewOf(len(same)+n+len(c.accounts[account]), same, first, c.accounts[account]); len(some) > 0 {
		return some
	}
	return few(c.all)
}

// merged returns the first texts of lists that are in order, as many as a posting names, and how many there are.
func merged(lists [][]string) (first []string, n int) {
	for _, list := range lists {
		n += len(list)
		first = append(first, list[:min(len(list), mostCauses)]...)
	}
	slices.Sort(first)
	return first[:min(len(first), mostCauses)], n
}

// few returns the first causes, and how many more there are.
func few(all []string) []string { return fewOf(len(all), all) }

// fewOf returns the first of n causes, which begin with those of some lists, and how many more there are.
func fewOf(n int, lists ...[]string) []string {
	out := make([]string, 0, min(n, mostCauses+1))
	for _, list := range lists {
		out = append(out, list[:min(len(list), mostCauses-len(out))]...)
	}
	if n > mostCauses {
		out = append(out, fmt.Sprintf("and %d more", n-mostCauses))
	}
	return out
}
