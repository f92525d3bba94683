package app

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/usage"
)

// keptUsage keeps computed months of usage in memory and, if there is a directory for parts, in
// files. It implements [usage.Kept].
type keptUsage struct {
	app       *App
	directory *parts.Directory // nil: none
	// position is that of the rows. Months of past positions are read, but written to memory alone,
	// so that the last version in the directory is that of the present.
	position domain.Position
	past     bool

	writer *parts.Writer // of the directory, if it is open for writing already
	last   *usage.Month  // that was returned or kept
	failed error         // to keep a month with writer
}

// keptUsage returns the kept months of usage for rows at a position.
func (h *Conn) keptUsage(at domain.Position) *keptUsage {
	k := &keptUsage{app: h.app, position: at, past: h.asOf != nil || h.Generation != ""}
	if h.app.hasParts() {
		d := h.Parts()
		k.directory = &d
	}
	return k
}

// hasParts reports whether there is a directory for parts.
func (s *App) hasParts() bool { return s.Dir != "" || s.Config != nil && s.Config.Parts != "" }

func usageKey(in usage.Inputs) string { return "month of usage\n" + in.Text }

// Month implements [usage.Kept].
func (k *keptUsage) Month(in usage.Inputs) *usage.Month {
	k.last = k.find(in)
	return k.last
}

func (k *keptUsage) find(in usage.Inputs) *usage.Month {
	// Who makes parts wants the month in the directory.
	if m, ok := k.app.cache().get(usageKey(in)); ok && k.writer == nil {
		return m.(*usage.Month)
	}
	if k.directory == nil {
		return nil
	}
	m, err := k.directory.Usage(in)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			k.app.tell("kept usage was ignored and is computed again: %v", err)
		}
		return nil
	}
	k.app.cache().put(usageKey(in), m)
	return m
}

// Keep implements [usage.Kept]. An answer does not depend on whether a month can be kept.
func (k *keptUsage) Keep(m *usage.Month) {
	k.app.cache().put(usageKey(m.Inputs), m)
	k.last = m
	if k.writer != nil {
		k.failed = k.writer.PutUsage(m, k.position)
		return
	}
	if k.directory == nil || k.past {
		return
	}
	err := k.write(m)
	readOnly := errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
	if err != nil && !readOnly && !errors.Is(err, parts.ErrLocked) {
		k.app.tell("the answer was not kept: %v", err)
	}
}

// keptHours keeps the hours of months in memory. It implements [usage.KeptHours].
type keptHours struct{ app *App }

func hoursKey(in usage.Inputs) string { return "hours of usage\n" + in.Text }

// Hours implements [usage.KeptHours].
func (k keptHours) Hours(in usage.Inputs) *usage.Hours {
	h, _ := k.app.cache().get(hoursKey(in))
	of, _ := h.(*usage.Hours)
	return of
}

// KeepHours implements [usage.KeptHours].
func (k keptHours) KeepHours(h *usage.Hours) { k.app.cache().put(hoursKey(h.Inputs), h) }

func (k *keptUsage) write(m *usage.Month) (err error) {
	w, err := parts.NewWriter(*k.directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return w.PutUsage(m, k.position)
}

// sealed returns the first hour that is not sealed at a position. For a period that begins in a month
// that cannot be sealed yet it returns 0, and does not read the log.
func (h *Conn) sealed(ctx context.Context, at domain.Position, period domain.Interval) (int64, error) {
	if projections.HourOf(projections.BillingMonth(period.From).To) > projections.SealedBefore(Now()) {
		return 0, nil
	}
	newest, err := h.lastAppended(ctx, at)
	return projections.SealedBefore(newest), err
}

// keepUsage keeps the usage of every month that has parts of telemetry, and returns their names.
func (h *Conn) keepUsage(ctx context.Context, v projections.View, w *parts.Writer, m *monthly) ([]string, error) {
	names, months := []string{}, map[int64]bool{}
	for _, p := range m.parts {
		if p.Partition.Topic == domain.TopicTelemetry {
			months[p.Month] = true
		}
	}
	bar := h.app.track(Work{Name: "usage", Total: int64(len(months)), Unit: "months", Slow: true})
	defer bar.Stop()
	kept := h.keptUsage(v.Position())
	kept.writer = w
	for i, first := range slices.Sorted(maps.Keys(months)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		month := projections.BillingMonth(domain.Instant(first) * domain.Hour)
		kept.last, kept.failed = nil, nil
		if _, err := usage.NewReportFrom(v, kept, m.before, month.From, month.To, usage.Filter{}); err != nil {
			return nil, err
		}
		if errors.Is(kept.failed, parts.ErrText) {
			h.app.tell("%v", kept.failed)
			continue
		}
		if kept.failed != nil {
			return nil, kept.failed
		}
		if h.DB != nil && kept.last != nil {
			if err := h.DB.PutUsage(ctx, kept.last, kept.position); err != nil {
				return nil, err
			}
		}
		names = append(names, projections.MonthName(first))
		bar.Set(int64(i + 1))
	}
	return names, nil
}
