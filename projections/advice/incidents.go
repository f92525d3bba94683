package advice

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// IncidentEntry is an incident with what people decided about it.
type IncidentEntry struct {
	Workspace string `json:"workspace"` // that it belongs to
	advice.Incident
	Acknowledged []Acknowledgement `json:"acknowledged"` // oldest first
	Silence      *Silence          `json:"silence"`      // that keeps its notices back; null: none
	Events       []IncidentEvent   `json:"events"`       // all events about it, oldest first
}

// Acknowledgement is somebody who deals with an incident.
type Acknowledgement struct {
	At       domain.Instant `json:"at"`
	Operator string         `json:"operator"`
	Note     string         `json:"note,omitempty"`
}

// IncidentEvent is an event about an incident.
type IncidentEvent struct {
	At       domain.Instant  `json:"at"` // the tick, or the time of the decision
	Type     domain.Type     `json:"type"`
	Severity domain.Severity `json:"severity,omitempty"`
	Summary  string          `json:"summary,omitempty"`
	Position string          `json:"position,omitempty"`
	Operator string          `json:"operator,omitempty"`
}

// Silence keeps notices back.
type Silence struct {
	Workspace string         `json:"workspace"`
	Silence   string         `json:"silence"`
	Incident  string         `json:"incident,omitempty"`
	Rule      advice.RuleID  `json:"rule,omitempty"`
	Subject   string         `json:"subject,omitempty"`
	From      domain.Instant `json:"from"`
	Until     domain.Instant `json:"until"`
	Reason    string         `json:"reason"`
	Operator  string         `json:"operator"`
}

// keeps reports whether a silence is about an incident. One of the root workspace is about all; another is about those
// of its workspace.
func (s *Silence) keeps(x *IncidentEntry) bool {
	return (s.Workspace == advice.Platform || s.Workspace == x.Workspace) && (s.Incident == x.ID ||
		s.Incident == "" && s.Rule == x.Case.Rule && (s.Subject == "" || s.Subject == x.Case.Subject.String()))
}

// Incidents returns the incidents that the view shows, the last opened first, with the silences of a time: those that are
// open, and those that were resolved since a time.
func Incidents(view projections.View, at, since domain.Instant) ([]IncidentEntry, []Silence, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, nil, err
	}
	silences, err := silencesAt(view, auth, at)
	if err != nil {
		return nil, nil, err
	}
	entries := []IncidentEntry{}
	if err := view.Scan(projections.Query{Table: projections.TableIncidents}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		if endedBefore(h, since) { // most are, and what they say is not read
			return nil
		}
		x := incident(auth, k, h)
		if x == nil {
			return nil
		}
		x.Silence = silenceOf(x, silences)
		entries = append(entries, *x)
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("read incidents: %w", err)
	}
	slices.SortFunc(entries, func(a, b IncidentEntry) int {
		return cmp.Or(cmp.Compare(b.Opened, a.Opened), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.ID, b.ID))
	})
	return entries, silences, nil
}

// Incident returns an incident of a workspace with its silence of a time, nil if the view shows none.
func Incident(view projections.View, workspace, id string, at domain.Instant) (*IncidentEntry, error) {
	k := projections.Key{Table: projections.TableIncidents, Scope: workspace, ID: id}
	row, err := view.Get(k)
	if row == nil || err != nil {
		return nil, err
	}
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	silences, err := silencesAt(view, auth, at)
	if err != nil {
		return nil, err
	}
	x := incident(auth, k, row.(*projections.History))
	if x != nil {
		x.Silence = silenceOf(x, silences)
	}
	return x, nil
}

// silenceOf returns the first silence that keeps an incident quiet, nil without one.
func silenceOf(x *IncidentEntry, silences []Silence) *Silence {
	if i := slices.IndexFunc(silences, func(s Silence) bool { return s.keeps(x) }); i >= 0 {
		return &silences[i]
	}
	return nil
}

// Told reports whether an event about an incident is news for receivers that hear of a severity and worse: its opening,
// its return, a higher severity, or its end after one of these. A silence of the time of an event keeps it back; the end
// of what was kept back is no news either.
func (x *IncidentEntry) Told(view projections.View, event int, least domain.Severity) (bool, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return false, err
	}
	told, open, severity := false, false, -1
	for i := range x.Events[:event+1] {
		e := &x.Events[i]
		var news bool
		switch e.Type {
		case domain.TypeIncidentOpened, domain.TypeIncidentChanged:
			is := slices.Index(domain.Severities(), e.Severity)
			news = is >= slices.Index(domain.Severities(), least) && (!open || is > severity)
			open, severity = true, is
		case domain.TypeIncidentResolved:
			news = told && open
			open = false
		default:
			if i == event {
				return true, nil // a person's decision
			}
			continue
		}
		if news {
			silences, err := silencesAt(view, auth, e.At)
			if err != nil {
				return false, err
			}
			news = silenceOf(x, silences) == nil
		}
		if i == event {
			return news, nil
		}
		told = (told || news) && open
	}
	return false, nil
}

// silencesAt returns the silences in force at a time.
func silencesAt(view projections.View, auth *registry.Authority, at domain.Instant) ([]Silence, error) {
	silences := []Silence{}
	if err := view.Scan(projections.Query{Table: projections.TableSilences}, func(k projections.Key, row projections.Row) error {
		v := auth.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		if e, ok := v.Event.(*domain.IncidentSilenced); ok && e.Until > at {
			silences = append(silences, Silence{
				Workspace: v.Workspace, Silence: e.Silence, Incident: e.Incident, Rule: advice.RuleID(e.Rule), Subject: e.Subject,
				From: v.Order.Effective, Until: e.Until, Reason: e.Reason, Operator: v.Signer.Operator,
			})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read silences: %w", err)
	}
	return silences, nil
}

// Current returns the incidents that a tick may change: those that are open, and those resolved within a day before it. Older
// ones cost no more than a look at their row.
func Current(view projections.View, at domain.Instant) ([]advice.Incident, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	var current []advice.Incident
	err = view.Scan(projections.Query{Table: projections.TableIncidents}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		if endedBefore(h, at-advice.Reopen+1) {
			return nil
		}
		if x := incident(auth, k, h); x != nil {
			current = append(current, x.Incident)
		}
		return nil
	})
	return current, err
}

// endedBefore reports whether an incident was resolved before a time, and is not open again.
func endedBefore(h *projections.History, at domain.Instant) bool {
	for i := range slices.Backward(h.Versions) {
		switch ev := h.Versions[i].Event.(type) {
		case *domain.IncidentResolved:
			return ev.At < at
		case *domain.IncidentOpened, *domain.IncidentChanged:
			return false
		}
	}
	return false
}

// incident reads a row; nil if it has no opening that counts.
func incident(auth *registry.Authority, k projections.Key, h *projections.History) *IncidentEntry {
	x := &IncidentEntry{Incident: advice.Incident{ID: k.ID}, Acknowledged: []Acknowledgement{}, Events: []IncidentEvent{}}
	for i := range h.Versions {
		v := &h.Versions[i]
		if auth.Judge(k, h, i) != "" {
			continue
		}
		e := IncidentEvent{At: v.Order.Effective, Type: v.Event.Type()}
		var document []byte
		switch ev := v.Event.(type) {
		case *domain.IncidentOpened:
			x.Workspace, x.State, x.Opened, x.Changed, x.Position, document = v.Workspace, advice.Open, ev.At, ev.At, ev.Position, ev.Document
			e.At, e.Severity, e.Summary, e.Position = ev.At, ev.Severity, ev.Summary, ev.Position
		case *domain.IncidentChanged:
			x.State, x.Changed, x.Resolved, x.Reason, x.Position, document = advice.Open, ev.At, 0, "", ev.Position, ev.Document
			if ev.Reopened {
				x.Reopened++
			}
			e.At, e.Severity, e.Summary, e.Position = ev.At, ev.Severity, ev.Summary, ev.Position
		case *domain.IncidentResolved:
			x.State, x.Changed, x.Resolved, x.Reason = advice.Resolved, ev.At, ev.At, ev.Reason
			e.At, e.Summary, e.Position = ev.At, ev.Reason, ev.Position
		case *domain.IncidentAcknowledged:
			x.Acknowledged = append(x.Acknowledged, Acknowledgement{At: v.Order.Effective, Operator: v.Signer.Operator, Note: ev.Note})
			e.Operator, e.Summary = v.Signer.Operator, ev.Note
		default:
			continue
		}
		x.Events = append(x.Events, e)
		if document != nil {
			c, err := advice.ParseCase(document)
			if err != nil { // written by somebody else; it must not hide the others
				c = advice.Case{Rule: x.Case.Rule, Subject: advice.Subject{Name: k.ID}, Workspace: v.Workspace, Severity: e.Severity, Summary: e.Summary}
			}
			c.Workspace = v.Workspace // whose row it is, whatever the document says: the next event belongs there, too
			x.Case = c
		}
	}
	if x.Opened.IsZero() {
		return nil
	}
	return x
}
