package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/chart"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/simulations/whatif"
)

// showSimulation shows an answer as tables.
func (a *Program) showSimulation(r *whatif.Result) {
	fmt.Fprintf(a.out, "simulation %s: %s, %s to %s, %s trials, seed %d\n", r.ID, r.Name, day(r.Horizon.From), day(r.Horizon.To), comma(r.Runs), r.Seed)
	if r.Question != "" {
		fmt.Fprintf(a.out, "%s\n", r.Question)
	}
	fmt.Fprintf(a.out, "%samounts are net present values in %s\n\n", takenAsGiven(r), r.Currency)
	t := a.table("alternative", "expected cost", "p5", "p50", "p95", "CVaR 90", "incl. penalty", "unserved", "spot", "stranded", "buys")
	t.SetColumnConfigs(rightFrom(2, 11))
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		n := 0
		for _, p := range x.Purchases {
			n += p.Units
		}
		t.AppendRow(table.Row{named(x.Alternative), moneyCell(x.Expected), moneyCell(x.P5), moneyCell(x.P50), moneyCell(x.P95), moneyCell(x.CVaR), moneyCell(x.Penalty),
			percent(x.UnservedShare.Round(6)), percent(x.SpotShare.Round(4)), moneyCell(x.Stranded), count(n)})
	}
	t.Render()
	for i := range r.Alternatives {
		for _, k := range r.Alternatives[i].Kept {
			if x := &r.Alternatives[i]; len(x.Solvers) > 0 && k.Share.LessThan(decimal.NewFromInt(1)) {
				fmt.Fprintf(a.out, "%q keeps %s in %s of the trials, so its expected cost and the differences do not assume that it is kept; solved to keep it in expectation, it costs %s\n", clipped(x.Alternative), k.Constraint, percent(k.Share.Round(3)), money(x.Solved))
			}
		}
	}
	if len(r.Differences) > 0 {
		fmt.Fprintf(a.out, "\nagainst %q, trial by trial\n", r.Differences[0].From)
		t := a.table("alternative", "mean difference", "95 % interval", "p5", "p50", "p95", "cheaper in")
		t.SetColumnConfigs(rightFrom(2, 7))
		for _, d := range r.Differences {
			t.AppendRow(table.Row{named(d.Alternative), moneyCell(d.Mean), money(d.Interval[0]) + " to " + money(d.Interval[1]), moneyCell(d.P5), moneyCell(d.P50), moneyCell(d.P95), percent(d.Cheaper.Round(3))})
		}
		t.Render()
		a.showOtherDifferences(r)
	}
	for i := range r.Alternatives {
		a.showOutcome(&r.Alternatives[i], r)
	}
	if len(r.BreakEven) > 0 {
		fmt.Fprintf(a.out, "\nbreak-even utilization: above it, an offer costs less than on-demand over its whole term,\ndiscounted, with uncertain inputs at their median\n")
		t := a.table("pool", "offer", "term", "all-in hourly", "on demand", "break-even", "in")
		t.SetColumnConfigs(rightFrom(3, 6))
		for _, b := range r.BreakEven {
			in := "all"
			if len(b.Alternatives) < len(r.Alternatives) {
				in = strings.Join(b.Alternatives, ", ")
			}
			t.AppendRow(table.Row{named(b.Pool), clipped(terms(strings.TrimPrefix(b.Offer, b.Pool+"|"))) + made(b.Generated), b.Term, b.Hourly.StringFixed(4), b.OnDemand.StringFixed(4), percent(b.Utilization.Round(3)), named(in)})
		}
		t.Render()
	}
	const notes = 6
	for i, n := range r.Notes {
		if i == notes {
			fmt.Fprintf(a.out, "note: and %s more, see -o json\n", comma(len(r.Notes)-notes))
			break
		}
		fmt.Fprintf(a.out, "note: %s\n", domain.Clip(n, 4*widest))
	}
	a.showProgram()
	fmt.Fprintf(a.out, "methods %s\n", strings.Join(r.Methods, " "))
	if r.Position != "" {
		fmt.Fprintf(a.out, "position %s\n", a.position(r.Position))
	}
}

func (a *Program) showOutcome(x *whatif.Outcome, r *whatif.Result) {
	fmt.Fprintf(a.out, "\n%s\n", x.Alternative)
	if len(x.Solvers) > 0 {
		fmt.Fprintf(a.out, "solved over %s: cost %s, lower bound %s, gap %s, by %s\n", weighted(len(x.Set)), money(x.Solved), money(x.LowerBound), x.Gap, strings.Join(x.Solvers, " and "))
		fmt.Fprintln(a.out, unmodelledDrivers(x, r.Runs))
	}
	for _, t := range x.EndOfHorizon {
		line := fmt.Sprintf("with %s credited beyond the horizon: these purchases would cost %s", percent(t.Salvage), money(t.Cost))
		if t.Best != nil && t.LowerBound != nil {
			line += fmt.Sprintf(", the best found %s (%s units), lower bound %s", money(*t.Best), comma(unitsBought(t.Purchases)), money(*t.LowerBound))
		}
		fmt.Fprintln(a.out, line)
	}
	const few = 8
	if len(x.Purchases) > 0 {
		upfront := decimal.Zero
		for _, p := range x.Purchases {
			upfront = upfront.Add(p.Upfront)
		}
		t := a.table("buy", "pool", "offer", "from", "to", "upfront", "per hour", "cost", "capacity")
		t.SetColumnConfigs(append(rightFrom(1, 1), rightFrom(6, 8)...))
		for i, p := range x.Purchases {
			if i == few {
				t.AppendNote("and %s more", comma(len(x.Purchases)-few))
				break
			}
			name := terms(strings.TrimPrefix(p.Offer, p.Pool+"|"))
			if p.Commitment != "" {
				name = "renew " + p.Commitment
			}
			t.AppendRow(table.Row{count(p.Units), named(p.Pool), named(name), day(p.Term.From), day(p.Term.To), paidAmount(r, p.Upfront), paidAmount(r, p.Hourly), moneyCell(p.Cost), capacity(p.Guaranteed) + made(p.Generated)})
		}
		t.Render()
		fmt.Fprintf(a.out, "upfront payments in all: %s %s\n", paidAmount(r, upfront), r.Currency)
	}
	for _, k := range x.Kept {
		fmt.Fprintf(a.out, "%s is kept in %s of the trials\n", k.Constraint, percent(k.Share.Round(3)))
	}
	if len(x.Tornado) > 0 {
		t := a.table("driver", "low (p5)", "high (p95)", "cost at low", "cost at high", "swing")
		t.SetColumnConfigs(rightFrom(2, 6))
		for i, s := range x.Tornado {
			if i == few {
				break
			}
			t.AppendRow(table.Row{driverName(&s, widest), s.Low.Round(6), s.High.Round(6), moneyCell(s.LowCost), moneyCell(s.HighCost), moneyCell(s.HighCost.Sub(s.LowCost).Abs())})
		}
		t.Render()
	}
	for _, n := range x.Notes {
		fmt.Fprintf(a.out, "note: %s\n", domain.Clip(n, 4*widest))
	}
}

// takenAsGiven is a line with the assumptions behind all figures. An instance has its own demand and
// prices. Documents of earlier versions have no assumptions.
func takenAsGiven(r *whatif.Result) string {
	if r.AnnualRate == nil || r.Salvage == nil {
		return ""
	}
	money := fmt.Sprintf("discount rate %s a year; %s of a purchase's cost beyond the horizon is credited", percent(*r.AnnualRate), percent(*r.Salvage))
	if r.Scenario.Base.Instance != "" {
		return "assumptions: " + money + "\n"
	}
	as := &r.Scenario.Assumptions
	return fmt.Sprintf("assumptions: the last %d weeks of demand repeat%s; %s; %s of spot time is lost; an unserved hour costs %s times on-demand\n",
		as.Weeks, growthOf(r.Scenario), money, percent(as.SpotOverhead), as.ShortageFactor)
}

// growthOf describes the growth of demand, from assumptions and changes.
func growthOf(s *whatif.Scenario) string {
	var parts []string
	if !s.Assumptions.MonthlyGrowth.IsZero() {
		parts = append(parts, "grow by "+percent(s.Assumptions.MonthlyGrowth)+" a month")
	}
	add := func(changes []whatif.Change, of string) {
		for i := range changes {
			c := &changes[i]
			if c.Kind != whatif.DemandGrowth {
				continue
			}
			var text string
			if c.Monthly != nil {
				text = "grow by " + drawnShare(c.Monthly) + " a month"
			} else {
				text = "are multiplied by " + c.Factor.String()
			}
			if where := strings.TrimSpace(c.Region + " " + c.Model); where != "" {
				text += " in " + where
			}
			if c.When != 0 {
				text += " from " + day(c.When)
			}
			if c.Until != 0 {
				text += " until " + day(c.Until)
			}
			parts = append(parts, text+of)
		}
	}
	add(s.Changes, "")
	for i := range s.Alternatives {
		add(s.Alternatives[i].Changes, fmt.Sprintf(" in %q", clipped(s.Alternatives[i].Name)))
	}
	if len(parts) == 0 {
		return " without growth"
	}
	return " and " + strings.Join(parts, ", and ")
}

// drawnShare shows a share in percent, with its distribution.
func drawnShare(n *whatif.Number) string {
	if n.Certain() {
		return percent(n.P[0])
	}
	switch n.Distribution {
	case whatif.Triangular:
		return fmt.Sprintf("%s to %s, most likely %s,", percent(n.P[0]), percent(n.P[2]), percent(n.P[1]))
	case whatif.Lognormal:
		return fmt.Sprintf("%s at the median and %s at p95", percent(n.P[0]), percent(n.P[1]))
	}
	return n.String()
}

// paidAmount shows what a purchase pays. Documents of earlier versions do not have it.
func paidAmount(r *whatif.Result, amount domain.Decimal) string {
	if r.Salvage == nil {
		return "-"
	}
	return money(amount)
}

// showOtherDifferences shows the differences between alternatives with nothing and with all
// credited beyond the horizon, each with its best purchases.
func (a *Program) showOtherDifferences(r *whatif.Result) {
	for i := range r.Alternatives[1:] {
		from, to := r.Alternatives[0].EndOfHorizon, r.Alternatives[i+1].EndOfHorizon
		if len(from) != len(to) {
			continue
		}
		for k := range to {
			if from[k].Best == nil || to[k].Best == nil {
				continue
			}
			d, than := to[k].Best.Sub(*from[k].Best), "more"
			if d.IsNegative() {
				than = "less"
			}
			fmt.Fprintf(a.out, "with %s credited beyond the horizon and purchases solved for it: %q costs %s %s than %q\n",
				percent(to[k].Salvage), clipped(r.Alternatives[i+1].Alternative), money(d.Abs()), than, clipped(r.Alternatives[0].Alternative))
		}
	}
}

func unitsBought(orders []instances.Order) (n int) {
	for _, o := range orders {
		n += o.Units
	}
	return n
}

func weighted(scenarios int) string {
	if scenarios == 1 {
		return "one scenario"
	}
	return fmt.Sprintf("%d weighted scenarios", scenarios)
}

// unmodelledDrivers describes what the gap of the solved problem does not cover.
func unmodelledDrivers(x *whatif.Outcome, trials int) string {
	than := "more"
	if x.TrialsAbove.IsNegative() {
		than = "less"
	}
	s := fmt.Sprintf("the gap covers only the solved problem: the %s trials cost %s (%s) %s on average", comma(trials), money(x.TrialsAbove.Abs()), percent(x.TrialsAboveShare.Abs().Round(4)), than)
	if x.TrialsAbove.IsZero() {
		s = fmt.Sprintf("the gap covers only the solved problem: the %s trials cost the same on average", comma(trials))
	}
	var hows []whatif.How
	for _, b := range x.Unmodelled {
		if !slices.Contains(hows, b.Solved) {
			hows = append(hows, b.Solved)
		}
	}
	var parts []string
	for _, how := range hows {
		var names []string
		for _, b := range x.Unmodelled {
			if b.Solved == how {
				names = append(names, b.Driver)
			}
		}
		if len(names) > 0 {
			parts = append(parts, strings.Join(names, "; ")+": "+string(how))
		}
	}
	if len(parts) > 0 {
		s += "\ndrivers that vary only in the trials: " + strings.Join(parts, "; ")
	}
	return s
}

// writeAnswer writes the files of an answer.
func (a *Program) writeAnswer(dir string, r *whatif.Result) error {
	write := func(name string, rows [][]string) error {
		return app.WriteWhole(filepath.Join(dir, name), func(w io.Writer) error { return csv.NewWriter(w).WriteAll(rows) })
	}
	if err := app.WriteWhole(filepath.Join(dir, "result.json"), func(w io.Writer) error {
		return commandline.WriteJSON(w, r)
	}); err != nil {
		return err
	}
	rows := [][]string{{"alternative", "expected_cost", "p5_cost", "p50_cost", "p95_cost", "cvar_90_cost", "shortage_penalty", "committed_cost", "stranded_cost", "unserved_share", "spot_share", "solved_cost", "lower_bound", "gap", "trials_above_solved", "trials_above_solved_share", "unmodelled_drivers", "annual_rate", "salvage", "currency"}}
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		rows = append(rows, []string{x.Alternative, x.Expected.String(), x.P5.String(), x.P50.String(), x.P95.String(), x.CVaR.String(), x.Penalty.String(), x.Committed.String(),
			x.Stranded.String(), x.UnservedShare.String(), x.SpotShare.String(), x.Solved.String(), x.LowerBound.String(), x.Gap.String(), x.TrialsAbove.String(), x.TrialsAboveShare.String(), beside(x), said(r.AnnualRate), said(r.Salvage), r.Currency})
	}
	errs := []error{write("alternatives.csv", rows)}
	rows = [][]string{{"alternative", "salvage", "cost", "best_cost", "lower_bound", "best_units", "currency"}}
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		for _, t := range x.EndOfHorizon {
			row := []string{x.Alternative, t.Salvage.String(), t.Cost.String(), "", "", "", r.Currency}
			if t.Best != nil && t.LowerBound != nil {
				row[3], row[4], row[5] = t.Best.String(), t.LowerBound.String(), strconv.Itoa(unitsBought(t.Purchases))
			}
			rows = append(rows, row)
		}
	}
	errs = append(errs, write("end-of-horizon.csv", rows))
	rows = [][]string{{"alternative", "from", "mean", "mean_low", "mean_high", "p5", "p50", "p95", "cheaper_share_of_trials", "currency"}}
	for _, d := range r.Differences {
		rows = append(rows, []string{d.Alternative, d.From, d.Mean.String(), d.Interval[0].String(), d.Interval[1].String(), d.P5.String(), d.P50.String(), d.P95.String(), d.Cheaper.String(), r.Currency})
	}
	errs = append(errs, write("differences.csv", rows))
	for _, what := range r.Scenario.Report {
		switch what {
		case "purchases":
			rows = [][]string{{"alternative", "offer", "commitment", "pool", "units", "from", "to", "upfront", "hourly", "cost", "guarantees_capacity", "generated", "citation"}}
			for i := range r.Alternatives {
				for _, p := range r.Alternatives[i].Purchases {
					rows = append(rows, []string{r.Alternatives[i].Alternative, p.Offer, p.Commitment, p.Pool, strconv.Itoa(p.Units), p.Term.From.String(), p.Term.To.String(), p.Upfront.String(), p.Hourly.String(), p.Cost.String(), strconv.FormatBool(p.Guaranteed), strconv.FormatBool(p.Generated), p.Citation})
				}
			}
			errs = append(errs, write("purchases.csv", rows))
		case "trials":
			rows = [][]string{{"alternative", "trial", "cost", "shortage_penalty", "stranded_cost", "unserved_unit_hours", "spot_unit_hours"}}
			for i := range r.Alternatives {
				for _, d := range r.TrialsOf(i) {
					rows = append(rows, []string{r.Alternatives[i].Alternative, strconv.Itoa(d.Trial), d.Cost.String(), d.Penalty.String(), d.Stranded.String(), d.Unserved.String(), d.Spot.String()})
				}
			}
			errs = append(errs, write("trials.csv", rows))
		case "cost_distribution":
			errs = append(errs, a.costDistribution(dir, r, write))
		case "load_duration":
			errs = append(errs, a.loadDuration(dir, r, write))
		case "break_even":
			errs = append(errs, a.breakEvenChart(dir, r, write))
		case "tornado":
			errs = append(errs, a.tornadoChart(dir, r, write))
		}
	}
	return errors.Join(errs...)
}

// said formats an optional figure for CSV.
func said(d *domain.Decimal) string {
	if d == nil {
		return ""
	}
	return d.String()
}

// beside lists the unmodelled drivers in one cell.
func beside(x *whatif.Outcome) string {
	all := make([]string, len(x.Unmodelled))
	for i, b := range x.Unmodelled {
		all[i] = b.Driver + ": " + string(b.Solved)
	}
	return strings.Join(all, "; ")
}

// driverName returns the name of a swing's driver.
func driverName(s *whatif.Swing, most int) string {
	name := clipMiddle(s.Driver, most)
	if s.Given != "" {
		name += ", " + s.Given
	}
	return name
}

// swingName returns the name of a swing's driver for a chart, with its low and high value.
func swingName(s *whatif.Swing) string {
	short := func(d domain.Decimal) string {
		switch x := d.Abs(); {
		case x.GreaterThanOrEqual(decimal.New(100, 0)):
			return comma(int(d.Round(0).IntPart()))
		case x.GreaterThanOrEqual(decimal.New(1, 0)):
			return d.Round(2).String()
		}
		return d.Round(4).String()
	}
	values := " " + short(s.Low) + " to " + short(s.High)
	if s.Given != "" {
		values += ", " + s.Given
	}
	return clipMiddle(s.Driver, max(12, chart.Widest-len([]rune(values)))) + values
}

// clipMiddle shortens a name in the middle, because names differ at their ends.
func clipMiddle(name string, most int) string {
	r := []rune(name)
	if len(r) <= most {
		return name
	}
	tail := most * 2 / 3
	return string(r[:most-tail-1]) + "…" + string(r[len(r)-tail:])
}

type writeTable func(name string, rows [][]string) error

func (a *Program) draw(dir, name string, r *whatif.Result, f chart.Figure) error {
	path := filepath.Join(dir, name+".svg")
	return app.WriteWhole(path, func(w io.Writer) error {
		return chart.Write(w, chart.SVG, chart.Sourced{Figure: f, Source: whence(r)})
	})
}

// whence returns the subtitle of a chart: simulation, day, trials, and whether some prices are
// generated.
func whence(r *whatif.Result) string {
	text := fmt.Sprintf("%s of %s, %s trials, seed %d", r.ID, day(r.At), comma(r.Runs), r.Seed)
	generated := slices.ContainsFunc(r.BreakEven, func(b whatif.BreakEven) bool { return b.Generated }) ||
		slices.ContainsFunc(r.Alternatives, func(o whatif.Outcome) bool {
			return slices.ContainsFunc(o.Purchases, func(p whatif.Purchase) bool { return p.Generated })
		})
	if generated {
		text += "; some prices are generated"
	}
	return text
}

// outDirectory rejects a directory that contains anything but an earlier answer, which will be
// replaced as a whole.
func outDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || e.Name() != "result.json" && ext != ".csv" && ext != ".svg" {
			return &app.ConflictError{Err: fmt.Errorf("--out %s contains %s, which is not from a simulation: name another directory", dir, e.Name())}
		}
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "result.json" }) {
		return &app.ConflictError{Err: fmt.Errorf("--out %s contains files but no result.json, so they are not from a simulation: name another directory", dir)}
	}
	return nil
}

// writeSimulation writes an answer to a directory and replaces an earlier one: the document, and the
// tables and charts of the scenario. The directory never mixes two answers.
func (a *Program) writeSimulation(dir string, r *whatif.Result) (err error) {
	if err := outDirectory(dir); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := a.writeAnswer(fresh, r); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	a.note("written: %s", dir)
	return nil
}

// fileName returns a name that is valid on every file system.
func fileName(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s), "-.")
}

func (a *Program) costDistribution(dir string, r *whatif.Result, write writeTable) error {
	rows := [][]string{{"alternative", "from", "to", "trials"}}
	f := chart.Cumulative{Title: "Cost of " + r.Name, X: "net present cost, " + r.Currency}
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		for _, b := range x.Histogram {
			rows = append(rows, []string{x.Alternative, b.From.String(), b.To.String(), strconv.Itoa(b.Trials)})
		}
		s := chart.Sample{Name: x.Alternative}
		for _, d := range r.TrialsOf(i) {
			s.Values = append(s.Values, chart.Point(d.Cost))
		}
		f.Samples = append(f.Samples, s)
	}
	return errors.Join(write("cost-distribution.csv", rows), a.draw(dir, "cost-distribution", r, f))
}

// drawnPools bounds the load-duration charts of an alternative to the pools with the most demand.
// The table has all pools.
const drawnPools = 4

func (a *Program) loadDuration(dir string, r *whatif.Result, write writeTable) error {
	rows := [][]string{{"alternative", "pool", "hours", "guaranteed", "discount_only", "spot", "on_demand", "unserved", "committed"}}
	var errs []error
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		for j := range x.Stacks {
			s := &x.Stacks[j]
			for k := range s.Hours {
				rows = append(rows, []string{x.Alternative, s.Pool, strconv.Itoa(s.Hours[k]), s.Guaranteed[k].String(), s.DiscountOnly[k].String(), s.Spot[k].String(), s.OnDemand[k].String(), s.Unserved[k].String(), s.Committed[k].String()})
			}
		}
		order := make([]*whatif.Stack, 0, len(x.Stacks))
		for j := range x.Stacks {
			order = append(order, &x.Stacks[j])
		}
		peak := func(s *whatif.Stack) domain.Decimal {
			return s.Guaranteed[0].Add(s.DiscountOnly[0]).Add(s.Spot[0]).Add(s.OnDemand[0]).Add(s.Unserved[0])
		}
		slices.SortStableFunc(order, func(s, t *whatif.Stack) int { return peak(t).Cmp(peak(s)) })
		for _, s := range order[:min(len(order), drawnPools)] {
			f := chart.Stack{Title: x.Alternative + ": " + s.Pool, X: "hours of the horizon, by falling demand", Y: "machines", At: []float64{0}}
			for _, h := range s.Hours {
				f.At = append(f.At, float64(h))
			}
			for _, l := range []struct {
				name string
				of   []domain.Decimal
			}{{"guaranteed", s.Guaranteed}, {"discount only", s.DiscountOnly}, {"spot", s.Spot}, {"on demand", s.OnDemand}, {"unserved", s.Unserved}} {
				layer := chart.Layer{Name: l.name}
				for _, v := range l.of {
					layer.Values = append(layer.Values, chart.Point(v))
				}
				f.Layers = append(f.Layers, layer)
			}
			errs = append(errs, a.draw(dir, "load-duration-"+fileName(x.Alternative)+"-"+fileName(s.Pool), r, f))
		}
	}
	return errors.Join(append(errs, write("load-duration.csv", rows))...)
}

// drawnOffers bounds the offers in a break-even chart to the lowest. The table has all.
const drawnOffers = 5

func (a *Program) breakEvenChart(dir string, r *whatif.Result, write writeTable) error {
	rows := [][]string{{"pool", "offer", "kind", "term_epochs", "hourly", "on_demand_hourly", "break_even_utilization", "alternatives", "generated", "citation"}}
	drawn := map[string]*chart.Lines{}
	var pools []string
	for i := range r.BreakEven {
		b := &r.BreakEven[i]
		rows = append(rows, []string{b.Pool, b.Offer, string(b.Kind), strconv.Itoa(b.Term), b.Hourly.String(), b.OnDemand.String(), b.Utilization.String(), strings.Join(b.Alternatives, "; "), strconv.FormatBool(b.Generated), b.Citation})
		f := drawn[b.Pool]
		if f == nil {
			f = &chart.Lines{Title: "Buying against renting: " + b.Pool, X: "utilization, percent", Y: r.Currency + " for an hour that is there, discounted", FromZero: true}
			drawn[b.Pool] = f
			pools = append(pools, b.Pool)
		}
		if len(f.Marks) == drawnOffers {
			continue
		}
		// On-demand over the same term. Terms with the same price share one line.
		rent := chart.Line{Name: fmt.Sprintf("on demand, %d months", b.Term), X: []float64{0, 100}, Y: []float64{0, chart.Point(b.OnDemand)}}
		if same := slices.IndexFunc(f.Lines, func(l chart.Line) bool { return slices.Equal(l.Y, rent.Y) }); same < 0 {
			f.Lines = append(f.Lines, rent)
		} else if f.Lines[same].Name != rent.Name {
			f.Lines[same].Name = "on demand"
		}
		at := chart.Point(b.Hourly)
		f.Lines = append(f.Lines, chart.Line{Name: terms(strings.TrimPrefix(b.Offer, b.Pool+"|")), X: []float64{0, 100}, Y: []float64{at, at}, Dashed: true})
		if u := chart.Point(b.Utilization.Shift(2)); u <= 100 {
			f.Marks = append(f.Marks, chart.Mark{Name: b.Utilization.Shift(2).Round(0).String() + " %", At: u})
		}
	}
	errs := []error{write("break-even.csv", rows)}
	for _, p := range pools {
		errs = append(errs, a.draw(dir, "break-even-"+fileName(p), r, *drawn[p]))
	}
	return errors.Join(errs...)
}

func (a *Program) tornadoChart(dir string, r *whatif.Result, write writeTable) error {
	rows := [][]string{{"alternative", "driver", "given", "p5", "p95", "p5_cost", "p95_cost", "median_world_cost"}}
	var errs []error
	for i := range r.Alternatives {
		x := &r.Alternatives[i]
		if len(x.Tornado) == 0 {
			continue
		}
		f := chart.Tornado{Title: x.Alternative + ": what moves the cost, each driver from its p5 to its p95", X: "net present cost, " + r.Currency, Base: chart.Point(x.Median)}
		for _, s := range x.Tornado {
			rows = append(rows, []string{x.Alternative, s.Driver, s.Given, s.Low.String(), s.High.String(), s.LowCost.String(), s.HighCost.String(), x.Median.String()})
			f.Swings = append(f.Swings, chart.Swing{Name: swingName(&s), Low: chart.Point(s.LowCost), High: chart.Point(s.HighCost)})
		}
		errs = append(errs, a.draw(dir, "tornado-"+fileName(x.Alternative), r, f))
	}
	return errors.Join(append(errs, write("tornado.csv", rows))...)
}

func (a *Program) simulateFreezeCommand() *cobra.Command {
	workspace := app.Platform
	cmd := &cobra.Command{
		Use:     "freeze FILE",
		Short:   "Answer a scenario and record it as an event",
		Long:    "Freeze answers a scenario like \"quartermaster simulate\" and records the scenario and its answer\nas an event. The same answer is recorded only once.",
		Example: "  quartermaster simulate freeze deploy/demo/scenarios/demand-growth.yaml\n  quartermaster simulate verify sim-0f3a9c81d2e4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.ReadScenarioFile(args[0])
			if err != nil {
				return err
			}
			r, err := a.caller().Simulate(cmd.Context(), s, 0)
			if err != nil {
				return err
			}
			if err := a.caller().Freeze(cmd.Context(), r, workspace); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(r)
			}
			fmt.Fprintln(a.out, r.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&workspace, "workspace", workspace, "workspace of the scenario")
	return cmd
}

func (a *Program) simulateListCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List frozen scenarios",
		Long:    `List shows every frozen scenario, newest first.`,
		Example: "  quartermaster simulate list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.caller().Simulations(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.out, "no scenarios yet: \"quartermaster simulate freeze FILE\" records one")
				return nil
			}
			t := a.table("simulation", "workspace", "name", "recorded", "trials", "seed")
			t.SetColumnConfigs(rightFrom(5, 6))
			for _, e := range all {
				t.AppendRow(table.Row{e.Simulation, named(e.Workspace), named(e.Name), e.Recorded.Time().Format("2006-01-02 15:04:05"), count(e.Runs), e.Seed})
			}
			t.Render()
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) simulateShowCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:     "show SIMULATION",
		Short:   "Show the answer of a frozen scenario",
		Long:    "Show prints the answer of a frozen scenario as it was recorded. With -o json the recorded document is printed\nunchanged.",
		Example: "  quartermaster simulate show sim-0f3a9c81d2e4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.caller().Simulation(cmd.Context(), app.At(asOf), args[0])
			if err != nil {
				return err
			}
			if a.json {
				_, err := fmt.Fprintln(a.out, string(e.Document))
				return err
			}
			a.showSimulation(&e.Result)
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) simulateVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify SIMULATION",
		Short: "Answer a frozen scenario again from the log, and compare",
		Long: `Verify folds the log up to the recorded position and answers the scenario again. Both must be equal byte
for byte; exit status 1 if they are not.`,
		Example: "  quartermaster simulate verify sim-0f3a9c81d2e4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.caller().VerifySimulation(cmd.Context(), args[0], 0)
			return a.showVerified(v, err, "answer", "answered")
		},
	}
}

func (a *Program) simulateCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a scenario file",
		Long: `Check reads a scenario file and says what is wrong with it, with lines, columns and fields. It answers
nothing else, and reads no log. With -o json it shows the scenario, with what the file leaves out.`,
		Example: "  quartermaster simulate check deploy/demo/scenarios/demand-growth.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.ReadScenarioFile(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(s)
			}
			fmt.Fprintf(a.out, "%s: alternatives: %s; changes: %s; trials: %s; months: %s\n",
				args[0], comma(len(s.Alternatives)), comma(len(s.Changes)), comma(s.Runs), comma(s.Months))
			return nil
		},
	}
}

func (a *Program) simulateDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two answers: ids of frozen scenarios, or files result.json of --out",
		Long: `Diff compares the alternatives of two answers by name: expected cost, 95th percentile, and units
bought. It also lists other differences (position, seed, trials, method, currency), because they can
explain a change in cost.`,
		Example: "  quartermaster simulate diff sim-0f3a9c81d2e4 sim-77aa01b2c3d4\n  quartermaster simulate diff before/result.json after/result.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var both [2]*whatif.Result
			for i, arg := range args {
				if isResult(arg) {
					r, err := a.readResult(arg)
					if err != nil {
						return err
					}
					both[i] = r
					continue
				}
				e, err := a.caller().Simulation(cmd.Context(), "", arg)
				if err != nil {
					return err
				}
				both[i] = &e.Result
			}
			d := app.CompareSimulations(both[0], both[1])
			if a.json {
				return a.answerJSON(d)
			}
			t := a.table("alternative", d.A, d.B, "change", "change of p95", "units bought")
			t.SetColumnConfigs(rightFrom(2, 6))
			for _, x := range d.Alternatives {
				if x.Only != "" {
					t.AppendRow(table.Row{named(x.Alternative), "only in " + x.Only})
					continue
				}
				t.AppendRow(table.Row{named(x.Alternative), moneyCell(x.A), moneyCell(x.B), moneyCell(x.Change), moneyCell(x.P95), fmt.Sprintf("%+d", x.Units)})
			}
			t.Render()
			for _, n := range d.Notes {
				fmt.Fprintln(a.out, n)
			}
			return nil
		},
	}
	return cmd
}

// isResult reports whether an argument names a file of --out, and not a frozen scenario.
func isResult(arg string) bool { return strings.HasSuffix(arg, ".json") }

func (a *Program) readResult(path string) (*whatif.Result, error) {
	data, err := a.ReadDocument(path, nil)
	if err != nil {
		return nil, err
	}
	r := &whatif.Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != whatif.Format {
		return nil, fmt.Errorf("%s is not an answer of \"quartermaster simulate --out\": its format is %q", path, r.Format)
	}
	return r, nil
}

// kindDoc describes a kind of change in scenarios.
type kindDoc struct {
	Kind   whatif.Kind `json:"kind"`
	Doc    string      `json:"doc"`
	Fields []fieldDoc  `json:"fields"`
}

// fieldDoc describes a field of a change.
type fieldDoc struct {
	Name    string   `json:"name"`
	Form    string   `json:"form"`
	Needed  bool     `json:"needed"`
	Least   string   `json:"least,omitempty"`
	Most    string   `json:"most,omitempty"`
	Certain bool     `json:"certain,omitempty"` // must not be a distribution
	OneOf   []string `json:"one_of,omitempty"`
	Doc     string   `json:"doc"`
}

func (a *Program) simulateChangesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "changes [KIND]",
		Short:   "List the kinds of changes in scenarios, with their fields",
		Long:    `Changes lists the kinds of changes, or the fields of one.`,
		Example: "  quartermaster simulate changes\n  quartermaster simulate changes demand_growth",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var out []kindDoc
			for _, k := range whatif.Kinds() {
				if len(args) > 0 && string(k) != args[0] {
					continue
				}
				doc, fields := whatif.Fields(k)
				d := kindDoc{Kind: k, Doc: doc}
				for _, f := range fields {
					d.Fields = append(d.Fields, fieldDoc{f.Name, string(f.Form), f.Need, f.Least, f.Most, f.Certain, f.OneOf, f.Doc})
				}
				out = append(out, d)
			}
			if len(out) == 0 {
				return &app.NotFoundError{What: "kind", Name: args[0], Err: fmt.Errorf("no kind of change %q; known are %v", args[0], whatif.Kinds())}
			}
			if a.json {
				return a.answerJSON(out)
			}
			if len(args) == 0 {
				t := a.table("kind", "description")
				for _, k := range out {
					t.AppendRow(table.Row{k.Kind, k.Doc})
				}
				t.Render()
				fmt.Fprintln(a.out, "a number may be a distribution: 5, {fixed: 5}, {triangular: [0, 0.02, 0.05]}, {lognormal: {p50: 40, p95: 90}}, {poisson: 2}")
				return nil
			}
			fmt.Fprintln(a.out, out[0].Doc)
			t := a.table("field", "", "form", "bounds", "description")
			for _, f := range out[0].Fields {
				needed, bounds := "", ""
				if f.Needed {
					needed = "needed"
				}
				if f.Least != "" || f.Most != "" {
					bounds = f.Least + " to " + f.Most
				}
				form := f.Form
				if len(f.OneOf) > 0 {
					form = strings.Join(f.OneOf, " | ")
				}
				t.AppendRow(table.Row{f.Name, needed, form, bounds, f.Doc})
			}
			t.Render()
			return nil
		},
	}
}
