package domain

// Events of qm.market, keyed by provider and region, or by currency pair.

// Market is where something is sold.
type Market struct {
	Provider string `json:"provider"`
	Region   string `json:"region"`
}

// Key returns the topic key of the market, "" when it names no provider.
func (m Market) Key() string {
	if m.Provider == "" {
		return ""
	}
	return m.Provider + "|" + m.Region
}

// OfferKind is how an offer is bought.
type OfferKind string

// The kinds of offers.
const (
	OfferReserved        OfferKind = "reserved"
	OfferOnDemand        OfferKind = "on_demand"
	OfferSpot            OfferKind = "spot"
	OfferCapacityBlock   OfferKind = "capacity_block"
	OfferSpendCommitment OfferKind = "spend_commitment"
	OfferOwned           OfferKind = "owned"
)

// OfferQuoted states a price. Price and guaranteed capacity are separate: a price commitment may
// guarantee no capacity, and a capacity reservation may be billed whether it is used or not.
type OfferQuoted struct {
	Market       Market    `json:"market"`
	Offer        string    `json:"offer"` // id within the market
	Zone         string    `json:"zone,omitempty"`
	SKU          string    `json:"sku"` // instance type
	GPUModel     string    `json:"gpu_model"`
	GPUCount     uint32    `json:"gpu_count"`                // whole GPUs; 0 for a part of one, or none
	GPUMilli     uint32    `json:"gpu_milli,omitempty"`      // 1 to 999: thousandths of one GPU, where a part is sold
	GPUMemoryMiB uint64    `json:"gpu_memory_mib,omitempty"` // of one whole GPU
	CPUMilli     uint64    `json:"cpu_milli,omitempty"`
	MemoryMiB    uint64    `json:"memory_mib,omitempty"`
	Kind         OfferKind `json:"kind"`
	// Spend names the spend commitment that this is a price of, for example "Compute Savings Plan":
	// running a unit for an hour takes Hourly, and Upfront by the hour of the term (730 a month), of the
	// amount that it commits. So much of the commitment is paid by the hour, and upfront. Offers of one
	// provider, currency, term and way of paying with the same Spend are prices of one commitment, in any
	// region.
	Spend              string      `json:"spend,omitempty"`
	TermMonths         uint32      `json:"term_months,omitempty"`
	Convertible        bool        `json:"convertible,omitempty"`
	Upfront            Decimal     `json:"upfront"`                   // per unit
	Hourly             Decimal     `json:"hourly"`                    // per unit and hour
	EffectiveHourly    NullDecimal `json:"effective_hourly,omitzero"` // as the source states it
	Currency           string      `json:"currency"`                  // ISO 4217
	GuaranteesCapacity bool        `json:"guarantees_capacity"`
	LeadTimeHours      uint32      `json:"lead_time_hours,omitempty"`
	MinUnits           uint32      `json:"min_units,omitempty"`
	MaxUnits           uint32      `json:"max_units,omitempty"` // 0: no bound stated
	ValidFrom          Instant     `json:"valid_from"`
	ValidTo            Instant     `json:"valid_to,omitempty"`
	AsOf               string      `json:"as_of,omitempty"` // as the source dates it
	Citation           string      `json:"citation,omitempty"`
	Generated          bool        `json:"generated,omitempty"`
}

// OfferWithdrawn ends an offer.
type OfferWithdrawn struct {
	Market Market  `json:"market"`
	Offer  string  `json:"offer"`
	At     Instant `json:"at"`
}

// OnDemandQuotaSet bounds on-demand use of an account.
type OnDemandQuotaSet struct {
	Market        Market  `json:"market"`
	Account       string  `json:"account"`
	GPUModel      string  `json:"gpu_model,omitempty"`
	LimitGPUs     uint64  `json:"limit_gpus"`
	EffectiveFrom Instant `json:"effective_from"`
}

// SpotInterrupted records that a supplier took spot capacity back.
type SpotInterrupted struct {
	Market        Market `json:"market"`
	Zone          string `json:"zone,omitempty"`
	SKU           string `json:"sku"`
	Node          string `json:"node,omitempty"`
	NoticeSeconds uint32 `json:"notice_seconds"`
	Units         uint32 `json:"units"`
}

// TariffSet sets what a site costs: power, and by Rates everything else. Market names operator and
// site.
type TariffSet struct {
	Market        Market     `json:"market"`
	PerKWh        Money      `json:"per_kwh"`
	PUE           Decimal    `json:"pue"` // power usage effectiveness, ISO/IEC 30134-2
	EffectiveFrom Instant    `json:"effective_from"`
	Rates         []SiteRate `json:"rates,omitempty"`
}

// RatePer says of what a site counts the units of a rate.
type RatePer string

// The units of a rate.
const (
	PerAsset    RatePer = "asset"
	PerNode     RatePer = "node"
	PerGPU      RatePer = "gpu"
	PerRackUnit RatePer = "rack_unit"
)

// SiteRate is what a site costs a month for each unit of owned hardware, for example space, network,
// storage, maintenance or staff.
type SiteRate struct {
	Cost  string  `json:"cost"` // names it, for example space
	Per   RatePer `json:"per"`
	Price Money   `json:"price"` // a month and unit
}

// FXRateKind says what a rate may be used for.
type FXRateKind string

// The kinds of exchange rates.
const (
	FXSpot    FXRateKind = "spot"    // of a day; it translates nothing in the books
	FXAverage FXRateKind = "average" // of a month, for its expense
	FXPayment FXRateKind = "payment" // of the day of a payment, for what was prepaid
	FXClosing FXRateKind = "closing" // at the end of a month, for balances
)

// FXRateSet states what one unit of Base is worth in Quote.
type FXRateSet struct {
	Base      string     `json:"base"`  // ISO 4217
	Quote     string     `json:"quote"` // ISO 4217
	Rate      Decimal    `json:"rate"`
	Kind      FXRateKind `json:"kind"`
	Effective Interval   `json:"effective"`
	Citation  string     `json:"citation,omitempty"`
}

// Events of qm.procurement, keyed by workspace: purchase proposals and purchases.

// PlanComputed records a plan with everything needed to recompute it.
type PlanComputed struct {
	Plan       string   `json:"plan"`
	Position   string   `json:"position"`
	Method     string   `json:"method"`
	Horizon    Interval `json:"horizon"`
	Regions    []string `json:"regions,omitempty"`
	Cost       Money    `json:"cost"`
	LowerBound Money    `json:"lower_bound"`
	Digest     []byte   `json:"digest"`   // SHA-256 of Document
	Document   []byte   `json:"document"` // the plan, canonical JSON
}

// ScenarioFrozen records a scenario so that recommendations can cite it.
type ScenarioFrozen struct {
	Scenario string `json:"scenario"`
	Position string `json:"position"`
	Method   string `json:"method"`
	Seed     uint64 `json:"seed"`
	Digest   []byte `json:"digest"`
	Document []byte `json:"document"`
}

// Purchase is a number of units of an offer from a time on.
type Purchase struct {
	Market Market  `json:"market"`
	Offer  string  `json:"offer"`
	Units  uint32  `json:"units"`
	Start  Instant `json:"start"`
}

// Share is a part of a whole. The shares of a commitment add up to 1.
type Share struct {
	Workspace string  `json:"workspace"`
	Share     Decimal `json:"share"`
}

// CommitmentPurchased records a contract: an offer that was bought, and the owners who pay for its
// unused part.
type CommitmentPurchased struct {
	Commitment         string      `json:"commitment"` // CommitmentDiscountId or CapacityReservationId on the bill
	Contract           string      `json:"contract,omitempty"`
	Market             Market      `json:"market"`
	Offer              string      `json:"offer,omitempty"`
	BillingAccount     string      `json:"billing_account"`
	Kind               OfferKind   `json:"kind"`
	SKU                string      `json:"sku"`
	GPUModel           string      `json:"gpu_model"`
	GPUsPerUnit        uint32      `json:"gpus_per_unit"`
	Units              uint32      `json:"units"`
	Term               Interval    `json:"term"`
	Upfront            Money       `json:"upfront"`                 // in all
	Hourly             Money       `json:"hourly"`                  // per unit
	SpendPerHour       NullDecimal `json:"spend_per_hour,omitzero"` // for spend commitments
	GuaranteesCapacity bool        `json:"guarantees_capacity"`
	Owners             []Share     `json:"owners,omitempty"`
	NoticeBy           Instant     `json:"notice_by,omitempty"` // last day to stop a renewal
	Recommendation     string      `json:"recommendation,omitempty"`
	Spend              string      `json:"spend,omitempty"` // for spend commitments: which one, as in its offers
}

// CommitmentRenewed extends a commitment at a price.
type CommitmentRenewed struct {
	Commitment string   `json:"commitment"`
	Term       Interval `json:"term"`
	Units      uint32   `json:"units"`
	Upfront    Money    `json:"upfront"`
	Hourly     Money    `json:"hourly"`
	NoticeBy   Instant  `json:"notice_by,omitempty"`
}

// CommitmentEnded ends a commitment before or at its term.
type CommitmentEnded struct {
	Commitment string  `json:"commitment"`
	At         Instant `json:"at"`
	Reason     string  `json:"reason,omitempty"`
}
