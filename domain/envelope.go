package domain

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
)

// Event is one fact in the past tense. The set is closed: every event type is defined in this
// package. Code that handles events uses one type switch over pointers to these structs.
type Event interface {
	// Type names the event. It never changes, because it is stored in the log.
	Type() Type
	sealed()
}

// Type is the name of an event type, as the log stores it.
type Type string

// Envelope is an event with the context attributes of CloudEvents 1.0.
type Envelope struct {
	// Source names the observer or the decider: an agent, an importer's file, an operator's
	// command.
	Source string
	// Incarnation distinguishes the lives of a source. Each starts its sequences again at 1.
	Incarnation uint64
	// Sequence is dense from 1 within (Source, Incarnation, topic, partition). It shows repeats and
	// losses.
	Sequence uint64
	// PreviousIncarnation and PreviousSequence name the life of the source before this one and the
	// last sequence that it wrote in this partition. They are zero when there was none or it is not
	// known. Only the first event of an incarnation carries them.
	PreviousIncarnation uint64
	PreviousSequence    uint64
	// Line is where the fact is in the imported file that the source names: the line at which its
	// row starts, from 1, or the row counted with the header where a format has no lines. 0 means
	// that the source is no file, or that its events do not say it. NodeSampled never does.
	Line uint64
	// Time is when the fact became true; for a sample, the end of its interval.
	Time Instant
	// Recorded is when the fact became known, for history that is imported later. Zero means when
	// it was appended (CloudEvents extension recordedtime).
	Recorded Instant
	// Subject is what the event is about within its key. It is for people who read the log.
	Subject string
	// Workspace is the tenant concerned. It is empty for facts of a cluster, whose owner the
	// registry knows.
	Workspace string
	// Cluster is the cluster concerned, where there is one.
	Cluster string
	// Shards is the number of shards of the cluster that the record's key names; 0 and 1 mean that
	// the key is the cluster. It is part of the key alone: it is neither signed nor an attribute.
	Shards int
	// Cites names what this event replaces: the position of a quarantined record that it repairs,
	// as "topic/partition@offset".
	Cites string
	// Signature is present on decisions, nil elsewhere.
	Signature *Signature
	// Event is the fact itself.
	Event Event
}

// ErrIncomplete is returned when an event lacks the attribute that its topic is keyed by, so that
// it cannot be appended. The text names the attribute.
var ErrIncomplete = errors.New("event is incomplete")

// Topic returns the topic that the event belongs to.
func (e *Envelope) Topic() Topic { return TopicOf(e.Event.Type()) }

// Key returns the record's key, which decides its partition. It returns an error when the event
// lacks it.
func (e *Envelope) Key() (string, error) {
	var key, what string
	switch e.Topic() {
	case TopicWorkspaces, TopicProcurement, TopicAccess, TopicIncidents:
		key, what = e.Workspace, "workspace"
	case TopicFleet, TopicDeployments:
		key, what = e.Cluster, "cluster"
	case TopicTelemetry, TopicHardware:
		key, what = e.clusterKey(), "cluster"
	default:
		switch ev := e.Event.(type) {
		case *BillingLineRecorded:
			key, what = AccountKey(ev.Line.InvoiceIssuerName, ev.Line.BillingAccountID), "invoice issuer and billing account"
		case *BillingLineCorrected:
			key, what = AccountKey(ev.Line.InvoiceIssuerName, ev.Line.BillingAccountID), "invoice issuer and billing account"
		case *BillingLineRemoved:
			key, what = AccountKey(ev.InvoiceIssuerName, ev.BillingAccountID), "invoice issuer and billing account"
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
		case *RemovalStarted:
			key, what = ev.Entity, "ledger entity"
		case *RecordsRemoved:
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

// AccountKey returns the key of bills for an account by an issuer: both names, separated by a bar.
// A bar or a backslash within a name is escaped with a backslash, so that two accounts never share
// a key. The key is "" if either name is.
func AccountKey(issuer, account string) string {
	if issuer == "" || account == "" {
		return ""
	}
	return barEscaper.Replace(issuer) + "|" + barEscaper.Replace(account)
}

var barEscaper = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

// SplitAccountKey returns the names that [AccountKey] joined.
func SplitAccountKey(key string) (issuer, account string) {
	var name strings.Builder
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == '|':
			issuer = name.String()
			name.Reset()
		case c == '\\' && i+1 < len(key):
			i++
			name.WriteByte(key[i])
		default:
			name.WriteByte(c)
		}
	}
	return issuer, name.String()
}

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

// Precedence orders facts about one thing. The one with the later effective time wins, then the
// later time, then the one appended later, then the greater stream and sequence. The order is total
// over different events and the same in every replay. Time comes before the append so that a copy
// of a signed decision, appended later, cannot overrule a newer one: its time is signed.
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

// Precedence returns the event's precedence, without the time at which it was appended. It is
// effective at the given time or, when that is zero, at the event's own time.
func (e *Envelope) Precedence(effective Instant) Precedence {
	if effective == 0 {
		effective = e.Time
	}
	return Precedence{Effective: effective, Time: e.Time, Source: e.Source, Incarnation: e.Incarnation, Sequence: e.Sequence}
}

// Signature is an operator's signature over a decision. The decoder rebuilds the signed message
// from the bytes in the log.
//
// A valid signature shows that the holder of Key decided exactly this. Whether that key belonged to
// the operator, with the role and the limit that the decision needs, is a question for the
// registry, answered when read.
type Signature struct {
	Operator string
	Key      []byte // Ed25519 public key, 32 bytes
	Bytes    []byte // Ed25519 signature, 64 bytes
	Message  []byte
}

// ErrSignature is returned for a decision without a valid signature. The event is quarantined; the
// decision must be made again.
var ErrSignature = errors.New("signature does not verify")

// NeedsSignature reports whether an event is a decision, or names an operator as its actor: it is void without a
// signature.
func NeedsSignature(ev Event) bool {
	switch ev.Type() {
	case TypeOperatorRegistered, TypeOperatorRevoked, TypePolicySet, TypeQuotaSet, TypeBudgetSet,
		TypeMethodChanged, TypeMappingRuleSet, TypeLegalHoldSet, TypePersonNamed, TypeCertificationHeld,
		TypeClusterRegistered, TypeClusterKeyIssued, TypeClusterKeyRotated, TypeClusterKeyRevoked,
		TypeGPURetired, TypeOutageDeclared, TypeUsageCorrected,
		TypeTariffSet, TypeFXRateSet, TypeOnDemandQuotaSet,
		TypeRecommendationApproved, TypeRecommendationRejected, TypeRecommendationWithdrawn,
		TypeCommitmentPurchased, TypeCommitmentRenewed, TypeCommitmentEnded,
		TypeClosePrepared, TypeCloseApproved, TypeBooksClosed,
		TypeQuarantineResolved, TypeStreamGapResolved, TypeGenerationSwitched,
		TypeAccessGranted, TypeAccessRevoked, TypeServiceKeyIssued, TypeServiceKeyRevoked,
		TypeIncidentAcknowledged, TypeIncidentSilenced:
		return true
	}
	return ActingOperator(ActorOf(ev)) != ""
}

// CheckSignature returns nil when the event needs no signature or carries one
// that verifies, and an error wrapping [ErrSignature] otherwise.
func (e *Envelope) CheckSignature() error {
	s := e.Signature
	if s == nil {
		if NeedsSignature(e.Event) {
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
