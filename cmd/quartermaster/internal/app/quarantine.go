package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Quarantine lists what could not be folded, and the decisions without effect.
type Quarantine struct {
	*projections.QuarantineList
	Rejected []registry.Rejection `json:"rejected_decisions"`
}

// QuarantinedRecord is a record in quarantine, with the event in it where it can be decoded.
type QuarantinedRecord struct {
	projections.QuarantineEntry
	Record RawRecord `json:"record"`
	Event  *Record   `json:"event,omitempty"`
}

// RawRecord is a record byte for byte. Headers and value are in hexadecimal.
type RawRecord struct {
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Appended  domain.Instant `json:"appended"`
	Key       string         `json:"key"`
	Headers   []RawHeader    `json:"headers"`
	Value     string         `json:"value"` // in hexadecimal
}

// RawHeader is a header of a record.
type RawHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"` // in hexadecimal
}

// QuarantineFilter selects entries of the quarantine. Empty fields do not filter.
type QuarantineFilter struct {
	Topic     domain.Topic
	Partition int    // of the topic; -1: all
	Kind      string // of the reason
	Matching  string // in the reason
	From, To  domain.Instant
	Open      bool // only records that are not resolved
}

func (q *QuarantineFilter) holds(e *projections.QuarantineEntry) bool {
	return (!q.Open || e.Resolution == "") &&
		(q.Topic == "" || e.Topic == q.Topic) &&
		(q.Partition < 0 || e.Partition == q.Partition) &&
		(q.Kind == "" || e.Kind == q.Kind) && strings.Contains(e.Reason, q.Matching) &&
		e.Appended >= q.From && (q.To == 0 || e.Appended < q.To)
}

// Quarantine returns what could not be folded, and why.
func (c *Caller) Quarantine(ctx context.Context, at At, filter QuarantineFilter) (q *Quarantine, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		l, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		l.Entries = slices.DeleteFunc(l.Entries, func(e projections.QuarantineEntry) bool { return !filter.holds(&e) })
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		rejected, err := auth.Rejections(v)
		q = &Quarantine{l, append([]registry.Rejection{}, rejected...)}
		return err
	})
	return q, err
}

// entry returns the entry of a record in quarantine.
func (h *Conn) entry(ctx context.Context, id string) (entry projections.QuarantineEntry, err error) {
	if _, _, err := parseRecordID(id); err != nil {
		return entry, err
	}
	err = h.View(ctx, func(v projections.View) error {
		l, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		e := l.Find(id)
		if e == nil {
			return &NotFoundError{What: "record", Name: id, Err: fmt.Errorf("%s is not in quarantine; see \"quartermaster quarantine list\"", id)}
		}
		entry = *e
		return nil
	})
	return entry, err
}

// Quarantined returns the content of a record in quarantine, as it is in the log.
func (c *Caller) Quarantined(ctx context.Context, at At, id string) (*QuarantinedRecord, error) {
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, err
	}
	ans := &QuarantinedRecord{}
	if ans.QuarantineEntry, err = h.entry(ctx, id); err != nil {
		return nil, err
	}
	e := &ans.QuarantineEntry
	err = h.Log.Read(ctx, domain.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Offset, e.Offset+1, func(recs []domain.Record) error {
		rec := &recs[0]
		ans.Record = rawRecord(rec)
		var dec wire.Decoder
		if s := shown(&dec, rec); s.Error == "" {
			ans.Event = &s
		}
		return nil
	})
	return ans, err
}

// QuarantinedEvent returns the event of a record in quarantine as CloudEvents JSON, even when it
// contradicts the record or is invalid, for people to repair.
func (c *Caller) QuarantinedEvent(ctx context.Context, at At, id string) (doc []byte, err error) {
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, err
	}
	e, err := h.entry(ctx, id)
	if err != nil {
		return nil, err
	}
	err = h.Log.Read(ctx, domain.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Offset, e.Offset+1, func(recs []domain.Record) error {
		env := asFarAsRead(&recs[0])
		if env == nil {
			return &ConflictError{Err: fmt.Errorf("%s has no readable event (%s): ask its author what it was meant to say, "+
				"and write that in the form of the key \"event\" of \"quartermaster log export\"", e.ID, e.Reason)}
		}
		if doc, err = wire.CloudEvent(env); err != nil {
			return &ConflictError{Err: fmt.Errorf("%s cannot be shown as an event: %w", e.ID, err)}
		}
		return nil
	})
	return doc, err
}

// parseRecordID parses "topic/partition@offset".
func parseRecordID(id string) (tp domain.TopicPartition, offset int64, err error) {
	part, at, ok := strings.Cut(id, "@")
	topic, num, ok2 := strings.Cut(part, "/")
	tp.Topic = domain.Topic(topic)
	if ok && ok2 {
		if tp.Partition, err = strconv.Atoi(num); err == nil {
			offset, err = strconv.ParseInt(at, 10, 64)
		}
	}
	if !ok || !ok2 || err != nil || offset < 0 || tp.Partition < 0 || tp.Partition >= tp.Topic.Partitions() {
		return tp, 0, invalid("id", "%q does not name a record; want topic/partition@offset, for example qm.fleet/3@17", id)
	}
	return tp, offset, nil
}

// CountKinds counts entries by the kind of their reason.
func CountKinds(entries []projections.QuarantineEntry) map[string]int {
	kinds := map[string]int{}
	for i := range entries {
		kinds[entries[i].Kind]++
	}
	return kinds
}
