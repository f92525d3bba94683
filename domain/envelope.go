package domain

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
)

// Event is one fact in the past tense. The set is closed: every event type
// lives in this package, and whoever handles events does it in one type switch
// over pointers to these structs.
type Event interface {
	// Type names the event; it is stable for ever, because it stands in the log.
	Type() Type
	sealed()
}

// Type is the name of an event type, as it stands in the log.
type Type string

// Envelope is an event with the context that CloudEvents 1.0 asks for.
type Envelope struct {
	// Source names who observed or decided: an agent, an importer's file, an operator's command.
	Source string
	// Incarnation tells lives of a source apart; each starts its sequences anew.
	Incarnation uint64
	// Sequence is dense from 1 within (Source, Incarnation, topic, partition).
	// With it a repeat is told from news and a loss is seen.
	Sequence uint64
	// PreviousIncarnation and PreviousSequence name the life of the source
	// before this one and the last sequence it wrote in this partition; zero
	// when there was none or nothing is known. Only the first event of an
	// incarnation carries them.
	PreviousIncarnation uint64
	PreviousSequence    uint64
	// Time is when the fact became true: for a sample the end of its interval.
	Time Instant
	// Recorded is when the fact became known, for history that is imported
	// later; zero means when it was appended (CloudEvents extension recordedtime).
	Recorded Instant
	// Subject is what the event is about within its key, for people who read the log.
	Subject string
	// Workspace is the tenant concerned; empty for facts of a cluster, whose
	// owner the registry knows.
	Workspace string
	// Cluster is the cluster concerned, where there is one.
	Cluster string
	// Cites names what this event stands in for: the position of a quarantined
	// record that it mends, as "topic/partition@offset".
	Cites string
	// Signature is present on decisions, nil elsewhere.
	Signature *Signature
	// Event is the fact itself.
	Event Event
}

// ErrIncomplete is returned when an event lacks what its topic needs, so that
// it cannot be appended; the text names the attribute.
var ErrIncomplete = errors.New("event is incomplete")

// Topic returns the topic that the event belongs to.
func (e *Envelope) Topic() Topic { return TopicOf(e.Event.Type()) }

// Key returns what the record is keyed by, which decides its partition. It is
// an error when the event lacks it.
func (e *Envelope) Key() (string, error) {
	var key, what string
	switch e.Topic() {
	case TopicWorkspaces, TopicProcurement:
		key, what = e.Workspace, "workspace"
	case TopicFleet, TopicTelemetry, TopicHardware, TopicDeployments:
		key, what = e.Cluster, "cluster"
	default:
		switch ev := e.Event.(type) {
		case *BillingLineRecorded:
			key, what = AccountKey(ev.Line.InvoiceIssuerName, ev.Line.BillingAccountID), "invoice issuer and billing account"
		case *BillingLineCorrected:
			key, what = AccountKey(ev.Line.InvoiceIssuerName, ev.Line.BillingAccountID), "invoice issuer and billing account"
		case *InvoiceReceived:
			key, what = AccountKey(ev.InvoiceIssuerName, ev.BillingAccountID), "invoice issuer and billing account"
		case *BillingPeriodClosed:
			key, what = AccountKey(ev.InvoiceIssuerName, ev.BillingAccountID), "invoice issuer and billing account"
		case *OfferQuoted:
			key, what = ev.Market.Key(), "provider"
		case *OfferWithdrawn:
			key, what = ev.Market.Key(), "provider"
		case *OnDemandQuotaSet:
			key, what = ev.Market.Key(), "provider"
		case *SpotInterrupted:
			key, what = ev.Market.Key(), "provider"
		case *TariffSet:
			key, what = ev.Market.Key(), "provider"
		case *FXRateSet:
			key, what = pairKey(ev.Base, ev.Quote), "currency pair"
		case *ClosePrepared:
			key, what = ev.Entity, "ledger entity"
		case *CloseApproved:
			key, what = ev.Entity, "ledger entity"
		case *BooksClosed:
			key, what = ev.Entity, "ledger entity"
		case *ExportMade:
			key, what = ev.Entity, "ledger entity"
		case *CheckpointSigned:
			key, what = ev.Entity, "ledger entity"
		case *QuarantineResolved:
			key, what = ev.Entity, "ledger entity"
		case *StreamConflictObserved:
			key, what = ev.Entity, "ledger entity"
		case *StreamGapResolved:
			key, what = ev.Entity, "ledger entity"
		case *GenerationSwitched:
			key, what = ev.Entity, "ledger entity"
		case *AccessDenied:
			key, what = ev.Entity, "ledger entity"
		default:
			return "", fmt.Errorf("key of %T: %w: unknown event type", e.Event, ErrIncomplete)
		}
	}
	if key == "" {
		return "", fmt.Errorf("%s: %w: no %s", e.Event.Type(), ErrIncomplete, what)
	}
	return key, nil
}

// AccountKey returns the key of what is billed to an account by an issuer:
// both, with a bar between. A bar or a backslash within either has a backslash
// before it, so that two accounts never share a key. It is "" if either is.
func AccountKey(issuer, account string) string {
	if issuer == "" || account == "" {
		return ""
	}
	return barEscaper.Replace(issuer) + "|" + barEscaper.Replace(account)
}

var barEscaper = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

func pairKey(base, quote string) string {
	if base == "" || quote == "" {
		return ""
	}
	return base + "/" + quote
}

// StreamID names a stream within the partition that it writes to.
type StreamID struct {
	Source      string
	Incarnation uint64
}

// Stream returns the stream that the event belongs to.
func (e *Envelope) Stream() StreamID { return StreamID{e.Source, e.Incarnation} }

// Precedence places facts about one thing: the later in effect wins, where two take
// effect at once the one stated later, where that is the same too the one
// appended later, and last the greater stream and sequence. Order is total over
// different events and the same in every replay. Time stands before the append
// so that a signed decision that is copied into the log again cannot overrule a
// newer one: its time is signed.
type Precedence struct {
	Effective   Instant
	Time        Instant
	Appended    Instant // the record's time; set by the fold
	Source      string
	Incarnation uint64
	Sequence    uint64
}

// After reports whether o wins over p.
func (o Precedence) After(p Precedence) bool {
	switch {
	case o.Effective != p.Effective:
		return o.Effective > p.Effective
	case o.Time != p.Time:
		return o.Time > p.Time
	case o.Appended != p.Appended:
		return o.Appended > p.Appended
	case o.Source != p.Source:
		return o.Source > p.Source
	case o.Incarnation != p.Incarnation:
		return o.Incarnation > p.Incarnation
	default:
		return o.Sequence > p.Sequence
	}
}

// Precedence returns the event's place but for when it was appended, effective at the given
// time or, when that is zero, at the event's own time.
func (e *Envelope) Precedence(effective Instant) Precedence {
	if effective == 0 {
		effective = e.Time
	}
	return Precedence{Effective: effective, Time: e.Time, Source: e.Source, Incarnation: e.Incarnation, Sequence: e.Sequence}
}

// Signature is an operator's signature over a decision. Message is what was
// signed, rebuilt from the bytes in the log by whoever decoded the event.
//
// A signature that verifies shows that the holder of Key decided exactly this.
// Whether that key belonged to the operator, with the role and the limit that
// the decision needs, is a question to the registry, answered when read.
type Signature struct {
	Operator string
	Key      []byte // Ed25519 public key, 32 bytes
	Bytes    []byte // Ed25519 signature, 64 bytes
	Message  []byte
}

// ErrSignature is returned for a decision without a valid signature. The event
// is quarantined; it must be decided again.
var ErrSignature = errors.New("signature does not verify")

// NeedsSignature reports whether events of the type are decisions, void
// without a signature.
func NeedsSignature(t Type) bool {
	switch t {
	case TypeOperatorRegistered, TypeOperatorRevoked, TypePolicySet, TypeQuotaSet, TypeBudgetSet,
		TypeMethodChanged, TypeMappingRuleSet, TypeCertificationHeld,
		TypeClusterRegistered, TypeClusterKeyIssued, TypeClusterKeyRotated, TypeClusterKeyRevoked, TypeGPURetired, TypeOutageDeclared, TypeUsageCorrected,
		TypeTariffSet, TypeFXRateSet, TypeOnDemandQuotaSet,
		TypeRecommendationApproved, TypeRecommendationRejected,
		TypeCommitmentPurchased, TypeCommitmentRenewed, TypeCommitmentEnded,
		TypeClosePrepared, TypeCloseApproved, TypeBooksClosed, TypeQuarantineResolved, TypeStreamGapResolved, TypeGenerationSwitched:
		return true
	}
	return false
}

// CheckSignature returns nil when the event needs no signature or carries one
// that verifies, and an error wrapping [ErrSignature] otherwise.
func (e *Envelope) CheckSignature() error {
	s := e.Signature
	if s == nil {
		if NeedsSignature(e.Event.Type()) {
			return fmt.Errorf("%s: %w: there is none", e.Event.Type(), ErrSignature)
		}
		return nil
	}
	switch {
	case s.Operator == "":
		return fmt.Errorf("%s: %w: it names no operator", e.Event.Type(), ErrSignature)
	case len(s.Key) != ed25519.PublicKeySize:
		return fmt.Errorf("%s: %w: key of %d bytes, want %d", e.Event.Type(), ErrSignature, len(s.Key), ed25519.PublicKeySize)
	case !ed25519.Verify(s.Key, s.Message, s.Bytes):
		return fmt.Errorf("%s: %w: not made by operator %q over these bytes", e.Event.Type(), ErrSignature, s.Operator)
	}
	return nil
}
