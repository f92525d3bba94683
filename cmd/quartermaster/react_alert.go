package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// alertTypes are the types that a person may have to hear of; see [alert].
var alertTypes = []domain.Type{
	domain.TypeGPUFaultObserved, domain.TypeNodeCordoned, domain.TypeCollectorSilent, domain.TypeSpoolDropped,
	domain.TypeCommitmentEnded, domain.TypeAccessDenied, domain.TypeOutcomeRecorded,
	domain.TypeRecommendationMade, domain.TypeClosePrepared,
}

// alert says why a person must hear of an event, "" when nobody needs to: paid
// capacity is gone, evidence is gone for good, somebody tried what he may not, or
// a decision waits for a person. What plans expect (spot taken back), what a
// person just did himself and what a report shows in time are no alerts.
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
		return "a node's measurements stopped: its hours count as unobserved"
	case *domain.SpoolDropped:
		return "a reporter dropped measurements: they are lost"
	case *domain.CommitmentEnded:
		return "a commitment ended: what it covered is billed on demand"
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
	}
	return ""
}

// alertReaction logs alerts, each by one instance, at level Warn.
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

// replanTypes are the decisions that change what is to be bought. Prices and
// demand change all the time: those are for the daily plan.
var replanTypes = []domain.Type{
	domain.TypeCommitmentPurchased, domain.TypeCommitmentRenewed, domain.TypeCommitmentEnded,
	domain.TypeOnDemandQuotaSet, domain.TypePolicySet, domain.TypeCertificationHeld,
}

// replans reports whether an event of replanTypes bears on plans: the policies
// of accounting do not.
func replans(ev domain.Event) bool {
	p, ok := ev.(*domain.PolicySet)
	return !ok || !slices.Contains([]domain.PolicyKind{domain.PolicyCommitmentDiscount, domain.PolicyIdleCost, domain.PolicyActivity}, p.Kind)
}

// replanJob names the runs that decisions ask for; their input is an hour.
const replanJob = "replan"

// replanner plans again after decisions: once for all that were appended in an
// hour, when the hour is over, so that the plan knows all of them.
type replanner struct {
	home *home
	once onceFunc
	now  func() domain.Instant
	wait func(context.Context, time.Duration) error

	failed sync.Map // inputs whose run failed here last
}

func (r *replanner) reaction() reaction {
	return reaction{name: "replan", group: "quartermaster.replan", types: replanTypes, do: r.do}
}

func (r *replanner) do(ctx context.Context, rec *domain.Record, env *domain.Envelope) error {
	if !replans(env.Event) {
		return nil
	}
	// A record's time is its producer's clock: it may run ahead.
	now := r.now()
	hour := min(rec.Time, now).HourStart()
	if err := r.wait(ctx, time.Duration(hour+domain.Hour-now)); err != nil {
		return err
	}
	input := hour.Time().Format("2006-01-02T15Z")
	ran, err := r.once(ctx, replanJob, input, func(ctx context.Context) (string, error) {
		if err := r.folded(ctx); err != nil {
			return "", err
		}
		return r.home.planOnce(ctx, "quartermaster/react/plan", hour, r.now())
	})
	if err != nil {
		r.failed.Store(input, true)
		return fmt.Errorf("plan for the decisions of %s: %w", input, err)
	}
	if _, failed := r.failed.Load(input); failed && !ran {
		return fmt.Errorf("plan for the decisions of %s: it failed, and is not to be tried again yet", input)
	}
	r.failed.Delete(input)
	return nil
}

// foldedEvery is how often a replanner looks whether the rows know enough.
const foldedEvery = time.Second

// folded waits until the rows hold every decision that is in the log now.
func (r *replanner) folded(ctx context.Context) error {
	end, err := r.home.end(ctx)
	if err != nil {
		return err
	}
	for {
		behind := false
		if err := r.home.view(ctx, func(v projections.View) error {
			at := v.Position()
			for _, t := range (&reaction{types: replanTypes}).topics() {
				for p := range t.Partitions() {
					tp := domain.TopicPartition{Topic: t, Partition: p}
					behind = behind || at[tp] < end[tp]
				}
			}
			return nil
		}); err != nil || !behind {
			return err
		}
		if err := r.wait(ctx, foldedEvery); err != nil {
			return err
		}
	}
}

// sleep waits, or returns why ctx ended.
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
