package advice

import (
	"time"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// RuleID names a rule. It never changes its meaning.
type RuleID string

// The rules.
const (
	UtilizationDay   RuleID = "utilization-day"
	UtilizationWeek  RuleID = "utilization-week"
	ProviderCost     RuleID = "provider-cost"
	TierMismatch     RuleID = "tier-mismatch"
	Routing          RuleID = "routing"
	Shadow           RuleID = "shadow"
	Unseen           RuleID = "unseen"
	KVCache          RuleID = "kv-cache"
	QueueWait        RuleID = "queue-wait"
	FirstToken       RuleID = "first-token"
	Oversized        RuleID = "oversized"
	OwnInstead       RuleID = "own-instead"
	UnusedCommitment RuleID = "commitment-unused"
	CommitmentEnds   RuleID = "commitment-ends"
	NoticeDue        RuleID = "notice-due"
	Quota            RuleID = "quota"
	Budget           RuleID = "budget"
	Failures         RuleID = "failures"
	SpotLosses       RuleID = "spot-interruptions"
	CostAnomaly      RuleID = "cost-anomaly"
	IdleWindow       RuleID = "idle-window"
	Evidence         RuleID = "evidence"
)

// Unit is what a rule measures in.
type Unit string

// The units.
const (
	Share   Unit = "share"   // of 1, shown in percent
	Count   Unit = "count"   // of what the rule counts
	Days    Unit = "days"    // until something is due
	Hours   Unit = "hours"   // of a day
	Micros  Unit = "micros"  // microseconds
	Chance  Unit = "chance"  // probability of a figure at least as extreme
	Percent Unit = "percent" // of what is allowed: 100 is all of it
)

// Side says on which side of its threshold a value is a finding.
type Side string

// The sides.
const (
	Above Side = "above" // more than the threshold
	Below Side = "below" // less than the threshold
	Least Side = "least" // the threshold or more
)

// Rule is one rule, with the threshold that holds unless a policy of kind advice_threshold sets another.
type Rule struct {
	ID        RuleID          `json:"rule"`
	Version   uint32          `json:"version"`
	Title     string          `json:"title"`
	Severity  domain.Severity `json:"severity"`
	Unit      Unit            `json:"unit"`
	Side      Side            `json:"side"`
	Threshold decimal.Decimal `json:"threshold"`
	// Margin is how far beyond the threshold, as a share of it, a value must come back for its incident to close.
	Margin decimal.Decimal `json:"margin"`
	// Coverage is the least share of telemetry that a value needs; 0: it needs none.
	Coverage decimal.Decimal `json:"coverage"`
	// Window is the time that a value is of. A figure of a window has lasted for it, so no finding is of a moment.
	Window Span `json:"window"`
	// Family groups rules whose findings have a common cause: see [Correlate].
	Family Family `json:"family"`
	Source string `json:"source"` // of the threshold
	Action string `json:"action"` // what ends it
}

// Span is a length of time. Its text is that of [time.Duration], as 168h0m0s.
type Span domain.Instant

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// Family groups rules: findings of one family about parts of a whole may have one cause.
type Family string

// The families.
const (
	FamilyUse       Family = "use"       // how busy clusters are
	FamilyWaste     Family = "waste"     // what somebody holds and does not need
	FamilyCost      Family = "cost"      // what it costs
	FamilyServing   Family = "serving"   // how requests are served
	FamilyPlacement Family = "placement" // what should run where
	FamilyLimits    Family = "limits"    // quotas, budgets and commitments
	FamilyFailure   Family = "failure"   // machines that fail or are silent, and what is not known
)

func ratio(permille int64) decimal.Decimal { return decimal.New(permille, -3) }

// chance is the probability that a rule of chance reacts to: outside 99%, on one side, for all subjects together.
var chance = decimal.New(5, -3)

// Rules returns every rule, in the order in which reports show them.
func Rules() []Rule {
	const (
		hour = domain.Hour
		day  = domain.Day
	)
	return []Rule{
		{
			ID: UtilizationDay, Version: 1, Title: "mean SM activity of a cluster over a day", Severity: domain.SeverityWarning, Unit: Share, Side: Below,
			Threshold: ratio(450), Margin: ratio(50), Coverage: ratio(800), Window: Span(day), Family: FamilyUse,
			Source: "operators' practice: below 45% a cluster is not worth its price",
			Action: "move work to it, or give machines back",
		},
		{
			ID: UtilizationWeek, Version: 1, Title: "mean SM activity of a cluster over 7 days", Severity: domain.SeverityWarning, Unit: Share, Side: Below,
			Threshold: ratio(450), Margin: ratio(50), Coverage: ratio(800), Window: Span(7 * day), Family: FamilyUse,
			Source: "as over a day; a week has every day's course in it",
			Action: "move work to it, or give machines back",
		},
		{
			ID: ProviderCost, Version: 1, Title: "cost per useful GPU-hour of a provider above the fleet's, for the same GPU model and class",
			Severity: domain.SeverityWarning, Unit: Share, Side: Above, Threshold: ratio(200), Margin: ratio(100), Coverage: ratio(800), Window: Span(30 * day),
			Family: FamilyCost, Source: "operators' practice: 20% above the fleet's mean", Action: "shift work, or renegotiate",
		},
		{
			ID: TierMismatch, Version: 1, Title: "share of devices with SM activity below 40%", Severity: domain.SeverityWarning, Unit: Share, Side: Above,
			Threshold: ratio(150), Margin: ratio(100), Coverage: ratio(800), Window: Span(day), Family: FamilyUse,
			Source: "operators' practice: more than 15% of devices below 40% means that work is on the wrong tier",
			Action: "place that work on smaller GPUs or slices",
		},
		{
			ID: Routing, Version: 1, Title: "spread of a model's time to first token over clusters, p50 and p95: a routing problem",
			Severity: domain.SeverityWarning, Unit: Share, Side: Above, Threshold: ratio(250), Margin: ratio(100), Coverage: ratio(0), Window: Span(day),
			Family: FamilyServing, Source: "standard deviation above 25% of the mean; the project's own",
			Action: "change region weights",
		},
		{
			ID: Shadow, Version: 1, Title: "deployment that runs and is not declared", Severity: domain.SeverityWarning, Unit: Count, Side: Above,
			Threshold: ratio(0), Window: Span(hour), Family: FamilyPlacement, Source: "any", Action: "declare it, or end it",
		},
		{
			ID: Unseen, Version: 1, Title: "declared deployment that nobody sees", Severity: domain.SeverityWarning, Unit: Count, Side: Above,
			Threshold: ratio(0), Window: Span(hour), Family: FamilyPlacement, Source: "any, for longer than a deployment may go unseen",
			Action: "start it, or remove its declaration",
		},
		{
			ID: KVCache, Version: 2, Title: "KV cache in use", Severity: domain.SeverityCritical, Unit: Share, Side: Above,
			Threshold: ratio(900), Margin: ratio(50), Window: Span(domain.QuarterHour), Family: FamilyServing,
			Source: "operators' practice: above 90% requests are preempted", Action: "add replicas, or shift requests",
		},
		{
			ID: QueueWait, Version: 2, Title: "p95 of the wait in a model server's queue", Severity: domain.SeverityCritical, Unit: Micros, Side: Above,
			Threshold: decimal.New(1000000, 0), Margin: ratio(100), Window: Span(domain.QuarterHour), Family: FamilyServing,
			Source: "1 s, unless a policy sets the budget of the class", Action: "add replicas, or shift requests",
		},
		{
			ID: FirstToken, Version: 2, Title: "p95 of the time to first token", Severity: domain.SeverityCritical, Unit: Micros, Side: Above,
			Threshold: decimal.New(2000000, 0), Margin: ratio(100), Window: Span(domain.QuarterHour), Family: FamilyServing,
			Source: "2 s, unless a policy sets the budget of the class", Action: "add replicas, or shift requests",
		},
		{
			ID: Oversized, Version: 1, Title: "deployment that fits a slice or a smaller GPU with headroom: the part of its GPU that it does not need",
			Severity: domain.SeverityInfo, Unit: Share, Side: Above, Threshold: ratio(0), Margin: ratio(0), Coverage: ratio(800), Window: Span(7 * day), Family: FamilyWaste,
			Source: "the smallest slice that has the peak memory and the mean activity with 20% headroom", Action: "give it the slice",
		},
		{
			ID: OwnInstead, Version: 1, Title: "share of the term at which owning costs as much as renting, below what is used", Severity: domain.SeverityInfo, Unit: Share,
			Side: Above, Threshold: ratio(0), Margin: ratio(0), Coverage: ratio(800), Window: Span(30 * day), Family: FamilyCost,
			Source: "break-even utilization of the offers at hand", Action: "plan with owned hardware",
		},
		{
			ID: UnusedCommitment, Version: 1, Title: "unused share of a commitment over 7 days", Severity: domain.SeverityWarning, Unit: Share, Side: Above,
			Threshold: ratio(50), Margin: ratio(100), Window: Span(7 * day), Family: FamilyLimits, Source: "more than 5%",
			Action: "move work under it, sell it, or let it lapse",
		},
		{
			ID: CommitmentEnds, Version: 1, Title: "days until a commitment ends", Severity: domain.SeverityInfo, Unit: Days, Side: Below,
			Threshold: decimal.New(90, 0), Window: Span(day), Family: FamilyLimits, Source: "90, 30 and 7 days before: info, warning, critical",
			Action: "renew it, replace it, or let it lapse",
		},
		{
			ID: NoticeDue, Version: 1, Title: "days until the last day of notice", Severity: domain.SeverityInfo, Unit: Days, Side: Below,
			Threshold: decimal.New(90, 0), Window: Span(day), Family: FamilyLimits, Source: "90, 30 and 7 days before: info, warning, critical",
			Action: "give notice, or decide to renew",
		},
		{
			ID: Quota, Version: 1, Title: "use of a workspace's quota", Severity: domain.SeverityWarning, Unit: Percent, Side: Least,
			Threshold: decimal.New(80, 0), Margin: ratio(50), Window: Span(day), Family: FamilyLimits,
			Source: "80% and 100%: warning, critical", Action: "raise the quota, or use less",
		},
		{
			ID: Budget, Version: 1, Title: "use of a budget, actual or forecast", Severity: domain.SeverityWarning, Unit: Percent, Side: Least,
			Threshold: decimal.New(80, 0), Margin: ratio(50), Window: Span(30 * day), Family: FamilyLimits,
			Source: "80% and 100%: warning, critical", Action: "spend less, or grant more",
		},
		{
			ID: Failures, Version: 1, Title: "interruptions of a node, a GPU model or a provider, more than 99% of the posterior allows",
			Severity: domain.SeverityCritical, Unit: Chance, Side: Below, Threshold: chance, Margin: decimal.New(1, 0), Window: Span(7 * day), Family: FamilyFailure,
			Source: "prior of one interruption per 50,000 GPU-hours (419 in 54 days on 16,384 GPUs), updated by the fleet's own",
			Action: "drain and replace; claim the outage",
		},
		{
			ID: SpotLosses, Version: 1, Title: "spot interruptions, more than the plan assumed", Severity: domain.SeverityWarning, Unit: Chance, Side: Below,
			Threshold: chance, Margin: decimal.New(1, 0), Window: Span(7 * day), Family: FamilyFailure,
			Source: "the rate of the plan for that time, within 99%", Action: "plan again with the rate that was seen",
		},
		{
			ID: CostAnomaly, Version: 1, Title: "cost of a workspace's component in a region, outside 99% of its weekly course", Severity: domain.SeverityWarning,
			Unit: Chance, Side: Below, Threshold: chance, Margin: decimal.New(1, 0), Window: Span(day), Family: FamilyCost,
			Source: "the same weekday of the 4 weeks before, and a fifth more or less; the project's own", Action: "find what changed, beside the month before",
		},
		{
			ID: IdleWindow, Version: 1, Title: "hours of the day that are idle on every day of 4 weeks", Severity: domain.SeverityInfo, Unit: Hours, Side: Least,
			Threshold: decimal.New(4, 0), Margin: ratio(0), Coverage: ratio(800), Window: Span(28 * day), Family: FamilyWaste,
			Source: "4 hours and more", Action: "let it sleep in that window",
		},
		{
			ID: Evidence, Version: 1, Title: "what is not known: silent collectors, dropped samples, gaps, quarantine, clocks, late imports",
			Severity: domain.SeverityWarning, Unit: Count, Side: Above, Threshold: ratio(0), Window: Span(hour), Family: FamilyFailure,
			Source: "any, as fleet and log stats show them", Action: "mend the collector, or resolve the gap",
		},
	}
}

// RuleOf returns the rule with an id.
func RuleOf(id RuleID) (Rule, bool) {
	for _, r := range Rules() {
		if r.ID == id {
			return r, true
		}
	}
	return Rule{}, false
}
