package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// ContractsCompared is how a file of Contract Commitment differs from the commitments in the log.
type ContractsCompared struct {
	Compared    int                  `json:"compared"` // commitments that both have
	Same        int                  `json:"same"`     // of them, without a difference
	Differences []ContractDifference `json:"differences"`
}

// ContractDifference is a column of Contract Commitment in which the file and the log differ. Of a
// commitment that only one of them has, the column is ContractCommitmentId, and the other is empty.
type ContractDifference struct {
	Line       int    `json:"line,omitempty"` // of the file
	Commitment string `json:"commitment"`
	Column     string `json:"column"`
	File       string `json:"file"`
	Log        string `json:"log"`
}

// compareContracts compares the rows of a file with the commitments in the log.
func (h *Conn) compareContracts(ctx context.Context, rows []focus.Contract) (*ContractsCompared, error) {
	var ans *ContractsCompared
	err := h.View(ctx, func(v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		known, err := planning.Commitments(v, auth)
		if err != nil {
			return err
		}
		ans = contractsBeside(rows, known, Now())
		return nil
	})
	return ans, err
}

// contractsBeside compares rows with commitments at a time. Differences are in the order of the rows,
// then of the ids of the commitments that the file lacks: those of a provider of the file that are not
// over.
func contractsBeside(rows []focus.Contract, known map[string]planning.CommitmentEntry, now domain.Instant) *ContractsCompared {
	ans := &ContractsCompared{Differences: []ContractDifference{}}
	providers, named := map[string]bool{}, map[string]bool{}
	for i := range rows {
		r := &rows[i]
		providers[strings.ToLower(r.Provider)], providers[strings.ToLower(r.Issuer)] = true, true
		named[r.ID] = true
		e, ok := known[r.ID]
		if !ok {
			ans.Differences = append(ans.Differences, ContractDifference{Line: r.Line, Commitment: r.ID, Column: "ContractCommitmentId", File: r.ID})
			continue
		}
		before := len(ans.Differences)
		ans.Compared++
		ans.compare(r, &e, now)
		if len(ans.Differences) == before {
			ans.Same++
		}
	}
	delete(providers, "")
	for _, id := range slices.Sorted(maps.Keys(known)) {
		e := known[id]
		if over := len(e.Terms) == 0 || e.End() <= now; !over && !named[id] && providers[strings.ToLower(e.Market.Provider)] {
			ans.Differences = append(ans.Differences, ContractDifference{Commitment: id, Column: "ContractCommitmentId", Log: id})
		}
	}
	return ans
}

// compare adds the differences of a row that the log can tell.
func (c *ContractsCompared) compare(r *focus.Contract, e *planning.CommitmentEntry, now domain.Instant) {
	differ := func(column, file, log string) {
		if file != log {
			c.Differences = append(c.Differences, ContractDifference{Line: r.Line, Commitment: r.ID, Column: column, File: file, Log: log})
		}
	}
	if e.Contract != "" {
		differ("ContractId", r.ContractID, e.Contract)
	}
	category := "Usage"
	if e.SpendPerHour.Valid {
		category = "Spend"
	}
	differ("ContractCommitmentCategory", r.Category, category)
	t := termOf(e, r.Term)
	if t == nil {
		differ("ContractCommitmentPeriodStart", r.Term.From.String(), "")
		return
	}
	differ("ContractCommitmentPeriodStart", r.Term.From.String(), t.Term.From.String())
	differ("ContractCommitmentPeriodEnd", r.Term.To.String(), t.Term.To.String())
	currency := cmp.Or(t.Hourly.Currency, t.Upfront.Currency)
	if r.Currency != "" && currency != "" {
		differ("BillingCurrency", r.Currency, currency)
	}
	total := registry.Committed(&domain.CommitmentPurchased{
		Term: t.Term, Units: t.Units, Upfront: t.Upfront, Hourly: t.Hourly, SpendPerHour: e.SpendPerHour,
	})
	if r.Cost.Valid && len(total) == 1 && (r.Currency == "" || r.Currency == total[0].Currency) && !r.Cost.Decimal.Equal(total[0].Amount) {
		differ("ContractCommitmentCost", r.Cost.Decimal.String(), total[0].Amount.String())
	}
	if r.PaymentModel != "" && !e.SpendPerHour.Valid {
		model := "No Upfront"
		switch {
		case t.Upfront.Amount.Sign() > 0 && t.Hourly.Amount.Sign() > 0:
			model = "Partial Upfront"
		case t.Upfront.Amount.Sign() > 0:
			model = "All Upfront"
		}
		differ("ContractCommitmentPaymentModel", r.PaymentModel, model)
	}
	switch r.Lifecycle {
	case "Expired", "Canceled", "Superseded":
		if t.Term.From <= now && now < t.Term.To {
			differ("ContractCommitmentLifecycleStatus", r.Lifecycle, "Active")
		}
	case "Proposed", "Active", "Exhausted":
		if t.Term.To <= now {
			differ("ContractCommitmentLifecycleStatus", r.Lifecycle, "Expired")
		} else if r.Lifecycle == "Proposed" {
			differ("ContractCommitmentLifecycleStatus", r.Lifecycle, "Active")
		}
	}
}

// termOf returns the term that begins when a row says, else the one that has most of the row's time;
// nil if none has any.
func termOf(e *planning.CommitmentEntry, row domain.Interval) (best *planning.CommitmentTerm) {
	most := domain.Instant(0)
	for i := range e.Terms {
		t := &e.Terms[i]
		if t.Term.From == row.From {
			return t
		}
		if common := t.Term.Intersect(row).Length(); common > most {
			best, most = t, common
		}
	}
	return best
}
