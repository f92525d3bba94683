package importer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// pricesKind reads dated offers.
//
// Offer ids have the form "sku/gpus x model/offer/term", for example
// "p5.48xlarge/8xNVIDIA H100/reserved_standard_no_upfront/12m". A missing sku is replaced by the
// parts, "1xA4000 (16 GB) 2vcpu 4gib". An id is made of what is sold and how, in the source's
// spelling, never of the price, so that a later quote of the same offer replaces this one. If a
// file quotes one id at several prices, it does not tell what differs: the second is "id#2", with
// a warning. A row that repeats another in every column that is read is a bad row.
//
// Offer is on_demand, spot, capacity_block, spend_commitment, owned, or reserved_CLASS_PAYMENT.
// CLASS is standard, convertible, savings or or_savings_plan. PAYMENT is no_upfront,
// partial_upfront or all_upfront, and must agree with upfront and hourly. Reserved instances and
// savings plans are discounts: neither guarantees capacity unless the column guarantees_capacity
// is true. A capacity block guarantees it. A spend_commitment row is the committed price of a unit:
// what running it for an hour takes of the amount that is committed. The optional column spend names
// the commitment, for example "Compute Savings Plan": all rows of a provider with that name, term
// and currency are prices of the same one, in any region.
//
// Memory: numbers are GiB whatever the unit, because clouds mean GiB by GB. gpu_memory is per GPU
// in some sources and of all GPUs in others. The catalogue decides, with a warning if neither
// fits. For unknown models it is used only if there is one GPU. Of a range ("20-26") the lower
// end is used, with a warning. "Unknown" and empty mean unknown.
//
// A region that is empty, unspecified or global becomes "". gpu_count is a number of whole GPUs,
// or the part of one that is sold, from 0.001 to 0.999 in thousandths; gpu_memory is then the
// memory of the whole GPU.
var pricesKind = format{
	columns: []string{
		"provider", "region", "instance_type", "gpu_model", "gpu_count", "gpu_memory", "vcpu", "memory",
		"offer", "term_months", "upfront", "hourly", "currency", "as_of",
	},
	start: func(im *importer, col func(string) column) func(*cells) error {
		im.opts.Cluster = "" // offers concern no cluster
		p := &priceReader{
			importer: im,
			provider: col("provider"), region: col("region"), sku: col("instance_type"),
			gpu: col("gpu_model"), gpus: col("gpu_count"), gpuMemory: col("gpu_memory"),
			vcpu: col("vcpu"), memory: col("memory"),
			offer: col("offer"), term: col("term_months"),
			upfront: col("upfront"), hourly: col("hourly"), effective: col("effective_hourly"),
			currency: col("currency"), asOf: col("as_of"), source: col("source"),
			guarantees: col("guarantees_capacity"), lead: col("lead_time_hours"),
			minUnits: col("min_units"), maxUnits: col("max_units"), spend: col("spend"),
			seen: map[string]int{}, ids: map[string]int{},
		}
		return p.row
	},
}

type priceReader struct {
	*importer
	provider, region, sku                column
	gpu, gpus, gpuMemory, vcpu, memory   column
	offer, term                          column
	upfront, hourly, effective, currency column
	asOf, source                         column
	guarantees, lead, minUnits, maxUnits column
	spend                                column

	seen map[string]int // line of each row, by its content
	ids  map[string]int // uses of each id, by market and id
}

func (p *priceReader) row(c *cells) error {
	ev := &domain.OfferQuoted{
		Market:        domain.Market{Provider: c.name(p.provider), Region: c.text(p.region)},
		SKU:           c.text(p.sku),
		CPUMilli:      uint64(p.lowest(c, p.vcpu, "").Shift(3).IntPart()),
		MemoryMiB:     uint64(p.lowest(c, p.memory, "GiB").Mul(mib).IntPart()),
		TermMonths:    uint32(c.optionalCount(p.term, 1200)),
		Upfront:       p.price(c, p.upfront),
		Hourly:        p.price(c, p.hourly),
		Currency:      c.name(p.currency),
		AsOf:          c.text(p.asOf),
		Citation:      c.text(p.source),
		LeadTimeHours: uint32(c.optionalCount(p.lead, 100_000)),
		MinUnits:      uint32(c.optionalCount(p.minUnits, 1_000_000_000)),
		MaxUnits:      uint32(c.optionalCount(p.maxUnits, 1_000_000_000)),
		Spend:         c.text(p.spend),
	}
	ev.GPUCount, ev.GPUMilli = p.gpuCount(c)
	switch ev.Market.Region {
	case "unspecified", "global":
		ev.Market.Region = ""
	}
	if len(c.raw(p.effective)) > 0 {
		ev.EffectiveHourly = decimal.NewNullDecimal(p.price(c, p.effective))
	}
	if !currencyCode.MatchString(ev.Currency) {
		c.refuse(p.currency, "is not an ISO 4217 code such as USD")
	}
	model := c.text(p.gpu)
	if ev.GPUCount+ev.GPUMilli > 0 && model == "" {
		c.refuse(p.gpu, "is empty for an offer with GPUs")
	}
	stated, memory := p.gpuMemoryGiB(c)
	p.terms(c, ev)
	ev.ValidFrom = p.validFrom(c)
	id := p.offerID(c, ev)
	if len(id) > maxName-8 {
		c.refuse(p.sku, fmt.Sprintf("and gpu_model make an offer id longer than %d bytes", maxName-8))
	}
	if c.refused != nil {
		return c.refused
	}
	content := p.content(c)
	if line, twice := p.seen[content]; twice {
		return &refusal{Field: p.sku.name, Value: id, Reason: fmt.Sprintf("repeats line %d", line)}
	}
	p.seen[content] = c.line

	p.nameModel(ev, model, stated, memory)
	for _, k := range []column{p.vcpu, p.memory} {
		if strings.Contains(string(c.raw(k)), "-") {
			p.warn("the lower end of a range is used as "+k.name, string(c.raw(k)))
		}
	}
	ev.Offer = id
	market := ev.Market.Key() + "|" + id
	p.ids[market]++
	if n := p.ids[market]; n > 1 {
		ev.Offer += "#" + strconv.Itoa(n)
		p.warn("several prices for one offer id", ev.Market.Key()+" "+id)
	}
	return p.emit(ev.ValidFrom, ev.Offer, "", ev)
}

var (
	mib          = decimal.New(1024, 0) // in a GiB
	currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)
)

// price reads an amount of money. It refuses an empty field.
func (p *priceReader) price(c *cells, k column) domain.Decimal {
	d, ok := c.amount(k)
	switch {
	case !ok:
		c.refuse(k, "is empty")
	case d.Exponent() < -18:
		c.refuse(k, "has more than 18 decimals")
	}
	return d
}

// gpuCount reads a number of whole GPUs, or the sold part of one GPU in thousandths.
func (p *priceReader) gpuCount(c *cells) (count, milli uint32) {
	d, ok := c.amount(p.gpus)
	if !ok || d.IsInteger() || d.GreaterThan(decimal.New(maxNodeGPUs, 0)) {
		return uint32(c.count(p.gpus, maxNodeGPUs)), 0
	}
	switch part := d.Shift(3); {
	case d.GreaterThan(decimal.New(1, 0)):
		c.refuse(p.gpus, "is a fraction of several GPUs: an offer is of whole GPUs or of a part of one")
	case !part.IsInteger():
		c.refuse(p.gpus, "is a part of a GPU that is not in whole thousandths")
	default:
		milli = uint32(part.IntPart())
	}
	return 0, milli
}

// quantity is a number with an optional range and unit, as in "768 GB",
// "30.5 GB", "80-100", "640 GB HBM3".
var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(?:\s*-\s*[0-9]+(?:\.[0-9]+)?)?(?:\s*(GB|GiB)(?:\s+([A-Za-z0-9]+))?)?$`)

// lowest reads a quantity, or the lower end of a range; zero if unknown.
func (p *priceReader) lowest(c *cells, k column, unit string) domain.Decimal {
	text := string(c.raw(k))
	if text == "" || strings.EqualFold(text, "unknown") {
		return decimal.Zero
	}
	m := quantity.FindStringSubmatch(text)
	if m == nil || unit == "" && m[2] != "" {
		c.refuse(k, "is neither a quantity such as 96"+strings.TrimRight(" "+unit, " ")+" nor Unknown")
		return decimal.Zero
	}
	d, reason := parseDecimal(m[1])
	if reason == "" && d.GreaterThan(decimal.New(1_000_000_000, 0)) {
		reason = "is too large"
	}
	if reason != "" {
		c.refuse(k, reason)
		return decimal.Zero
	}
	return d
}

// gpuMemoryGiB reads gpu_memory: the number as stated, and the type of memory, such as HBM3.
func (p *priceReader) gpuMemoryGiB(c *cells) (gib domain.Decimal, memory string) {
	if m := quantity.FindStringSubmatch(string(c.raw(p.gpuMemory))); m != nil {
		memory = m[3]
	}
	return p.lowest(c, p.gpuMemory, "GiB"), memory
}

// nameModel sets the model from the catalogue, if needed with the help of its memory, and the
// memory of one GPU.
func (p *priceReader) nameModel(ev *domain.OfferQuoted, model string, stated domain.Decimal, memory string) {
	if model == "" {
		return
	}
	count := decimal.New(int64(max(1, ev.GPUCount)), 0)
	perGPU := stated.Div(count)
	m, known := domain.LookupGPU(model)
	if !known || m.MemoryMiB == 0 {
		for _, size := range []domain.Decimal{stated, perGPU} {
			for _, suffix := range []string{" " + memory, ""} {
				if v, ok := domain.LookupGPU(model + " " + size.String() + "GB" + suffix); ok && size.IsPositive() && v.MemoryMiB != 0 {
					m, known = v, true
					break
				}
			}
			if known && m.MemoryMiB != 0 {
				break
			}
		}
	}
	if !known {
		m = p.model(model)
	}
	ev.GPUModel, ev.GPUMemoryMiB = m.Name, m.MemoryMiB
	switch {
	case !stated.IsPositive():
	case m.MemoryMiB == 0 && ev.GPUCount == 1:
		ev.GPUMemoryMiB = uint64(stated.Mul(mib).IntPart())
	case m.MemoryMiB != 0 && !near(stated, m.MemoryMiB) && !near(perGPU, m.MemoryMiB):
		p.warn(
			fmt.Sprintf("gpu_memory fits neither one nor all GPUs of %d MiB; the catalogue's value is used", m.MemoryMiB),
			fmt.Sprintf("%s × %s with %s", quotedGPUs(ev), model, stated),
		)
	}
}

// near reports whether sizes agree within 3%. Manufacturers and clouds round differently, but the
// sizes of the variants of a model differ by more.
func near(gib domain.Decimal, nominalMiB uint64) bool {
	nominal := decimal.New(int64(nominalMiB), 0)
	return gib.Mul(mib).Sub(nominal).Abs().Mul(decimal.New(100, 0)).LessThanOrEqual(nominal.Mul(decimal.New(3, 0)))
}

// terms reads the offer column and checks that price and term agree with it.
func (p *priceReader) terms(c *cells, ev *domain.OfferQuoted) {
	offer := c.name(p.offer)
	class, reserved := strings.CutPrefix(offer, "reserved_")
	switch kind := domain.OfferKind(offer); {
	case reserved:
		ev.Kind = domain.OfferReserved
		p.reservedTerms(c, ev, class)
	case kind == domain.OfferOnDemand, kind == domain.OfferSpot:
		ev.Kind = kind
		if ev.TermMonths != 0 {
			c.refuse(p.term, "is a term for an offer without one, "+offer)
		}
	case kind == domain.OfferCapacityBlock, kind == domain.OfferSpendCommitment, kind == domain.OfferOwned:
		ev.Kind = kind
		ev.GuaranteesCapacity = kind == domain.OfferCapacityBlock
	default:
		c.refuse(p.offer, "is not one of on_demand, spot, capacity_block, spend_commitment, owned, reserved_CLASS_PAYMENT")
	}
	switch {
	case ev.Kind == domain.OfferSpendCommitment && ev.TermMonths == 0:
		c.refuse(p.term, "is missing for a spend commitment")
	case ev.Kind != domain.OfferSpendCommitment && ev.Spend != "":
		c.refuse(p.spend, "names a spend commitment, for an offer of another kind, "+offer)
	}
	switch text := c.text(p.guarantees); text {
	case "":
	case "true", "false":
		ev.GuaranteesCapacity = text == "true"
	default:
		c.refuse(p.guarantees, "is neither true nor false")
	}
}

func (p *priceReader) reservedTerms(c *cells, ev *domain.OfferQuoted, class string) {
	payment := ""
	for _, pay := range []string{"_no_upfront", "_partial_upfront", "_all_upfront"} {
		if before, ok := strings.CutSuffix(class, pay); ok {
			class, payment = before, pay[1:]
		}
	}
	switch class {
	case "standard", "savings", "or_savings_plan":
	case "convertible":
		ev.Convertible = true
	default:
		c.refuse(p.offer, "is reserved in no known class: standard, convertible, savings, or_savings_plan")
	}
	if ev.TermMonths == 0 {
		c.refuse(p.term, "is missing for a reserved offer")
	}
	switch {
	case payment == "":
		c.refuse(p.offer, "does not end in a payment: no_upfront, partial_upfront, all_upfront")
	case payment == "no_upfront" && !ev.Upfront.IsZero():
		c.refuse(p.upfront, "is an upfront price for no_upfront")
	case payment == "partial_upfront" && (ev.Upfront.IsZero() || ev.Hourly.IsZero()):
		c.refuse(p.upfront, "and hourly must both be there for partial_upfront")
	case payment == "all_upfront" && !ev.Hourly.IsZero():
		c.refuse(p.hourly, "is an hourly price for all_upfront")
	}
}

// offerID returns the id of an offer: what is sold and how, in the source's spelling. An offer
// without a sku gets one that names its parts.
func (p *priceReader) offerID(c *cells, ev *domain.OfferQuoted) string {
	gpus := fmt.Sprintf("%sx%s", quotedGPUs(ev), c.raw(p.gpu))
	id := ev.SKU + "/" + gpus
	if ev.SKU == "" {
		ev.SKU = fmt.Sprintf("%s %svcpu %sgib", gpus, c.raw(p.vcpu), c.raw(p.memory))
		id = ev.SKU
	}
	id += "/" + string(c.raw(p.offer))
	if ev.Spend != "" {
		id += "/" + ev.Spend
	}
	if ev.TermMonths != 0 {
		id += fmt.Sprintf("/%dm", ev.TermMonths)
	}
	return id
}

// quotedGPUs returns the number of GPUs in an offer, such as 8 or 0.125.
func quotedGPUs(ev *domain.OfferQuoted) domain.Decimal {
	return decimal.New(int64(ev.GPUCount), 0).Add(decimal.New(int64(ev.GPUMilli), -3))
}

// content joins all columns that are read, to detect duplicate rows.
func (p *priceReader) content(c *cells) string {
	var b strings.Builder
	for _, k := range []column{
		p.provider, p.region, p.sku, p.gpu, p.gpus, p.gpuMemory, p.vcpu, p.memory, p.offer, p.term, p.upfront, p.hourly,
		p.effective, p.currency, p.asOf, p.source, p.guarantees, p.lead, p.minUnits, p.maxUnits,
	} {
		b.Write(c.raw(k))
		b.WriteByte(0)
	}
	return b.String()
}

// validFrom reads as_of: a month, a day, or a range of them ("2023..2025-03"), of which the last
// counts.
func (p *priceReader) validFrom(c *cells) domain.Instant {
	last := c.name(p.asOf)
	if i := strings.LastIndex(last, ".."); i >= 0 {
		last = last[i+2:]
	}
	for _, layout := range []string{"2006-01", time.DateOnly} {
		t, err := time.Parse(layout, last)
		if err != nil {
			continue
		}
		at, reason := instantOf(t)
		if reason == "" {
			at, reason = shifted(at, domain.Instant(p.opts.Shift))
		}
		if reason != "" {
			c.refuse(p.asOf, reason)
		}
		return at
	}
	c.refuse(p.asOf, "is not a month such as 2026-01")
	return 0
}
