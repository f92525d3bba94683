package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// mendAnswer is what quarantine reappend answers.
type mendAnswer struct {
	ID         string          `json:"id"`
	Appended   string          `json:"appended,omitempty"` // the record of the mended event
	Event      json.RawMessage `json:"event"`
	Resolution string          `json:"resolution"`
	Reason     string          `json:"reason"`
	Operator   string          `json:"operator,omitempty"`
	Resumed    bool            `json:"resumed"` // an earlier run had appended the event
	DryRun     bool            `json:"dry_run"`
}

// resolveAnswer is what quarantine resolve answers.
type resolveAnswer struct {
	Resolved   []string       `json:"resolved"` // the ids that were named; [] where filters name them
	Records    int            `json:"records"`
	Kinds      map[string]int `json:"kinds"` // how many of each kind of reason
	Resolution string         `json:"resolution"`
	Reason     string         `json:"reason"`
	Operator   string         `json:"operator,omitempty"`
	DryRun     bool           `json:"dry_run"`
}

func (a *app) reappendCommand() *cobra.Command {
	var (
		file, reason, key string
		dryRun            bool
	)
	cmd := &cobra.Command{
		Use:   "reappend ID --event FILE --reason TEXT",
		Short: "Append the mended event of a quarantined record",
		Long: `Reappend appends an event again whose content was mended, to its own topic and
citing the record in quarantine, and resolves that record. Reports then hold
the event, and no longer call themselves incomplete for it.

FILE is one CloudEvents 1.0 event in JSON, as "quarantine show ID --event" and
the key "event" of "log export" have it; - is standard input. Content may change,
place may not: the topic must be that of the record, and the key (the cluster,
workspace, account or market) that of the record or, where the two contradict
each other, of the event in it. Keys are read as they are spelt; what is not
known, or there twice, is refused with its line.

The event becomes a new one, of a stream of its own: source, id, incarnation and
sequence in FILE do not count, nor do cites and a signature, which covers the old
bytes. A decision is decided again: now, and by you, who must have the right to.
So is the resolution, for which an admin's or operator's signature is enough.

However often the command is run or interrupted, one event is appended. When
an earlier run got no further than that, the same command finishes its work, and
so it does without --event.

JSON keys: id, appended (the new record), event, resolution, reason, operator,
resumed (the event had been appended by an earlier run), dry_run.`,
		Example: "  quartermaster quarantine show qm.fleet/3@17 --event > event.json\n" +
			"  quartermaster quarantine reappend qm.fleet/3@17 --event event.json --reason \"the serial number was cut off\" --dry-run\n" +
			"  quartermaster quarantine reappend qm.fleet/3@17 --event event.json --reason \"the serial number was cut off\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			var mended *domain.Envelope
			if cmd.Flags().Changed("event") {
				var err error
				if mended, err = readEvent(file, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			return a.read(cmd.Context(), func(h *home) error {
				ans, err := h.reappend(cmd.Context(), args[0], mended, file, reason, key, dryRun)
				if err != nil {
					return err
				}
				return a.showMended(ans)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "event", "", "file with the mended event, - for standard input")
	reasonFlag(cmd, &reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}

func (a *app) resolveCommand() *cobra.Command {
	var (
		reason, key     string
		discard, dryRun bool
	)
	var filter quarantineFilter
	cmd := &cobra.Command{
		Use:   "resolve [ID...] --discard --reason TEXT",
		Short: "Say of quarantined records that they are not to be counted",
		Long: `Resolve ends the quarantine of records that hold nothing to be mended: they stay
in the log and in the list, with who discarded them and why, and reports no
longer call themselves incomplete for them. All are checked before any is resolved.

An admin's or operator's signature is enough. What can be mended is appended
again with "quarantine reappend".

Records are named by their ids, or by filters, which name all open ones that they
hold for: --dry-run says how many there are. JSON keys: resolved (the ids named),
records (how many), kinds (how many of each kind of reason), resolution, reason,
operator, dry_run.`,
		Example: "  quartermaster quarantine resolve qm.telemetry/0@3 qm.telemetry/0@4 --discard --reason \"a port scan, no events\"\n" +
			"  quartermaster quarantine resolve --topic qm.telemetry --kind undecodable --until 2026-06 --discard --reason \"a port scan\" --dry-run",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
				return err
			}
			if !discard {
				return errors.New("say what becomes of it: --discard leaves it out of every report; \"quarantine reappend\" appends it mended")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			if err := filter.read(); err != nil {
				return err
			}
			if (len(args) > 0) == filter.given() {
				return errors.New("name records by their ids or by filters (--topic, --kind, --since and the like), and not by both")
			}
			return a.read(cmd.Context(), func(h *home) error {
				return h.discard(cmd.Context(), args, &filter, reason, key, dryRun)
			})
		},
	}
	filter.flags(cmd)
	cmd.Flags().BoolVar(&discard, "discard", false, "leave the records out of every report")
	reasonFlag(cmd, &reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}

func reasonFlag(cmd *cobra.Command, reason *string, dryRun *bool) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for whoever reads the list later (required)")
	must(cmd.MarkFlagRequired("reason"))
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "check everything and append nothing")
}

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return commandline.Usagef("--reason is empty: say why, for whoever reads the list later")
	}
	return nil
}

// readEvent reads a mended event from a file, "-" for standard input.
func readEvent(path string, stdin io.Reader) (*domain.Envelope, error) {
	in, name := stdin, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		defer f.Close()
		in, name = f, path
	}
	doc, err := io.ReadAll(io.LimitReader(in, wire.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	env, err := wire.ReadCloudEvent(doc)
	var wrong *wire.DocumentError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return nil, fmt.Errorf("%s:%d: %s", name, wrong.Line, wrong.Problem)
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("%s:%d: %s: %s", name, wrong.Line, wrong.Field, wrong.Problem)
	}
	return env, err
}

// quarantined returns the entry of a record in quarantine that is not resolved.
func quarantined(l *projections.QuarantineList, id string) (*projections.QuarantineEntry, error) {
	if _, _, err := parseRecordID(id); err != nil {
		return nil, err
	}
	switch e := l.Find(id); {
	case e == nil:
		return nil, fmt.Errorf("%s is not in quarantine; see \"quartermaster quarantine list\"", id)
	case e.Resolution != "":
		return nil, fmt.Errorf("%s is resolved already: %s by %s at %s, because %q", id, e.Resolution, e.ResolvedBy, e.Resolved, e.Note)
	default:
		return e, nil
	}
}

// resolution is the event that ends a record's quarantine.
func resolution(e *projections.QuarantineEntry, what, reason string) domain.Envelope {
	return domain.Envelope{Time: now(), Subject: e.ID, Event: &domain.QuarantineResolved{
		Entity: platform, Topic: e.Topic, Partition: uint32(e.Partition), Offset: e.Offset, Resolution: what, Reason: reason,
	}}
}

// mendSource names the source of the event that mends a record. It is the same
// in every run, and the event its first and only one: so an event that is
// appended twice is a repeat, which every fold leaves out. It begins with the
// source of the record, as far as that could be read, since by that samples are
// ranked.
func mendSource(e *projections.QuarantineEntry) string {
	source := cmp.Or(e.Source, "quartermaster")
	if len(source) > 200 || !utf8.ValidString(source) || strings.ContainsFunc(source, unicode.IsControl) {
		source = "quartermaster"
	}
	return source + mendedMark + e.ID
}

// mendedMark stands in the source of every event that mends a record.
const mendedMark = "/mended/"

// mendedAt names the stream of an event that mends a record, but for its partition.
type mendedAt struct {
	topic  domain.Topic
	source string
}

const mendIncarnation = 1

// mending is how far the mending of a record has come.
type mending struct {
	entry  projections.QuarantineEntry
	source string
	at     *domain.TopicPartition // where its event is in the log already, nil when it is not
	from   domain.Position        // what is folded
}

func (h *home) mending(ctx context.Context, id string) (*mending, error) {
	list, err := h.mendings(ctx, id)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// mendings is mending of many records, which are read once. Its error is of every
// id that is not to be mended.
func (h *home) mendings(ctx context.Context, ids ...string) (list []*mending, err error) {
	err = h.view(ctx, func(v projections.View) error {
		l, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		at := v.Position().Clone()
		mended := map[mendedAt]domain.TopicPartition{}
		if err := v.Scan(projections.Query{Table: projections.TableStreams, From: mendIncarnation, To: mendIncarnation + 1}, func(k projections.Key, _ projections.Row) error {
			if strings.Contains(k.ID, mendedMark) {
				topic, partition, _ := strings.Cut(k.Scope, "/")
				n, err := strconv.Atoi(partition)
				mended[mendedAt{domain.Topic(topic), strings.Clone(k.ID)}] = domain.TopicPartition{Topic: domain.Topic(strings.Clone(topic)), Partition: n}
				return err
			}
			return nil
		}); err != nil {
			return fmt.Errorf("look for what was appended again: %w", err)
		}
		var wrong []error
		for _, id := range ids {
			e, err := quarantined(l, id)
			if err != nil {
				wrong = append(wrong, err)
				continue
			}
			m := &mending{entry: *e, source: mendSource(e), from: at}
			if tp, ok := mended[mendedAt{e.Topic, m.source}]; ok {
				m.at = &tp
			}
			list = append(list, m)
		}
		return errors.Join(wrong...)
	})
	return list, err
}

// reappend appends a mended event and then resolves the record that it mends.
// mended is nil to finish what an earlier run began.
func (h *home) reappend(ctx context.Context, id string, mended *domain.Envelope, file, reason, key string, dryRun bool) (*mendAnswer, error) {
	m, err := h.mending(ctx, id)
	if err != nil {
		return nil, err
	}
	if n := m.entry.Events(); n > 1 {
		return nil, fmt.Errorf("%s stands for %s events of one batch, and one event does not mend them: have whoever wrote them append them again, in smaller batches, then \"quartermaster quarantine resolve %s --discard\"", id, comma(n), id)
	}
	ans := &mendAnswer{ID: id, Resolution: "reappended", Reason: reason, DryRun: dryRun, Resumed: m.at != nil}
	if mended != nil {
		mended.Source, mended.Incarnation, mended.Sequence = m.source, mendIncarnation, 1
		mended.PreviousIncarnation, mended.PreviousSequence, mended.Cites = 0, 0, id
		if err := h.checkPlace(ctx, &m.entry, mended); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if _, err := wire.Encode(mended); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	todo := []domain.Envelope{resolution(&m.entry, ans.Resolution, reason)}
	switch {
	case m.at != nil:
		if err := h.confirm(ctx, m, *m.at, 0, mended, ans); err != nil {
			return nil, err
		}
	case mended == nil:
		return nil, fmt.Errorf("--event is missing: nothing has been appended for %s yet; begin with \"quartermaster quarantine show %s --event > event.json\"", id, id)
	default:
		todo = append(todo, *mended)
	}
	if dryRun {
		if ans.Event == nil {
			if ans.Event, err = wire.CloudEvent(mended); err != nil {
				return nil, err
			}
		}
		return ans, h.tryOut(ctx, key, todo)
	}
	s, err := h.signer(ctx, key)
	if err != nil {
		return nil, err
	}
	ans.Operator = s.name
	ptrs, err := s.signAll(todo)
	if err != nil {
		return nil, err
	}
	if err := h.view(ctx, func(v projections.View) error { return refused(v, ptrs) }); err != nil {
		return nil, err
	}
	if m.at == nil {
		if err := h.appendMended(ctx, m, ptrs[1], ans); err != nil {
			return nil, err
		}
	}
	// Somebody else may have been at it in the meantime.
	if _, err := h.mending(ctx, id); err != nil {
		return nil, err
	}
	return ans, h.decide(ctx, "quarantine-reappend", s, todo[:1])
}

// checkPlace holds that a mended event is for the place of the record: its topic,
// and a key that the record has or states.
func (h *home) checkPlace(ctx context.Context, e *projections.QuarantineEntry, mended *domain.Envelope) error {
	if t := mended.Topic(); t != e.Topic {
		return fmt.Errorf("%s is an event of %s, and %s of %s: content may change, place may not", mended.Event.Type(), t, e.ID, e.Topic)
	}
	key, err := mended.Key()
	if err != nil {
		return err
	}
	var keys []string
	if err := h.log.Read(ctx, domain.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Offset, e.Offset+1, func(recs []domain.Record) error {
		if len(recs[0].Key) > 0 {
			keys = append(keys, string(recs[0].Key))
		}
		if env := asFarAsRead(&recs[0]); env != nil {
			if k, err := env.Key(); err == nil && !slices.Contains(keys, k) {
				keys = append(keys, strings.Clone(k))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(keys) > 0 && !slices.Contains(keys, key) {
		return fmt.Errorf("the event's key is %q, that of %s %.200q: content may change, place may not", key, e.ID, keys)
	}
	return nil
}

// asFarAsRead returns the event of a record in quarantine, nil when it cannot be
// read. It may contradict the record; its memory is that of rec.
func asFarAsRead(rec *domain.Record) *domain.Envelope {
	var env domain.Envelope
	var dec wire.Decoder
	if err := dec.Decode(rec, &env); env.Event == nil || err != nil && env.Event.Type() == domain.TypeNodeSampled {
		return nil
	}
	return &env
}

// appendMended appends the event that mends a record, and looks that it is the
// one that counts.
func (h *home) appendMended(ctx context.Context, m *mending, env *domain.Envelope, ans *mendAnswer) error {
	stream := kafka.NewStream(h.log, kafka.StreamConfig{Source: m.source, Incarnation: mendIncarnation, Encode: wire.Encode})
	if err := stream.Append(ctx, env); err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	if err := h.catchUp(ctx); err != nil {
		return err
	}
	key, err := env.Key()
	if err != nil {
		return err
	}
	tp := domain.TopicPartition{Topic: env.Topic(), Partition: domain.PartitionOf([]byte(key), env.Topic().Partitions())}
	return h.confirm(ctx, m, tp, m.from[tp], env, ans)
}

var errFound = errors.New("found")

// confirm finds the first event that mends a record, which is the one that
// counts, and holds that it says what mended does, if that is not nil.
func (h *home) confirm(ctx context.Context, m *mending, tp domain.TopicPartition, from int64, mended *domain.Envelope, ans *mendAnswer) error {
	if tp.Partition == m.entry.Partition {
		from = max(from, m.entry.Offset+1)
	}
	end, err := h.end(ctx)
	if err != nil {
		return err
	}
	var dec wire.Decoder
	err = h.log.Read(ctx, tp, from, end[tp], func(recs []domain.Record) error {
		for i := range recs {
			var env domain.Envelope
			if dec.Decode(&recs[i], &env) != nil || env.Source != m.source || env.Incarnation != mendIncarnation || env.Sequence != 1 {
				continue
			}
			ans.Appended = fmt.Sprintf("%s@%d", tp, recs[i].Offset)
			if ans.Event, err = wire.CloudEvent(&env); err != nil {
				return err
			}
			if mended != nil {
				same, err := sameStatement(&env, mended)
				if err != nil {
					return err
				}
				if !same {
					return fmt.Errorf("another event was appended for %s before, %s, and that one counts: \"quartermaster quarantine reappend %s --reason TEXT\" without --event leaves it at that", m.entry.ID, ans.Appended, m.entry.ID)
				}
			}
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the rows know an event of source %q, but %s does not hold it", m.source, tp)
}

// sameStatement reports whether two events say the same, of the same time; a
// decision is decided anew each time.
func sameStatement(a, b *domain.Envelope) (bool, error) {
	if a.Subject != b.Subject || a.Workspace != b.Workspace || a.Cluster != b.Cluster || a.Recorded != b.Recorded || a.Cites != b.Cites ||
		a.Time != b.Time && !domain.NeedsSignature(a.Event.Type()) {
		return false, nil
	}
	return projections.SameEvent(a.Event, b.Event)
}

func (a *app) showMended(ans *mendAnswer) error {
	if a.json {
		return a.answerJSON(ans)
	}
	switch {
	case ans.DryRun && ans.Resumed:
		fmt.Fprintf(a.out, "an earlier run appended %s; %s would now be resolved\nnothing appended: this was a dry run\n", ans.Appended, ans.ID)
	case ans.DryRun:
		fmt.Fprintf(a.out, "would append\n%s\nnothing appended: this was a dry run\n", indentJSON(ans.Event))
	case ans.Resumed:
		fmt.Fprintf(a.out, "an earlier run had appended %s; %s is now resolved, signed by %s\n", ans.Appended, ans.ID, ans.Operator)
	default:
		fmt.Fprintf(a.out, "appended %s, which mends %s; resolved, signed by %s\n", ans.Appended, ans.ID, ans.Operator)
	}
	return nil
}

// indentJSON lays a document out for people to read and edit.
func indentJSON(doc []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// discard resolves records that are not to be counted: those of ids, or without ids the
// open ones of a filter.
func (h *home) discard(ctx context.Context, ids []string, filter *quarantineFilter, reason, key string, dryRun bool) error {
	ans := resolveAnswer{Resolved: slices.Concat([]string{}, ids), Resolution: "discarded", Reason: reason, DryRun: dryRun}
	var errs []error
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s is named twice", id))
		}
		seen[id] = true
	}
	if len(ids) == 0 {
		if err := h.view(ctx, func(v projections.View) error {
			l, err := registry.Quarantine(v)
			if err != nil {
				return err
			}
			for i := range l.Entries {
				if e := &l.Entries[i]; e.Resolution == "" && filter.holds(e) {
					ids = append(ids, e.ID)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	list, err := h.mendings(ctx, ids...)
	if err != nil {
		errs = append(errs, err)
	}
	todo := make([]domain.Envelope, 0, len(list))
	entries := make([]projections.QuarantineEntry, 0, len(list))
	for _, m := range list {
		if id := m.entry.ID; m.at != nil {
			errs = append(errs, fmt.Errorf("%s was appended again in part: \"quartermaster quarantine reappend %s --reason TEXT\" finishes that", id, id))
		}
		todo = append(todo, resolution(&m.entry, ans.Resolution, reason))
		entries = append(entries, m.entry)
	}
	if len(errs) > 0 {
		return errors.Join(append(errs, errors.New("nothing was resolved"))...)
	}
	ans.Records, ans.Kinds = len(entries), countKinds(entries)
	switch {
	case len(todo) == 0:
	case dryRun:
		// All are decided by the same person about the same, so one stands for all.
		if err := h.tryOut(ctx, key, todo[:1]); err != nil {
			return err
		}
	default:
		s, err := h.signer(ctx, key)
		if err != nil {
			return err
		}
		ptrs, err := s.signAll(todo)
		if err != nil {
			return err
		}
		if err := h.view(ctx, func(v projections.View) error { return refused(v, ptrs[:1]) }); err != nil {
			return err
		}
		stream := h.stream("quarantine-resolve")
		for batch := range slices.Chunk(ptrs, appendBatch) {
			if err := stream.Append(ctx, batch...); err != nil {
				return fmt.Errorf("append to the log: %w", err)
			}
		}
		if err := h.catchUp(ctx); err != nil {
			return err
		}
		ans.Operator = s.name
	}
	if h.app.json {
		return h.app.answerJSON(ans)
	}
	what := comma(ans.Records) + " records: " + kindCounts(ans.Kinds)
	if n := len(ans.Resolved); n > 0 && n <= namedIDs {
		what = strings.Join(ans.Resolved, " ")
	}
	switch {
	case ans.Records == 0:
		fmt.Fprintln(h.app.out, "no open record in quarantine is of these filters")
	case dryRun:
		fmt.Fprintf(h.app.out, "would discard %s\nnothing appended: this was a dry run\n", what)
	default:
		fmt.Fprintf(h.app.out, "discarded %s, signed by %s\n", what, ans.Operator)
	}
	return nil
}

// namedIDs is how many ids an answer repeats; of more it says how many there are.
const namedIDs = 10
