package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) operatorRevokeCommand() *cobra.Command {
	var workspace, publicOf, text, reason, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "revoke NAME --reason TEXT",
		Short: "End an operator's right to decide in a workspace",
		Long: `Revoke ends an operator's right to decide in a workspace from now on, with all their keys or only
with the key of --public-key-of. Earlier decisions stay in force. A decision that is appended later
has no effect, whatever its date.

An admin of the workspace can revoke, or an admin of the workspace whose operators decide
everywhere. Operators may give up their own keys. The last admin of the workspace whose operators
decide everywhere cannot be revoked. Register another admin first, also to replace a stolen key.`,
		Example: "  quartermaster operator revoke ana --reason \"left the company\"\n" +
			"  quartermaster operator revoke ci --workspace research --public-key-of ci.pub.pem --reason \"key rotated\" --dry-run",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			var public []byte
			if text != "" && publicOf != "" {
				return commandline.Usagef("give --public-key-of FILE or --public-key BASE64, not both")
			}
			if text != "" {
				var err error
				if public, err = publicKey(text); err != nil {
					return commandline.Usagef("--public-key: %w", err)
				}
			}
			if publicOf != "" {
				var err error
				if public, err = keyfile.LoadPublic(publicOf); err != nil {
					return err
				}
			}
			ctx := cmd.Context()
			var ans *app.Revocation
			by, at, err := a.change(ctx, key, dryRun, func() (draft app.Draft, err error) {
				ans, draft, err = a.caller().RevokeOperator(ctx, workspace, args[0], public, reason)
				return draft, err
			})
			if err != nil {
				return err
			}
			if ans.Revoked = !dryRun; !dryRun {
				ans.At, ans.By = at, by
			}
			if a.json {
				return a.answerJSON(ans)
			}
			for _, g := range ans.Keys {
				fmt.Fprintf(a.out, "%s, %s of workspace %s since %s, with a key of %s\n", g.Operator, g.Role, g.Workspace, day(g.From), g.RegisteredBy)
			}
			if dryRun {
				fmt.Fprintln(a.out, "nothing revoked: this was a dry run")
				return nil
			}
			fmt.Fprintf(a.out, "%s may no longer decide in workspace %s, signed by %s\n", ans.Operator, ans.Workspace, ans.By)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", app.Platform, "workspace of the revoked right")
	f.StringVar(&publicOf, "public-key-of", "", "key file of the key to revoke (default all keys of the operator)")
	f.StringVar(&text, "public-key", "", "the key to revoke: 32 bytes of Ed25519, in base64")
	f.StringVar(&reason, "reason", "", "reason, kept in the log (required)")
	must(cmd.MarkFlagRequired("reason"))
	f.BoolVar(&dryRun, "dry-run", false, "show what would be revoked and append nothing")
	keyFlag(cmd, &key)
	return cmd
}
