package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"quartermaster/domain"
	"quartermaster/domain/owned"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// OwnedBill is what owned hardware is charged for a month.
type OwnedBill struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Rules    OwnedRules      `json:"rules"`
	Invoices []OwnedInvoice  `json:"invoices"` // by cluster, asset, account and currency
	Totals   []domain.Money  `json:"totals"`   // by currency
	Problems []OwnedProblem  `json:"problems"` // what could not be charged, or is doubtful
	// Withdrawn are lines of an earlier bill of the month that this one does not have. Their cost is 0
	// now.
	Withdrawn []string `json:"withdrawn,omitempty"`

	lines    []domain.BillingLine
	invoices []domain.InvoiceReceived
}

// OwnedRules are the accounting policies of a bill.
type OwnedRules struct {
	Depreciation owned.Convention   `json:"depreciation"`
	CapitalRate  domain.NullDecimal `json:"capital_charge"` // a year; null: not charged
}

// OwnedInvoice is the internal invoice of an asset.
type OwnedInvoice struct {
	Asset    string        `json:"asset"`
	Cluster  string        `json:"cluster"`
	Issuer   string        `json:"InvoiceIssuerName"`
	Account  string        `json:"BillingAccountId"`
	Invoice  string        `json:"InvoiceId"`
	Ledger   string        `json:"general_ledger,omitempty"`
	Total    domain.Money  `json:"total"`
	Charges  []OwnedCharge `json:"charges"`
	Carrying *domain.Money `json:"carrying_amount"` // at the end of the month; null in another currency than the asset's
}

// OwnedCharge is what an invoice charges for one thing.
type OwnedCharge struct {
	What   string         `json:"InvoiceDetailId"`
	Billed domain.Decimal `json:"BilledCost"`
	Detail string         `json:"ChargeDescription"`
}

// OwnedProblem is something that could not be charged, or is doubtful.
type OwnedProblem struct {
	Kind    owned.ProblemKind `json:"kind"`
	Subject string            `json:"subject"` // cluster/asset
	Detail  string            `json:"detail"`
}

// Several acquisitions of one asset are a problem of this kind.
const assetRestated owned.ProblemKind = "asset_restated"

// longestReading is the longest interval of a meter that counts in the month after it began.
const longestReading = 31 * domain.Day

// NewOwnedBill computes the internal invoices of a calendar month.
func NewOwnedBill(view projections.View, month domain.Interval) (*OwnedBill, error) {
	if month != projections.BillingMonth(month.From) {
		return nil, fmt.Errorf("bill owned hardware from %s to %s: want a calendar month in UTC", month.From, month.To)
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	r := ownedReader{view: view, authority: a, month: month}
	for _, read := range []func() error{r.rules, r.tariffs, r.assets, r.readings} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	invoices, problems := owned.Bill(&r.in, month)
	b := &OwnedBill{
		Position: view.Position().String(), Month: month, Invoices: []OwnedInvoice{}, Totals: []domain.Money{},
		Rules:    OwnedRules{Depreciation: cmp.Or(r.in.Rules.Convention, owned.Daily), CapitalRate: r.in.Rules.CapitalRate},
		Problems: []OwnedProblem{},
	}
	for _, p := range slices.Concat(r.problems, problems) {
		b.Problems = append(b.Problems, OwnedProblem(p))
	}
	for i := range invoices {
		b.enter(&invoices[i])
	}
	slices.SortFunc(b.Totals, func(x, y domain.Money) int { return cmp.Compare(x.Currency, y.Currency) })
	b.Withdrawn, err = reviseBill(view, month, &b.lines, &b.invoices, func(l *LedgerLine) bool { return l.Other[owned.ColumnAsset] != "" })
	return b, err
}

func (b *OwnedBill) enter(inv *owned.Invoice) {
	shown := OwnedInvoice{
		Asset: inv.Asset, Cluster: inv.Cluster, Issuer: inv.Issuer, Account: inv.Account, Invoice: inv.ID,
		Ledger: inv.Ledger, Total: inv.Total, Charges: []OwnedCharge{},
	}
	for _, d := range inv.Details {
		shown.Charges = append(shown.Charges, OwnedCharge{d.InvoiceDetailID, d.BilledCost, d.Description})
	}
	if inv.Carrying.Currency != "" {
		shown.Carrying = &inv.Carrying
	}
	b.Invoices = append(b.Invoices, shown)
	b.lines = append(b.lines, inv.Lines...)
	b.invoices = append(b.invoices, domain.InvoiceReceived{
		InvoiceIssuerName: inv.Issuer, BillingAccountID: inv.Account, InvoiceID: inv.ID, Total: inv.Total,
		IssueDate: b.Month.To, Status: "Issued", BillingPeriod: b.Month, Details: inv.Details,
	})
	for i := range b.Totals {
		if b.Totals[i].Currency == inv.Total.Currency {
			b.Totals[i].Amount = b.Totals[i].Amount.Add(inv.Total.Amount)
			return
		}
	}
	b.Totals = append(b.Totals, inv.Total)
}

// reviseBill compares an internal bill with what the ledger has of an earlier one of the month, of whose lines mine
// reports true. A line that differs has a revision, so that a bill which goes back to an earlier one is not taken for
// it. A line that this bill does not have is stated again with a cost of 0, and an invoice that has no other lines is
// void. Of the statements of a line or an invoice the last counts. It returns the lines that were withdrawn.
func reviseBill(
	view projections.View, month domain.Interval, lines *[]domain.BillingLine, invoices *[]domain.InvoiceReceived, mine func(*LedgerLine) bool,
) (gone []string, err error) {
	type name struct{ issuer, account, id string }
	lineAt, invoiceAt := map[name]int{}, map[name]int{}
	for i := range *lines {
		l := &(*lines)[i]
		lineAt[name{l.InvoiceIssuerName, l.BillingAccountID, l.LineID}] = i
	}
	for i := range *invoices {
		in := &(*invoices)[i]
		invoiceAt[name{in.InvoiceIssuerName, in.BillingAccountID, in.InvoiceID}] = i
	}
	standing, revisions := len(*invoices), map[name]int{} // the latest of each invoice
	err = EachLine(view, month, func(l *LedgerLine) error {
		if !mine(l) {
			return nil
		}
		at, has := lineAt[name{l.InvoiceIssuerName, l.BillingAccountID, l.LineID}]
		if !has {
			at = len(*lines)
			*lines = append(*lines, withdrawn(&l.BillingLine))
			gone = append(gone, l.name())
		}
		line := &(*lines)[at]
		revision, _ := strconv.Atoi(l.Other[owned.ColumnRevision])
		if !sameCharge(line, &l.BillingLine) {
			revision = l.Stated
		}
		if revision > 0 {
			line.Other[owned.ColumnRevision] = strconv.Itoa(revision)
		}
		of := name{l.InvoiceIssuerName, l.BillingAccountID, l.InvoiceID}
		revisions[of] = max(revisions[of], revision)
		if has {
			return nil
		}
		in, known := invoiceAt[of]
		switch {
		case !known:
			in = len(*invoices)
			invoiceAt[of] = in
			*invoices = append(*invoices, domain.InvoiceReceived{
				InvoiceIssuerName: of.issuer, BillingAccountID: of.account, InvoiceID: of.id,
				Total: domain.Money{Currency: l.BillingCurrency}, IssueDate: month.To, Status: voided, BillingPeriod: month,
			})
		case in < standing:
			return nil
		}
		void := &(*invoices)[in]
		if !slices.ContainsFunc(void.Details, func(d domain.InvoiceDetail) bool { return d.InvoiceDetailID == l.InvoiceDetailID }) {
			void.Details = append(void.Details, domain.InvoiceDetail{InvoiceDetailID: l.InvoiceDetailID, ChargeCategory: l.ChargeCategory})
		}
		return nil
	})
	for of, revision := range revisions {
		if revision > 0 {
			(*invoices)[invoiceAt[of]].PaymentTerms = fmt.Sprintf("internal, revision %d", revision)
		}
	}
	return gone, err
}

// withdrawn returns a line that costs nothing and buys nothing any more.
func withdrawn(line *domain.BillingLine) domain.BillingLine {
	gone := *line
	zero := domain.NullDecimal{Valid: true}
	gone.BilledCost, gone.EffectiveCost, gone.ListCost, gone.ContractedCost = domain.Decimal{}, zero, zero, zero
	gone.PricingQuantity, gone.ConsumedQuantity = zero, zero
	gone.Other = maps.Clone(line.Other)
	return gone
}

// sameCharge reports whether two statements of a line of owned hardware charge the same.
func sameCharge(x, y *domain.BillingLine) bool {
	same := func(a, b domain.NullDecimal) bool { return a.Valid == b.Valid && a.Decimal.Equal(b.Decimal) }
	return x.BilledCost.Equal(y.BilledCost) && same(x.EffectiveCost, y.EffectiveCost) &&
		same(x.PricingQuantity, y.PricingQuantity) && same(x.ConsumedQuantity, y.ConsumedQuantity) &&
		x.ChargePeriodStart == y.ChargePeriodStart && x.ChargePeriodEnd == y.ChargePeriodEnd &&
		x.ResourceID == y.ResourceID && x.RegionID == y.RegionID && x.ChargeDescription == y.ChargeDescription &&
		x.Other[owned.ColumnLedger] == y.Other[owned.ColumnLedger]
}

// Lines returns the lines of the invoices, in the columns of FOCUS.
func (b *OwnedBill) Lines() []domain.BillingLine { return b.lines }

// Received returns the invoices, with their totals.
func (b *OwnedBill) Received() []domain.InvoiceReceived { return b.invoices }

// ownedReader reads the rows that owned hardware is billed from.
type ownedReader struct {
	view      projections.View
	authority *registry.Authority
	month     domain.Interval
	in        owned.Input
	problems  []owned.Problem

	conventions map[domain.Instant]owned.Convention // by time in service
}

// rules reads the accounting policies of the root workspace, as they are when the month begins.
func (r *ownedReader) rules() error {
	in, err := r.rulesAt(r.month.From)
	r.in.Rules = in
	return err
}

// rulesAt reads the rules that are in force at a time.
func (r *ownedReader) rulesAt(at domain.Instant) (rules owned.Rules, err error) {
	latest := map[domain.PolicyKind]domain.Precedence{}
	err = r.view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := r.authority.At(k, row.(*projections.History), at)
		if v == nil || k.Scope != r.authority.Root() {
			return nil
		}
		ev := v.Event.(*domain.PolicySet)
		if ev.EffectiveTo != 0 && ev.EffectiveTo <= at {
			return nil
		}
		if before, set := latest[ev.Kind]; set && before.After(v.Order) {
			return nil
		}
		latest[ev.Kind] = v.Order
		switch ev.Kind {
		case domain.PolicyDepreciation:
			rules.Convention = owned.Convention(ev.Value)
		case domain.PolicyCapitalCharge:
			rules.CapitalRate = ev.Share
		}
		return nil
	})
	if err != nil {
		return rules, fmt.Errorf("read policies: %w", err)
	}
	return rules, nil
}

// conventionOf returns the convention of an asset: that in force when it came into service, so that a later policy does
// not change what was charged before. There was none: daily.
func (r *ownedReader) conventionOf(inService domain.Instant) (owned.Convention, error) {
	if c, known := r.conventions[inService]; known {
		return c, nil
	}
	rules, err := r.rulesAt(inService)
	if err != nil {
		return "", err
	}
	if r.conventions == nil {
		r.conventions = map[domain.Instant]owned.Convention{}
	}
	r.conventions[inService] = cmp.Or(rules.Convention, owned.Daily)
	return r.conventions[inService], nil
}

func (r *ownedReader) tariffs() error {
	err := r.view.Scan(projections.Query{Table: projections.TableTariffs}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if r.authority.Judge(k, h, i) != "" {
				continue // costs list void decisions
			}
			ev := h.Versions[i].Event.(*domain.TariffSet)
			r.in.Tariffs = append(r.in.Tariffs, owned.Tariff{
				Operator: ev.Market.Provider, Site: ev.Market.Region, From: ev.EffectiveFrom,
				PerKWh: ev.PerKWh, PUE: ev.PUE, Rates: ev.Rates,
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read tariffs: %w", err)
	}
	return nil
}

// statedAfter reports whether a version was stated after another: a correction may be about an earlier time.
func statedAfter(a, b *projections.Version) bool {
	if a.Order.Appended != b.Order.Appended {
		return a.Order.Appended > b.Order.Appended
	}
	return a.Order.After(b.Order)
}

func (r *ownedReader) assets() error {
	f, err := inventory.ReadFleet(r.view)
	if err != nil {
		return err
	}
	err = r.view.Scan(projections.Query{Table: projections.TableAssets}, func(k projections.Key, row projections.Row) error {
		var acquired *domain.AssetAcquired
		var by, disposed *projections.Version // that decided the acquisition and the disposal
		revised := map[domain.Instant]*projections.Version{}
		var a owned.Asset
		h := row.(*projections.History)
		for i := range h.Versions {
			v := &h.Versions[i]
			switch ev := v.Event.(type) {
			case *domain.AssetAcquired:
				if acquired != nil && acquired.InServiceFrom != ev.InServiceFrom {
					r.problems = append(r.problems, owned.Problem{
						Kind: assetRestated, Subject: k.Scope + "/" + k.ID, Detail: fmt.Sprintf(
							"acquired for service from %s and from %s; the later statement counts", acquired.InServiceFrom, ev.InServiceFrom),
					})
				}
				if by == nil || statedAfter(v, by) {
					acquired, by = ev, v
				}
			case *domain.AssetRevised:
				if before := revised[ev.EffectiveFrom]; before == nil || statedAfter(v, before) {
					revised[ev.EffectiveFrom] = v
				}
			case *domain.AssetDisposed:
				if disposed == nil || statedAfter(v, disposed) {
					disposed = v
					a.Disposal = &owned.Disposal{At: ev.At, Proceeds: ev.Proceeds}
				}
			}
		}
		for _, from := range slices.Sorted(maps.Keys(revised)) {
			ev := revised[from].Event.(*domain.AssetRevised)
			a.Revisions = append(a.Revisions, owned.Revision{
				From: ev.EffectiveFrom, LifeMonths: ev.LifeMonths, Residual: ev.Residual, Impairment: ev.Impairment, Reason: ev.Reason,
			})
		}
		if acquired == nil {
			r.problems = append(r.problems, owned.Problem{
				Kind: owned.LateRevision, Subject: k.Scope + "/" + k.ID, Detail: "it is revised or disposed of, and was never acquired",
			})
			return nil
		}
		a.Cluster, a.ID, a.Ledger = k.Scope, k.ID, acquired.GeneralLedger
		convention, err := r.conventionOf(acquired.InServiceFrom)
		if err != nil {
			return err
		}
		a.Convention = convention
		a.Capex, a.Residual, a.InService = acquired.Capex, acquired.Residual, acquired.InServiceFrom
		a.LifeMonths, a.PowerWatts = acquired.LifeMonths, acquired.PowerWatts
		a.Site, a.SpaceUnits = acquired.Site, acquired.SpaceUnits
		a.Account, a.Provider = ownedAccount(f, k.Scope, r.month.From), k.Scope
		if c, _ := f.Cluster(k.Scope, r.month.From); c != nil {
			a.Provider, a.Region = cmp.Or(c.Provider, a.Provider), c.Region
		}
		for _, name := range acquired.Nodes {
			a.Nodes = append(a.Nodes, r.node(f, k.Scope, name))
		}
		r.in.Assets = append(r.in.Assets, a)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read assets: %w", err)
	}
	return nil
}

// node describes a node of an asset as it is first registered in the month, else without a resource.
func (r *ownedReader) node(f *inventory.Fleet, cluster, name string) owned.Node {
	n := owned.Node{Name: name}
	at := f.Index[inventory.NodeName{Cluster: cluster, Node: name}]
	if at == nil {
		return n
	}
	for i := range at.Service {
		s := &at.Service[i]
		if s.Intersect(r.month).Empty() {
			continue
		}
		n.GPUs = len(s.GPUs)
		n.Account, n.Resource = s.Node.BillingAccount, s.Node.ResourceID
		if c, _ := f.Cluster(cluster, s.From.HourStart()); c != nil {
			n.Region = c.Region
			if c.ProviderClass == domain.Owned {
				n.Account, n.Resource = cmp.Or(n.Account, ownedAccount(f, cluster, s.From.HourStart())), ownedResource(s.Node)
			}
		}
		break
	}
	return n
}

// ownedAccount returns the billing account of a cluster of owned hardware, whose internal invoices
// need one: its id unless it states another.
func ownedAccount(f *inventory.Fleet, cluster string, at domain.Instant) string {
	if c, _ := f.Cluster(cluster, at); c != nil && c.BillingAccount != "" {
		return c.BillingAccount
	}
	return cluster
}

// ownedResource returns how internal invoices name a node.
func ownedResource(n *domain.NodeRegistered) string { return cmp.Or(n.ResourceID, n.Node) }

func (r *ownedReader) readings() error {
	q := projections.Query{
		Table: projections.TableEnergy,
		From:  projections.DayOf(r.month.From - longestReading), To: projections.HourOf(r.month.To-1) + 1,
	}
	err := r.view.Scan(q, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		last := map[domain.Interval]int{} // a reading may be stated again
		for i := range h.Versions {
			v := &h.Versions[i]
			ev := v.Event.(*domain.EnergyMetered)
			if ev.Interval.Intersect(r.month).Empty() {
				continue
			}
			reading := owned.Reading{
				Cluster: k.Scope, Meter: ev.Meter, Nodes: ev.Nodes, Interval: ev.Interval, WattHours: ev.WattHours,
			}
			if at, again := last[ev.Interval]; again {
				r.in.Readings[at] = reading
				continue
			}
			last[ev.Interval] = len(r.in.Readings)
			r.in.Readings = append(r.in.Readings, reading)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read energy: %w", err)
	}
	return nil
}
