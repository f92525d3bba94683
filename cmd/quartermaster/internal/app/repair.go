package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Repair repairs a record in quarantine. The repaired event is decided first, and the resolution
// once that event is known to count.
type Repair struct {
	ID         string          `json:"id"`
	Appended   string          `json:"appended,omitempty"` // the record of the repaired event
	Event      json.RawMessage `json:"event"`
	Resolution string          `json:"resolution"`
	Reason     string          `json:"reason"`
	Operator   string          `json:"operator,omitempty"`
	Resumed    bool            `json:"resumed"` // an earlier run had appended the event
	DryRun     bool            `json:"dry_run"`

	// Mended is the draft of the repaired event; without events if the log has it already.
	Mended Draft `json:"-"`
	// Resolved is the draft of the record's resolution.
	Resolved Draft `json:"-"`

	record *mending
}

// Discard is the resolution of records that will not count.
type Discard struct {
	Resolved   []string       `json:"resolved"` // the named ids; [] where filters select the records
	Records    int            `json:"records"`  // how many
	Kinds      map[string]int `json:"kinds"`    // number by kind of reason
	Resolution string         `json:"resolution"`
	Reason     string         `json:"reason"`
	Operator   string         `json:"operator,omitempty"`
	DryRun     bool           `json:"dry_run"`
}

// quarantined returns the entry of a record in quarantine that is not resolved.
func quarantined(l *projections.QuarantineList, id string) (*projections.QuarantineEntry, error) {
	if _, _, err := parseRecordID(id); err != nil {
		return nil, err
	}
	switch e := l.Find(id); {
	case e == nil:
		return nil, &NotFoundError{What: "record", Name: id, Err: fmt.Errorf("%s is not in quarantine; see \"quartermaster quarantine list\"", id)}
	case e.Resolution != "":
		return nil, &ConflictError{Err: fmt.Errorf("%s is resolved already: %s by %s at %s, because %q",
			id, e.Resolution, e.ResolvedBy, e.Resolved, e.Note)}
	default:
		return e, nil
	}
}

// resolution returns the event that ends a record's quarantine.
func resolution(e *projections.QuarantineEntry, what, reason string) domain.Envelope {
	return domain.Envelope{Time: Now(), Subject: e.ID, Event: &domain.QuarantineResolved{
		Entity: Platform, Topic: e.Topic, Partition: uint32(e.Partition), Offset: e.Offset, Resolution: what, Reason: reason,
	}}
}

// mendSource returns the source of the event that repairs a record. It is the same in every run,
// and the event is its first and only one: an event that is appended twice is a repeat, which the
// folds drop. It begins with the source of the record, as far as that could be read, because
// samples are ranked by it.
func mendSource(e *projections.QuarantineEntry) string {
	source := cmp.Or(e.Source, "quartermaster")
	if len(source) > 200 || !utf8.ValidString(source) || strings.ContainsFunc(source, unicode.IsControl) {
		source = "quartermaster"
	}
	return source + mendedMark + e.ID
}

// mendedMark is in the source of every event that repairs a record.
const mendedMark = "/mended/"

// mendedAt identifies the stream of an event that repairs a record, without its partition.
type mendedAt struct {
	topic  domain.Topic
	source string
}

const mendIncarnation = 1

// mending is the progress of repairing a record.
type mending struct {
	entry  projections.QuarantineEntry
	source string
	at     *domain.TopicPartition // partition whose log has the event already; nil: none
	from   domain.Position        // folded position
}

func (h *Conn) mending(ctx context.Context, id string) (*mending, error) {
	list, err := h.mendings(ctx, id)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// mendings is mending for many records, in one read. Its error joins those of all ids that cannot
// be repaired.
func (h *Conn) mendings(ctx context.Context, ids ...string) (list []*mending, err error) {
	err = h.View(ctx, func(v projections.View) error {
		l, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		at := v.Position().Clone()
		mended := map[mendedAt]domain.TopicPartition{}
		if err := v.Scan(projections.Query{Table: projections.TableStreams, From: mendIncarnation, To: mendIncarnation + 1}, func(k projections.Key, _ projections.Row) error {
			if strings.Contains(k.ID, mendedMark) {
				topic, partition, _ := strings.Cut(k.Scope, "/")
				n, err := strconv.Atoi(partition)
				mended[mendedAt{domain.Topic(topic), strings.Clone(k.ID)}] = domain.TopicPartition{Topic: domain.Topic(strings.Clone(topic)), Partition: n}
				return err
			}
			return nil
		}); err != nil {
			return fmt.Errorf("look for what was appended again: %w", err)
		}
		var wrong []error
		for _, id := range ids {
			e, err := quarantined(l, id)
			if err != nil {
				wrong = append(wrong, err)
				continue
			}
			m := &mending{entry: *e, source: mendSource(e), from: at}
			if tp, ok := mended[mendedAt{e.Topic, m.source}]; ok {
				m.at = &tp
			}
			list = append(list, m)
		}
		return errors.Join(wrong...)
	})
	return list, err
}

// Repair drafts the event that repairs a record in quarantine, and the record's resolution. The
// event has the same topic and key, and becomes the only event of its own stream. A nil event
// finishes what an earlier run began.
func (c *Caller) Repair(ctx context.Context, id string, mended *domain.Envelope, reason string) (*Repair, error) {
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	m, err := h.mending(ctx, id)
	if err != nil {
		return nil, err
	}
	if n := m.entry.Events(); n > 1 {
		return nil, &ConflictError{Err: fmt.Errorf("%s stands for %s events of one batch, and one event cannot repair them: "+
			"have their author append them again, in smaller batches, then \"quartermaster quarantine discard %s\"", id, comma(n), id)}
	}
	r := &Repair{ID: id, Resolution: "reappended", Reason: reason, Resumed: m.at != nil, record: m}
	r.Resolved = Draft{Use: "quarantine-repair", Events: []domain.Envelope{resolution(&m.entry, r.Resolution, reason)}}
	if mended != nil {
		mended.Source, mended.Incarnation, mended.Sequence = m.source, mendIncarnation, 1
		mended.PreviousIncarnation, mended.PreviousSequence, mended.Cites = 0, 0, id
		if err := h.checkPlace(ctx, &m.entry, mended); err != nil {
			return nil, &InvalidError{Field: "event", Err: err}
		}
		if _, err := wire.Encode(mended); err != nil {
			return nil, &InvalidError{Field: "event", Err: err}
		}
	}
	switch {
	case m.at != nil:
		return r, h.confirm(ctx, m, *m.at, 0, mended, r)
	case mended == nil:
		return nil, invalid("event", "give the repaired event: nothing has been appended for %s yet; "+
			"begin with what \"quartermaster quarantine show\" has of it", id)
	}
	r.Mended = Draft{Use: "quarantine-repair", Source: m.source, Events: []domain.Envelope{*mended}}
	r.Event, err = wire.CloudEvent(mended)
	return r, err
}

// Repaired checks that the decided event is the one that counts, and that the record was not
// resolved meanwhile. It completes r.
func (c *Caller) Repaired(ctx context.Context, r *Repair, decided *Proposal) error {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	if decided != nil {
		env := &decided.Events[0]
		key, err := env.Key()
		if err != nil {
			return err
		}
		tp := domain.TopicPartition{Topic: env.Topic(), Partition: domain.PartitionOf([]byte(key), env.Topic().Partitions())}
		if err := h.confirm(ctx, r.record, tp, r.record.from[tp], env, r); err != nil {
			return err
		}
	}
	_, err = h.mending(ctx, r.ID)
	return err
}

// checkPlace checks that a repaired event is for the place of the record: its topic, and a key
// that the record has or states. The plain key of a cluster stands for those of its shards: readers
// join what is under them.
func (h *Conn) checkPlace(ctx context.Context, e *projections.QuarantineEntry, mended *domain.Envelope) error {
	if t := mended.Topic(); t != e.Topic {
		return fmt.Errorf("%s is an event of %s, and %s of %s: content may change, place may not",
			mended.Event.Type(), t, e.ID, e.Topic)
	}
	key, err := mended.Key()
	if err != nil {
		return err
	}
	var keys []string
	if err := h.Log.Read(ctx, domain.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Offset, e.Offset+1, func(recs []domain.Record) error {
		if len(recs[0].Key) > 0 {
			keys = append(keys, string(recs[0].Key))
		}
		if env := asFarAsRead(&recs[0]); env != nil {
			if k, err := env.Key(); err == nil && !slices.Contains(keys, k) {
				keys = append(keys, strings.Clone(k))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	place := func(key string) string { return key }
	if e.Topic == domain.TopicTelemetry || e.Topic == domain.TopicHardware {
		place = domain.ClusterOf
	}
	if len(keys) > 0 && !slices.ContainsFunc(keys, func(k string) bool { return place(k) == place(key) }) {
		return fmt.Errorf("the event's key is %q, that of %s %.200q: content may change, place may not", key, e.ID, keys)
	}
	return nil
}

// asFarAsRead returns the event of a record in quarantine; nil if it cannot be read. It may
// contradict the record. It shares memory with rec.
func asFarAsRead(rec *domain.Record) *domain.Envelope {
	var env domain.Envelope
	var dec wire.Decoder
	if err := dec.Decode(rec, &env); env.Event == nil || err != nil && env.Event.Type() == domain.TypeNodeSampled {
		return nil
	}
	return &env
}

var errFound = errors.New("found")

// confirm finds the first event that repairs a record, which is the one that counts, and checks
// that it says the same as mended, if that is not nil.
func (h *Conn) confirm(ctx context.Context, m *mending, tp domain.TopicPartition, from int64, mended *domain.Envelope, ans *Repair) error {
	if tp.Partition == m.entry.Partition {
		from = max(from, m.entry.Offset+1)
	}
	end, err := h.End(ctx)
	if err != nil {
		return err
	}
	var dec wire.Decoder
	err = h.Log.Read(ctx, tp, from, end[tp], func(recs []domain.Record) error {
		for i := range recs {
			var env domain.Envelope
			first := dec.Decode(&recs[i], &env) == nil &&
				env.Source == m.source && env.Incarnation == mendIncarnation && env.Sequence == 1
			if !first {
				continue
			}
			ans.Appended = fmt.Sprintf("%s@%d", tp, recs[i].Offset)
			if ans.Event, err = wire.CloudEvent(&env); err != nil {
				return err
			}
			if mended != nil {
				same, err := sameStatement(&env, mended)
				if err != nil {
					return err
				}
				if !same {
					return fmt.Errorf("another event was appended for %s before, %s, and that one counts: "+
						"a repair without an event accepts it", m.entry.ID, ans.Appended)
				}
			}
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the rows know an event of source %q, but %s does not hold it", m.source, tp)
}

// sameStatement reports whether two events say the same about the same time. Times of decision
// are ignored, because each run decides anew.
func sameStatement(a, b *domain.Envelope) (bool, error) {
	if a.Subject != b.Subject || a.Workspace != b.Workspace || a.Cluster != b.Cluster ||
		a.Recorded != b.Recorded || a.Cites != b.Cites ||
		a.Time != b.Time && !domain.NeedsSignature(a.Event) {
		return false, nil
	}
	return projections.SameEvent(a.Event, b.Event)
}

// Discard drafts that records in quarantine will not count: those with ids, or without ids the
// open ones of a filter.
func (c *Caller) Discard(ctx context.Context, ids []string, filter QuarantineFilter, reason string) (*Discard, Draft, error) {
	draft := Draft{Use: "quarantine-discard", Alike: true}
	ans := &Discard{Resolved: append([]string{}, ids...), Resolution: "discarded", Reason: reason}
	var errs []error
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s is named twice", id))
		}
		seen[id] = true
	}
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, draft, err
	}
	if len(ids) == 0 {
		if err := h.View(ctx, func(v projections.View) error {
			l, err := registry.Quarantine(v)
			if err != nil {
				return err
			}
			for i := range l.Entries {
				if e := &l.Entries[i]; e.Resolution == "" && filter.holds(e) {
					ids = append(ids, e.ID)
				}
			}
			return nil
		}); err != nil {
			return nil, draft, err
		}
	}
	list, err := h.mendings(ctx, ids...)
	if err != nil {
		errs = append(errs, err)
	}
	entries := make([]projections.QuarantineEntry, 0, len(list))
	for _, m := range list {
		if id := m.entry.ID; m.at != nil {
			errs = append(errs, fmt.Errorf("%s was appended again in part: \"quartermaster quarantine repair\" finishes that", id))
		}
		draft.Events = append(draft.Events, resolution(&m.entry, ans.Resolution, reason))
		entries = append(entries, m.entry)
	}
	if len(errs) > 0 {
		return nil, draft, &ConflictError{Err: errors.Join(append(errs, errors.New("nothing was resolved"))...)}
	}
	ans.Records, ans.Kinds = len(entries), CountKinds(entries)
	return ans, draft, nil
}
