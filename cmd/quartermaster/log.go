package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look at the log, export it, replay it",
	}
	cmd.AddCommand(a.logTailCommand(), a.logStatsCommand(), a.logExportCommand(), a.logReplayCommand())
	return cmd
}

// shownRecord is a record as tail and export write it.
type shownRecord struct {
	Topic     domain.Topic    `json:"topic"`
	Partition int             `json:"partition"`
	Offset    int64           `json:"offset"`
	Last      int64           `json:"last,omitempty"` // where error is about a run of offsets
	Appended  domain.Instant  `json:"appended"`
	Key       string          `json:"key"`
	Event     json.RawMessage `json:"event,omitempty"`
	Error     string          `json:"error,omitempty"` // why it cannot be decoded
	// Raw is the record's value where it cannot be decoded.
	Raw []byte `json:"raw,omitempty"`

	typ     domain.Type
	subject string
}

// appendLine appends the record as a line of JSON. It is what encoding/json writes of
// it, but for the event, which is JSON already and is not read again.
func (s *shownRecord) appendLine(b []byte) ([]byte, error) {
	text := func(v any) {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err == nil { // strings and bytes always are
			b = append(b, bytes.TrimSuffix(line.Bytes(), []byte("\n"))...)
		}
	}
	at, err := s.Appended.MarshalText()
	if err != nil {
		return nil, err
	}
	b = append(b, `{"topic":"`...)
	b = append(b, s.Topic...)
	b = append(b, `","partition":`...)
	b = strconv.AppendInt(b, int64(s.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, s.Offset, 10)
	if s.Last != 0 {
		b = append(b, `,"last":`...)
		b = strconv.AppendInt(b, s.Last, 10)
	}
	b = append(b, `,"appended":"`...)
	b = append(b, at...)
	b = append(b, `","key":`...)
	text(s.Key)
	if len(s.Event) > 0 {
		b = append(b, `,"event":`...)
		b = append(b, s.Event...)
	}
	if s.Error != "" {
		b = append(b, `,"error":`...)
		text(s.Error)
	}
	if len(s.Raw) > 0 {
		b = append(b, `,"raw":`...)
		text(s.Raw)
	}
	return append(b, "}\n"...), nil
}

const recordKeys = `JSON keys, one object per line: topic, partition, offset, appended, key and
event (a CloudEvents 1.0 JSON event: specversion, id, source, type, time,
subject, the extensions, data), or error and raw where a record cannot be
decoded; last is the last offset where the error is about all events of a batch.`

func show(dec *wire.Decoder, rec *domain.Record) shownRecord {
	s := shownRecord{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Appended: rec.Time, Key: string(rec.Key)}
	if rec.Span != nil {
		s.Last = rec.Span.Last
	}
	var env domain.Envelope
	if err := dec.Decode(rec, &env); err != nil {
		s.Error, s.Raw = err.Error(), slices.Clone(rec.Value)
		return s
	}
	return s.of(rec, &env)
}

// of adds the event that a record holds.
func (s shownRecord) of(rec *domain.Record, env *domain.Envelope) shownRecord {
	s.typ, s.subject = env.Event.Type(), env.Subject
	ev, err := wire.CloudEvent(env)
	if err != nil {
		s.Error, s.Raw = err.Error(), slices.Clone(rec.Value)
		return s
	}
	s.Event = ev
	return s
}

func (a *app) writeRecord(w io.Writer, s shownRecord) error {
	if a.json {
		line, err := s.appendLine(nil)
		if err == nil {
			_, err = w.Write(line)
		}
		return err
	}
	what := string(s.typ)
	if s.Error != "" {
		what = "cannot be decoded: " + s.Error
	}
	_, err := fmt.Fprintf(w, "%s  %s@%d  %s  %s  %s\n", s.Appended, domain.TopicPartition{Topic: s.Topic, Partition: s.Partition}, s.Offset, s.Key, what, s.subject)
	return err
}

func (a *app) logTailCommand() *cobra.Command {
	var (
		n      int
		follow bool
		topics []string
	)
	cmd := &cobra.Command{
		Use:     "tail",
		Short:   "Show the newest events",
		Long:    "Tail shows the newest events of the log, or of the topics given.\n\n" + recordKeys,
		Example: "  quartermaster log tail -n 5\n  quartermaster log tail --topic qm.hardware --follow --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tps, err := partitionsOf(topics)
			if err != nil {
				return err
			}
			if n < 0 || n > maxTail {
				return commandline.Usagef("--lines %d: want 0 to %d; \"quartermaster log export\" writes everything", n, maxTail)
			}
			if err := a.reading(); err != nil {
				return err
			}
			return a.withLog(cmd.Context(), func(h *home) error { return h.tail(cmd.Context(), tps, n, follow) })
		},
	}
	f := cmd.Flags()
	f.IntVarP(&n, "lines", "n", 10, "how many events")
	f.BoolVarP(&follow, "follow", "f", false, "go on with new events until interrupted")
	f.StringSliceVar(&topics, "topic", nil, "topics, for example qm.fleet (default all)")
	return cmd
}

// maxTail bounds what tail holds in memory.
const maxTail = 10_000

// withLog opens the log without folding it.
func (a *app) withLog(ctx context.Context, work func(*home) error) (err error) {
	h, err := a.openLog(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.log.Close(), h.closeBroker()) }()
	return work(h)
}

func partitionsOf(topics []string) ([]domain.TopicPartition, error) {
	all := domain.AllPartitions()
	if len(topics) == 0 {
		return all, nil
	}
	for _, t := range topics {
		if domain.Topic(t).Partitions() == 0 {
			names := make([]string, 0, 9)
			for _, s := range domain.TopicSpecs() {
				names = append(names, string(s.Topic))
			}
			return nil, &application.NotFoundError{What: "topic", Name: t, Err: fmt.Errorf("no topic %q; there are %v", t, names)}
		}
	}
	return slices.DeleteFunc(all, func(tp domain.TopicPartition) bool { return !slices.Contains(topics, string(tp.Topic)) }), nil
}

func (h *home) tail(ctx context.Context, tps []domain.TopicPartition, n int, follow bool) error {
	end, err := h.end(ctx)
	if err != nil {
		return err
	}
	var found []shownRecord
	var dec wire.Decoder
	for _, tp := range tps {
		if end[tp] == 0 {
			continue
		}
		if err := h.log.Read(ctx, tp, max(0, end[tp]-int64(n)), end[tp], func(recs []domain.Record) error {
			for i := range recs {
				if !recs[i].IsMarker() {
					found = append(found, show(&dec, &recs[i]))
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(found, func(a, b shownRecord) int { return cmp.Compare(a.Appended, b.Appended) })
	for _, s := range found[max(0, len(found)-n):] {
		if err := h.app.writeRecord(h.app.out, s); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, tp := range tps {
		wg.Go(func() {
			var dec wire.Decoder
			err := h.log.Follow(ctx, tp, end[tp], func(recs []domain.Record) error {
				mu.Lock()
				defer mu.Unlock()
				for i := range recs {
					if recs[i].IsMarker() {
						continue
					}
					if err := h.app.writeRecord(h.app.out, show(&dec, &recs[i])); err != nil {
						return err
					}
				}
				return nil
			})
			cancel(err)
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (a *app) logStatsCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count what the log and the rows hold, and what is missing",
		Long: `Stats shows, per partition, how many records there are, from how many streams,
and which events are known to be missing: sequences that a stream skipped.
"ahead" is how far the events of a source were dated after they were appended.

JSON keys: position, partitions (topic, partition, next, quarantined, streams,
events, missing, lost, last, ahead_ms), sources (source, incarnations, streams,
events, missing, lost, last, ahead_ms), rows (by table).`,
		Example: "  quartermaster log stats\n  quartermaster log stats --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				return h.view(cmd.Context(), func(v projections.View) error {
					s, err := registry.NewLogStats(v)
					if err != nil {
						return err
					}
					if a.json {
						return a.answerJSON(s)
					}
					a.showLogStats(s)
					return nil
				})
			})
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

// replayAnswer is what a replay answers.
type replayAnswer struct {
	Events          int64   `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	Folded          int64   `json:"folded"`
	Repeats         int64   `json:"repeats"`
	Quarantined     int64   `json:"quarantined"`
	Method          string  `json:"method"`
	Position        string  `json:"position"`
	ReplayDigest    string  `json:"replay_digest"`
	LiveDigest      string  `json:"live_digest,omitempty"`
	// LiveFrom says what the live rows were before the tail of the log was folded
	// into them: the position of a snapshot, or "0".
	LiveFrom string `json:"live_from,omitempty"`
	// LeftAside are snapshots that could not be used, and why.
	LeftAside []string `json:"left_aside,omitempty"`
	// SnapshotsChecked counts those that were compared with the log on the way, and
	// SnapshotsFailed has those that are not what it says.
	SnapshotsChecked *int             `json:"snapshots_checked,omitempty"`
	SnapshotsFailed  []*snapshotCheck `json:"snapshots_failed,omitempty"`

	Equal       *bool           `json:"equal,omitempty"`
	Differences []rowDifference `json:"differences,omitempty"`
}

type rowDifference struct {
	Row    string `json:"row"`
	Live   bool   `json:"live"`   // the live rows have it
	Replay bool   `json:"replay"` // the replayed rows have it
}

func (a *app) logReplayCommand() *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Fold the whole log from its beginning and print the digest of the rows",
		Long: `Replay folds every event from the beginning of the log into fresh rows, which
shows what the log says without trusting anything computed before. With
--verify it compares them with the live rows at the same position, and fails
when a single byte differs. The live rows are the newest snapshot, made when
events were first folded, and what was appended since. On the way every
snapshot is compared with what the log says at its position, and one that
differs or is damaged fails the command too; those of another version of the
folds are left to that version ("quartermaster snapshot verify" names them).

JSON keys: events, seconds, events_per_second, folded, repeats, quarantined,
method, position, replay_digest; with --verify live_digest, live_from (the
position of the snapshot, "0" without one, none with --config), left_aside
(snapshots that could not be used, and why), snapshots_checked (how many were
compared), snapshots_failed (those that are not what the log says: file, result,
position, digest, log_digest, why, differences, as "quartermaster snapshot
verify" has them), equal and, when they differ, differences (row, live, replay;
the first hundred).`,
		Example: "  quartermaster log replay\n  quartermaster log replay --verify --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.reading(); err != nil {
				return err
			}
			open := a.withLog
			if verify {
				open = a.read
			}
			var ans replayAnswer
			if err := open(cmd.Context(), func(h *home) (err error) {
				ans, err = h.replay(cmd.Context(), verify)
				return err
			}); err != nil {
				return err
			}
			if err := a.showReplay(ans); err != nil {
				return err
			}
			if ans.Equal != nil && !*ans.Equal {
				return &failed{why: "the live rows are not what the log says"}
			}
			if len(ans.SnapshotsFailed) > 0 {
				return &failed{why: "a snapshot is not what the log says"}
			}
			if len(ans.LeftAside) > 0 {
				return &failed{why: "a snapshot could not be used"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "compare with the live rows; exit 1 when they differ")
	return cmd
}

func (h *home) replay(ctx context.Context, verify bool) (replayAnswer, error) {
	var ans replayAnswer
	end, err := h.end(ctx)
	if err != nil {
		return ans, err
	}
	if !verify {
		_, err := h.replayTo(ctx, end, nil, &ans)
		return ans, err
	}
	infos, err := snapshotfile.Infos(h.snapshots())
	if err != nil {
		return ans, err
	}
	checks := h.readThrough(infos, end)
	passes := unchecked(checks)
	live, end, err := h.digest(ctx)
	if err != nil {
		return ans, err
	}
	// The first pass over the snapshots is on the way, if it does not go further.
	var way []*snapshotCheck
	if len(passes) > 0 && end.Covers(passes[0][len(passes[0])-1].info.Position) {
		way, passes = passes[0], passes[1:]
	}
	fresh, err := h.replayTo(ctx, end, way, &ans)
	if err != nil {
		return ans, err
	}
	liveDigest := fmt.Sprintf("%x", live)
	equal := liveDigest == ans.ReplayDigest
	ans.LiveDigest, ans.Equal = liveDigest, &equal
	if h.db == nil {
		ans.LiveFrom, ans.LeftAside = h.saved.String(), h.aside
	}
	if !equal {
		if ans.Differences, err = differences(ctx, h.view, fresh.View); err != nil {
			return ans, err
		}
	}
	if err := h.checkAgainstLog(ctx, passes); err != nil {
		return ans, err
	}
	checked := 0
	for _, c := range checks {
		if c.Result == snapshotEqual || c.Result == snapshotDifferent {
			checked++
		}
		if c.bad() {
			ans.SnapshotsFailed = append(ans.SnapshotsFailed, c)
		}
	}
	ans.SnapshotsChecked = &checked
	return ans, nil
}

// replayTo folds the log from its beginning to a position, comparing the
// snapshots on the way with it, and says how that went.
func (h *home) replayTo(ctx context.Context, end domain.Position, way []*snapshotCheck, ans *replayAnswer) (fresh *projections.Memory, err error) {
	b := h.app.bar("replay", end.Records(), "events")
	defer b.stop()
	took, start := time.Duration(0), time.Now()
	err = replayThrough(ctx, h.log, append(positionsOf(way), end), b, func(i int, m *projections.Memory, r *projections.Runner) error {
		took += time.Since(start) // which comparing is no part of
		defer func() { start = time.Now() }()
		if i < len(way) {
			return way[i].compareWith(ctx, m)
		}
		fresh = m
		sum, at, err := m.Digest()
		p := r.Progress()
		*ans = replayAnswer{
			Events: p.Records, Seconds: took.Seconds(), EventsPerSecond: float64(p.Records) / max(took.Seconds(), 1e-9),
			Folded: p.Folded, Repeats: p.Repeats, Quarantined: p.Quarantined,
			Method: projections.Method, Position: at.String(), ReplayDigest: fmt.Sprintf("%x", sum),
		}
		return err
	})
	return fresh, err
}

// differences names the rows in which two sets of rows differ, the first hundred.
func differences(ctx context.Context, live, replay func(context.Context, func(projections.View) error) error) (out []rowDifference, err error) {
	err = live(ctx, func(lv projections.View) error {
		return replay(ctx, func(rv projections.View) error {
			if lv.Position().String() != rv.Position().String() {
				return nil // rows in a database go on
			}
			diffs, err := projections.Differences(lv, rv, 100)
			for _, d := range diffs {
				out = append(out, rowDifference{d.Key.String(), d.InA, d.InB})
			}
			return err
		})
	})
	return out, err
}

func (a *app) showReplay(ans replayAnswer) error {
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "replayed %s events in %.2f s (%s events/s): %s folded, %s repeats, %s quarantined\n",
		humanize.Comma(ans.Events), ans.Seconds, humanize.Comma(int64(ans.EventsPerSecond)),
		humanize.Comma(ans.Folded), humanize.Comma(ans.Repeats), humanize.Comma(ans.Quarantined))
	fmt.Fprintf(a.out, "method    %s\nposition  %s\nreplay    %s\n", ans.Method, ans.Position, ans.ReplayDigest)
	if ans.Equal == nil {
		return nil
	}
	fmt.Fprintf(a.out, "live      %s\n", ans.LiveDigest)
	if ans.LiveFrom != "" {
		fmt.Fprintf(a.out, "          from the snapshot at %s and the log since\n", ans.LiveFrom)
	}
	for _, s := range ans.LeftAside {
		fmt.Fprintf(a.out, "LEFT ASIDE: %s\n", s)
	}
	fmt.Fprintf(a.out, "snapshots %s compared on the way, %s are not what the log says\n", comma(*ans.SnapshotsChecked), comma(len(ans.SnapshotsFailed)))
	for _, c := range ans.SnapshotsFailed {
		fmt.Fprintf(a.out, "SNAPSHOT %s\n", c)
	}
	if *ans.Equal {
		fmt.Fprintln(a.out, "equal: the live rows are what the log says")
		return nil
	}
	fmt.Fprintln(a.out, "DIFFERENT: the live rows are not what the log says")
	for _, d := range ans.Differences {
		fmt.Fprintf(a.out, "  %s  live=%t replay=%t\n", d.Row, d.Live, d.Replay)
	}
	return nil
}
