package app

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Newest selects the newest records of the log. Empty fields do not select.
type Newest struct {
	Lines     int
	Topics    []string
	Types     []string // of events, without version
	Workspace string
	Cluster   string
	Subject   string
	Operator  string // who signed
	From, To  domain.Instant
}

// MaxTail bounds how many records [Caller.Tail] holds in memory.
const MaxTail = 10_000

// mostSearched bounds how many records of a partition are read to find those that are selected.
const mostSearched = 1 << 20

// narrowed reports whether records are selected by what is in them.
func (q *Newest) narrowed() bool {
	return len(q.Types) > 0 || q.Workspace != "" || q.Cluster != "" || q.Subject != "" || q.Operator != ""
}

func (q *Newest) holds(env *domain.Envelope) bool {
	return (len(q.Types) == 0 || slices.Contains(q.Types, string(env.Event.Type()))) &&
		(q.Workspace == "" || q.Workspace == env.Workspace) &&
		(q.Cluster == "" || q.Cluster == env.Cluster) &&
		(q.Subject == "" || q.Subject == env.Subject) &&
		(q.Operator == "" || env.Signature != nil && q.Operator == env.Signature.Operator)
}

// partitions returns those that can hold what is selected.
func (q *Newest) partitions() ([]domain.TopicPartition, error) {
	tps, err := partitionsOf(q.Topics)
	if err != nil || len(q.Types) == 0 {
		return tps, err
	}
	topics := map[domain.Topic]bool{}
	for _, t := range q.Types {
		topic := domain.TopicOf(domain.Type(t))
		if topic == "" {
			return nil, &NotFoundError{What: "type", Name: t, Err: fmt.Errorf("no type of events is called %q", t)}
		}
		topics[topic] = true
	}
	return slices.DeleteFunc(tps, func(tp domain.TopicPartition) bool { return !topics[tp.Topic] }), nil
}

// selected returns the record as it is shown, if it is selected. What cannot be decoded is selected only if nothing
// is said about its content.
func (q *Newest) selected(dec *wire.Decoder, rec *domain.Record) (Record, bool) {
	if rec.IsMarker() || rec.Time < q.From || q.To != 0 && rec.Time >= q.To {
		return Record{}, false
	}
	if q.narrowed() {
		var env domain.Envelope
		if err := dec.Decode(rec, &env); err != nil || !q.holds(&env) {
			return Record{}, false
		}
	}
	return shown(dec, rec), true
}

// newest returns the newest records of a partition before an offset that are selected, the oldest first. It reports
// whether it stopped before it had searched everything.
func (h *Conn) newest(ctx context.Context, tp domain.TopicPartition, end int64, q *Newest) (found []Record, stopped bool, err error) {
	step := int64(max(1, q.Lines))
	if q.narrowed() || q.From != 0 || q.To != 0 {
		step = max(step, 8192)
	}
	var dec wire.Decoder
	for to := end; to > 0 && len(found) < q.Lines; to -= step {
		if end-to >= mostSearched {
			return found, true, nil
		}
		var part []Record
		var older bool
		if err := h.Log.Read(ctx, tp, max(0, to-step), to, func(recs []domain.Record) error {
			for i := range recs {
				older = older || recs[i].Time < q.From
				if r, ok := q.selected(&dec, &recs[i]); ok {
					part = append(part, r)
				}
			}
			return nil
		}); err != nil {
			return nil, false, err
		}
		found = append(part, found...)
		if older {
			break
		}
	}
	return found[max(0, len(found)-q.Lines):], false, nil
}

// LoggedEvent is a record byte for byte, and the event in it.
type LoggedEvent struct {
	ID     string    `json:"id"` // topic/partition@offset
	Record RawRecord `json:"record"`
	Event  *Record   `json:"event"`
	// Signed is what the operator of a decision signed, nil for other events.
	Signed *SignedBytes `json:"signed,omitempty"`
	// Leaf is the canonical form of the record, whose hash is in the tree of the archive, in base64.
	Leaf []byte `json:"leaf"`
}

// SignedBytes is an Ed25519 signature with what it covers, in base64.
type SignedBytes struct {
	Operator  string `json:"operator"`
	Key       []byte `json:"public_key"`
	Message   []byte `json:"message"`
	Signature []byte `json:"signature"`
}

// Event returns one record of the log and the event in it. It is named by where it is, as topic/partition@offset, or as
// CloudEvents do, by the event's source and id: SOURCE#INCARNATION/TOPIC/PARTITION/SEQUENCE.
func (c *Caller) Event(ctx context.Context, name string) (*LoggedEvent, error) {
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	source, id, byID := strings.Cut(name, "#")
	var tp domain.TopicPartition
	var offset int64
	if byID {
		tp, offset, err = h.find(ctx, source, id)
	} else {
		tp, offset, err = parseRecordID(name)
	}
	if err != nil {
		return nil, err
	}
	missing := &NotFoundError{What: "record", Name: name, Err: fmt.Errorf("%s@%d is not in the log", tp, offset)}
	end, err := h.End(ctx)
	if err != nil {
		return nil, err
	}
	if offset >= end[tp] {
		return nil, missing
	}
	var ans *LoggedEvent
	err = h.Log.Read(ctx, tp, offset, offset+1, func(recs []domain.Record) error {
		rec := &recs[0]
		if rec.IsMarker() {
			return missing
		}
		var dec wire.Decoder
		r := shown(&dec, rec)
		ans = &LoggedEvent{ID: fmt.Sprintf("%s@%d", tp, offset), Record: rawRecord(rec), Event: &r, Leaf: merkle.AppendLeaf(nil, rec)}
		var env domain.Envelope
		if err := dec.Decode(rec, &env); err == nil && env.Signature != nil {
			s := env.Signature
			ans.Signed = &SignedBytes{s.Operator, s.Key, s.Message, s.Bytes}
		}
		return nil
	})
	if err == nil && ans == nil {
		err = missing
	}
	return ans, err
}

func rawRecord(rec *domain.Record) RawRecord {
	raw := RawRecord{rec.Topic, rec.Partition, rec.Offset, rec.Time, string(rec.Key), []RawHeader{}, hex.EncodeToString(rec.Value)}
	for _, hd := range rec.Headers {
		raw.Headers = append(raw.Headers, RawHeader{hd.Key, hex.EncodeToString(hd.Value)})
	}
	return raw
}

// find returns where the first event with a source and id is. It searches the partition from its end, because people ask
// about what is new.
func (h *Conn) find(ctx context.Context, source, id string) (tp domain.TopicPartition, offset int64, err error) {
	parts := strings.Split(id, "/")
	wrong := invalid("id", "%q does not name an event; want SOURCE#INCARNATION/TOPIC/PARTITION/SEQUENCE, as in the answer of \"log tail\"", source+"#"+id)
	if len(parts) != 4 {
		return tp, 0, wrong
	}
	incarnation, err1 := strconv.ParseUint(parts[0], 10, 64)
	number, err2 := strconv.Atoi(parts[2])
	sequence, err3 := strconv.ParseUint(parts[3], 10, 64)
	tp = domain.TopicPartition{Topic: domain.Topic(parts[1]), Partition: number}
	if errors.Join(err1, err2, err3) != nil || number < 0 || number >= tp.Topic.Partitions() {
		return tp, 0, wrong
	}
	end, err := h.End(ctx)
	if err != nil {
		return tp, 0, err
	}
	const step = 8192
	var dec wire.Decoder
	offset = -1
	for to := end[tp]; to > 0 && offset < 0; to -= step {
		if err := h.Log.Read(ctx, tp, max(0, to-step), to, func(recs []domain.Record) error {
			for i := range recs {
				var env domain.Envelope
				if offset >= 0 || recs[i].IsMarker() || dec.Decode(&recs[i], &env) != nil {
					continue
				}
				if env.Source == source && env.Incarnation == incarnation && env.Sequence == sequence {
					offset = recs[i].Offset
				}
			}
			return nil
		}); err != nil {
			return tp, 0, err
		}
	}
	if offset < 0 {
		return tp, 0, &NotFoundError{What: "event", Name: source + "#" + id, Err: fmt.Errorf("%s has no event %s of %q", tp, id, source)}
	}
	return tp, offset, nil
}

// byAppended orders records by when they were appended.
func byAppended(a, b Record) int { return cmp.Compare(a.Appended, b.Appended) }
