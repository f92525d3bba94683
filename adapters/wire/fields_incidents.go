package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.incidents, keyed by workspace: what needs a person, and who deals with it.

func incidentOpened(m *mover, p *eventsv1.IncidentOpened, d *domain.IncidentOpened) {
	text(m, "incident", &p.Incident, &d.Incident)
	text(m, "rule", &p.Rule, &d.Rule)
	same(m, &p.Version, &d.Version)
	text(m, "subject", &p.Subject, &d.Subject)
	text(m, "severity", &p.Severity, &d.Severity)
	m.instant("at", &p.At, &d.At)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	text(m, "summary", &p.Summary, &d.Summary)
	m.bytes("document", &p.Document, &d.Document)
}

func incidentChanged(m *mover, p *eventsv1.IncidentChanged, d *domain.IncidentChanged) {
	text(m, "incident", &p.Incident, &d.Incident)
	text(m, "severity", &p.Severity, &d.Severity)
	m.instant("at", &p.At, &d.At)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	text(m, "summary", &p.Summary, &d.Summary)
	same(m, &p.Reopened, &d.Reopened)
	m.bytes("document", &p.Document, &d.Document)
}

func incidentResolved(m *mover, p *eventsv1.IncidentResolved, d *domain.IncidentResolved) {
	text(m, "incident", &p.Incident, &d.Incident)
	m.instant("at", &p.At, &d.At)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	text(m, "reason", &p.Reason, &d.Reason)
}

func incidentAcknowledged(m *mover, p *eventsv1.IncidentAcknowledged, d *domain.IncidentAcknowledged) {
	text(m, "incident", &p.Incident, &d.Incident)
	text(m, "note", &p.Note, &d.Note)
}

func incidentSilenced(m *mover, p *eventsv1.IncidentSilenced, d *domain.IncidentSilenced) {
	text(m, "silence", &p.Silence, &d.Silence)
	text(m, "incident", &p.Incident, &d.Incident)
	text(m, "rule", &p.Rule, &d.Rule)
	text(m, "subject", &p.Subject, &d.Subject)
	m.instant("until", &p.Until, &d.Until)
	text(m, "reason", &p.Reason, &d.Reason)
}
