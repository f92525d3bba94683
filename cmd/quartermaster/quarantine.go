package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// quarantineAnswer is what quarantine list answers.
type quarantineAnswer struct {
	*projections.QuarantineList
	Rejected []registry.Rejection `json:"rejected_decisions"`
}

func (a *app) quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "quarantine", Short: "Records that could not be folded, and decisions that took no effect"}
	var asOf string
	var filter quarantineFilter
	list := &cobra.Command{
		Use:   "list",
		Short: "List what could not be folded, and why",
		Long: `List shows the records that are in the log but in no report, with the reason;
what may be incomplete because of them; and the decisions that took no effect
because whoever signed them had no right to make them.

An id with a run of offsets behind it stands for all events of one batch that
could not be unpacked, or that a transaction wrote and aborted.

JSON keys: position, entries (id, topic, partition, offset, last, sha256, kind,
reason, conflicts_with, type, source, incarnation, sequence, workspace, cluster,
appended, resolution, resolved, resolved_by, note; last: where they are several,
the offset of the last), open (how many events), incomplete (all, workspaces), rejected_decisions
(table, scope, id, type, time, operator, public_key, reason).`,
		Example: "  quartermaster quarantine list --open --json\n  quartermaster quarantine list --kind conflict --since 2026-05",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := filter.read(); err != nil {
				return err
			}
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				return h.view(cmd.Context(), func(v projections.View) error {
					l, err := registry.Quarantine(v)
					if err != nil {
						return err
					}
					l.Entries = slices.DeleteFunc(l.Entries, func(e projections.QuarantineEntry) bool { return !filter.holds(&e) })
					auth, err := registry.NewAuthority(v)
					if err != nil {
						return err
					}
					rejected, err := auth.Rejections(v)
					if err != nil {
						return err
					}
					if a.json {
						if rejected == nil {
							rejected = []registry.Rejection{}
						}
						return a.answerJSON(quarantineAnswer{l, rejected})
					}
					a.showQuarantine(l, rejected)
					return nil
				})
			})
		},
	}
	var event bool
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Show a quarantined record byte for byte",
		Long: `Show prints a quarantined record with its headers and value as they stand in
the log. With --event it prints nothing but the event in it, in JSON, to be
edited and given to "quarantine reappend".

JSON keys: those of an entry of "quarantine list", and record (topic,
partition, offset, appended, key, headers, value: headers and value in
hexadecimal) and event where it can be decoded.`,
		Example: "  quartermaster quarantine show qm.fleet/3@17\n  quartermaster quarantine show qm.fleet/3@17 --event > event.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readAt(cmd.Context(), asOf, func(h *home) error { return h.showQuarantined(cmd.Context(), args[0], event) })
		},
	}
	show.Flags().BoolVar(&event, "event", false, "print only the event, in JSON, as \"quarantine reappend\" reads it")
	asOfFlag(list, &asOf)
	filter.flags(list)
	list.Flags().BoolVar(&filter.open, "open", false, "only records that are not resolved")
	asOfFlag(show, &asOf)
	cmd.AddCommand(list, show, a.reappendCommand(), a.resolveCommand())
	return cmd
}

func (a *app) showQuarantine(l *projections.QuarantineList, rejected []registry.Rejection) {
	if len(l.Entries) == 0 {
		fmt.Fprintln(a.out, "nothing is quarantined")
	} else {
		t := a.table("id", "type", "workspace", "cluster", "reason", "resolution")
		for _, e := range l.Entries {
			t.AppendRow(table.Row{e.ID, e.Type, e.Workspace, e.Cluster, runOf(&e) + e.Reason, e.Resolution})
		}
		t.Render()
		if len(l.Entries) > 20 {
			open := slices.DeleteFunc(slices.Clone(l.Entries), func(e projections.QuarantineEntry) bool { return e.Resolution != "" })
			resolved := slices.DeleteFunc(slices.Clone(l.Entries), func(e projections.QuarantineEntry) bool { return e.Resolution == "" })
			fmt.Fprintln(a.out, "open:", cmp.Or(kindCounts(countKinds(open)), "none"))
			if len(resolved) > 0 {
				fmt.Fprintln(a.out, "resolved:", kindCounts(countKinds(resolved)))
			}
		}
		if note := l.Incomplete.Note(""); note != "" {
			fmt.Fprintln(a.out, note)
		}
	}
	if len(rejected) > 0 {
		fmt.Fprintln(a.out, "\ndecisions that took no effect:")
		t := a.table("decision", "of", "operator", "time", "reason")
		for _, r := range rejected {
			t.AppendRow(table.Row{string(r.Type) + " " + r.ID, r.Scope, r.Operator, r.Time, r.Reason})
		}
		t.Render()
	}
}

// runOf says how far the events of an entry reach, "" where it is one.
func runOf(e *projections.QuarantineEntry) string {
	if e.Last == 0 {
		return ""
	}
	return fmt.Sprintf("offsets %d to %d, %s events: ", e.Offset, e.Last, comma(e.Events()))
}

type quarantineShow struct {
	projections.QuarantineEntry
	Record shownRaw     `json:"record"`
	Event  *shownRecord `json:"event,omitempty"`
}

type shownRaw struct {
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Appended  domain.Instant `json:"appended"`
	Key       string         `json:"key"`
	Headers   []shownHeader  `json:"headers"`
	Value     string         `json:"value"`
}

type shownHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (h *home) showQuarantined(ctx context.Context, id string, event bool) error {
	tp, offset, err := parseRecordID(id)
	if err != nil {
		return err
	}
	var entry projections.QuarantineEntry
	if err := h.view(ctx, func(v projections.View) error {
		l, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		e := l.Find(id)
		if e == nil {
			return fmt.Errorf("%s is not in quarantine; see \"quartermaster quarantine list\"", id)
		}
		entry = *e
		return nil
	}); err != nil {
		return err
	}
	if event {
		return h.showEvent(ctx, &entry)
	}
	ans := quarantineShow{QuarantineEntry: entry}
	if err := h.log.Read(ctx, tp, offset, offset+1, func(recs []domain.Record) error {
		rec := &recs[0]
		ans.Record = shownRaw{tp.Topic, tp.Partition, offset, rec.Time, string(rec.Key), []shownHeader{}, hex.EncodeToString(rec.Value)}
		for _, hd := range rec.Headers {
			ans.Record.Headers = append(ans.Record.Headers, shownHeader{hd.Key, hex.EncodeToString(hd.Value)})
		}
		var dec wire.Decoder
		if s := show(&dec, rec); s.Error == "" {
			ans.Event = &s
		}
		return nil
	}); err != nil {
		return err
	}
	if h.app.json {
		return h.app.answerJSON(ans)
	}
	w := h.app.out
	fmt.Fprintf(w, "%s\nreason   %s%s\nsha256   %x\nappended %s\nkey      %q\n", ans.ID, runOf(&entry), ans.Reason, ans.SHA256, ans.Record.Appended, ans.Record.Key)
	for _, hd := range ans.Record.Headers {
		b, _ := hex.DecodeString(hd.Value) // encoded above
		fmt.Fprintf(w, "header   %s: %q\n", hd.Key, b)
	}
	b, _ := hex.DecodeString(ans.Record.Value) // encoded above
	fmt.Fprintf(w, "value    %d bytes\n%s", len(b), hex.Dump(b))
	return nil
}

// showEvent prints the event of a quarantined record, even when it contradicts
// the record or is not valid, for people to mend.
func (h *home) showEvent(ctx context.Context, e *projections.QuarantineEntry) error {
	return h.log.Read(ctx, domain.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Offset, e.Offset+1, func(recs []domain.Record) error {
		env := asFarAsRead(&recs[0])
		if env == nil {
			return fmt.Errorf("%s holds nothing that can be read as an event (%s): ask whoever appended it what it was to say, and write that in the form of the key \"event\" of \"quartermaster log export --topic %s\"", e.ID, e.Reason, e.Topic)
		}
		doc, err := wire.CloudEvent(env)
		if err != nil {
			return fmt.Errorf("%s cannot be shown as an event: %w", e.ID, err)
		}
		fmt.Fprintln(h.app.out, indentJSON(doc))
		return nil
	})
}

// parseRecordID reads "topic/partition@offset".
func parseRecordID(id string) (tp domain.TopicPartition, offset int64, err error) {
	part, at, ok := strings.Cut(id, "@")
	topic, num, ok2 := strings.Cut(part, "/")
	tp.Topic = domain.Topic(topic)
	if ok && ok2 {
		if tp.Partition, err = strconv.Atoi(num); err == nil {
			offset, err = strconv.ParseInt(at, 10, 64)
		}
	}
	if !ok || !ok2 || err != nil || offset < 0 || tp.Partition < 0 || tp.Partition >= tp.Topic.Partitions() {
		return tp, 0, fmt.Errorf("%q does not name a record; want topic/partition@offset, for example qm.fleet/3@17", id)
	}
	return tp, offset, nil
}
