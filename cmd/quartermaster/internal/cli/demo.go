package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/importer"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/plan"
	"quartermaster/domain/recommend"
	"quartermaster/simulations/demo"
)

// demoAnswer is the answer of the demo.
type demoAnswer struct {
	Input           string  `json:"input"` // generated, or the directory of the public files
	Events          int64   `json:"events"`
	Imported        int     `json:"imported"` // by this run
	ImportSeconds   float64 `json:"import_seconds"`
	EventsPerSecond float64 `json:"events_per_second"` // folded by the replay
	Currency        string  `json:"currency"`
	InvoiceTotal    string  `json:"invoice_total"`
	AttributedTotal string  `json:"attributed_total"`
	Difference      string  `json:"difference"`
	Exceptions      int     `json:"exceptions"` // of costs
	// Planted are the deliberate exceptions of fleet and costs in a generated demo. It has no others.
	// Null for public files.
	Planted      []demoException `json:"planted"`
	Position     string          `json:"position"`
	LiveDigest   string          `json:"live_digest"`
	ReplayDigest string          `json:"replay_digest"`
	Plan         demoPlan        `json:"plan"`
	// Incidents are what needs a person, and Recommendations the five best things to do.
	Incidents       []advice.Case              `json:"incidents"`
	Recommendations []recommend.Recommendation `json:"recommendations"`
	Seconds         float64                    `json:"seconds"`
	Files           []demoFile                 `json:"files"`
}

type demoPlan struct {
	Plan    string           `json:"plan"`
	Regions []demoPlanRegion `json:"regions"`
}

type demoPlanRegion struct {
	Region       string          `json:"region"`
	Purchases    []plan.Purchase `json:"purchases"`
	Cost         string          `json:"cost"`
	CurrentCost  string          `json:"buy_nothing_cost"`
	OnDemandCost string          `json:"on_demand_cost"`
	LowerBound   string          `json:"lower_bound"`
	Gap          string          `json:"gap"`
}

type demoFile struct {
	File     string  `json:"file"`
	Events   int     `json:"events"`
	Appended int     `json:"appended"`
	BadRows  int     `json:"bad_rows"`
	Seconds  float64 `json:"seconds"`
}

func (a *Program) demoCommand() *cobra.Command {
	var (
		once   bool
		from   string
		listen string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A fleet with its usage, bill and a plan, on this machine",
		Long: `Demo fills a data directory with one month of a fleet, and answers from the events: what the
fleet contains, who used it, what each workspace owes, and what to buy. It installs nothing,
and no data leaves the machine.

Without --from, a deterministic generator creates the files. It is calibrated with published
figures, which it cites; prices are public list prices. With --from, the demo reads the public
files: openb, Helios, Shaved Ice and a price list, in the folders openb, helios, demand and
prices. The bill is generated in both cases, because no public bill exists. Its invoice is
computed from the contract, not from the lines.

The generated fleet reports activity and memory of most GPUs. It has model servers of two
tiers, and jobs of three days. Four exceptions are planted on purpose and marked where they
show: a node that is declared and never reports (one in fleet, one in costs), and a machine on
the bill that is not in the fleet (two in costs). There are no other exceptions. Three small
clusters of H100, a contract and a machine that fails again and again are planted, too: so each
rule of "quartermaster advice" fires, and docs/reference/rules.md names the cause that it finds.

A second run on the same directory imports nothing twice, and continues an interrupted run.
Without --once the demo then keeps the log open for other commands, and prints a link that opens
the pages in your browser.`,
		Example: "  quartermaster demo --once\n  quartermaster demo --once --from data --data-dir /tmp/public-demo\n  quartermaster demo --once -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(a.Brokers) > 0 {
				return errors.New("the demo works on the embedded log; leave --brokers out")
			}
			if err := a.demo(cmd.Context(), from, once); err != nil || once {
				return err
			}
			a.note("the log stays open for other commands; stop with Ctrl-C")
			return a.HoldOpen(cmd.Context(), listen)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "exit after the answers")
	f.StringVar(&from, "from", "", "directory with the public files, instead of generated files")
	f.StringVar(&listen, "listen", "127.0.0.1:7070", "address of the HTTP endpoints, without --once")
	return cmd
}

func (a *Program) demo(ctx context.Context, from string, once bool) error {
	start := time.Now()
	input := "generated"
	if from != "" {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		input = abs
	}
	if err := a.MarkDemo(ctx, input); err != nil {
		return err
	}
	d := &demoRun{app: a, say: func(format string, args ...any) {
		if !a.json {
			fmt.Fprintf(a.out, format+"\n", args...)
		}
	}}
	d.ans.Input, d.ans.Currency, d.ans.Files = input, "USD", []demoFile{}
	var err error
	if from == "" {
		err = d.generate()
	} else {
		err = d.public(input)
	}
	if err != nil {
		return err
	}
	if err := a.caller().Begin(ctx, false); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.estate, d.imports, d.activity, d.incidents, d.market, d.bill, d.answer} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%w; run the demo again to continue", err)
		}
	}
	d.ans.Seconds = time.Since(start).Seconds()
	if a.json {
		return a.answerJSON(d.ans)
	}
	d.say("\n%.1f s in all. Go on with:", d.ans.Seconds)
	for _, next := range []string{
		"fleet --at 2026-06-01", "usage --by workspace --from 2026-05 --to 2026-06", "costs --period 2026-05 --by workspace,component",
		"serving --from 2026-05-29 --to 2026-06", "jobs --from 2026-05-29 --to 2026-06",
		"plan --at 2026-06-01 --growth 0.02 --dry-run", "plan forecast --at 2026-06-01", "log replay --verify",
	} {
		if a.Config != nil {
			d.say("  quartermaster %s --config %s", next, a.ConfigPath)
			continue
		}
		d.say("  quartermaster %s --data-dir %s", next, a.Dir)
	}
	if a.Config == nil && once {
		d.say("  quartermaster serve --data-dir %s   # prints a link that opens the pages in your browser", a.Dir)
	}
	return nil
}

// demoRun is a run of the demo.
type demoRun struct {
	app *Program
	say func(format string, args ...any)
	ans demoAnswer

	// The demo's data.
	label          string   // heading
	billed         string   // the sampled and billed cluster
	owned          string   // the owned cluster
	wanted         string   // the cluster of demand without machines
	tenants        []string // workspaces of the billed cluster
	demandNote     string
	nodes, pods    string
	usage, demands string
	prices         string
	options        map[string]importer.Options // by file
	// draw returns the random numbers of a stream; nil for public files.
	draw func(stream uint64) func() uint64
}

// The calendar of the demo: May 2026, seen from its end.
var (
	demoMonth = domain.Interval{From: instantOf(2026, 5, 1), To: instantOf(2026, 6, 1)}
	demoNow   = demoMonth.To
)

func instantOf(year, month, day int) domain.Instant {
	return domain.InstantOf(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC))
}

// The assumed machine type and region of the billed cluster. Its bill uses their public list
// prices.
const (
	demoRegion, demoOther = "us-east-1", "us-west-2"
	demoSKU, demoGPU      = "p3dn.24xlarge", "V100 32GB"
	demoAccount           = "demo-0001"
	demoSeed              = 20260501
)

// Of the generated fleet: its clusters, and the first of the workspaces that use the rented one.
const demoRented, demoOwned, demoFirstTenant = "gen-rented", "gen-owned", "vc-a01"

// generate writes the files of the generated fleet, unless they exist.
func (d *demoRun) generate() error {
	dir := filepath.Join(d.app.Dir, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d.label, d.billed, d.owned, d.wanted = "GENERATED fleet, not a measurement", demoRented, demoOwned, "gen-wanted"
	d.demandNote = "generated in the shape of a published demand for CPU machines"
	d.nodes, d.pods = filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "pods.csv")
	d.usage, d.demands, d.prices = filepath.Join(dir, "usage.csv"), filepath.Join(dir, "demand.csv"), filepath.Join(dir, "prices.csv")
	begin := time.Now()
	draw := func(stream uint64) func() uint64 { return rand.New(rand.NewPCG(demoSeed, stream)).Uint64 }
	d.draw = draw
	write := func(path string, what func(io.Writer) error) error {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		return app.WriteWhole(path, what)
	}
	err := errors.Join(
		write(d.nodes, func(w io.Writer) error { return demo.Fleet(w, io.Discard, draw(1)) }),
		write(d.pods, func(w io.Writer) error { return demo.Fleet(io.Discard, w, draw(1)) }),
		write(d.usage, func(w io.Writer) error { return demo.Load(w, draw(2), draw(4)) }),
		write(d.demands, func(w io.Writer) error { return demo.Demand(w, draw(3)) }),
		write(d.prices, demo.Prices),
	)
	if err != nil {
		return fmt.Errorf("generate files: %w", err)
	}
	d.options = map[string]importer.Options{
		d.nodes:   {Cluster: d.owned, Epoch: instantOf(2026, 1, 5)},
		d.pods:    {Cluster: d.owned, Workspace: demoResearch, Epoch: instantOf(2026, 1, 5)},
		d.usage:   d.usageOptions(0),
		d.demands: d.demandOptions(0, map[string]string{"A": "p3.16xlarge", "B": "p5.48xlarge", "C": "p4d.24xlarge"}),
		d.prices:  {},
	}
	d.say("%s\nfiles: %s, %.1f s; calibrated with", d.label, dir, time.Since(begin).Seconds())
	for _, s := range demo.Catalogue() {
		d.say("  %s: %s", s.What, s.Citation)
	}
	return nil
}

// public names the public files and the shifts of their dates.
func (d *demoRun) public(dir string) error {
	d.label, d.billed, d.owned, d.wanted = "PUBLIC DATA, shifted to one calendar; the bill and the incidents are generated", "helios-earth", "openb", "shavedice"
	d.demandNote = "a published demand for CPU machines (Shaved Ice), used as a shape"
	d.nodes, d.pods = filepath.Join(dir, "openb", "openb_node_list_gpu_node.csv"), filepath.Join(dir, "openb", "openb_pod_list_default.csv")
	d.usage, d.demands = filepath.Join(dir, "helios", "earth_vc_hourly.csv.gz"), filepath.Join(dir, "demand", "shavedice_regions_1_2.csv.gz")
	d.prices = filepath.Join(dir, "prices", "gpu_offers.csv")
	for _, path := range []string{d.nodes, d.pods, d.usage, d.demands, d.prices} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--from %s: %w; docs/evidence/data-sources.md names the files and their sources", dir, err)
		}
	}
	const helios, shavedice = 2191, 847 // days: 313 and 121 weeks
	d.options = map[string]importer.Options{
		d.nodes:   {Cluster: d.owned, Epoch: instantOf(2026, 1, 5)},
		d.pods:    {Cluster: d.owned, Workspace: demoResearch, Epoch: instantOf(2026, 1, 5), Standing: true},
		d.usage:   d.usageOptions(helios),
		d.demands: d.demandOptions(shavedice, map[string]string{"A": "p3.16xlarge", "B": "p5.48xlarge", "J": "p4d.24xlarge"}),
		d.prices:  {},
	}
	d.say("%s\nfiles: %s; one calendar, shifted by whole weeks to keep weekdays:", d.label, dir)
	d.say("  Helios Earth, May 2020: %d days later, its hours read as UTC; a mean of running GPUs becomes one sample per node and 10 minutes, lowest nodes first", helios)
	d.say("  openb: every node and pod exists from 2026-01-05 on; the trace is used as a mix to pack, not as a schedule")
	d.say("  Shaved Ice, February 2021 to January 2024: %d days later; CPU machines, used as a shape of demand: type A stands for p3.16xlarge, its successor B for p5.48xlarge, J for p4d.24xlarge; no offers exist for the others", shavedice)
	d.say("  offers: dated as their sources date them")
	return nil
}

func (d *demoRun) usageOptions(days int) importer.Options {
	return importer.Options{
		Cluster: d.billed, Zone: "UTC", Shift: time.Duration(days) * 24 * time.Hour, GPUModel: demoGPU, SKU: demoSKU, Account: demoAccount,
		CPUMilli: 96_000, MemoryMiB: 768 << 10, Historical: true,
	}
}

func (d *demoRun) demandOptions(days int, models map[string]string) importer.Options {
	return importer.Options{
		Cluster: d.wanted, Zone: "UTC", Shift: time.Duration(days) * 24 * time.Hour, Historical: true,
		Regions: map[string]string{"1": demoRegion, "2": demoOther},
		Models:  models,
	}
}

func (d *demoRun) caller() *app.Caller { return d.app.caller() }

// imports imports the files.
func (d *demoRun) imports(ctx context.Context) error {
	for _, f := range []struct {
		kind importer.Kind
		path string
	}{{importer.Nodes, d.nodes}, {importer.Pods, d.pods}, {importer.Usage, d.usage}, {importer.Demand, d.demands}, {importer.Prices, d.prices}} {
		if err := d.caller().ImportColumns(ctx, f.kind, d.options[f.path], []string{f.path}, false, d.took); err != nil {
			return err
		}
	}
	return nil
}

// took reports the import of a file.
func (d *demoRun) took(ans *app.Imported) error {
	d.ans.Imported += ans.Appended
	d.ans.ImportSeconds += ans.Seconds
	d.ans.Files = append(d.ans.Files, demoFile{filepath.Base(ans.File), ans.Events, ans.Appended, ans.BadRows, ans.Seconds})
	how := fmt.Sprintf("%s appended in %.1f s, %s events/s", comma(ans.Appended), ans.Seconds, comma(int(float64(ans.Appended)/max(ans.Seconds, 1e-3))))
	if ans.Appended == 0 {
		how = "all known already"
	}
	bad := ""
	if ans.BadRows > 0 {
		bad = fmt.Sprintf("; %s bad rows, the first: %s", comma(ans.BadRows), ans.Bad[0].Reason)
	}
	d.say("%-32s %9s events: %s%s", filepath.Base(ans.File), comma(ans.Events), how, bad)
	return nil
}

// answer computes everything that the demo shows, only from the rows.
func (d *demoRun) answer(ctx context.Context) error {
	q := app.UsualPlan()
	q.At, q.Assumptions.MonthlyGrowth = demoNow, decimal.New(2, -2)
	set, err := d.caller().Quarantine(ctx, "", app.QuarantineFilter{Partition: -1, Open: true})
	if err == nil && set.Open > 0 {
		err = fmt.Errorf("%d events of the demo are in quarantine, a defect: see \"quartermaster quarantine list\"", set.Open)
	}
	if err != nil {
		return err
	}
	if err := d.show(ctx); err != nil {
		return err
	}
	p, _, err := d.caller().Plan(ctx, "", q)
	if err != nil {
		return err
	}
	d.ans.Plan = demoPlan{Plan: p.ID, Regions: []demoPlanRegion{}}
	for i := range p.Regions {
		r := &p.Regions[i]
		d.ans.Plan.Regions = append(d.ans.Plan.Regions, demoPlanRegion{
			Region: r.Region, Purchases: r.Purchases, Cost: r.Cost.String(), CurrentCost: r.Current.String(),
			OnDemandCost: r.OnDemand.String(), LowerBound: r.LowerBound.String(), Gap: r.Gap.String(),
		})
	}
	if !d.app.json {
		fmt.Fprintf(d.app.out, "\n== What to buy: prices are public list prices unless marked generated; demand of %s is that of the month above, other demand is %s\n", d.billed, d.demandNote)
		d.app.showPlan(p, 10)
	}
	replay, err := d.caller().Replay(ctx, true)
	if err != nil {
		return err
	}
	d.ans.Events, d.ans.EventsPerSecond, d.ans.Position = replay.Events, replay.EventsPerSecond, replay.Position
	d.ans.LiveDigest, d.ans.ReplayDigest = replay.LiveDigest, replay.ReplayDigest
	if !d.app.json {
		fmt.Fprintln(d.app.out)
		if err := d.app.showReplay(replay); err != nil {
			return err
		}
	}
	if !*replay.Equal {
		return &failed{why: "the live rows differ from the log"}
	}
	return d.advise(ctx)
}

// shownAdvice is how many incidents and recommendations the demo shows.
const shownAdvice = 5

// advise shows what needs a person, and what could be done.
func (d *demoRun) advise(ctx context.Context) error {
	found, err := d.caller().Advice(ctx, "", app.AdviceQuery{At: demoNow})
	if err != nil {
		return err
	}
	todo, err := d.caller().Recommendations(ctx, "", app.RecommendQuery{At: demoNow})
	if err != nil {
		return err
	}
	d.ans.Incidents, d.ans.Recommendations = found.Cases, todo.Made[:min(shownAdvice, len(todo.Made))]
	if d.app.json {
		return nil
	}
	fmt.Fprintf(d.app.out, "\n== What needs a person on %s: each is an incident once \"quartermaster serve\" runs\n", day(demoNow))
	d.app.showCases(found.Cases)
	if d.draw != nil {
		fmt.Fprintln(d.app.out, "planted on purpose: docs/reference/rules.md names the cause of each rule's findings")
	}
	fmt.Fprintf(d.app.out, "\n== What to do: the five best of %s\n", comma(len(todo.Made)))
	d.app.actionTable(d.ans.Recommendations, shownAdvice)
	return nil
}
