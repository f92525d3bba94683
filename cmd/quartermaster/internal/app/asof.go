package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// goBack replaces the rows of an open data directory by those at a point in the past.
func (h *Conn) goBack(ctx context.Context, asOf string) error {
	end, err := h.End(ctx)
	if err != nil {
		return err
	}
	to, file, err := h.pointInLog(ctx, asOf)
	if err != nil {
		return err
	}
	if !end.Covers(to) {
		return invalid("as-of", "%s is beyond the end of the log, %s: it is of another log, or this one has lost events", to, end)
	}
	m, from, err := h.rowsAt(ctx, to, file)
	if err != nil {
		return err
	}
	h.store, h.asOf = m, to
	base := "the beginning of the log"
	if from != nil {
		base = filepath.Base(from.Path)
		to = sub(to, from.Position)
	}
	h.app.tell("as of %s: %s and %s events since", h.app.For(Everyone).ShortPosition(h.asOf.String()), base, comma(int(to.Records())))
	return nil
}

// sub returns the difference of two positions, as a position.
func sub(a, b domain.Position) domain.Position {
	out := a.Clone()
	for tp, n := range b {
		out[tp] -= n
	}
	return out
}

// shownPath returns how a snapshot is named to whoever asks: over the API without the directories of the server.
func (h *Conn) shownPath(path string) string {
	if h.borrowed {
		return filepath.Base(path)
	}
	return path
}

// pointInLog parses the argument of --as-of: a position, a snapshot or a time. file is the
// snapshot, if one was named.
func (h *Conn) pointInLog(ctx context.Context, asOf string) (to domain.Position, file *snapshotfile.Info, err error) {
	switch {
	case strings.HasSuffix(asOf, snapshotfile.Suffix):
		if h.borrowed && filepath.Base(asOf) != asOf {
			return nil, nil, invalid("as-of", "%q: want the name of a snapshot, without a directory", asOf)
		}
		in := snapshotfile.InfoOf(h.snapshotPath(asOf))
		shown := h.shownPath(in.Path)
		if errors.Is(in.Err, os.ErrNotExist) {
			return nil, nil, &NotFoundError{What: "snapshot", Name: asOf, Err: fmt.Errorf("there is no snapshot %s: \"quartermaster snapshot list\" shows the existing ones", asOf)}
		}
		if in.Err != nil && h.borrowed {
			return nil, nil, &UnavailableError{Err: fmt.Errorf("snapshot %s cannot be read: name a position or a time", shown)}
		}
		if in.Err != nil {
			return nil, nil, fmt.Errorf("%s: %w", in.Path, in.Err)
		}
		if in.Log != h.ID {
			return nil, nil, fmt.Errorf("%s: %w: %q, this is %q", shown, projections.ErrSnapshotLog, in.Log, h.ID)
		}
		if in.Method != projections.Method {
			h.app.tell("%s has rows of %s; the answer is computed by %s from the log at the same position", shown, in.Method, projections.Method)
			return in.Position, nil, nil
		}
		return in.Position, &in, nil
	case strings.HasPrefix(asOf, "@"):
		whole, err := h.app.positionOf(asOf)
		if err != nil {
			return nil, nil, err
		}
		to, err = domain.ParsePosition(whole)
		return to, nil, err
	case asOf == "0" || strings.ContainsAny(asOf, "=/"):
		to, err = domain.ParsePosition(asOf)
	default:
		var t domain.Instant
		if t, err = domain.ParseTime(asOf); err != nil {
			break
		}
		if t > Now() {
			return nil, nil, &helped{invalid("as-of", "%s is in the future, and events may still be appended before it", t), RemedyWholeLog}
		}
		if to, err = h.Log.Before(ctx, domain.AllPartitions(), t); err != nil {
			return nil, nil, err
		}
		return to, nil, nil
	}
	if err != nil {
		return nil, nil, invalid("as-of", "%q is not a point in the log: want a position such as qm.fleet/0=12,qm.telemetry/3=4711 "+
			"(every answer has its own under \"position\"), the name of a snapshot, or a time such as 2026-05-01T00:00:00Z: %w", asOf, err)
	}
	return to, nil, nil
}

// rowsAt returns the rows at a position of the log, and the snapshot that the fold started from;
// nil if it started from the beginning of the log. A snapshot that was asked for is tried first.
func (h *Conn) rowsAt(ctx context.Context, to domain.Position, first *snapshotfile.Info) (*projections.Memory, *snapshotfile.Info, error) {
	// The event that names a position may be forged. Nobody waits for events that were never appended.
	if end, err := h.End(ctx); err != nil || !end.Covers(to) {
		return nil, nil, cmp.Or(err, fmt.Errorf("position %s is beyond the end of the log, %s", to, end))
	}
	near, err := snapshotfile.Nearest(h.Snapshots(), h.ID, to)
	if err != nil {
		h.app.tell("snapshots cannot be read, so the log is folded from its beginning: %v", err)
	}
	if first != nil {
		near = slices.Insert(near, 0, *first)
	}
	m, s := h.memory(false)
	var from *snapshotfile.Info
	for i := range near {
		if err = readSnapshot(m, near[i].Path, h.ID); err == nil {
			from = &near[i]
			break
		}
		m, s = h.memory(false)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case h.borrowed:
			h.app.tell("snapshot %s was ignored", h.shownPath(near[i].Path))
		default:
			h.app.tell("%s was ignored: %v", near[i].Path, err)
		}
	}
	total, log := to.Records(), memoryLog{h.Log, ""}
	if from != nil {
		total -= from.Position.Records()
		log.snapshot = from.Path
	}
	r := NewRunner(sealingLog{log, s}, m)
	bar := h.app.track(Work{Name: "fold", Total: total, Unit: "events"})
	defer bar.Stop()
	defer follow(bar, func() int64 { return r.Progress().Records })()
	if err := r.CatchUp(ctx, to); err != nil {
		return nil, nil, fmt.Errorf("fold the log up to %s: %w", to, err)
	}
	return m, from, nil
}

// readSnapshot fills an empty store from a file.
func readSnapshot(m *projections.Memory, path, log string) error {
	f, size, err := snapshotfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = m.ReadSnapshot(f, size, log)
	return err
}

// now returns the default time of a report. For the present it is the current time. As of a point
// in the past it is the append time of the last record before that point, so that the same
// question always has the same answer.
func (h *Conn) now(ctx context.Context) (domain.Instant, error) {
	if h.asOf == nil {
		return h.app.clock(), nil
	}
	return h.lastAppended(ctx, h.asOf)
}

// lastAppended returns when the last record before a position was appended: the latest time of the
// last records of the partitions.
func (h *Conn) lastAppended(ctx context.Context, at domain.Position) (last domain.Instant, err error) {
	for tp, next := range at {
		if next == 0 {
			continue
		}
		if err := h.Log.Read(ctx, tp, next-1, next, func(recs []domain.Record) error {
			for i := range recs {
				last = max(last, recs[i].Time)
			}
			return nil
		}); err != nil {
			return 0, fmt.Errorf("read when the last record was appended: %w", err)
		}
	}
	return last, nil
}

// statedIn returns what is stated about bills in a position.
func (h *Conn) statedIn(ctx context.Context, at domain.Position) (costs.Stated, error) {
	last := map[int]domain.Precedence{}
	var dec wire.Decoder
	var env domain.Envelope
	for tp, next := range at {
		if tp.Topic != domain.TopicBilling || next == 0 {
			continue
		}
		err := h.Log.Read(ctx, tp, next-1, next, func(recs []domain.Record) error {
			for i := range recs {
				end := domain.Precedence{Appended: recs[i].Time}
				if dec.Decode(&recs[i], &env) == nil { // what does not decode is of no stream
					end.Source, end.Incarnation, end.Sequence = env.Source, env.Incarnation, env.Sequence
				}
				last[tp.Partition] = end
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read which bills are in the position: %w", err)
		}
	}
	return costs.StatedIn(last), nil
}
