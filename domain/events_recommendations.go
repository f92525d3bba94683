package domain

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Events of qm.procurement about recommendations: what is proposed, who decided, what was done and what came of it.

// recommendationKinds are the kinds of recommendations.
var recommendationKinds = []string{
	"purchase",  // buy capacity
	"renew",     // extend a commitment
	"lapse",     // let a commitment end
	"rightsize", // a smaller or another GPU or slice, or fewer replicas
	"tier",      // place a model on another tier
	"rebalance", // divide a model's replicas anew among the clusters of a region
	"shift",     // move load from a saturated to an underutilized cluster
	"drain",     // take work off nodes
	"sleep",     // switch off in hours without work
	"limits",    // spill limits and region weights
	"retire",    // remove what nobody declared or nobody uses
	"quota",     // another quota
	"own",       // own instead of rent
}

// RecommendationKinds returns every kind of recommendation.
func RecommendationKinds() []string { return slices.Clone(recommendationKinds) }

// RecommendationMade proposes something. It has no effect until approved.
type RecommendationMade struct {
	Recommendation string      `json:"recommendation"`
	Kind           string      `json:"kind"` // of [RecommendationKinds]
	Plan           string      `json:"plan,omitempty"`
	Scenario       string      `json:"scenario,omitempty"`
	Summary        string      `json:"summary"`
	Purchases      []Purchase  `json:"purchases,omitempty"`
	Cost           Money       `json:"cost"`                 // that an approval commits
	Requester      string      `json:"requester"`            // an operator, or the program that found it
	Clusters       []string    `json:"clusters,omitempty"`   // that it touches; sorted
	WhyMore        string      `json:"why_more,omitempty"`   // why it touches more than one cluster
	From           string      `json:"from,omitempty"`       // what is
	To             string      `json:"to,omitempty"`         // what is proposed
	Saving         Money       `json:"saving,omitzero"`      // a month
	SavingLow      Money       `json:"saving_low,omitzero"`  // of its 90% interval
	SavingHigh     Money       `json:"saving_high,omitzero"` // of its 90% interval
	Coverage       NullDecimal `json:"coverage,omitzero"`    // of telemetry, 0 to 1
	Expires        Instant     `json:"expires,omitempty"`    // when it can no longer be approved; zero: never
	Supersedes     []string    `json:"supersedes,omitempty"` // recommendations
	Incidents      []string    `json:"incidents,omitempty"`  // that it answers
	Findings       []string    `json:"findings,omitempty"`   // ids of findings that it cites
	Simulation     string      `json:"simulation,omitempty"` // digest of the fork that priced it
	Position       string      `json:"position,omitempty"`   // that the figures are of
	Method         string      `json:"method,omitempty"`     // version of the rules
	Document       []byte      `json:"document,omitempty"`   // evidence, policies kept, risk, cost of doing it; canonical JSON
}

// Canonical returns what is approved: the event as canonical JSON.
func (e *RecommendationMade) Canonical() ([]byte, error) { return CanonicalJSON(e) }

// Digest returns the SHA-256 of [RecommendationMade.Canonical].
func (e *RecommendationMade) Digest() ([]byte, error) {
	content, err := e.Canonical()
	if err != nil {
		return nil, fmt.Errorf("digest recommendation %s: %w", e.Recommendation, err)
	}
	sum := sha256.Sum256(content)
	return sum[:], nil
}

// RecommendationApproved allows a recommendation to be carried out.
type RecommendationApproved struct {
	Recommendation string `json:"recommendation"`
	Note           string `json:"note,omitempty"`
	// Digest is [RecommendationMade.Digest] of what is approved. An approval of other content is void.
	Digest []byte `json:"digest,omitempty"`
}

// RecommendationRejected closes a recommendation.
type RecommendationRejected struct {
	Recommendation string `json:"recommendation"`
	Note           string `json:"note,omitempty"`
}

// RecommendationWithdrawn takes a recommendation back. It cannot be approved any more.
type RecommendationWithdrawn struct {
	Recommendation string `json:"recommendation"`
	Reason         string `json:"reason,omitempty"`
}

// CommandIssued tells a cluster what to do for an approved recommendation. A program appends it; the cluster pulls it with
// its key and verifies the approvals. It may receive a command several times and carries it out once.
type CommandIssued struct {
	Command        string     `json:"command"` // id: digest of what follows
	Recommendation string     `json:"recommendation"`
	Cluster        string     `json:"cluster"`
	Kind           string     `json:"kind"`      // of the recommendation
	Expires        Instant    `json:"expires"`   // after this it must not be carried out
	Approvals      []Approval `json:"approvals"` // at least one
	Document       []byte     `json:"document"`  // what to do, canonical JSON
}

// Approval is the signature of a RecommendationApproved, with what is needed to verify it.
type Approval struct {
	Operator  string `json:"operator"`
	PublicKey []byte `json:"public_key"` // Ed25519
	Signed    []byte `json:"signed"`     // the bytes that were signed
	Signature []byte `json:"signature"`
}

// ApprovalOf returns the approval that a signature makes.
func ApprovalOf(s *Signature) Approval {
	return Approval{Operator: s.Operator, PublicKey: s.Key, Signed: s.Message, Signature: s.Bytes}
}

// Verifies reports whether the signature is that of the public key over the signed bytes. Whether the key is the
// operator's, and whether the bytes approve this recommendation, are other questions.
func (a *Approval) Verifies() bool {
	return len(a.PublicKey) == ed25519.PublicKeySize && ed25519.Verify(a.PublicKey, a.Signed, a.Signature)
}

// RecommendationActuated says that a recommendation was carried out, or why not.
type RecommendationActuated struct {
	Recommendation string `json:"recommendation"`
	Reference      string `json:"reference,omitempty"` // of a change, a ticket or an order
	Cluster        string `json:"cluster,omitempty"`   // where
	Command        string `json:"command,omitempty"`   // that was carried out
	// Actor is who did it: [OperatorActor] of whoever signed the event, or [KeyActor] of the cluster's key that the
	// gateway authenticated.
	Actor  string `json:"actor,omitempty"`
	Result string `json:"result,omitempty"` // done, failed, refused; empty: done
}

// OutcomeRecorded says how a recommendation turned out.
type OutcomeRecorded struct {
	Recommendation string   `json:"recommendation"`
	Outcome        string   `json:"outcome"` // succeeded, failed, partial
	Detail         string   `json:"detail,omitempty"`
	Cluster        string   `json:"cluster,omitempty"`
	Actor          string   `json:"actor,omitempty"`    // who states it; empty: a program measured it
	Window         Interval `json:"window,omitzero"`    // that was measured
	Measured       Money    `json:"measured,omitzero"`  // the saving that came true, a month
	Position       string   `json:"position,omitempty"` // that the figures are of
	Method         string   `json:"method,omitempty"`
	Document       []byte   `json:"document,omitempty"` // the figures, canonical JSON
}

const (
	actorOperator = "operator:"
	actorKey      = "key:"
)

// OperatorActor names an operator as the actor of an event that they sign.
func OperatorActor(operator string) string { return actorOperator + operator }

// KeyActor names a cluster's key as the actor of an event.
func KeyActor(keyID string) string { return actorKey + keyID }

// ActingOperator returns the operator that an actor is, "" for another.
func ActingOperator(actor string) string {
	if operator, ok := strings.CutPrefix(actor, actorOperator); ok {
		return operator
	}
	return ""
}

// ActingKey returns the id of the cluster's key that an actor is, "" for another.
func ActingKey(actor string) string {
	if key, ok := strings.CutPrefix(actor, actorKey); ok {
		return key
	}
	return ""
}

// ActorOf returns who did or stated what an event says, "" where it names nobody.
func ActorOf(ev Event) string {
	switch ev := ev.(type) {
	case *RecommendationActuated:
		return ev.Actor
	case *OutcomeRecorded:
		return ev.Actor
	}
	return ""
}

func (c *checker) recommendationMade(e *RecommendationMade) {
	c.id("recommendation", e.Recommendation)
	oneOf(c, "kind", e.Kind, recommendationKinds...)
	c.optionalID("plan", e.Plan)
	c.optionalID("scenario", e.Scenario)
	c.text("summary", e.Summary)
	c.money("cost", e.Cost)
	c.id("requester", e.Requester)
	if !c.listed("purchases", len(e.Purchases)) {
		return
	}
	for i, p := range e.Purchases {
		c.in("purchases", i)
		c.market(p.Market)
		c.id("offer", p.Offer)
		c.positive("units", p.Units)
		c.instant("start", p.Start)
		c.out()
	}
	c.ids("clusters", e.Clusters)
	if !slices.IsSorted(e.Clusters) {
		c.bad("clusters", "are not sorted")
	}
	c.text("why_more", e.WhyMore)
	if len(e.Clusters) > 1 && e.WhyMore == "" {
		c.bad("why_more", "is missing: it touches %d clusters", len(e.Clusters))
	}
	c.text("from", e.From)
	c.text("to", e.To)
	c.saving(e)
	if e.Coverage.Valid {
		c.fraction("coverage", e.Coverage)
	}
	c.optionalInstant("expires", e.Expires)
	c.ids("supersedes", e.Supersedes)
	c.ids("incidents", e.Incidents)
	c.ids("findings", e.Findings)
	c.optionalID("simulation", e.Simulation)
	c.optionallyComputed(e.Position, e.Method, e.Document)
}

func (c *checker) saving(e *RecommendationMade) {
	c.money("saving", e.Saving)
	c.money("saving_low", e.SavingLow)
	c.money("saving_high", e.SavingHigh)
	if c.err != nil || e.Saving.Currency == "" && e.SavingLow.Currency == "" && e.SavingHigh.Currency == "" {
		return
	}
	switch {
	case e.SavingLow.Currency != e.Saving.Currency || e.SavingHigh.Currency != e.Saving.Currency:
		c.bad("saving", "has another currency than its interval: %s, from %s to %s", e.Saving, e.SavingLow, e.SavingHigh)
	case e.SavingLow.Amount.Cmp(e.Saving.Amount) > 0 || e.SavingHigh.Amount.Cmp(e.Saving.Amount) < 0:
		c.bad("saving", "%s is not between %s and %s", e.Saving, e.SavingLow, e.SavingHigh)
	}
}

// optionallyComputed checks where figures come from, if they come from somewhere.
func (c *checker) optionallyComputed(position, method string, document []byte) {
	if position != "" {
		c.position("position", position)
	}
	c.optionalID("method", method)
	if len(document) > 0 {
		c.findings("document", document)
	}
}

func (c *checker) actor(actor string) {
	c.id("actor", actor)
	if ActingOperator(actor) == "" && ActingKey(actor) == "" {
		c.bad("actor", "%s is none: want operator:NAME or key:KEYID", quote(actor))
	}
}

func (c *checker) recommendationActuated(e *RecommendationActuated) {
	c.id("recommendation", e.Recommendation)
	c.text("reference", e.Reference)
	c.optionalID("cluster", e.Cluster)
	c.optionalID("command", e.Command)
	c.actor(e.Actor)
	if e.Cluster == "" && ActingKey(e.Actor) != "" {
		c.bad("cluster", "is missing: a key is of one cluster")
	}
	if e.Result != "" {
		oneOf(c, "result", e.Result, "done", "failed", "refused")
	}
}

func (c *checker) outcomeRecorded(e *OutcomeRecorded) {
	c.id("recommendation", e.Recommendation)
	oneOf(c, "outcome", e.Outcome, "succeeded", "failed", "partial")
	c.text("detail", e.Detail)
	c.optionalID("cluster", e.Cluster)
	if e.Actor != "" {
		c.actor(e.Actor)
	}
	if e.Window != (Interval{}) {
		c.interval("window", e.Window)
	}
	c.money("measured", e.Measured)
	c.optionallyComputed(e.Position, e.Method, e.Document)
}

func (c *checker) commandIssued(e *CommandIssued) {
	c.id("command", e.Command)
	c.id("recommendation", e.Recommendation)
	c.id("cluster", e.Cluster)
	oneOf(c, "kind", e.Kind, recommendationKinds...)
	c.instant("expires", e.Expires)
	c.findings("document", e.Document)
	if len(e.Approvals) == 0 {
		c.bad("approvals", "is empty, want at least one")
	}
	if !c.listed("approvals", len(e.Approvals)) {
		return
	}
	for i := range e.Approvals {
		a := &e.Approvals[i]
		c.in("approvals", i)
		c.id("operator", a.Operator)
		c.bytes("public_key", a.PublicKey, ed25519.PublicKeySize)
		if n := len(a.Signed); n == 0 || n > maxLongText {
			c.bad("signed", "has %d bytes, want 1 to %d", n, maxLongText)
		}
		c.bytes("signature", a.Signature, ed25519.SignatureSize)
		if c.err == nil && !a.Verifies() {
			c.bad("signature", "does not verify")
		}
		c.out()
	}
}
