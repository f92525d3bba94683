package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"quartermaster/domain"
)

// Decoder turns records into events, and reuses the memory of samples. The zero value is ready. It
// is not safe for concurrent use.
type Decoder struct {
	sample domain.NodeSampled
	parts  []uint32 // of the table of names
	values []uint32 // the arrays of the sample point into it
	arena  []byte   // the names of the sample point into it
	arrays sampleTable
	filled uint64 // the fields that the last sample may have set in sample

	places map[string]place // of samples, by key
}

// Decode sets env to the event in rec.
//
// For NodeSampled the event, its arrays and all text in it and in env are in the memory of the
// Decoder and of rec. They are valid until the next call, and no longer than the memory behind rec.
// A caller that keeps any of it MUST clone it. In steady state nothing is allocated. Every other
// event has its own memory, which shares nothing with rec and belongs to the caller.
//
// A decoded sample was only parsed. Its text is safe to keep and to show, and its interval is not
// empty and at most a day. Its arrays may have any length and its references may point anywhere. A
// caller that follows them MUST call [domain.Validate] first. Folds do so in any case, and once is
// enough.
//
// After an error, env is meaningless. The error is one line for people who inspect the quarantine.
// It wraps [ErrUnknownType] if a newer program may be able to read the record.
func (d *Decoder) Decode(rec *domain.Record, env *domain.Envelope) error {
	*env = domain.Envelope{}
	if rec.IsMarker() {
		return errors.New("it is a marker of Kafka's own and no event")
	}
	if rec.Span != nil {
		return errors.New(rec.Span.Fault)
	}
	if isSample(rec) {
		if err := d.decodeSample(rec, env); err != nil {
			return fmt.Errorf("decode NodeSampled: %w", err)
		}
		return nil
	}
	typ, err := decode(rec, env)
	if err != nil {
		if typ == "" {
			typ = "event"
		}
		return fmt.Errorf("decode %s: %w", typ, err)
	}
	return nil
}

// decode reads any event but NodeSampled. It returns the type as soon as it is known.
func decode(rec *domain.Record, env *domain.Envelope) (domain.Type, error) {
	a, err := headers(rec)
	if err != nil {
		return "", err
	}
	typ, err := parseType(a[attrType])
	if err != nil {
		return "", err
	}
	if typ == domain.TypeNodeSampled {
		return typ, fmt.Errorf("it has %s and %s as its only headers, there are %d",
			headerNames[attrSpecVersion], headerNames[attrType], len(rec.Headers))
	}
	for i, v := range a[:lastRequired+1] {
		if v == "" {
			return typ, fmt.Errorf("header %s is missing", headerNames[i])
		}
	}
	if a[attrContentType] != contentType {
		return typ, fmt.Errorf("content-type %.80q, want %s", a[attrContentType], contentType)
	}
	if len(rec.Value) > maxRecord {
		return typ, fmt.Errorf("payload of %d bytes, more than %d", len(rec.Value), maxRecord)
	}

	ev := domain.NewEvent(typ)
	msg, move := bind(ev)
	if err := msg.UnmarshalVT(rec.Value); err != nil {
		return typ, fmt.Errorf("payload is not its message: %v", err)
	}
	m := mover{decode: true}
	if move(&m); m.err != nil {
		return typ, m.err
	}
	if err := a.context(env); err != nil {
		return typ, err
	}
	env.Event = ev
	if a[attrSignature] != "" {
		env.Signature.Message = signedMessage(&a, rec.Value)
	}

	if t := env.Topic(); t == domain.TopicTelemetry || t == domain.TopicHardware {
		if _, _, env.Shards, err = domain.ParseShardKey(string(rec.Key)); err != nil {
			return typ, err
		}
	}
	key, err := env.Key()
	if err != nil {
		return typ, err
	}
	if err := checkPlace(rec, env.Topic(), key); err != nil {
		return typ, err
	}
	if id := eventID(env, rec.Topic, rec.Partition); a[attrID] != id {
		return typ, fmt.Errorf("ce_id %.80q contradicts the other attributes, which make %q", a[attrID], id)
	}
	return typ, nil
}

// checkPlace checks that a record is in the topic and partition of its event, under its key.
func checkPlace(rec *domain.Record, topic domain.Topic, key string) error {
	switch {
	case rec.Topic != topic:
		return fmt.Errorf("it belongs to topic %s, not %.80q", topic, string(rec.Topic))
	case string(rec.Key) != key && domain.ClusterOf(string(rec.Key)) == domain.ClusterOf(key):
		return fmt.Errorf("%w: record key %.80q is of another shard than the event's own, %q", domain.ErrMisplaced, rec.Key, key)
	case string(rec.Key) != key:
		return fmt.Errorf("record key %.80q contradicts the event's own, %q", rec.Key, key)
	case len(key) > maxAttribute:
		return fmt.Errorf("key of %d bytes, more than %d", len(key), maxAttribute)
	}
	if p := domain.PartitionOf(rec.Key, topic.Partitions()); rec.Partition != p {
		return fmt.Errorf("key %.80q belongs to partition %d, not %d", key, p, rec.Partition)
	}
	return nil
}

// headers collects the attributes of a record.
func headers(rec *domain.Record) (attributes, error) {
	var a attributes
	if len(rec.Headers) > maxHeaders {
		return a, fmt.Errorf("%d headers, more than %d", len(rec.Headers), maxHeaders)
	}
	for i := range rec.Headers {
		h := &rec.Headers[i]
		at, ours := attributeOf[h.Key]
		if !ours {
			continue
		}
		v := string(h.Value)
		switch err := checkText(v, maxAttribute); {
		case err != nil:
			return a, fmt.Errorf("header %s: %w", h.Key, err)
		case v == "":
			return a, fmt.Errorf("header %s is empty", h.Key)
		case a[at] != "":
			return a, fmt.Errorf("header %s is there twice", h.Key)
		}
		a[at] = v
	}
	if a[attrSpecVersion] != specVersion {
		return a, fmt.Errorf("header ce_specversion is %.20q, want %s", a[attrSpecVersion], specVersion)
	}
	return a, nil
}

// context sets all of env except the event and the signed message.
func (a *attributes) context(env *domain.Envelope) error {
	env.Source = a[attrSource]
	env.Subject = a[attrSubject]
	env.Workspace = a[attrWorkspace]
	env.Cluster = a[attrCluster]
	env.Cites = a[attrCites]
	for _, n := range [...]struct {
		at attribute
		to *uint64
	}{
		{attrIncarnation, &env.Incarnation},
		{attrSequence, &env.Sequence},
		{attrPreviousIncarnation, &env.PreviousIncarnation},
		{attrPreviousSequence, &env.PreviousSequence},
		{attrLine, &env.Line},
	} {
		if err := a.number(n.at, n.to); err != nil {
			return err
		}
	}
	if err := a.instant(attrTime, &env.Time); err != nil {
		return err
	}
	if err := a.instant(attrRecorded, &env.Recorded); err != nil {
		return err
	}
	if err := checkContext(env); err != nil {
		return err
	}
	return a.signature(env)
}

func (a *attributes) number(at attribute, to *uint64) error {
	s := a[at]
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '0' {
		return fmt.Errorf("header %s: %.40q is not a whole number from 1 to 2^64-1", headerNames[at], s)
	}
	*to = n
	return nil
}

func (a *attributes) instant(at attribute, to *domain.Instant) error {
	if a[at] == "" {
		return nil
	}
	t, err := domain.ParseInstant(a[at])
	if err != nil {
		return fmt.Errorf("header %s: %w", headerNames[at], err)
	}
	if t == 0 {
		return fmt.Errorf("header %s: %s is the time that stands for none", headerNames[at], a[at])
	}
	*to = t
	return nil
}

func (a *attributes) signature(env *domain.Envelope) error {
	n := 0
	for _, at := range []attribute{attrOperator, attrOperatorKey, attrSignature} {
		if a[at] != "" {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 3:
	default:
		return errors.New("headers ce_operator, ce_operatorkey and ce_signature come together")
	}
	s := &domain.Signature{Operator: a[attrOperator]}
	var err error
	if s.Key, err = base64.StdEncoding.Strict().DecodeString(a[attrOperatorKey]); err != nil {
		return fmt.Errorf("header ce_operatorkey is not base64: %w", err)
	}
	if s.Bytes, err = base64.StdEncoding.Strict().DecodeString(a[attrSignature]); err != nil {
		return fmt.Errorf("header ce_signature is not base64: %w", err)
	}
	env.Signature = s
	return nil
}
