package projections

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// LeafExplanation traces a leaf to the line that it is a part of, to what its
// part was measured by, and to the decisions and versions that divided it.
type LeafExplanation struct {
	CostLeaf
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Methods  CostMethods     `json:"methods"`
	Policies []CostPolicy    `json:"policies"`
	// The leaf gets Weight of Of of its line. Of bounds what all leaves of the
	// line weigh.
	Weight     attribution.Amount `json:"weight"`
	Of         attribution.Amount `json:"of"`
	WeightUnit string             `json:"weight_unit"` // gpu_ms, money, share or whole
	Why        []string           `json:"why"`         // the class, the rung and the weight, in words
	// Interval is the part of the charge period that the leaf is for.
	Interval domain.Interval `json:"interval"`
	// Usage is what the weight was measured on: the time under the leaf's key of
	// the machines that its rung leads to. It is empty where the weight is no
	// GPU time.
	Usage []LeafUsage `json:"usage"`

	// Charge is the line as the supplier wrote it, nil for a bridge, which is no
	// supplier's.
	Charge *domain.BillingLine `json:"charge"`
	Whole  *LeafLine           `json:"whole"`
	Event  *LedgerEvent        `json:"event"` // that recorded the line, or for a bridge the invoice

	Invoice   *InvoiceTie            `json:"invoice_tie"`
	Statement *attribution.Statement `json:"statement"` // that the leaf is in, rounded once
	Completeness
}

// LeafLine is what attribution made of a line.
type LeafLine struct {
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
	Leaves    int                `json:"leaves"`
	Corrects  string             `json:"corrects,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	Stated    int                `json:"stated"` // how often; the last statement counts
}

// LeafUsage is the time of one machine under a leaf's key.
type LeafUsage struct {
	Cluster    string `json:"cluster"`
	Node       string `json:"node"`
	Resource   string `json:"resource_id"`
	SKU        string `json:"sku"`
	Registered bool   `json:"registered"`
	GPUMs      int64  `json:"gpu_ms"`
	UsefulMs   int64  `json:"useful_gpu_ms"`
}

// ErrNoLeaf is returned for a leaf that a division does not have. The text says
// what there is instead.
var ErrNoLeaf = errors.New("no such leaf")

// bridgePrefix begins the id of the line that attribution makes up for the
// rounding of an invoice.
const bridgePrefix = "invoice:"

// ExplainLeaf divides the month that a leaf is of, and explains the leaf.
func ExplainLeaf(view View, ref attribution.Ref) (*LeafExplanation, error) {
	x := &LeafExplanation{Position: view.Position().String(), Methods: costMethods, Why: []string{}, Usage: []LeafUsage{}}
	if err := x.find(view, ref); err != nil {
		return nil, err
	}
	b, err := openBooks(view, x.Month)
	if err != nil {
		return nil, err
	}
	var leaf *attribution.Leaf
	var line attribution.Line
	x.Whole = cmp.Or(x.Whole, &LeafLine{})
	others := []string{}
	result, err := b.divide(func(l *attribution.Leaf) error {
		if l.Line.ID != ref.Line || l.Line.Account != ref.Account || l.Line.Issuer != ref.Issuer {
			return nil
		}
		x.Whole.Billed, x.Whole.Effective = x.Whole.Billed.Add(l.Billed), x.Whole.Effective.Add(l.Effective)
		x.Whole.Leaves++
		if l.Hour == ref.Hour && l.Component == ref.Component && l.Workspace == ref.Workspace && l.Cluster == ref.Cluster && l.Deployment == ref.Deployment {
			kept := *l
			line = *l.Line
			leaf, kept.Line = &kept, &line
		} else if len(others) < offeredLeaves {
			others = append(others, l.Ref())
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case leaf == nil && x.Whole.Leaves == 0:
		return nil, fmt.Errorf("%w: line %q cannot be divided, see the exceptions of %s", ErrNoLeaf, ref.Line, x.Month.From.Time().Format("2006-01"))
	case leaf == nil:
		return nil, fmt.Errorf("%w: line %q has %d leaves, such as\n  %s", ErrNoLeaf, ref.Line, x.Whole.Leaves, strings.Join(others, "\n  "))
	}
	x.CostLeaf = costLeaf(leaf)
	x.Policies, x.Weight, x.Of = b.policies, leaf.Weight, leaf.Of
	x.Interval = line.ChargePeriod
	if x.Interval.Empty() {
		x.Interval = x.Month
	}
	if leaf.Hour != 0 {
		x.Interval = x.Interval.Intersect(domain.Interval{From: leaf.Hour, To: leaf.Hour + domain.Hour})
	}
	ties := b.ties(result)
	for i := range ties {
		t := &ties[i]
		if t.Issuer == line.Issuer && t.Account == line.Account && t.Invoice == line.Invoice && t.Currency == line.Currency && (t.Invoice != "" || t.Period == line.BillingPeriod) {
			x.Invoice = t
		}
	}
	for i := range result.Statements {
		s := &result.Statements[i]
		if x.Invoice != nil && s.Workspace == leaf.Workspace && s.Issuer == x.Invoice.Issuer && s.Account == x.Invoice.Account && s.Invoice == x.Invoice.Invoice && s.Currency == x.Invoice.Currency && s.Period == x.Invoice.Period {
			x.Statement = s
		}
	}
	x.reasons(leaf)
	if x.WeightUnit == "gpu_ms" {
		if err := x.measure(b, leaf); err != nil {
			return nil, err
		}
	}
	x.Completeness, err = completeness(view, "", costTopics...)
	return x, err
}

// offeredLeaves is how many leaves an error lists.
const offeredLeaves = 8

// find looks up the line of a leaf, and so the month.
func (x *LeafExplanation) find(view View, ref attribution.Ref) error {
	scope := domain.AccountKey(ref.Issuer, ref.Account)
	if id, bridge := strings.CutPrefix(ref.Line, bridgePrefix); bridge {
		k := Key{Table: TableInvoices, Scope: scope, ID: id}
		row, err := view.Get(k)
		if err != nil {
			return fmt.Errorf("read invoice %q: %w", id, err)
		}
		if h, ok := row.(*History); ok {
			v := h.Latest()
			event := ledgerEvent(k, v)
			x.Month, x.Event = MonthOf(v.Event.(*domain.InvoiceReceived).BillingPeriod), &event
			return nil
		}
	}
	line, err := findLine(view, ref.Issuer, ref.Account, ref.Line)
	if err != nil {
		return err
	}
	if line != nil {
		x.Month, x.Event, x.Charge = MonthOf(line.Period()), &line.Event, &line.BillingLine
		x.Whole = &LeafLine{Corrects: line.Corrects, Reason: line.Reason, Stated: line.Stated}
		return nil
	}
	// Say what there is, at the first step that leads nowhere.
	accounts, lines := []string{}, 0
	var some []string
	err = view.Scan(Query{Table: TableBillingLines}, func(k Key, _ Row) error {
		if n := len(accounts); n == 0 || accounts[n-1] != k.Scope {
			accounts = append(accounts, k.Scope)
		}
		if k.Scope == scope {
			if lines++; len(some) < offeredLeaves {
				some = append(some, k.ID)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read billing lines: %w", err)
	case len(accounts) == 0:
		return fmt.Errorf("%w: there is no billing line yet", ErrNoLeaf)
	case lines == 0:
		return fmt.Errorf("%w: no line of issuer %q and account %q; there are: %s", ErrNoLeaf, ref.Issuer, ref.Account, strings.Join(accounts[:min(len(accounts), offeredLeaves)], ", "))
	}
	return fmt.Errorf("%w: issuer %q and account %q have %d lines and none is %q; such as %s", ErrNoLeaf, ref.Issuer, ref.Account, lines, ref.Line, strings.Join(some, ", "))
}

var classReasons = map[attribution.Class]string{
	attribution.Committed: "committed: it is for a commitment, its unused part, or what it covered",
	attribution.OnDemand:  "on_demand: usage of a machine that no commitment covered",
	attribution.Spot:      "spot: PricingCategory is Dynamic",
	attribution.Owned:     "owned: an internal charge for hardware of one's own",
	attribution.Shared:    "shared: it is for no machine",
	attribution.Credit:    "credit: it follows what it is a credit for",
	attribution.Tax:       "tax: it follows what it is a tax on",
	attribution.Rounding:  "rounding: it makes up for the supplier's rounding",
}

// reasons says in words what decided.
func (x *LeafExplanation) reasons(l *attribution.Leaf) {
	line := l.Line
	x.Why = append(x.Why, "class "+classReasons[line.Class])
	follows := false
	switch l.Rung {
	case attribution.ByResource:
		x.Why = append(x.Why, fmt.Sprintf("rung by_resource: ResourceId %q names machines of account %s", line.Resource, line.Account))
	case attribution.ByPool:
		x.Why = append(x.Why, fmt.Sprintf("rung by_pool: it is for machines of account %s of type %q in region %q", line.Account, line.SKU, line.Region))
	case attribution.ByAccount:
		x.Why = append(x.Why, fmt.Sprintf("rung by_account: it is shared by all machines of account %s, over the charge period as a whole", line.Account))
	case attribution.ByCommitment:
		x.Why = append(x.Why, fmt.Sprintf("rung by_commitment: it belongs to commitment %q", line.Commitment))
		follows = l.Component != attribution.UnusedCommitment && l.Component != attribution.Prepaid || line.Category == "Purchase" && line.Recurring && l.Of != attribution.Whole(1)
	case attribution.ByFollowing:
		if l.Component == attribution.Bridge {
			x.Why = append(x.Why, "rung by_following: the invoice and its lines differ by the rounding of the invoice")
		} else {
			x.Why = append(x.Why, "rung by_following: it follows the charges of its resource, else of its invoice detail, its invoice, or its account")
			follows = true
		}
	default:
		x.Why = append(x.Why, "rung by_nothing: nothing was found that it could be for, and the platform carries it")
	}
	switch {
	case l.Rung == attribution.ByResource || l.Rung == attribution.ByPool || l.Rung == attribution.ByAccount:
		x.WeightUnit = "gpu_ms"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s of %s GPU milliseconds in the charge period were %s", l.Weight, l.Of, held(l)))
	case follows:
		x.WeightUnit = "money"
		x.Why = append(x.Why, fmt.Sprintf("weight: what it follows cost %s %s, of which %s for this", l.Of, line.Currency, l.Weight))
	case l.Component == attribution.UnusedCommitment && l.Of != l.Weight:
		x.WeightUnit = "share"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s sponsors %s of the commitment, as fixed at its purchase", l.Workspace, l.Weight))
	default:
		x.WeightUnit = "whole"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s carries all of it", l.Workspace))
	}
}

// held says what became of the time that a leaf is for.
func held(l *attribution.Leaf) string {
	switch l.Component {
	case attribution.Allocated:
		return "held by " + l.Workspace
	case attribution.Unseen:
		return "bought beyond what was in service"
	default:
		return l.Component.String()
	}
}

// measure lists the machines that the weight of a leaf was measured on.
func (x *LeafExplanation) measure(b *books, l *attribution.Leaf) error {
	named := map[string]bool{} // resources that other lines of the account name
	if l.Rung == attribution.ByPool && b.policy.Discount == attribution.AsSupplied {
		err := EachLine(b.view, b.month, func(o *LedgerLine) error {
			if o.BillingAccountID == l.Line.Account && o.ResourceID != "" {
				named[o.ResourceID] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	candidate := func(n *attribution.Node) bool {
		if n.Cluster != l.Cluster {
			return false
		}
		switch l.Rung {
		case attribution.ByResource:
			return n.Account == l.Line.Account && n.Resource == l.Line.Resource
		case attribution.ByPool:
			return n.Account == l.Line.Account && n.SKU == l.Line.SKU && (l.Line.Region == "" || n.Region == l.Line.Region) && !named[n.Resource]
		default:
			return n.Account == l.Line.Account
		}
	}
	usage := map[int]*LeafUsage{}
	err := b.usage([]domain.Interval{x.Interval}, func(h *attribution.NodeHour) error {
		n := &b.nodes[h.Node]
		if !candidate(n) {
			return nil
		}
		for i := range h.Parts {
			p := &h.Parts[i]
			if p.Component != l.Component || l.Component == attribution.Allocated && (p.Workspace != l.Workspace || p.Deployment != l.Deployment) {
				continue
			}
			u := usage[h.Node]
			if u == nil {
				u = &LeafUsage{Cluster: n.Cluster, Node: n.Node, Resource: n.Resource, SKU: n.SKU, Registered: n.Registered}
				usage[h.Node] = u
			}
			u.GPUMs += p.GPUMs
			u.UsefulMs += p.UsefulMs
		}
		return nil
	})
	if err != nil {
		return err
	}
	var sum int64
	for _, i := range slices.Sorted(maps.Keys(usage)) {
		x.Usage = append(x.Usage, *usage[i])
		sum += usage[i].GPUMs
	}
	if weight := attribution.Whole(sum); len(x.Usage) > 0 && weight != l.Weight {
		x.Why = append(x.Why, fmt.Sprintf("usage: the machines listed add up to %d GPU milliseconds. The weight is another where a unit takes a larger share of CPU or memory than of GPUs, where the charge period takes a part of an hour, and where another line is for a machine of the pool", sum))
	}
	return nil
}
