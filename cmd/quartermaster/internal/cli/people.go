package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
)

// namedAnswer is the answer of "people name".
type namedAnswer struct {
	Person string `json:"person"`
}

func (a *Program) peopleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "people",
		Short: "Name the people behind the ids of operators, and erase their names",
		Long: `Decisions name people by ids, which should not tell who they are: the log is never changed. What people
are called is in the log, too, sealed with a key of each person, which is kept outside of it. Destroying the key
erases the name; all bytes of the log stay, and so does every proof.

A retention policy says when: a number of days after the last role of a person ended. A legal hold of everything, or
of a workspace in which the person had a role, keeps the name.

  policies:
    - {id: people, kind: retention, scope: people, value: 365 days}`,
	}
	cmd.AddCommand(a.peopleListCommand(), a.peopleNameCommand(), a.peopleEraseCommand())
	return cmd
}

func (a *Program) peopleListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List operators with their names, as far as they can be read here",
		Example: "  quartermaster people list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.caller().People(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(list)
			}
			t := a.table("person", "name", "roles", "erasable from", "held by")
			for i := range list {
				p := &list[i]
				var roles []string
				for _, r := range p.Roles {
					text := string(r.Role)
					if r.Workspace != app.Platform {
						text += " of " + r.Workspace
					}
					if r.To != 0 {
						text += " until " + day(r.To)
					}
					roles = append(roles, text)
				}
				name := p.Name
				switch p.State {
				case app.NameUnknown:
					name = "(unnamed)"
				case app.NameErased:
					name = "(erased " + p.Erased + ")"
				case app.NameKeyMissing:
					name = "(the key is not here)"
				case app.NameKeyDamaged:
					name = "(the key file is damaged, or open to others)"
				}
				t.AppendRow(table.Row{clipped(p.Person), clipped(name), strings.Join(roles, ", "), p.From, strings.Join(p.Holds, ", ")})
			}
			t.Render()
			return nil
		},
	}
}

func (a *Program) peopleNameCommand() *cobra.Command {
	var name, key string
	cmd := &cobra.Command{
		Use:   "name PERSON",
		Short: "Say what an operator is called",
		Long: `Say what an operator is called. The name is sealed before it is appended. An admin signs it.

Without --name it is the first line of standard input, which leaves it out of the history of the shell.`,
		Example: "  quartermaster people name p-17\n" +
			"  quartermaster people name p-17 --name 'Ana Example'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("name") {
				line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 1<<16)).ReadString('\n')
				if err != nil && !errors.Is(err, io.EOF) {
					return fmt.Errorf("read the name: %w", err)
				}
				name = line
			}
			s, err := a.signer(cmd.Context(), key)
			if err != nil {
				return err
			}
			draft, err := a.caller().NamePerson(cmd.Context(), args[0], strings.TrimSpace(name))
			if err != nil {
				return err
			}
			if err := a.decide(cmd.Context(), s, draft); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(namedAnswer{args[0]})
			}
			fmt.Fprintf(a.out, "the name of %s is in the log, sealed\n", clipped(args[0]))
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the name (default: the first line of standard input)")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) peopleEraseCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "erase PERSON",
		Short: "Erase the name of a person by destroying its key",
		Long: `Erase the name of a person by destroying its key. Nobody can undo it. The retention policy must let go of
the name by now, and no legal hold may keep it; the schedule of removals and "retention run" then do the same for
all. The removal is in the log before it begins and when it ended.

Copies of the key in backups must go, too. Exports and statements have no names.`,
		Example: "  quartermaster people erase p-17 --dry-run\n  quartermaster people erase p-17",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			ans, err := a.caller().ErasePerson(cmd.Context(), args[0], app.Now(), dryRun)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			switch {
			case len(ans.Removed) == 0:
				fmt.Fprintf(a.out, "the name of %s was erased already\n", clipped(args[0]))
			case dryRun:
				fmt.Fprintf(a.out, "the name of %s would be erased, by policy %s\n", clipped(args[0]), ans.Policy)
			default:
				fmt.Fprintf(a.out, "removal %s: the key of the name of %s was destroyed\n", ans.Removal, clipped(args[0]))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say whether the name would be erased")
	return cmd
}
