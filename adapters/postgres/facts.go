package postgres

import (
	"encoding/json"

	"quartermaster/domain"
	"quartermaster/projections"
)

// version is a [projections.Version] as the column facts shows it.
type version struct {
	Effective domain.Instant `json:"effective"`
	Appended  domain.Instant `json:"appended"`
	Recorded  domain.Instant `json:"recorded,omitzero"`
	Last      domain.Instant `json:"last,omitzero"`
	Count     uint64         `json:"count,omitempty"`
	Rest      bool           `json:"rest,omitempty"`
	Workspace string         `json:"workspace,omitempty"`
	SignedBy  string         `json:"signed_by,omitempty"`
	Type      domain.Type    `json:"type"`
	Event     domain.Event   `json:"event"`
}

// maxFacts bounds the JSON that is kept beside a row. The server limits its internal form (jsonb)
// to 256 MB, and numbers become up to six times as long in that form.
const maxFacts = 32 << 20

// facts returns a row as JSON for people who query in SQL. It returns nil when the row cannot be
// shown. That does not stop the fold, because the row itself holds the same data.
func facts(row projections.Row) []byte {
	var show any = row
	if h, ok := row.(*projections.History); ok {
		versions := make([]version, len(h.Versions))
		for i := range h.Versions {
			v := &h.Versions[i]
			versions[i] = version{
				Effective: v.Order.Effective, Appended: v.Order.Appended, Recorded: v.Recorded,
				Last: v.Last, Count: v.Count, Rest: v.Rest,
				Workspace: v.Workspace, Type: v.Event.Type(), Event: withoutDocument(v.Event),
			}
			if v.Signer != nil {
				versions[i].SignedBy = v.Signer.Operator
			}
		}
		show = versions
	}
	b, err := json.Marshal(show)
	if err != nil || len(b) > maxFacts {
		return nil
	}
	return jsonText(b)
}

// withoutDocument removes documents, which are long and not useful in SQL.
func withoutDocument(e domain.Event) domain.Event {
	switch e := e.(type) {
	case *domain.PlanComputed:
		short := *e
		short.Document = nil
		return &short
	case *domain.ScenarioFrozen:
		short := *e
		short.Document = nil
		return &short
	case *domain.RecommendationMade:
		short := *e
		short.Document = nil
		return &short
	case *domain.CommandIssued:
		short := *e
		short.Document, short.Approvals = nil, nil
		return &short
	case *domain.OutcomeRecorded:
		short := *e
		short.Document = nil
		return &short
	case *domain.IncidentOpened:
		short := *e
		short.Document = nil
		return &short
	case *domain.IncidentChanged:
		short := *e
		short.Document = nil
		return &short
	}
	return e
}
