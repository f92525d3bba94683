// Package wire turns events into the records of the log and back. What it
// writes is kept for ever: this comment is the contract of the encoding, and
// the only code that knows old versions of it is here.
//
// A record is a CloudEvent 1.0 in Kafka's binary mode. Its key is
// [domain.Envelope.Key], its partition [domain.PartitionOf] the key, its value
// the Protobuf message of schemas/events/v1 that bears the event's name. The
// attributes are headers, each at most once, absent when empty:
//
//	ce_specversion          1.0
//	ce_type                 quartermaster.<Type>.v<version>
//	ce_id                   <incarnation>/<topic>/<partition>/<sequence>
//	ce_source               the envelope's Source
//	ce_time                 RFC 3339
//	ce_incarnation          decimal, from 1
//	ce_sequence             decimal, from 1
//	content-type            application/protobuf
//	ce_subject, ce_workspace, ce_cluster, ce_cites
//	ce_recordedtime         RFC 3339
//	ce_previousincarnation  decimal; on the first event of an incarnation only
//	ce_previoussequence     decimal
//	ce_operator             who signed
//	ce_operatorkey          their Ed25519 public key, base64
//	ce_signature            Ed25519 signature, base64
//
// The id is computed, not drawn: whoever knows the stream and the sequence of
// an event knows its id, and two events of one source cannot share one. Headers
// of other names are let be.
//
// NodeSampled is sent half a million times where others are sent once, and
// headers would cost a third of reading it. It has two headers, ce_specversion
// and ce_type: the version of the rules by which the other attributes are to be
// understood, and the payload that holds them. They are the first two headers of
// every record, so a reader looks in one place to learn what it has. Source,
// incarnation and sequence stand in the payload, time is the end of the
// interval, the cluster is the key, the subject is the node unless the payload
// says otherwise. [CloudEvent] shows it like any other event.
//
// Decoding is strict, because a log is read by people with money at stake: what
// is missing, given twice, out of bounds or contradicts itself is an error of
// one line that says so, and the record goes into quarantine. What a newer
// writer may add is let be: unknown fields of a message and unknown values of a
// choice. A type or version that this program does not know is [ErrUnknownType].
//
// # Signatures
//
// A decision is signed over a prefix that no other use of the key has, the
// attributes that say what was decided, and the bytes of the payload as they
// stand in the log; see [Sign]. Nothing is encoded again to check it, so a
// signature outlives every change of this package.
//
// Source, incarnation and sequence are not covered: they are given when the
// event is appended, after it was signed. Whoever may append can therefore
// append a decision once more, under another name. That is safe as long as
// folds take decisions as statements (this rule, from this time on) and never
// count them: the copy states the same, in effect from the same time, and loses
// against whatever was decided since. A copy cannot be moved in time, to another
// workspace, cluster or subject, nor made another's. One thing it can do: where
// two decisions take effect at the very same instant, the tie goes by source
// ([domain.Precedence]), and a copy of the one that lost may win it.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// ErrUnknownType is returned for an event of a type, or of a version of a type,
// that this program does not know. A newer program may: quarantine the record,
// and rebuild with the program that knows it.
var ErrUnknownType = errors.New("unknown event type")

// Bounds of a record. Appending holds its own, larger or equal.
const (
	maxRecord    = 4 << 20 // bytes of a value
	maxAttribute = 1 << 10 // bytes of an attribute
	maxHeaders   = 64      // headers of a record, ours and others'
)

// endOfTime is 2262-01-01, the last whole year before nanoseconds overflow.
const endOfTime = 9214646400 * domain.Second

const (
	specHeader  = "ce_specversion"
	typeHeader  = "ce_type"
	specVersion = "1.0"
	contentType = "application/protobuf"
	typePrefix  = "quartermaster."
	typeVersion = ".v1"
	sampledType = typePrefix + string(domain.TypeNodeSampled) + typeVersion
)

// attribute indexes the attributes of an event in the order of their headers.
type attribute int

const (
	attrSpecVersion attribute = iota
	attrType
	attrID
	attrSource
	attrTime
	attrIncarnation
	attrSequence
	attrContentType
	lastRequired = attrContentType
)

const (
	attrSubject attribute = iota + lastRequired + 1
	attrWorkspace
	attrCluster
	attrCites
	attrRecorded
	attrPreviousIncarnation
	attrPreviousSequence
	attrOperator
	attrOperatorKey
	attrSignature
	attributeCount
)

var headerNames = [attributeCount]string{
	attrSpecVersion:         specHeader,
	attrType:                typeHeader,
	attrID:                  "ce_id",
	attrSource:              "ce_source",
	attrTime:                "ce_time",
	attrIncarnation:         "ce_incarnation",
	attrSequence:            "ce_sequence",
	attrContentType:         "content-type",
	attrSubject:             "ce_subject",
	attrWorkspace:           "ce_workspace",
	attrCluster:             "ce_cluster",
	attrCites:               "ce_cites",
	attrRecorded:            "ce_recordedtime",
	attrPreviousIncarnation: "ce_previousincarnation",
	attrPreviousSequence:    "ce_previoussequence",
	attrOperator:            "ce_operator",
	attrOperatorKey:         "ce_operatorkey",
	attrSignature:           "ce_signature",
}

var attributeOf = func() map[string]attribute {
	m := make(map[string]attribute, attributeCount)
	for a, name := range headerNames {
		m[name] = attribute(a)
	}
	return m
}()

// attributes are the attributes of one event as text, "" when absent.
type attributes [attributeCount]string

// ID returns the CloudEvents id of an event: unique within its source, and
// known to whoever knows its stream and sequence.
func ID(env *domain.Envelope) (string, error) {
	key, err := env.Key()
	if err != nil {
		return "", err
	}
	topic := env.Topic()
	return eventID(env, topic, domain.PartitionOf([]byte(key), topic.Partitions())), nil
}

func eventID(env *domain.Envelope, topic domain.Topic, partition int) string {
	return strconv.FormatUint(env.Incarnation, 10) + "/" + string(topic) + "/" +
		strconv.Itoa(partition) + "/" + strconv.FormatUint(env.Sequence, 10)
}

func typeName(t domain.Type) string { return typePrefix + string(t) + typeVersion }

// parseType reads what typeName writes.
func parseType(s string) (domain.Type, error) {
	name, ours := strings.CutPrefix(s, typePrefix)
	if !ours {
		return "", fmt.Errorf("type %.80q: %w: not an event of quartermaster", s, ErrUnknownType)
	}
	name, v1 := strings.CutSuffix(name, typeVersion)
	switch {
	case !v1:
		return "", fmt.Errorf("type %.80q: %w: this program knows version 1", s, ErrUnknownType)
	case domain.TopicOf(domain.Type(name)) == "":
		return "", fmt.Errorf("type %.80q: %w", s, ErrUnknownType)
	}
	return domain.Type(name), nil
}

// TypeOf returns the type that a record's header names, "" when it names none that
// this program knows. Whether the record is an event of it, [Decoder.Decode] says.
func TypeOf(rec *domain.Record) domain.Type {
	typ, err := parseType(string(rec.Header(typeHeader)))
	if err != nil {
		return ""
	}
	return typ
}

// checkContext holds what is true of the attributes of every event, whether
// it is about to be written or was just read.
func checkContext(env *domain.Envelope) error {
	switch {
	case env.Source == "":
		return errors.New("source is empty")
	case env.Incarnation == 0:
		return errors.New("incarnation is 0, they count from 1")
	case env.Sequence == 0:
		return errors.New("sequence is 0, they count from 1")
	case env.Time == 0:
		return errors.New("time is not given")
	case env.Time < 0 || env.Time >= endOfTime || env.Recorded < 0 || env.Recorded >= endOfTime:
		return errors.New("time or recordedtime is outside the years 1970 to 2261")
	case env.PreviousIncarnation == 0 && env.PreviousSequence != 0:
		return errors.New("previoussequence without previousincarnation")
	case env.PreviousIncarnation != 0 && env.Sequence != 1:
		return fmt.Errorf("previousincarnation on event %d of its stream, only the first names it", env.Sequence)
	case env.PreviousIncarnation != 0 && env.PreviousIncarnation == env.Incarnation:
		return fmt.Errorf("previousincarnation %d is its own incarnation", env.PreviousIncarnation)
	}
	if env.Cites != "" {
		record, offset, ok := strings.Cut(env.Cites, "@")
		p, err := domain.ParsePosition(record + "=" + offset)
		if !ok || err != nil || len(p) != 1 {
			return fmt.Errorf("cites %.80q is not topic/partition@offset", env.Cites)
		}
	}
	return nil
}
