// Package wire turns events into records of the log and back. Records are kept for ever. So this
// comment is the contract of the encoding, and this package is the only code that knows old
// versions of it.
//
// A record is a CloudEvent 1.0 in Kafka's binary mode. Its key is [domain.Envelope.Key], its
// partition is [domain.PartitionOf] the key, and its value is the Protobuf message of
// schemas/events/v1 with the event's name. The attributes are headers, each at most once, absent
// when empty:
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
//	ce_line                 decimal; where a fact is in the imported file that the source names
//	ce_operator             who signed
//	ce_operatorkey          their Ed25519 public key, base64
//	ce_signature            Ed25519 signature, base64
//
// The id is computed from the stream and the sequence of an event, so two events of one source
// cannot have the same id. Other headers are ignored.
//
// NodeSampled occurs half a million times as often as all other events, and headers would be a
// third of the cost of reading it. It has two headers, ce_specversion and ce_type. They give the
// version of the rules for the other attributes, and the payload that holds them. They are the
// first two headers of every record, so a reader finds the type in one place. Source, incarnation
// and sequence are in the payload. The time is the end of the interval, the cluster is the key, and
// the subject is the node unless the payload has another one. [CloudEvent] shows it like any other
// event.
//
// Decoding is strict, because people make financial decisions from the log. Anything missing,
// duplicate, out of bounds or contradictory is an error of one line, and the record goes into
// quarantine. Additions of newer writers are ignored: unknown fields of a message and unknown enum
// values. A type or version that this program does not know is [ErrUnknownType].
//
// # Signatures
//
// The signature of a decision covers a prefix that no other use of the key has, the attributes that
// say what was decided, and the bytes of the payload as they are in the log; see [Sign]. Checking
// it encodes nothing again, so a signature stays valid through every change of this package.
//
// Source, incarnation and sequence are not covered, because they are set when the event is
// appended, after it was signed. So whoever may append can append a copy of a decision under
// another source. That is safe as long as folds treat decisions as statements (this rule, from this
// time on) and never count them. The copy states the same, in effect from the same time, and loses
// against any later decision. A copy cannot be moved in time, to another workspace, cluster or
// subject, nor attributed to another operator. There is one exception: if two decisions take effect
// at the same instant, the tie is broken by source ([domain.Precedence]), and a copy of the losing
// one may win.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// ErrUnknownType is returned for an event type, or a version of a type, that this program does not
// know. The caller puts the record into quarantine. An operator rebuilds with a newer program that
// knows it.
var ErrUnknownType = errors.New("unknown event type")

// Bounds of a record. The log's own bounds are at least as large.
const (
	maxRecord    = 4 << 20 // bytes of a value
	maxAttribute = 1 << 10 // bytes of an attribute
	maxHeaders   = 64      // headers of a record, including foreign ones
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
	attrLine
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
	attrLine:                "ce_line",
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

// attributes are the attributes of one event as text; "" if absent.
type attributes [attributeCount]string

// ID returns the CloudEvents id of an event. It is unique within its source, and follows from the
// event's stream and sequence.
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

// parseType parses the output of typeName.
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

// TypeOf returns the type in a record's header, or "" if this program does not know it. Only
// [Decoder.Decode] checks that the record is a valid event of the type.
func TypeOf(rec *domain.Record) domain.Type {
	typ, err := parseType(string(rec.Header(typeHeader)))
	if err != nil {
		return ""
	}
	return typ
}

// checkContext checks the attributes of an event, both before writing and after reading.
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
