package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Who may read what over the API: grants, and keys of service accounts",
		Long: `Over the API nobody sees anything without a grant. A grant gives somebody a role in a workspace,
and in those below it:

  user:PROVIDER/SUBJECT   somebody whom an identity provider knows
  group:PROVIDER/GROUP    whoever the provider says is in the group
  account:NAME            a service account, for programs

PROVIDER is the name that the configuration of the server gives the identity provider. What a
role sees is in the reference, "who sees what".

Grants and keys are decisions: an admin of the workspace signs them.`,
	}
	key := &cobra.Command{Use: "key", Short: "Issue and revoke keys of service accounts"}
	key.AddCommand(a.serviceKeyIssueCommand(), a.serviceKeyRevokeCommand())
	cmd.AddCommand(a.accessGrantCommand(), a.accessRevokeCommand(), a.accessEndCommand(), a.accessListCommand(), key)
	return cmd
}

func roleNames() string {
	names := []string{}
	for _, r := range domain.Grantable() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

func (a *Program) accessGrantCommand() *cobra.Command {
	var g domain.AccessGranted
	var workspace, role, until, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "grant PRINCIPAL",
		Short: "Give somebody a role in a workspace",
		Long: `Grant lets somebody read what a role may read, in a workspace and in those below it. A grant in
the workspace platform is for the whole estate. With --cluster it is only for what is in these
clusters. A grant of the same id is replaced. The id is ROLE:PRINCIPAL unless --id is given.

A group has the members that its identity provider says, each time somebody asks.`,
		Example: "  quartermaster access grant user:corp/248289761001 --role viewer --workspace research\n" +
			"  quartermaster access grant group:corp/finance --role finance --until 2027-01-01\n" +
			"  quartermaster access grant account:dashboard --role viewer --workspace research --cluster train-eu",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			g.Principal, g.Role = domain.Principal(args[0]), domain.Role(role)
			if err := timeFlag("until", until, &g.Until); err != nil {
				return err
			}
			return a.changeAccess(cmd.Context(), key, dryRun, func() (*app.AccessChange, app.Draft, error) {
				return a.caller().Grant(cmd.Context(), workspace, &g)
			}, func(c *app.AccessChange) string {
				return fmt.Sprintf("%s may read what a %s may, in workspace %s: grant %s", c.Principal, c.Role, c.Workspace, c.Grant)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "role: "+roleNames())
	f.StringVar(&workspace, "workspace", app.Platform, "workspace")
	f.StringSliceVar(&g.Clusters, "cluster", nil, "only what is in this cluster; repeatable")
	f.StringVar(&until, "until", "", "when the grant ends (RFC 3339, date or month; default when it is revoked)")
	f.StringVar(&g.Grant, "id", "", "id of the grant (default ROLE:PRINCIPAL)")
	f.BoolVar(&dryRun, "dry-run", false, "say whether it would take effect, and grant nothing")
	keyFlag(cmd, &key)
	must(cmd.MarkFlagRequired("role"))
	return cmd
}

func (a *Program) accessRevokeCommand() *cobra.Command {
	var workspace, reason, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "revoke GRANT",
		Short:   "End a grant at once",
		Long:    `Revoke ends a grant. Every server refuses within five seconds.`,
		Example: "  quartermaster access revoke viewer:user:corp/248289761001 --workspace research --reason \"left the team\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			return a.changeAccess(cmd.Context(), key, dryRun, func() (*app.AccessChange, app.Draft, error) {
				return a.caller().Revoke(cmd.Context(), workspace, args[0], reason)
			}, func(c *app.AccessChange) string {
				return fmt.Sprintf("grant %s of %s in workspace %s is revoked", c.Grant, c.Principal, c.Workspace)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", app.Platform, "workspace")
	f.StringVar(&reason, "reason", "", "reason, kept in the log")
	f.BoolVar(&dryRun, "dry-run", false, "say whether it would take effect, and revoke nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) accessEndCommand() *cobra.Command {
	var workspace, reason, key string
	cmd := &cobra.Command{
		Use:   "end-sessions PRINCIPAL",
		Short: "End what an identity provider gave somebody before now",
		Long: `End-sessions ends the sessions and access tokens that somebody has: every server refuses those
that were issued before now, within five seconds, also while the identity provider is away. Grants
stay, so whoever can log in again may read again.

An admin or operator of the workspace signs.`,
		Example: "  quartermaster access end-sessions user:corp/248289761001 --reason \"laptop lost\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			return a.changeAccess(cmd.Context(), key, false, func() (*app.AccessChange, app.Draft, error) {
				return a.caller().EndSessions(cmd.Context(), workspace, domain.Principal(args[0]), reason)
			}, func(c *app.AccessChange) string {
				return fmt.Sprintf("what %s was given before %s is not valid any more", c.Principal, c.At)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", app.Platform, "workspace that the event is about")
	f.StringVar(&reason, "reason", "", "reason, kept in the log")
	keyFlag(cmd, &key)
	return cmd
}

// changeAccess has a decision about who may read decided, and says what was done.
func (a *Program) changeAccess(
	ctx context.Context, key string, dryRun bool, drafted func() (*app.AccessChange, app.Draft, error), done func(*app.AccessChange) string,
) error {
	var ans *app.AccessChange
	by, at, err := a.change(ctx, key, dryRun, func() (draft app.Draft, err error) {
		ans, draft, err = drafted()
		return draft, err
	})
	if err != nil {
		return err
	}
	ans.Operator, ans.At = by, at
	if a.json {
		return a.answerJSON(ans)
	}
	if dryRun {
		fmt.Fprintln(a.out, "it would take effect; nothing appended: this was a dry run")
		return nil
	}
	fmt.Fprintln(a.out, done(ans))
	return nil
}

func (a *Program) serviceKeyIssueCommand() *cobra.Command {
	var workspace, file, key string
	var overlap, expires time.Duration
	cmd := &cobra.Command{
		Use:   "issue ACCOUNT",
		Short: "Create a key of a service account; a previous one stays valid for a while",
		Long: `Issue creates a key of a service account, with which a program asks the API. The key is shown only
once. The log keeps an HMAC of it, from which it cannot be recovered. If the account has a key,
that stays valid for --overlap, so that you can give the new one to programs one at a time.

The account sees nothing without a grant: "quartermaster access grant account:NAME".

An admin of the workspace signs.`,
		Example: "  quartermaster access key issue dashboard --workspace research --expires 2160h --key-file dashboard.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := newKeyFlags{operator: key, expires: expires, file: file}
			if err := errors.Join(a.NotDemo(), flags.check()); err != nil {
				return err
			}
			var ans *app.ServiceKeyChange
			wrote := false
			by, at, err := a.change(cmd.Context(), key, false, func() (draft app.Draft, err error) {
				ans, draft, err = a.caller().IssueServiceKey(cmd.Context(), workspace, args[0], domain.Instant(overlap), flags.end(app.Now()))
				if err == nil && file != "" { // first, because a key that is only in the log is useless
					if err = writeNew(file, ans.Key+"\n"); err == nil {
						ans.Key, ans.KeyFile, wrote = "", file, true
					}
				}
				return draft, err
			})
			if err != nil {
				if wrote {
					err = errors.Join(err, os.Remove(file))
				}
				return err
			}
			ans.Operator, ans.At = by, at
			if a.json {
				return a.answerJSON(ans)
			}
			if ans.KeyFile != "" {
				fmt.Fprintf(a.out, "key %s of account %s in workspace %s is in %s\n", ans.KeyID, ans.Account, ans.Workspace, ans.KeyFile)
			} else {
				fmt.Fprintf(a.out, "key %s of account %s in workspace %s, shown only once:\n\n  %s\n\n", ans.KeyID, ans.Account, ans.Workspace, ans.Key)
			}
			if ans.Expires != 0 {
				fmt.Fprintf(a.out, "it expires at %s\n", ans.Expires)
			}
			if ans.Previous != "" {
				fmt.Fprintf(a.out, "key %s is valid until %s: give the new one to programs before then\n", ans.Previous, ans.PreviousUntil)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", app.Platform, "workspace of the account")
	f.DurationVar(&overlap, "overlap", 24*time.Hour, "how long the previous key stays valid")
	f.DurationVar(&expires, "expires", 0, "lifetime of the new key, for example 2160h (default unlimited)")
	f.StringVar(&file, "key-file", "", "write the new key to this file, readable by its owner only, instead of printing it")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) serviceKeyRevokeCommand() *cobra.Command {
	var reason, key string
	cmd := &cobra.Command{
		Use:     "revoke KEY-ID",
		Short:   "Revoke a key of a service account at once",
		Long:    `Revoke ends a key: every server refuses it within five seconds. An admin of the workspace signs.`,
		Example: "  quartermaster access key revoke k7ymqv3x2a --reason \"seen in a build log\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			var ans *app.ServiceKeyChange
			by, at, err := a.change(cmd.Context(), key, false, func() (draft app.Draft, err error) {
				ans, draft, err = a.caller().RevokeServiceKey(cmd.Context(), args[0], reason)
				return draft, err
			})
			if err != nil {
				return err
			}
			ans.Operator, ans.At = by, at
			if a.json {
				return a.answerJSON(ans)
			}
			fmt.Fprintf(a.out, "key %s of account %s in workspace %s is revoked\n", ans.KeyID, ans.Account, ans.Workspace)
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, kept in the log")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) accessListCommand() *cobra.Command {
	var f app.AccessFilter
	var principal, asOf string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"review"},
		Short:   "List who may read what, when they last did, and what to look at",
		Long: `List shows every grant and every key of a service account, with the minute in which it was last
used. For a review it names what was never used or not for 90 days, admins without an end,
accounts without a key and keys whose account has no grant. When the members of a group last
asked is in "quartermaster audit access".`,
		Example: "  quartermaster access list\n  quartermaster access list --workspace research --past -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Principal = domain.Principal(principal)
			ans, err := a.caller().AccessList(cmd.Context(), app.At(asOf), f)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAccess(ans)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Workspace, "workspace", "", "only of this workspace")
	flags.StringVar(&principal, "principal", "", "only of this principal")
	flags.BoolVar(&f.Past, "past", false, "also what does not count any more")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showAccess(ans *app.AccessList) {
	state := func(live bool, until domain.Instant, why string) string {
		switch {
		case !live:
			return fmt.Sprintf("no, since %s: %s", moment(until), why)
		case until != 0:
			return "until " + moment(until)
		}
		return "yes"
	}
	if len(ans.Grants) == 0 {
		fmt.Fprintln(a.out, "nobody may read anything over the API, except whoever owns its socket")
	} else {
		t := a.table("principal", "role", "workspace", "clusters", "valid", "granted by", "last used", "look at")
		for i := range ans.Grants {
			g := &ans.Grants[i]
			t.AppendRow(table.Row{
				g.Principal, g.Role, g.Workspace, strings.Join(g.Clusters, ", "), state(g.Live, g.To, g.Why), g.GrantedBy, moment(g.LastUsed), strings.Join(g.Warnings, "; "),
			})
		}
		t.Render()
	}
	if len(ans.Keys) > 0 {
		t := a.table("account", "workspace", "key", "issued", "valid", "last used", "look at")
		for i := range ans.Keys {
			k := &ans.Keys[i]
			t.AppendRow(table.Row{k.Account, k.Workspace, k.KeyID, moment(k.Issued), state(k.Live, k.Until, k.Why), moment(k.LastUsed), strings.Join(k.Warnings, "; ")})
		}
		t.Render()
	}
}
