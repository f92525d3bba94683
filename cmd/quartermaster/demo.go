package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/importer"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/simulations/demo"
)

// demoAnswer is what the demo answers.
type demoAnswer struct {
	Input           string     `json:"input"` // generated, or the directory of the public files
	Events          int64      `json:"events"`
	Imported        int        `json:"imported"` // by this run
	ImportSeconds   float64    `json:"import_seconds"`
	EventsPerSecond float64    `json:"events_per_second"` // folded by the replay
	Currency        string     `json:"currency"`
	InvoiceTotal    string     `json:"invoice_total"`
	AttributedTotal string     `json:"attributed_total"`
	Difference      string     `json:"difference"`
	Exceptions      int        `json:"exceptions"`
	Position        string     `json:"position"`
	LiveDigest      string     `json:"live_digest"`
	ReplayDigest    string     `json:"replay_digest"`
	Plan            demoPlan   `json:"plan"`
	Seconds         float64    `json:"seconds"`
	Files           []demoFile `json:"files"`
}

type demoPlan struct {
	Plan    string           `json:"plan"`
	Regions []demoPlanRegion `json:"regions"`
}

type demoPlanRegion struct {
	Region       string          `json:"region"`
	Purchases    []plan.Purchase `json:"purchases"`
	Cost         string          `json:"cost"`
	CurrentCost  string          `json:"current_course_cost"`
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

func (a *app) demoCommand() *cobra.Command {
	var (
		once       bool
		data, from string
		listen     string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A fleet, its use, its bill and a plan, from events, on this machine",
		Long: `Demo fills a home with a month of a fleet, and answers from the events what
there is, who used it, what each workspace owes, and what to buy. Nothing is
installed and nothing leaves the machine.

Without --from the files are made up, by a generator that always makes the same,
calibrated with published figures which it cites; prices are public list prices.
With --from they are the public files themselves: openb, Helios, Shaved Ice and a
price list, in the folders openb, helios, demand and prices. The bill is made up
in both cases, because no public one exists, and its invoice is computed from the
contract, not from the lines.

A second run on the same directory imports nothing twice, and one that was killed
goes on. Without --once the demo then keeps the log open for other commands.

JSON keys: input, events, imported, import_seconds, events_per_second, currency,
invoice_total, attributed_total, difference, exceptions, position, live_digest,
replay_digest, plan (plan, regions (region, purchases (provider, offer, kind, sku,
gpu_model, units, gpus, term (from, to), order_by, upfront, hourly, cost,
guarantees_capacity, generated, citation, worth_per_unit, reason), cost, current_course_cost,
on_demand_cost, lower_bound, gap)), seconds, files (file, events, appended,
bad_rows, seconds). Money is decimal text.`,
		Example: "  quartermaster demo --once\n  quartermaster demo --once --from data --data /tmp/public-demo\n  quartermaster demo --once --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(a.brokers) > 0 {
				return errors.New("the demo works on the embedded log; leave --brokers out")
			}
			if data != "" {
				a.dir = data
			}
			if err := a.demo(cmd.Context(), from); err != nil || once {
				return err
			}
			a.note("the log stays open for other commands; stop with Ctrl-C")
			return a.serve(cmd.Context(), listen, config.Gateway{})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "end after the answers")
	f.StringVar(&data, "data", "", "home to fill (default that of --home)")
	f.StringVar(&from, "from", "", "directory with the public files, instead of making files up")
	f.StringVar(&listen, "listen", "127.0.0.1:7070", "address of the HTTP endpoints, without --once")
	return cmd
}

// notDemo keeps somebody's own facts out of the demo's home, where they would
// land by leaving out --home. Whoever means it names the home.
func (a *app) notDemo() error {
	if a.named || !a.embedded() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(a.dir, demoMark)); err == nil {
		return &application.ConflictError{Err: fmt.Errorf("%s holds the demo: name a home for what is yours with --home or QUARTERMASTER_HOME (or this one, to add to the demo)", a.dir)}
	}
	return nil
}

// demoMark is the file that tells a home of the demo from one that is somebody's.
const demoMark = "demo.json"

// markDemo refuses a home that is not the demo's, or that of other input.
func (a *app) markDemo(ctx context.Context, input string) error {
	if err := a.placed(); err != nil {
		return err
	}
	path := filepath.Join(a.dir, demoMark)
	want, err := json.Marshal(map[string]string{"input": input})
	if err != nil {
		return err
	}
	have, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(bytes.TrimSpace(have), want):
		return nil
	case err == nil:
		return &application.ConflictError{Err: fmt.Errorf("%s holds a demo of other input: %s; give another directory with --data", a.dir, bytes.TrimSpace(have))}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if a.config != nil {
		err = a.withLog(ctx, func(h *home) error {
			end, err := h.end(ctx)
			if err == nil && end.Records() > 0 {
				err = fmt.Errorf("the log holds %s events that the demo of %s did not make, and would be mixed with it; the demo needs a log of its own", comma(int(end.Records())), a.dir)
			}
			return err
		})
		if err != nil && !errors.Is(err, errNoTopics) {
			return err
		}
	} else if a.reading() == nil {
		return &application.ConflictError{Err: fmt.Errorf("%s holds a home that the demo did not make, and would be mixed with it; give another directory with --data", a.dir)}
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(append(want, '\n'))
		return err
	})
}

// writeWhole writes a file that is either there as a whole or not at all.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
		}
	}()
	w := bufio.NewWriterSize(tmp, 1<<20)
	if err := write(w); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(w.Flush(), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func (a *app) demo(ctx context.Context, from string) error {
	start := time.Now()
	input := "generated"
	if from != "" {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		input = abs
	}
	if err := a.markDemo(ctx, input); err != nil {
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
	return a.with(ctx, func(h *home) error {
		d.home = h
		for _, step := range []func(context.Context) error{d.estate, d.imports, d.incidents, d.market, d.bill, d.answer} {
			if err := step(ctx); err != nil {
				return fmt.Errorf("%w; the demo can be run again, and goes on where it stopped", err)
			}
		}
		d.ans.Seconds = time.Since(start).Seconds()
		if a.json {
			return a.answerJSON(d.ans)
		}
		d.say("\n%.1f s in all. Go on with:", d.ans.Seconds)
		for _, next := range []string{
			"fleet --at 2026-06-01", "usage --by workspace --from 2026-05 --to 2026-06", "costs --period 2026-05 --by workspace,component",
			"plan --at 2026-06-01 --growth 0.02 --dry-run", "plan forecast --at 2026-06-01", "log replay --verify",
		} {
			if a.config != nil {
				d.say("  quartermaster %s --config %s", next, a.configPath)
				continue
			}
			d.say("  quartermaster %s --home %s", next, a.dir)
		}
		return nil
	})
}

// demoRun is a run of the demo.
type demoRun struct {
	app  *app
	home *home
	say  func(format string, args ...any)
	ans  demoAnswer

	// The stage.
	label          string   // of what is shown
	billed         string   // cluster that is sampled and billed
	owned          string   // cluster that is owned
	wanted         string   // cluster that demand without machines is recorded under
	tenants        []string // workspaces of the billed cluster
	demandNote     string
	nodes, pods    string
	usage, demands string
	prices         string
	options        map[string]importer.Options // by file
}

// The calendar of the demo: one month of May 2026, looked back on from its end.
var (
	demoMonth = domain.Interval{From: instantOf(2026, 5, 1), To: instantOf(2026, 6, 1)}
	demoNow   = demoMonth.To
)

func instantOf(year, month, day int) domain.Instant {
	return domain.InstantOf(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC))
}

// What the billed estate is taken for: the public list prices of this type and
// region are those that its bill is made with.
const (
	demoRegion, demoOther = "us-east-1", "us-west-2"
	demoSKU, demoGPU      = "p3dn.24xlarge", "V100 32GB"
	demoAccount           = "demo-0001"
	demoSeed              = 20260501
)

// generate writes the files of the made-up fleet, unless they are there.
func (d *demoRun) generate() error {
	dir := filepath.Join(d.app.dir, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d.label, d.billed, d.owned, d.wanted = "GENERATED: a made-up fleet, not a measurement", "gen-rented", "gen-owned", "gen-wanted"
	d.demandNote = "generated in the shape of a published demand for CPU machines"
	d.nodes, d.pods = filepath.Join(dir, "nodes.csv"), filepath.Join(dir, "pods.csv")
	d.usage, d.demands, d.prices = filepath.Join(dir, "usage.csv"), filepath.Join(dir, "demand.csv"), filepath.Join(dir, "prices.csv")
	begin := time.Now()
	draw := func(stream uint64) func() uint64 { return rand.New(rand.NewPCG(demoSeed, stream)).Uint64 }
	write := func(path string, what func(io.Writer) error) error {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		return writeWhole(path, what)
	}
	err := errors.Join(
		write(d.nodes, func(w io.Writer) error { return demo.Fleet(w, io.Discard, draw(1)) }),
		write(d.pods, func(w io.Writer) error { return demo.Fleet(io.Discard, w, draw(1)) }),
		write(d.usage, func(w io.Writer) error { return demo.Load(w, draw(2)) }),
		write(d.demands, func(w io.Writer) error { return demo.Demand(w, draw(3)) }),
		write(d.prices, demo.Prices),
	)
	if err != nil {
		return fmt.Errorf("make up files: %w", err)
	}
	d.options = map[string]importer.Options{
		d.nodes:   {Cluster: d.owned, Epoch: instantOf(2026, 1, 5)},
		d.pods:    {Cluster: d.owned, Workspace: "research", Epoch: instantOf(2026, 1, 5)},
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

// public names the public files and how their dates are moved.
func (d *demoRun) public(dir string) error {
	d.label, d.billed, d.owned, d.wanted = "PUBLIC DATA, moved to one calendar; the bill and the incidents are generated", "helios-earth", "openb", "shavedice"
	d.demandNote = "a published demand for CPU machines (Shaved Ice), used as a shape"
	d.nodes, d.pods = filepath.Join(dir, "openb", "openb_node_list_gpu_node.csv"), filepath.Join(dir, "openb", "openb_pod_list_default.csv")
	d.usage, d.demands = filepath.Join(dir, "helios", "earth_vc_hourly.csv.gz"), filepath.Join(dir, "demand", "shavedice_regions_1_2.csv.gz")
	d.prices = filepath.Join(dir, "prices", "gpu_offers.csv")
	for _, path := range []string{d.nodes, d.pods, d.usage, d.demands, d.prices} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--from %s: %w; docs/evidence/data-sources.md names the files and where they come from", dir, err)
		}
	}
	const helios, shavedice = 2191, 847 // days: 313 and 121 weeks
	d.options = map[string]importer.Options{
		d.nodes:   {Cluster: d.owned, Epoch: instantOf(2026, 1, 5)},
		d.pods:    {Cluster: d.owned, Workspace: "research", Epoch: instantOf(2026, 1, 5), Standing: true},
		d.usage:   d.usageOptions(helios),
		d.demands: d.demandOptions(shavedice, map[string]string{"A": "p3.16xlarge", "B": "p5.48xlarge", "J": "p4d.24xlarge"}),
		d.prices:  {},
	}
	d.say("%s\nfiles: %s; one calendar, in whole weeks so that days of the week stay:", d.label, dir)
	d.say("  Helios Earth, May 2020: %d days later, its hours read as UTC; a mean of running GPUs becomes one sample per node and 10 minutes, lowest nodes first", helios)
	d.say("  openb: every node and pod stands from 2026-01-05 on; the trace is taken as a mix to pack, not as a schedule")
	d.say("  Shaved Ice, February 2021 to January 2024: %d days later; CPU machines, so a shape of demand: type A is taken for p3.16xlarge, its successor B for p5.48xlarge, J for p4d.24xlarge; the others stay unsold", shavedice)
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

// imports brings the files in.
func (d *demoRun) imports(ctx context.Context) error {
	for _, f := range []struct {
		kind importer.Kind
		path string
	}{{importer.Nodes, d.nodes}, {importer.Pods, d.pods}, {importer.Usage, d.usage}, {importer.Demand, d.demands}, {importer.Prices, d.prices}} {
		if err := d.take(ctx, f.path, columnsOf(f.kind, d.options[f.path])); err != nil {
			return err
		}
	}
	return d.home.catchUp(ctx)
}

// take imports one file and says so.
func (d *demoRun) take(ctx context.Context, path string, rd reader) error {
	ans, err := d.home.importFile(ctx, path, false, rd)
	if err != nil {
		return err
	}
	d.ans.Imported += ans.Appended
	d.ans.ImportSeconds += ans.Seconds
	d.ans.Files = append(d.ans.Files, demoFile{filepath.Base(path), ans.Events, ans.Appended, ans.BadRows, ans.Seconds})
	how := fmt.Sprintf("%s appended in %.1f s, %s events/s", comma(ans.Appended), ans.Seconds, comma(int(float64(ans.Appended)/max(ans.Seconds, 1e-3))))
	if ans.Appended == 0 {
		how = "all known already"
	}
	bad := ""
	if ans.BadRows > 0 {
		bad = fmt.Sprintf("; %s bad rows, the first: %s", comma(ans.BadRows), ans.Bad[0].Reason)
	}
	d.say("%-32s %9s events: %s%s", filepath.Base(path), comma(ans.Events), how, bad)
	return nil
}

// answer computes everything that the demo shows, from the rows alone.
func (d *demoRun) answer(ctx context.Context) error {
	if err := d.home.catchUp(ctx); err != nil {
		return err
	}
	as := plan.Assumptions{
		Months: 36, Weeks: 4, MonthlyGrowth: decimal.New(2, -2), AnnualRate: decimal.NewFromInt(-1), Salvage: decimal.New(5, -1),
		SpotOverhead: decimal.New(5, -2), ShortageFactor: decimal.NewFromInt(10), Currency: "USD",
	}
	if err := d.home.view(ctx, func(v projections.View) error {
		open, err := registry.Open(v)
		if n := open.For(""); err == nil && n > 0 {
			err = fmt.Errorf("%d events of the demo are in quarantine, a defect: see \"quartermaster quarantine list\"", n)
		}
		if err != nil {
			return err
		}
		return d.show(v)
	}); err != nil {
		return err
	}
	p, _, err := d.home.plan(ctx, demoNow, "", platform, as, true)
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
		fmt.Fprintf(d.app.out, "\n== What to buy: prices are public list prices, what is marked generated is not; demand of %s is of the month above, the rest is %s\n", d.billed, d.demandNote)
		d.app.showPlan(p, 10)
	}
	replay, err := d.home.replay(ctx, true)
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
		return &failed{why: "the live rows are not what the log says"}
	}
	return nil
}
