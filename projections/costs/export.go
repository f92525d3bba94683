package costs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/owned"
	"quartermaster/projections"
)

// Kind is what the cells of an exported column are.
type Kind string

// The kinds. A cell is text in every kind, and "" is null.
const (
	KindText    Kind = "text"
	KindJSON    Kind = "json"
	KindDecimal Kind = "decimal" // plain, with all its digits: at most 20 before and 18 after the point
	KindTime    Kind = "time"    // RFC 3339, UTC
	KindFlag    Kind = "flag"    // true, or null
)

// Column is a column of an export.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Doc  string `json:"doc,omitempty"` // empty: as FOCUS 1.4 defines it
}

// exported is a column of an exported allocation.
type exported struct {
	Column
	ofLine func(*part) string            // equal for all allocations of a line; or
	of     func(*exporter, *part) string // of each allocation
}

func ofLineColumn(name string, of func(*part) string) exported {
	return exported{Column: Column{Name: name, Kind: KindText}, ofLine: of}
}

func ofCharge(name string, kind Kind) exported {
	i, ok := chargeAt[name]
	if !ok {
		panic("a charge has no column " + name)
	}
	return exported{Column: Column{Name: name, Kind: kind}, ofLine: func(p *part) string {
		if c := p.charge(); i < chargeTexts {
			return c.texts[i]
		} else {
			return c.numbers[i-chargeTexts]
		}
	}}
}

// dividedNumber is a number of the line of which an allocation has a part, like the cost.
func dividedNumber(name string) exported {
	i := chargeAt[name] - chargeTexts
	return exported{Column: Column{Name: name, Kind: KindDecimal}, of: func(e *exporter, _ *part) string { return e.numbers[i] }}
}

// ofTime is a time of the line. A rounding adjustment, which has none, is of the month.
func ofTime(name string, of func(*attribution.Line) domain.Instant, ofMonth func(domain.Interval) domain.Instant) exported {
	return exported{Column: Column{Name: name, Kind: KindTime}, of: func(e *exporter, p *part) string {
		if p.allocation.Line.Number == 0 {
			return ofMonth(e.month).String()
		}
		return e.time(of(p.allocation.Line))
	}}
}

// time is the text of a time; most rows have those of the row before.
func (e *exporter) time(t domain.Instant) string {
	text, ok := e.times[t]
	if !ok {
		if len(e.times) > 10_000 {
			clear(e.times)
		}
		text = t.String()
		e.times[t] = text
	}
	return text
}

func monthFrom(m domain.Interval) domain.Instant { return m.From }

func monthTo(m domain.Interval) domain.Instant { return m.To }

func ours(name string, kind Kind, doc string, of func(*part) string) exported {
	return exported{Column: Column{name, kind, doc}, of: func(_ *exporter, p *part) string { return of(p) }}
}

// inBooks is a column of the allocation in the currency of the books.
func inBooks(name string, kind Kind, doc string, of func(*attribution.Allocation) string) exported {
	return exported{Column: Column{name, kind, doc}, of: func(e *exporter, _ *part) string {
		if e.inBooks == nil {
			return ""
		}
		return of(e.inBooks)
	}}
}

// ofPosting is a column that says in which books a row is, and why.
func ofPosting(name, doc string, of func(*exporter) string) exported {
	return exported{Column: Column{name, KindText, doc}, of: func(e *exporter, _ *part) string { return of(e) }}
}

// exportedColumns are the columns of FOCUS 1.4 in its order, and ours. An allocation is an allocated charge of its
// line, the origin charge: dimensions and unit prices are the line's, and numbers that can be summed add up to it.
var exportedColumns = []exported{
	{Column: Column{Name: "AllocatedMethodDetails", Kind: KindJSON}, of: (*exporter).details},
	{Column: Column{Name: "AllocatedMethodId", Kind: KindText}, of: func(e *exporter, _ *part) string { return e.method }},
	{Column: Column{Name: "AllocatedResourceId", Kind: KindText}, of: func(_ *exporter, p *part) string { return allocatedTo(p.allocation) }},
	{Column: Column{Name: "AllocatedResourceName", Kind: KindText}, of: func(_ *exporter, p *part) string { return p.allocation.Deployment }},
	{Column: Column{Name: "AllocatedTags", Kind: KindJSON}, of: (*exporter).tags},
	ofCharge("AvailabilityZone", KindText),
	{Column: Column{Name: "BilledCost", Kind: KindDecimal}, of: func(_ *exporter, p *part) string { return p.allocation.Billed.String() }},
	ofLineColumn("BillingAccountId", func(p *part) string { return p.allocation.Line.Account }),
	ofCharge("BillingAccountName", KindText),
	ofCharge("BillingAccountType", KindText),
	ofLineColumn("BillingCurrency", func(p *part) string { return p.allocation.Line.Currency }),
	ofTime("BillingPeriodEnd", func(l *attribution.Line) domain.Instant { return l.BillingPeriod.To }, monthTo),
	ofTime("BillingPeriodStart", func(l *attribution.Line) domain.Instant { return l.BillingPeriod.From }, monthFrom),
	ofCharge("CapacityReservationId", KindText),
	ofCharge("CapacityReservationStatus", KindText),
	ofLineColumn("ChargeCategory", func(p *part) string {
		if p.allocation.Line.Number == 0 {
			return "Adjustment" // for the rounding of an invoice
		}
		return p.allocation.Line.Category
	}),
	ofCharge("ChargeClass", KindText),
	ofLineColumn("ChargeDescription", func(p *part) string {
		if p.allocation.Line.Number == 0 {
			return p.allocation.Line.ClassReason
		}
		return p.charge().Column("ChargeDescription")
	}),
	ofCharge("ChargeFrequency", KindText),
	ofTime("ChargePeriodEnd", func(l *attribution.Line) domain.Instant { return l.ChargePeriod.To }, monthTo),
	ofTime("ChargePeriodStart", func(l *attribution.Line) domain.Instant { return l.ChargePeriod.From }, monthFrom),
	ofCharge("CommitmentDiscountCategory", KindText),
	ofCharge("CommitmentDiscountId", KindText),
	ofCharge("CommitmentDiscountName", KindText),
	dividedNumber("CommitmentDiscountQuantity"),
	ofCharge("CommitmentDiscountStatus", KindText),
	ofCharge("CommitmentDiscountType", KindText),
	ofCharge("CommitmentDiscountUnit", KindText),
	ofCharge("CommitmentProgramEligibilityDetails", KindJSON),
	dividedNumber("ConsumedQuantity"),
	ofCharge("ConsumedUnit", KindText),
	ofCharge("ContractApplied", KindJSON),
	dividedNumber("ContractedCost"),
	ofCharge("ContractedUnitPrice", KindDecimal),
	{Column: Column{Name: "EffectiveCost", Kind: KindDecimal}, of: func(_ *exporter, p *part) string { return p.allocation.Effective.String() }},
	ofCharge("HostProviderName", KindText),
	ofLineColumn("InvoiceDetailId", func(p *part) string { return p.allocation.Line.Detail }),
	ofLineColumn("InvoiceId", func(p *part) string { return p.allocation.Line.Invoice }),
	ofLineColumn("InvoiceIssuerName", func(p *part) string { return p.allocation.Line.Issuer }),
	dividedNumber("ListCost"),
	ofCharge("ListUnitPrice", KindDecimal),
	ofCharge("PricingCategory", KindText),
	ofCharge("PricingCurrency", KindText),
	ofCharge("PricingCurrencyContractedUnitPrice", KindDecimal),
	dividedNumber("PricingCurrencyEffectiveCost"),
	ofCharge("PricingCurrencyListUnitPrice", KindDecimal),
	dividedNumber("PricingQuantity"),
	ofCharge("PricingUnit", KindText),
	ofCharge("RegionId", KindText),
	ofCharge("RegionName", KindText),
	ofLineColumn("ResourceId", func(p *part) string { return p.allocation.Line.Resource }),
	ofCharge("ResourceName", KindText),
	ofCharge("ResourceType", KindText),
	ofCharge("ServiceCategory", KindText),
	ofCharge("ServiceName", KindText),
	ofCharge("ServiceProviderName", KindText),
	ofCharge("ServiceSubcategory", KindText),
	ofCharge("SkuId", KindText),
	ofCharge("SkuMeter", KindText),
	ofCharge("SkuPriceDetails", KindJSON),
	ofCharge("SkuPriceId", KindText),
	ofCharge("SubAccountId", KindText),
	ofCharge("SubAccountName", KindText),
	ofCharge("SubAccountType", KindText),
	ofCharge("Tags", KindJSON),

	ours("x_WorkspaceId", KindText, "Workspace that is charged, or an account of the platform.", func(p *part) string { return p.allocation.Workspace }),
	ours("x_ClusterId", KindText, "Cluster.", func(p *part) string { return p.allocation.Cluster }),
	ours("x_NodeId", KindText, "Machine that was paid for, as cluster/node; mixed for several, null for none.", (*part).node),
	ours("x_UnitId", KindText, "Pod or job that held what was paid for; mixed for several, null for none.", (*part).unit),
	ours("x_DeploymentId", KindText, "Deployment that held what was paid for.", func(p *part) string { return p.allocation.Deployment }),
	ours("x_Component", KindText, "What became of what was paid for: allocated, idle, failed and so on.", func(p *part) string { return p.allocation.Component.String() }),
	ours("x_Class", KindText, "Kind of charge: committed, on_demand, spot, owned, shared, credit, tax, rounding.", func(p *part) string { return p.allocation.Line.Class.String() }),
	ours("x_MatchMethod", KindText, "How the line was matched to machines.", func(p *part) string { return p.allocation.MatchMethod.String() }),
	ours("x_WorkloadClass", KindText, "Class of the deployment.", func(p *part) string { return p.at().workload }),
	ours("x_Model", KindText, "Model that the deployment is declared to serve or train.", func(p *part) string { return p.at().model }),
	ours("x_GpuModel", KindText, "GPU model of the machines.", func(p *part) string { return p.allocation.Hardware.GPUModel }),
	ours("x_BillingModel", KindText, "How the machines are paid for.", func(p *part) string { return string(p.allocation.Hardware.Billing) }),
	ours("x_Provider", KindText, "Provider of the cluster, else of the billing account's clusters, else the issuer.", func(p *part) string { return p.at().provider }),
	ours("x_ProviderClass", KindText, "Class of that provider.", func(p *part) string { return p.at().providerClass }),
	ours("x_Region", KindText, "Region of the cluster, else of the line.", func(p *part) string { return p.at().region }),
	ours("x_Owner", KindText, "Who answers for the costs of the workspace in that hour.", func(p *part) string { return p.ownership().owner }),
	ours("x_CostCentre", KindText, "Cost centre of the workspace in that hour.", func(p *part) string { return p.ownership().costCentre }),
	ours("x_Entity", KindText, "Company that bears the costs of the workspace in that hour.", func(p *part) string { return p.ownership().entity }),
	ours("x_Hour", KindTime, "Start of the hour that was paid for; null: the whole charge period.", func(p *part) string { return p.allocation.Hour.String() }),
	ours("x_GpuSecondsBought", KindDecimal, "GPU time that was bought, in seconds of whole GPUs.", func(p *part) string { return GPUSeconds(p.allocation.BoughtMs) }),
	ours("x_GpuSecondsAllocated", KindDecimal, "The part of it with a holder.", func(p *part) string { return GPUSeconds(p.allocation.AllocatedMs) }),
	ours("x_GpuSecondsMeasured", KindDecimal, "The part of that with measured activity.", func(p *part) string { return GPUSeconds(p.allocation.MeasuredMs) }),
	ours("x_GpuSecondsUseful", KindDecimal, "Measured time times activity; null if time was held and none of it measured.", func(p *part) string {
		// A posting may change useful time alone.
		l := p.allocation
		if usefulOf(l.AllocatedMs, l.MeasuredMs, l.UsefulMs) == nil && l.UsefulMs == 0 {
			return ""
		}
		return GPUSeconds(l.UsefulMs)
	}),
	{Column: Column{"x_OriginLineId", KindText, "The line, unique within issuer and billing account."}, ofLine: func(p *part) string { return p.allocation.Line.ID }},
	{Column: Column{owned.ColumnAsset, KindText, "Asset of a line of owned hardware, as cluster/asset."},
		ofLine: func(p *part) string { return p.charge().Column(owned.ColumnAsset) }},
	{Column: Column{columnSource, KindText, "Source of the event that recorded the line; of an import, the SHA-256 of the file with reader and options."},
		ofLine: func(p *part) string { return p.charge().Column(columnSource) }},
	{Column: Column{columnPlace, KindDecimal, "Line of the imported file at which the row of the line starts."},
		ofLine: func(p *part) string { return p.charge().Column(columnPlace) }},
	{Column: Column{columnReceived, KindTime, "When the line was received: its event was appended then."},
		ofLine: func(p *part) string { return p.charge().Column(columnReceived) }},
	{Column: Column{"x_CorrectionOf", KindText, "The line that this one corrects."}, ofLine: func(p *part) string { return p.allocation.Line.Corrects }},
	ours("x_AllocationId", KindText, "Id of the allocation, for quartermaster costs explain.", func(p *part) string { return p.allocation.Ref() }),
	ofPosting("x_BooksPeriod", "Month whose books have the row, for example 2026-06. Billing and charge periods are the line's.",
		func(e *exporter) string { return e.name }),
	ofPosting("x_PostingType", "Why the row was posted about an earlier closed month: "+postingTypes+
		". Null for an allocation of the month itself. Everything that adds up is then a difference.",
		func(e *exporter) string {
			if e.posted == nil {
				return ""
			}
			return string(e.posted.Type)
		}),
	ofPosting("x_CauseEventId", "Events that can have caused a posting, as source#id of CloudEvents, separated by semicolons. Null if there "+
		"is no single event: for samples, another method, and telemetry of clusters with shards.",
		func(e *exporter) string {
			if e.posted == nil {
				return ""
			}
			return strings.Join(e.posted.Events, "; ")
		}),
	ofPosting("x_Cause", "What can have caused a posting: types of events and what they are about, separated by semicolons.",
		func(e *exporter) string {
			if e.posted == nil {
				return ""
			}
			return strings.Join(e.posted.Causes, "; ")
		}),
	inBooks("x_BooksCurrency", KindText, "Currency of the books, if the export was asked for it.", func(l *attribution.Allocation) string { return l.Line.Currency }),
	inBooks("x_BooksBilledCost", KindDecimal, "BilledCost in that currency.", func(l *attribution.Allocation) string { return l.Billed.String() }),
	inBooks("x_BooksEffectiveCost", KindDecimal, "EffectiveCost in that currency.", func(l *attribution.Allocation) string { return l.Effective.String() }),
	{Column: Column{"x_Generated", KindFlag, "Whether the line is generated and no supplier sent it."}, ofLine: func(p *part) string { return map[bool]string{true: "true"}[p.allocation.Line.Generated] }},
}

// exporter makes the rows of an export.
type exporter struct {
	divider
	row     []string
	month   domain.Interval
	name    string   // of the month
	method  string   // version that divided the line
	posted  *Posting // that the row is of; nil: an allocation
	unknown bool     // which share of the line it is
	times   map[domain.Instant]string
	tagged  map[[2]string]string
	books   *translator             // nil: the export has no amounts in the currency of the books
	inBooks *attribution.Allocation // the allocation in the currency of the books; nil: none
}

func newExporter() *exporter {
	return &exporter{row: make([]string, len(exportedColumns)), tagged: map[[2]string]string{}, times: map[domain.Instant]string{}}
}

// divider divides the numbers of lines among their allocations, which come one after the other.
type divider struct {
	line     uint32
	begun    bool
	ratio    attribution.Portions
	portions [chargeNumbers]attribution.Portions
	stated   [chargeNumbers]bool
	wide     [chargeNumbers]*wideNumber // of numbers that an amount does not hold
	share    attribution.Amount         // of the line that the allocation has
	numbers  [chargeNumbers]string      // of the allocation
}

// next divides for the next allocation. It reports whether the allocation is the first of its line.
func (e *divider) next(p *part) (first bool) {
	l := p.allocation
	first = !e.begun || l.Line.Number != e.line || l.Line.Number == 0
	if first {
		e.line, e.begun = l.Line.Number, true
		e.ratio = attribution.PortionsOf(attribution.Whole(1))
		c := p.charge()
		for i := range e.portions {
			e.portions[i], e.stated[i] = portionsOf(c.numbers[i])
			e.wide[i] = nil
			if c.numbers[i] != "" && !e.stated[i] {
				e.wide[i] = newWideNumber(c.numbers[i])
			}
		}
	}
	e.share = e.ratio.Next(l.Weight, l.Of)
	for i := range e.portions {
		switch e.numbers[i] = ""; {
		case e.stated[i]:
			e.numbers[i] = e.portions[i].Next(l.Weight, l.Of).String()
		case e.wide[i] != nil:
			e.numbers[i] = e.wide[i].next(l.Weight, l.Of)
		}
	}
	return first
}

// ExportedColumns are the columns of exported allocations.
func ExportedColumns() []Column {
	columns := make([]Column, len(exportedColumns))
	for i := range exportedColumns {
		columns[i] = exportedColumns[i].Column
	}
	return columns
}

// next returns the row of the next allocation, which is reused. Cells that are equal to those of the row before are
// the same strings, as far as they are of the line.
func (e *exporter) next(p *part) []string {
	return e.fill(p, e.divider.next(p))
}

// posting takes the share and the numbers of the line that a posting has.
func (e *exporter) posting(of *Posting, p *part) {
	e.posted, e.month, e.name, e.method = of, projections.BillingMonth(p.month), of.Books, of.row.method
	e.share, e.numbers = p.allocation.Weight, p.keptCharge.numbers
}

// selected leaves the share and the numbers of the line that some holders of an allocation have. Those of a part of a
// posting are not known.
func (e *exporter) selected(p *part, some *selection) {
	share, err := attribution.ParseAmount(some.portion(p, e.share.String()))
	e.share, e.unknown = share, err != nil
	for i := range e.numbers {
		if chargeNumber[i].divided {
			e.numbers[i] = some.portion(p, e.numbers[i])
		}
	}
}

func (e *exporter) fill(p *part, first bool) []string {
	for i := range exportedColumns {
		switch c := &exportedColumns[i]; {
		case c.of != nil:
			e.row[i] = c.of(e, p)
		case first:
			e.row[i] = c.ofLine(p)
		}
	}
	return e.row
}

// wideNumber divides a number of the line that is too large for an amount, such as a count of requests, as
// [attribution.Portions] does.
type wideNumber struct {
	whole, done, at *big.Int
	digits          int32 // after the point
}

func newWideNumber(text string) *wideNumber {
	d, err := decimal.NewFromString(text)
	if err != nil {
		return nil
	}
	w := &wideNumber{done: new(big.Int), at: new(big.Int), digits: max(18, -d.Exponent())}
	w.whole = d.Shift(w.digits).BigInt()
	return w
}

func (w *wideNumber) next(weight, of attribution.Amount) string {
	total := of.Decimal().Coefficient()
	if total.Sign() == 0 {
		return "0"
	}
	w.at.Add(w.at, weight.Decimal().Coefficient())
	upTo := new(big.Int).Mul(w.whole, w.at)
	upTo.Quo(upTo, total)
	part := new(big.Int).Sub(upTo, w.done)
	w.done = upTo
	return decimal.NewFromBigInt(part, -w.digits).String()
}

func (e *exporter) details(*part) string {
	if e.unknown {
		return ""
	}
	return `{"Elements":[{"AllocatedRatio":` + e.share.String() + `}]}`
}

// tags are the workspace and the component of an allocation as tags.
func (e *exporter) tags(p *part) string {
	key := [2]string{p.allocation.Workspace, p.allocation.Component.String()}
	text, ok := e.tagged[key]
	if !ok {
		b, _ := json.Marshal(map[string]string{"component": key[1], "workspace": key[0]}) // texts always can
		text = string(b)
		e.tagged[key] = text
	}
	return text
}

// allocatedTo names what an allocation is for: a deployment in its cluster, else a cluster, else the workspace.
func allocatedTo(l *attribution.Allocation) string {
	switch {
	case l.Deployment != "":
		return l.Cluster + "/" + l.Deployment
	case l.Cluster != "":
		return l.Cluster
	}
	return l.Workspace
}

// GPUSeconds is a time of milliseconds in seconds, as exports write it.
func GPUSeconds(ms int64) string {
	if ms == 0 {
		return "0"
	}
	sign := ""
	if ms < 0 {
		sign, ms = "-", -ms
	}
	text := strconv.FormatInt(ms/1000, 10)
	if ms %= 1000; ms != 0 {
		text += "." + strings.TrimRight(strconv.FormatInt(1000+ms, 10)[1:], "0")
	}
	return sign + text
}

// ControlTotal is what an export adds up to in a currency.
type ControlTotal struct {
	Currency  string             `json:"currency"` // ISO 4217
	Rows      int                `json:"rows"`
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
}

// Totals adds up exported rows.
type totals map[string]*ControlTotal

func (t totals) add(more ControlTotal) {
	of := t[more.Currency]
	if of == nil {
		of = &ControlTotal{Currency: more.Currency}
		t[more.Currency] = of
	}
	of.Rows += more.Rows
	of.Billed, of.Effective = of.Billed.Add(more.Billed), of.Effective.Add(more.Effective)
}

// exporting returns a function that passes the rows of the selected allocations to yield, and adds them up.
func (f *AllocationFilter) exporting(
	month domain.Interval, method string, rates *Rates, sum totals, yield func(row []string) error,
) (func(*part) error, error) {
	picker, err := dimensions.Picker(f.Where)
	if err != nil {
		return nil, fmt.Errorf("allocations where %v: %w", f.Where, err)
	}
	e := newExporter()
	e.month, e.name, e.method = month, monthText(month), method
	if rates != nil {
		e.books = &translator{rates: rates}
	}
	divided := byHolder(nil, f.Where)
	var some, inBooks selection
	return func(p *part) error {
		if e.books != nil {
			e.inBooks = nil
			in, err := e.books.translate(p)
			if err != nil {
				return err
			}
			if in != nil {
				e.inBooks = in.allocation
				if divided {
					inBooks.selecting(in, picker.Picks)
					e.inBooks = &inBooks.l
				}
			}
		}
		if divided {
			e.divider.next(p)
			if !f.accepts(p.allocation) {
				return nil
			}
			some.selecting(p, picker.Picks)
			if !some.some {
				return nil
			}
			e.selected(p, &some)
			sum.add(ControlTotal{p.allocation.Line.Currency, 1, some.l.Billed, some.l.Effective})
			return yield(e.fill(&some.part, true))
		}
		row := e.next(p) // all of them, because portions are cumulative
		if !f.accepts(p.allocation) || !picker.Picks(p) {
			return nil
		}
		sum.add(ControlTotal{p.allocation.Line.Currency, 1, p.allocation.Billed, p.allocation.Effective})
		return yield(row)
	}, nil
}

// Export calls yield with a row for every allocation that the filter selects, in the order of [attribution.Run], until
// yield returns an error. A row has a cell for each of [ExportedColumns], and is reused. With rates, which may be nil,
// a row has its amounts in the currency of the books too. It returns what the rows add up to, by currency, and an error
// of [RatesError] after the last row if a rate is missing.
func (d *Division) Export(filter AllocationFilter, rates *Rates, yield func(row []string) error) ([]ControlTotal, error) {
	sum := totals{}
	each, err := filter.exporting(d.Month, d.Methods.Attribution, rates, sum, yield)
	if err != nil {
		return nil, err
	}
	if err := d.each(each); err != nil {
		return nil, err
	}
	return sum.sorted(), rates.missing()
}

// Export is [Division.Export] of a month that is divided for it, without keeping the allocations.
func Export(
	view projections.View, month domain.Interval, filter AllocationFilter, rates *Rates, yield func(row []string) error,
) ([]ControlTotal, *Summary, error) {
	sum := totals{}
	each, err := filter.exporting(month, costMethods.Attribution, rates, sum, yield)
	if err != nil {
		return nil, nil, err
	}
	d, err := divide(view, month, each)
	if err != nil {
		return nil, nil, err
	}
	return sum.sorted(), &d.Summary, rates.missing()
}

func (t totals) sorted() []ControlTotal {
	all := []ControlTotal{}
	for _, currency := range slices.Sorted(maps.Keys(t)) {
		all = append(all, *t[currency])
	}
	return all
}

// groupColumn is a column of exported groups.
type groupColumn struct {
	Column
	of func(*Cost) string
}

// beforeColumns compare exported groups with the month before.
var beforeColumns = []struct {
	Column
	of func(*CostBefore) attribution.Amount
}{
	{Column{"x_BilledCostBefore", KindDecimal, "BilledCost of the group in the month before."},
		func(b *CostBefore) attribution.Amount { return b.Billed }},
	{Column{"x_BilledCostDifference", KindDecimal, "BilledCost less that."},
		func(b *CostBefore) attribution.Amount { return b.BilledDifference }},
	{Column{"x_EffectiveCostBefore", KindDecimal, "EffectiveCost of the group in the month before."},
		func(b *CostBefore) attribution.Amount { return b.Effective }},
	{Column{"x_EffectiveCostDifference", KindDecimal, "EffectiveCost less that."},
		func(b *CostBefore) attribution.Amount { return b.EffectiveDifference }},
}

func groupAmount(name, doc string, of func(*Cost) attribution.Amount) groupColumn {
	return groupColumn{Column{name, KindDecimal, doc}, func(c *Cost) string { return of(c).String() }}
}

func groupTime(name, doc string, of func(*Cost) int64) groupColumn {
	return groupColumn{Column{name, KindDecimal, doc}, func(c *Cost) string { return GPUSeconds(of(c)) }}
}

// groupColumns are the figures of exported groups. Ratios are not among them: they do not add up.
var groupColumns = []groupColumn{
	{Column{Name: "BillingCurrency", Kind: KindText}, func(c *Cost) string { return c.Currency }},
	groupAmount("BilledCost", "", func(c *Cost) attribution.Amount { return c.Billed }),
	groupAmount("EffectiveCost", "", func(c *Cost) attribution.Amount { return c.Effective }),
	groupAmount("ListCost", "Of usage and purchases whose lines state list and contracted cost.", func(c *Cost) attribution.Amount { return c.List }),
	groupAmount("ContractedCost", "Of the same lines.", func(c *Cost) attribution.Amount { return c.Contracted }),
	groupAmount("x_EffectiveCostListed", "Effective cost of the same lines.", func(c *Cost) attribution.Amount { return c.Listed }),
	groupTime("x_GpuSecondsBought", "GPU time that was bought, in seconds of whole GPUs.", func(c *Cost) int64 { return c.Bought }),
	groupTime("x_GpuSecondsAllocated", "The part of it with a holder.", func(c *Cost) int64 { return c.Allocated }),
	groupTime("x_GpuSecondsMeasured", "The part of that with measured activity.", func(c *Cost) int64 { return c.Measured }),
	{Column{"x_GpuSecondsUseful", KindDecimal, "Measured time times activity; null if time was held and none of it measured."}, func(c *Cost) string {
		if c.Useful == nil {
			return ""
		}
		return GPUSeconds(*c.Useful)
	}},
}

// GroupColumns are the columns of exported groups: months and type of posting, a column for each dimension, and figures. They include
// those of the month before if groups are compared with it.
func GroupColumns(by []Dimension, compare bool) []Column {
	columns := []Column{
		{"x_BillingMonth", KindText, "Billing month in UTC, for example 2026-05; of postings the earlier month that they are about."},
		{"x_BooksPeriod", KindText, "Month whose books have the row."},
		{"x_PostingType", KindText, "Why the row was posted about an earlier closed month: " + postingTypes + ". Null for costs of the month itself. Figures are then differences."},
	}
	for _, d := range by {
		doc := ""
		if of := dimensions.Find(d); of != nil {
			doc = of.Doc
		}
		columns = append(columns, Column{string(d), KindText, doc})
	}
	for i := range groupColumns {
		columns = append(columns, groupColumns[i].Column)
	}
	if compare {
		for i := range beforeColumns {
			columns = append(columns, beforeColumns[i].Column)
		}
	}
	return columns
}

// ExportGroups calls yield with a row for every group of a report of one month, which has a cell for each of
// [GroupColumns] and is reused. It returns what the rows add up to, by currency.
func (r *MonthsReport) ExportGroups(yield func(row []string) error) ([]ControlTotal, error) {
	sum := totals{}
	var row []string
	month := monthText(r.Months[0].Month)
	for i := range r.Groups {
		g := &r.Groups[i]
		row = groupRow(row, month, month, "", r.By, g, g.Before != nil)
		sum.add(ControlTotal{g.Currency, 1, g.Billed, g.Effective})
		if err := yield(row); err != nil {
			return nil, err
		}
	}
	return sum.sorted(), nil
}

// groupRow returns the row of a group, for which it reuses one.
func groupRow(row []string, month, books, posting string, by []Dimension, g *MonthsGroup, compare bool) []string {
	row = append(row[:0], month, books, posting)
	for _, d := range by {
		row = append(row, g.Key[d])
	}
	for j := range groupColumns {
		row = append(row, groupColumns[j].of(&g.Cost))
	}
	for j := range beforeColumns {
		switch {
		case !compare:
		case g.Before == nil: // a posting has no counterpart
			row = append(row, "")
		default:
			row = append(row, beforeColumns[j].of(g.Before).String())
		}
	}
	return row
}

// loadedColumns are the figures of exported views.
var loadedColumns = []struct {
	Column
	of func(*LoadedCost) string
}{
	{Column{Name: "BillingCurrency", Kind: KindText}, func(c *LoadedCost) string { return c.Currency }},
	{Column{Name: "BilledCost", Kind: KindDecimal}, func(c *LoadedCost) string { return c.Billed.String() }},
	{Column{Name: "EffectiveCost", Kind: KindDecimal}, func(c *LoadedCost) string { return c.Effective.String() }},
	{Column{"x_BilledCostDirect", KindDecimal, "Before costs were passed on."}, func(c *LoadedCost) string { return c.Direct.Billed.String() }},
	{Column{"x_EffectiveCostDirect", KindDecimal, "Before costs were passed on."}, func(c *LoadedCost) string { return c.Direct.Effective.String() }},
	{Column{"x_BilledCostPassedOn", KindDecimal, "What a pool passed on."}, func(c *LoadedCost) string { return c.Passed.Billed.String() }},
	{Column{"x_EffectiveCostPassedOn", KindDecimal, "What a pool passed on."}, func(c *LoadedCost) string { return c.Passed.Effective.String() }},
	{Column{"x_BilledCostReceived", KindDecimal, "What was received of pools."}, func(c *LoadedCost) string { return c.Received.Billed.String() }},
	{Column{"x_EffectiveCostReceived", KindDecimal, "What was received of pools."}, func(c *LoadedCost) string { return c.Received.Effective.String() }},
	{Column{"x_GpuSecondsAllocated", KindDecimal, "GPU time with a holder, in seconds of whole GPUs."},
		func(c *LoadedCost) string { return GPUSeconds(c.Allocated) }},
}

// LoadedColumns are the columns of an exported view: the month, the workspace, and figures.
func LoadedColumns() []Column {
	of := GroupColumns([]Dimension{ByWorkspace}, false)
	columns := []Column{of[0], of[3]}
	for i := range loadedColumns {
		columns = append(columns, loadedColumns[i].Column)
	}
	return columns
}

// Export calls yield with a row for every workspace of a view of a month, which has a cell for each of [LoadedColumns]
// and is reused. It returns what the rows add up to, by currency.
func (l *Loaded) Export(month domain.Interval, yield func(row []string) error) ([]ControlTotal, error) {
	sum := totals{}
	row := make([]string, 0, 2+len(loadedColumns))
	for i := range l.Workspaces {
		w := &l.Workspaces[i]
		row = append(row[:0], monthText(month), w.Workspace)
		for j := range loadedColumns {
			row = append(row, loadedColumns[j].of(w))
		}
		sum.add(ControlTotal{w.Currency, 1, w.Billed, w.Effective})
		if err := yield(row); err != nil {
			return nil, err
		}
	}
	return sum.sorted(), nil
}

// AddTotals adds control totals to others, by currency.
func AddTotals(to, more []ControlTotal) []ControlTotal {
	sum := totals{}
	for _, t := range slices.Concat(to, more) {
		sum.add(t)
	}
	return sum.sorted()
}
