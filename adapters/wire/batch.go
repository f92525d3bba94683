package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
	delivery "quartermaster/schemas/delivery/v1"
)

// BatchContentType is the media type of the body that [AppendBatch] writes.
const BatchContentType = "application/vnd.quartermaster.events"

// AnswerContentType is the media type of the gateway's answers. A sender MUST NOT give up an event
// unless an answer of this type says that it will never be accepted, because proxies and other
// servers answer 400 too.
const AnswerContentType = "application/vnd.quartermaster.answer+json"

// MaxBatch is the maximum number of records that [ReadBatch] accepts in one body.
const MaxBatch = 10_000

// AppendBatch appends a record to the body of a delivery and returns the extended body. The body
// contains topic, key, headers and value. It does not contain partition, offset and time.
func AppendBatch(body []byte, rec *domain.Record) ([]byte, error) {
	m := delivery.Record{Topic: string(rec.Topic), Key: rec.Key, Value: rec.Value}
	m.Headers = make([]*delivery.Header, len(rec.Headers))
	for i, h := range rec.Headers {
		m.Headers[i] = &delivery.Header{Key: h.Key, Value: h.Value}
	}
	one := delivery.Batch{Records: []*delivery.Record{&m}}
	b, err := one.MarshalVT()
	if err != nil {
		return body, fmt.Errorf("append to the batch: %w", err)
	}
	return append(body, b...), nil
}

// ReadBatch returns the records of a delivery, in order, with topic, key, headers and value. They share
// memory with the body. Their content is not checked; [Decoder.Decode] does that. The error
// concerns the whole body: it is truncated or not a batch, holds more than [MaxBatch] records, or
// has a record with an unknown topic or beyond the bounds of the log.
func ReadBatch(body []byte) ([]domain.Record, error) {
	// Count the fields before allocating: two bytes on the wire become a hundred in memory.
	_, err := count(body, MaxBatch, "records", func(record []byte) error {
		_, err := count(record, maxHeaders+3, "fields", nil) // topic, key and value in addition
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the batch: %w", err)
	}
	var m delivery.Batch
	if err := m.UnmarshalVTUnsafe(body); err != nil {
		return nil, fmt.Errorf("read the batch: not of %s: %w", BatchContentType, err)
	}
	if len(m.Records) == 0 {
		return nil, errors.New("read the batch: it holds no record")
	}
	recs := make([]domain.Record, len(m.Records))
	for i, r := range m.Records {
		switch {
		case domain.Topic(r.Topic).Partitions() == 0:
			return nil, fmt.Errorf("read the batch: record %d: topic %.40q is unknown", i, r.Topic)
		case len(r.Value) > maxRecord:
			return nil, fmt.Errorf("read the batch: record %d: payload of %d bytes, more than %d", i, len(r.Value), maxRecord)
		case len(r.Key) > maxAttribute:
			return nil, fmt.Errorf("read the batch: record %d: key of %d bytes, more than %d", i, len(r.Key), maxAttribute)
		}
		rec := domain.Record{Topic: domain.Topic(r.Topic), Key: r.Key, Value: r.Value}
		rec.Headers = make([]domain.Header, len(r.Headers))
		for j, h := range r.Headers {
			if len(h.Key) > maxAttribute || len(h.Value) > maxAttribute {
				return nil, fmt.Errorf("read the batch: record %d: header %d is longer than %d bytes", i, j, maxAttribute)
			}
			rec.Headers[j] = domain.Header{Key: h.Key, Value: h.Value}
		}
		recs[i] = rec
	}
	return recs, nil
}

// count returns the number of fields in a message, at most most. each is called with every field
// that holds bytes.
func count(message []byte, most int, what string, each func([]byte) error) (n int, err error) {
	for rest := message; len(rest) > 0; n++ {
		if n == most {
			return 0, fmt.Errorf("more than %d %s", most, what)
		}
		_, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return 0, fmt.Errorf("not of %s: %w", BatchContentType, protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(1, kind, rest[tag:])
		if size < 0 {
			return 0, fmt.Errorf("not of %s: %w", BatchContentType, protowire.ParseError(size))
		}
		if kind == protowire.BytesType && each != nil {
			field, _ := protowire.ConsumeBytes(rest[tag:])
			if err := each(field); err != nil {
				return 0, fmt.Errorf("record %d: %w", n, err)
			}
		}
		rest = rest[tag+size:]
	}
	return n, nil
}
