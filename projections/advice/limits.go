package advice

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/usage"

	"github.com/shopspring/decimal"
)

// wholeGPUs is the Kubernetes resource of quotas that count whole GPUs. Nothing counts other resources.
const wholeGPUs = "nvidia.com/gpu"

// limits reads the quotas of whole GPUs with what was held in the last whole hour, on average, and the budgets.
func (r *reader) limits() error {
	if err := r.quotas(); err != nil {
		return err
	}
	if r.as.Budgets != nil {
		if err := r.budgets(); err != nil {
			return err
		}
	}
	slices.SortFunc(r.f.Limits, func(a, b advice.Limit) int {
		return compareAll(string(a.Rule), string(b.Rule), a.Workspace, b.Workspace, a.Name, b.Name)
	})
	return nil
}

func (r *reader) quotas() error {
	window := r.last(domain.Hour)
	var heldBy map[heldIn]int64
	below := map[string][]string{}
	err := r.view.Scan(projections.Query{Table: projections.TableQuotas}, func(k projections.Key, row projections.Row) (err error) {
		v := r.authority.At(k, row.(*projections.History), r.at)
		if v == nil {
			return nil
		}
		q := v.Event.(*domain.QuotaSet)
		if q.Resource != wholeGPUs {
			return nil
		}
		if heldBy == nil {
			if heldBy, err = r.heldBy(window); err != nil {
				return err
			}
		}
		if below[k.Scope] == nil {
			if below[k.Scope], err = access.Below(r.view, k.Scope); err != nil {
				return err
			}
		}
		name := ""
		if q.GPUModel != "" {
			name = market.ModelName(q.GPUModel)
		}
		var ms int64
		for h, n := range heldBy {
			if slices.Contains(below[k.Scope], h.workspace) && (q.Region == "" || q.Region == h.region) && (name == "" || name == h.gpu) {
				ms += n
			}
		}
		r.f.Limits = append(r.f.Limits, advice.Limit{
			Rule: advice.Quota, Workspace: k.Scope, Name: q.Quota, Region: q.Region, GPUModel: name, Hard: q.Hard, Window: window,
			Used:  decimal.NewFromInt(ms).DivRound(decimal.NewFromInt(projections.MsPerHour), 6),
			Limit: q.Limit, Unit: q.Resource,
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read quotas: %w", err)
	}
	return nil
}

// heldIn is who held GPUs of a model in a region.
type heldIn struct{ workspace, region, gpu string }

func (r *reader) heldBy(window domain.Interval) (map[heldIn]int64, error) {
	sums := map[heldIn]int64{}
	ignored := func(projections.Key, *projections.UsageHour) error { return nil }
	err := usage.EachDeviceHourAndRow(r.view, r.fleet, "", window.From, window.To, ignored, func(d *usage.DeviceHour) error {
		for i := range d.Segments {
			if s := &d.Segments[i]; s.State == inventory.Allocated && s.Holder != nil {
				sums[heldIn{s.Holder.Workspace, d.Region, d.Model}] += s.GPUMs
			}
		}
		return nil
	})
	return sums, err
}

// budgets reads what was spent in the whole months of a budget's period, and what is expected at its end: the upper end.
func (r *reader) budgets() error {
	all, err := r.as.Budgets(r.billed)
	if err != nil {
		return err
	}
	for i := range all.Budgets {
		b := &all.Budgets[i]
		if b.Problem != "" {
			continue
		}
		l := advice.Limit{
			Rule: advice.Budget, Workspace: b.Workspace, Name: b.Budget, Hard: b.Hard, Window: b.Period,
			Used: b.Actual.Decimal(), Limit: b.Amount.Decimal(), Unit: b.Currency,
		}
		if b.High != nil {
			l.Forecast = decimal.NewNullDecimal(b.High.Decimal())
		}
		r.f.Limits = append(r.f.Limits, l)
	}
	return nil
}
