package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	figures "quartermaster/projections/advice"
)

// AdviceTrial says what rules would have found in a period.
type AdviceTrial struct {
	Position string         `json:"position"` // what was known; the ticks are past times
	From     domain.Instant `json:"from"`
	To       domain.Instant `json:"to"`
	Step     string         `json:"step"` // between ticks
	Ticks    int            `json:"ticks"`
	Rules    []TriedRule    `json:"rules"`
}

// TriedRule says what one rule would have found.
type TriedRule struct {
	Rule      advice.RuleID  `json:"rule"`
	Fired     int            `json:"fired"`     // ticks with a finding
	Unknown   int            `json:"unknown"`   // ticks with a subject of which too little was known
	Incidents int            `json:"incidents"` // that would have been opened with this rule first
	Subjects  []TriedSubject `json:"subjects"`  // the most frequent first, at most 20
}

// TriedSubject says how often a rule fired about a subject.
type TriedSubject struct {
	Subject string         `json:"subject"`
	Fired   int            `json:"fired"`
	First   domain.Instant `json:"first"`
	Last    domain.Instant `json:"last"`
}

// mostTicks bounds a trial.
const mostTicks = 2000

// TryAdvice evaluates the rules for past ticks, with the thresholds in force and those of d, which may be nil. Nothing is
// recorded.
func (c *Caller) TryAdvice(ctx context.Context, at At, period domain.Interval, step domain.Instant, d *Declarations) (ans *AdviceTrial, err error) {
	switch {
	case period.Empty():
		return nil, invalid("to", "the end %s is not after the start %s", period.To, period.From)
	case step < Tick || step%Tick != 0:
		return nil, invalid("step", "%s is not a number of ticks of 5 minutes", step.Time().Format("15h04m05s"))
	case int64(period.Length()/step) > mostTicks:
		return nil, invalid("step", "%d ticks are more than %d: give a longer step", period.Length()/step, mostTicks)
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		overrides, err := proposedThresholds(v, d)
		if err != nil {
			return err
		}
		ans = &AdviceTrial{Position: v.Position().String(), From: period.From, To: period.To, Step: flagDuration(step)}
		rules := map[advice.RuleID]*TriedRule{}
		for _, r := range advice.Rules() {
			ans.Rules = append(ans.Rules, TriedRule{Rule: r.ID, Subjects: []TriedSubject{}})
		}
		for i := range ans.Rules {
			rules[ans.Rules[i].Rule] = &ans.Rules[i]
		}
		subjects := map[advice.RuleID]map[string]*TriedSubject{}
		var known []advice.Incident
		hours := &figures.Hours{}
		for tick := TickOf(period.From + Tick - 1); tick < period.To; tick += step {
			if err := ctx.Err(); err != nil {
				return err
			}
			found, f, err := c.evaluate(ctx, v, tick, hours, overrides)
			if err != nil {
				return err
			}
			ans.Ticks++
			fired := map[advice.RuleID]advice.Status{}
			for i := range found {
				x := &found[i]
				if x.Status == advice.Firing || x.Status == advice.Unknown && fired[x.Rule] == "" {
					fired[x.Rule] = x.Status
				}
				if x.Status != advice.Firing {
					continue
				}
				if subjects[x.Rule] == nil {
					subjects[x.Rule] = map[string]*TriedSubject{}
				}
				name := x.Subject.String()
				s := subjects[x.Rule][name]
				if s == nil {
					s = &TriedSubject{Subject: name, First: tick}
					subjects[x.Rule][name] = s
				}
				s.Fired, s.Last = s.Fired+1, tick
			}
			for rule, status := range fired {
				if status == advice.Firing {
					rules[rule].Fired++
				} else {
					rules[rule].Unknown++
				}
			}
			changes, err := advice.Step(known, advice.Correlate(f, found), found, tick, ans.Position)
			if err != nil {
				return err
			}
			for _, ch := range changes {
				if opened, ok := ch.Event.(*domain.IncidentOpened); ok {
					rules[advice.RuleID(opened.Rule)].Incidents++
				}
			}
			if known, err = advice.Apply(known, changes); err != nil {
				return err
			}
		}
		for rule, all := range subjects {
			r := rules[rule]
			for _, s := range all {
				r.Subjects = append(r.Subjects, *s)
			}
			slices.SortFunc(r.Subjects, func(a, b TriedSubject) int {
				return cmp.Or(cmp.Compare(b.Fired, a.Fired), cmp.Compare(a.Subject, b.Subject))
			})
			r.Subjects = r.Subjects[:min(len(r.Subjects), advice.MostNames)]
		}
		return nil
	})
	return ans, err
}

// proposedThresholds returns the thresholds of a file that is not applied.
func proposedThresholds(v projections.View, d *Declarations) (overrides []advice.Override, err error) {
	if d == nil {
		return nil, nil
	}
	if err := resolve(v, d.envs, d.refs); err != nil {
		return nil, err
	}
	for i := range d.envs {
		e, ok := d.envs[i].Event.(*domain.PolicySet)
		if !ok || e.Kind != domain.PolicyAdviceThreshold {
			continue
		}
		o, err := figures.Override(d.envs[i].Workspace, e)
		if err != nil {
			return nil, &InvalidError{Err: err}
		}
		o.SetBy = "file: " + o.SetBy
		overrides = append(overrides, o)
	}
	if len(overrides) == 0 {
		return nil, invalid("file", "it declares no policies of kind advice_threshold to try")
	}
	return overrides, nil
}

// flagDuration shows a step as a flag takes it.
func flagDuration(d domain.Instant) string {
	if d%domain.Hour == 0 {
		return fmt.Sprintf("%dh", d/domain.Hour)
	}
	return fmt.Sprintf("%dm", d/(60*domain.Second))
}

// AdviceReplay compares the incidents in the log with what the rules find at their positions.
type AdviceReplay struct {
	From        domain.Instant     `json:"from"`
	To          domain.Instant     `json:"to"`
	Ticks       int                `json:"ticks"`       // with events
	Events      int                `json:"events"`      // that rules made
	Interrupted int                `json:"interrupted"` // ticks that ended before all of their events were appended
	Equal       bool               `json:"equal"`
	Differences []ReplayDifference `json:"differences"`
}

// ReplayDifference is an event that is in the log or should be, and not both.
type ReplayDifference struct {
	Tick      domain.Instant `json:"tick"`
	Position  string         `json:"position"`
	Workspace string         `json:"workspace"`
	Type      domain.Type    `json:"type"`
	Incident  string         `json:"incident"`
	Problem   string         `json:"problem"`
}

// evaluated is a tick that was evaluated at a position.
type evaluated struct {
	tick     domain.Instant
	position string
}

// ReplayAdvice evaluates again every tick of a period that changed an incident, at the position that its events name, and
// compares the events.
func (c *Caller) ReplayAdvice(ctx context.Context, period domain.Interval, progress func(done, all int)) (*AdviceReplay, error) {
	if period.Empty() {
		return nil, invalid("to", "the end %s is not after the start %s", period.To, period.From)
	}
	logged := map[evaluated][]advice.Change{}
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableIncidents}, func(_ projections.Key, row projections.Row) error {
			for _, version := range row.(*projections.History).Versions {
				if e := evaluatedBy(version.Event); e.tick >= period.From && e.tick < period.To && e.position != "" {
					logged[e] = append(logged[e], advice.Change{Workspace: version.Workspace, Event: version.Event})
				}
			}
			return nil
		})
	}); err != nil {
		return nil, err
	}
	keys := make([]evaluated, 0, len(logged))
	last := map[domain.Instant]string{} // the position of the last evaluation of a tick
	for k := range logged {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b evaluated) int {
		return cmp.Or(cmp.Compare(a.tick, b.tick), comparePositions(a.position, b.position))
	})
	for _, k := range keys {
		last[k.tick] = k.position
	}
	ans := &AdviceReplay{From: period.From, To: period.To, Ticks: len(last), Differences: []ReplayDifference{}}
	for i, k := range keys {
		if progress != nil {
			progress(i, len(keys))
		}
		h, err := c.at(ctx, At(k.position))
		if err != nil {
			return nil, err
		}
		again, _, err := c.stepAt(ctx, h, k.tick, nil)
		if err != nil {
			return nil, err
		}
		ans.Events += len(logged[k])
		differs := func(ch advice.Change, problem string) {
			ans.Differences = append(ans.Differences, ReplayDifference{k.tick, k.position, ch.Workspace, ch.Event.Type(), incidentOf(ch.Event), problem})
		}
		for _, ch := range logged[k] {
			if !slices.ContainsFunc(again, func(x advice.Change) bool { return sameChange(x, ch) }) {
				differs(ch, "it is in the log, and the rules do not give it")
			}
		}
		if last[k.tick] != k.position {
			continue // the work went on at a later position: it was interrupted
		}
		// Events are appended in their order. If the last ones are missing, the evaluation was cut off, and the next tick made
		// up for it.
		if n := len(logged[k]); n < len(again) && !slices.ContainsFunc(again[:n], func(x advice.Change) bool {
			return !slices.ContainsFunc(logged[k], func(ch advice.Change) bool { return sameChange(x, ch) })
		}) {
			ans.Interrupted++
			continue
		}
		for _, ch := range again {
			if !slices.ContainsFunc(logged[k], func(x advice.Change) bool { return sameChange(x, ch) }) {
				differs(ch, "the rules give it, and it is not in the log")
			}
		}
	}
	ans.Equal = len(ans.Differences) == 0
	return ans, nil
}

// comparePositions orders two positions, of which one is before the other.
func comparePositions(a, b string) int {
	x, errX := domain.ParsePosition(a)
	y, errY := domain.ParsePosition(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	for tp, next := range x {
		if c := cmp.Compare(next, y[tp]); c != 0 {
			return c
		}
	}
	for tp, next := range y {
		if c := cmp.Compare(x[tp], next); c != 0 {
			return c
		}
	}
	return 0
}

// evaluatedBy returns the tick and position of an event that rules made; zero for others.
func evaluatedBy(ev domain.Event) evaluated {
	switch ev := ev.(type) {
	case *domain.IncidentOpened:
		return evaluated{ev.At, ev.Position}
	case *domain.IncidentChanged:
		return evaluated{ev.At, ev.Position}
	case *domain.IncidentResolved:
		return evaluated{ev.At, ev.Position}
	}
	return evaluated{}
}

func sameChange(a, b advice.Change) bool {
	if a.Workspace != b.Workspace || a.Event.Type() != b.Event.Type() || incidentOf(a.Event) != incidentOf(b.Event) {
		return false
	}
	switch x := a.Event.(type) {
	case *domain.IncidentOpened:
		y, ok := b.Event.(*domain.IncidentOpened)
		return ok && bytes.Equal(x.Document, y.Document) && x.Severity == y.Severity && x.Rule == y.Rule && x.Version == y.Version
	case *domain.IncidentChanged:
		y, ok := b.Event.(*domain.IncidentChanged)
		return ok && bytes.Equal(x.Document, y.Document) && x.Severity == y.Severity && x.Reopened == y.Reopened
	case *domain.IncidentResolved:
		y, ok := b.Event.(*domain.IncidentResolved)
		return ok && x.Reason == y.Reason
	}
	return false
}
