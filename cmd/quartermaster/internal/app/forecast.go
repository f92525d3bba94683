package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/projections"
	"quartermaster/projections/demand"
)

// DemandQuery selects hourly demand and its source.
type DemandQuery struct {
	File   string // in the columns of "import demand"; "": the log
	Zone   string // time zone of times in the file without one
	Region string // "": all
	Kind   string // GPU model or machine type; "": all
}

func (q *DemandQuery) wants(p *demand.History) bool {
	return (q.Region == "" || p.Region == q.Region) && (q.Kind == "" || p.Kind == q.Kind)
}

// wanted keeps the pools that were asked for.
func (q *DemandQuery) wanted(pools []demand.History) ([]demand.History, error) {
	pools = slices.DeleteFunc(pools, func(p demand.History) bool { return !q.wants(&p) })
	if len(pools) == 0 {
		if q.File != "" {
			return nil, fmt.Errorf("no demand%s was observed in %s", q, q.File)
		}
		return nil, &helped{&ConflictError{Err: fmt.Errorf("no demand%s was observed in the log", q)}, RemedyImportDemand}
	}
	return pools, nil
}

// String describes the query, for example " in region north of kind A100".
func (q *DemandQuery) String() string {
	s := inRegion(q.Region)
	if q.Kind != "" {
		s += " of kind " + q.Kind
	}
	return s
}

// demandLimit is the most hours that a file may span: 20 years.
const demandLimit = 20 * 366 * 24

// fileKey identifies a pool of a file.
type fileKey struct{ region, kind, unit string }

// absence is the number of hours without a row of a kind while its region has others, and the end
// of its last row.
type absence struct {
	hours int
	last  domain.Instant
}

// readDemand reads a file of hourly demand, by region and kind. A kind without a row in an hour
// in which its region has others had no demand then, because files omit such rows; the number of
// such hours is returned. An hour without any row of a region was not observed there. One bad row
// refuses the file.
func (s *App) readDemand(ctx context.Context, q *DemandQuery) ([]demand.History, map[fileKey]absence, error) {
	f, err := s.OpenFile(q.File)
	if err != nil {
		return nil, nil, fmt.Errorf("read demand: %w", err)
	}
	defer f.Close()
	type value struct {
		at    domain.Instant
		milli int64
	}
	series := map[fileKey][]value{}
	var first, last domain.Instant
	var bad rowsError
	_, err = importer.Run(ctx, importer.Demand, f, q.File, importer.Options{Cluster: "file", Zone: q.Zone}, func(env *domain.Envelope) error {
		d := env.Event.(*domain.DemandObserved)
		k := fileKey{cmp.Or(d.Region, d.Pool), cmp.Or(d.Model, d.Pool), d.Unit}
		at := d.Interval.From
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
		if (last-first)/domain.Hour > demandLimit {
			return fmt.Errorf("hours from %s to %s: a file may span %d years", first, last, demandLimit/366/24)
		}
		milli := d.RunningMilli + d.PendingMilli
		if milli > forecast.MaxMilli {
			return fmt.Errorf("demand of %d thousandths at %s is more than %d", milli, at, int64(forecast.MaxMilli))
		}
		series[k] = append(series[k], value{at, int64(milli)})
		return nil
	}, func(b tabular.BadRow) {
		if len(bad) < 5 {
			bad = append(bad, b)
		}
	})
	switch {
	case err != nil:
		return nil, nil, err
	case len(bad) > 0:
		return nil, nil, fmt.Errorf("read demand: %w\nthe file has bad rows; correct them, because missing hours would count as hours without demand", bad)
	case len(series) == 0:
		return nil, nil, fmt.Errorf("read demand %s: there is no row in it", q.File)
	}
	hours := int((last-first)/domain.Hour) + 1
	observed := map[string][]bool{}
	pools := []demand.History{}
	absent, rows := map[fileKey]absence{}, map[fileKey][]bool{}
	for k, values := range series {
		p := demand.History{Region: k.region, Kind: k.kind, Unit: k.unit, From: first, Milli: make([]int64, hours)}
		if observed[k.region] == nil {
			observed[k.region] = make([]bool, hours)
		}
		rows[k] = make([]bool, hours)
		for _, v := range values {
			h := int((v.at - first) / domain.Hour)
			p.Milli[h] += v.milli
			observed[k.region][h], rows[k][h] = true, true
		}
		pools = append(pools, p)
	}
	for i := range pools {
		k := fileKey{pools[i].Region, pools[i].Kind, pools[i].Unit}
		a := absence{}
		for h, ok := range observed[k.region] {
			switch {
			case rows[k][h]:
				a.last = first + domain.Instant(h+1)*domain.Hour
			case ok:
				a.hours++
			default:
				pools[i].Milli[h] = -1
			}
		}
		absent[k] = a
	}
	slices.SortFunc(pools, func(a, b demand.History) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Unit, b.Unit))
	})
	pools, err = q.wanted(pools)
	return pools, absent, err
}

// Forecasts is the answer of forecast: pools, their sums if asked for, and the accuracy of such forecasts
// by region and in total.
type Forecasts struct {
	Pools   []PoolForecast  `json:"pools"`
	Sums    []SumForecast   `json:"sums,omitempty"`
	Regions []RegionScore   `json:"regions"`
	All     *forecast.Score `json:"all"`
}

// RegionScore is the accuracy of the forecasts of a region.
type RegionScore struct {
	Region string          `json:"region"`
	Score  *forecast.Score `json:"score"`
}

// SumForecast is the forecast of several pools of the answer together. Its expected demand is exactly the
// sum of theirs.
type SumForecast struct {
	// Level is "family" for machines of one region that replace each other first, "region", or "total" for
	// all regions. A sum of one pool is left out, and so is a family that is the whole region.
	Level  string   `json:"level"`
	Region string   `json:"region,omitempty"` // none of the total
	Family string   `json:"family,omitempty"` // of a family alone
	Unit   string   `json:"unit"`
	Pools  int      `json:"pools"` // that are in the sum
	Kinds  []string `json:"kinds"` // of these
	// Without are pools without a forecast, which are not in the sum, as "region kind".
	Without  []string           `json:"without"`
	Forecast *forecast.Forecast `json:"forecast,omitempty"`
	// Score is the accuracy of the same sum forecast in the past.
	Score *forecast.Score `json:"score"`

	of []int // the pools that were read
}

// PoolForecast is the forecast of a pool.
type PoolForecast struct {
	Region   string             `json:"region"`
	Kind     string             `json:"kind"`
	Unit     string             `json:"unit"`
	Forecast *forecast.Forecast `json:"forecast,omitempty"`
	// Known are known changes of demand, besides what was observed.
	Known []forecast.Change `json:"known"`
	Why   string            `json:"why_none,omitempty"`
	// Notes say what of its demand was not observed, and what was assumed instead.
	Notes []string `json:"notes"`
	// Score is the accuracy of the same forecast made in the past.
	Score *forecast.Score `json:"score"`

	// History is the demand that the forecast was learned from, by hour in thousandths of a unit,
	// -1 where none was observed.
	History []int64 `json:"-"`
}

// MaxOrigins bounds the number of past forecasts that are scored.
const MaxOrigins = 52

// asked is a pool whose forecast is asked for. A time of 0 means the end of its history. Changes in the log
// count as far as observed demand supports them, changes given by flags count fully.
func asked(p *demand.History, at domain.Instant, weeks int, logged, known []forecast.Change) (PoolForecast, *forecast.Question) {
	out := PoolForecast{Region: p.Region, Kind: p.Kind, Unit: p.Unit, Notes: []string{}, History: p.Milli}
	if n := int((at - p.From) / domain.Hour); at != 0 {
		// Hours after the end of a file were not observed.
		more := min(max(0, n-len(p.Milli)), demandLimit)
		out.History = slices.Concat(p.Milli, slices.Repeat([]int64{-1}, more))
		out.History = out.History[:min(max(0, n), len(out.History))]
	}
	out.Known = slices.Concat([]forecast.Change{}, forecast.Shifts(p.From, out.History, logged), known)
	return out, &forecast.Question{From: p.From, History: out.History, Changes: out.Known, Weeks: weeks,
		Family: domain.Family(p.Kind)}
}

// answer takes the forecast of a pool, or the reason why there is none, with its score.
func (f *PoolForecast) answer(p *demand.History, made *forecast.Forecast, why error, score *forecast.Score) {
	f.Forecast, f.Score = made, score
	if why != nil {
		f.Why, f.Score = why.Error(), &forecast.Score{}
		return
	}
	if lag := (made.From - made.ObservedTo) / domain.Hour; lag > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("last observed at %s, %s hours before the forecast begins: if demand stopped then, this does not know it", made.ObservedTo, comma(int(lag))))
	}
	for _, e := range p.Ended {
		if e.At <= made.From {
			f.Notes = append(f.Notes, fmt.Sprintf("%s said nothing for eight weeks or more, and is taken to have ended at %s", e.Source, e.At))
		}
	}
}

// ForecastQuery asks for demand of the next weeks by the hour.
type ForecastQuery struct {
	DemandQuery
	At      domain.Instant // start of the forecast; 0: now, or the end of the file
	Weeks   int            // horizon, 1 to 13
	Origins int            // past forecasts to score, 0 to [MaxOrigins]
	Sums    bool           // forecast sums of the pools, too
	Known   []forecast.Change
}

// Forecast returns the expected demand of each pool, hour by hour, with prediction intervals and
// the accuracy of such forecasts in the past.
func (c *Caller) Forecast(ctx context.Context, at At, q ForecastQuery) (*Forecasts, error) {
	switch {
	case q.Origins < 0 || q.Origins > MaxOrigins:
		return nil, invalid("score", "%d: want 0 to %d", q.Origins, MaxOrigins)
	case q.Weeks < 1 || q.Weeks > forecast.MaxHorizon:
		return nil, invalid("weeks", "%d: want 1 to %d; growth beyond that is what scenarios say", q.Weeks, forecast.MaxHorizon)
	}
	if q.File != "" {
		all := q.DemandQuery
		all.Kind = ""
		pools, absent, err := c.app.readDemand(ctx, &all)
		if err != nil {
			return nil, ofFile(ctx, err)
		}
		ans, err := q.forecasts(pools, nil, absent)
		return ans, ofFile(ctx, err)
	}
	var pools []demand.History
	var declared [][]demand.Change
	var unplaced []string
	err := c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) (err error) {
		q.At = about.HourStart()
		if err := (narrowed{region: q.Region}).known(v); err != nil {
			return err
		}
		from := q.At - domain.Instant(forecast.Window+1+q.Origins*q.Weeks)*forecast.Week*domain.Hour
		if pools, err = demand.Histories(v, from, q.At, demand.Filter{Region: q.Region}); err != nil {
			return err
		}
		declared, unplaced, err = demand.Changes(v, pools, q.At+domain.Instant(q.Weeks*forecast.Week)*domain.Hour, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, u := range unplaced {
		c.app.tell("not counted: %s", u)
	}
	return q.forecasts(pools, declared, nil)
}

// forecasts forecasts the pools that are asked for, and sums up the accuracy. As in a plan, the pools of a
// region that count in one unit are forecast together, so it needs all of them.
func (q *ForecastQuery) forecasts(pools []demand.History, declared [][]demand.Change, absent map[fileKey]absence) (*Forecasts, error) {
	if _, err := q.wanted(slices.Clone(pools)); err != nil {
		return nil, err
	}
	ans := &Forecasts{Pools: []PoolForecast{}, Regions: []RegionScore{}, All: &forecast.Score{}}
	answers := make([]PoolForecast, len(pools))
	var wholes [][]*forecast.Question
	at := map[int]int{} // places of pools among all parts of wholes
	for _, of := range q.wholes(pools) {
		parts := make([]*forecast.Question, len(of))
		for n, i := range of {
			var logged []forecast.Change
			if declared != nil {
				logged = pools[i].Knows(declared[i])
			}
			answers[i], parts[n] = asked(&pools[i], q.At, q.Weeks, logged, q.Known)
			at[i] = len(at)
		}
		wholes = append(wholes, parts)
	}
	var sums [][]int
	if q.Sums {
		ans.Sums = q.sums(pools)
		for n := range ans.Sums {
			var members []int
			for _, i := range ans.Sums[n].of {
				members = append(members, at[i])
			}
			sums = append(sums, members)
		}
	}
	var made []*forecast.Forecast
	var errs []error
	for _, parts := range wholes {
		m, e := forecast.Together(parts)
		made, errs = append(made, m...), append(errs, e...)
	}
	scores, scoresOfSums := forecast.Assess(wholes, q.Origins, sums)
	for i := range pools {
		if n, ok := at[i]; ok {
			answers[i].answer(&pools[i], made[n], errs[n], scores[n])
		}
	}
	for n := range ans.Sums {
		s := &ans.Sums[n]
		s.add(pools, answers)
		s.Score = scoresOfSums[n]
	}
	for i := range pools {
		p, f := &pools[i], answers[i]
		if !q.wants(p) {
			continue
		}
		if x := absent[fileKey{p.Region, p.Kind, p.Unit}]; x.hours > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("the file has no row of it in %s hours in which its region has others, which are taken for hours without demand; its last row ends at %s", comma(x.hours), x.last))
		}
		ans.Pools = append(ans.Pools, f)
		ans.All.Merge(f.Score)
		k := slices.IndexFunc(ans.Regions, func(r RegionScore) bool { return r.Region == f.Region })
		if k < 0 {
			k = len(ans.Regions)
			ans.Regions = append(ans.Regions, RegionScore{f.Region, &forecast.Score{}})
		}
		ans.Regions[k].Score.Merge(f.Score)
	}
	return ans, nil
}

// wholes are the pools that are forecast together, for those that are asked for, in the order of pools,
// which are sorted by region.
func (q *ForecastQuery) wholes(pools []demand.History) (out [][]int) {
	type whole struct{ region, unit string }
	at, wanted := map[whole]int{}, map[int]bool{}
	for i := range pools {
		w := whole{pools[i].Region, pools[i].Unit}
		n, ok := at[w]
		if !ok {
			n, at[w], out = len(out), len(out), append(out, nil)
		}
		out[n] = append(out[n], i)
		wanted[n] = wanted[n] || q.wants(&pools[i])
	}
	kept := out[:0]
	for n, of := range out {
		if wanted[n] {
			kept = append(kept, of)
		}
	}
	return kept
}

// sums are those of the pools that are asked for: families and regions, then the totals.
func (q *ForecastQuery) sums(pools []demand.History) []SumForecast {
	out, totals := []SumForecast{}, []SumForecast{}
	for _, of := range q.wholes(pools) {
		of = slices.DeleteFunc(slices.Clone(of), func(i int) bool { return !q.wants(&pools[i]) })
		p := &pools[of[0]]
		families := []SumForecast{}
		for _, i := range of {
			name := domain.Family(pools[i].Kind)
			n := slices.IndexFunc(families, func(s SumForecast) bool { return s.Family == name })
			if n < 0 {
				n, families = len(families), append(families, SumForecast{Level: "family", Region: p.Region, Family: name, Unit: p.Unit})
			}
			families[n].of = append(families[n].of, i)
		}
		for _, f := range families {
			if len(f.of) > 1 && len(families) > 1 {
				out = append(out, f)
			}
		}
		if len(of) > 1 {
			out = append(out, SumForecast{Level: "region", Region: p.Region, Unit: p.Unit, of: of})
		}
		n := slices.IndexFunc(totals, func(s SumForecast) bool { return s.Unit == p.Unit })
		if n < 0 {
			n, totals = len(totals), append(totals, SumForecast{Level: "total", Unit: p.Unit})
		}
		totals[n].of = append(totals[n].of, of...)
	}
	for _, t := range totals {
		if pools[t.of[0]].Region != pools[t.of[len(t.of)-1]].Region {
			out = append(out, t)
		}
	}
	return out
}

// add adds up the forecasts of the pools of a sum.
func (s *SumForecast) add(pools []demand.History, answers []PoolForecast) {
	s.Kinds, s.Without = []string{}, []string{}
	var with []*forecast.Forecast
	for _, i := range s.of {
		if f := answers[i].Forecast; f != nil {
			with = append(with, f)
			s.Kinds = append(s.Kinds, pools[i].Kind)
		} else {
			s.Without = append(s.Without, pools[i].Region+" "+pools[i].Kind)
		}
	}
	slices.Sort(s.Kinds)
	s.Kinds = slices.Compact(s.Kinds)
	s.Pools, s.Forecast = len(with), forecast.Sum(with)
}
