package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections"
)

func (a *Program) quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "quarantine", Short: "Records that could not be folded, and decisions that took no effect"}
	var asOf string
	var filter quarantineFilter
	list := &cobra.Command{
		Use:   "list",
		Short: "List records that could not be folded, and why",
		Long: `List shows the records that are in the log but in no report, with the reason. It also shows what may
be incomplete because of them, and decisions without effect, whose signers did not have the right to
make them.

An id with a range of offsets stands for all events of one batch that could not be unpacked, or
that an aborted transaction wrote.`,
		Example: "  quartermaster quarantine list --open -o json\n  quartermaster quarantine list --kind conflict --since 2026-05",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := filter.read(); err != nil {
				return err
			}
			q, err := a.caller().Quarantine(cmd.Context(), app.At(asOf), filter.QuarantineFilter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(q)
			}
			a.showQuarantine(q)
			return nil
		},
	}
	var event bool
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Show a quarantined record byte for byte",
		Long: `Show prints a quarantined record with its headers and value as they are in the log. With --event it
prints only the event, in JSON, so that you can edit it and pass it to "quarantine repair".`,
		Example: "  quartermaster quarantine show qm.fleet/3@17\n  quartermaster quarantine show qm.fleet/3@17 --event > event.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showQuarantined(cmd.Context(), app.At(asOf), args[0], event)
		},
	}
	show.Flags().BoolVar(&event, "event", false, "print only the event, in JSON, as \"quarantine repair\" reads it")
	asOfFlag(list, &asOf)
	filter.flags(list)
	list.Flags().BoolVar(&filter.Open, "open", false, "only records that are not resolved")
	asOfFlag(show, &asOf)
	cmd.AddCommand(list, show, a.repairCommand(), a.discardCommand())
	return cmd
}

func (a *Program) showQuarantine(l *app.Quarantine) {
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
			fmt.Fprintln(a.out, "open:", cmp.Or(kindCounts(app.CountKinds(open)), "none"))
			if len(resolved) > 0 {
				fmt.Fprintln(a.out, "resolved:", kindCounts(app.CountKinds(resolved)))
			}
		}
		if l.Removed > 0 {
			fmt.Fprintf(a.out, "%s resolved records were removed by policy: \"quartermaster get removals\"\n", comma(l.Removed))
		}
		if note := l.Incomplete.Note(""); note != "" {
			fmt.Fprintln(a.out, note)
		}
	}
	if len(l.Rejected) > 0 {
		fmt.Fprintln(a.out, "\ndecisions that took no effect:")
		t := a.table("decision", "of", "operator", "time", "reason")
		for _, r := range l.Rejected {
			t.AppendRow(table.Row{string(r.Type) + " " + r.ID, r.Scope, r.Operator, r.Time, r.Reason})
		}
		t.Render()
	}
}

// showQuarantined shows a record, or only its event.
func (a *Program) showQuarantined(ctx context.Context, at app.At, id string, event bool) error {
	if event {
		doc, err := a.caller().QuarantinedEvent(ctx, at, id)
		if err != nil {
			return err
		}
		fmt.Fprintln(a.out, indentJSON(doc))
		return nil
	}
	ans, err := a.caller().Quarantined(ctx, at, id)
	if err != nil {
		return err
	}
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "%s\nreason   %s%s\nsha256   %x\nappended %s\nkey      %q\n", ans.ID, runOf(&ans.QuarantineEntry), ans.Reason, ans.SHA256, ans.Record.Appended, ans.Record.Key)
	for _, hd := range ans.Record.Headers {
		b, _ := hex.DecodeString(hd.Value) // the answer encoded it
		fmt.Fprintf(a.out, "header   %s: %q\n", hd.Key, b)
	}
	b, _ := hex.DecodeString(ans.Record.Value) // the answer encoded it
	fmt.Fprintf(a.out, "value    %d bytes\n%s", len(b), hex.Dump(b))
	return nil
}

// runOf describes the offsets of an entry with several events, "" for one event.
func runOf(e *projections.QuarantineEntry) string {
	if e.Last == 0 {
		return ""
	}
	return fmt.Sprintf("offsets %d to %d, %s events: ", e.Offset, e.Last, comma(e.Events()))
}
