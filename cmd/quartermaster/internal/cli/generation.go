package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) generationCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generation",
		Short: "Generations of rows in Postgres: create, rebuild, compare, switch",
		Long: `In production the rows are in Postgres, in generations: complete, named sets of rows. Each
generation has its own schema and was made by one version of the folds. Commands read the
active generation. A new generation is built next to it while everything keeps running, is
compared with it at a common position, and becomes active in one transaction.

To introduce a new version of the folds:
  1. run "generation rebuild NAME" with the new program, while the old instances serve;
  2. start instances of the new program;
  3. run "generation switch NAME";
  4. stop the old instances;
  5. run "generation drop OLD".`,
	}
	cmd.AddCommand(a.generationMigrateCommand(), a.generationStatusCommand(), a.generationRebuildCommand(),
		a.generationSwitchCommand(), a.generationDropCommand())
	return cmd
}

func (a *Program) generationMigrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database schema to this program's version",
		Long: `Migrate creates or updates the control tables in each database of the configuration. A database
of postgres.others that is new MUST be empty; migrate takes it in. If there is no generation, it creates the first
one, "a". It lets the roles of postgres.readers read views, each what it may, and revokes what a role
that is no longer there could read. Run it again after changing the readers in the configuration, or
after creating a role.

Run it once before the first start and after each upgrade. Concurrent and repeated runs are
safe.`,
		Example: "  quartermaster generation migrate --config quartermaster.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Migrate(cmd.Context())
			if err != nil {
				return err
			}
			for _, role := range ans.MissingReaders {
				a.note("the role %s of postgres.readers does not exist: create it and run this again", role)
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if ans.Before == ans.After {
				fmt.Fprintf(a.out, "the schema is already at version %d\n", ans.After)
			} else {
				fmt.Fprintf(a.out, "the schema was migrated from version %d to %d\n", ans.Before, ans.After)
			}
			if ans.Generation != "" {
				fmt.Fprintf(a.out, "created the first generation of rows, %q\n", ans.Generation)
			}
			if len(ans.Databases) > 0 {
				fmt.Fprintf(a.out, "other databases at this version: %s\n", strings.Join(ans.Databases, ", "))
			}
			for _, r := range ans.Readers {
				seen := "the whole estate"
				if len(r.Workspaces) > 0 {
					seen = strings.Join(r.Workspaces, ", ") + " and workspaces below"
				}
				fmt.Fprintf(a.out, "reader %s: %s\n", r.Role, seen)
			}
			return nil
		},
	}
}

func (a *Program) generationStatusCommand() *cobra.Command {
	var partitions bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show generations, their progress, and the instances that fold them",
		Long: `Status shows the generations of rows: how many events each has folded, and how many are
left. It shows running instances, stopped partitions with the reason and the remedy, records
that the log no longer has, and the last runs of the schedule. It checks that the log is still
the one that the active generation was folded from.

With --partitions it shows every partition and the instance that folds it. If the log cannot be
reached, it shows everything else.`,
		Example: "  quartermaster generation status --config quartermaster.yaml\n  quartermaster generation status --config quartermaster.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Generations(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showGenerations(ans, partitions)
			return nil
		},
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "show every partition")
	return cmd
}

func (a *Program) showGenerations(s *app.GenerationsStatus, partitions bool) {
	count := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return humanize.Comma(*n)
	}
	if s.LogError != "" {
		a.note("the state of the log is unknown: %s", s.LogError)
	}
	t := a.table("generation", "method", "state", "events", "lag", "size", "folded by")
	for _, g := range s.Generations {
		state := g.State
		if g.Active {
			state += ", active"
		}
		owners := map[string]int{}
		for _, p := range g.Partitions {
			owners[cmp.Or(p.Instance, "none")]++
		}
		var by []string
		for _, who := range slices.Sorted(maps.Keys(owners)) {
			by = append(by, fmt.Sprintf("%s (%d)", who, owners[who]))
		}
		t.AppendRow([]any{g.Name, g.Method, state, humanize.Comma(g.Events), count(g.Lag), humanize.IBytes(uint64(max(0, g.Bytes))), strings.Join(by, ", ")})
	}
	t.Render()
	if partitions {
		for _, g := range s.Generations {
			fmt.Fprintln(a.out)
			several := slices.ContainsFunc(g.Partitions, func(p app.PartitionStatus) bool { return p.Database != "" })
			head := []any{g.Name, "next", "lag", "folded by"}
			if several {
				head = append(head, "database")
			}
			t := a.table(head...)
			for _, p := range g.Partitions {
				row := []any{domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, p.Next, count(p.Lag), cmp.Or(p.Instance, "none")}
				if several {
					row = append(row, cmp.Or(p.Database, "first"))
				}
				t.AppendRow(row)
			}
			t.Render()
		}
	}
	for _, g := range s.Generations {
		if g.Active && g.Misplaced > 0 {
			fmt.Fprintf(a.out, "\n%d partitions of generation %s are in another database than configured: "+
				"\"quartermaster generation rebuild\" makes one as configured\n", g.Misplaced, g.Name)
		}
		for _, p := range g.Partitions {
			if p.Stopped != nil {
				fmt.Fprintf(a.out, "\n%s of generation %s %s\n", domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, g.Name, p.Stopped)
			}
		}
	}
	trimmed := domain.Position{}
	for _, p := range s.Trimmed {
		trimmed[domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.First
	}
	for _, text := range app.TrimmedTexts(trimmed) {
		fmt.Fprintf(a.out, "\n%s\n", text)
	}
	if s.Untold {
		fmt.Fprintf(a.out, "\nthe switch to %[1]s is not in the log yet: \"quartermaster generation switch %[1]s\" appends it\n", s.Active)
	}
	if len(s.Switches) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("switched", "from", "to", "by", "partitions with losses", "reason")
		for _, w := range s.Switches[:min(len(s.Switches), app.ShownRuns)] {
			t.AppendRow([]any{w.At, w.From, w.To, w.Operator, len(w.Lost), w.Reason})
		}
		t.Render()
	}
	if len(s.Instances) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("instance", "method", "state", "since", "last heard")
		for _, in := range s.Instances {
			state := "dead"
			switch {
			case in.Alive && in.Sharing:
				state = "sharing"
			case in.Alive:
				state = "alive"
			}
			t.AppendRow([]any{in.Name, in.Method, state, in.Started.Format(time.RFC3339), in.Until.Format(time.RFC3339)})
		}
		t.Render()
	}
	if len(s.Runs) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("job", "for", "state", "instance", "attempts", "started", "outcome")
		for _, r := range s.Runs {
			t.AppendRow([]any{r.Job, r.Input, r.State, r.Instance, r.Attempts, r.Started.Format(time.RFC3339), cmp.Or(r.Error, r.Outcome)})
		}
		t.Render()
	}
	for _, g := range s.Generations {
		if g.Active && g.Method != s.Method {
			fmt.Fprintf(a.out, "\nthe active generation was made by other folds (%s) than this program's (%s)\n", g.Method, s.Method)
		}
	}
}

func (a *Program) generationDropCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Remove a generation and its rows",
		Long: `Drop removes a generation that is not active. If instances are folding it, drop needs --force;
the instances notice and stop. A rebuild can create its rows again, because everything is in the
log.`,
		Example: "  quartermaster generation drop a --config quartermaster.yaml --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.caller().DropGeneration(cmd.Context(), args[0], force); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(map[string]string{"dropped": args[0]})
			}
			fmt.Fprintf(a.out, "generation %s is dropped\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if instances fold it")
	return cmd
}
