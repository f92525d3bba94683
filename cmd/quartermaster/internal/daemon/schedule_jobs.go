package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// minuteOf is the input of scheduled work: the time at which it was due, to the minute, which is
// the resolution of cron.
func minuteOf(tick time.Time) string { return tick.Format("2006-01-02T15:04Z") }

// jobs returns what the configuration schedules.
func jobs(h *app.Conn, cfg *config.Config, log *slog.Logger) ([]*job, error) {
	var jobs []*job
	var errs []error
	add := func(name, at string, missed time.Duration, input func(time.Time) string, do func(context.Context, time.Time) (string, error)) {
		if at == "" {
			return
		}
		times, err := config.ParseSchedule(at)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", name, err))
			return
		}
		jobs = append(jobs, &job{name: name, times: times, missed: missed, input: input, do: do})
	}
	s := &cfg.Schedules
	add("plan", s.Plan, missedDay, minuteOf, func(ctx context.Context, tick time.Time) (string, error) {
		return h.PlanOnce(ctx, app.PlanSource, domain.InstantOf(tick), app.Now())
	})
	add("snapshot", s.Snapshot, missedDay, minuteOf, func(ctx context.Context, _ time.Time) (string, error) {
		return h.Snapshot(ctx)
	})
	// The time is part of the input, so that a schedule of five days reminds five times.
	remind := func(tick time.Time) string {
		return app.MonthBefore(tick).From.Time().Format("2006-01") + " at " + minuteOf(tick)
	}
	add("close_reminder", s.CloseReminder, missedMonth, remind, func(ctx context.Context, tick time.Time) (string, error) {
		return h.Remind(ctx, tick, func(entity string, period domain.Interval) error {
			log.Warn("the month before is not closed", "alert", reminderType, "entity", entity, "period", period.From.Time().Format("2006-01"))
			return nil
		})
	})
	hooks, err := newWebhooks(cfg.Webhooks)
	errs = append(errs, err)
	for _, w := range hooks {
		if !w.reminded() {
			continue
		}
		// Each webhook is its own job, so that a failing one does not repeat the others.
		add("close_reminder webhook "+w.name, s.CloseReminder, missedMonth, remind, func(ctx context.Context, tick time.Time) (string, error) {
			return h.Remind(ctx, tick, func(entity string, period domain.Interval) error {
				r, err := newReminder(entity, period, tick)
				if err != nil {
					return err
				}
				return w.post(ctx, r.source, r.id, r.body)
			})
		})
	}
	var key ed25519.PrivateKey
	if s.CheckpointKeyFile != "" {
		key, err = keyfile.LoadFor(s.CheckpointKeyFile, configfile.Exposed)
		errs = append(errs, err)
	}
	add("archive", s.Archive, missedDay, minuteOf, func(ctx context.Context, _ time.Time) (string, error) {
		done, err := h.Seal(ctx, false, key)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d segments with %d records were archived, %d records wait", done.Segments, done.Records, done.Waiting), nil
	})
	add("retention", s.Retention, missedDay, minuteOf, func(ctx context.Context, _ time.Time) (string, error) {
		done, err := h.RemoveAll(ctx, "schedule retention", app.Now())
		return done.String(), err
	})
	if s.Checkpoint != "" {
		add("checkpoint", s.Checkpoint, missedDay, minuteOf, func(ctx context.Context, tick time.Time) (string, error) {
			return h.Checkpoint(ctx, key, domain.InstantOf(tick), app.Now())
		})
	}
	if s.Advice != "" {
		a, err := newAdviser(h, cfg.Alertmanagers, log)
		errs = append(errs, err)
		j, err := adviceJob(s.Advice, a)
		if err != nil {
			err = fmt.Errorf("schedule advice: %w", err)
		}
		errs = append(errs, err)
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(errs...)
}

// reminder is sent to webhooks for books that are not closed: a CloudEvents JSON event that is in
// no log.
type reminder struct {
	source, id string
	body       []byte
}

func newReminder(entity string, period domain.Interval, tick time.Time) (*reminder, error) {
	r := &reminder{source: "quartermaster/schedule/close_reminder", id: entity + "/" + period.From.Time().Format("2006-01") + "/" + minuteOf(tick)}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		SpecVersion     string         `json:"specversion"`
		ID              string         `json:"id"`
		Source          string         `json:"source"`
		Type            string         `json:"type"`
		Time            domain.Instant `json:"time"`
		Subject         string         `json:"subject"`
		DataContentType string         `json:"datacontenttype"`
		Data            any            `json:"data"`
	}{"1.0", r.id, r.source, reminderType, domain.InstantOf(tick), entity, "application/json", struct {
		Entity string          `json:"entity"`
		Period domain.Interval `json:"period"`
	}{entity, period}})
	r.body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return r, err
}
