package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"quartermaster/deploy/runbooks"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	figures "quartermaster/projections/advice"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// Tick is how often the rules are evaluated.
const Tick = 5 * 60 * domain.Second

// TickOf returns the last tick at or before a time.
func TickOf(t domain.Instant) domain.Instant { return t - t%Tick }

// AdviceQuery asks what the rules find.
type AdviceQuery struct {
	At        domain.Instant // 0: now
	Workspace string         // only findings that it answers for
	Cluster   string         // only findings about it and its parts
	Rule      advice.RuleID  // only this rule
}

// Advice is what the rules find at a time.
type Advice struct {
	Position string           `json:"position"`
	At       domain.Instant   `json:"at"`
	Method   string           `json:"method"` // version of the rules
	Rules    []RuleCount      `json:"rules"`  // every rule, in the order of "advice rules"
	Findings []advice.Finding `json:"findings"`
	// Cases are the findings with a common cause: what incidents are made of.
	Cases []advice.Case `json:"cases"`
	registry.Completeness
}

// RuleCount says what a rule found.
type RuleCount struct {
	Rule    advice.RuleID `json:"rule"`
	Firing  int           `json:"firing"`
	Holding int           `json:"holding"`
	Unknown int           `json:"unknown"`
}

// Advice evaluates the rules. Nothing is recorded.
func (c *Caller) Advice(ctx context.Context, at At, q AdviceQuery) (ans *Advice, err error) {
	if q.Rule != "" {
		if err := KnownRule(string(q.Rule)); err != nil {
			return nil, err
		}
	}
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		if err := (narrowed{cluster: q.Cluster}).known(v); err != nil {
			return err
		}
		found, f, err := c.evaluate(ctx, v, about, nil, nil)
		if err != nil {
			return err
		}
		ans = &Advice{Position: v.Position().String(), At: about, Method: advice.Method, Findings: []advice.Finding{}}
		count := map[advice.RuleID]*RuleCount{}
		for _, r := range advice.Rules() {
			ans.Rules = append(ans.Rules, RuleCount{Rule: r.ID})
		}
		for i := range ans.Rules {
			count[ans.Rules[i].Rule] = &ans.Rules[i]
		}
		for _, f := range found {
			if q.Rule != "" && f.Rule != q.Rule || q.Workspace != "" && f.Workspace != q.Workspace || q.Cluster != "" && f.Subject.Cluster != q.Cluster {
				continue
			}
			ans.Findings = append(ans.Findings, f)
			switch f.Status {
			case advice.Firing:
				count[f.Rule].Firing++
			case advice.Holding:
				count[f.Rule].Holding++
			case advice.Unknown:
				count[f.Rule].Unknown++
			}
		}
		ans.Cases = advice.Correlate(f, ans.Findings)
		if len(ans.Findings) == 0 {
			if err := (narrowed{workspace: q.Workspace}).empty(v); err != nil {
				return err
			}
		}
		ans.Completeness, err = registry.CompletenessOf(v, q.Workspace, q.Cluster, domain.Interval{From: about - 28*domain.Day, To: about},
			domain.TopicTelemetry, domain.TopicHardware, domain.TopicFleet, domain.TopicBilling)
		return err
	})
	return ans, err
}

// KnownRule refuses the name of a rule that does not exist.
func KnownRule(name string) error {
	var known []string
	for _, r := range advice.Rules() {
		known = append(known, string(r.ID))
	}
	return oneOf("rule", name, known)
}

// evaluate reads the figures of a time and judges them, with further overrides of thresholds, which count first.
func (c *Caller) evaluate(
	ctx context.Context, v projections.View, at domain.Instant, hours *figures.Hours, more []advice.Override,
) ([]advice.Finding, *advice.Figures, error) {
	f, err := c.figures(ctx, v, at, hours)
	if err != nil {
		return nil, nil, err
	}
	overrides, err := figures.Thresholds(v, at)
	if err != nil {
		return nil, nil, err
	}
	t, err := advice.NewThresholds(slices.Concat(more, overrides))
	if err != nil {
		return nil, nil, &InvalidError{Err: err}
	}
	return advice.Evaluate(f, t), f, nil
}

// figures reads what the rules judge. hours keeps sums of days from one tick to the next; nil: none are kept.
func (c *Caller) figures(ctx context.Context, v projections.View, at domain.Instant, hours *figures.Hours) (*advice.Figures, error) {
	if at.HourStart() <= 28*domain.Day {
		return nil, invalid("at", "the rules read 28 days: want a time after January 1970")
	}
	return figures.Read(v, at, figures.Options{
		Hours: hours,
		Costs: func(q costs.Query) (*costs.Report, error) { return c.costs(ctx, v, q) },
		Budgets: func(month domain.Interval) (*costs.BudgetReport, error) {
			return c.budgets(ctx, c.app.conn, v, month)
		},
	})
}

// EvaluateTick brings the incidents of the log to what the rules find at a tick, and appends what changed. It may be called
// again for the same tick: what the rows have already is not appended again. hours keeps sums from one call to the next.
func (c *Caller) EvaluateTick(ctx context.Context, tick domain.Instant, hours *figures.Hours) (outcome string, err error) {
	h, err := c.conn(ctx, Appending)
	if err == nil {
		err = h.mayAppend(ctx)
	}
	if err == nil {
		err = h.knowsIncidents(ctx)
	}
	if err != nil {
		return "", err
	}
	changes, firing, err := c.stepAt(ctx, h, tick, hours)
	if err != nil {
		return "", err
	}
	stream := h.Stream("advice")
	var errs []error
	for i := range changes {
		env := &domain.Envelope{Time: tick, Subject: incidentOf(changes[i].Event), Workspace: changes[i].Workspace, Event: changes[i].Event}
		if err := domain.Validate(env); err != nil { // rows would refuse it, so it would be appended at each tick
			errs = append(errs, &InvalidError{Err: fmt.Errorf("incident %s: %w", env.Subject, err)})
			continue
		}
		if err := stream.Append(ctx, env); err != nil {
			return "", fmt.Errorf("append an incident to the log: %w", err)
		}
	}
	return fmt.Sprintf("%d findings, %d changes of incidents", firing, len(changes)-len(errs)), errors.Join(errs...)
}

// knowsIncidents returns an error while the rows lack incidents that the log has, which would be opened again.
func (h *Conn) knowsIncidents(ctx context.Context) error {
	tps := slices.DeleteFunc(domain.AllPartitions(), func(tp domain.TopicPartition) bool { return tp.Topic != domain.TopicIncidents })
	_, end, err := h.Log.AllBounds(ctx, tps)
	if err != nil {
		return err
	}
	return h.View(ctx, func(v projections.View) error {
		if !v.Position().Covers(end) {
			return &UnavailableError{Err: fmt.Errorf("the rows lack events of %s that are in the log", domain.TopicIncidents)}
		}
		return nil
	})
}

func incidentOf(ev domain.Event) string {
	switch ev := ev.(type) {
	case *domain.IncidentOpened:
		return ev.Incident
	case *domain.IncidentChanged:
		return ev.Incident
	case *domain.IncidentResolved:
		return ev.Incident
	}
	return ""
}

// stepAt returns what a tick changes, with the rows of h.
func (c *Caller) stepAt(ctx context.Context, h *Conn, tick domain.Instant, hours *figures.Hours) (changes []advice.Change, firing int, err error) {
	err = h.View(ctx, func(v projections.View) error {
		found, f, err := c.evaluate(ctx, v, tick, hours, nil)
		if err != nil {
			return err
		}
		known, err := figures.Current(v, tick)
		if err != nil {
			return err
		}
		for i := range found {
			if found[i].Status == advice.Firing {
				firing++
			}
		}
		changes, err = advice.Step(known, advice.Correlate(f, found), found, tick, v.Position().String())
		return err
	})
	return changes, firing, err
}

// AlertsQuery selects incidents.
type AlertsQuery struct {
	At        domain.Instant // 0: now
	Workspace string
	Rule      advice.RuleID
	All       bool           // the resolved ones, too
	Since     domain.Instant // with All: those resolved since then; 0: within 30 days before At
}

// Alerts are the incidents of a time.
type Alerts struct {
	Position  string                  `json:"position"`
	At        domain.Instant          `json:"at"`
	Incidents []figures.IncidentEntry `json:"incidents"` // the last opened first
	Silences  []figures.Silence       `json:"silences"`  // in force
}

// Alerts returns the open incidents, or those resolved lately, too.
func (c *Caller) Alerts(ctx context.Context, at At, q AlertsQuery) (ans *Alerts, err error) {
	if q.Since != 0 && !q.All {
		return nil, invalid("since", "it is about resolved incidents: ask for all")
	}
	if q.Rule != "" {
		if err := KnownRule(string(q.Rule)); err != nil {
			return nil, err
		}
	}
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		ans = &Alerts{Position: v.Position().String(), At: about}
		since := about
		if q.All {
			since = cmp.Or(q.Since, max(1, about-30*domain.Day))
		}
		if ans.Incidents, ans.Silences, err = figures.Incidents(v, about, since); err != nil {
			return err
		}
		ans.Incidents = slices.DeleteFunc(ans.Incidents, func(x figures.IncidentEntry) bool {
			return !q.All && x.State != advice.Open || q.Rule != "" && x.Case.Rule != q.Rule || q.Workspace != "" && x.Workspace != q.Workspace
		})
		if len(ans.Incidents) == 0 {
			return (narrowed{workspace: q.Workspace}).empty(v)
		}
		return nil
	})
	return ans, err
}

// Alert is one incident, with its findings as they were recorded and as the rows have them now.
type Alert struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	figures.IncidentEntry
	// Now are the findings about the same subject and its parts at At: what a late sample or a bill changed shows here. An
	// incident itself is never rewritten.
	Now     []advice.Finding `json:"findings_now"`
	Runbook string           `json:"runbook"` // of its rule, Markdown
}

// Alert returns an incident.
func (c *Caller) Alert(ctx context.Context, at At, id string) (ans *Alert, err error) {
	err = c.readFrom(ctx, at, 0, func(v projections.View, about domain.Instant) error {
		x, err := incidentNamed(v, about, id)
		if err != nil {
			return err
		}
		ans = &Alert{Position: v.Position().String(), At: about, IncidentEntry: *x, Now: []advice.Finding{}}
		if ans.Runbook, err = runbooks.Of(string(x.Case.Rule)); err != nil || !c.app.scope().IsWhole() {
			return err
		}
		found, _, err := c.evaluate(ctx, v, about, nil, nil)
		for i := range found {
			if r, _ := advice.RuleOf(found[i].Rule); r.Family == x.Case.Family && (x.Case.Subject == advice.Subject{} || x.Case.Subject.Contains(found[i].Subject)) {
				ans.Now = append(ans.Now, found[i])
			}
		}
		return err
	})
	return ans, err
}

func incidentNamed(v projections.View, at domain.Instant, id string) (*figures.IncidentEntry, error) {
	all, _, err := figures.Incidents(v, at, 0)
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
		ids = append(ids, all[i].ID)
	}
	if id == "" {
		return nil, invalid("incident", "the id of the incident is empty")
	}
	return nil, among("incident", id, ids)
}

// Acknowledge drafts that the signer deals with an incident.
func (c *Caller) Acknowledge(ctx context.Context, id, note string) (x *figures.IncidentEntry, d Draft, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		if x, err = incidentNamed(v, Now(), id); err != nil {
			return err
		}
		if x.State == advice.Resolved {
			return &ConflictError{Err: fmt.Errorf("incident %s was resolved at %s", id, x.Resolved)}
		}
		d = Draft{Use: "alerts-ack", Events: []domain.Envelope{{
			Time: Now(), Subject: id, Workspace: x.Workspace, Event: &domain.IncidentAcknowledged{Incident: id, Note: note},
		}}}
		return nil
	})
	return x, d, err
}

// SilenceQuery says what to keep quiet about: an incident, or a rule with a subject or without.
type SilenceQuery struct {
	Workspace string // of a silence of a rule; "": platform, which is about all
	Incident  string
	Rule      advice.RuleID
	Subject   string
	Until     domain.Instant
	Reason    string
}

// Silence drafts that notices are kept back until a time.
func (c *Caller) Silence(ctx context.Context, q SilenceQuery) (s *domain.IncidentSilenced, d Draft, err error) {
	now := Now()
	switch {
	case (q.Incident == "") == (q.Rule == ""):
		return nil, d, invalid("incident", "name an incident or a rule, and not both")
	case q.Subject != "" && q.Rule == "":
		return nil, d, invalid("subject", "a subject needs a rule")
	case q.Until <= now:
		return nil, d, invalid("until", "%s is not in the future", q.Until)
	}
	if q.Rule != "" {
		if err := KnownRule(string(q.Rule)); err != nil {
			return nil, d, err
		}
	}
	s = &domain.IncidentSilenced{Incident: q.Incident, Rule: string(q.Rule), Subject: q.Subject, Until: q.Until, Reason: q.Reason}
	workspace := cmp.Or(q.Workspace, Platform)
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		if q.Incident != "" {
			x, err := incidentNamed(v, now, q.Incident)
			if err != nil {
				return err
			}
			workspace, s.Silence = x.Workspace, "incident "+x.ID
			return nil
		}
		s.Silence = "rule " + string(q.Rule)
		if q.Subject != "" {
			s.Silence += " of " + q.Subject
		}
		return (narrowed{workspace: q.Workspace}).empty(v)
	})
	d = Draft{Use: "alerts-silence", Events: []domain.Envelope{{Time: now, Subject: s.Silence, Workspace: workspace, Event: s}}}
	return s, d, err
}
