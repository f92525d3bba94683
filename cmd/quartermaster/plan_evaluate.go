package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement/check"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/schemas"
	"quartermaster/simulations/whatif"
)

// appraisalKeys names the keys of an appraisal.
const appraisalKeys = `JSON keys: contract, pool, pools (that have to do with one another), instance
(SHA-256), methods, currency, decision (take, leave, or open: what it saves is
within what could not be proven), verdict (in words), worth (cost without less cost
with), worth_at_least and worth_at_most (what is proven of it), units (that the plan
takes), order (offer, commitment, renewals, epoch, units), renewed, without, with and
signed (each: units, cost, lower_bound, gap, shortage_penalty, nominal_cost,
unused_unit_hours, stranded_at_low_demand; signed is the smallest order where the
plan takes none), hourly (asked, of the tier that is taken, or that the smallest order
pays), break_even_hourly (the highest price at which it is proven to pay),
break_even_hourly_at_most (from there on it is proven to save less than a cent),
break_even_hourly_beyond (instead of both: it pays at this price still, and none was
tried beyond), upfront (asked besides), break_even_upfront and
break_even_upfront_at_most (likewise, where all is paid upfront), break_even_utilization
(share of its hours in which a unit must be used to cost no more than on demand),
utilization (of what is committed in the pool during its term, without what stands by),
replaces (offer, commitment, units_without, units_with) and notes. Amounts are decimal
strings, net present values where nothing else is said.`

func (a *app) planEvaluateCommand() *cobra.Command {
	var path, asOf string
	fl := usualPlan
	cmd := &cobra.Command{
		Use:   "evaluate CONTRACT.yaml",
		Short: "Weigh an offer on the table: what it is worth beside the plan without it",
		Long: `Evaluate plans twice, without the contract and with it, and says what the
difference is worth, with what is proven of it; the highest hourly price at which
signing would pay, and from which on it is proven not to, and the highest payment
upfront where nothing is asked by the hour; how much of its time a unit
must be used; how many units the plan would take; what it strands and what it replaces.
A contract is signed once or not at all. It is weighed beside what the log offers and
holds, as "quartermaster plan" is computed, or beside an instance of "plan solve".
Nothing is recorded or bought.

A contract is YAML (--schema prints its JSON Schema): apiVersion, kind: Contract, name,
pool, or region and class; term_epochs (months, or days where the instance counts in
days), hourly, upfront, currency, guarantees_capacity; from and to (when the term may
begin; with from alone it begins with the first epoch from there on), lead_time_hours,
min_units, max_units, lot, covers_per_unit, tiers (units, upfront, hourly), ramp (epoch,
permille), renews and notice_days, offer_kind, provider, citation. From the log a pool
is called by its region and kind, "us-east-1 H100 80GB", and a unit is a machine. Errors
name file, line and column.

` + appraisalKeys,
		Example: "  quartermaster plan evaluate deploy/demo/contracts/one-year-p4d.yaml --at 2026-06-01 --months 24\n" +
			"  quartermaster plan evaluate deploy/demo/contracts/one-year-p4d.yaml --instance deploy/demo/instances/single-pool.json --json\n" +
			"  quartermaster plan evaluate --schema > contract.schema.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, c, err := readContract(args[0])
			if err != nil {
				return err
			}
			var in *instances.Instance
			if path != "" {
				for _, f := range planQuestionFlags {
					if cmd.Flags().Changed(f) {
						return commandline.Usagef("--%s is of a plan from the log, and --instance says everything itself", f)
					}
				}
				in, err = readInstance(path, cmd.InOrStdin())
			} else {
				in, err = a.instanceOfLog(cmd.Context(), &fl, asOf)
			}
			if err != nil {
				return err
			}
			got, err := a.appraise(cmd.Context(), in, c)
			var clash *instances.Infeasible
			if errors.As(err, &clash) {
				return a.showClash(clash)
			} else if err != nil {
				return faultsIn(args[0], whatif.ContractFaults(doc, err))
			}
			if a.json {
				return a.answerJSON(got)
			}
			a.showAppraisal(got)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "instance", "", "weigh it beside this instance, and not beside the log")
	a.orSchema(cmd, "contracts", schemas.Contract)
	questionFlags(cmd, &fl)
	asOfFlag(cmd, &asOf)
	return cmd
}

// instanceOfLog states the question that a plan would be computed from.
func (a *app) instanceOfLog(ctx context.Context, fl *planFlags, asOf string) (in *instances.Instance, err error) {
	as, err := fl.assumptions()
	if err != nil {
		return nil, err
	}
	var at domain.Instant
	if fl.at != "" {
		if at, err = instantFlag(fl.at); err != nil {
			return nil, commandline.Usagef("--at: %w", err)
		}
	}
	return in, a.readAt(ctx, asOf, func(h *home) error {
		if fl.at == "" {
			if at, err = h.now(ctx); err != nil {
				return err
			}
		}
		return h.view(ctx, func(v projections.View) error {
			if err := (asked{region: fl.region}).known(v); err != nil {
				return err
			}
			q, err := planning.Question(v, at, fl.region, as)
			if err != nil {
				return err
			}
			if in, err = q.Instance(); err == nil && len(in.Pools) == 0 {
				err = noPools(in, fl.region, at)
			}
			return err
		})
	})
}

// noPools says why nothing can be weighed.
func noPools(in *instances.Instance, region string, at domain.Instant) error {
	if len(in.Notes) == 0 {
		return fmt.Errorf("%w%s: no demand was observed before %s; import some with \"quartermaster import usage\" or \"quartermaster import demand\"", errNothingToPlan, asked{region: region}, at)
	}
	more := ""
	if n := len(in.Notes) - 1; n > 0 {
		more = fmt.Sprintf(", and %s more", comma(n))
	}
	return fmt.Errorf("%w at %s: %s%s; --at DATE names another time", errNothingToPlan, at, in.Notes[0], more)
}

// readContract reads a contract and the tree that it is in. Errors name file, line
// and column.
func readContract(path string) (*whatif.Node, *instances.Contract, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, scenarioBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	doc, c, err := parseContract(data)
	return doc, c, faultsIn(path, err)
}

// parseContract reads a contract from YAML. The error is [whatif.Errors].
func parseContract(data []byte) (*whatif.Node, *instances.Contract, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, whatif.Errors{{Line: 1, Column: 1, Problem: fmt.Sprintf("is empty; begin with apiVersion: %s and kind: %s", whatif.APIVersion, whatif.ContractKind)}}
	}
	doc, err := scenarioTree(data)
	if err != nil {
		return nil, nil, err
	}
	c, err := whatif.ParseContract(doc)
	return doc, c, err
}

// faultsIn adds the name of a file to what is wrong with it.
func faultsIn(path string, err error) error {
	var faults whatif.Errors
	if !errors.As(err, &faults) {
		return err
	}
	lines := strings.Split(faults.Error(), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "and ") {
			lines[i] = path + ":" + l
		}
	}
	return &application.InvalidError{Err: errors.New(strings.Join(lines, "\n"))}
}

func (a *app) appraise(ctx context.Context, in *instances.Instance, c *instances.Contract) (*instances.Appraisal, error) {
	lp, done := linearSolver()
	defer done()
	stop := a.still("weighing the contract")
	defer stop()
	got, err := instances.Appraise(ctx, in, c, lp)
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: a contract with a least order, tiers, a ramp or a renewal needs one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return got, err
}

func (a *app) showAppraisal(x *instances.Appraisal) {
	fmt.Fprintf(a.out, "%s, for %s: %s\n\n%s\n\n", clipped(x.Contract), clipped(x.Pool), strings.ToUpper(string(x.Decision)), x.Verdict)
	t := a.table("", "units", "cost", "lower bound", "gap", "not served", "paid within the horizon", "unused unit-hours", "stranded at low demand")
	t.SetColumnConfigs(rightFrom(2, 9))
	row := func(name string, c *instances.Course) {
		t.AppendRow(table.Row{name, comma(c.Units), money(c.Cost), money(c.LowerBound), percentOf(c.Gap), money(c.Penalty), money(c.Nominal), money(c.Unused), money(c.Stranded)})
	}
	row("without it", &x.Without)
	row("with it", &x.With)
	if x.Signed != nil {
		row("signed all the same", x.Signed)
	}
	t.Render()
	of := x.Pool
	if n := len(x.Pools); n > 1 {
		of = fmt.Sprintf("%s and what has to do with it, %d pools in all", of, n)
	}
	fmt.Fprintf(a.out, "amounts in %s at net present value, of pool %s\n", x.Currency, domain.Clip(of, 3*widest))
	if x.BreakEvenUse != nil {
		fmt.Fprintf(a.out, "against the price on demand a unit pays when it is used %s of its hours", percentOf(*x.BreakEvenUse))
		if x.Use != nil {
			fmt.Fprintf(a.out, "; what is committed in the pool would be used %s", percentOf(*x.Use))
		}
		fmt.Fprintln(a.out)
	}
	for _, r := range x.Replaces {
		fmt.Fprintf(a.out, "%s: %s units are bought with it, and %s without it\n", clipped(r.Offer+r.Commitment), comma(r.With), comma(r.Without))
	}
	for _, n := range x.Notes {
		fmt.Fprintln(a.out, "note: "+n)
	}
}

// planQuestionFlags are the flags that say what a plan from the log is asked.
var planQuestionFlags = []string{"region", "at", "months", "weeks", "growth", "rate", "salvage", "spot-overhead", "shortage-factor", "service-level", "currency", "as-of"}

// questionFlags are those of everything that is computed from the question of a plan.
func questionFlags(cmd *cobra.Command, fl *planFlags) {
	f := cmd.Flags()
	f.StringVar(&fl.region, "region", "", "only this region")
	f.StringVar(&fl.at, "at", "", "offers, quotas, demand and decisions as of this time, so that a commitment decided and begun later is not known; the horizon begins with the next month (default now)")
	f.IntVar(&fl.months, "months", fl.months, "length of the horizon")
	f.IntVar(&fl.weeks, "weeks", fl.weeks, "weeks of observed demand that are repeated")
	f.StringVar(&fl.growth, "growth", fl.growth, "growth of demand per month, 0.02 is two percent")
	f.StringVar(&fl.rate, "rate", "", "annual rate that payments are discounted with (default the policy cost_of_capital, else 0.08)")
	f.StringVar(&fl.salvage, "salvage", fl.salvage, "share of its cost beyond the horizon that a purchase is taken to be worth, 0 to 1")
	f.StringVar(&fl.overhead, "spot-overhead", fl.overhead, "share of spot time lost to interruptions")
	f.StringVar(&fl.shortage, "shortage-factor", fl.shortage, "an hour unserved costs so many times the on-demand price")
	f.StringVar(&fl.serviceLevel, "service-level", "", "probability with which all demand can be served although machines fail, such as 0.999: spare machines for it are planned, by what was learned of failures in the last 90 days (default none)")
	f.StringVar(&fl.currency, "currency", fl.currency, "currency of the plan; offers in others are left out")
}
