package whatif

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/projections/planning"
)

// MaxRuns bounds the number of trials of a scenario.
const MaxRuns = 100_000

// The other bounds of a scenario.
const (
	maxText         = 256
	maxPosition     = 16 << 10 // of a log with offsets in every partition
	maxEntries      = 200
	maxAlternatives = 12
	maxSet          = 64
	maxSeed         = 1<<53 - 1 // the largest integer that every JSON reader preserves
	maxFaults       = 100
)

// Parse reads a scenario from the tree of a file. The error is [Errors].
func Parse(doc *Node) (*Scenario, error) {
	r := &reader{}
	s := r.scenario(doc)
	if len(r.faults) > 0 {
		return nil, r.faults.sorted()
	}
	return s, nil
}

type reader struct{ faults Errors }

func (r *reader) fault(n *Node, path, format string, args ...any) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, &Error{n.Line, n.Column, path, fmt.Sprintf(format, args...)})
	}
}

// entry is a mapping that is being read.
type entry struct {
	r    *reader
	n    *Node
	path string
	ok   bool
}

// mapping returns a mapping whose keys are among those known, each once.
func (r *reader) mapping(n *Node, path string, known ...string) entry {
	e := entry{r, n, path, true}
	if n.Shape != Mapping {
		r.fault(n, path, "is %s, want a mapping with %s", n.describe(), strings.Join(known, ", "))
		e.ok, e.n = false, &Node{Shape: Mapping, Line: n.Line, Column: n.Column}
		return e
	}
	seen := make(map[string]int, len(n.Keys))
	for _, k := range n.Keys {
		if line, twice := seen[k.Text]; twice {
			r.fault(k, e.at(k.Text), "stands on line %d already; keep one of them", line)
		}
		seen[k.Text] = k.Line
		if !slices.Contains(known, k.Text) {
			r.fault(k, e.at(k.Text), "unknown field; %s", domain.Suggest(k.Text, known))
		}
	}
	return e
}

func (e entry) at(key string) string {
	if len(key) > 64 {
		key = key[:64] + "…"
	}
	if e.path == "" {
		return key
	}
	return e.path + "." + key
}

func (e entry) has(key string) bool { return e.n.get(key) != nil }

func (e entry) fault(key, format string, args ...any) {
	n := e.n.get(key)
	if n == nil {
		n = e.n
	}
	e.r.fault(n, e.at(key), format, args...)
}

// need reports a field that is missing.
func (e entry) need(keys ...string) {
	for _, k := range keys {
		if e.ok && !e.has(k) {
			e.r.fault(e.n, e.path, "lacks %s, which it needs", k)
		}
	}
}

func (e entry) text(key string) string { return e.textUpTo(key, maxText) }

func (e entry) textUpTo(key string, most int) string {
	n := e.n.get(key)
	if n == nil {
		return ""
	}
	switch {
	case n.Shape != Scalar || n.Text == "":
		e.fault(key, "is %s, want text", n.describe())
		return ""
	case len(n.Text) > most:
		e.fault(key, "has %d characters, at most %d are allowed", len(n.Text), most)
		return ""
	case strings.ContainsFunc(n.Text, func(c rune) bool { return c < ' ' }):
		e.fault(key, "holds a control character")
		return ""
	}
	return n.Text
}

// word is a text that is one of several.
func (e entry) word(key string, of ...string) string {
	s := e.text(key)
	if s != "" && !slices.Contains(of, s) {
		e.fault(key, "%q is unknown; %s", s, domain.Suggest(s, of))
		return ""
	}
	return s
}

// list returns the entries of a list, each with its path.
func (e entry) list(key string, most int) (nodes []*Node, paths []string) {
	n := e.n.get(key)
	if n == nil {
		return nil, nil
	}
	if n.Shape != List {
		e.fault(key, "is %s, want a list", n.describe())
		return nil, nil
	}
	if len(n.Values) > most {
		e.fault(key, "has %d entries, at most %d are allowed", len(n.Values), most)
		return nil, nil
	}
	for i := range n.Values {
		paths = append(paths, e.at(key)+"["+strconv.Itoa(i)+"]")
	}
	return n.Values, paths
}

func (e entry) texts(key string, of ...string) (out []string) {
	nodes, paths := e.list(key, maxEntries)
	for i, n := range nodes {
		switch {
		case n.Shape != Scalar || n.Text == "" || len(n.Text) > maxText:
			e.r.fault(n, paths[i], "is %s, want text", n.describe())
		case len(of) > 0 && !slices.Contains(of, n.Text):
			e.r.fault(n, paths[i], "%q is unknown; %s", n.Text, domain.Suggest(n.Text, of))
		case slices.Contains(out, n.Text):
			e.r.fault(n, paths[i], "%q is listed twice", n.Text)
		default:
			out = append(out, n.Text)
		}
	}
	return out
}

func (e entry) whole(key string, least, most, otherwise int) int {
	n := e.n.get(key)
	if n == nil {
		return otherwise
	}
	v, err := strconv.Atoi(n.Text)
	if n.Shape != Scalar || err != nil || len(n.Text) > 20 {
		e.fault(key, "is %s, want a whole number", n.describe())
		return otherwise
	}
	if v < least || v > most {
		e.fault(key, "is %d, want %d to %d", v, least, most)
	}
	return v
}

func (e entry) flag(key string) bool {
	n := e.n.get(key)
	if n == nil {
		return false
	}
	if n.Shape != Scalar || n.Text != "true" && n.Text != "false" {
		e.fault(key, "is %s, want true or false", n.describe())
	}
	return n.Text == "true"
}

// number is a decimal with few digits, because a number like 1e999999999 would exhaust memory.
func (r *reader) number(n *Node, path string) (domain.Decimal, bool) {
	if n.Shape == Scalar && len(n.Text) <= 40 && isDecimal(n.Text) {
		if d, err := decimal.NewFromString(n.Text); err == nil {
			return d, true
		}
	}
	r.fault(n, path, "is %s, want a number such as 0.05", n.describe())
	return decimal.Zero, false
}

func isDecimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole, part, point := strings.Cut(s, ".")
	digits := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
	}
	return digits(whole) && (whole == "0" || whole[0] != '0') && (!point || digits(part))
}

func (e entry) decimal(key, least, most string) (domain.Decimal, bool) {
	n := e.n.get(key)
	if n == nil {
		return decimal.Zero, false
	}
	d, ok := e.r.number(n, e.at(key))
	if ok {
		e.r.within(n, e.at(key), d, least, most)
	}
	return d, ok
}

func (r *reader) within(n *Node, path string, d domain.Decimal, least, most string) {
	switch {
	case least != "" && d.LessThan(decimal.RequireFromString(least)):
		r.fault(n, path, "is %s, at least %s is allowed", d, least)
	case most != "" && d.GreaterThan(decimal.RequireFromString(most)):
		r.fault(n, path, "is %s, at most %s is allowed", d, most)
	}
}

func (e entry) share(key string) *domain.Decimal {
	if d, ok := e.decimal(key, "0", "1"); ok {
		return &d
	}
	return nil
}

// uncertain reads a number or a distribution.
func (e entry) uncertain(f *Field) *Number {
	n := e.n.get(f.Name)
	if n == nil {
		return nil
	}
	path := e.at(f.Name)
	if n.Shape != Mapping {
		d, ok := e.r.number(n, path)
		if !ok {
			return nil
		}
		e.r.within(n, path, d, f.Least, f.Most)
		return FixedAt(d)
	}
	if f.Certain {
		e.r.fault(n, path, "takes no distribution, write a number")
		return nil
	}
	d := e.r.mapping(n, path, string(Fixed), string(Triangular), string(Lognormal), string(Poisson))
	if len(n.Keys) != 1 {
		e.r.fault(n, path, "want exactly one of fixed, triangular, lognormal, poisson")
		return nil
	}
	out := &Number{Distribution: Distribution(n.Keys[0].Text)}
	v, at := n.Values[0], d.at(n.Keys[0].Text)
	parameters := []*Node{v}
	switch out.Distribution {
	case Triangular:
		if v.Shape != List || len(v.Values) != 3 {
			e.r.fault(v, at, "want [least, most likely, most]")
			return nil
		}
		parameters = v.Values
	case Lognormal:
		m := e.r.mapping(v, at, "p50", "p95")
		m.need("p50", "p95")
		if !m.has("p50") || !m.has("p95") {
			return nil
		}
		parameters = []*Node{v.get("p50"), v.get("p95")}
	case Fixed, Poisson:
	default:
		return nil // an unknown key was reported
	}
	for _, p := range parameters {
		x, ok := e.r.number(p, at)
		if !ok {
			return nil
		}
		e.r.within(p, at, x, f.Least, f.Most)
		out.P = append(out.P, x)
	}
	switch p := out.P; {
	case out.Distribution == Triangular && (p[0].GreaterThan(p[1]) || p[1].GreaterThan(p[2])):
		e.r.fault(v, at, "is %s, %s, %s, want them ascending: least, most likely, most", p[0], p[1], p[2])
	case out.Distribution == Lognormal && !p[0].IsPositive():
		e.r.fault(v, at, "has a median of %s, want one above 0", p[0])
	case out.Distribution == Lognormal && p[1].LessThan(p[0]):
		e.r.fault(v, at, "has p95 %s below p50 %s", p[1], p[0])
	case out.Distribution == Poisson && (p[0].IsNegative() || p[0].GreaterThan(decimal.NewFromInt(maxPoisson))):
		e.r.fault(v, at, "has a mean of %s, want 0 to %d", p[0], maxPoisson)
	}
	return out
}

func (e entry) instant(key string) domain.Instant {
	s := e.text(key)
	if s == "" {
		return 0
	}
	t, err := domain.ParseTime(s)
	if err != nil || t <= 0 {
		e.fault(key, "%q is not a time; write a date such as 2026-09-01, a month such as 2026-09, or a time such as "+
			"2026-09-01T06:00:00Z", s)
		return 0
	}
	return t
}

func (r *reader) scenario(doc *Node) *Scenario {
	e := r.mapping(doc, "", "apiVersion", "kind", "name", "question", "base", "horizon", "seed", "runs",
		"scenario_set", "assumptions",
		"changes", "alternatives", "constraints", "report")
	e.need("apiVersion", "kind", "name", "alternatives")
	e.word("apiVersion", APIVersion)
	e.word("kind", FileKind)
	s := &Scenario{
		Name: e.text("name"), Question: e.text("question"), Months: e.months("horizon"),
		Seed: uint64(max(0, e.whole("seed", 0, maxSeed, 1))),
		Runs: e.whole("runs", 1, MaxRuns, 500), Set: e.whole("scenario_set", 1, maxSet, 32),
	}
	if n := e.n.get("base"); n != nil {
		b := r.mapping(n, "base", "position", "at", "region", "instance")
		s.Base = Base{Position: b.textUpTo("position", maxPosition), At: b.instant("at"), Region: b.text("region"), Instance: b.text("instance")}
		if s.Base.Position == "now" {
			s.Base.Position = ""
		}
		if s.Base.Position != "" {
			if _, err := domain.ParsePosition(s.Base.Position); err != nil {
				b.fault("position", "%v; every answer names its own under \"position\", and \"now\" is the end of the log", err)
			}
		}
		for _, other := range []string{"position", "at", "region"} {
			if s.Base.Instance != "" && b.has(other) {
				b.fault(other, "contradicts instance: a base is a position of the log or an instance")
			}
		}
	}
	s.Assumptions = r.assumptions(e)
	s.Assumptions.Months = s.Months
	s.Changes = r.changes(e, "changes")
	nodes, paths := e.list("alternatives", maxAlternatives)
	if e.has("alternatives") && len(nodes) == 0 && e.n.get("alternatives").Shape == List {
		e.fault("alternatives", "is empty; name at least one alternative")
	}
	for i, n := range nodes {
		a := r.alternative(n, paths[i])
		if slices.ContainsFunc(s.Alternatives, func(b Alternative) bool { return b.Name == a.Name }) {
			r.fault(n, paths[i]+".name", "two alternatives are called %q", a.Name)
		}
		s.Alternatives = append(s.Alternatives, a)
	}
	if n := e.n.get("constraints"); n != nil {
		s.Constraints = r.constraints(n)
	}
	s.Report = e.texts("report", Reports()...)
	if !e.has("report") {
		s.Report = []string{"cost_distribution", "load_duration", "break_even", "tornado", "purchases"}
	}
	return s
}

func (e entry) months(key string) int {
	n := e.n.get(key)
	if n == nil {
		return 36
	}
	text, unit, _ := strings.Cut(n.Text, " ")
	v, err := strconv.Atoi(text)
	if n.Shape != Scalar || err != nil || unit != "" && unit != "months" && unit != "month" {
		e.fault(key, "is %s, want a number of months such as 24 months", n.describe())
		return 36
	}
	if v < 1 || v > plan.MaxMonths {
		e.fault(key, "is %d months, want 1 to %d", v, plan.MaxMonths)
		return 36
	}
	return v
}

func (r *reader) assumptions(e entry) plan.Assumptions {
	a := plan.Assumptions{
		Weeks: 4, AnnualRate: planning.FromPolicy, Salvage: decimal.New(5, -1), SpotOverhead: decimal.New(5, -2),
		ShortageFactor: decimal.NewFromInt(10), Currency: "USD",
	}
	n := e.n.get("assumptions")
	if n == nil {
		return a
	}
	m := r.mapping(n, "assumptions", "lookback_weeks", "monthly_growth", "annual_rate", "salvage", "spot_overhead",
		"shortage_factor", "currency")
	a.Weeks = m.whole("lookback_weeks", 1, 520, a.Weeks)
	for _, x := range []struct {
		key, least, most string
		into             *domain.Decimal
	}{
		{"monthly_growth", "-0.5", "1", &a.MonthlyGrowth}, {"annual_rate", "0", "1", &a.AnnualRate},
		{"salvage", "0", "1", &a.Salvage},
		{"spot_overhead", "0", "0.95", &a.SpotOverhead}, {"shortage_factor", "1", "1000", &a.ShortageFactor},
	} {
		if d, ok := m.decimal(x.key, x.least, x.most); ok {
			*x.into = d
		}
	}
	if c := m.currency("currency"); c != "" {
		a.Currency = c
	}
	return a
}

func (e entry) currency(key string) string {
	s := e.text(key)
	if s != "" && (len(s) != 3 || strings.ContainsFunc(s, func(c rune) bool { return c < 'A' || c > 'Z' })) {
		e.fault(key, "%q is not an ISO 4217 code of three capital letters, for example USD", s)
	}
	return s
}

func (r *reader) alternative(n *Node, path string) Alternative {
	e := r.mapping(n, path, "name", "changes", "buy", "without", "only", "payment_options", "spot_share", "posture", "overflow")
	e.need("name")
	a := Alternative{
		Name: e.text("name"), Changes: r.changes(e, "changes"), Buy: e.word("buy", BuyBest, BuyNothing),
		Without: e.texts("without", offerKinds()...), Only: e.texts("only", offerKinds()...),
		PaymentOptions: e.texts("payment_options", NoUpfront, PartialUpfront, AllUpfront), SpotShare: e.share("spot_share"),
	}
	if a.Buy == "" {
		a.Buy = BuyBest
	}
	if len(a.Without) > 0 && len(a.Only) > 0 {
		e.fault("only", "contradicts without: give one of them")
	}
	if n := e.n.get("posture"); n != nil {
		p := r.mapping(n, e.at("posture"), "kind", "share", "demands", "standby", "cold_price_share")
		p.need("kind", "share")
		a.Posture = &instance.Posture{
			Kind:    instance.PostureKind(p.word("kind", string(instance.ActiveActive), string(instance.ActivePassive), string(instance.MultiProvider))),
			Demands: p.texts("demands"),
			Standby: p.text("standby"), Cold: p.share("cold_price_share"),
		}
		if s := p.share("share"); s != nil {
			a.Posture.Share = *s
		}
		switch passive := a.Posture.Kind == instance.ActivePassive; {
		case passive && a.Posture.Standby == "":
			r.fault(n, p.path, "lacks standby, the region that takes over")
		case !passive && (a.Posture.Standby != "" || a.Posture.Cold != nil):
			r.fault(n, p.path,
				"is %s, where each region or provider carries the others: leave standby and cold_price_share out", a.Posture.Kind)
		}
	}
	nodes, paths := e.list("overflow", maxEntries)
	for i, n := range nodes {
		m := r.mapping(n, paths[i], "from", "to", "round_trip_ms", "hourly", "overhead")
		m.need("from", "to")
		x := instance.Overflow{From: m.text("from"), To: m.text("to"), RoundTripMS: m.whole("round_trip_ms", 0, 10_000, 0)}
		x.Hourly, _ = m.decimal("hourly", "0", "1000000")
		x.Overhead, _ = m.decimal("overhead", "0", "10")
		if x.From == x.To && x.From != "" {
			m.fault("to", "is %q, where the demand is already", x.To)
		}
		a.Overflow = append(a.Overflow, x)
	}
	return a
}

func (r *reader) constraints(n *Node) Constraints {
	e := r.mapping(n, "constraints", "max_unserved", "max_spot_share", "budgets")
	c := Constraints{MaxUnserved: e.share("max_unserved"), MaxSpotShare: e.share("max_spot_share")}
	nodes, paths := e.list("budgets", maxEntries)
	for i, n := range nodes {
		m := r.mapping(n, paths[i], "id", "amount", "basis", "from", "to")
		m.need("amount", "basis", "from", "to")
		b := instance.Budget{
			ID:    m.text("id"),
			Basis: instance.BudgetBasis(m.word("basis", string(instance.Cash), string(instance.Accrual))),
		}
		b.Amount, _ = m.decimal("amount", "0", "")
		b.Interval = domain.Interval{From: m.instant("from"), To: m.instant("to")}
		if b.ID == "" {
			b.ID = fmt.Sprintf("budget %d", i+1)
		}
		if m.has("from") && m.has("to") && b.Interval.Empty() {
			m.fault("to", "is not after from")
		}
		c.Budgets = append(c.Budgets, b)
	}
	return c
}

func (r *reader) changes(e entry, key string) []Change {
	nodes, paths := e.list(key, maxEntries)
	out := make([]Change, 0, len(nodes))
	for i, n := range nodes {
		if c, ok := r.change(n, paths[i]); ok {
			out = append(out, c)
		}
	}
	return out
}

func (r *reader) change(n *Node, path string) (c Change, ok bool) {
	known := make([]string, len(kinds))
	for i := range kinds {
		known[i] = string(kinds[i].Kind)
	}
	if n.Shape != Mapping {
		r.fault(n, path, "is %s, want a mapping with kind", n.describe())
		return c, false
	}
	k := n.get("kind")
	if k == nil {
		r.fault(n, path, "lacks kind; known are %s", strings.Join(known, ", "))
		return c, false
	}
	at := slices.Index(known, k.Text)
	if k.Shape != Scalar || at < 0 {
		r.fault(k, path+".kind", "%s is unknown; %s", k.describe(), domain.Suggest(k.Text, known))
		return c, false
	}
	c.Kind = kinds[at].Kind
	_, fields := Fields(c.Kind)
	e := r.mapping(n, path, fieldNames(fields)...)
	for i := range fields {
		f := &fields[i]
		if f.Need {
			e.need(f.Name)
		}
		if e.has(f.Name) {
			e.take(f, c.place(f.Name))
		}
	}
	for _, group := range kinds[at].Either {
		given := 0
		for _, f := range group {
			if e.has(f) {
				given++
			}
		}
		if given != 1 {
			r.fault(n, path, "has %d of %s, want exactly one", given, strings.Join(group, ", "))
		}
	}
	c.check(e)
	return c, true
}

// take reads a field into its place.
func (e entry) take(f *Field, place any) {
	switch into := place.(type) {
	case *string:
		if *into = e.text(f.Name); len(f.OneOf) > 0 {
			*into = e.word(f.Name, f.OneOf...)
		}
		if f.Name == "currency" || f.Name == "base" || f.Name == "quote" {
			e.currency(f.Name)
		}
	case *[]string:
		*into = e.texts(f.Name)
	case *int:
		least, most := 0, 1_000_000_000
		if f.Least != "" {
			least, _ = strconv.Atoi(f.Least)
		}
		if f.Most != "" {
			most, _ = strconv.Atoi(f.Most)
		}
		*into = e.whole(f.Name, least, most, 0)
	case *bool:
		*into = e.flag(f.Name)
	case *domain.Instant:
		*into = e.instant(f.Name)
	case **Number:
		*into = e.uncertain(f)
	}
}

// place returns where a change keeps a field.
func (c *Change) place(field string) any {
	switch field {
	case "name":
		return &c.Name
	case "region":
		return &c.Region
	case "provider":
		return &c.Provider
	case "model":
		return &c.Model
	case "offer":
		return &c.Offer
	case "offer_kind":
		return &c.OfferKind
	case "cluster":
		return &c.Cluster
	case "account":
		return &c.Account
	case "deployment":
		return &c.Deployment
	case "commitment":
		return &c.Commitment
	case "sku":
		return &c.SKU
	case "gpus":
		return &c.GPUs
	case "class":
		return &c.Class
	case "term_months":
		return &c.Term
	case "currency":
		return &c.Currency
	case "base":
		return &c.Base
	case "quote":
		return &c.Quote
	case "min_units":
		return &c.MinUnits
	case "max_units":
		return &c.MaxUnits
	case "guarantees_capacity":
		return &c.Guaranteed
	case "removed":
		return &c.Removed
	case "end":
		return &c.End
	case "citation":
		return &c.Citation
	case "nodes":
		return &c.Nodes
	case "when":
		return &c.When
	case "until":
		return &c.Until
	}
	if n := c.number(field); n != nil {
		return n
	}
	panic("no place for field " + field) // a test reads every field of every kind
}

// number returns where a change keeps a number, nil if it has no such field.
func (c *Change) number(field string) **Number {
	switch field {
	case "monthly":
		return &c.Monthly
	case "factor":
		return &c.Factor
	case "replicas":
		return &c.Replicas
	case "units":
		return &c.Units
	case "hourly":
		return &c.Hourly
	case "upfront":
		return &c.Upfront
	case "rate":
		return &c.Rate
	case "hours":
		return &c.Hours
	case "duration":
		return &c.Duration
	case "per_year":
		return &c.PerYear
	case "per_gpu_hour":
		return &c.PerGPUHour
	case "per_unit_hour":
		return &c.PerUnitHour
	case "repair_hours":
		return &c.RepairHours
	case "lost_hours":
		return &c.LostHours
	case "available":
		return &c.Available
	case "limit_gpus":
		return &c.LimitGPUs
	case "probability":
		return &c.Probability
	case "lead_time_hours":
		return &c.LeadHours
	case "power_kw":
		return &c.PowerKW
	case "pue":
		return &c.PUE
	case "tariff_kwh":
		return &c.TariffKWh
	case "space_monthly":
		return &c.SpaceMonth
	case "network_monthly":
		return &c.NetworkMonth
	case "support_monthly":
		return &c.SupportMonth
	case "salvage":
		return &c.Salvage
	}
	return nil
}

// check finds contradictions between the fields of a change.
func (c *Change) check(e entry) {
	if c.When != 0 && c.Until != 0 && c.Until <= c.When {
		e.fault("until", "is not after when")
	}
	switch c.Kind {
	case ModelLaunch:
		if c.Region == "" && c.Cluster == "" && e.ok {
			e.r.fault(e.n, e.path, "lacks region or cluster, where it is launched")
		}
	case ProviderOutage:
		if c.Region == "" && c.Provider == "" && e.ok {
			e.r.fault(e.n, e.path, "lacks region or provider, what becomes unavailable")
		}
	case PriceChange:
		if c.Hourly != nil && c.Probability != nil {
			e.fault("probability", "is for a factor: write the price as a factor of what it was")
		}
	case DeploymentChange:
		if e.has("removed") && !c.Removed {
			e.fault("removed", "is false: give replicas or factor instead")
		}
	case Renewal:
		switch {
		case e.has("end") && !c.End:
			e.fault("end", "is false: give hourly or factor instead")
		case c.End && (c.Term != 0 || c.Units != nil):
			e.fault("end", "contradicts term_months and units: what ends has none")
		case !c.End && c.Term == 0 && e.ok:
			e.r.fault(e.n, e.path, "lacks term_months, the length of the renewal")
		}
	case SpotInterruption:
		if c.PerUnitHour == nil && c.Available == nil && e.ok {
			e.r.fault(e.n, e.path, "lacks per_unit_hour or available")
		}
	case NewOffer:
		owned, committed := c.OfferKind == string(domain.OfferOwned),
			c.OfferKind != string(domain.OfferOnDemand) && c.OfferKind != string(domain.OfferSpot)
		for _, f := range []string{"power_kw", "pue", "tariff_kwh", "space_monthly", "network_monthly",
			"support_monthly", "salvage"} {
			if e.has(f) && !owned {
				e.fault(f, "is for owned hardware, this offer is %q", c.OfferKind)
			}
		}
		switch {
		case committed && c.Term == 0 && e.ok && c.OfferKind != "":
			e.r.fault(e.n, e.path, "lacks term_months, the term of a purchase")
		case !committed && c.Term != 0:
			e.fault("term_months", "contradicts offer_kind %s, which has no term", c.OfferKind)
		case c.Hourly == nil && c.Upfront == nil && e.ok:
			e.r.fault(e.n, e.path, "lacks a price: hourly, upfront or both")
		case c.MaxUnits > 0 && c.MinUnits > c.MaxUnits:
			e.fault("min_units", "is more than max_units")
		}
	case FXChange:
		if c.Base != "" && c.Base == c.Quote {
			e.fault("quote", "is the same as base")
		}
	}
}
