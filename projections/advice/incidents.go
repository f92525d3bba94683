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

// Incidents returns the incidents that the log has and the view shows, the last opened first, with the silences of a time.
func Incidents(view projections.View, at domain.Instant) ([]IncidentEntry, []Silence, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, nil, err
	}
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
		return nil, nil, fmt.Errorf("read silences: %w", err)
	}
	entries := []IncidentEntry{}
	if err := view.Scan(projections.Query{Table: projections.TableIncidents}, func(k projections.Key, row projections.Row) error {
		x := incident(auth, k, row.(*projections.History))
		if x == nil {
			return nil
		}
		for i := range silences {
			if silences[i].keeps(x) {
				x.Silence = &silences[i]
				break
			}
		}
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
			x.Case = c
		}
	}
	if x.Opened.IsZero() {
		return nil
	}
	return x
}
