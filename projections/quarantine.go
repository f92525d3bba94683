package projections

import (
	"fmt"

	"quartermaster/domain"
)

// QuarantineEntry is a record that could not be folded, with its resolution.
type QuarantineEntry struct {
	ID string `json:"id"` // topic/partition@offset, as in [domain.Envelope.Cites]
	Quarantined
	Resolution string         `json:"resolution,omitempty"` // reappended, discarded; empty: open
	Resolved   domain.Instant `json:"resolved,omitempty"`
	ResolvedBy string         `json:"resolved_by,omitempty"`
	Note       string         `json:"note,omitempty"` // the reason given for the resolution
}

// QuarantineList lists all records that could not be folded.
type QuarantineList struct {
	Position string            `json:"position"`
	Entries  []QuarantineEntry `json:"entries"` // by topic, partition, offset
	Open     int               `json:"open"`    // events
	// Removed counts resolved records that a retention policy took off the list. The log has them as
	// long as it has any record of their time.
	Removed    int        `json:"removed"`
	Incomplete Incomplete `json:"incomplete"`

	places map[string]int // indexes of the entries, by id; made on first use
}

// Incomplete counts the open records by the workspace that they may concern. A report about a
// workspace lacks up to All plus Workspaces[workspace] events.
type Incomplete struct {
	All        int            `json:"all"` // their workspace is unknown
	Workspaces map[string]int `json:"workspaces"`
}

// For returns how many events a report about a workspace may lack; "" stands for a report about
// all.
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

// Note returns "incomplete: n events" for a report about a workspace ("" for all), and "" if it is
// complete.
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

// Add counts the events of an open row.
func (i *Incomplete) Add(q *Quarantined) {
	if q.Workspace == "" {
		i.All += q.Events()
	} else {
		i.Workspaces[q.Workspace] += q.Events()
	}
}

// Find returns the entry of an id such as "qm.fleet/3@17", nil if that record is not in quarantine.
func (l *QuarantineList) Find(id string) *QuarantineEntry {
	if l.places == nil {
		l.places = make(map[string]int, len(l.Entries))
		for i := range l.Entries {
			l.places[l.Entries[i].ID] = i
		}
	}
	if i, ok := l.places[id]; ok {
		return &l.Entries[i]
	}
	return nil
}
