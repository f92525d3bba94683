// Package cli is the command line: it reads flags, calls the use cases of package app, writes
// tables and JSON, and formats errors. There is one file per noun. It does not depend on the
// daemon; the program adds the daemon's command.
package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/manifest"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) applyCommand() *cobra.Command {
	var (
		files  []string
		dryRun bool
		key    string
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Declare workspaces, clusters, policies, prices and more from a file",
		Long: `Apply reads declarations, shows how they differ from the log, and appends the changes as
signed events. Applying the same file again changes nothing.

` + manifest.Help + `

A file with a fault is refused as a whole, and every fault is listed with file, line and
field: entries refer to each other, and the changes of one command are decided together.
Of owned hardware, apply also refuses what no bill could follow: a node of two assets at
the same time, a revision or disposal of an unknown asset, or one before its service.

Quotas and budgets do not constrain plans yet, and no one is notified when they are
exceeded. Apply prints a notice for each.

For a correction of usage, apply shows who held the GPU before and after. It refuses a
correction of a GPU that the node did not have at that time, for an unknown deployment, or
of a time that another correction covers.`,
		Example: "  quartermaster apply -f estate.yaml --dry-run\n  quartermaster apply -f estate.yaml -f prices.json --key ana.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			return a.apply(cmd.Context(), files, dryRun, key)
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&files, "file", "f", nil, "file to apply, YAML or JSON (required)")
	must(cmd.MarkFlagRequired("file"))
	f.BoolVar(&dryRun, "dry-run", false, "show the difference and append nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) apply(ctx context.Context, files []string, dryRun bool, key string) error {
	declared, err := a.readDeclarations(files)
	if err != nil {
		return err
	}
	if err := a.caller().Begin(ctx, dryRun); err != nil {
		return err
	}
	ans, draft, err := a.caller().Apply(ctx, declared)
	if err != nil {
		return err
	}
	if !a.json {
		a.showChanges(ans)
	}
	if len(draft.Events) > 0 && dryRun {
		if err := a.tryOut(ctx, key, draft); err != nil {
			return err
		}
	}
	if len(draft.Events) > 0 && !dryRun {
		s, err := a.signer(ctx, key)
		if err != nil {
			return err
		}
		// The first operator comes with the workspace platform, which the file may declare too.
		if _, draft, err = a.caller().Apply(ctx, declared); err != nil {
			return err
		}
		if err := a.decide(ctx, s, draft); err != nil {
			return err
		}
		ans.Applied = true
		if draft.Signed() || s.key == nil {
			ans.Operator = s.name
		}
	}
	if a.json {
		return a.answerJSON(ans)
	}
	switch {
	case ans.Applied && ans.Operator == "":
		fmt.Fprintf(a.out, "applied %d changes, which need no signature\n", len(draft.Events))
	case ans.Applied:
		fmt.Fprintf(a.out, "applied %d changes, signed by %s\n", len(draft.Events), ans.Operator)
	case dryRun && len(draft.Events) > 0:
		fmt.Fprintln(a.out, "nothing applied: this was a dry run")
	default:
		fmt.Fprintln(a.out, "nothing to do")
	}
	return nil
}

func (a *Program) showChanges(ans *app.Changes) {
	for _, c := range ans.Changes {
		sign := "+"
		if c.Action == "change" {
			sign = "~"
		}
		fmt.Fprintf(a.out, "%s %-22s %s", sign, c.Type, c.Name)
		if c.Of != "" && c.Of != c.Name {
			fmt.Fprintf(a.out, "  (%s)", c.Of)
		}
		fmt.Fprintln(a.out)
		if c.Held != nil {
			fmt.Fprintf(a.out, "    held before: %s\n    held after: %s\n", heldText(c.Held.Before), heldText(c.Held.After))
		}
		if c.Before != nil {
			before, after := fields(c.Before), fields(c.After)
			if c.Before.Type() != c.After.Type() {
				// A revision of an asset says what changes. The rest of what was acquired stays.
				maps.DeleteFunc(before, func(k, _ string) bool { _, said := after[k]; return !said })
			}
			for _, k := range keysOf(before, after) {
				if before[k] != after[k] {
					fmt.Fprintf(a.out, "    %s: %s -> %s\n", k, orNone(before[k]), orNone(after[k]))
				}
			}
		}
	}
	if ans.Unchanged > 0 {
		fmt.Fprintf(a.out, "= %d unchanged\n", ans.Unchanged)
	}
	for _, n := range ans.Notices {
		fmt.Fprintf(a.out, "! %-22s %s  (%s) is %s\n", n.Type, n.Name, n.Of, n.Notice)
	}
}

// heldText lists the holders or states of a device in GPU-hours.
func heldText(held []app.Held) string {
	parts := make([]string, len(held))
	for i, h := range held {
		who := h.State
		if h.Workspace != "" {
			who = strings.Join(slices.DeleteFunc([]string{h.Workspace, h.Deployment, h.Unit}, func(s string) bool { return s == "" }), "/")
		}
		parts[i] = who + " " + gpuHours(h.GPUMs)
	}
	return strings.Join(parts, ", ") + " GPU-hours"
}

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "(none)"
	}
	return s
}
