package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/domain/recommend"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Delivered is a command as its cluster receives it, with what the cluster needs to verify the approvals by itself.
type Delivered struct {
	Command        string            `json:"command"`
	Recommendation string            `json:"recommendation"`
	Workspace      string            `json:"workspace"`
	Cluster        string            `json:"cluster"`
	Kind           string            `json:"kind"`
	Expires        domain.Instant    `json:"expires"` // after this it MUST NOT be carried out
	Approvals      []domain.Approval `json:"approvals"`
	// Approved is the recommendation that was approved, as canonical JSON: each approval signs its SHA-256.
	Approved []byte          `json:"approved"`
	Document json.RawMessage `json:"document"`
}

// commandFor returns the command of a recommendation for a cluster. It is a function of the recommendation and its
// approvals, so that whoever issues it issues the same.
func commandFor(p *registry.Proposal, cluster string, approvals []domain.Approval) (*domain.CommandIssued, error) {
	document, err := domain.CanonicalJSON(registry.OrderOf(p.Made, p.Workspace, cluster))
	if err != nil {
		return nil, err
	}
	command := &domain.CommandIssued{
		Recommendation: p.Recommendation, Cluster: cluster, Kind: p.Kind, Expires: p.Last + registry.CommandLife, Approvals: approvals, Document: document,
	}
	all, err := domain.CanonicalJSON(command)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(all)
	command.Command = "c-" + hex.EncodeToString(sum[:8])
	return command, nil
}

// approvals reads the signatures of the approvals that a recommendation needed from the log. Rows do not have them.
func (h *Conn) approvals(ctx context.Context, p *registry.Proposal) ([]domain.Approval, error) {
	if len(p.Approvals) < p.Needs { // a limit was lowered since it was issued
		return nil, &ConflictError{Err: fmt.Errorf("recommendation %s now needs %d approvals, and has %d", p.Recommendation, p.Needs, len(p.Approvals))}
	}
	var found []domain.Approval
	for _, voice := range p.Approvals[:p.Needs] {
		tp := domain.TopicPartition{Topic: domain.TopicProcurement, Partition: voice.Partition}
		if err := h.Log.Read(ctx, tp, voice.Offset, voice.Offset+1, func(recs []domain.Record) error {
			for i := range recs {
				var env domain.Envelope
				if err := new(wire.Decoder).Decode(&recs[i], &env); err != nil {
					return err
				}
				if s := env.Signature; s != nil && s.Operator == voice.Operator {
					found = append(found, domain.Approval{ // the record's memory is reused
						Operator: s.Operator, PublicKey: slices.Clone(s.Key), Signed: slices.Clone(s.Message), Signature: slices.Clone(s.Bytes),
					})
				}
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read the approval of %s by %s: %w", p.Recommendation, voice.Operator, err)
		}
	}
	if len(found) < p.Needs {
		return nil, fmt.Errorf("the log has %d of the %d approvals of %s", len(found), p.Needs, p.Recommendation)
	}
	return found, nil
}

// unissued returns the clusters that have no command of an approved recommendation yet.
func unissued(p *registry.Proposal, now domain.Instant) []string {
	if registry.Manual(p.Kind) || p.Last == 0 || now >= p.Last+registry.CommandLife || p.Stage != registry.StageApproved && p.Stage != registry.StageIssued {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Clusters), func(cluster string) bool {
		return slices.ContainsFunc(p.Commands, func(c registry.Command) bool { return c.Cluster == cluster }) ||
			slices.ContainsFunc(p.Actuations, func(a registry.Actuation) bool { return a.Cluster == cluster || a.Cluster == "" })
	})
}

// IssueCommands appends the commands of an approved recommendation, "": of all, that the log does not have yet. It may be called at any
// time and by several at once: each command has a stream of its own with one event, so the log counts it once. outcome is ""
// if there was nothing to do.
func (c *Caller) IssueCommands(ctx context.Context, of string, now domain.Instant) (outcome string, err error) {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return "", err
	}
	var waiting []registry.Proposal
	if err := h.View(ctx, func(v projections.View) error {
		all, err := registry.Proposals(v, now)
		waiting = slices.DeleteFunc(all, func(p registry.Proposal) bool {
			return of != "" && p.Recommendation != of || len(unissued(&p, now)) == 0
		})
		return err
	}); err != nil {
		return "", err
	}
	issued, lapsed := 0, 0
	var adv *recommend.Advice
	var errs []error
	for i := range waiting {
		p := &waiting[i]
		n, changed, err := c.issue(ctx, h, p, now, func() (*recommend.Advice, error) {
			if adv == nil {
				adv, err = c.present(ctx)
			}
			return adv, err
		})
		if issued += n; changed {
			lapsed++
		}
		if err != nil { // the others do not wait for this one
			errs = append(errs, fmt.Errorf("issue commands of recommendation %s: %w", p.Recommendation, err))
		}
	}
	if issued > 0 {
		if err := h.CatchUp(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if issued+lapsed > 0 {
		outcome = fmt.Sprintf("%d commands, %d recommendations to propose again", issued, lapsed)
	}
	return outcome, errors.Join(errs...)
}

// issue appends the commands that a recommendation lacks, and says how many. changed: it must be proposed again.
func (c *Caller) issue(
	ctx context.Context, h *Conn, p *registry.Proposal, now domain.Instant, adv func() (*recommend.Advice, error),
) (issued int, changed bool, err error) {
	if p.Stage == registry.StageApproved {
		because, err := c.changedSince(ctx, p, adv)
		if err != nil || because != "" {
			return 0, because != "", err
		}
	}
	why := ""
	if err := h.View(ctx, func(v projections.View) (err error) {
		why, err = foreign(v, p.Workspace, p.Made)
		return err
	}); err != nil || why != "" {
		return 0, why != "", err
	}
	approvals, err := h.approvals(ctx, p)
	if err != nil {
		return 0, false, err
	}
	for _, cluster := range unissued(p, now) {
		command, err := commandFor(p, cluster, approvals)
		if err != nil {
			return issued, false, err
		}
		env := &domain.Envelope{Time: p.Last, Subject: p.Recommendation, Workspace: p.Workspace, Cluster: cluster, Event: command}
		if err := domain.Validate(env); err != nil { // rows would refuse it, so it would be appended at each tick
			return issued, false, &InvalidError{Err: err}
		}
		if err := h.StreamOf("quartermaster/command/"+command.Command, 1).Append(ctx, env); err != nil {
			return issued, false, fmt.Errorf("append a command to the log: %w", err)
		}
		issued++
	}
	return issued, false, nil
}

// OpenCommands returns the commands that clusters may carry out now, by cluster and command; cluster "": of all.
func (c *Caller) OpenCommands(ctx context.Context, cluster string, now domain.Instant) (open []Delivered, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		all, err := registry.Proposals(v, now)
		if err != nil {
			return err
		}
		for i := range all {
			for j := range all[i].Commands {
				one := &all[i].Commands[j]
				if cluster != "" && one.Cluster != cluster || !all[i].Open(one, now) {
					continue
				}
				d, err := delivered(&all[i], one)
				if err != nil {
					return err
				}
				open = append(open, d)
			}
		}
		return nil
	})
	return open, err
}

func delivered(p *registry.Proposal, c *registry.Command) (Delivered, error) {
	approved, err := p.Made.Canonical()
	return Delivered{
		Command: c.Command, Recommendation: p.Recommendation, Workspace: p.Workspace, Cluster: c.Cluster, Kind: p.Kind, Expires: c.Expires,
		Approvals: c.Event.Approvals, Approved: approved, Document: json.RawMessage(c.Event.Document),
	}, err
}

// ErrCommandEnded is returned when a command can no longer be acknowledged: it expired, or was withdrawn.
var ErrCommandEnded = errors.New("the command has ended")

// Acknowledgement is what a cluster says about a command.
type Acknowledgement struct {
	Result    string `json:"result"` // done, failed, refused
	Reference string `json:"reference,omitempty"`
}

// AcknowledgeCommand records what the cluster of a key did with a command. The same again is no error, and appends nothing.
func (c *Caller) AcknowledgeCommand(ctx context.Context, cluster, keyID, id string, ack Acknowledgement, now domain.Instant) error {
	if !slices.Contains([]string{"done", "failed", "refused"}, ack.Result) {
		return invalid("result", "%.40q is none: want done, failed or refused", ack.Result)
	}
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	var p *registry.Proposal
	known := func(v projections.View) error {
		all, err := registry.Proposals(v, now)
		if err != nil {
			return err
		}
		for i := range all {
			for j := range all[i].Commands {
				one := &all[i].Commands[j]
				if one.Command != id || one.Cluster != cluster {
					continue
				}
				switch p = &all[i]; {
				case one.Result == ack.Result:
					p = nil
				case one.Result != "":
					return &ConflictError{Err: fmt.Errorf("command %s was acknowledged as %s", id, one.Result)}
				case !p.Open(one, now):
					return &ConflictError{Err: fmt.Errorf("%w: %s", ErrCommandEnded, id)}
				}
				return nil
			}
		}
		return &NotFoundError{What: "command", Name: id, Err: fmt.Errorf("cluster %s has no command %.60q", cluster, id)}
	}
	if err := h.View(ctx, known); err != nil || p == nil {
		return err
	}
	env := &domain.Envelope{Time: now, Subject: p.Recommendation, Workspace: p.Workspace, Cluster: cluster, Event: &domain.RecommendationActuated{
		Recommendation: p.Recommendation, Cluster: cluster, Command: id, Actor: domain.KeyActor(keyID), Result: ack.Result, Reference: ack.Reference,
	}}
	if err := domain.Validate(env); err != nil {
		return &InvalidError{Err: err}
	}
	// The stream is the command's, so that the first acknowledgement counts, however many gateways take one.
	if err := h.StreamOf("quartermaster/actuated/"+id, 1).Append(ctx, env); err != nil {
		return fmt.Errorf("append an acknowledgement to the log: %w", err)
	}
	if err := h.CatchUp(ctx); err != nil {
		return err
	}
	return h.View(ctx, known)
}

// Sheet is what a recommendation asks for, as a file that somebody takes along.
type Sheet struct {
	Order     registry.Order    `json:"order"`
	Commands  []Delivered       `json:"commands"`  // open ones of clusters
	Approvals []domain.Approval `json:"approvals"` // signatures over the approval of this recommendation
}

// CommandFile returns what an approved recommendation asks for.
func (c *Caller) CommandFile(ctx context.Context, id string) (sheet *Sheet, err error) {
	now := Now()
	err = c.read(ctx, "", func(h *Conn, v projections.View) error {
		p, err := proposalNamed(v, now, id)
		if err != nil {
			return err
		}
		if p.Stage != registry.StageApproved && p.Stage != registry.StageIssued {
			return &ConflictError{Err: fmt.Errorf("recommendation %s is %s: there is nothing to carry out", id, p.Stage)}
		}
		if p.Stage == registry.StageApproved {
			changed, err := c.changedSince(ctx, p, func() (*recommend.Advice, error) { return c.present(ctx) })
			if err == nil && changed != "" {
				err = &ConflictError{Err: fmt.Errorf("recommendation %s must be proposed again: %s", id, changed)}
			}
			if err != nil {
				return err
			}
		}
		sheet = &Sheet{Order: registry.OrderOf(p.Made, p.Workspace, ""), Commands: []Delivered{}}
		for i := range p.Commands {
			if !p.Open(&p.Commands[i], now) {
				continue
			}
			d, err := delivered(p, &p.Commands[i])
			if err != nil {
				return err
			}
			sheet.Commands = append(sheet.Commands, d)
		}
		sheet.Approvals, err = h.approvals(ctx, p)
		return err
	})
	return sheet, err
}
