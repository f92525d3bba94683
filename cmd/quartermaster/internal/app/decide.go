package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
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
	"quartermaster/projections/registry"
)

// Platform is the workspace that every data directory begins with.
const Platform = "platform"

// Draft is what somebody wants to decide. A decision takes three steps: a use case makes
// the draft, [Caller.Propose] says what is to be signed, and [Caller.Decide] appends what
// was signed. The keys of people stay with them.
type Draft struct {
	// Use names what it is for, for example apply. The events are of the source
	// quartermaster/USE.
	Use    string
	Events []domain.Envelope
	// Source is that of the events where it is not quartermaster/USE. All that is decided
	// with such a source is one stream, so that the first decision counts.
	Source string
	// OfNodes: it is about nodes of a workspace, of which agents and files tell unsigned.
	// Every event is signed then, by an admin or operator of the workspace.
	OfNodes bool
	// OfEstate: it declares an estate, some of it by events that need no signature. An admin
	// or operator of each workspace that such an event is about decides that.
	OfEstate bool
	// Alike says that all events decide the same about the same, so that the right to one
	// is the right to all.
	Alike bool
	// First is the name of the operator who decides this as the first one that there is;
	// "" where there is one already.
	First string
	// As is the name of the signer for rows that know no operator: in production the first
	// one may be registered, and not folded yet. The log judges the decision.
	As string
	// DryRun: nothing will be appended.
	DryRun bool
}

// Signed reports whether any of it is signed.
func (d *Draft) Signed() bool {
	return d.OfNodes || slices.ContainsFunc(d.Events, func(e domain.Envelope) bool { return domain.NeedsSignature(e.Event.Type()) })
}

// Proposal is a draft that its signer has the right to decide.
type Proposal struct {
	Draft
	Operator string // who signs
	// Key tells this decision from every other: [Caller.Decide] appends what has the same
	// key once.
	Key string
	// Messages are the bytes to sign with Ed25519, one for each event; nil for an event that
	// needs no signature.
	Messages [][]byte
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

// Begin opens the log to append to it, and makes what it lacks. A dry run makes no topics
// of a log in production.
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

// Propose completes a draft for whoever has the private half of a key: it dates the
// decisions now, validates them and returns what is to be signed. It is a [DeniedError]
// when the operator has no right to decide one of them.
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
			return &DeniedError{Err: errors.New("there is no operator yet who could decide: the first one registers themselves")}
		default:
			p.Operator = d.First
			auth = registry.FirstAuthority(Platform, d.First, signer)
		}
		for i := range p.Events {
			env := &p.Events[i]
			needs := domain.NeedsSignature(env.Event.Type())
			if needs {
				env.Time = Now() // a decision is made now, whenever it takes effect
			}
			if err := domain.Validate(env); err != nil {
				return &InvalidError{Err: err}
			}
			if needs || d.OfNodes {
				if err := wire.ToSign(env, p.Operator, signer); err != nil {
					return err
				}
				p.Messages[i] = env.Signature.Message
			}
		}
		// The first operator registers themselves, which nobody has the right to; rows that
		// know no operator leave it to the log.
		if auth == nil || d.First != "" && !d.DryRun {
			return nil
		}
		if err := p.unsignedAllowed(auth, v, signer); err != nil {
			return err
		}
		return refused(auth, v, p)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// operatorOf returns the name under which a key may decide now.
func operatorOf(auth *registry.Authority, key ed25519.PublicKey) (string, error) {
	for _, g := range auth.Grants() {
		if bytes.Equal(g.PublicKey, key) && (g.To == 0 || g.To > Now()) {
			return g.Operator, nil
		}
	}
	return "", &DeniedError{Err: errors.New("this key belongs to no registered operator")}
}

// unsignedAllowed returns an error when the signer is not an admin or operator of a workspace
// that an event is about. Where agents tell of such events too, no signature is needed and
// the folds judge none, so this is the only place that does.
func (p *Proposal) unsignedAllowed(auth *registry.Authority, v projections.View, signer ed25519.PublicKey) error {
	if !p.OfNodes && !p.OfEstate {
		return nil
	}
	for i := range p.Events {
		env := &p.Events[i]
		if !p.OfNodes && domain.NeedsSignature(env.Event.Type()) {
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
			if err := mayOperate(auth, p.Operator, signer, env, workspace); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerOf returns the workspace that owns a cluster, or will with what is proposed; "" where
// nobody does.
func ownerOf(auth *registry.Authority, v projections.View, cluster string, proposed []domain.Envelope) (string, error) {
	for i := range proposed {
		if _, ok := proposed[i].Event.(*domain.ClusterRegistered); ok && proposed[i].Cluster == cluster {
			return proposed[i].Workspace, nil
		}
	}
	registered, err := registry.Declared(v, auth, &domain.Envelope{Time: Now(), Subject: cluster, Cluster: cluster, Event: &domain.ClusterRegistered{}})
	if err != nil || registered == nil {
		return "", err
	}
	return registered.Workspace, nil
}

// refused returns an error that names every event of a proposal whose signer has no right
// to decide it.
func refused(auth *registry.Authority, v projections.View, p *Proposal) error {
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
		if reason != "" {
			errs = append(errs, fmt.Errorf("%s %s would take no effect: %s", envs[i].Event.Type(), envs[i].Subject, reason))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("nothing was appended; an admin changes what an operator may do with \"quartermaster operator add NAME --role ROLE --limit AMOUNT --public-key-of FILE\""))
		return &DeniedError{Err: errors.Join(errs...)}
	}
	return nil
}

// Decide appends a signed proposal and waits until it is folded. The signatures are those
// of its messages, in order. Under a key that was decided before, nothing is appended
// again: the answer is the same. It is a [DeniedError] when a signature is wrong, or the
// operator had no right at the time of the proposal, as the rows know now.
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
		if done, err = streamKnown(v, envs, source, incarnation); err != nil || done || p.First != "" {
			return err
		}
		auth, err := registry.NewAuthority(v)
		if err != nil || auth.Root() == "" {
			return err
		}
		return refused(auth, v, p)
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

// accept puts signatures to the events, once they verify.
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

// streamKnown reports whether the rows know a stream of the events' partitions.
func streamKnown(v projections.View, envs []*domain.Envelope, source string, incarnation uint64) (bool, error) {
	seen := map[domain.TopicPartition]bool{}
	for _, env := range envs {
		key, err := env.Key()
		if err != nil {
			return false, &InvalidError{Err: err}
		}
		tp := domain.TopicPartition{Topic: env.Topic()}
		tp.Partition = domain.PartitionOf([]byte(key), tp.Topic.Partitions())
		if seen[tp] {
			continue
		}
		seen[tp] = true
		if row, err := v.Get(projections.StreamKey(tp, source, incarnation)); err != nil || row != nil {
			return row != nil, err
		}
	}
	return false, nil
}

// sourceOf names the source of what a use case appends.
func sourceOf(use string) string { return "quartermaster/" + use }

// newKey returns the key of a new decision, which is the incarnation of its stream. Keys
// grow with time, so that what was decided later wins where two decisions take effect at
// once, and two at the same time never number events alike.
func newKey() string {
	return strconv.FormatUint(NewIncarnation(), 10)
}

// NewIncarnation returns the number of a new life of a source. It is greater than those before.
func NewIncarnation() uint64 { return uint64(time.Now().UnixMicro())<<10 | uint64(rand.N(1<<10)) }

// Stream returns a stream for the events of one use.
func (h *Conn) Stream(use string) *kafka.Stream { return h.StreamOf(sourceOf(use), NewIncarnation()) }

// StreamOf returns a stream of a source in one of its lives.
func (h *Conn) StreamOf(source string, incarnation uint64) *kafka.Stream {
	return kafka.NewStream(h.Log, kafka.StreamConfig{Source: source, Incarnation: incarnation, Encode: wire.Encode})
}

// FirstOperator drafts the first workspace and the first operator, who signs it.
func FirstOperator(name string, key ed25519.PublicKey) Draft {
	at := Now()
	return Draft{Use: "first-operator", First: name, Events: []domain.Envelope{
		{Time: at, Subject: Platform, Workspace: Platform, Event: &domain.WorkspaceRegistered{Name: "Platform"}},
		{Time: at, Subject: name, Workspace: Platform, Event: &domain.OperatorRegistered{Operator: name, PublicKey: key, Role: domain.RoleAdmin}},
	}}
}

// RegisterOperator drafts who may decide in a workspace, with which key, role and limits.
func RegisterOperator(workspace string, reg *domain.OperatorRegistered) Draft {
	return Draft{Use: "operator-add", Events: []domain.Envelope{{Time: Now(), Subject: reg.Operator, Workspace: workspace, Event: reg}}}
}

// Me is the name of whoever runs the program, which the first operator gets.
func Me() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return strings.ToValidUTF8(u.Username, "?")
	}
	return "first"
}
