package cli

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"
	"quartermaster/simulations/demo"
)

// tenantsOf returns the virtual clusters of a usage file.
func tenantsOf(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	r := csv.NewReader(text)
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	column := slices.Index(header, "vc")
	if column < 0 {
		return nil, fmt.Errorf("%s has no column vc", path)
	}
	seen := map[string]bool{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(seen)), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if vc := row[column]; !seen[vc] {
			seen[strings.Clone(vc)] = true
		}
	}
}

// estate declares the demo's workspaces, clusters and policies, as a user would with apply.
func (d *demoRun) estate(ctx context.Context) error {
	var err error
	if d.tenants, err = tenantsOf(d.usage); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: quartermaster/v1
kind: Estate
workspace: platform
effective_from: 2025-01-01
workspaces:
  - {id: platform, name: platform}
  - {id: research, name: Research, parent: platform}
`)
	for _, t := range d.tenants {
		fmt.Fprintf(&b, "  - {id: %q, parent: platform}\n", t)
	}
	if d.draw != nil {
		fmt.Fprintf(&b, "  - {id: %s, name: Assistant, parent: platform}\n  - {id: %s, name: Search, parent: platform}\n",
			demo.PlantedChat, demo.PlantedSearch)
	}
	fmt.Fprintf(&b, `regions:
  - {id: %s, country: US, name: Northern Virginia}
  - {id: %s, country: US, name: Oregon}
  - {id: own, country: CN, name: Own data centre}
`, demoRegion, demoOther)
	if d.draw != nil {
		fmt.Fprintf(&b, "  - {id: %s, country: US, name: Chicago}\n", demo.PlantedRegion)
	}
	fmt.Fprintf(&b, `clusters:
  - {id: %s, provider: aws, provider_class: hyperscaler, region: %s, billing_account: %s}
  - {id: %s, provider: own, provider_class: owned, region: own}
  - {id: %s, provider: aws, provider_class: hyperscaler, region: %s}
`, d.billed, demoRegion, demoAccount, d.owned, d.wanted, demoRegion)
	if d.draw != nil {
		for _, p := range demo.Plants() {
			fmt.Fprintf(&b, "  - {id: %s, provider: %s, provider_class: neocloud, region: %s, billing_account: %s, workspace: %s}\n",
				p.Cluster, p.Provider, demo.PlantedRegion, p.Account, p.Workspace)
		}
	}
	fmt.Fprintf(&b, `policies:
  - {id: research-stays, kind: residency, selector: {workspace: research}, countries: [CN]}
  - {id: some-spot, kind: spot_share, share: 0.1}
  - {id: discounts, kind: commitment_discount, value: as_supplied}
  - {id: idle, kind: idle_cost, value: owner}
  - {id: capital, kind: cost_of_capital, share: 0.08}
on_demand_quotas:
  - {provider: aws, region: %s, account: %s, gpu_model: %s, limit_gpus: 1200}
quotas:
  - {id: gpus, workspace: %q, resource: nvidia.com/gpu, limit: 150, hard: false}
budgets:
  - {id: second-quarter, workspace: %q, period: 2026-Q2, amount: 420000 USD, basis: accrual, hard: false}
`, demoRegion, demoAccount, demoGPU, d.tenants[0], d.tenants[0])
	estate, err := app.ReadDeclarations(app.Document{Name: "the demo's estate", Text: strings.NewReader(b.String())})
	if err != nil {
		return err
	}
	admin, err := d.app.signer(ctx, "")
	if err != nil {
		return err
	}
	buyer, err := d.buyer(ctx, admin)
	if err != nil {
		return err
	}
	changed, err := d.declare(ctx, admin, estate)
	if err != nil {
		return err
	}
	bought, err := d.declare(ctx, buyer, app.Declare(d.commitments()...))
	if err != nil {
		return err
	}
	d.ans.Imported += changed + bought
	d.say("%-32s %9s events: signed by %s and %s", "estate, policies, a commitment", comma(changed+bought), admin.name, buyer.name)
	return nil
}

// buyer returns the operator that may commit money, created on first use.
func (d *demoRun) buyer(ctx context.Context, admin signer) (signer, error) {
	path := filepath.Join(d.app.Dir, "demo-finance.pem")
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = keyfile.Create(path)
	}
	if err != nil {
		return signer{}, err
	}
	const name = "demo-finance"
	n, err := d.declare(ctx, admin, app.Declare(domain.Envelope{Time: app.Now(), Subject: name, Workspace: app.Platform, Event: &domain.OperatorRegistered{
		Operator: name, PublicKey: key.Public().(ed25519.PublicKey), Role: domain.RoleFinance,
		AuthorityLimits: []domain.Money{{Amount: decimal.NewFromInt(20_000_000), Currency: "USD"}},
	}}))
	d.ans.Imported += n
	return signerOf(name, key), err
}

// declare appends the new declarations and returns their number.
func (d *demoRun) declare(ctx context.Context, s signer, what *app.Declarations) (int, error) {
	_, draft, err := d.caller().Apply(ctx, what)
	if err != nil || len(draft.Events) == 0 {
		return 0, err
	}
	draft.Use = "demo"
	return len(draft.Events), d.app.decide(ctx, s, draft)
}

// The contract behind the demo's bill.
const (
	demoCommitment = "ri-demo-1"
	demoReserved   = 48 // machines covered by it
	demoCommitted  = 50 // machines paid for
	demoSpot       = 12
	demoStray      = "i-nobody-knows" // on the bill, but not in the fleet
)

// Prices of p3dn.24xlarge in us-east-1, January 2026: on demand, and reserved
// for a year without upfront payment, as simulations/demo cites them. The spot
// price is generated: 40 % of on-demand.
var (
	demoOnDemand = decimal.RequireFromString("31.212")
	demoHourly   = decimal.RequireFromString("19.215")
	demoSpotRate = decimal.RequireFromString("12.4848")
)

func (d *demoRun) commitments() []domain.Envelope {
	half, rest := decimal.New(5, -1), decimal.New(25, -2)
	all := []domain.Envelope{{Time: app.Now(), Subject: demoCommitment, Workspace: app.Platform, Event: &domain.CommitmentPurchased{
		Commitment: demoCommitment, Contract: "demo", Market: domain.Market{Provider: "aws", Region: demoRegion}, BillingAccount: demoAccount,
		Kind: domain.OfferReserved, SKU: demoSKU, GPUModel: demoGPU, GPUsPerUnit: 8, Units: demoCommitted,
		Term:    domain.Interval{From: instantOf(2025, 10, 1), To: instantOf(2026, 10, 1)},
		Upfront: domain.Money{Currency: "USD"}, Hourly: domain.Money{Amount: demoHourly, Currency: "USD"}, GuaranteesCapacity: true,
		Owners:   []domain.Share{{Workspace: app.Platform, Share: half}, {Workspace: d.tenants[0], Share: rest}, {Workspace: d.tenants[1], Share: rest}},
		NoticeBy: instantOf(2026, 9, 1),
	}}}
	if d.draw != nil {
		all = append(all, plantedContract(app.Now()))
	}
	return all
}

// machine is a node of the billed cluster and the time in the month for which it was held.
type machine struct {
	name    string
	service domain.Interval
	gpus    int
	heldMs  int64
}

// machines returns the billed cluster's nodes, the busiest first.
func (d *demoRun) machines(ctx context.Context) ([]machine, error) {
	var out []machine
	inv, err := d.caller().Fleet(ctx, "", inventory.Filter{Cluster: d.billed, At: demoMonth.To - domain.Hour})
	if err != nil {
		return nil, err
	}
	used, err := d.caller().Usage(ctx, "", demoMonth, usage.Filter{Cluster: d.billed}, usage.ByNode)
	if err != nil {
		return nil, err
	}
	held := map[string]int64{}
	for i := range used.Groups {
		held[used.Groups[i].Key[usage.ByNode]] = used.Groups[i].Allocated
	}
	for _, c := range inv.Clusters {
		for _, n := range c.Nodes {
			out = append(out, machine{n.Node, domain.Interval{From: max(n.DescribedFrom, demoMonth.From), To: demoMonth.To}, len(n.GPUs), held[n.Node]})
		}
	}
	slices.SortFunc(out, func(a, b machine) int { return cmp.Or(cmp.Compare(b.heldMs, a.heldMs), cmp.Compare(a.name, b.name)) })
	if err == nil && len(out) < demoReserved+demoSpot+4 {
		err = fmt.Errorf("%d machines in %s, the demo's bill needs %d", len(out), d.billed, demoReserved+demoSpot+4)
	}
	return out, err
}

// broken returns the machines with incidents: two that fail and one under maintenance. They are the
// least busy on-demand machines, so that the time shows as failed.
func broken(ms []machine) (first, second, serviced int) {
	last := len(ms) - demoSpot - 1
	return last, last - 1, last - 2
}

var (
	firstOutage  = domain.Interval{From: demoMonth.From + 10*domain.Day + 2*domain.Hour, To: demoMonth.From + 10*domain.Day + 20*domain.Hour}
	secondOutage = domain.Interval{From: demoMonth.From + 21*domain.Day + 9*domain.Hour, To: demoMonth.From + 23*domain.Day + 15*domain.Hour}
	serviceTime  = domain.Interval{From: demoMonth.From + 16*domain.Day + 6*domain.Hour, To: demoMonth.From + 16*domain.Day + 14*domain.Hour}
)

// append appends generated events. Like the events of a file they are numbered by source, so that a
// second run appends none of them. Their source is that of a command, which may report the past.
func (d *demoRun) append(ctx context.Context, name string, envs []domain.Envelope) error {
	return d.appendSources(ctx, name, map[string][]domain.Envelope{name: envs})
}

func (d *demoRun) appendSources(ctx context.Context, name string, sources map[string][]domain.Envelope) error {
	events, appended := 0, 0
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		n, err := d.caller().AppendOnce(ctx, "quartermaster/demo/"+source, sources[source])
		if err != nil {
			return err
		}
		events, appended = events+len(sources[source]), appended+n
	}
	d.ans.Imported += appended
	d.say("%-32s %9s events: %s appended, %s known already (generated)", name, comma(events), comma(appended), comma(events-appended))
	return nil
}

func (d *demoRun) incidents(ctx context.Context) error {
	ms, err := d.machines(ctx)
	if err != nil {
		return err
	}
	first, second, serviced := broken(ms)
	type outage struct {
		node   int
		time   domain.Interval
		code   uint32
		detail string
	}
	const offBus = "GPU has fallen off the bus"
	outages := []outage{{first, firstOutage, 79, offBus}, {second, secondOutage, 79, offBus}}
	if d.draw != nil {
		for _, t := range lemonOutages {
			outages = append(outages, outage{lemon(ms), t, 48, "double-bit ECC error"})
		}
	}
	env := func(at domain.Instant, node int, ev domain.Event) domain.Envelope {
		return domain.Envelope{Time: at, Recorded: at, Subject: ms[node].name, Cluster: d.billed, Event: ev}
	}
	var envs []domain.Envelope
	for _, o := range outages {
		name := ms[o.node].name
		envs = append(envs,
			env(o.time.From, o.node, &domain.GPUFaultObserved{Node: name, Kind: domain.FaultXID, Code: o.code, Count: 1, Class: "hardware", Fatal: true, Detail: o.detail + " (generated)"}),
			env(o.time.From, o.node, &domain.NodeCordoned{Node: name, Reason: fmt.Sprintf("XID %d (generated)", o.code), Repair: true}),
			env(o.time.To, o.node, &domain.NodeReturned{Node: name, Reason: "repaired (generated)"}),
		)
	}
	envs = append(envs, env(serviceTime.From, serviced, &domain.MaintenanceScheduled{
		Maintenance: "demo-firmware", Nodes: []string{ms[serviced].name}, Window: serviceTime, Reason: "firmware (generated)",
	}))
	return d.append(ctx, "incidents.v1", envs)
}

// market quotes offers that are on no public list: a regional spot price, and a reservation with
// guaranteed capacity.
func (d *demoRun) market(ctx context.Context) error {
	var envs []domain.Envelope
	for _, o := range []domain.OfferQuoted{
		{Offer: demoSKU + "/spot", Kind: domain.OfferSpot, Hourly: demoSpotRate, Citation: "generated: 40 % of the on-demand price"},
		{
			Offer: demoSKU + "/reserved_with_capacity/12m", Kind: domain.OfferReserved, TermMonths: 12, Hourly: demoHourly.Mul(decimal.New(11, -1)),
			GuaranteesCapacity: true, LeadTimeHours: 45 * 24, Citation: "generated: the one-year price and a tenth, for capacity, in 45 days",
		},
	} {
		o.Market, o.SKU, o.GPUModel, o.GPUCount, o.GPUMemoryMiB = domain.Market{Provider: "aws", Region: demoRegion}, demoSKU, demoGPU, 8, 32<<10
		o.Currency, o.ValidFrom, o.Generated = "USD", instantOf(2026, 1, 1), true
		envs = append(envs, domain.Envelope{Time: o.ValidFrom, Recorded: o.ValidFrom, Subject: o.Offer, Event: &o})
	}
	if d.draw != nil {
		envs = append(envs, plantedOffers()...)
	}
	return d.append(ctx, "market.v1", envs)
}

// bill generates the month's bill and invoice for the billed cluster, and imports both as files,
// as if they came from a supplier.
func (d *demoRun) bill(ctx context.Context) error {
	ms, err := d.machines(ctx)
	if err != nil {
		return err
	}
	first, second, _ := broken(ms)
	e := &demo.Estate{
		Issuer: "AWS (generated)", Provider: "aws", Account: demoAccount, Currency: "USD", Period: demoMonth,
		Reserved: demoReserved, Spot: demoSpot, CommitmentID: demoCommitment, Committed: demoCommitted,
		OnDemandHourly: demoOnDemand, ReservedHourly: demoHourly, SpotHourly: demoSpotRate,
		Outages: []demo.Outage{{Node: first, Time: firstOutage}, {Node: second, Time: secondOutage}},
		Stray: demo.Machine{Cluster: "?", Node: "stray", ResourceID: demoStray, SKU: demoSKU, Region: demoRegion, GPUs: 8,
			Service: domain.Interval{From: demoMonth.From + 5*domain.Day, To: demoMonth.From + 6*domain.Day}},
		Support: decimal.NewFromInt(15_000), EgressGBPerDay: decimal.NewFromInt(4_000), EgressPerGB: decimal.RequireFromString("0.0512345678"),
		PromotionCredit: decimal.NewFromInt(10_000), TaxRate: decimal.RequireFromString("0.0825"),
	}
	e.EgressPerGB = e.EgressPerGB.Truncate(9)
	for i, m := range ms {
		x := demo.Machine{Cluster: d.billed, Node: m.name, ResourceID: m.name, SKU: demoSKU, Region: demoRegion, GPUs: m.gpus, Service: m.service}
		if i >= len(ms)-demoSpot {
			x.ResourceID = ""
		}
		e.Nodes = append(e.Nodes, x)
	}
	bills := []monthBill{{"2026-05", e}}
	if d.draw != nil {
		bills = append(bills, plantedBills()...)
	}
	dir := filepath.Join(d.app.Dir, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, b := range bills {
		if err := d.importBill(ctx, dir, b); err != nil {
			return err
		}
	}
	return nil
}

// monthBill is a supplier's bill and the end of its files' names.
type monthBill struct {
	name   string
	estate *demo.Estate
}

func (d *demoRun) importBill(ctx context.Context, dir string, b monthBill) error {
	lines, invoices := filepath.Join(dir, "bill-"+b.name+".csv"), filepath.Join(dir, "invoice-"+b.name+".csv")
	if err := app.WriteWhole(lines, func(w io.Writer) error {
		fw := focus.NewWriter(w)
		if err := b.estate.Lines(fw.WriteLine); err != nil {
			return err
		}
		return fw.Flush()
	}); err != nil {
		return err
	}
	due, err := b.estate.Invoices()
	if err != nil {
		return err
	}
	if err := app.WriteWhole(invoices, func(w io.Writer) error { return focus.WriteInvoices(w, due) }); err != nil {
		return err
	}
	for _, path := range []string{lines, invoices} {
		if err := d.caller().ImportBills(ctx, focus.Options{Historical: true}, []string{path}, false, d.took); err != nil {
			return err
		}
	}
	return nil
}
