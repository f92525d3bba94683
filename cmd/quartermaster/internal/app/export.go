package app

import (
	"context"
	"io"
	"slices"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// Export selects what of the log is exported. Empty fields do not filter.
type Export struct {
	Topics     []string
	Types      []domain.Type
	Workspaces []string
	Clusters   []string
	From, To   domain.Instant // times of events; To 0: no end
	Until      string         // position to stop at; "": the end of the log
}

// partitions returns the partitions that may hold selected records.
func (x *Export) partitions() ([]domain.TopicPartition, error) {
	tps, err := partitionsOf(x.Topics)
	if err != nil {
		return nil, err
	}
	known := make([]string, 0, len(domain.Types()))
	for _, t := range domain.Types() {
		known = append(known, string(t))
	}
	for _, t := range x.Types {
		if !slices.Contains(known, string(t)) {
			return nil, invalid("type", "%q is not a type of event: %s", t, domain.Suggest(string(t), known))
		}
	}
	if len(x.Types) > 0 { // a type is in one topic
		tps = slices.DeleteFunc(tps, func(tp domain.TopicPartition) bool {
			return !slices.ContainsFunc(x.Types, func(t domain.Type) bool { return domain.TopicOf(t) == tp.Topic })
		})
	}
	return tps, nil
}

// all reports whether every record of the partitions is selected, including those that cannot be
// decoded.
func (x *Export) all() bool {
	return len(x.Types)+len(x.Workspaces)+len(x.Clusters) == 0 && x.From == 0 && x.To == 0
}

func (x *Export) holds(env *domain.Envelope) bool {
	return (len(x.Types) == 0 || slices.Contains(x.Types, env.Event.Type())) &&
		(len(x.Workspaces) == 0 || slices.Contains(x.Workspaces, env.Workspace)) &&
		(len(x.Clusters) == 0 || slices.Contains(x.Clusters, env.Cluster)) &&
		env.Time >= x.From && (x.To == 0 || env.Time < x.To)
}

// Export writes records of the log as JSON lines, partition by partition in order. It streams,
// and holds little in memory.
func (c *Caller) Export(ctx context.Context, x Export, out io.Writer) error {
	tps, err := x.partitions()
	if err != nil {
		return err
	}
	h, err := c.log(ctx)
	if err != nil {
		return err
	}
	end, err := h.End(ctx)
	if err != nil {
		return err
	}
	if x.Until != "" {
		until, err := domain.ParsePosition(x.Until)
		if err != nil {
			return &InvalidError{Field: "until", Err: err}
		}
		if !end.Covers(until) {
			return invalid("until", "%s is beyond the end of the log, %s", until, end)
		}
		end = until
	}
	var total, done int64
	for _, tp := range tps {
		total += end[tp]
	}
	b := h.app.track(Work{Name: "export", Total: total, Unit: "events"})
	defer b.Stop()
	var (
		dec  wire.Decoder
		line []byte
	)
	for _, tp := range tps {
		if end[tp] == 0 {
			continue
		}
		if err := h.Log.Read(ctx, tp, 0, end[tp], func(recs []domain.Record) error {
			for i := range recs {
				if recs[i].IsMarker() {
					continue
				}
				s, ok := x.show(&dec, &recs[i])
				if !ok {
					continue
				}
				var err error
				if line, err = s.AppendLine(line[:0]); err != nil {
					return err
				}
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
			done += recs[len(recs)-1].Next() - recs[0].Offset
			b.Set(done)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// show returns the exported form of a record, and whether it is selected.
func (x *Export) show(dec *wire.Decoder, rec *domain.Record) (Record, bool) {
	if x.all() {
		return shown(dec, rec), true
	}
	var env domain.Envelope
	if err := dec.Decode(rec, &env); err != nil || !x.holds(&env) {
		return Record{}, false
	}
	shown := Record{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Appended: rec.Time, Key: string(rec.Key)}
	return shown.of(rec, &env), true
}
