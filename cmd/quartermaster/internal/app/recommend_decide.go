package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/recommend"
	"quartermaster/domain/recommend/house"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ApprovalLife is how long after it was proposed a recommendation can be approved, where it says nothing else.
const ApprovalLife = 14 * domain.Day

// ProposedQuery selects recommendations in the log.
type ProposedQuery struct {
	At        domain.Instant // 0: now
	Workspace string
	Stage     registry.Stage
	Kind      string
}

// Proposed are the recommendations in the log.
type Proposed struct {
	Position  string              `json:"position"`
	At        domain.Instant      `json:"at"`
	Proposals []registry.Proposal `json:"proposals"` // the last proposed first
}

// Proposed returns the recommendations in the log, and how far each is.
func (c *Caller) Proposed(ctx context.Context, at At, q ProposedQuery) (ans *Proposed, err error) {
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		ans = &Proposed{Position: v.Position().String(), At: about}
		if ans.Proposals, err = registry.Proposals(v, about); err != nil {
			return err
		}
		ans.Proposals = slices.DeleteFunc(ans.Proposals, func(p registry.Proposal) bool {
			return q.Workspace != "" && p.Workspace != q.Workspace || q.Stage != "" && p.Stage != q.Stage || q.Kind != "" && p.Kind != q.Kind
		})
		if len(ans.Proposals) == 0 {
			return (narrowed{workspace: q.Workspace}).empty(v)
		}
		return nil
	})
	return ans, err
}

// ProposalAnswer is one recommendation in the log.
type ProposalAnswer struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	registry.Proposal
}

// Proposal returns a recommendation in the log.
func (c *Caller) Proposal(ctx context.Context, at At, id string) (ans *ProposalAnswer, err error) {
	err = c.readFrom(ctx, at, 0, func(v projections.View, about domain.Instant) error {
		p, err := proposalNamed(v, about, id)
		if err == nil {
			ans = &ProposalAnswer{Position: v.Position().String(), At: about, Proposal: *p}
		}
		return err
	})
	return ans, err
}

// proposalNamed returns a recommendation in the log.
func proposalNamed(v projections.View, at domain.Instant, id string) (*registry.Proposal, error) {
	if id == "" {
		return nil, invalid("recommendation", "the id of the recommendation is empty")
	}
	all, err := registry.Proposals(v, at)
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range all {
		if all[i].Recommendation == id {
			return &all[i], nil
		}
		ids = append(ids, all[i].Recommendation)
	}
	return nil, among("recommendation", id, ids)
}

// ProposalDraft is a recommendation to propose.
type ProposalDraft struct {
	Made *domain.RecommendationMade
	// Already is how it stands in the log. Then nothing is to be appended.
	Already *registry.Proposal
	Draft   Draft
}

// ProposeRecommendation drafts one of the present recommendations. requester is the operator who will sign it.
func (c *Caller) ProposeRecommendation(ctx context.Context, id, requester string) (*ProposalDraft, error) {
	if id == "" {
		return nil, invalid("recommendation", "the id of the recommendation is empty")
	}
	var adv *recommend.Advice
	rules := map[string]advice.RuleID{} // by finding
	if err := c.readFrom(ctx, "", 0, func(v projections.View, about domain.Instant) error {
		e, err := c.estate(ctx, v, about)
		if err != nil {
			return err
		}
		for i := range e.Findings {
			rules[e.Findings[i].ID] = e.Findings[i].Rule
		}
		adv = recommend.Select(e, recommend.Make(e), house.Check)
		return nil
	}); err != nil {
		return nil, err
	}
	var ids []string
	for i := range adv.Made {
		r := &adv.Made[i]
		if ids = append(ids, r.ID); r.ID == id {
			for _, f := range r.Findings {
				if rule := rules[f]; rule != "" && !slices.Contains(r.Rules, rule) {
					r.Rules = append(r.Rules, rule)
				}
			}
			made, err := r.Made(adv.Position, requester, nil, nil)
			if err != nil {
				return nil, err
			}
			return c.draftProposal(ctx, r.Workspace, made)
		}
	}
	for i := range adv.Refused {
		if adv.Refused[i].ID == id {
			return nil, &ConflictError{Err: fmt.Errorf("recommendation %s is refused: %s", id, adv.Refused[i].Because)}
		}
	}
	return nil, among("recommendation", id, ids)
}

// ProposeWritten drafts a recommendation that a person wrote.
func (c *Caller) ProposeWritten(ctx context.Context, workspace string, made *domain.RecommendationMade) (*ProposalDraft, error) {
	made.Method, made.Position = "", "" // it is nobody's computation
	env := domain.Envelope{Time: Now(), Subject: made.Recommendation, Workspace: workspace, Event: made}
	if err := domain.Validate(&env); err != nil {
		return nil, &InvalidError{Err: err}
	}
	return c.draftProposal(ctx, workspace, made)
}

// draftProposal drafts a proposal, unless the same is proposed and waits.
func (c *Caller) draftProposal(ctx context.Context, workspace string, made *domain.RecommendationMade) (*ProposalDraft, error) {
	now := Now()
	if made.Expires == 0 {
		made.Expires = now + ApprovalLife
	} else if made.Expires <= now {
		return nil, invalid("expires", "%s is not in the future", made.Expires)
	}
	d := &ProposalDraft{Made: made}
	err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		if why, err := foreign(v, workspace, made); err != nil || why != "" {
			if err == nil {
				err = &ConflictError{Err: errors.New(why)}
			}
			return err
		}
		all, err := registry.Proposals(v, now)
		if err != nil {
			return err
		}
		for i := range all {
			p := &all[i]
			if p.Recommendation == made.Recommendation && p.Workspace != workspace {
				return &ConflictError{Err: fmt.Errorf("recommendation %s is of workspace %s", p.Recommendation, p.Workspace)}
			}
			switch waits := p.Stage == registry.StageProposed || p.Stage == registry.StageApproved || p.Stage == registry.StageIssued; {
			case !waits || p.Workspace != workspace:
			case p.Recommendation == made.Recommendation && made.Position == "" && !sameText(p.Made, made):
				// Approvals of what it says now would be void without a word to who gave them.
				return &ConflictError{Err: fmt.Errorf("recommendation %s is proposed with other content: withdraw it first, or give this one another id",
					p.Recommendation)}
			case p.Recommendation == made.Recommendation && unchanged(p, made):
				d.Already = p
				return nil
			case p.Recommendation == made.Recommendation && p.Stage == registry.StageIssued:
				return &ConflictError{Err: fmt.Errorf("recommendation %s is being carried out: withdraw it first", p.Recommendation)}
			case p.Recommendation != made.Recommendation && p.Stage != registry.StageIssued && sameSubject(p.Made, made) &&
				!slices.Contains(made.Supersedes, p.Recommendation):
				made.Supersedes = append(made.Supersedes, p.Recommendation)
			}
		}
		slices.Sort(made.Supersedes)
		return (narrowed{workspace: workspace}).empty(v)
	})
	d.Draft = Draft{Use: "recommend-propose", SignAll: true, Events: []domain.Envelope{
		{Time: now, Subject: made.Recommendation, Workspace: workspace, Event: made},
	}}
	return d, err
}

// unchanged reports whether a recommendation in the log says the same as one that is to be proposed: its saving moves within
// the interval that was proposed.
func unchanged(p *registry.Proposal, made *domain.RecommendationMade) bool {
	return p.Kind == made.Kind && p.Summary == made.Summary && p.From == made.From && p.To == made.To &&
		p.Cost.Currency == made.Cost.Currency && p.Cost.Amount.Equal(made.Cost.Amount) && outside(p, made.Saving) == ""
}

// sameText reports whether two recommendations that people wrote ask for the same.
func sameText(a, b *domain.RecommendationMade) bool {
	return a.Kind == b.Kind && a.Summary == b.Summary && a.From == b.From && a.To == b.To && a.Cost.Currency == b.Cost.Currency &&
		a.Cost.Amount.Equal(b.Cost.Amount) && slices.Equal(a.Clusters, b.Clusters) && bytes.Equal(a.Document, b.Document)
}

// outside says how the present saving of a recommendation contradicts what was proposed, "" if it does not.
func outside(p *registry.Proposal, now domain.Money) string {
	switch {
	case p.Saving == nil && now.Currency == "":
		return ""
	case p.Saving == nil:
		return fmt.Sprintf("it now saves %s a month, and nothing was known of that", now)
	case now.Currency != p.Saving.Currency:
		return fmt.Sprintf("its saving of %s a month is no longer known in %s", p.Saving, p.Saving.Currency)
	case now.Amount.LessThan(p.SavingLow.Amount) || now.Amount.GreaterThan(p.SavingHigh.Amount):
		return fmt.Sprintf("it now saves %s a month, outside %s to %s", now, p.SavingLow, p.SavingHigh)
	}
	return ""
}

// sameSubject reports whether two recommendations of one kind are about the same: they claim a part of the estate in
// common, or name the same subject.
func sameSubject(a, b *domain.RecommendationMade) bool {
	if a.Kind != b.Kind {
		return false
	}
	x, errX := recommend.Parse(a.Document)
	y, errY := recommend.Parse(b.Document)
	if errX != nil || errY != nil || len(x.Claims) == 0 || len(y.Claims) == 0 {
		return false
	}
	return slices.ContainsFunc(x.Claims, func(p recommend.Claim) bool {
		return slices.ContainsFunc(y.Claims, func(q recommend.Claim) bool { return p.Part == q.Part })
	})
}

// foreign says why a recommendation may not command a cluster, "" if it may. What a person wrote for another workspace than
// the root's commands that workspace's own clusters alone; what the program found was checked by the policies of all.
func foreign(v projections.View, workspace string, made *domain.RecommendationMade) (string, error) {
	if strings.HasPrefix(made.Method, "recommend/") {
		return "", nil
	}
	auth, err := registry.NewAuthority(v)
	if err != nil || workspace == auth.Root() {
		return "", err
	}
	for _, cluster := range made.Clusters {
		owner, err := ownerOf(auth, v, cluster, nil)
		if err != nil {
			return "", err
		}
		if owner != workspace {
			return fmt.Sprintf("cluster %s is not of workspace %s: its own workspace must propose it", cluster, workspace), nil
		}
	}
	return "", nil
}

// present returns the recommendations of now.
func (c *Caller) present(ctx context.Context) (*recommend.Advice, error) {
	return c.Recommendations(ctx, "", RecommendQuery{})
}

// changedSince says why a recommendation must be proposed again, "" if what it rests on still holds. One that a person wrote
// rests on nothing that could be computed again.
func (c *Caller) changedSince(ctx context.Context, p *registry.Proposal, adv func() (*recommend.Advice, error)) (string, error) {
	if !strings.HasPrefix(p.Method, "recommend/") {
		return "", nil
	}
	now, err := adv()
	if err != nil {
		return "", err
	}
	for i := range now.Made {
		if r := &now.Made[i]; r.ID == p.Recommendation {
			var saving domain.Money
			if r.Saving != nil {
				saving = *r.Saving
			}
			if !slices.Equal(r.Clusters, p.Clusters) {
				return fmt.Sprintf("it now touches clusters %v, not %v", r.Clusters, p.Clusters), nil
			}
			if r.Cost.Currency != p.Cost.Currency || !r.Cost.Amount.Equal(p.Cost.Amount) {
				return fmt.Sprintf("it now costs %s, not %s", r.Cost, p.Cost), nil
			}
			return outside(p, saving), nil
		}
	}
	for i := range now.Refused {
		if now.Refused[i].ID == p.Recommendation {
			return "it is refused now: " + now.Refused[i].Because, nil
		}
	}
	return "it is not among the present recommendations", nil
}

// Verdict is what somebody decides about a recommendation.
type Verdict string

// The verdicts.
const (
	Approve  Verdict = "approve"
	Reject   Verdict = "reject"
	Withdraw Verdict = "withdraw"
)

// DecideRecommendation drafts a verdict of an operator. Nobody approves twice: two approvals are of two people. shown is the
// digest of what the operator was shown, "" if that is not known.
func (c *Caller) DecideRecommendation(ctx context.Context, id string, what Verdict, note, shown, operator string) (p *registry.Proposal, d Draft, err error) {
	now := Now()
	if err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		if p, err = proposalNamed(v, now, id); err == nil {
			err = asShown("recommendation "+id, shown, p.Digest)
		}
		return err
	}); err != nil {
		return nil, d, err
	}
	conflict := func(format string, args ...any) (*registry.Proposal, Draft, error) {
		return nil, d, &ConflictError{Err: fmt.Errorf("recommendation "+id+" "+format, args...)}
	}
	because := ""
	if p.Reason != "" {
		because = ": " + p.Reason
	}
	var ev domain.Event
	switch what {
	case Approve:
		switch p.Stage {
		case registry.StageProposed:
			for _, voice := range p.Approvals {
				if voice.Operator == operator {
					return conflict("was approved by %s at %s: it needs another person", operator, voice.Time)
				}
			}
		case registry.StageLapsed:
			return conflict("lapsed%s; propose it again", because)
		default:
			return conflict("is %s%s", p.Stage, because)
		}
		changed, err := c.changedSince(ctx, p, func() (*recommend.Advice, error) { return c.present(ctx) })
		if err != nil {
			return nil, d, err
		}
		if changed != "" {
			return conflict("must be proposed again: %s", changed)
		}
		digest, err := p.Made.Digest()
		if err != nil {
			return nil, d, err
		}
		ev = &domain.RecommendationApproved{Recommendation: id, Note: note, Digest: digest}
	case Reject:
		if p.Stage != registry.StageProposed && p.Stage != registry.StageApproved {
			return conflict("is %s%s", p.Stage, because)
		}
		ev = &domain.RecommendationRejected{Recommendation: id, Note: note}
	case Withdraw:
		switch p.Stage {
		case registry.StageProposed, registry.StageApproved, registry.StageIssued, registry.StageLapsed:
		default:
			return conflict("is %s%s", p.Stage, because)
		}
		ev = &domain.RecommendationWithdrawn{Recommendation: id, Reason: note}
	}
	d = Draft{Use: "recommend-" + string(what), Events: []domain.Envelope{{Time: now, Subject: id, Workspace: p.Workspace, Event: ev}}}
	return p, d, nil
}

// ByHand is what a person did for a recommendation.
type ByHand struct{ Recommendation, Cluster, Reference, Result string }

// ActuatedByHand drafts that the signer, requester, carried a recommendation out, or why not.
func (c *Caller) ActuatedByHand(ctx context.Context, did ByHand, operator string) (p *registry.Proposal, d Draft, err error) {
	now := Now()
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		if p, err = proposalNamed(v, now, did.Recommendation); err != nil {
			return err
		}
		if did.Cluster == "" && len(p.Clusters) == 1 {
			did.Cluster = p.Clusters[0]
		}
		if did.Cluster != "" && len(p.Clusters) > 0 && !slices.Contains(p.Clusters, did.Cluster) {
			return among("cluster", did.Cluster, p.Clusters)
		}
		switch {
		case slices.ContainsFunc(p.Actuations, func(a registry.Actuation) bool { return a.Cluster == did.Cluster || a.Cluster == "" }):
			return &ConflictError{Err: fmt.Errorf("what was done for recommendation %s is in the log already", p.Recommendation)}
		// What was approved and done is said even if it was done late: the trail has both times.
		case p.Last == 0, p.Stage == registry.StageRejected, p.Stage == registry.StageWithdrawn, strings.HasPrefix(p.Reason, "superseded"):
			return &ConflictError{Err: fmt.Errorf("recommendation %s is %s: it may not be carried out", p.Recommendation, p.Stage)}
		}
		return nil
	})
	if err != nil {
		return nil, d, err
	}
	d = Draft{Use: "recommend-actuated", Events: []domain.Envelope{{
		Time: now, Subject: did.Recommendation, Workspace: p.Workspace, Cluster: did.Cluster, Event: &domain.RecommendationActuated{
			Recommendation: did.Recommendation, Cluster: did.Cluster, Reference: did.Reference, Result: did.Result, Actor: domain.OperatorActor(operator),
		},
	}}}
	return p, d, nil
}
