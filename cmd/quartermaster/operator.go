package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/wire"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// platform is the workspace that every home begins with.
const platform = "platform"

// signer signs decisions with a key from a file.
type signer struct {
	name string
	key  ed25519.PrivateKey
}

func (s signer) sign(env *domain.Envelope) error {
	if !domain.NeedsSignature(env.Event.Type()) {
		return nil
	}
	return wire.Sign(env, s.name, s.key)
}

// signAll makes events ready to be appended.
func (s signer) signAll(envs []domain.Envelope) ([]*domain.Envelope, error) {
	ptrs := make([]*domain.Envelope, len(envs))
	for i := range envs {
		env := &envs[i]
		if domain.NeedsSignature(env.Event.Type()) {
			env.Time = now() // a decision is made now, whenever it takes effect
		}
		if err := domain.Validate(env); err != nil {
			return nil, err
		}
		if err := s.sign(env); err != nil {
			return nil, err
		}
		ptrs[i] = env
	}
	return ptrs, nil
}

func (a *app) keyPath() string { return filepath.Join(a.dir, "operator.pem") }

// signer returns who signs this command's decisions. In a home without any
// operator it makes the first one.
func (h *home) signer(ctx context.Context, path string) (signer, error) {
	var ops []registry.Grant
	if err := h.view(ctx, func(v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		ops = slices.DeleteFunc(auth.Grants(), func(g registry.Grant) bool { return g.To != 0 && g.To <= now() })
		return nil
	}); err != nil {
		return signer{}, err
	}
	if path == "" && h.app.dir == "" {
		return signer{}, commandline.Usagef("name your private key with --key FILE: there is no home to look for it in")
	}
	if len(ops) == 0 && path == "" {
		return h.firstOperator(ctx)
	}
	if path == "" {
		path = h.app.keyPath()
	}
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return signer{}, &application.DeniedError{Err: fmt.Errorf("no operator's key at %s: name yours with --key FILE; operators here are %s", path, operatorNames(ops))}
	}
	if err != nil {
		return signer{}, err
	}
	for _, op := range ops {
		if bytes.Equal(op.PublicKey, key.Public().(ed25519.PublicKey)) {
			return signer{op.Operator, key}, nil
		}
	}
	return signer{}, &application.DeniedError{Err: fmt.Errorf("the key in %s belongs to no registered operator; an admin registers it with \"quartermaster operator add NAME --public-key-of %s --role ROLE\"", path, path)}
}

// firstOperator makes the home's first workspace, operator and key.
func (h *home) firstOperator(ctx context.Context) (signer, error) {
	path := h.app.keyPath()
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		// In production nothing else needs the directory, and nothing has made it.
		if err = os.MkdirAll(h.app.dir, 0o700); err == nil {
			key, err = keyfile.Create(path)
		}
	}
	if err != nil {
		return signer{}, fmt.Errorf("make the first operator's key: %w", err)
	}
	s := signer{firstName(), key}
	at := now()
	envs := []domain.Envelope{
		{Time: at, Subject: platform, Workspace: platform, Event: &domain.WorkspaceRegistered{Name: "Platform"}},
		{Time: at, Subject: s.name, Workspace: platform, Event: &domain.OperatorRegistered{
			Operator: s.name, PublicKey: key.Public().(ed25519.PublicKey), Role: domain.RoleAdmin,
		}},
	}
	if err := h.decide(ctx, "first-operator", s, envs); err != nil {
		return signer{}, err
	}
	h.app.note("this home had no operator yet: made %q, an admin of workspace %q, whose key is %s; keep it safe, it signs your decisions", s.name, platform, path)
	return s, nil
}

// refused returns an error that names every event whose signer has no right to
// decide it.
func refused(v projections.View, envs []*domain.Envelope) error {
	auth, err := registry.NewAuthority(v)
	if err != nil || auth.Root() == "" { // the first operator registers himself
		return err
	}
	return refusedBy(auth, v, envs)
}

// refusedBy is refused for the rights of an authority.
func refusedBy(auth *registry.Authority, v projections.View, envs []*domain.Envelope) error {
	var errs []error
	reasons, err := auth.Refusals(v, envs)
	if err != nil {
		return err
	}
	for i, reason := range reasons {
		if reason != "" {
			errs = append(errs, fmt.Errorf("%s %s would take no effect: %s", envs[i].Event.Type(), envs[i].Subject, reason))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("nothing was appended; an admin changes what an operator may do with \"quartermaster operator add NAME --role ROLE --limit AMOUNT --public-key-of FILE\""))
	}
	if len(errs) > 0 {
		return &application.DeniedError{Err: errors.Join(errs...)}
	}
	return nil
}

func firstName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return strings.ToValidUTF8(u.Username, "?")
	}
	return "first"
}

// decide signs and appends events, and folds them. Nothing is appended when any
// of them would take no effect.
func (h *home) decide(ctx context.Context, command string, s signer, envs []domain.Envelope) error {
	ptrs, err := s.signAll(envs)
	if err != nil {
		return err
	}
	if err := h.view(ctx, func(v projections.View) error { return refused(v, ptrs) }); err != nil {
		return err
	}
	if err := h.stream(command).Append(ctx, ptrs...); err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	return h.catchUp(ctx)
}

func operatorNames(ops []registry.Grant) string {
	if len(ops) == 0 {
		return "none yet"
	}
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.Operator
	}
	return strings.Join(names, ", ")
}

// operatorAnswer is what operator add answers.
type operatorAnswer struct {
	Operator  string   `json:"operator"`
	Workspace string   `json:"workspace"`
	Role      string   `json:"role"`
	Limits    []string `json:"limits,omitempty"`
	PublicKey string   `json:"public_key"` // PEM
	KeyFile   string   `json:"key_file,omitempty"`
}

func (a *app) operatorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "operator", Short: "Register who may decide"}
	var (
		workspace, role, newKey, publicOf, key string
		limits                                 []string
	)
	add := &cobra.Command{
		Use:   "add NAME",
		Short: "Register an operator with a public key, a role and an authority limit",
		Long: `Add registers a person or program that may decide in a workspace. Their
decisions are signed with their Ed25519 key; the log keeps the public half.

Roles: admin (registers operators, policies), finance, planner, auditor,
operator. --limit bounds the money that one decision may commit in a currency; in a
currency without one it may commit none. Registered again, an operator has the limits
that are given then, and no others. Nobody raises a limit of their own.

Give the public half of a key that they made themselves (--public-key-of, a
public or private key file in PEM), or have a new key made (--new-key FILE).

JSON keys: operator, workspace, role, limits, public_key, key_file.`,
		Example: "  quartermaster operator add ana --role planner --limit \"250000 USD\" --limit \"200000 EUR\" --new-key ana.pem\n" +
			"  quartermaster operator add ci --role operator --public-key-of ci.pub.pem --key admin.pem",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
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
			if (newKey == "") == (publicOf == "") {
				return errors.New("give either --public-key-of FILE or --new-key FILE")
			}
			return a.with(cmd.Context(), func(h *home) error {
				s, err := h.signer(cmd.Context(), key)
				if err != nil {
					return err
				}
				if newKey != "" {
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
				if err := h.decide(cmd.Context(), "operator-add", s, []domain.Envelope{
					{Time: now(), Subject: args[0], Workspace: workspace, Event: reg},
				}); err != nil {
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
			})
		},
	}
	f := add.Flags()
	f.StringVar(&workspace, "workspace", platform, "workspace that they decide in")
	f.StringVar(&role, "role", "", "admin, finance, planner, auditor or operator (required)")
	must(add.MarkFlagRequired("role"))
	f.StringArrayVar(&limits, "limit", nil, "most that one decision may commit in a currency, for example \"250000 USD\"; may be given again")
	f.StringVar(&newKey, "new-key", "", "make a key pair and write it to this file")
	f.StringVar(&publicOf, "public-key-of", "", "key file whose public half is registered")
	keyFlag(add, &key)
	cmd.AddCommand(add)
	return cmd
}

func keyFlag(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "key", "", "your private key file (default operator.pem in the home)")
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
