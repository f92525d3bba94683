package cli

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// operatorAnswer is the answer of "operator add".
type operatorAnswer struct {
	Operator  string   `json:"operator"`
	Workspace string   `json:"workspace"`
	Role      string   `json:"role"`
	Limits    []string `json:"limits,omitempty"`
	PublicKey string   `json:"public_key"` // PEM
	KeyFile   string   `json:"key_file,omitempty"`
}

func (a *Program) operatorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "operator", Short: "Register and revoke operators"}
	var (
		workspace, role, newKey, publicOf, public, key string
		limits                                         []string
	)
	add := &cobra.Command{
		Use:   "add NAME",
		Short: "Register an operator with a public key, a role and an authority limit",
		Long: `Add registers a person or program that may decide in a workspace. They sign decisions with their
Ed25519 key; the log keeps the public key.

Roles: admin (registers operators, sets policies), finance, planner, auditor, operator. --limit
bounds the money that one decision may commit in a currency. Without a limit in a currency, an
operator may commit none in it. Registering an operator again replaces all limits. Operators cannot
raise their own limits.

Give the public half of an existing key (--public-key-of, a public or private key file in PEM, or
--public-key, its 32 bytes in base64), or create a new key (--new-key FILE).`,
		Example: "  quartermaster operator add ana --role planner --limit \"250000 USD\" --limit \"200000 EUR\" --new-key ana.pem\n" +
			"  quartermaster operator add ci --role operator --public-key-of ci.pub.pem --key admin.pem",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			reg := &domain.OperatorRegistered{Operator: args[0], Role: domain.Role(role)}
			ans := operatorAnswer{Operator: args[0], Workspace: workspace, Role: role}
			for _, limit := range limits {
				m, err := parseMoney(limit)
				if err != nil {
					return commandline.Usagef("--limit: %w", err)
				}
				reg.AuthorityLimits = append(reg.AuthorityLimits, m)
			}
			slices.SortFunc(reg.AuthorityLimits, func(a, b domain.Money) int { return strings.Compare(a.Currency, b.Currency) })
			for _, m := range reg.AuthorityLimits {
				ans.Limits = append(ans.Limits, m.String())
			}
			ways := 0
			for _, way := range []string{newKey, publicOf, public} {
				if way != "" {
					ways++
				}
			}
			if ways != 1 {
				return commandline.Usagef("give one of --public-key-of FILE, --public-key BASE64 and --new-key FILE")
			}
			s, err := a.signer(cmd.Context(), key)
			if err != nil {
				return err
			}
			if public != "" {
				if reg.PublicKey, err = publicKey(public); err != nil {
					return commandline.Usagef("--public-key: %w", err)
				}
			} else if newKey != "" {
				priv, err := keyfile.Create(newKey)
				if err != nil {
					return err
				}
				reg.PublicKey, ans.KeyFile = priv.Public().(ed25519.PublicKey), newKey
			} else if reg.PublicKey, err = keyfile.LoadPublic(publicOf); err != nil {
				return err
			}
			if ans.PublicKey, err = keyfile.PublicPEM(reg.PublicKey); err != nil {
				return err
			}
			if err := a.decide(cmd.Context(), s, app.RegisterOperator(workspace, reg)); err != nil {
				if newKey != "" {
					err = errors.Join(err, os.Remove(newKey))
				}
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			commit := ""
			if len(ans.Limits) > 0 {
				commit = ", and commit up to " + strings.Join(ans.Limits, ", ") + " at once"
			}
			fmt.Fprintf(a.out, "operator %s may decide in workspace %s as %s%s\n%s", args[0], workspace, role, commit, ans.PublicKey)
			return nil
		},
	}
	f := add.Flags()
	f.StringVar(&workspace, "workspace", app.Platform, "workspace that the operator decides in")
	f.StringVar(&role, "role", "", "admin, finance, planner, auditor or operator (required)")
	must(add.MarkFlagRequired("role"))
	f.StringArrayVar(&limits, "limit", nil, "maximum that one decision may commit in a currency, for example \"250000 USD\"; repeatable")
	f.StringVar(&newKey, "new-key", "", "create a key pair and write it to this file")
	f.StringVar(&publicOf, "public-key-of", "", "key file with the public key to register")
	f.StringVar(&public, "public-key", "", "public key to register: 32 bytes of Ed25519, in base64")
	keyFlag(add, &key)
	cmd.AddCommand(add, a.operatorRevokeCommand())
	return cmd
}

// publicKey reads a public key: its 32 bytes in base64.
func publicKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is not the base64 of a public key of %d bytes", domain.Clip(text, widest), ed25519.PublicKeySize)
	}
	return key, nil
}

func keyFlag(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "key", "", "your private key file (default operator.pem in the data directory)")
}

func parseMoney(s string) (domain.Money, error) {
	amount, currency, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok {
		return domain.Money{}, fmt.Errorf("%q is not an amount and a currency such as \"250000 USD\"", s)
	}
	d, err := decimal.NewFromString(amount)
	if err != nil || len(amount) > 40 {
		return domain.Money{}, fmt.Errorf("%q is not a decimal number", amount)
	}
	return domain.Money{Amount: d, Currency: strings.TrimSpace(currency)}, nil
}
