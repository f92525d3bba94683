package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
	delivery "quartermaster/schemas/delivery/v1"
)

// BatchContentType is the media type of what [AppendBatch] writes.
const BatchContentType = "application/vnd.quartermaster.events"

// AnswerContentType is the media type of what the gateway answers. Whoever sends
// events gives one up only when an answer of this type says that it will never be
// taken: proxies and other servers answer 400 too.
const AnswerContentType = "application/vnd.quartermaster.answer+json"

// MaxBatch is the most records that [ReadBatch] takes from one body.
const MaxBatch = 10_000

// AppendBatch appends a record to the body of a delivery and returns the longer
// body. Topic, headers and value travel; key, partition, offset and time do not.
func AppendBatch(body []byte, rec *domain.Record) ([]byte, error) {
	m := delivery.Record{Topic: string(rec.Topic), Value: rec.Value, Headers: make([]*delivery.Header, len(rec.Headers))}
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

// ReadBatch returns the records of a delivery, in their order, with topic,
// headers and value. They share memory with the body. What a record says is not
// looked at; [Decoder.Decode] does that. The error is about the body as a whole:
// it is cut off or no batch, or holds more than [MaxBatch] records, a topic that
// is none of ours, or a record beyond the bounds of the log.
func ReadBatch(body []byte) ([]domain.Record, error) {
	// Counted before anything is allocated: two bytes on the wire would be a
	// hundred in memory.
	_, err := count(body, MaxBatch, "records", func(record []byte) error {
		_, err := count(record, maxHeaders+2, "fields", nil) // topic and value besides
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
			return nil, fmt.Errorf("read the batch: record %d: topic %.40q is none of ours", i, r.Topic)
		case len(r.Value) > maxRecord:
			return nil, fmt.Errorf("read the batch: record %d: payload of %d bytes, more than %d", i, len(r.Value), maxRecord)
		}
		rec := domain.Record{Topic: domain.Topic(r.Topic), Value: r.Value, Headers: make([]domain.Header, len(r.Headers))}
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

// count returns how many fields a message has, at most most; each may look into
// a field that holds bytes.
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
