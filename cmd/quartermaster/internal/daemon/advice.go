package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
	figures "quartermaster/projections/advice"
)

// adviceSchedule is when the rules are evaluated without a configuration, and by default with one.
const adviceSchedule = "*/5 * * * *"

// adviser evaluates the rules of advice at a tick, issues commands and measures outcomes that are due, and tells Alertmanagers
// of the incidents that are open then. It is not safe for concurrent use.
type adviser struct {
	share    func(app.Principal) *app.App
	hours    figures.Hours
	managers []*alertmanager
	log      *slog.Logger
}

func newAdviser(h *app.Conn, cfgs []config.Alertmanager, log *slog.Logger) (*adviser, error) {
	managers, err := newAlertmanagers(cfgs)
	return &adviser{share: h.Sharing(), managers: managers, log: log}, err
}

// evaluate does what is due at a time. An Alertmanager that cannot be told hears it all at the next tick, so that is no
// failure of the evaluation.
func (a *adviser) evaluate(ctx context.Context, due time.Time) (outcome string, err error) {
	tick := app.TickOf(domain.InstantOf(due))
	outcome, err = a.share(app.Everyone).For(app.Everyone).EvaluateTick(ctx, tick, &a.hours)
	if err != nil && app.KindOf(err) != app.KindInvalid {
		return outcome, err
	}
	c := a.share(app.Everyone).For(app.Everyone)
	errs := []error{err} // what cannot be said about one incident or recommendation keeps back nothing else
	issue := func(ctx context.Context, now domain.Instant) (string, error) { return c.IssueCommands(ctx, "", now) }
	for _, due := range []func(context.Context, domain.Instant) (string, error){issue, c.MeasureOutcomes} {
		did, err := due(ctx, app.Now())
		if did != "" {
			outcome += ", " + did
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if len(a.managers) == 0 || ctx.Err() != nil {
		return outcome, err
	}
	now, unread := a.share(app.Everyone).For(app.Everyone).Alerts(ctx, "", app.AlertsQuery{All: true, Since: tick - domain.Day})
	if unread != nil {
		return outcome, errors.Join(err, unread)
	}
	for _, m := range a.managers {
		if err := m.tell(ctx, now.Incidents, tick); err != nil && ctx.Err() == nil {
			a.log.Warn("an Alertmanager could not be told of incidents; it hears of them at the next evaluation", "error", err)
		}
	}
	return outcome, err
}

// adviceJob evaluates the rules on a schedule. A tick that no instance did in time is skipped: the next one looks at the
// same windows.
func adviceJob(at string, a *adviser) (*job, error) {
	times, err := config.ParseSchedule(at)
	return &job{name: "advice", times: times, missed: time.Duration(app.Tick), input: minuteOf, do: a.evaluate}, err
}

// alone runs work of a log that no other instance shares.
func alone(ctx context.Context, _, _ string, do func(context.Context) (string, error)) (bool, error) {
	_, err := do(ctx)
	return true, err
}

// advise evaluates the rules of an embedded log until ctx ends.
func (s *service) advise(ctx context.Context, managers []config.Alertmanager, m *workMetrics) error {
	a, err := newAdviser(s.conn, managers, s.log)
	if err != nil {
		return err
	}
	j, err := adviceJob(adviceSchedule, a)
	if err != nil {
		return err
	}
	(&scheduler{once: alone, now: time.Now, metrics: m, log: s.log}).run(ctx, []*job{j})
	return nil
}

// incidentTypes are the types of the events about incidents that rules make.
var incidentTypes = []domain.Type{domain.TypeIncidentOpened, domain.TypeIncidentChanged, domain.TypeIncidentResolved}

// audience says which incidents a receiver hears of.
type audience struct {
	workspaces []string // empty: all
	least      domain.Severity
}

func newAudience(workspaces []string, severity string) audience {
	return audience{workspaces, domain.Severity(cmp.Or(severity, string(domain.SeverityInfo)))}
}

func (a *audience) of(workspace string) bool {
	return len(a.workspaces) == 0 || slices.Contains(a.workspaces, workspace)
}

func (a *audience) hears(x *figures.IncidentEntry) bool {
	severities := domain.Severities()
	return a.of(x.Workspace) && slices.Index(severities, x.Case.Severity) >= slices.Index(severities, a.least)
}

// rowsPause is how long an event about an incident waits for rows that do not have it yet.
const rowsPause = 200 * time.Millisecond

// news reports whether an audience is told of an event about an incident, judged by the rows of now: silences keep events
// back, and a change is told if it is a higher severity or a return.
func news(ctx context.Context, h *app.Conn, rec *domain.Record, env *domain.Envelope, to *audience) (told bool, err error) {
	incident, at := "", domain.Instant(0)
	switch ev := env.Event.(type) {
	case *domain.IncidentOpened:
		incident, at = ev.Incident, ev.At
	case *domain.IncidentChanged:
		incident, at = ev.Incident, ev.At
	case *domain.IncidentResolved:
		incident, at = ev.Incident, ev.At
	default:
		return true, nil
	}
	err = h.View(ctx, func(v projections.View) error {
		if v.Position()[domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}] <= rec.Offset {
			return notYet(rowsPause)
		}
		x, err := figures.Incident(v, env.Workspace, incident, app.Now())
		if err != nil || x == nil || x.Silence != nil {
			return err
		}
		event := slices.IndexFunc(x.Events, func(e figures.IncidentEvent) bool { return e.At == at && e.Type == env.Event.Type() })
		if event >= 0 {
			told, err = x.Told(v, event, to.least)
		}
		return err
	})
	return told, err
}
