package advice_test

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/storetest"

	"github.com/shopspring/decimal"
)

// A policy of workspace platform is about all, of another workspace about that one. One that means nothing takes no effect.
func TestThresholds(t *testing.T) {
	l := storetest.NewLog()
	set := func(workspace, id, rule, value string, edit func(*domain.PolicySet)) {
		p := &domain.PolicySet{Policy: id, Kind: domain.PolicyAdviceThreshold, EffectiveFrom: april.From, Scope: rule, Value: value}
		if edit != nil {
			edit(p)
		}
		l.Append(storetest.Root.Sign(domain.Envelope{Workspace: workspace, Time: april.From, Event: p}))
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "platform", domain.RoleAdmin, nil, april.From),
		storetest.Root.Sign(domain.Envelope{Workspace: "top", Time: april.From, Event: &domain.WorkspaceRegistered{Name: "top"}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "a", Time: april.From, Event: &domain.WorkspaceRegistered{Name: "a", Parent: "top"}}),
	)
	set("platform", "all", "utilization-day", "0.3", func(p *domain.PolicySet) { p.Share = decimal.NewNullDecimal(storetest.Dec("0.5")) })
	set("platform", "one", "utilization-day", "0.2", func(p *domain.PolicySet) { p.Selector.Cluster = "c" })
	set("top", "own", "quota", "90", nil)
	set("top", "off", "budget", "off", nil)
	set("top", "over", "budget", "90", func(p *domain.PolicySet) { p.EffectiveTo = storetest.Start })
	set("top", "later", "budget", "90", func(p *domain.PolicySet) { p.EffectiveFrom = tick + 1 })
	set("platform", "no-rule", "no-such-rule", "1", nil)
	set("platform", "never", "utilization-day", "0", nil)
	m := storetest.Fold(t, l)
	storetest.Look(t, m, func(v projections.View) error {
		all, err := advice.Thresholds(v, tick)
		if err != nil {
			return err
		}
		got := ""
		for _, o := range all {
			got += fmt.Sprintln(o.SetBy, o.Rule, o.Workspace, o.Cluster, o.Value, o.Coverage.Valid, o.Off)
		}
		want := "platform/all utilization-day   0.3 true false\nplatform/one utilization-day  c 0.2 false false\n" +
			"top/off budget top  0 false true\ntop/own quota top  90 false false\n"
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		_, err = rules.NewThresholds(all)
		return err
	})
}
