package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/manifest"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// applyAnswer is what apply answers.
type applyAnswer struct {
	Changes   []change `json:"changes"`
	Notices   []notice `json:"notices"`
	Unchanged int      `json:"unchanged"`
	Applied   bool     `json:"applied"`
	Operator  string   `json:"operator,omitempty"`
}

type change struct {
	Action string       `json:"action"` // add or change
	Type   domain.Type  `json:"type"`
	Of     string       `json:"of"` // workspace or cluster
	Name   string       `json:"name"`
	Before domain.Event `json:"before,omitempty"`
	After  domain.Event `json:"after"`
}

// notice says of something declared what its author may not expect.
type notice struct {
	Type   domain.Type `json:"type"`
	Of     string      `json:"of"` // workspace or cluster
	Name   string      `json:"name"`
	Notice string      `json:"notice"`
}

// notYetEnforced is said of quotas and budgets of workspaces.
const notYetEnforced = "recorded, and not yet enforced: no plan keeps to it, and nobody is notified when it is exceeded"

// noticeOf returns what must be said of a declaration, changed or not.
func noticeOf(env *domain.Envelope) (notice, bool) {
	switch env.Event.(type) {
	case *domain.QuotaSet, *domain.BudgetSet:
		return notice{Type: env.Event.Type(), Of: scopeOf(env), Name: env.Subject, Notice: notYetEnforced}, true
	}
	return notice{}, false
}

func (a *app) applyCommand() *cobra.Command {
	var (
		files  []string
		dryRun bool
		key    string
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Declare workspaces, clusters, policies, prices and more from a file",
		Long: `Apply reads declarations, shows how they differ from what the log says, and
appends what is new as signed events. Applying a file again changes nothing.

` + manifest.Help + `

Quotas and budgets bind no plan yet, and nobody is notified when they are exceeded.
Apply says so of each.

JSON keys: changes (action, type, of, name, before, after), notices (type, of, name,
notice), unchanged, applied, operator.`,
		Example: "  quartermaster apply -f estate.yaml --dry-run\n  quartermaster apply -f estate.yaml -f prices.json --key ana.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.notDemo(); err != nil {
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

func (a *app) apply(ctx context.Context, files []string, dryRun bool, key string) error {
	var (
		envs []domain.Envelope
		refs []manifest.Reference
	)
	declared := map[string]string{} // the file of each thing
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		got, err := manifest.Load(path, f, manifest.Options{Now: now()})
		f.Close()
		if err != nil {
			return &application.InvalidError{Err: err}
		}
		for i := range got.Envelopes {
			id, err := registry.Identity(&got.Envelopes[i])
			if err != nil {
				return err
			}
			if first, twice := declared[id]; twice && first != path {
				return fmt.Errorf("%s: %s %s is declared in %s already; keep one of them", path, got.Envelopes[i].Event.Type(), got.Envelopes[i].Subject, first)
			}
			declared[id] = path
		}
		envs, refs = append(envs, got.Envelopes...), append(refs, got.References...)
	}
	why := appending
	if dryRun {
		why = reading
	}
	return a.use(ctx, why, func(h *home) error {
		ans, todo, err := h.changes(ctx, envs, refs)
		if err != nil {
			return err
		}
		if !a.json {
			a.showChanges(ans)
		}
		if len(todo) > 0 && dryRun {
			if err := h.tryOut(ctx, key, todo); err != nil {
				return err
			}
		}
		if len(todo) > 0 && !dryRun {
			s, err := h.signer(ctx, key)
			if err != nil {
				return err
			}
			// With the first operator came the workspace platform, which the file may declare too.
			if _, todo, err = h.changes(ctx, envs, refs); err != nil {
				return err
			}
			if err := h.decide(ctx, "apply", s, todo); err != nil {
				return err
			}
			ans.Applied, ans.Operator = true, s.name
		}
		if a.json {
			return a.answerJSON(ans)
		}
		switch {
		case ans.Applied:
			fmt.Fprintf(a.out, "applied %d changes, signed by %s\n", len(todo), ans.Operator)
		case dryRun && len(todo) > 0:
			fmt.Fprintln(a.out, "nothing applied: this was a dry run")
		default:
			fmt.Fprintln(a.out, "nothing to do")
		}
		return nil
	})
}

// changes compares declarations with what the log says, and returns those that
// are to be appended.
func (h *home) changes(ctx context.Context, envs []domain.Envelope, refs []manifest.Reference) (applyAnswer, []domain.Envelope, error) {
	ans := applyAnswer{Changes: []change{}, Notices: []notice{}}
	var todo []domain.Envelope
	err := h.view(ctx, func(v projections.View) error {
		if err := resolve(v, envs, refs); err != nil {
			return err
		}
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		for i := range envs {
			if n, ok := noticeOf(&envs[i]); ok {
				ans.Notices = append(ans.Notices, n)
			}
			before, err := registry.Declared(v, auth, &envs[i])
			if err != nil {
				return err
			}
			// It takes effect when the file says, unless that would leave it
			// behind what holds already.
			if before != nil && before.Order.Effective > envs[i].Time {
				envs[i].Time = now()
			}
			c := change{Action: "add", Type: envs[i].Event.Type(), Of: scopeOf(&envs[i]), Name: envs[i].Subject, After: envs[i].Event}
			if before != nil {
				same, err := projections.SameEvent(before.Event, envs[i].Event)
				if err != nil {
					return err
				}
				if same && before.Workspace == envs[i].Workspace {
					ans.Unchanged++
					continue
				}
				c.Action, c.Before = "change", before.Event
			}
			ans.Changes = append(ans.Changes, c)
			todo = append(todo, envs[i])
		}
		return nil
	})
	return ans, todo, err
}

// tryOut says of a dry run what appending would be refused for. In a home without
// operators the rights are those of the first one, who is not made yet.
func (h *home) tryOut(ctx context.Context, key string, todo []domain.Envelope) error {
	var auth *registry.Authority
	if err := h.view(ctx, func(v projections.View) (err error) {
		auth, err = registry.NewAuthority(v)
		return err
	}); err != nil {
		return err
	}
	var (
		s   signer
		err error
	)
	if auth.Root() == "" && key == "" {
		h.app.note("this home has no operator yet; the first one will decide everything but money")
		s.name = firstName()
		if _, s.key, err = ed25519.GenerateKey(nil); err == nil {
			auth = registry.FirstAuthority(platform, s.name, s.key.Public().(ed25519.PublicKey))
		}
	} else {
		s, err = h.signer(ctx, key)
	}
	if err != nil {
		return err
	}
	ptrs, err := s.signAll(slices.Clone(todo))
	if err != nil {
		return err
	}
	return h.view(ctx, func(v projections.View) error { return refusedBy(auth, v, ptrs) })
}

// resolve refuses names that are declared neither in the files nor in the log:
// they are slips of the pen, and would sit in every report.
func resolve(v projections.View, envs []domain.Envelope, refs []manifest.Reference) error {
	if len(refs) == 0 {
		return nil
	}
	known := map[string]map[string]bool{
		"workspace": {platform: true}, "region": {}, "cluster": {},
	}
	tables := map[string]projections.Table{
		"workspace": projections.TableWorkspaces, "region": projections.TableRegions, "cluster": projections.TableClusters,
	}
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return err
	}
	for kind, t := range tables {
		if err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			known[kind][k.ID] = auth.Latest(k, row.(*projections.History)) != nil
			return nil
		}); err != nil {
			return err
		}
	}
	for i := range envs {
		switch ev := envs[i].Event.(type) {
		case *domain.WorkspaceRegistered:
			known["workspace"][envs[i].Workspace] = true
		case *domain.RegionDefined:
			known["region"][ev.Region] = true
		case *domain.ClusterRegistered:
			known["cluster"][envs[i].Cluster] = true
		}
	}
	var errs []error
	for _, r := range refs {
		if ids, ok := known[r.Kind]; ok && !ids[r.ID] {
			errs = append(errs, fmt.Errorf("%s: %s %q is declared neither here nor in the log", r.Where, r.Kind, r.ID))
		}
	}
	if len(errs) > 0 {
		return &application.InvalidError{Err: errors.Join(errs...)}
	}
	return nil
}

func scopeOf(env *domain.Envelope) string {
	if env.Cluster != "" {
		return env.Cluster
	}
	return env.Workspace
}

func (a *app) showChanges(ans applyAnswer) {
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
		if c.Before != nil {
			before, after := fields(c.Before), fields(c.After)
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

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "(none)"
	}
	return s
}
