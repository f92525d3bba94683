package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/registry"
)

// Platform is the workspace that exists in every data directory.
const Platform = "platform"

// Draft is a proposed decision. A decision takes three steps: a use case makes the draft,
// [Caller.Propose] returns the bytes to sign, and [Caller.Decide] appends the signed events.
// Private keys never enter this package.
type Draft struct {
	// Use names the use case, for example apply. The source of the events is quartermaster/USE.
	Use    string
	Events []domain.Envelope
	// Source replaces quartermaster/USE as the source of the events. All decisions with such a
	// source share one stream, so that the first one counts.
	Source string
	// OfNodes: the events are about nodes of a workspace, and of types that agents and files
	// report unsigned. Here every event is signed, by an admin or operator of the workspace.
	OfNodes bool
	// OfEstate: the events declare an estate, and some need no signature. For those the signer
	// must be an admin or operator of the workspace that the event is about.
	OfEstate bool
	// SignAll: every event is signed, because the signer is elsewhere, and only a signature says what they agreed to.
	SignAll bool
	// Alike: all events need the same right, so checking one of them is enough.
	Alike bool
	// First is the name of the operator who registers themselves as the first one; "" where an
	// operator exists.
	First string
	// As is the name of the signer for rows without an operator: with --config the first operator
	// may be registered but not folded yet. The log judges the decision.
	As string
	// DryRun: nothing will be appended.
	DryRun bool
}

// Signed reports whether any event is signed.
func (d *Draft) Signed() bool {
	return slices.ContainsFunc(d.Events, func(e domain.Envelope) bool { return d.signs(&e) })
}

// signs reports whether an event of the draft is signed.
func (d *Draft) signs(env *domain.Envelope) bool {
	return d.OfNodes || d.SignAll || domain.NeedsSignature(env.Event)
}

// Proposal is a draft that its signer has the right to decide.
type Proposal struct {
	Draft
	Operator string // the signer
	// Key identifies this decision: [Caller.Decide] appends the same key once.
	Key string
	// Messages are the bytes to sign with Ed25519, one for each event; nil for an event that
	// needs no signature.
	Messages [][]byte

	until domain.Instant // when it can no longer be decided; 0: always
}

// Sign signs the messages of a proposal.
func (p *Proposal) Sign(key ed25519.PrivateKey) [][]byte {
	signatures := make([][]byte, len(p.Messages))
	for i, m := range p.Messages {
		if m != nil {
			signatures[i] = ed25519.Sign(key, m)
		}
	}
	return signatures
}

// Begin opens the log for appending, and creates what is missing. A dry run with --config creates
// no topics.
func (c *Caller) Begin(ctx context.Context, dryRun bool) error {
	if c.app.conn != nil || !dryRun {
		_, err := c.conn(ctx, Appending)
		return err
	}
	h, err := c.app.openFor(ctx, Reading)
	c.app.conn = h
	return err
}

// Operators returns who may decide now, with their public keys.
func (c *Caller) Operators(ctx context.Context) (ops []registry.Grant, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		ops = slices.DeleteFunc(auth.Grants(), func(g registry.Grant) bool { return g.To != 0 && g.To <= Now() })
		return nil
	})
	return ops, err
}

// Propose completes a draft for the owner of a key: it dates the decisions now, validates them
// and returns the bytes to sign. It returns a [DeniedError] when the operator has no right to
// decide one of them.
func (c *Caller) Propose(ctx context.Context, d Draft, signer ed25519.PublicKey) (*Proposal, error) {
	why := Appending
	if d.DryRun {
		why = Reading
	}
	h, err := c.conn(ctx, why)
	if err != nil {
		return nil, err
	}
	key := newKey()
	if d.Source != "" {
		key = "1"
	}
	p := &Proposal{Draft: d, Key: key, Messages: make([][]byte, len(d.Events))}
	p.Events = slices.Clone(d.Events)
	err = h.View(ctx, func(v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		switch {
		case auth.Root() != "":
			if p.Operator, err = operatorOf(auth, signer); err != nil {
				return err
			}
		case d.First == "" && d.As != "":
			p.Operator, auth = d.As, nil
		case d.First == "":
			return &DeniedError{Err: errors.New("there is no operator yet; the first one registers themselves")}
		default:
			p.Operator = d.First
			auth = registry.FirstAuthority(Platform, d.First, signer)
		}
		for i := range p.Events {
			env := &p.Events[i]
			if domain.NeedsSignature(env.Event) {
				env.Time = Now() // the decision is made now, whenever it takes effect
			}
			if err := domain.Validate(env); err != nil {
				return &InvalidError{Err: err}
			}
			if d.signs(env) {
				if err := wire.ToSign(env, p.Operator, signer); err != nil {
					return err
				}
				p.Messages[i] = env.Signature.Message
			}
		}
		// No one has the right to register the first operator. Rows without an operator leave the
		// judgement to the log.
		if auth == nil || d.First != "" && !d.DryRun {
			return nil
		}
		return h.judged(auth, v, p, signer)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// judged returns a [DeniedError] if the signer of a proposal may not decide all of it. It is judged by all rows, whatever
// the principal sees of them, and tells whoever sees a part nothing about clusters that they may not see.
func (h *Conn) judged(auth *registry.Authority, v projections.View, p *Proposal, signer ed25519.PublicKey) error {
	v = access.Beneath(v)
	discreet := !h.app.scope().IsWhole()
	if err := p.unsignedAllowed(auth, v, signer, discreet); err != nil {
		return err
	}
	return refused(auth, v, p, discreet)
}

// notCovered is the reason that somebody hears who may not see whose a cluster is.
func notCovered(p *Proposal, env *domain.Envelope) string {
	return fmt.Sprintf("no right of operator %q covers this in cluster %q", p.Operator, env.Cluster)
}

// operatorOf returns the operator whose key this is and who may decide now.
func operatorOf(auth *registry.Authority, key ed25519.PublicKey) (string, error) {
	for _, g := range auth.Grants() {
		if bytes.Equal(g.PublicKey, key) && (g.To == 0 || g.To > Now()) {
			return g.Operator, nil
		}
	}
	if former := formerly(auth, key); former != "" {
		return "", &DeniedError{Err: errors.New(former)}
	}
	return "", &DeniedError{Err: errors.New("this key belongs to no registered operator")}
}

// formerly says whose key it was, and since when it may decide nothing; "" if it was nobody's.
func formerly(auth *registry.Authority, key ed25519.PublicKey) string {
	var last *registry.Grant
	grants := auth.Grants()
	for i := range grants {
		if g := &grants[i]; bytes.Equal(g.PublicKey, key) && g.To != 0 && (last == nil || g.To > last.To) {
			last = g
		}
	}
	if last == nil {
		return ""
	}
	what := "was replaced"
	if last.Revoked() {
		what = "was revoked"
	}
	return fmt.Sprintf("this key of operator %s %s on %s: decide with a key that is registered now", last.Operator, what, last.To)
}

// FormerKey says whose key it was, and since when it may decide nothing; "" if it was nobody's.
func (c *Caller) FormerKey(ctx context.Context, key ed25519.PublicKey) (former string, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err == nil {
			former = formerly(auth, key)
		}
		return err
	})
	return former, err
}

// unsignedAllowed returns an error when the signer is not an admin or operator of a workspace
// that an unsigned event is about. Agents report such events too, so the folds do not judge them:
// this is the only check.
func (p *Proposal) unsignedAllowed(auth *registry.Authority, v projections.View, signer ed25519.PublicKey, discreet bool) error {
	if !p.OfNodes && !p.OfEstate {
		return nil
	}
	for i := range p.Events {
		env := &p.Events[i]
		if !p.OfNodes && domain.NeedsSignature(env.Event) {
			continue // the authority judges it
		}
		of := []string{env.Workspace}
		if before, err := registry.Declared(v, auth, env); err != nil {
			return err
		} else if before != nil {
			of = append(of, before.Workspace)
		}
		if _, ok := env.Event.(*domain.MaintenanceScheduled); ok {
			owner, err := ownerOf(auth, v, env.Cluster, p.Events)
			if err != nil {
				return err
			}
			of = append(of, owner)
		}
		for _, workspace := range of {
			err := mayOperate(auth, p.Operator, signer, env, workspace)
			if err != nil && discreet && env.Cluster != "" {
				err = &DeniedError{Err: fmt.Errorf("%s %s: %s", env.Event.Type(), env.Subject, notCovered(p, env))}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerOf returns the workspace that owns a cluster, including by a proposed event; "" if none
// does.
func ownerOf(auth *registry.Authority, v projections.View, cluster string, proposed []domain.Envelope) (string, error) {
	for i := range proposed {
		if _, ok := proposed[i].Event.(*domain.ClusterRegistered); ok && proposed[i].Cluster == cluster {
			return proposed[i].Workspace, nil
		}
	}
	registered, err := registry.Declared(v, auth, &domain.Envelope{
		Time: Now(), Subject: cluster, Cluster: cluster, Event: &domain.ClusterRegistered{},
	})
	if err != nil || registered == nil {
		return "", err
	}
	return registered.Workspace, nil
}

// refused returns an error that names every event of a proposal that its signer has no right to
// decide.
func refused(auth *registry.Authority, v projections.View, p *Proposal, discreet bool) error {
	envs := make([]*domain.Envelope, len(p.Events))
	for i := range p.Events {
		envs[i] = &p.Events[i]
	}
	if p.Alike {
		envs = envs[:min(1, len(envs))]
	}
	reasons, err := auth.Refusals(v, envs)
	if err != nil {
		return err
	}
	var errs []error
	for i, reason := range reasons {
		if reason != "" && discreet && envs[i].Cluster != "" {
			reason = notCovered(p, envs[i])
		}
		if reason != "" {
			errs = append(errs, fmt.Errorf("%s %s would take no effect: %s", envs[i].Event.Type(), envs[i].Subject, reason))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("nothing was appended"))
		remedy := RemedyAuthority
		if slices.ContainsFunc(reasons, registry.SecondPerson) {
			remedy = RemedySecondPerson
		}
		return &helped{&DeniedError{Err: errors.Join(errs...)}, remedy}
	}
	return nil
}

// Decide appends a signed proposal and waits until it is folded. The signatures are those of its
// messages, in order. Decide is idempotent: a key that was decided before appends nothing and
// gets the same answer. It returns a [DeniedError] when a signature is wrong, or when by the
// present rows the operator had no right at the time of the proposal.
func (c *Caller) Decide(ctx context.Context, p *Proposal, signatures [][]byte, idempotencyKey string) error {
	incarnation, err := strconv.ParseUint(idempotencyKey, 10, 64)
	if err != nil {
		return invalid("idempotency_key", "%.100q is not the key of a proposal", idempotencyKey)
	}
	if err := p.accept(signatures); err != nil {
		return err
	}
	envs := make([]*domain.Envelope, len(p.Events))
	for i := range p.Events {
		envs[i] = &p.Events[i]
	}
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	source := cmp.Or(p.Source, sourceOf(p.Use))
	done := false
	if err := h.View(ctx, func(v projections.View) error {
		// All decisions of a source of its own share a stream, of which the first counts.
		if done, err = streamKnown(access.Beneath(v), envs, source, incarnation, p.Source != ""); err != nil || done || p.First != "" {
			return err
		}
		if p.until != 0 && Now() >= p.until {
			return &ConflictError{Err: fmt.Errorf("this could be decided until %s: compose it again", p.until)}
		}
		auth, err := registry.NewAuthority(v)
		if err != nil || auth.Root() == "" {
			return err
		}
		if p.until != 0 { // the signer had time to lose the key
			if _, err := operatorOf(auth, envs[0].Signature.Key); err != nil {
				return err
			}
		}
		return refused(auth, access.Beneath(v), p, !c.app.scope().IsWhole())
	}); err != nil || done {
		return err
	}
	stream := h.StreamOf(source, incarnation)
	for batch := range slices.Chunk(envs, appendBatch) {
		if err := stream.Append(ctx, batch...); err != nil {
			return fmt.Errorf("append to the log: %w", err)
		}
	}
	return h.CatchUp(ctx)
}

// accept adds the signatures to the events, if they verify.
func (p *Proposal) accept(signatures [][]byte) error {
	if len(signatures) != len(p.Events) {
		return invalid("signatures", "%d signatures for %d events", len(signatures), len(p.Events))
	}
	for i := range p.Events {
		env := &p.Events[i]
		if p.Messages[i] == nil {
			continue
		}
		if !ed25519.Verify(env.Signature.Key, p.Messages[i], signatures[i]) {
			return &DeniedError{Err: fmt.Errorf("the signature of %s %s does not verify", env.Event.Type(), env.Subject)}
		}
		env.Signature.Bytes = signatures[i]
	}
	return nil
}

// streamKnown reports whether the rows have all events of a stream, or with some any of them.
func streamKnown(v projections.View, envs []*domain.Envelope, source string, incarnation uint64, some bool) (bool, error) {
	events := map[domain.TopicPartition]uint64{}
	for _, env := range envs {
		key, err := env.Key()
		if err != nil {
			return false, &InvalidError{Err: err}
		}
		tp := domain.TopicPartition{Topic: env.Topic()}
		tp.Partition = domain.PartitionOf([]byte(key), tp.Topic.Partitions())
		events[tp]++
	}
	all := true
	for tp, n := range events {
		row, err := v.Get(projections.StreamKey(tp, source, incarnation))
		if err != nil {
			return false, err
		}
		stream, known := row.(*projections.Stream)
		if known && some {
			return true, nil
		}
		all = all && known && stream.Mark >= n && len(stream.Gaps) == 0
	}
	return all, nil
}

// sourceOf returns the source name of a use case.
func sourceOf(use string) string { return "quartermaster/" + use }

// newKey returns the key of a new decision, which is the incarnation of its stream. Keys grow
// with time, so that the later of two decisions with one effective time wins. A random part keeps
// simultaneous decisions apart.
func newKey() string {
	return strconv.FormatUint(NewIncarnation(), 10)
}

// NewIncarnation returns the number of a new incarnation of a source. It is greater than earlier
// ones.
func NewIncarnation() uint64 { return uint64(time.Now().UnixMicro())<<10 | uint64(rand.N(1<<10)) }

// Stream returns a new stream for the events of one use case.
func (h *Conn) Stream(use string) *kafka.Stream { return h.StreamOf(sourceOf(use), NewIncarnation()) }

// StreamOf returns the stream of a source and incarnation.
func (h *Conn) StreamOf(source string, incarnation uint64) *kafka.Stream {
	return kafka.NewStream(h.Log, kafka.StreamConfig{Source: source, Incarnation: incarnation, Encode: wire.Encode})
}

// firstWorkspaceFrom is since when the first workspace exists: before any bill, so that a declaration of it
// with an earlier effective_from than the first decision is not overridden by its registration.
const firstWorkspaceFrom domain.Instant = 946684800 * domain.Second // 2000-01-01

// FirstOperator drafts the first workspace and the first operator, who signs it.
func FirstOperator(name string, key ed25519.PublicKey) Draft {
	at := Now()
	return Draft{Use: "first-operator", First: name, Events: []domain.Envelope{
		{Time: firstWorkspaceFrom, Subject: Platform, Workspace: Platform, Event: &domain.WorkspaceRegistered{Name: "Platform"}},
		{Time: at, Subject: name, Workspace: Platform, Event: &domain.OperatorRegistered{Operator: name, PublicKey: key, Role: domain.RoleAdmin}},
	}}
}

// RegisterOperator drafts the registration of an operator in a workspace, with key, role and
// limits.
func RegisterOperator(workspace string, reg *domain.OperatorRegistered) Draft {
	return Draft{Use: "operator-add", Events: []domain.Envelope{{Time: Now(), Subject: reg.Operator, Workspace: workspace, Event: reg}}}
}

// Me is the name of the user that runs the program, the default name of the first operator.
func Me() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return strings.ToValidUTF8(u.Username, "?")
	}
	return "first"
}

// asShown refuses a decision about something whose content is not what whoever decides was shown. Both digests are a SHA-256 in
// hexadecimal; with shown "" anything will do.
func asShown(what, shown, now string) error {
	if shown == "" {
		return nil
	}
	if sum, err := hex.DecodeString(shown); err != nil || len(sum) != sha256.Size {
		return invalid("digest", "%q: want a SHA-256 in hexadecimal", domain.Clip(shown, widest))
	}
	if !strings.EqualFold(shown, now) {
		return &ConflictError{Err: fmt.Errorf("%s is not what you were shown: its content has digest %.12s now, not %.12s; look at it again", what, now, shown)}
	}
	return nil
}
