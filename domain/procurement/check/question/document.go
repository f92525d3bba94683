package question

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// document is a question, as schemas/instance/v1.schema.json describes it. Keys that decide nothing
// are read and left alone.
type document struct {
	Format      string                    `json:"format"`
	Name        string                    `json:"name"`
	Currency    string                    `json:"currency"`
	From        domain.Instant            `json:"from"`
	Epoch       string                    `json:"epoch"`
	Epochs      int                       `json:"epochs"`
	AnnualRate  domain.Decimal            `json:"annual_rate"`
	Salvage     domain.Decimal            `json:"salvage"`
	FX          map[string]domain.Decimal `json:"fx"`
	Regions     []region                  `json:"regions"`
	Pools       []pool                    `json:"pools"`
	Demands     []demand                  `json:"demands"`
	Offers      []offer                   `json:"offers"`
	Commitments []commitment              `json:"commitments"`
	Quotas      []quota                   `json:"quotas"`
	Overflow    []overflow                `json:"overflow"`
	Substitutes []substitute              `json:"substitutes"`
	Posture     *posture                  `json:"posture"`
	Budgets     []budget                  `json:"budgets"`
	Limits      struct {
		Unserved *domain.Decimal `json:"max_unserved_share"`
		Spot     *domain.Decimal `json:"max_spot_share"`
	} `json:"limits"`
	Scenarios []scenario `json:"scenarios"`
	Source    any        `json:"source"`
	Notes     any        `json:"notes"`
}

type region struct {
	ID      string `json:"id"`
	Country string `json:"country"`
}

type pool struct {
	ID             string   `json:"id"`
	Region         string   `json:"region"`
	Class          string   `json:"class"`
	Unit           string   `json:"unit"`
	GPUs           int      `json:"gpus_per_unit"`
	OnDemand       *price   `json:"on_demand"`
	Quota          string   `json:"quota"`
	QuotaPerUnit   int      `json:"quota_per_unit"`
	Spot           *spot    `json:"spot"`
	Certifications []string `json:"certifications"`
	Provider       string   `json:"provider"`
}

type price struct {
	Hourly   domain.Decimal `json:"hourly"`
	Currency string         `json:"currency"`
	Path     []priceStep    `json:"path"`
}

type priceStep struct {
	From   domain.Instant `json:"from"`
	Hourly domain.Decimal `json:"hourly"`
}

type spot struct {
	price
	Overhead  domain.Decimal `json:"overhead"`
	Available *int           `json:"available_units"`
}

type demand struct {
	ID              string         `json:"id"`
	Pool            string         `json:"pool"`
	Class           string         `json:"class"`
	Hourly          units          `json:"hourly"`
	Duration        [][]step       `json:"duration"`
	Interruptible   domain.Decimal `json:"interruptible_share"`
	Shortage        domain.Decimal `json:"shortage_hourly"`
	LatencyBudgetMS int            `json:"latency_budget_ms"`
	Moving          domain.Decimal `json:"overflow_hourly"`
	Countries       []string       `json:"countries"`
	Certifications  []string       `json:"certifications"`
	DeferrableShare domain.Decimal `json:"deferrable_share"`
	DeferHours      int            `json:"defer_hours"`
	Buffer          *buffer        `json:"buffer"`
	Past            skipped        `json:"past_hourly"`
}

type step struct {
	Units int `json:"units"`
	Hours int `json:"hours"`
}

type buffer struct {
	ServiceLevel domain.Decimal `json:"service_level"`
	Failures     domain.Decimal `json:"failures_per_gpu_hour"`
	RepairHours  domain.Decimal `json:"repair_hours"`
	Counted      int            `json:"interruptions_counted"`
	UnitsPerNode int            `json:"units_per_node"`
	GPUsPerUnit  int            `json:"gpus_per_unit"`
}

type offer struct {
	ID         string                    `json:"id"`
	Provider   any                       `json:"provider"`
	Kind       string                    `json:"kind"`
	Pool       string                    `json:"pool"`
	Spend      string                    `json:"spend"`
	Term       int                       `json:"term_epochs"`
	Upfront    domain.Decimal            `json:"upfront"`
	Hourly     domain.Decimal            `json:"hourly"`
	Commits    domain.Decimal            `json:"commits_hourly"`
	Decline    domain.Decimal            `json:"decline_per_epoch"`
	Currency   string                    `json:"currency"`
	Guaranteed bool                      `json:"guarantees_capacity"`
	PerUnit    int                       `json:"covers_per_unit"`
	From       domain.Instant            `json:"from"`
	To         domain.Instant            `json:"to"`
	LeadHours  int                       `json:"lead_time_hours"`
	MinUnits   int                       `json:"min_units"`
	MaxUnits   int                       `json:"max_units"`
	Lot        int                       `json:"lot"`
	Tiers      []tier                    `json:"tiers"`
	Ramp       []rampStep                `json:"ramp"`
	Exclusive  string                    `json:"exclusive"`
	Owned      *owned                    `json:"owned"`
	Rates      map[string]domain.Decimal `json:"rates"`
	Citation   any                       `json:"citation"`
	Generated  any                       `json:"generated"`
}

type tier struct {
	Units   int            `json:"units"`
	Upfront domain.Decimal `json:"upfront"`
	Hourly  domain.Decimal `json:"hourly"`
}

type rampStep struct {
	Epoch    int `json:"epoch"`
	Permille int `json:"permille"`
}

type owned struct {
	PowerKW        domain.Decimal `json:"power_kw"`
	PUE            domain.Decimal `json:"pue"`
	TariffKWh      domain.Decimal `json:"tariff_kwh"`
	SpaceMonthly   domain.Decimal `json:"space_monthly"`
	NetworkMonthly domain.Decimal `json:"network_monthly"`
	SupportMonthly domain.Decimal `json:"support_monthly"`
	Salvage        domain.Decimal `json:"salvage"`
}

type commitment struct {
	ID         string                    `json:"id"`
	Kind       string                    `json:"kind"`
	Pool       string                    `json:"pool"`
	Spend      string                    `json:"spend"`
	Units      int                       `json:"units"`
	Term       domain.Interval           `json:"term"`
	Upfront    domain.Decimal            `json:"upfront"`
	Hourly     domain.Decimal            `json:"hourly"`
	Commits    domain.Decimal            `json:"commits_hourly"`
	Currency   string                    `json:"currency"`
	Guaranteed bool                      `json:"guarantees_capacity"`
	NoticeBy   domain.Instant            `json:"notice_by"`
	Renews     bool                      `json:"renews"`
	Rates      map[string]domain.Decimal `json:"rates"`
}

type quota struct {
	ID    string      `json:"id"`
	Limit int         `json:"limit"`
	Path  []quotaStep `json:"path"`
}

type quotaStep struct {
	From  domain.Instant `json:"from"`
	Limit int            `json:"limit"`
}

type overflow struct {
	From        string         `json:"from"`
	To          string         `json:"to"`
	RoundTripMS int            `json:"round_trip_ms"`
	Estimated   any            `json:"estimated"`
	Hourly      domain.Decimal `json:"hourly"`
	Overhead    domain.Decimal `json:"overhead"`
}

type substitute struct {
	For     string         `json:"for"`
	Class   string         `json:"class"`
	Units   domain.Decimal `json:"units"`
	Demands []string       `json:"demands"`
}

type posture struct {
	Kind    string          `json:"kind"`
	Demands []string        `json:"demands"`
	Share   domain.Decimal  `json:"share"`
	Standby string          `json:"standby"`
	Cold    *domain.Decimal `json:"cold_price_share"`
}

type budget struct {
	ID       string          `json:"id"`
	Basis    string          `json:"basis"`
	Interval domain.Interval `json:"interval"`
	Amount   domain.Decimal  `json:"amount"`
}

type scenario struct {
	ID      string           `json:"id"`
	Weight  int              `json:"weight"`
	Factor  int              `json:"factor_permille"`
	Factors map[string]int   `json:"factors_permille"`
	Hourly  map[string]units `json:"hourly"`
	Spot    map[string]int   `json:"spot_available_units"`
}

// units is a list of whole numbers. Lists by the hour are most of a document.
type units []int32

// UnmarshalJSON reads a list of integers that are not negative.
func (u *units) UnmarshalJSON(text []byte) error {
	if len(text) < 2 || text[0] != '[' {
		return errors.New("units are a list of integers")
	}
	out := make(units, 0, bytes.Count(text, []byte(","))+1)
	n, digits := int32(0), 0
	for _, c := range text[1:] {
		switch {
		case c >= '0' && c <= '9' && digits < 9:
			n, digits = 10*n+int32(c-'0'), digits+1
		case (c == ',' || c == ']') && digits > 0:
			out, n, digits = append(out, n), 0, 0
		case c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == ']':
		default:
			return errors.New("units are a list of integers of at most nine digits, none negative")
		}
	}
	*u = out
	return nil
}

// skipped is a value that decides nothing.
type skipped struct{}

// UnmarshalJSON reads nothing.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// read reads a question and sorts its lists, so that their order decides nothing.
func read(text []byte) (*document, error) {
	d := &document{}
	if err := strict(text, d); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if d.Format != "quartermaster.instance/1" {
		return nil, fmt.Errorf("read the question: format %q is not quartermaster.instance/1", d.Format)
	}
	sorted(d.Regions, func(x *region) string { return x.ID })
	sorted(d.Pools, func(x *pool) string { return x.ID })
	sorted(d.Demands, func(x *demand) string { return x.ID })
	sorted(d.Offers, func(x *offer) string { return x.ID })
	sorted(d.Commitments, func(x *commitment) string { return x.ID })
	sorted(d.Quotas, func(x *quota) string { return x.ID })
	sorted(d.Budgets, func(x *budget) string { return x.ID })
	sorted(d.Scenarios, func(x *scenario) string { return x.ID })
	return d, nil
}

// strict reads a document, and refuses keys that are not known. It reads one demand at a time: their
// hours are most of the text, and a decoder copies what it reads at once.
func strict(text []byte, d *document) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errors.New("it is no object"))
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		if key == "demands" {
			if t, err := dec.Token(); err != nil || t != json.Delim('[') {
				return cmp.Or(err, errors.New("demands are a list"))
			}
			for dec.More() {
				var x demand
				if err := dec.Decode(&x); err != nil {
					return err
				}
				d.Demands = append(d.Demands, x)
			}
			if _, err := dec.Token(); err != nil {
				return err
			}
			continue
		}
		member := map[string]json.RawMessage{}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		member[fmt.Sprint(key)] = value
		one, err := json.Marshal(member)
		if err != nil {
			return err
		}
		of := json.NewDecoder(bytes.NewReader(one))
		of.DisallowUnknownFields()
		if err := of.Decode(d); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

func sorted[T any](list []T, id func(*T) string) {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(id(&a), id(&b)) })
}

// answer is an answer, as schemas/instance/answer-v1.schema.json describes it. Keys that are not
// verified here are not listed.
type answer struct {
	Format     string         `json:"format"`
	Currency   string         `json:"currency"`
	Purchases  []purchase     `json:"purchases"`
	Cost       domain.Decimal `json:"cost"`
	Committed  domain.Decimal `json:"committed_cost"`
	Bought     domain.Decimal `json:"purchase_cost"`
	Serving    domain.Decimal `json:"serving_cost"`
	Penalty    domain.Decimal `json:"shortage_penalty"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Nominal    domain.Decimal `json:"nominal_cost"`
	CVaR       domain.Decimal `json:"cvar_90"`
	Recourse   []recourse     `json:"recourse"`
	Calendar   []struct {
		Month         string
		Cash, Accrual domain.Decimal
	} `json:"calendar"`
	Scenarios []struct {
		Scenario string
		Weight   int
		Cost     domain.Decimal
		Unserved domain.Decimal `json:"unserved_unit_hours"`
	} `json:"scenarios"`
	EndOfHorizon []struct {
		Salvage, Cost domain.Decimal
	} `json:"end_of_horizon"`
	Proof []Certificate `json:"certificate"`
}

type purchase struct {
	Offer      string          `json:"offer"`
	Commitment string          `json:"commitment"`
	Renewals   int             `json:"renewals"`
	Epoch      int             `json:"epoch"`
	Units      int             `json:"units"`
	Pool       string          `json:"pool"`
	Term       domain.Interval `json:"term"`
	OrderBy    domain.Instant  `json:"order_by"`
	Covers     int             `json:"covers_units"`
	Tier       int             `json:"tier"`
	Cost       domain.Decimal  `json:"cost"`
	Upfront    domain.Decimal  `json:"upfront"`
	Hourly     domain.Decimal  `json:"hourly"`
}

type recourse struct {
	Epoch    int         `json:"epoch"`
	Scenario string      `json:"scenario"`
	Pools    []poolHours `json:"pools"`
}

type poolHours struct {
	Pool            string         `json:"pool"`
	Demand          domain.Decimal `json:"demand"`
	Spare           domain.Decimal `json:"spare"`
	Guaranteed      domain.Decimal `json:"guaranteed"`
	DiscountOnly    domain.Decimal `json:"discount_only"`
	Spot            domain.Decimal `json:"spot"`
	OnDemand        domain.Decimal `json:"on_demand"`
	OverflowIn      domain.Decimal `json:"overflow_in"`
	OverflowOut     domain.Decimal `json:"overflow_out"`
	Shortage        domain.Decimal `json:"shortage"`
	UnusedCommitted domain.Decimal `json:"unused_committed"`
	SpendCommitted  domain.Decimal `json:"spend_committed"`
}

// Certificate is what an answer gives to prove the cost and the bound of a group of pools.
type Certificate struct {
	Pools    []string        `json:"pools"`
	Solver   string          `json:"solver"`
	Cost     json.Number     `json:"cost_units"`
	Bound    json.Number     `json:"bound_units"`
	Digits   int32           `json:"digits"`
	Weight   int             `json:"weight"`
	Solution json.RawMessage `json:"solution"`
}
