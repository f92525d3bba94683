package advice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"quartermaster/domain"
)

// State says where an incident is.
type State string

// The states.
const (
	Open     State = "open"
	Resolved State = "resolved"
)

// Incident is what needs a person, as the log has it.
type Incident struct {
	ID       string         `json:"incident"`
	State    State          `json:"state"`
	Opened   domain.Instant `json:"opened"`
	Changed  domain.Instant `json:"changed"` // the tick of the last event about it
	Resolved domain.Instant `json:"resolved,omitempty"`
	Reason   string         `json:"reason,omitempty"` // of the resolution
	Reopened int            `json:"reopened"`         // how often it came back
	Position string         `json:"case_position"`    // that Case was found at
	Case     Case           `json:"case"`
}

// Reopen is how long a resolved incident may come back. Later it is another one.
const Reopen = domain.Day

// calm is how long an incident waits before it says that it got better, or has another first rule: what comes and goes at a
// threshold is not an event at each tick.
const calm = domain.Hour

// Document returns a case as canonical JSON, which [ParseCase] reads.
func (c *Case) Document() ([]byte, error) { return domain.CanonicalJSON(c) }

// ParseCase reads what [Case.Document] wrote.
func ParseCase(document []byte) (c Case, err error) {
	err = json.Unmarshal(document, &c)
	return c, err
}

// incidentKey is what makes two cases one incident.
type incidentKey struct {
	family  Family
	subject Subject
	// workspace is whose incident it is. Whoever may read its first event may read all, so what comes to concern others, or
	// to belong to another, is another incident.
	workspace string
}

// about is what a case is about, whoever it belongs to.
type about struct {
	family  Family
	subject Subject
}

// Step returns the events that bring incidents to the cases of a tick, with the workspace of each: by workspace and id.
// known are the open incidents and those resolved within a day. findings are those of the same tick: an incident stays open
// while any finding about its subject or a part of it is holding or unknown. What became an incident of [Platform], because
// it concerns several workspaces, stays one until it is over.
//
// It depends on nothing else, so whoever repeats it after a crash adds only what is missing.
func Step(known []Incident, cases []Case, findings []Finding, at domain.Instant, position string) ([]Change, error) {
	cases = gathered(known, cases)
	last := map[incidentKey]*Incident{}
	for i := range known {
		x := &known[i]
		k := incidentKey{x.Case.Family, x.Case.Subject, x.Case.Workspace}
		if old := last[k]; old == nil || cmp.Or(compareBool(x.State == Open, old.State == Open), cmp.Compare(x.Opened, old.Opened)) > 0 {
			last[k] = x
		}
	}
	var changes []Change
	now := map[incidentKey]string{} // the incidents of cases
	part := map[about]string{}
	for i := range cases {
		c := cases[i]
		over := func(x *Incident) bool { return x == nil || x.State == Resolved && x.Resolved+Reopen <= at }
		if of := last[incidentKey{c.Family, c.Subject, Platform}]; !over(of) {
			c.Workspace = Platform
		}
		k := incidentKey{c.Family, c.Subject, c.Workspace}
		document, err := c.Document()
		if err != nil {
			return nil, err
		}
		old := last[k]
		var id string
		switch {
		case over(old):
			id = incidentID(&c, at)
			r, _ := RuleOf(c.Rule)
			changes = append(changes, Change{c.Workspace, &domain.IncidentOpened{
				Incident: id, Rule: string(c.Rule), Version: r.Version, Subject: c.Subject.String(), Severity: c.Severity, At: at,
				Position: position, Method: Method, Summary: c.Summary, Document: document,
			}})
		case old.State == Resolved || old.Case.worse(&c) || old.Changed+calm <= at && old.Case.differs(&c):
			id = old.ID
			changes = append(changes, Change{c.Workspace, &domain.IncidentChanged{
				Incident: id, Severity: c.Severity, At: at, Position: position, Method: Method, Summary: c.Summary,
				Reopened: old.State == Resolved, Document: document,
			}})
		default:
			id = old.ID
		}
		now[k], part[about{c.Family, c.Subject}] = id, id
		for _, s := range c.members {
			part[about{c.Family, s}] = id
			part[about{c.Family, level(s)}] = id
		}
	}
	for i := range known {
		x := &known[i]
		k := incidentKey{x.Case.Family, x.Case.Subject, x.Case.Workspace}
		if x.State != Open || now[k] != "" && last[k] == x {
			continue
		}
		reason := ""
		if of := part[about{k.family, k.subject}]; of != "" {
			reason = "part of incident " + of
		} else if x.stays(findings) {
			continue
		}
		changes = append(changes, Change{x.Case.Workspace, &domain.IncidentResolved{
			Incident: x.ID, At: at, Position: position, Method: Method, Reason: reason,
		}})
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Workspace, b.Workspace) })
	return changes, nil
}

// Change is an event about an incident, and the workspace that it belongs to.
type Change struct {
	Workspace string
	Event     domain.Event
}

// worse reports whether a case is of a higher severity, or has a tenth more parts.
func (c *Case) worse(d *Case) bool {
	return rank(d.Severity) > rank(c.Severity) || 10*(d.size()-c.size()) > d.size()
}

// differs reports whether a case says something new: another severity or rule, or a tenth more or fewer parts.
func (c *Case) differs(d *Case) bool {
	return c.worse(d) || c.Severity != d.Severity || c.Rule != d.Rule || 10*(max(c.Parts, c.Of)-max(d.Parts, d.Of)) > max(c.Parts, c.Of)
}

// size is how many parts it is about, or was about when its whole was concerned.
func (c *Case) size() int { return max(c.Parts, c.Of, c.Whole) }

// gathered gives the cases of parts to the open incident of their whole, while they are at least a quarter of what it was
// when it was last a case by itself. Parts that move to and fro across half of a place would else end and open incidents at
// each tick.
func gathered(known []Incident, cases []Case) []Case {
	whole := map[about]bool{}
	for i := range cases {
		whole[about{cases[i].Family, cases[i].Subject}] = true
	}
	var places []*Incident // the largest first
	for i := range known {
		x := &known[i]
		if s := x.Case.Subject; x.State == Open && s != (Subject{}) && level(s) == s && !whole[about{x.Case.Family, s}] {
			places = append(places, x)
		}
	}
	slices.SortStableFunc(places, func(a, b *Incident) int {
		return cmp.Or(cmp.Compare(depthOf(b.Case.Subject), depthOf(a.Case.Subject)), a.Case.Subject.Compare(b.Case.Subject))
	})
	cases = slices.Clone(cases)
	for _, x := range places {
		inside := func(c Case) bool {
			return c.Family == x.Case.Family && c.Subject != x.Case.Subject && x.Case.Subject.Contains(c.Subject) && level(c.Subject) == c.Subject &&
				(x.Case.Workspace == Platform || x.Case.Workspace == c.Workspace)
		}
		size, was := 0, cmp.Or(x.Case.Whole, x.Case.size())
		for _, c := range cases {
			if inside(c) {
				size += max(1, c.Parts)
			}
		}
		if size == 0 || 4*size < was {
			continue
		}
		all := Case{Family: x.Case.Family, Subject: x.Case.Subject, Workspace: x.Case.Workspace, Whole: was, Parts: size, PerMonth: []domain.Money{}}
		for _, c := range cases {
			if !inside(c) {
				continue
			}
			if all.Rule == "" {
				all.Rule, all.Severity, all.Summary = c.Rule, c.Severity, fmt.Sprintf("%d parts of %s are left; the first: %s", size, x.Case.Subject, c.Summary)
			}
			if rank(c.Severity) > rank(all.Severity) {
				all.Severity = c.Severity
			}
			all.Of += c.Of
			all.members = append(all.members, c.members...)
			for k := range c.Findings {
				if len(all.Findings) < MostNames {
					all.Findings, all.Names = append(all.Findings, c.Findings[k]), append(all.Names, c.Findings[k].Subject.String())
				}
			}
		}
		cases = append(slices.DeleteFunc(cases, inside), all)
	}
	return cases
}

// stays reports whether a finding that is not clear keeps an incident open.
func (x *Incident) stays(findings []Finding) bool {
	for i := range findings {
		f := &findings[i]
		if f.Status != Holding && f.Status != Unknown {
			continue
		}
		if r, _ := RuleOf(f.Rule); r.Family == x.Case.Family && x.Case.Subject.Contains(f.Subject) {
			return true
		}
	}
	return false
}

// Contains reports whether a subject is another, or a part of it. The fleet contains only itself: one cluster that is nearly
// fine is no reason to go on about all.
func (s Subject) Contains(t Subject) bool {
	if s == (Subject{}) {
		return t == s
	}
	a, b := s.fields(), t.fields()
	for i := range a {
		if a[i][1] != "" && a[i][1] != b[i][1] {
			return false
		}
	}
	return true
}

func incidentID(c *Case, at domain.Instant) string {
	sum := sha256.Sum256([]byte(string(c.Family) + "\x00" + c.Subject.String() + "\x00" + at.Time().Format(time.RFC3339Nano)))
	return "i-" + hex.EncodeToString(sum[:8])
}

// Apply returns incidents after events about them, as the log has them then.
func Apply(known []Incident, changes []Change) ([]Incident, error) {
	known = slices.Clone(known)
	find := func(id string) *Incident {
		if i := slices.IndexFunc(known, func(x Incident) bool { return x.ID == id }); i >= 0 {
			return &known[i]
		}
		return &Incident{} // not known: a change of it changes nothing
	}
	for _, c := range changes {
		var err error
		switch ev := c.Event.(type) {
		case *domain.IncidentOpened:
			x := Incident{ID: ev.Incident, State: Open, Opened: ev.At, Changed: ev.At, Position: ev.Position}
			x.Case, err = ParseCase(ev.Document)
			known = append(known, x)
		case *domain.IncidentChanged:
			x := find(ev.Incident)
			x.State, x.Changed, x.Resolved, x.Reason, x.Position = Open, ev.At, 0, "", ev.Position
			if ev.Reopened {
				x.Reopened++
			}
			x.Case, err = ParseCase(ev.Document)
		case *domain.IncidentResolved:
			x := find(ev.Incident)
			x.State, x.Changed, x.Resolved, x.Reason = Resolved, ev.At, ev.At, ev.Reason
		}
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}
