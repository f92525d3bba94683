package costs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// View says who bears costs that are for others: those of pools, which a policy of kind shared_costs names.
type View string

// The views. They are of the same allocations: nothing is divided again, and all have the same totals.
const (
	// ViewDirect has costs as they were allocated.
	ViewDirect View = "direct"
	// ViewLoaded passes on the cost of each pool, in the order of the policy, with what it received from earlier
	// pools, to workspaces and to later pools, each by its own driver. So it never goes in a circle. (The step-down
	// method; Horngren, Cost Accounting, chapter 15.)
	ViewLoaded View = "loaded"
	// ViewProportional passes on the cost of all pools at once, in proportion to the direct effective cost of the
	// workspaces, whatever the drivers are.
	ViewProportional View = "proportional"
)

// Views are all views.
var Views = []View{ViewDirect, ViewLoaded, ViewProportional}

// ErrNoPools is returned if no policy names pools.
var ErrNoPools = errors.New("no policy of kind shared_costs names pools, whose cost is for others")

// Loaded is a month's cost by workspace after the cost of pools was passed on.
type Loaded struct {
	View   View          `json:"view"`
	Policy AppliedPolicy `json:"policy"`
	Steps  []PassedOn    `json:"steps"` // in the order in which they were made, by currency
	// Workspaces are those that bear costs, and the pools, by name and currency.
	Workspaces []LoadedCost `json:"workspaces"`
}

// Amounts are an amount in each ledger.
type Amounts struct {
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
}

func (a Amounts) add(o Amounts) Amounts {
	return Amounts{a.Billed.Add(o.Billed), a.Effective.Add(o.Effective)}
}

func (a Amounts) sub(o Amounts) Amounts {
	return Amounts{a.Billed.Sub(o.Billed), a.Effective.Sub(o.Effective)}
}

// PassedOn is what one pool passed on in one currency. If nobody has a weight, To is empty and the pool keeps its cost.
type PassedOn struct {
	Pool     string `json:"pool"`
	By       string `json:"by"` // by_gpu_hours, by_cost or weights
	Currency string `json:"currency"`
	Amounts
	Of attribution.Amount `json:"of"` // the sum of weights: GPU milliseconds, money, or parts
	To []Passed           `json:"to"` // by workspace
}

// Passed is what a workspace or a later pool received.
type Passed struct {
	Workspace string             `json:"workspace"`
	Weight    attribution.Amount `json:"weight"`
	Amounts
}

// LoadedCost is the cost of a workspace or pool: Direct, less what it passed on, and with what it received.
type LoadedCost struct {
	Workspace string  `json:"workspace"`
	Currency  string  `json:"currency"`
	Direct    Amounts `json:"direct"`
	Passed    Amounts `json:"passed_on"`
	Received  Amounts `json:"received"`
	Amounts
	Allocated    int64           `json:"allocated_gpu_ms"`
	PerAllocated *domain.Decimal `json:"effective_per_allocated_gpu_hour"` // null if none was allocated
}

// SharedCosts are the pools of a month, and the policy that names them.
type SharedCosts struct {
	Policy AppliedPolicy     `json:"policy"`
	Pools  []domain.CostPool `json:"pools"` // in the order in which they are passed on
}

// readShared returns the pools that the policy of the root workspace names when a month begins, nil if there are none.
func readShared(view projections.View, a *registry.Authority, month domain.Interval) (*SharedCosts, error) {
	var latest domain.Precedence
	var out *SharedCosts
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), month.From)
		if v == nil || k.Scope != a.Root() {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		ended := p.EffectiveTo != 0 && p.EffectiveTo <= month.From
		if p.Kind != domain.PolicySharedCosts || ended || len(p.Pools) == 0 || out != nil && latest.After(v.Order) {
			return nil
		}
		latest, out = v.Order, &SharedCosts{Policy: AppliedPolicy{
			Kind: p.Kind, Value: fmt.Sprint(len(p.Pools)), Policy: k.ID, Workspace: k.Scope,
			From: p.EffectiveFrom, Operator: v.Signer.Operator,
		}}
		for _, of := range p.Pools {
			out.Pools = append(out.Pools, domain.CostPool{Pool: strings.Clone(of.Pool), By: of.By, Shares: slices.Clone(of.Shares)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the pools of shared costs: %w", err)
	}
	return out, nil
}

// HasPools reports whether the month has views in which costs are passed on.
func (r *Report) HasPools() bool { return r.shared != nil }

// Of returns the part of a view that concerns a workspace: its costs, what it received, and what it passed on.
func (l *Loaded) Of(workspace string) *Loaded {
	out := &Loaded{View: l.View, Policy: l.Policy, Steps: []PassedOn{}, Workspaces: []LoadedCost{}}
	for _, s := range l.Steps {
		if s.Pool != workspace {
			s.To = slices.DeleteFunc(slices.Clone(s.To), func(p Passed) bool { return p.Workspace != workspace })
			if len(s.To) == 0 {
				continue
			}
		}
		out.Steps = append(out.Steps, s)
	}
	for _, w := range l.Workspaces {
		if w.Workspace == workspace {
			out.Workspaces = append(out.Workspaces, w)
		}
	}
	return out
}

// loading is the state of a view in one currency.
type loading struct {
	currency string
	pools    map[string]int // the step of each pool
	rows     map[string]*LoadedCost
	held     map[string]int64 // GPU time, in all currencies
}

// Load returns a view of a report by workspace, as the month's policy says. It returns [ErrNoPools] if there is none.
func (r *Report) Load(view View) (*Loaded, error) {
	if r.shared == nil {
		return nil, ErrNoPools
	}
	return r.LoadBy(view, r.shared)
}

// LoadBy is Load with given pools.
func (r *Report) LoadBy(view View, shared *SharedCosts) (*Loaded, error) {
	pools := shared.Pools
	if !slices.Equal(r.By, []Dimension{ByWorkspace}) || r.Workspace != "" || len(r.Where) > 0 {
		return nil, errors.New("a view needs the costs of all workspaces, by workspace")
	}
	out := &Loaded{View: view, Policy: shared.Policy, Steps: []PassedOn{}, Workspaces: []LoadedCost{}}
	at, held := map[string]int{}, map[string]int64{}
	for i, p := range pools {
		at[p.Pool] = i
	}
	for i := range r.Groups {
		held[r.Groups[i].Key[ByWorkspace]] += r.Groups[i].Allocated
	}
	for i := range r.Totals {
		l := &loading{currency: r.Totals[i].Currency, pools: at, rows: map[string]*LoadedCost{}, held: held}
		for j := range r.Groups {
			if g := &r.Groups[j]; g.Currency == l.currency {
				row := l.row(g.Key[ByWorkspace])
				row.Direct = Amounts{g.Billed, g.Effective}
				row.Amounts, row.Allocated = row.Direct, g.Allocated
			}
		}
		var fixed []Passed // of the proportional view
		if view == ViewProportional {
			fixed = l.weights(len(pools)-1, &domain.CostPool{By: domain.ShareByCost})
		}
		for step := range pools {
			p := &pools[step]
			to := fixed
			if view != ViewProportional {
				to = l.weights(step, p)
			}
			if done := l.pass(p, view, to); !done.Billed.IsZero() || !done.Effective.IsZero() {
				out.Steps = append(out.Steps, done)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(l.rows)) {
			row := l.rows[name]
			if row.Allocated != 0 {
				per := row.Effective.PerHour(row.Allocated)
				row.PerAllocated = &per
			}
			out.Workspaces = append(out.Workspaces, *row)
		}
	}
	slices.SortStableFunc(out.Workspaces, func(a, b LoadedCost) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Currency, b.Currency))
	})
	return out, nil
}

func (l *loading) row(workspace string) *LoadedCost {
	if l.rows[workspace] == nil {
		l.rows[workspace] = &LoadedCost{Workspace: workspace, Currency: l.currency}
	}
	return l.rows[workspace]
}

// weights returns who receives from the pool of a step, by name: never that pool or an earlier one, and no account of
// the platform that is no later pool.
func (l *loading) weights(step int, p *domain.CostPool) (to []Passed) {
	of := map[string]attribution.Amount{}
	switch {
	case len(p.Shares) > 0:
		for _, s := range p.Shares {
			of[s.Workspace] = attribution.Whole(int64(s.Weight))
		}
	case p.By == domain.ShareByGPUHours:
		for workspace, ms := range l.held {
			of[workspace] = attribution.Whole(ms)
		}
	default:
		for workspace, row := range l.rows {
			of[workspace] = row.Effective
		}
	}
	for _, workspace := range slices.Sorted(maps.Keys(of)) {
		at, pool := l.pools[workspace]
		account := workspace == attribution.Platform || strings.HasPrefix(workspace, attribution.Platform+":")
		if of[workspace].Sign() > 0 && (pool && at > step || !pool && (!account || len(p.Shares) > 0)) {
			to = append(to, Passed{Workspace: workspace, Weight: of[workspace]})
		}
	}
	return to
}

// pass passes on all that a pool bears. The parts add up to it exactly: see [attribution.Portions].
func (l *loading) pass(p *domain.CostPool, view View, to []Passed) PassedOn {
	from := l.row(p.Pool)
	done := PassedOn{Pool: p.Pool, By: cmp.Or(string(p.By), "weights"), Currency: l.currency, Amounts: from.Amounts, To: []Passed{}}
	if view == ViewProportional {
		done.By = string(domain.ShareByCost)
	}
	for _, t := range to {
		done.Of = done.Of.Add(t.Weight)
	}
	billed, effective := attribution.PortionsOf(done.Billed), attribution.PortionsOf(done.Effective)
	for _, t := range to {
		t.Amounts = Amounts{billed.Next(t.Weight, done.Of), effective.Next(t.Weight, done.Of)}
		row := l.row(t.Workspace)
		row.Received, row.Amounts = row.Received.add(t.Amounts), row.Amounts.add(t.Amounts)
		from.Passed, from.Amounts = from.Passed.add(t.Amounts), from.Amounts.sub(t.Amounts)
		done.To = append(done.To, t)
	}
	return done
}
