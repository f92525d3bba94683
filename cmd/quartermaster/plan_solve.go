package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement/check"
	"quartermaster/schemas"
)

// answerKeys names the keys of an answer, for the help of the commands that show one.
const answerKeys = `An answer has format, instance (SHA-256 of the instance's canonical JSON), methods,
currency; cost and its parts committed_cost, purchase_cost, serving_cost and
shortage_penalty; lower_bound and gap (of cost over it, as a share); nominal_cost
(what is paid within the horizon, without discount and penalty), cvar_90 (mean cost
of the worst tenth of the scenarios), stranded_at_low_demand; purchases (offer, or
commitment and renewals; pool, epoch, term (from, to), order_by, units,
covers_units, tier, cost, upfront, hourly, worth_per_unit, reason); recourse by
epoch and scenario (epoch, scenario, pools (pool, demand, guaranteed, price_only,
spot, on_demand, spill_in, spill_out, spend_committed, shortage,
unused_committed), in unit-hours); calendar (month, cash, accrual); scenarios
(scenario, weight, cost, unserved_unit_hours); binding (constraint, detail,
shadow_price, epochs); end_of_horizon (salvage, cost of the same purchases,
best_cost, lower_bound, purchases); certificate, one for each group of pools that
have to do with one another (pools, solver, cost_units, bound_units, digits, weight,
solution); and notes. Amounts are decimal strings, discounted to the start of the
horizon where nothing else is said.`

// lazySolver opens a solver of linear programs when the first program comes, so
// that an instance that needs none never starts it.
type lazySolver struct {
	solver *highs.Solver
	err    error
}

// Solve is linear.Solver's.
func (l *lazySolver) Solve(ctx context.Context, p *linear.Program, limits linear.Limits) (*linear.Solution, error) {
	if l.solver == nil && l.err == nil {
		l.solver, l.err = highs.Open(highs.Options{})
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.solver.Solve(ctx, p, limits)
}

func (l *lazySolver) close() {
	if l.solver != nil {
		_ = l.solver.Close() // its answers are here
	}
}

// linearSolver returns the solver of this build, nil if it has none.
func linearSolver() (solver linear.Solver, done func()) {
	if !highs.Available() {
		return nil, func() {}
	}
	l := &lazySolver{}
	return l, l.close
}

func (a *app) planSolveCommand() *cobra.Command {
	var (
		out         string
		schema      bool
		sensitivity bool
	)
	cmd := &cobra.Command{
		Use:   "solve INSTANCE.json",
		Short: "Answer a procurement problem stated in a file: what to buy, its cost and the proof",
		Long: `Solve reads an instance (regions, pools, demand by the hour or as load-duration
curves, offers, commitments, quotas, ways of spill, substitutes, posture, budgets,
scenarios), finds the purchases that serve it at least expected net present cost,
and proves how far from the least any purchases are. It needs no log and no home,
and buys nothing. The same instance has the same answer, byte for byte, whatever
the order of its lists. "-" reads standard input.

--schema prints the JSON Schema of instances, --out also writes the answer to a
file that "quartermaster plan check" proves again. Errors name file, line, column
and path. Exit status 1 where the instance breaks a rule, where the checker refuses
the answer, and where nothing meets the constraints: then clash names some that
cannot be met together, and without any one of them the others can (path, detail).

` + answerKeys,
		Example: "  quartermaster plan solve deploy/demo/instances/single-pool.json\n" +
			"  quartermaster plan solve --json instance.json --out answer.json\n" +
			"  quartermaster plan solve --schema > instance.schema.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := a.out.Write(schemas.Instance)
				return err
			}
			in, err := readInstance(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			ans, err := a.solveInstance(cmd.Context(), in, sensitivity)
			var clash *instances.Infeasible
			if errors.As(err, &clash) {
				return a.showClash(clash)
			} else if err != nil {
				return err
			}
			if out != "" {
				if err := writeAnswer(out, ans); err != nil {
					return err
				}
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAnswer(in, ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "also write the answer to this file, as JSON")
	f.BoolVar(&schema, "schema", false, "print the JSON Schema of instances")
	f.BoolVar(&sensitivity, "sensitivity", true, "solve again with nothing, and with everything, of what terms beyond the horizon cost taken to be worth keeping")
	return cmd
}

// solveInstance answers an instance with the solver of this build.
func (a *app) solveInstance(ctx context.Context, in *instances.Instance, sensitivity bool) (*instances.Answer, error) {
	lp, done := linearSolver()
	defer done()
	stop := a.still("solving")
	defer stop()
	ans, err := instances.Solve(ctx, in, lp)
	if err == nil && sensitivity {
		err = instances.EndOfHorizon(ctx, in, ans, lp)
	}
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: instances whose pools have to do with one another need one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return ans, err
}

func (a *app) showClash(clash *instances.Infeasible) error {
	if a.json {
		if err := a.answerJSON(clash); err != nil {
			return err
		}
		return &failed{"nothing meets the constraints"}
	}
	fmt.Fprintln(a.out, "nothing that can be bought meets these constraints together; without any one of them the others can be met")
	t := a.table("constraint", "what it asks")
	for _, c := range clash.Constraints {
		t.AppendRow(table.Row{c.Path, c.Detail})
	}
	t.Render()
	return &failed{"nothing meets the constraints"}
}

func (a *app) planCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check INSTANCE.json ANSWER.json",
		Short: "Prove an answer again, without the solver that found it",
		Long: `Check states the problems of an instance anew, has the purchases and certificates
of the answer proven by a checker that shares no code with the solver, in exact
arithmetic, and computes everything again that the answer says of them: amounts,
shadow prices and worths of the certificate, and what the purchases in
end_of_horizon come to. It starts no solver. Not proven are the lower bounds in
end_of_horizon, and counts of work in certificates. Where a budget or limit binds,
the cost is proven to be enough, and a note says if the checker needs less.

JSON keys: checked (true), instance, cost, lower_bound, gap, purchases (how many),
not_proven (JSON Pointers into the answer).
Exit status 1 when the answer is not what it claims to be; the error names where.`,
		Example: "  quartermaster plan solve instance.json --out answer.json\n  quartermaster plan check instance.json answer.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := readInstance(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			data, err := readDocument(args[1], cmd.InOrStdin())
			if err != nil {
				return err
			}
			ans, err := instances.ParseAnswer(args[1], data)
			if err != nil {
				return err
			}
			if err := instances.Check(cmd.Context(), in, ans); err != nil {
				return fmt.Errorf("%s: %w", args[1], err)
			}
			notProven := []string{}
			for i, e := range ans.EndOfHorizon {
				if e.LowerBound != nil {
					notProven = append(notProven, fmt.Sprintf("/end_of_horizon/%d/lower_bound", i))
				}
			}
			if a.json {
				return a.answerJSON(struct {
					Checked    bool           `json:"checked"`
					Instance   string         `json:"instance"`
					Cost       domain.Decimal `json:"cost"`
					LowerBound domain.Decimal `json:"lower_bound"`
					Gap        domain.Decimal `json:"gap"`
					Purchases  int            `json:"purchases"`
					NotProven  []string       `json:"not_proven"`
				}{true, ans.Instance, ans.Cost, ans.LowerBound, ans.Gap, len(ans.Purchases), notProven})
			}
			fmt.Fprintf(a.out, "proven: %d purchases cost %s %s, and nothing costs less than %s (gap %s)\n",
				len(ans.Purchases), money(ans.Cost), ans.Currency, money(ans.LowerBound), percentOf(ans.Gap))
			if len(notProven) > 0 {
				fmt.Fprintln(a.out, "not proven: "+strings.Join(notProven, ", "))
			}
			return nil
		},
	}
}

// readDocument reads a file, or standard input as "-", up to what an instance may
// measure.
func readDocument(path string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return nil, fmt.Errorf("read %s: it is a directory", path)
		}
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, instances.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func readInstance(path string, stdin io.Reader) (*instances.Instance, error) {
	data, err := readDocument(path, stdin)
	if err != nil {
		return nil, err
	}
	return instances.Parse(path, data)
}

func writeAnswer(path string, ans *instances.Answer) error {
	text, err := json.MarshalIndent(ans, "", "  ")
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// percentOf shows a share in percent, small ones as such.
func percentOf(share domain.Decimal) string {
	p := share.Shift(2)
	if p.IsPositive() && p.Round(6).IsZero() {
		return "below 0.000001 %"
	}
	return p.Round(6).String() + " %"
}

// mostRows bounds the rows of a table that a person reads; JSON has all.
const mostRows = 40

// showAnswer prints an answer for a planner.
func (a *app) showAnswer(in *instances.Instance, ans *instances.Answer) {
	spans := in.Spans()
	fmt.Fprintf(a.out, "%s: %s to %s, %d pools, %d demands, in %s at net present value\n\n",
		clipped(in.Name), day(spans[0].From), day(spans[len(spans)-1].To), len(in.Pools), len(in.Demands), ans.Currency)
	t := a.table("", "amount")
	t.SetColumnConfigs(rightFrom(2, 2))
	for _, row := range []struct {
		name   string
		amount domain.Decimal
	}{
		{"held already", ans.Committed}, {"purchases", ans.Bought}, {"on demand, spot, transfer", ans.Serving}, {"not served", ans.Penalty},
		{"cost", ans.Cost}, {"lower bound", ans.LowerBound}, {"paid within the horizon", ans.Nominal}, {"worst tenth of scenarios", ans.CVaR},
		{"stranded at low demand", ans.Stranded},
	} {
		t.AppendRow(table.Row{row.name, money(row.amount)})
	}
	t.Render()
	fmt.Fprintf(a.out, "gap %s\n", percentOf(ans.Gap))

	if len(ans.Purchases) == 0 {
		fmt.Fprintln(a.out, "\nnothing is worth buying")
	} else {
		fmt.Fprintln(a.out)
		t := a.table("buy", "pool", "units", "from", "to", "order by", "upfront", "hourly", "cost", "worth each")
		t.SetColumnConfigs(append(rightFrom(3, 3), rightFrom(7, 10)...))
		for i, p := range ans.Purchases {
			if i == mostRows {
				fmt.Fprintf(a.out, "the first %d of %d purchases; --json has all\n", mostRows, len(ans.Purchases))
				break
			}
			name := p.Offer
			if p.Commitment != "" {
				name = fmt.Sprintf("%s goes on, %d×", p.Commitment, p.Renewals)
			}
			t.AppendRow(table.Row{clipped(name), clipped(p.Pool), comma(p.Units), day(p.Term.From), day(p.Term.To), day(p.OrderBy), money(p.Upfront), money(p.Hourly), money(p.Cost), money(p.Worth)})
		}
		t.Render()
		for i, p := range ans.Purchases {
			if i == 10 {
				break
			}
			fmt.Fprintf(a.out, "%s: %s\n", clipped(p.Offer+p.Commitment), p.Reason)
		}
	}
	a.showServed(ans)
	if len(ans.Calendar) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("month", "paid", "charged")
		t.SetColumnConfigs(rightFrom(2, 3))
		for i, m := range ans.Calendar {
			if i == mostRows {
				break
			}
			t.AppendRow(table.Row{m.Month, money(m.Cash), money(m.Accrual)})
		}
		t.Render()
	}
	for _, b := range ans.Binding {
		fmt.Fprintf(a.out, "binds: %s: %s: worth %s\n", b.Constraint, b.Detail, money(b.Price))
	}
	for _, e := range ans.EndOfHorizon {
		line := fmt.Sprintf("if terms beyond the horizon are worth %s of their cost: these purchases come to %s", e.Salvage, money(e.Cost))
		if e.Best != nil {
			line += fmt.Sprintf(", the best to %s (%d purchases)", money(*e.Best), len(e.Purchases))
		}
		fmt.Fprintln(a.out, line)
	}
	for _, n := range ans.Notes {
		fmt.Fprintln(a.out, "note: "+n)
	}
}

// showServed prints how each pool is served, expected over the scenarios.
func (a *app) showServed(ans *instances.Answer) {
	weight := map[string]domain.Decimal{}
	total := domain.Decimal{}
	for _, s := range ans.Scenarios {
		weight[s.Scenario] = decimal.NewFromInt(int64(s.Weight))
		total = total.Add(decimal.NewFromInt(int64(s.Weight)))
	}
	type row struct{ demand, committed, spot, onDemand, in, short, unused domain.Decimal }
	rows, order := map[string]*row{}, []string{}
	for _, r := range ans.Recourse {
		for _, p := range r.Pools {
			x := rows[p.Pool]
			if x == nil {
				x = &row{}
				rows[p.Pool], order = x, append(order, p.Pool)
			}
			for _, c := range []struct {
				to   *domain.Decimal
				text string
			}{
				{&x.demand, p.Demand}, {&x.committed, p.Guaranteed}, {&x.committed, p.PriceOnly}, {&x.spot, p.Spot}, {&x.onDemand, p.OnDemand},
				{&x.in, p.SpillIn}, {&x.short, p.Shortage}, {&x.unused, p.UnusedCommitted},
			} {
				if n, err := decimal.NewFromString(c.text); err == nil { // spill is left out where there is none
					*c.to = c.to.Add(n.Mul(weight[r.Scenario]))
				}
			}
		}
	}
	fmt.Fprintln(a.out)
	t := a.table("pool, unit-hours expected", "demand", "committed", "spot", "on demand", "for others", "not served", "unused")
	t.SetColumnConfigs(rightFrom(2, 8))
	for i, name := range order {
		if i == mostRows {
			fmt.Fprintf(a.out, "the first %d of %d pools; --json has all\n", mostRows, len(order))
			break
		}
		x := rows[name]
		cells := table.Row{clipped(name)}
		for _, d := range []domain.Decimal{x.demand, x.committed, x.spot, x.onDemand, x.in, x.short, x.unused} {
			cells = append(cells, strings.TrimSuffix(money(d.DivRound(total, 2).Round(0)), ".00"))
		}
		t.AppendRow(cells)
	}
	t.Render()
}
