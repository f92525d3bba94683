package advice

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// Case is what one incident is about: findings with a common cause.
type Case struct {
	Family    Family          `json:"family"`
	Rule      RuleID          `json:"rule"` // of the first finding
	Subject   Subject         `json:"subject"`
	Workspace string          `json:"workspace"`
	Severity  domain.Severity `json:"severity"` // the highest of its findings
	Summary   string          `json:"summary"`
	Parts     int             `json:"parts"`           // devices, nodes or clusters that it is about; 0: only its subject
	Names     []string        `json:"names,omitempty"` // of parts, at most [MostNames]
	// Whole is how many parts it had when more than half of its subject was concerned; 0 while that is so.
	Whole    int       `json:"whole,omitempty"`
	Findings []Finding `json:"findings"`    // at most [MostNames]: those of the subject first, then by severity
	Of       int       `json:"findings_of"` // how many there are in all
	// PerMonth is the largest sum of the findings in each currency: they are about the same money, so they do not add up.
	PerMonth []domain.Money `json:"per_month"`

	members []Subject // of all findings
}

// mostCases bounds the cases of one rule. More are one case of the fleet.
const mostCases = 100

// shape is how the fleet is divided.
type shape struct {
	gpus, nodes, clusters, regions map[Subject]int // of a node; fabric or cluster; provider and region; the fleet
	fabric                         map[Subject]string
}

func shapeOf(f *Figures) *shape {
	s := &shape{gpus: map[Subject]int{}, nodes: map[Subject]int{}, clusters: map[Subject]int{}, regions: map[Subject]int{}, fabric: map[Subject]string{}}
	market := map[string]Subject{}
	for _, c := range f.Clusters {
		at := Subject{Provider: c.Provider, Region: c.Region}
		market[c.ID] = at
		if s.clusters[at]++; s.clusters[at] == 1 {
			s.regions[Subject{}]++
		}
	}
	for _, n := range f.Nodes {
		cluster := market[n.Cluster]
		cluster.Cluster = n.Cluster
		node := cluster
		node.Node = n.Node
		s.gpus[node] += n.GPUs
		s.nodes[cluster]++
		if n.Fabric != "" {
			fabric := cluster
			fabric.Fabric = n.Fabric
			s.nodes[fabric]++
			s.fabric[node] = n.Fabric
		}
	}
	return s
}

// level is a place in the hierarchy, without what is not a place.
func level(s Subject) Subject {
	return Subject{Provider: s.Provider, Region: s.Region, Cluster: s.Cluster, Fabric: s.Fabric, Node: s.Node, GPU: s.GPU}
}

// half is how many of n parts make a whole the cause: more than half, and at least two.
func half(n int) int { return max(2, n/2+1) }

// Correlate folds the firing findings of figures into cases. Findings of a family fold into that of a larger place that has a
// finding itself, or of which more than half has findings: device, node, fabric, cluster, provider and region, fleet. Those
// about how a model is served fold into the model, if more than half of its clusters have them. Others are cases of their own.
// Cases are in the order of family and subject.
func Correlate(f *Figures, findings []Finding) []Case {
	s := shapeOf(f)
	families := map[Family][]*Finding{}
	for i := range findings {
		if x := &findings[i]; x.Status == Firing {
			r, _ := RuleOf(x.Rule)
			families[r.Family] = append(families[r.Family], x)
		}
	}
	var cases []Case
	for _, family := range []Family{FamilyFailure, FamilyUse, FamilyServing, FamilyPlacement, FamilyLimits, FamilyCost, FamilyWaste} {
		var of []Case
		switch all := families[family]; family {
		case FamilyFailure, FamilyUse:
			of = s.fold(family, all)
		case FamilyServing:
			of = foldModels(f, all)
		default:
			of = foldRules(family, all)
		}
		cases = append(cases, bounded(family, of)...)
	}
	return cases
}

// fold folds findings about places, from the smallest to the largest.
func (s *shape) fold(family Family, all []*Finding) []Case {
	groups := map[Subject][]*Finding{}
	own := map[Subject]bool{} // places with a finding of their own
	kinds := map[Subject][]*Finding{}
	for _, x := range all {
		at := level(x.Subject)
		if x.Subject.GPUModel != "" || x.Subject.Workspace != "" || at == (Subject{}) && x.Subject.Component != "" {
			kinds[x.Subject] = append(kinds[x.Subject], x)
			continue
		}
		groups[at] = append(groups[at], x)
		own[at] = true
	}
	steps := []struct {
		up     func(Subject) (Subject, bool)
		of     map[Subject]int
		weight func(Subject) int // of a place in what is above it
	}{
		{func(at Subject) (Subject, bool) { at.GPU = ""; return at, at.Node != "" }, s.gpus, func(Subject) int { return 1 }},
		{func(at Subject) (Subject, bool) {
			fabric := s.fabric[Subject{Provider: at.Provider, Region: at.Region, Cluster: at.Cluster, Node: at.Node}]
			return Subject{Provider: at.Provider, Region: at.Region, Cluster: at.Cluster, Fabric: fabric}, at.Node != "" && fabric != ""
		}, s.nodes, func(at Subject) int { return one(at.GPU == "") }},
		{func(at Subject) (Subject, bool) {
			return Subject{Provider: at.Provider, Region: at.Region, Cluster: at.Cluster}, at.Cluster != ""
		}, s.nodes, func(at Subject) int {
			if at.Node == "" && at.Fabric != "" {
				return s.nodes[at]
			}
			return one(at.Node != "" && at.GPU == "")
		}},
		{func(at Subject) (Subject, bool) {
			return Subject{Provider: at.Provider, Region: at.Region}, at.Provider != "" && at.Region != ""
		}, s.clusters, func(at Subject) int { return one(depthOf(at) == 3) }},
		{func(Subject) (Subject, bool) { return Subject{}, true }, s.regions, func(at Subject) int { return one(depthOf(at) == 4) }},
	}
	for _, step := range steps {
		beneath := map[Subject][]Subject{}
		weight := map[Subject]int{}
		for at := range groups {
			if up, ok := step.up(at); ok && up != at {
				beneath[up] = append(beneath[up], at)
				weight[up] += step.weight(at)
			}
		}
		for up, parts := range beneath {
			if !own[up] && weight[up] < half(step.of[up]) {
				continue
			}
			slices.SortFunc(parts, Subject.Compare)
			for _, at := range parts {
				groups[up] = append(groups[up], groups[at]...)
				delete(groups, at)
			}
		}
	}
	// What a kind of machine has in common is explained by the largest place that has it, too.
	cases := casesOf(family, groups)
	if largest := slices.MaxFunc(append(cases, Case{}), func(a, b Case) int {
		return cmp.Or(cmp.Compare(max(a.Of, a.Parts), max(b.Of, b.Parts)), b.Subject.Compare(a.Subject))
	}); largest.Of > 0 {
		for _, of := range sortedSubjects(kinds) {
			if of.GPUModel != "" && of.Cluster == "" {
				groups[largest.Subject] = append(groups[largest.Subject], kinds[of]...)
				delete(kinds, of)
			}
		}
		cases = casesOf(family, groups)
	}
	return append(cases, casesOf(family, kinds)...)
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func sortedSubjects(groups map[Subject][]*Finding) []Subject {
	subjects := make([]Subject, 0, len(groups))
	for s := range groups {
		subjects = append(subjects, s)
	}
	slices.SortFunc(subjects, Subject.Compare)
	return subjects
}

// depthOf is how small a place is: 0 for a GPU, 5 for the fleet.
func depthOf(at Subject) int {
	switch {
	case at.GPU != "":
		return 0
	case at.Node != "":
		return 1
	case at.Fabric != "":
		return 2
	case at.Cluster != "":
		return 3
	case at.Provider != "":
		return 4
	}
	return 5
}

// foldRules folds findings of one rule about what one workspace has in one cluster.
func foldRules(family Family, all []*Finding) (cases []Case) {
	rules := map[RuleID][]*Finding{}
	for _, x := range all {
		rules[x.Rule] = append(rules[x.Rule], x)
	}
	for _, r := range Rules() {
		groups := map[Subject][]*Finding{}
		for _, x := range rules[r.ID] {
			at := Subject{Workspace: x.Workspace, Provider: x.Subject.Provider, Region: x.Subject.Region, Cluster: x.Subject.Cluster}
			if x.Subject.Cluster == "" {
				at = x.Subject
			}
			groups[at] = append(groups[at], x)
		}
		for at, of := range groups {
			if len(of) == 1 && at != of[0].Subject {
				groups[of[0].Subject] = of
				delete(groups, at)
			}
		}
		some := casesOf(family, groups)
		for i := range some {
			if c := &some[i]; c.Of > 1 { // they are about different machines, so their money adds up
				c.Subject.Name = string(r.ID)
				c.PerMonth = sumOf(groups[c.whole()])
			}
		}
		cases = append(cases, some...)
	}
	return cases
}

// whole is the subject of a case that was named after its rule.
func (c *Case) whole() Subject {
	s := c.Subject
	s.Name = ""
	return s
}

// sumOf adds up what findings cost, by currency.
func sumOf(all []*Finding) []domain.Money {
	c := Case{PerMonth: []domain.Money{}}
	for _, x := range all {
		if x.PerMonth != nil {
			c.add([]domain.Money{*x.PerMonth})
		}
	}
	return c.PerMonth
}

// foldModels folds findings about a model in several clusters. What differs between clusters (routing) is explained by a
// single cluster that has a finding of its own.
func foldModels(f *Figures, all []*Finding) []Case {
	type key struct{ model, tier string }
	serves := map[key]map[string]bool{}
	for i := range f.Servers {
		s := &f.Servers[i]
		k := key{s.Model, s.Tier}
		if serves[k] == nil {
			serves[k] = map[string]bool{}
		}
		serves[k][s.Cluster] = true
	}
	at := map[key]map[string][]*Finding{}
	for _, x := range all {
		k := key{x.Subject.Model, x.Subject.Name}
		if at[k] == nil {
			at[k] = map[string][]*Finding{}
		}
		at[k][x.Subject.Cluster] = append(at[k][x.Subject.Cluster], x)
	}
	groups := map[Subject][]*Finding{}
	for k, clusters := range at {
		routing := clusters[""]
		delete(clusters, "")
		whole := Subject{Model: k.model, Name: k.tier}
		switch {
		case len(clusters) == 1 && len(routing) > 0 || len(clusters) == 1 && len(serves[k]) == 1:
			for _, own := range clusters {
				groups[own[0].Subject] = append(own, routing...)
			}
		case len(clusters) >= half(len(serves[k])):
			groups[whole] = routing
			for _, cluster := range sortedKeys(clusters) {
				groups[whole] = append(groups[whole], clusters[cluster]...)
			}
		default:
			for _, own := range clusters {
				groups[own[0].Subject] = own
			}
			if len(routing) > 0 {
				groups[whole] = routing
			}
		}
	}
	return casesOf(FamilyServing, groups)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// casesOf makes a case of each group, in the order of subjects.
func casesOf(family Family, groups map[Subject][]*Finding) []Case {
	cases := make([]Case, 0, len(groups))
	for _, s := range sortedSubjects(groups) {
		cases = append(cases, newCase(family, s, groups[s]))
	}
	return cases
}

func newCase(family Family, s Subject, all []*Finding) Case {
	slices.SortStableFunc(all, func(a, b *Finding) int {
		return cmp.Or(compareBool(b.Subject == s, a.Subject == s), cmp.Compare(rank(b.Severity), rank(a.Severity)),
			cmp.Compare(ruleOrder[a.Rule], ruleOrder[b.Rule]), a.Subject.Compare(b.Subject))
	})
	first := all[0]
	c := Case{
		Family: family, Rule: first.Rule, Subject: s, Workspace: first.Workspace, Severity: first.Severity, Summary: first.Summary,
		Parts: first.Parts, Names: first.Names, Of: len(all), PerMonth: []domain.Money{},
	}
	parts := map[string]bool{}
	most := map[string]decimal.Decimal{}
	for _, x := range all {
		c.members = append(c.members, x.Subject)
		if rank(x.Severity) > rank(c.Severity) {
			c.Severity = x.Severity
		}
		if x.Workspace != c.Workspace {
			c.Workspace = Platform // it concerns several
		}
		if x.Subject != s {
			parts[x.Subject.String()] = true
		}
		if x.PerMonth != nil && x.PerMonth.Amount.GreaterThan(most[x.PerMonth.Currency]) {
			most[x.PerMonth.Currency] = x.PerMonth.Amount
		}
		if len(c.Findings) < MostNames {
			c.Findings = append(c.Findings, *x)
		}
	}
	for _, currency := range sortedKeys(most) {
		c.PerMonth = append(c.PerMonth, domain.Money{Amount: most[currency], Currency: currency})
	}
	if len(parts) > c.Parts {
		c.Parts, c.Names = len(parts), named(sortedKeys(parts))
	}
	if first.Subject != s {
		c.Summary = fmt.Sprintf("%s of %s; the first: %s", Many(c.Of, "finding"), s, first.Summary)
	}
	return c
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

var ruleOrder = func() map[RuleID]int {
	order := map[RuleID]int{}
	for i, r := range Rules() {
		order[r.ID] = i
	}
	return order
}()

// rank orders severities.
func rank(s domain.Severity) int { return slices.Index(domain.Severities(), s) }

// bounded makes one case of the fleet of a rule's cases, if there are too many.
func bounded(family Family, cases []Case) []Case {
	count := map[RuleID]int{}
	for i := range cases {
		count[cases[i].Rule]++
	}
	out := cases[:0:0]
	many := map[RuleID]*Case{}
	for i := range cases {
		c := &cases[i]
		if count[c.Rule] <= mostCases {
			out = append(out, *c)
			continue
		}
		all := many[c.Rule]
		if all == nil {
			all = &Case{
				Family: family, Rule: c.Rule, Subject: Subject{Name: "rule " + string(c.Rule)}, Workspace: Platform, Severity: c.Severity,
				Summary: fmt.Sprintf("rule %s has findings about %d subjects; the first: %s", c.Rule, count[c.Rule], c.Summary),
				Parts:   count[c.Rule], PerMonth: []domain.Money{},
			}
			many[c.Rule] = all
		}
		all.Of += c.Of
		all.members = append(all.members, c.members...)
		if len(all.Findings) < MostNames {
			all.Findings, all.Names = append(all.Findings, c.Findings[0]), append(all.Names, c.Subject.String())
		}
		if rank(c.Severity) > rank(all.Severity) {
			all.Severity = c.Severity
		}
		all.add(c.PerMonth)
	}
	for _, r := range Rules() {
		if c := many[r.ID]; c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// add adds sums, by currency: of cases of one rule about different subjects.
func (c *Case) add(sums []domain.Money) {
	for _, m := range sums {
		i, found := slices.BinarySearchFunc(c.PerMonth, m.Currency, func(a domain.Money, currency string) int { return cmp.Compare(a.Currency, currency) })
		if found {
			c.PerMonth[i].Amount = c.PerMonth[i].Amount.Add(m.Amount)
		} else {
			c.PerMonth = slices.Insert(c.PerMonth, i, m)
		}
	}
}
