package domain

import "encoding/json"

// Events of qm.incidents, keyed by workspace: what needs a person, and who deals with it.

// Severity says how soon a person should look at an incident.
type Severity string

// The severities.
const (
	SeverityInfo     Severity = "info"     // whenever there is time
	SeverityWarning  Severity = "warning"  // in working hours
	SeverityCritical Severity = "critical" // at once
)

// Severities returns every severity, the mildest first.
func Severities() []Severity { return []Severity{SeverityInfo, SeverityWarning, SeverityCritical} }

// IncidentOpened says that something needs a person, as the rules found it at a tick. A program appends it. The events of
// one incident share its id.
type IncidentOpened struct {
	Incident string   `json:"incident"` // id within the workspace: of rule, subject and the first tick
	Rule     string   `json:"rule"`
	Version  uint32   `json:"version"` // of the rule, from 1
	Subject  string   `json:"subject"` // canonical text of what it is about
	Severity Severity `json:"severity"`
	At       Instant  `json:"at"`       // the tick that was evaluated
	Position string   `json:"position"` // that the figures are of
	Method   string   `json:"method"`   // version of the rules, such as advice/1
	Summary  string   `json:"summary"`
	Document []byte   `json:"document"` // the findings, canonical JSON
}

// IncidentChanged states an incident anew: its findings, its severity, or that it is back after it was resolved.
type IncidentChanged struct {
	Incident string   `json:"incident"`
	Severity Severity `json:"severity"`
	At       Instant  `json:"at"`
	Position string   `json:"position"`
	Method   string   `json:"method"`
	Summary  string   `json:"summary"`
	Reopened bool     `json:"reopened,omitempty"`
	Document []byte   `json:"document"`
}

// IncidentResolved says that the findings of an incident are gone, beyond the margin of their rule.
type IncidentResolved struct {
	Incident string  `json:"incident"`
	At       Instant `json:"at"`
	Position string  `json:"position"`
	Method   string  `json:"method"`
	Reason   string  `json:"reason,omitempty"`
}

// IncidentAcknowledged says that whoever signed it deals with an incident.
type IncidentAcknowledged struct {
	Incident string `json:"incident"`
	Note     string `json:"note,omitempty"`
}

// IncidentSilenced keeps notices back until a time: of one incident, of every incident of a rule, or of those of a rule
// about a subject. The incidents themselves stay as they are. A silence of the same id is replaced, so one that is over
// at once ends it.
type IncidentSilenced struct {
	Silence  string  `json:"silence"`            // id within the workspace
	Incident string  `json:"incident,omitempty"` // either this
	Rule     string  `json:"rule,omitempty"`     // or that
	Subject  string  `json:"subject,omitempty"`  // only with a rule
	Until    Instant `json:"until"`
	Reason   string  `json:"reason"`
}

func (c *checker) incidentOpened(e *IncidentOpened) {
	c.id("incident", e.Incident)
	c.id("rule", e.Rule)
	c.positive("version", e.Version)
	c.about("subject", e.Subject)
	oneOf(c, "severity", e.Severity, Severities()...)
	c.instant("at", e.At)
	c.computedFrom(e.Position, e.Method)
	c.summary(e.Summary)
	c.findings("document", e.Document)
}

func (c *checker) incidentChanged(e *IncidentChanged) {
	c.id("incident", e.Incident)
	oneOf(c, "severity", e.Severity, Severities()...)
	c.instant("at", e.At)
	c.computedFrom(e.Position, e.Method)
	c.summary(e.Summary)
	c.findings("document", e.Document)
}

func (c *checker) incidentSilenced(e *IncidentSilenced) {
	c.id("silence", e.Silence)
	c.optionalID("incident", e.Incident)
	c.optionalID("rule", e.Rule)
	c.bounded("subject", e.Subject, maxSubject)
	switch {
	case e.Incident == "" && e.Rule == "":
		c.bad("incident", "is missing, and so is rule: want one of them")
	case e.Incident != "" && e.Rule != "":
		c.bad("rule", "is named beside an incident: want one of them")
	case e.Subject != "" && e.Rule == "":
		c.bad("subject", "is named without a rule")
	}
	c.instant("until", e.Until)
	c.text("reason", e.Reason)
	if e.Reason == "" {
		c.bad("reason", "is missing")
	}
}

// maxSubject is the maximum size of the text of a subject: some names and what joins them.
const maxSubject = 4 * maxID

func (c *checker) about(field, subject string) {
	if subject == "" {
		c.bad(field, "is missing")
	}
	c.bounded(field, subject, maxSubject)
}

func (c *checker) summary(s string) {
	c.text("summary", s)
	if s == "" {
		c.bad("summary", "is missing")
	}
}

// findings accepts a document that is a JSON object.
func (c *checker) findings(field string, document []byte) {
	switch {
	case len(document) == 0 || len(document) > maxFindings:
		c.bad(field, "has %d bytes, want 1 to %d", len(document), maxFindings)
	case document[0] != '{' || !json.Valid(document):
		c.bad(field, "is not a JSON object")
	}
}
