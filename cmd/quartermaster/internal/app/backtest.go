package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/projections"
	"quartermaster/simulations/backtest"
)

// Backtested is what the alternatives would have cost in the past.
type Backtested struct {
	*backtest.Result
	Excluded []backtest.Excluded `json:"excluded"`
}

// monthStart returns the start of the month of at, plus later months.
func monthStart(at domain.Instant, later int) domain.Instant {
	t := at.DayStart().Time()
	return domain.InstantOf(t.AddDate(0, later, 1-t.Day()))
}

// fromFile reads the pools of a test from files. The notes list what the files leave out.
func (q *BacktestQuery) fromFile(ctx context.Context, s *App) (left []backtest.Excluded, notes []string, err error) {
	histories, absent, err := s.readDemand(ctx, &q.DemandQuery)
	if err != nil {
		return nil, nil, err
	}
	hours := 0
	for _, h := range histories {
		hours += absent[fileKey{h.Region, h.Kind, h.Unit}].hours
	}
	if hours > 0 && q.Group == "kind" {
		notes = append(notes, fmt.Sprintf("in %s hours of pools the file has no row of them while their region has others: those are taken for hours without demand", comma(hours)))
	}
	begin := histories[0].From
	end := begin + domain.Instant(len(histories[0].Milli))*domain.Hour
	if q.From == 0 {
		q.From = monthStart(begin+domain.Day*27, 6)
		if begin == monthStart(begin, 0) {
			q.From = monthStart(begin, 6)
		}
	}
	q.To = cmp.Or(q.To, monthStart(end, 0))
	months, err := backtest.Months(q.From, q.To)
	if err != nil {
		return nil, nil, fmt.Errorf("backtest of demand from %s to %s: %w", begin, end, err)
	}
	if q.From < begin || q.To > end {
		return nil, nil, fmt.Errorf("backtest from %s to %s: the file has demand from %s to %s", q.From, q.To, begin, end)
	}
	for i := range histories {
		h := &histories[i]
		p := backtest.Pool{
			Region: h.Region, Kind: h.Kind, Unit: h.Unit, From: h.From, Milli: h.Milli,
			Markets: slices.Repeat([]backtest.Market{backtest.Generated()}, len(months)),
		}
		if q.Group == "region" {
			if n := len(q.Pools); n > 0 && q.Pools[n-1].Region == h.Region {
				addDemand(q.Pools[n-1].Milli, h.Milli)
				continue
			}
			p.Kind, p.Family = "all", true
		}
		q.Pools = append(q.Pools, p)
	}
	if q.Prices == "" {
		return []backtest.Excluded{}, notes, nil
	}
	offers, err := s.readPrices(ctx, q.Prices)
	if err != nil {
		return nil, nil, err
	}
	q.Pools, left, err = backtest.Priced(q.Pools, months, offers, q.Currency, q.Overhead)
	return left, notes, err
}

// addDemand adds demand hour by hour. An hour that is unknown in either is unknown in the sum.
func addDemand(to, more []int64) {
	for h := range to {
		if to[h] < 0 || more[h] < 0 {
			to[h] = -1
		} else {
			to[h] += more[h]
		}
	}
}

// readPrices reads a list of offers. One bad row refuses the whole file.
func (s *App) readPrices(ctx context.Context, path string) ([]domain.OfferQuoted, error) {
	f, err := s.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	defer f.Close()
	var offers []domain.OfferQuoted
	var bad rowsError
	_, err = importer.Run(ctx, importer.Prices, f, path, importer.Options{}, func(env *domain.Envelope) error {
		if o, ok := env.Event.(*domain.OfferQuoted); ok {
			offers = append(offers, *o)
		}
		return nil
	}, func(b tabular.BadRow) {
		if len(bad) < 5 {
			bad = append(bad, b)
		}
	})
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("read prices: the file has bad rows: %w", bad)
	}
	return offers, err
}

// fromLog reads the pools of a test from the log.
func (q *BacktestQuery) fromLog(ctx context.Context, h *Conn) (left []backtest.Excluded, err error) {
	if q.To == 0 {
		at, err := h.now(ctx)
		if err != nil {
			return nil, err
		}
		q.To = monthStart(at, 0)
	}
	q.From = cmp.Or(q.From, monthStart(q.To, -12))
	if q.Group == "region" {
		return nil, invalid("group", "region needs demand from a file: in the log, each kind has its own prices")
	}
	err = h.View(ctx, func(v projections.View) error {
		if err := (narrowed{region: q.Region}).known(v); err != nil {
			return err
		}
		l := backtest.Log{From: q.From, To: q.To, Region: q.Region, Currency: q.Currency, Overhead: q.Overhead}
		var err error
		q.Pools, left, err = l.Pools(v)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.Pools = slices.DeleteFunc(q.Pools, func(p backtest.Pool) bool { return q.Kind != "" && p.Kind != q.Kind })
	left = slices.DeleteFunc(left, func(l backtest.Excluded) bool { return q.Kind != "" && l.Kind != q.Kind })
	if len(q.Pools)+len(left) == 0 {
		return nil, &ConflictError{Err: fmt.Errorf("backtest from %s to %s: no demand%s was observed; import some with \"quartermaster import demand\"",
			q.From, q.To, &q.DemandQuery)}
	}
	return left, nil
}

// BacktestQuery asks what following the plans would have saved in the past.
type BacktestQuery struct {
	*backtest.Question // without its pools; From and To 0: the default period
	DemandQuery
	Prices    string         // file of offers, with a file of demand; "": generated list for a file
	Group     string         // kind: one pool per kind; region: all kinds of a region together
	Overhead  domain.Decimal // share of spot time lost to interruptions
	SpotShare domain.Decimal // of demand that may run on spot, 0 to 1
	Quota     int            // on-demand units of a pool; -1: from the log, unlimited for a file
}

// Backtest goes back to the start of each month of a period, plans with what was known then, and
// computes the cost of serving the demand that came.
func (c *Caller) Backtest(ctx context.Context, q *BacktestQuery) (*Backtested, error) {
	switch {
	case q.Horizon < 1 || q.Horizon > backtest.MaxMonths:
		return nil, invalid("months", "%d: want 1 to %d", q.Horizon, backtest.MaxMonths)
	case q.Scenarios < 1 || q.Scenarios > backtest.MaxScenarios:
		return nil, invalid("scenarios", "%d: want 1 to %d", q.Scenarios, backtest.MaxScenarios)
	case q.Quota < -1 || q.Quota > procurement.MaxUnits:
		return nil, invalid("quota", "%d: want 0 to %d, or -1", q.Quota, procurement.MaxUnits)
	case q.Overhead.IsNegative() || q.Overhead.GreaterThanOrEqual(decimal.NewFromInt(1)):
		return nil, invalid("spot-overhead", "%s: want 0 or more, and less than 1", q.Overhead)
	}
	left, notes := []backtest.Excluded{}, []string(nil)
	var err error
	if q.File != "" {
		left, notes, err = q.fromFile(ctx, c.app)
		err = ofFile(ctx, err)
	} else {
		var h *Conn
		if h, err = c.conn(ctx, Reading); err == nil {
			left, err = q.fromLog(ctx, h)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(q.Pools) == 0 {
		return nil, &ConflictError{Err: fmt.Errorf("backtest: no pool can be tested; the first, %s %s: %s", left[0].Region, left[0].Kind, left[0].Reason)}
	}
	for i := range q.Pools {
		p := &q.Pools[i]
		p.SpotPermille = int(q.SpotShare.Shift(3).IntPart())
		if q.Quota >= 0 {
			p.Markets = slices.Clone(p.Markets)
			for m := range p.Markets {
				p.Markets[m].Quota = q.Quota
			}
		}
	}
	// The progress bar counts the hours that decisions are about, because they take the time.
	bar := c.app.track(Work{Name: "backtest", Total: int64(q.Decisions()) * domain.MonthHours, Unit: "hours"})
	q.Progress = func(done int) { bar.Set(int64(done) * domain.MonthHours) }
	r, err := backtest.Run(ctx, q.Question)
	bar.Stop()
	if err != nil {
		return nil, fmt.Errorf("backtest: %w", err)
	}
	if q.File != "" && q.Prices == "" {
		r.Notes = append(r.Notes, "the price list is generated: on-demand at 1 an hour, commitments of one year at 0.644 and of three years at 0.445 of that, which are AWS's published shares for g5.48xlarge in cn-north-1")
	}
	r.Notes = append(r.Notes, notes...)
	return &Backtested{r, left}, nil
}
