package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
)

// noticeTypes are the types that webhooks are told of unless they name others. Events of single machines are not among
// them: a rule folds thousands of them into one incident.
var noticeTypes = append([]domain.Type{
	domain.TypeCommitmentEnded, domain.TypeAccessDenied, domain.TypeOutcomeRecorded,
	domain.TypeRecommendationMade, domain.TypeClosePrepared, domain.TypeStreamConflictObserved,
}, incidentTypes...)

// alertTypes are the types that a person may need to know about; see [alert].
var alertTypes = append([]domain.Type{
	domain.TypeGPUFaultObserved, domain.TypeNodeCordoned, domain.TypeCollectorSilent, domain.TypeSpoolDropped,
}, noticeTypes...)

// alert returns why a person must know about an event, or "". Reasons are: paid capacity is gone,
// evidence is permanently lost, somebody tried what they may not do, or a decision waits for a
// person. Not alerts are what plans expect (spot reclaimed), what a person just did, and what a
// report shows in time.
func alert(ev domain.Event) string {
	switch ev := ev.(type) {
	case *domain.GPUFaultObserved:
		if ev.Fatal {
			return "a device cannot work until it is repaired"
		}
	case *domain.NodeCordoned:
		if ev.Repair {
			return "a node failed and takes no work"
		}
	case *domain.CollectorSilent:
		if ev.Silent.To == 0 { // its end needs no alert
			return "a node's measurements stopped: its hours count as unobserved"
		}
	case *domain.SpoolDropped:
		return "a reporter dropped measurements: they are lost"
	case *domain.CommitmentEnded:
		return "a commitment ended: its usage is now billed on demand"
	case *domain.StreamConflictObserved:
		return "two records claim one place in a stream: one of them may be forged"
	case *domain.AccessDenied:
		return "an attempt was refused"
	case *domain.OutcomeRecorded:
		if ev.Outcome != "succeeded" {
			return "what was approved was not carried out in full"
		}
	case *domain.RecommendationMade:
		return "a recommendation waits for approval"
	case *domain.ClosePrepared:
		return "a close waits for a second person's approval"
	case *domain.IncidentOpened:
		return "an incident was opened: " + ev.Summary
	case *domain.IncidentChanged:
		if ev.Reopened {
			return "an incident came back: " + ev.Summary
		}
	}
	return ""
}

// alertReaction logs alerts at level Warn, each on one instance.
func alertReaction(log *slog.Logger) reaction {
	return reaction{
		name: "alerts", group: "quartermaster.alerts", types: alertTypes,
		do: func(_ context.Context, rec *domain.Record, env *domain.Envelope) error {
			why := alert(env.Event)
			if why == "" {
				return nil
			}
			body, err := wire.CloudEvent(env)
			if err != nil {
				return err
			}
			log.Warn(why, "alert", string(env.Event.Type()), "subject", env.Subject, "workspace", env.Workspace, "cluster", env.Cluster,
				"time", env.Time.String(), "source", env.Source, "at", placeOfRecord(rec), "event", string(body))
			return nil
		},
	}
}

// replanTypes are the decisions that change what to buy. Prices and demand change all the time,
// and are left to the daily plan.
var replanTypes = []domain.Type{
	domain.TypeCommitmentPurchased, domain.TypeCommitmentRenewed, domain.TypeCommitmentEnded,
	domain.TypeOnDemandQuotaSet, domain.TypePolicySet, domain.TypeCertificationHeld,
}

// replans reports whether an event of replanTypes affects plans: accounting policies, thresholds of advice and of approvals do not.
func replans(ev domain.Event) bool {
	p, ok := ev.(*domain.PolicySet)
	return !ok || !slices.Contains([]domain.PolicyKind{
		domain.PolicyCommitmentDiscount, domain.PolicyIdleCost, domain.PolicyActivity, domain.PolicyAdviceThreshold,
		domain.PolicySecondApproval,
	}, p.Kind)
}

// replanJob names the runs that decisions cause; their input is an hour.
const replanJob = "replan"

// replanSource is the source of the plans that decisions cause; the incarnation is the hour.
const replanSource = "quartermaster/react/plan"

// replanner plans again after decisions: once for all decisions of an hour, when the hour is
// over, so that the plan includes all of them.
//
// A decision counts as handled only when a plan of this kind has a later position in the log. A
// decision that arrives late, or from a producer with a slow clock, may miss the run of its hour.
// The run of the hour in which that is noticed then handles it.
type replanner struct {
	conn *app.Conn
	once onceFunc
	now  func() domain.Instant
	wait func(context.Context, time.Duration) error

	failed sync.Map // inputs whose last run failed here

	mu      sync.Mutex
	planned []domain.Position // positions of the plans seen so far; none covers another
}

func (r *replanner) reaction() reaction {
	return reaction{name: "replan", group: "quartermaster.replan", types: replanTypes, do: r.do}
}

func (r *replanner) do(ctx context.Context, rec *domain.Record, env *domain.Envelope) error {
	if !replans(env.Event) {
		return nil
	}
	// A record's time is its producer's clock, which may be ahead.
	now := r.now()
	hour := min(rec.Time, now).HourStart()
	if over := hour + domain.Hour; over > now {
		return notYet(time.Duration(over - now))
	}
	over := now.HourStart() // end of the last hour that is over
	if r.knows(rec) {
		return nil
	}
	if hour < over-domain.Hour {
		if known, err := r.look(ctx, rec); err != nil || known {
			return err
		}
	}
	hour = over - domain.Hour
	input := hour.Time().Format("2006-01-02T15Z")
	_, err := r.once(ctx, replanJob, input, func(ctx context.Context) (string, error) {
		end, err := r.folded(ctx)
		if err != nil {
			return "", err
		}
		outcome, err := r.conn.PlanOnce(ctx, replanSource, hour, r.now())
		if err == nil && outcome != app.PlannedBefore {
			r.reached(end)
		}
		return outcome, err
	})
	if err != nil {
		r.failed.Store(input, true)
		return fmt.Errorf("plan for the decisions of %s: %w", input, err)
	}
	known := r.knows(rec)
	if !known { // another instance has done it, or is doing it
		if known, err = r.look(ctx, rec); err != nil {
			return err
		}
	}
	if known {
		r.failed.Delete(input)
		return nil
	}
	if _, failed := r.failed.Load(input); failed {
		return fmt.Errorf("plan for the decisions of %s: it failed, and it is too early to retry", input)
	}
	return notYet(time.Duration(over + domain.Hour - r.now()))
}

// knows reports whether a plan seen so far has a later position than a record.
func (r *replanner) knows(rec *domain.Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	tp := domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
	return slices.ContainsFunc(r.planned, func(p domain.Position) bool { return p[tp] > rec.Offset })
}

// reached records the position of a plan.
func (r *replanner) reached(at domain.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.planned, func(p domain.Position) bool { return p.Covers(at) }) {
		r.planned = append(slices.DeleteFunc(r.planned, at.Covers), at)
	}
}

// look searches the recorded plans, including scheduled ones, for one that covers a record.
func (r *replanner) look(ctx context.Context, rec *domain.Record) (known bool, err error) {
	err = r.conn.View(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TablePlans, Scope: app.UsualPlan().Workspace}, func(k projections.Key, row projections.Row) error {
			for _, version := range row.(*projections.History).Versions {
				if s := version.Order.Source; s != replanSource && s != app.PlanSource {
					continue // a person's plan, which may ask something else
				}
				at, err := domain.ParsePosition(version.Event.(*domain.PlanComputed).Position)
				if err != nil {
					return fmt.Errorf("position of plan %s: %w", k.ID, err)
				}
				r.reached(at)
			}
			return nil
		})
	})
	if err != nil {
		return false, fmt.Errorf("look for a plan that covers %s: %w", placeOfRecord(rec), err)
	}
	return r.knows(rec), nil
}

// foldedEvery is how often a replanner checks whether the rows are far enough.
const foldedEvery = time.Second

// folded waits until the rows cover every decision that is in the log now, and returns the log's
// end.
func (r *replanner) folded(ctx context.Context) (end domain.Position, err error) {
	if end, err = r.conn.End(ctx); err != nil {
		return nil, err
	}
	for {
		behind := false
		if err := r.conn.View(ctx, func(v projections.View) error {
			at := v.Position()
			for _, t := range (&reaction{types: replanTypes}).topics() {
				for p := range t.Partitions() {
					tp := domain.TopicPartition{Topic: t, Partition: p}
					behind = behind || at[tp] < end[tp]
				}
			}
			return nil
		}); err != nil || !behind {
			return end, err
		}
		if err := r.wait(ctx, foldedEvery); err != nil {
			return nil, err
		}
	}
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
