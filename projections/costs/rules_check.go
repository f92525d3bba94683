package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// RulesCheck says which lines of bills each mapping rule takes in a billing month, by a division of the lines as they
// are now. Rules for pods are not among them.
type RulesCheck struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Lines    int             `json:"lines"` // of the month
	Rules    []RuleTakes     `json:"rules"` // in the order in which they are tried
	// NotTaken are the lines of no machine that no rule takes, without tax and credits, which follow other lines.
	NotTaken []NotTaken `json:"not_taken"`
	// Ignored are declared rules that are not followed in the month, or only later, and why.
	Ignored []attribution.Exception `json:"ignored"`
	registry.Completeness
}

// RuleTakes is a rule with the lines that it takes.
type RuleTakes struct {
	Rule     string            `json:"rule"` // workspace/id
	Priority uint32            `json:"priority"`
	Says     string            `json:"says"` // who is charged, or what the lines buy
	Columns  map[string]string `json:"columns"`
	From     domain.Instant    `json:"effective_from"`
	Proposed bool              `json:"proposed"` // not applied: checked as if it were in force in the month
	// Lines are those that the rule takes. If it says who is charged, they are for no machine.
	Lines int        `json:"lines"`
	Costs []RuleCost `json:"costs"` // of these lines, by currency
	Fits  int        `json:"fits"`  // lines of the month whose columns have the rule's values
	// OfMachines are lines that fit, but are for machines of the fleet, or follow such lines, and are charged with them.
	OfMachines int `json:"of_machines"`
	// Behind are earlier rules that take lines that fit, in the order in which they are tried.
	Behind []RuleBehind `json:"behind"`
	Note   string       `json:"note,omitempty"` // why it takes nothing
}

// RuleBehind is an earlier rule, with the lines that it takes of those that fit a later one.
type RuleBehind struct {
	Rule  string `json:"rule"`
	Lines int    `json:"lines"`
}

// RuleCost is the cost of lines in a currency.
type RuleCost struct {
	Currency  string         `json:"currency"`
	Billed    domain.Decimal `json:"billed_cost"`
	Effective domain.Decimal `json:"effective_cost"`
}

// NotTaken are lines of no machine that no rule takes, of one service.
type NotTaken struct {
	Issuer  string     `json:"issuer"`
	Account string     `json:"billing_account"`
	Service string     `json:"service"` // ServiceName, "" for null
	Becomes string     `json:"becomes"` // what is done with them
	Lines   int        `json:"lines"`
	Costs   []RuleCost `json:"costs"`
}

// What becomes of lines that no rule takes.
const (
	becomesAccount  = "divided among the machines of the account"
	becomesPlatform = "unmatched: charged to the platform"
)

// money are costs by currency.
type money map[string]*[2]attribution.Amount

func (m money) add(l *attribution.Line) {
	of := m[l.Currency]
	if of == nil {
		of = &[2]attribution.Amount{}
		m[l.Currency] = of
	}
	of[0], of[1] = of[0].Add(l.Billed), of[1].Add(l.Effective)
}

func (m money) costs() []RuleCost {
	costs := make([]RuleCost, 0, len(m))
	for _, currency := range slices.Sorted(maps.Keys(m)) {
		costs = append(costs, RuleCost{currency, m[currency][0].Decimal(), m[currency][1].Decimal()})
	}
	return costs
}

// says states what a rule does with its lines.
func (r *lineRule) says() string {
	switch {
	case r.To == attribution.PlatformOutside:
		return "outside the estate"
	case r.To != "":
		return "charged to " + r.To
	case r.ShareBy != "":
		return "shared by " + strings.ReplaceAll(strings.TrimPrefix(string(r.ShareBy), "by_"), "_", " ")
	case len(r.ToShares) > 0:
		parts := make([]string, len(r.ToShares))
		for i, s := range r.ToShares {
			parts[i] = fmt.Sprintf("%d to %s", s.Weight, s.Workspace)
		}
		return "shared: " + strings.Join(parts, ", ")
	}
	return "buys " + strings.ReplaceAll(string(r.MeterRule.Buys), "_", " ")
}

// propose puts rules that are not applied in place of those of the same name, and beside the others, as if they were
// in force in the month. It returns their names.
func (l *ledger) propose(rules []domain.Envelope, root string) map[string]bool {
	proposed := map[string]bool{}
	var all []lineRule
	for i := range rules {
		ev, ok := rules[i].Event.(*domain.MappingRuleSet)
		if !ok {
			continue
		}
		subject := rules[i].Workspace + "/" + ev.Rule
		of, forLines := ofLines(subject, ev)
		proposed[subject] = true // a rule for pods replaces one for lines, too
		switch {
		case !forLines:
		case rules[i].Workspace != root:
			l.except(PolicyNotApplied, subject, "who is charged for lines, and what they buy, is decided for all workspaces, by %s",
				cmp.Or(root, "nobody yet"))
		default:
			all = append(all, lineRule{ev, of, ""})
		}
	}
	for _, r := range l.lineRules {
		if !proposed[r.Name] {
			all = append(all, r)
		}
	}
	tax := slices.DeleteFunc(slices.Clone(l.rules), func(r attribution.MeterRule) bool { return !r.Tax })
	l.rules, l.applied = nil, nil
	l.follow(all)
	l.rules = append(l.rules, tax...)
	return proposed
}

// CheckRules divides a month and returns what each rule takes. Of proposed, the mapping rules count as if they were in
// force in the month; those of the same name do not.
func CheckRules(view projections.View, month domain.Interval, proposed []domain.Envelope) (*RulesCheck, error) {
	b, err := openBooks(view, month)
	if err != nil {
		return nil, err
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	asked := b.propose(proposed, a.Root())
	c := ruleCheck{rules: b.lineRules, takes: make([]taken, len(b.lineRules)), sets: map[string]uint32{}, not: map[notTaken]*taken{}}
	b.only = func(line *domain.BillingLine) bool { c.fits(line); return true }
	// The numbers of lines are the same in each reading.
	if err := b.lines(view, func(l *attribution.Line) error { c.note(l); return nil }); err != nil {
		return nil, err
	}
	b.only = nil
	result, err := b.divide(func(x *attribution.Allocation) error { c.see(x, &b.charges); return nil })
	if err != nil {
		return nil, err
	}
	out := &RulesCheck{Position: view.Position().String(), Month: month, Lines: result.Lines, Ignored: []attribution.Exception{}}
	out.Rules, out.NotTaken = c.answer(asked)
	for i := range b.exceptions {
		if x := &b.exceptions[i]; b.aboutRule(x, asked) {
			out.Ignored = append(out.Ignored, *x)
		}
	}
	out.Completeness, err = registry.CompletenessOf(view, "", "", month, costTopics...)
	return out, err
}

// aboutRule reports whether an exception says that a rule is not followed. A proposed rule is never announced for
// later, because its dates do not count.
func (l *ledger) aboutRule(x *attribution.Exception, proposed map[string]bool) bool {
	switch x.Kind {
	case PolicyNotApplied:
		return proposed[x.Subject] || l.notFollowed[x.Subject]
	case DecisionVoid, PolicyChangedInPeriod:
		return !proposed[x.Subject] && l.notFollowed[x.Subject]
	}
	return false
}

// ruleCheck counts what rules take.
type ruleCheck struct {
	rules   []lineRule
	takes   []taken
	sets    map[string]uint32 // numbers of sets of rules, from 1
	of      [][]uint16        // the rules of a set, at its number less one
	current []uint16          // rules that fit the line that is read
	key     []byte
	lines   []uint32 // the set of rules that fit a line, at the line's number less one; 0: none
	seen    []bool   // lines that were counted, at their number less one
	not     map[notTaken]*taken
}

// notTaken is what lines that no rule takes have in common.
type notTaken struct{ issuer, account, service, becomes string }

// taken are lines of a rule, or of none.
type taken struct {
	fits, lines, machines int
	money                 money
	behind                map[uint16]int
}

func (t *taken) take(l *attribution.Line) {
	if t.money == nil {
		t.money = money{}
	}
	t.lines++
	t.money.add(l)
}

// fits notes the rules that a line fits.
func (c *ruleCheck) fits(line *domain.BillingLine) {
	c.current, c.key = c.current[:0], c.key[:0]
	for i := range c.rules {
		if c.rules[i].IsFor(line) {
			c.current = append(c.current, uint16(i))
			c.key = append(c.key, byte(i), byte(i>>8))
		}
	}
}

// note keeps them for the number that the line got.
func (c *ruleCheck) note(l *attribution.Line) {
	for int(l.Number) > len(c.lines) {
		c.lines = append(c.lines, 0)
	}
	if len(c.current) == 0 || l.Number == 0 {
		return
	}
	set, ok := c.sets[string(c.key)]
	if !ok {
		c.of = append(c.of, slices.Clone(c.current))
		set = uint32(len(c.of))
		c.sets[string(c.key)] = set
	}
	c.lines[l.Number-1] = set
}

// see counts a line, at its first allocation.
func (c *ruleCheck) see(x *attribution.Allocation, charges *charges) {
	l := x.Line
	if l.Number == 0 {
		return // attribution added it
	}
	if c.seen == nil {
		c.seen = make([]bool, len(c.lines))
	}
	if c.seen[l.Number-1] {
		return
	}
	c.seen[l.Number-1] = true
	var fitting []uint16
	if set := c.lines[l.Number-1]; set > 0 {
		fitting = c.of[set-1]
	}
	buys := -1 // the rule that says what the line buys
	for _, i := range fitting {
		t, r := &c.takes[i], &c.rules[i]
		t.fits++
		var first int
		switch {
		case !r.Charges():
			if buys < 0 {
				buys = int(i)
			}
			first = buys
		case x.MatchMethod != attribution.ByRule:
			t.machines++
			continue
		default:
			first = slices.IndexFunc(c.rules, func(of lineRule) bool { return of.Name == l.ToRule })
		}
		if first == int(i) {
			t.take(l)
			continue
		}
		if t.behind == nil {
			t.behind = map[uint16]int{}
		}
		t.behind[uint16(first)]++
	}
	charge := *noCharge
	charges.get(l.Number, &charge)
	key := notTaken{issuer: l.Issuer, account: l.Account, service: charge.Column("ServiceName")}
	switch x.MatchMethod {
	case attribution.ByAccount:
		key.becomes = becomesAccount
	case attribution.ByNothing:
		key.becomes = becomesPlatform
	default:
		return
	}
	if c.not[key] == nil {
		c.not[key] = &taken{}
	}
	c.not[key].take(l)
}

func (c *ruleCheck) answer(proposed map[string]bool) ([]RuleTakes, []NotTaken) {
	rules, not := []RuleTakes{}, []NotTaken{}
	for i := range c.rules {
		r, t := &c.rules[i], &c.takes[i]
		x := RuleTakes{
			Rule: r.Name, Priority: r.Priority, Says: r.says(), Columns: r.MeterRule.Columns, From: r.EffectiveFrom,
			Proposed: proposed[r.Name], Lines: t.lines, Costs: t.money.costs(), Fits: t.fits, OfMachines: t.machines,
			Behind: []RuleBehind{},
		}
		var before []string
		for _, j := range slices.Sorted(maps.Keys(t.behind)) {
			x.Behind = append(x.Behind, RuleBehind{c.rules[j].Name, t.behind[j]})
			before = append(before, c.rules[j].Name)
		}
		switch {
		case t.lines > 0:
		case t.fits == 0:
			x.Note = "takes nothing: no line has these values"
		case len(before) == 0:
			x.Note = "takes nothing: every line that fits is for a machine"
		default:
			x.Note = "takes nothing: it stands behind " + strings.Join(before, ", ")
		}
		rules = append(rules, x)
	}
	for key, t := range c.not {
		not = append(not, NotTaken{key.issuer, key.account, key.service, key.becomes, t.lines, t.money.costs()})
	}
	slices.SortFunc(not, func(x, y NotTaken) int {
		return cmp.Or(cmp.Compare(x.Issuer, y.Issuer), cmp.Compare(x.Account, y.Account), cmp.Compare(x.Service, y.Service),
			cmp.Compare(x.Becomes, y.Becomes))
	})
	return rules, not
}
