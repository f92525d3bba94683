package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// walker reads the fields of a request in order. After the first missing field, bad is set and every
// read returns zero.
type walker struct {
	b   []byte
	bad bool
}

func (w *walker) take(n int) []byte {
	if w.bad || n < 0 || n > len(w.b) {
		w.bad = true
		return nil
	}
	f := w.b[:n]
	w.b = w.b[n:]
	return f
}

func (w *walker) int16() int16 {
	if f := w.take(2); f != nil {
		return int16(binary.BigEndian.Uint16(f))
	}
	return 0
}

func (w *walker) int32() int32 {
	if f := w.take(4); f != nil {
		return int32(binary.BigEndian.Uint32(f))
	}
	return 0
}

// appended is one batch of a produce request.
type appended struct {
	topicPartition
	fault string // why the batch is refused
}

// judgeProduce checks a produce request without allocating memory for claimed sizes. The broker
// checks the CRC of a batch, but not that its offsets match its records. It also invalidates the CRC
// of batches with log append time. Both would be damage at the next opening.
func (g *guard) judgeProduce(frame, body []byte, version int16) (request, []byte, error) {
	w := walker{b: body}
	if n := w.int16(); n >= 0 && !w.bad { // transactional id
		return request{}, nil, errors.New("request Produce within a transaction, this log has none")
	}
	acks := w.int16()
	w.int32() // timeout
	var all []appended
	faulty := false
	for topics := w.int32(); topics > 0 && !w.bad; topics-- {
		topic := string(w.take(int(w.int16())))
		for n := w.int32(); n > 0 && !w.bad; n-- {
			a := appended{topicPartition: topicPartition{topic, w.int32()}}
			a.fault = batchFault(w.take(max(0, int(w.int32())))) // -1 is null
			faulty = faulty || a.fault != ""
			if all = append(all, a); len(all) > maxPartitions {
				return request{}, nil, fmt.Errorf("request Produce names more than %d partitions", maxPartitions)
			}
		}
	}
	if w.bad || len(w.b) > 0 {
		return request{}, nil, fmt.Errorf("request Produce version %d is malformed", version)
	}
	code := kerr.InvalidRecord.Code
	why := fmt.Sprintf("append refused: %s", firstFault(all))
	if !faulty {
		err := g.disk.room(len(frame))
		if err == nil {
			req := request{key: produce}
			if acks == 0 {
				req.key = -1 // there is no answer
			}
			for _, a := range all {
				req.appends = append(req.appends, a.topicPartition)
			}
			return req, nil, nil
		}
		code, why = kerr.KafkaStorageError.Code, err.Error()
	}
	g.log.Warn(why)
	if acks == 0 {
		return request{}, nil, fmt.Errorf("%s; the client wants no answer", why)
	}
	return request{}, encode(frame, refuseProduce(all, version, code, why)), nil
}

func firstFault(all []appended) string {
	for _, a := range all {
		if a.fault != "" {
			return fmt.Sprintf("%s/%d: %s", a.topic, a.number, a.fault)
		}
	}
	return ""
}

// batchFault returns what is wrong with b, which should be exactly one batch, or "".
func batchFault(b []byte) string {
	if len(b) < batchHeader {
		return fmt.Sprintf("%d bytes are not a record batch", len(b))
	}
	attributes := binary.BigEndian.Uint16(b[21:])
	delta := int32(binary.BigEndian.Uint32(b[23:]))
	records := int32(binary.BigEndian.Uint32(b[57:]))
	switch {
	case b[16] != 2:
		return fmt.Sprintf("record format %d, 2 is kept", b[16])
	case int64(binary.BigEndian.Uint32(b[8:])) != int64(len(b)-12):
		return "not exactly one record batch"
	case attributes&0x30 != 0:
		return "transactional or control batch"
	case attributes&0x08 != 0:
		return "batch asks for the time of appending"
	case records < 1 || delta != records-1:
		return fmt.Sprintf("%d records take %d offsets", records, int64(delta)+1)
	}
	return ""
}

func refuseProduce(all []appended, version, code int16, why string) kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(version)
	for i, a := range all {
		if i == 0 || all[i-1].topic != a.topic {
			t := kmsg.NewProduceResponseTopic()
			t.Topic = a.topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.ErrorCode, p.BaseOffset = a.number, code, -1
		p.ErrorMessage = &why
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp
}

// judgeCreateTopics refuses topics that could lose events or exhaust the memory. It returns the
// answer with the reason, or nil to admit the request.
func judgeCreateTopics(frame, body []byte, version int16) ([]byte, error) {
	var req kmsg.CreateTopicsRequest
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("request CreateTopics version %d is malformed: %w", version, err)
	}
	why := ""
	total := 0
	for _, t := range req.Topics {
		total += max(int(t.NumPartitions), len(t.ReplicaAssignment))
		for _, c := range t.Configs {
			if c.Value != nil && !allowedConfig(c.Name, *c.Value) {
				why = fmt.Sprintf("topic %s: %s=%s is refused, this log keeps everything", t.Topic, c.Name, *c.Value)
			}
		}
	}
	if total > maxPartitions {
		why = fmt.Sprintf("%d partitions in one request, at most %d are allowed", total, maxPartitions)
	}
	if why == "" {
		return nil, nil
	}
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.SetVersion(version)
	for _, t := range req.Topics {
		a := kmsg.NewCreateTopicsResponseTopic()
		a.Topic, a.ErrorCode, a.ErrorMessage = t.Topic, kerr.InvalidConfig.Code, &why
		resp.Topics = append(resp.Topics, a)
	}
	return encode(frame, resp), nil
}
