package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"quartermaster/domain"
)

// Encode returns the record of an event: topic, partition, key, value and headers. The log sets
// offset and time. Encode refuses an event that [Decoder.Decode] would not read. The error names
// the event and the field, and wraps [domain.ErrIncomplete] if an attribute is missing, or
// [domain.ErrSignature] if the signature does not verify over this event. A decision without a
// signature is encoded, because the fold decides whether it is valid.
//
// Equal events give equal bytes.
func Encode(env *domain.Envelope) (domain.Record, error) {
	rec, err := encode(env)
	if err != nil {
		return domain.Record{}, fmt.Errorf("encode %s: %w", nameOf(env.Event), err)
	}
	return rec, nil
}

func nameOf(ev domain.Event) string {
	if ev == nil {
		return "event"
	}
	return string(ev.Type())
}

func encode(env *domain.Envelope) (domain.Record, error) {
	var rec domain.Record
	if env.Event == nil {
		return rec, fmt.Errorf("%w: it holds no event", domain.ErrIncomplete)
	}
	if err := checkContext(env); err != nil {
		return rec, fmt.Errorf("%w: %w", domain.ErrIncomplete, err)
	}
	key, err := env.Key()
	if err != nil {
		return rec, err
	}
	if err := checkText(key, maxAttribute); err != nil {
		return rec, fmt.Errorf("key: %w", err)
	}
	rec.Topic, rec.Key = env.Topic(), []byte(key)
	rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())

	if s, ok := env.Event.(*domain.NodeSampled); ok {
		if env.Line != 0 {
			return rec, errors.New("a line of a file, which NodeSampled has no room for")
		}
		if env.Signature != nil {
			return rec, errors.New("a sample is not signed")
		}
		rec.Value, err = appendSample(make([]byte, 0, 1024), env, s)
		rec.Headers = []domain.Header{
			{Key: headerNames[attrSpecVersion], Value: []byte(specVersion)},
			{Key: headerNames[attrType], Value: []byte(sampledType)},
		}
		return rec, err
	}

	if rec.Value, err = payload(env.Event); err != nil {
		return rec, err
	}
	attrs := attributesOf(env)
	attrs[attrID] = eventID(env, rec.Topic, rec.Partition)
	if sig := env.Signature; sig != nil {
		signed := *env
		signed.Signature = &domain.Signature{
			Operator: sig.Operator, Key: sig.Key, Bytes: sig.Bytes,
			Message: signedMessage(&attrs, rec.Value),
		}
		if err := signed.CheckSignature(); err != nil {
			return rec, err
		}
	}
	for a, v := range attrs {
		if v == "" {
			continue
		}
		if err := checkText(v, maxAttribute); err != nil {
			return rec, fmt.Errorf("%s: %w", headerNames[a], err)
		}
		rec.Headers = append(rec.Headers, domain.Header{Key: headerNames[a], Value: []byte(v)})
	}
	return rec, nil
}

// payload encodes an event other than NodeSampled, with maps in the order of their keys. vtprotobuf
// would be faster, but writes maps in random order.
func payload(ev domain.Event) ([]byte, error) {
	msg, move := bind(ev)
	if msg == nil {
		return nil, ErrUnknownType
	}
	m := mover{}
	move(&m)
	if m.err != nil {
		return nil, m.err
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		return nil, err
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("payload of %d bytes, more than %d", len(b), maxRecord)
	}
	return b, nil
}

// attributesOf returns all attributes except the id.
func attributesOf(env *domain.Envelope) attributes {
	a := attributes{
		attrSpecVersion:         specVersion,
		attrType:                typeName(env.Event.Type()),
		attrSource:              env.Source,
		attrTime:                env.Time.String(),
		attrIncarnation:         number(env.Incarnation),
		attrSequence:            number(env.Sequence),
		attrContentType:         contentType,
		attrSubject:             env.Subject,
		attrWorkspace:           env.Workspace,
		attrCluster:             env.Cluster,
		attrCites:               env.Cites,
		attrRecorded:            env.Recorded.String(),
		attrPreviousIncarnation: number(env.PreviousIncarnation),
		attrPreviousSequence:    number(env.PreviousSequence),
		attrLine:                number(env.Line),
	}
	if s := env.Signature; s != nil {
		a[attrOperator] = s.Operator
		a[attrOperatorKey] = base64.StdEncoding.EncodeToString(s.Key)
		a[attrSignature] = base64.StdEncoding.EncodeToString(s.Bytes)
	}
	return a
}

// number formats an attribute whose 0 means absent.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
