package registry

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"

	"github.com/shopspring/decimal"
)

// Stage is how far a recommendation is.
type Stage string

// The stages of a recommendation.
const (
	StageProposed  Stage = "proposed"  // it waits for approvals
	StageApproved  Stage = "approved"  // by as many as it needs; it waits to be carried out
	StageRejected  Stage = "rejected"  // by an approver
	StageWithdrawn Stage = "withdrawn" // it is taken back, with the commands that are not carried out
	StageLapsed    Stage = "lapsed"    // it expired, was superseded, or what it rests on changed: it must be proposed again
	StageIssued    Stage = "issued"    // clusters have commands that are not carried out yet
	StageActuated  Stage = "actuated"  // every cluster said what it did
	StageMeasured  Stage = "measured"  // its outcome is known
)

// Proposal is a recommendation in the log, as it was proposed last, and how it went on.
type Proposal struct {
	Recommendation string          `json:"recommendation"`
	Workspace      string          `json:"workspace"`
	Kind           string          `json:"kind"`
	Stage          Stage           `json:"stage"`
	Reason         string          `json:"reason,omitempty"` // why it lapsed, or what whoever rejected or withdrew it says
	Clusters       []string        `json:"clusters"`
	Summary        string          `json:"summary"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	Cost           domain.Money    `json:"cost"`
	Saving         *domain.Money   `json:"saving"` // a month
	SavingLow      *domain.Money   `json:"saving_low"`
	SavingHigh     *domain.Money   `json:"saving_high"`
	Requester      string          `json:"requester"`
	Proposed       domain.Instant  `json:"proposed"`
	Expires        domain.Instant  `json:"expires,omitempty"`
	Needs          int             `json:"needs"`  // approvers
	Limit          domain.Money    `json:"limit"`  // above which it needs two
	SetBy          string          `json:"set_by"` // the policy that says so, or default
	Approvals      []ProposalVoice `json:"approvals"`
	Commands       []Command       `json:"commands"`
	Actuations     []Actuation     `json:"actuations"`
	Outcome        *Outcome        `json:"outcome"`
	Supersedes     []string        `json:"supersedes"`
	Findings       []string        `json:"findings"`
	Position       string          `json:"figures_at,omitempty"` // position that its figures are of
	Method         string          `json:"method,omitempty"`     // none: a person wrote it
	Digest         string          `json:"digest"`               // SHA-256 of its canonical JSON, in hexadecimal: what approvals sign

	Made *domain.RecommendationMade `json:"-"`
	Last domain.Instant             `json:"-"` // the last approval that it needed; 0: it lacks some
}

// ProposalVoice is a valid approval.
type ProposalVoice struct {
	Operator string         `json:"operator"`
	Time     domain.Instant `json:"time"`
	Note     string         `json:"note,omitempty"`

	Partition int   `json:"-"` // of the record, which has the signature
	Offset    int64 `json:"-"`
}

// Command is what a cluster is told.
type Command struct {
	Command   string         `json:"command"`
	Cluster   string         `json:"cluster"`
	Issued    domain.Instant `json:"issued"`
	Expires   domain.Instant `json:"expires"`
	Result    string         `json:"result,omitempty"` // done, failed, refused; none: it was not acknowledged
	Reference string         `json:"reference,omitempty"`

	Event *domain.CommandIssued `json:"-"`
}

// Actuation is what somebody did for a recommendation.
type Actuation struct {
	Time      domain.Instant `json:"time"`
	Cluster   string         `json:"cluster,omitempty"`
	Command   string         `json:"command,omitempty"`
	Actor     string         `json:"actor"`
	Result    string         `json:"result"`
	Reference string         `json:"reference,omitempty"`
}

// Outcome is what came of a recommendation.
type Outcome struct {
	Time     domain.Instant  `json:"time"`
	Outcome  string          `json:"outcome"`
	Detail   string          `json:"detail,omitempty"`
	Actor    string          `json:"actor,omitempty"` // none: it was measured
	Measured *domain.Money   `json:"measured"`        // a month
	Window   domain.Interval `json:"window,omitzero"`
}

// CommandLife is how long after the approval a command may be carried out.
const CommandLife = 7 * domain.Day

// Manual reports whether people carry out a kind of recommendation: what buys or ends a contract.
func Manual(kind string) bool {
	return slices.Contains([]string{"purchase", "renew", "lapse", "own"}, kind)
}

// Carried reports whether everybody who had to carry it out said what they did.
func (p *Proposal) Carried() bool {
	if len(p.Actuations) == 0 {
		return false
	}
	for _, cluster := range p.Clusters {
		if !slices.ContainsFunc(p.Actuations, func(a Actuation) bool { return a.Cluster == cluster || a.Cluster == "" }) {
			return false
		}
	}
	return true
}

// Open reports whether a command may be carried out at a time.
func (p *Proposal) Open(c *Command, at domain.Instant) bool {
	return c.Result == "" && at < c.Expires && p.Stage == StageIssued
}

// twoAbove is the sum above which a recommendation needs two approvers where no policy says another.
var twoAbove = decimal.NewFromInt(100_000)

// Proposals returns the recommendations in the log at a time, the last proposed first. Decisions that are void do not count.
func Proposals(view projections.View, at domain.Instant) ([]Proposal, error) {
	auth, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	limits, err := approvalLimits(view, auth)
	if err != nil {
		return nil, err
	}
	all := []Proposal{}
	if err := view.Scan(projections.Query{Table: projections.TableRecommendations}, func(k projections.Key, row projections.Row) error {
		p, err := auth.proposal(k, row.(*projections.History), at, limits)
		if p != nil {
			all = append(all, *p)
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("read recommendations: %w", err)
	}
	supersede(all)
	slices.SortFunc(all, func(a, b Proposal) int {
		return cmp.Or(cmp.Compare(b.Proposed, a.Proposed), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Recommendation, b.Recommendation))
	})
	return all, nil
}

// supersede lets what a later recommendation replaces lapse, unless it was carried out or commands are under way.
func supersede(all []Proposal) {
	for i := range all {
		for j := range all {
			old := &all[j]
			if all[i].Workspace == old.Workspace && i != j && slices.Contains(all[i].Supersedes, old.Recommendation) &&
				all[i].Proposed >= old.Proposed && (old.Stage == StageProposed || old.Stage == StageApproved) {
				old.Stage, old.Reason = StageLapsed, "superseded by "+all[i].Recommendation
			}
		}
	}
}

// proposal reads a row; nil if nothing was proposed.
func (a *Authority) proposal(k projections.Key, h *projections.History, at domain.Instant, limits approvalLimitsAt) (*Proposal, error) {
	v := a.madeBefore(k, h, math.MaxInt64)
	if v == nil {
		return nil, nil
	}
	made := v.Event.(*domain.RecommendationMade)
	digest, err := made.Digest()
	if err != nil {
		return nil, err
	}
	p := &Proposal{
		Recommendation: made.Recommendation, Workspace: v.Workspace, Kind: made.Kind, Stage: StageProposed, Clusters: slices.Clone(made.Clusters),
		Summary: made.Summary, From: made.From, To: made.To, Cost: made.Cost, Requester: made.Requester, Proposed: v.Order.Effective,
		Expires: made.Expires, Supersedes: made.Supersedes, Findings: made.Findings, Position: made.Position, Method: made.Method, Digest: hex.EncodeToString(digest), Made: made,
		Approvals: []ProposalVoice{}, Commands: []Command{}, Actuations: []Actuation{},
	}
	if made.Saving.Currency != "" {
		p.Saving, p.SavingLow, p.SavingHigh = &made.Saving, &made.SavingLow, &made.SavingHigh
	}
	p.needs(limits(at))
	var no *projections.Version
	var people voters
	for i := range h.Versions {
		w := &h.Versions[i]
		if !after(w, v) || a.Judge(k, h, i) != "" {
			continue
		}
		switch ev := w.Event.(type) {
		case *domain.RecommendationApproved:
			if !people.add(w.Signer) {
				continue
			}
			p.Approvals = append(p.Approvals, ProposalVoice{
				Operator: w.Signer.Operator, Time: w.Signer.Time, Note: ev.Note, Partition: partitionOf(k, w), Offset: w.Signer.Offset,
			})
		case *domain.RecommendationRejected, *domain.RecommendationWithdrawn:
			no = w
		case *domain.CommandIssued:
			if !slices.ContainsFunc(p.Commands, func(c Command) bool { return c.Command == ev.Command }) && a.enough(k, h, p, w, limits) {
				p.Commands = append(p.Commands, Command{Command: ev.Command, Cluster: ev.Cluster, Issued: w.Order.Effective, Expires: ev.Expires, Event: ev})
			}
		case *domain.RecommendationActuated:
			p.actuate(w, ev)
		case *domain.OutcomeRecorded:
			if p.Outcome == nil {
				p.Outcome = &Outcome{Time: w.Order.Effective, Outcome: ev.Outcome, Detail: ev.Detail, Actor: ev.Actor, Window: ev.Window}
				if ev.Measured.Currency != "" {
					p.Outcome.Measured = &ev.Measured
				}
			}
		}
	}
	slices.SortFunc(p.Approvals, func(x, y ProposalVoice) int { return cmp.Compare(x.Offset, y.Offset) })
	slices.SortFunc(p.Commands, func(x, y Command) int { return strings.Compare(x.Cluster, y.Cluster) })
	if len(p.Approvals) >= p.Needs {
		p.Last = p.Approvals[p.Needs-1].Time
	}
	p.stage(no, at)
	return p, nil
}

func partitionOf(k projections.Key, v *projections.Version) int {
	if v.Record != nil {
		return int(v.Record.Partition)
	}
	return domain.PartitionOf([]byte(k.Scope), k.Table.Topic().Partitions())
}

// actuate adds what somebody did. The first word about a command counts.
func (p *Proposal) actuate(v *projections.Version, ev *domain.RecommendationActuated) {
	did := Actuation{
		Time: v.Order.Time, Cluster: ev.Cluster, Command: ev.Command, Actor: ev.Actor, Result: cmp.Or(ev.Result, "done"), Reference: ev.Reference,
	}
	if slices.ContainsFunc(p.Actuations, func(x Actuation) bool { return x.Cluster == did.Cluster && x.Command == did.Command }) {
		return
	}
	p.Actuations = append(p.Actuations, did)
	for i := range p.Commands {
		// Whoever carries a command out by hand may not know its id.
		if c := &p.Commands[i]; c.Result == "" && (c.Command == did.Command || did.Command == "" && c.Cluster == did.Cluster) {
			c.Result, c.Reference = did.Result, did.Reference
		}
	}
}

func (p *Proposal) stage(no *projections.Version, at domain.Instant) {
	switch {
	case p.Outcome != nil:
		p.Stage = StageMeasured
	case p.Carried():
		p.Stage = StageActuated
	case no != nil:
		switch ev := no.Event.(type) {
		case *domain.RecommendationRejected:
			p.Stage, p.Reason = StageRejected, ev.Note
		case *domain.RecommendationWithdrawn:
			p.Stage, p.Reason = StageWithdrawn, ev.Reason
		}
	case len(p.Commands) > 0 || len(p.Actuations) > 0:
		p.Stage = StageIssued
		if !slices.ContainsFunc(p.Commands, func(c Command) bool { return c.Result != "" || at < c.Expires }) && len(p.Actuations) == 0 {
			p.Stage, p.Reason = StageLapsed, "its commands ended without an answer"
		}
	case p.Expires != 0 && at >= p.Expires:
		p.Stage, p.Reason = StageLapsed, "it expired"
	case p.Last != 0 && !Manual(p.Kind) && at >= p.Last+CommandLife:
		p.Stage, p.Reason = StageLapsed, "its commands were not issued in time"
	case p.Last != 0:
		p.Stage = StageApproved
	}
}

// approvalLimit is a valid policy of kind second_approval.
type approvalLimit struct {
	workspace, setBy string
	above            domain.Money
}

// approvalLimitsAt returns the policies that are valid at a time.
type approvalLimitsAt func(domain.Instant) []approvalLimit

// approvalLimits reads the policies of kind second_approval, of all times.
func approvalLimits(view projections.View, auth *Authority) (approvalLimitsAt, error) {
	type policy struct {
		k projections.Key
		h *projections.History
	}
	var policies []policy
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		if slices.ContainsFunc(h.Versions, func(v projections.Version) bool {
			e, ok := v.Event.(*domain.PolicySet)
			return ok && e.Kind == domain.PolicySecondApproval
		}) {
			policies = append(policies, policy{k, h})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return func(at domain.Instant) (limits []approvalLimit) {
		for _, p := range policies {
			v := auth.At(p.k, p.h, at)
			if v == nil {
				continue
			}
			e, ok := v.Event.(*domain.PolicySet)
			if _, over := ends(v.Event, at); !ok || over || e.Kind != domain.PolicySecondApproval {
				continue
			}
			if above, err := domain.ParseMoney(e.Value); err == nil {
				limits = append(limits, approvalLimit{v.Workspace, v.Workspace + "/" + e.Policy, above})
			}
		}
		return limits
	}, nil
}

// needs says how many approvers a recommendation needs: two if its cost, or its saving a month, is above the least limit of
// its workspace and the root's in that currency. A saving counts because a wrong one loses as much.
func (p *Proposal) needs(limits []approvalLimit) {
	p.Needs = 1
	amounts := []domain.Money{p.Cost}
	if p.Saving != nil {
		amounts = append(amounts, *p.Saving)
	}
	for _, amount := range amounts {
		if amount.Currency == "" {
			continue
		}
		limit, setBy := twoAbove, "default"
		for _, l := range limits {
			if l.above.Currency != amount.Currency || l.workspace != p.Workspace && l.workspace != platform {
				continue
			}
			if setBy == "default" || l.above.Amount.LessThan(limit) {
				limit, setBy = l.above.Amount, l.setBy
			}
		}
		if p.SetBy == "" || amount.Amount.GreaterThan(limit) {
			p.Limit, p.SetBy = domain.Money{Amount: limit, Currency: amount.Currency}, setBy
		}
		if amount.Amount.GreaterThan(limit) {
			p.Needs = 2
		}
	}
}

// platform is the workspace whose policies are about all.
const platform = "platform"
