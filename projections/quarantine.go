package projections

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// QuarantineEntry is a record that could not be folded, with what became of it.
type QuarantineEntry struct {
	ID string `json:"id"` // topic/partition@offset, as [domain.Envelope.Cites] has it
	Quarantined
	Resolution string         `json:"resolution,omitempty"` // reappended, discarded; empty: open
	Resolved   domain.Instant `json:"resolved,omitempty"`
	ResolvedBy string         `json:"resolved_by,omitempty"`
	Note       string         `json:"note,omitempty"` // the reason that was given for the resolution
}

// QuarantineList is every record that could not be folded.
type QuarantineList struct {
	Position   string            `json:"position"`
	Entries    []QuarantineEntry `json:"entries"` // by topic, partition, offset
	Open       int               `json:"open"`
	Incomplete Incomplete        `json:"incomplete"`
}

// Incomplete says how many open records may concern whom. A report about a
// workspace lacks up to All plus Workspaces[it] events.
type Incomplete struct {
	All        int            `json:"all"` // their workspace is not known
	Workspaces map[string]int `json:"workspaces"`
}

// For returns how many events a report about a workspace may lack; "" is a
// report about all of them.
func (i Incomplete) For(workspace string) int {
	if workspace != "" {
		return i.All + i.Workspaces[workspace]
	}
	n := i.All
	for _, m := range i.Workspaces {
		n += m
	}
	return n
}

// Note returns "incomplete: n events" for a report about a workspace ("" for
// all), and "" when it is complete.
func (i Incomplete) Note(workspace string) string {
	switch n := i.For(workspace); n {
	case 0:
		return ""
	case 1:
		return "incomplete: 1 event"
	default:
		return fmt.Sprintf("incomplete: %d events", n)
	}
}

// Completeness says what a report may lack. The two overlap: what could not
// even be decoded is in quarantine, and its sequence is missing too.
type Completeness struct {
	Incomplete int    `json:"incomplete"` // events in open quarantine that may concern the report
	Missing    uint64 `json:"missing"`    // events of its topics that are known to exist and have not arrived, whomever they concern
}

// completeness returns what a report about a workspace ("" for all) that is
// made of the given topics may lack.
func completeness(view View, workspace string, topics ...domain.Topic) (Completeness, error) {
	q, err := Quarantine(view)
	if err != nil {
		return Completeness{}, err
	}
	missing, err := Missing(view)
	if err != nil {
		return Completeness{}, err
	}
	c := Completeness{Incomplete: q.Incomplete.For(workspace)}
	for _, t := range topics {
		// Anybody may claim any sequence, so the sum may overflow.
		c.Missing += min(missing[t], math.MaxUint64-c.Missing)
	}
	return c, nil
}

// Missing returns how many events of each topic are known to exist, by the gaps
// in their streams, and have not arrived.
func Missing(view View) (map[domain.Topic]uint64, error) {
	missing := map[domain.Topic]uint64{}
	err := view.Scan(Query{Table: TableStreams}, func(k Key, row Row) error {
		topic, _, _ := strings.Cut(k.Scope, "/")
		t := domain.Topic(topic)
		missing[t] += min(row.(*Stream).Missing(), math.MaxUint64-missing[t])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	return missing, nil
}

// Note returns for example "incomplete: 3 events; 7 events have not arrived",
// and "" when nothing is known to lack.
func (c Completeness) Note() string {
	note := Incomplete{All: c.Incomplete}.Note("")
	if c.Missing == 0 {
		return note
	}
	missing := fmt.Sprintf("%d events have not arrived", c.Missing)
	if c.Missing == 1 {
		missing = "1 event has not arrived"
	}
	if note == "" {
		return "incomplete: " + missing
	}
	return note + "; " + missing
}

// Quarantine lists what could not be folded. A resolution counts when whoever
// signed it had the right to; of several the latest.
func Quarantine(view View) (*QuarantineList, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	resolutions := map[string]*Version{}
	err = view.Scan(Query{Table: TableResolutions}, func(k Key, row Row) error {
		v := a.Latest(k, row.(*History))
		if have := resolutions[k.ID]; v != nil && (have == nil || v.Order.After(have.Order)) {
			resolutions[k.ID] = v
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read quarantine resolutions: %w", err)
	}
	list := &QuarantineList{Position: view.Position().String(), Entries: []QuarantineEntry{}, Incomplete: Incomplete{Workspaces: map[string]int{}}}
	err = view.Scan(Query{Table: TableQuarantine}, func(_ Key, row Row) error {
		q := row.(*Quarantined)
		tp := domain.TopicPartition{Topic: q.Topic, Partition: q.Partition}
		e := QuarantineEntry{ID: fmt.Sprintf("%s@%d", tp, q.Offset), Quarantined: *q}
		e.SHA256 = slices.Clone(q.SHA256)
		if v := resolutions[e.ID]; v != nil {
			ev := v.Event.(*domain.QuarantineResolved)
			e.Resolution, e.Note, e.Resolved, e.ResolvedBy = ev.Resolution, ev.Reason, v.Order.Effective, v.Signer.Operator
		} else {
			list.Open++
			if q.Workspace == "" {
				list.Incomplete.All++
			} else {
				list.Incomplete.Workspaces[q.Workspace]++
			}
		}
		list.Entries = append(list.Entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	return list, nil
}

// Find returns the entry of an id such as "qm.fleet/3@17", nil when that record
// is not in quarantine.
func (l *QuarantineList) Find(id string) *QuarantineEntry {
	for i := range l.Entries {
		if l.Entries[i].ID == id {
			return &l.Entries[i]
		}
	}
	return nil
}
