package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

func (a *Program) getCommand() *cobra.Command {
	var workspace, asOf string
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show the declarations in force, since when, and who decided them",
		Long: `Get shows what is in force: the last valid declaration of each thing, unless it is over.
Things announced with a start of their own (a commitment, a budget, a maintenance window) are
shown before they begin. An outage or a correction of usage is shown until it is cancelled, a
legal hold until it is lifted, and a removal for ever.

Kinds: ` + strings.Join(app.DeclaredKinds(), ", ") + `.
Rules are the mapping rules. Commitments are shown with their remaining terms. An operator has
one entry for each key that may decide. Things that need no signature, such as an offer, show
their source instead of an operator.

With --as-of, get shows what was in force at that time. To change or end something, apply a new
declaration or an end; or use "operator revoke", "node drain|retire" or
"commitment renew|end". "decisions list" shows all decisions.`,
		Example: "  quartermaster get policies\n  quartermaster get operators --workspace platform\n  quartermaster get commitments --as-of 2026-05-01",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			ans, err := a.caller().Get(cmd.Context(), app.At(asOf), args[0], name, workspace)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showDeclared(ans, filtersText(workspace, "", ""))
			return nil
		},
		ValidArgs: app.DeclaredKinds(),
	}
	cmd.Flags().StringVar(&workspace, "workspace", "", "only declarations of this workspace")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showDeclared(ans *app.Declared, filters string) {
	if len(ans.Entries) == 0 {
		fmt.Fprintf(a.out, "no %s in force at %s%s; --as-of names another time\n", ans.Kind, moment(ans.At), filters)
		a.showProgram()
		return
	}
	t := a.table("workspace", "name", "declared", "since", "until", "decided by")
	for i := range ans.Entries {
		s := &ans.Entries[i]
		by := s.DecidedBy
		if by == "" {
			by = "source " + s.Source
		}
		t.AppendRow(table.Row{s.Workspace, s.Name, declaredText(s), day(s.Since), day(s.Until), by})
	}
	t.Render()
	a.showProgram()
}

// declaredText summarises a declaration.
func declaredText(s *registry.Statement) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	list := func(name string, values []string) {
		if len(values) > 0 {
			add("%s %s", name, strings.Join(values, ", "))
		}
	}
	switch d := s.Declared.(type) {
	case *domain.WorkspaceRegistered:
		add("%s", d.Name)
		if d.Parent != "" {
			add("of %s", d.Parent)
		}
		if d.Currency != "" {
			add("in %s", d.Currency)
		}
		if d.Owner != "" {
			add("owner %s", d.Owner)
		}
		if d.CostCentre != "" {
			add("cost centre %s", d.CostCentre)
		}
		if d.Entity != "" {
			add("entity %s", d.Entity)
		}
	case registry.Grant:
		add("%s", d.Role)
		for _, m := range d.AuthorityLimits {
			add("up to %s", m)
		}
	case *domain.PolicySet:
		add("%s", d.Kind)
		if d.Value != "" {
			add("%s", d.Value)
		}
		if d.Share.Valid {
			add("%s", d.Share.Decimal)
		}
		for _, column := range slices.Sorted(maps.Keys(d.Columns)) {
			add("%s=%s", column, d.Columns[column])
		}
		for _, s := range d.Substitutes {
			add("%s %s for one %s", s.GPUs, s.By, s.For)
		}
		if d.Standby != "" {
			add("in %s", d.Standby)
		}
		for _, p := range d.Pools {
			add("%s %s", p.Pool, cmp.Or(strings.ReplaceAll(string(p.By), "_", " "), "by weights"))
		}
		list("countries", d.Countries)
		list("certifications", d.Certifications)
		list("clusters", d.Clusters)
		if d.Scope != "" {
			add("by %s", d.Scope)
		}
	case *domain.QuotaSet:
		add("%s %s", d.Limit, d.Resource)
		list("of", slices.DeleteFunc([]string{d.GPUModel, d.Region}, func(s string) bool { return s == "" }))
		add("%s", hardness(d.Hard))
	case *domain.BudgetSet:
		add("%s %s for %s to %s", d.Amount, d.Basis, day(d.Period.From), day(d.Period.To))
		add("%s", hardness(d.Hard))
	case *domain.MappingRuleSet:
		for _, column := range slices.Sorted(maps.Keys(d.Columns)) {
			add("%s=%s", column, d.Columns[column])
		}
		list("cluster", slices.DeleteFunc([]string{d.Cluster}, func(s string) bool { return s == "" }))
		list("namespace", slices.DeleteFunc([]string{d.Namespace}, func(s string) bool { return s == "" }))
		if d.ToWorkspace != "" {
			add("to %s", strings.TrimSuffix(d.ToWorkspace+"/"+d.ToDeployment, "/"))
		}
		for _, s := range d.ToShares {
			add("%d parts to %s", s.Weight, s.Workspace)
		}
		if d.ToShareBy != "" {
			add("shared %s", strings.ReplaceAll(string(d.ToShareBy), "_", " "))
		}
		if d.Buys != "" {
			add("buys %s", d.Buys)
		}
	case *domain.MethodChanged:
		add("version %s", d.Version)
	case *domain.RegionDefined:
		add("%s, %d round trips", d.Country, len(d.RoundTrips))
		if d.UTCOffset != "" {
			add("UTC%s", d.UTCOffset)
		}
	case *domain.ClusterRegistered:
		add("%s %s in %s", d.ProviderClass, d.Provider, d.Region)
		if d.Shards > 1 {
			add("%d shards", d.Shards)
		}
	case *domain.OnDemandQuotaSet:
		add("%d GPUs", d.LimitGPUs)
	case *domain.TariffSet:
		add("%s per kWh, PUE %s", d.PerKWh, d.PUE)
	case *domain.DeploymentChanged:
		add("%s, %d replicas", d.Class, d.Replicas)
	case *domain.MaintenanceScheduled:
		add("%s to %s", d.Window.From, d.Window.To)
		list("nodes", d.Nodes)
	case *domain.OutageDeclared:
		add("%s to %s", d.Window.From, d.Window.To)
		list("nodes", d.Nodes)
	case *domain.UsageCorrected:
		who := strings.TrimSuffix(d.Workspace+"/"+d.Deployment, "/")
		if d.Workspace == "" {
			who = "nobody"
		}
		add("%s of %s held by %s, %s to %s", d.GPU, d.Node, who, d.Interval.From, d.Interval.To)
	case *domain.LegalHoldSet:
		list("workspace", slices.DeleteFunc([]string{d.Workspace}, func(s string) bool { return s == "" }))
		list("cluster", slices.DeleteFunc([]string{d.Cluster}, func(s string) bool { return s == "" }))
		if d.Period != (domain.Interval{}) {
			add("%s to %s", day(d.Period.From), day(d.Period.To))
		}
		if len(parts) == 0 {
			add("everything")
		}
		add("because %s", d.Reason)
	case *domain.RemovalStarted:
		add("removing %s by policy %s (%s)", removedText(d.What, d.Removed), d.Policy, d.Rule)
	case *domain.RecordsRemoved:
		add("removed %s by policy %s (%s)", removedText(d.What, d.Removed), d.Policy, d.Rule)
		list("the rest is held by", d.Holds)
	case market.OfferEntry:
		add("%s %s, %d x %s, %s %s an hour", d.Kind, d.SKU, d.GPUCount, d.Model, d.Hourly, d.Currency)
	case planning.CommitmentEntry:
		t := &d.Terms[0]
		add("%d units of %s (%d x %s), %s an hour each", t.Units, d.SKU, d.GPUsPerUnit, d.Model, t.Hourly)
		if n := len(d.Terms); n > 1 {
			add("%d terms", n)
		}
	}
	return strings.Join(parts, ", ")
}

func hardness(hard bool) string {
	if hard {
		return "hard"
	}
	return "soft"
}
