package cli

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/chart"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

// demandFlags are the flags of a question about demand.
func demandFlags(cmd *cobra.Command, q *app.DemandQuery) {
	f := cmd.Flags()
	f.StringVar(&q.File, "demand", "", "read demand from this file instead of the log, with the columns of \"import demand\"")
	f.StringVar(&q.Zone, "zone", "UTC", "time zone of times in the file without one")
	f.StringVar(&q.Region, "region", "", "only this region")
	f.StringVar(&q.Kind, "kind", "", "only this GPU model or machine type")
}

func (a *Program) planForecastCommand() *cobra.Command {
	var (
		q                app.ForecastQuery
		when, file, asOf string
		launches, ignore []string
	)
	cmd := &cobra.Command{
		Use:   "forecast",
		Short: "Forecast hourly demand for the next weeks, with prediction intervals",
		Long: `Forecast predicts the hourly demand of each pool as quantiles. It learns from at most 104 weeks of
history, and uses the model with the smallest error in forecasts of past weeks. Prediction
intervals come from these errors (conformal prediction): about nine of ten hours are at or below
the 90% quantile. Growth beyond 13 weeks is up to you; see "quartermaster plan backtest" and
scenarios.

The pools of a region that count in one unit add up to a forecast of the region, and those of a
family to one of the family: each is scaled by its share, as in plans. So work that moves from one
machine type to another does not change the sum. A family is one GPU model in several memory sizes
and forms (H100), or one generation of instance types (p5), as names say. --sums also shows families,
regions and the total of all regions: what the pools are expected to use is added up exactly, and
the intervals are those of the sum. The total is a sum only, and no pool is scaled to it.

Known changes are used. A deployment that begins, ends, grows or shrinks within the forecast weeks
changes demand from that time. An earlier change that shows in the observed demand counts as a
change of level, not as a trend. Maintenance of whole clusters, times in which at least half of a
pool's machines were down, and the times of --ignore are excluded from learning. --launch adds a
change at a given time.

Accuracy is measured on the past. Forecast makes --score forecasts as of past times, spaced by
their horizon, from what was observed before them, and compares them with actual demand:
  MASE      mean absolute error, relative to the error of repeating the previous week in the
            history known then; also shown for repeating the last week (seasonal naive)
  pinball   mean loss of a quantile, in units
  coverage  share of hours that were not above a quantile
If several quantiles share the value of an hour, for example zero forecast and zero demand, the
hour counts in part for each (randomized probability integral transform). Otherwise idle pools
would inflate coverage.

Hours that were not observed do not count as zero demand. The answer names the longest gaps and
fills them from other weeks. A pool last observed more than eight weeks before is not forecast. In
a file, if a kind has no row in an hour in which its region has other rows, its demand is zero, and
the answer counts such hours.`,
		Example: "  quartermaster plan forecast --at 2026-06-01 --region us-east-1\n" +
			"  quartermaster plan forecast --region us-east-1 --kind 'NVIDIA H100' --weeks 8 --launch 2026-07-01=+16 --chart h100.svg\n" +
			"  quartermaster plan forecast --demand demand.csv.gz --ignore 2026-05-03/2026-05-04 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkChart(file); err != nil {
				return err
			}
			var err error
			if q.Known, err = knownChanges(launches, ignore); err != nil {
				return err
			}
			if when != "" {
				if q.At, err = domain.ParseTime(when); err != nil {
					return commandline.Usagef("--at: %w", err)
				}
			}
			ans, err := a.caller().Forecast(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			return a.showForecasts(ans, file)
		},
	}
	demandFlags(cmd, &q.DemandQuery)
	f := cmd.Flags()
	f.IntVar(&q.Weeks, "weeks", 4, "horizon in weeks, 1 to 13")
	f.IntVar(&q.Origins, "score", 6, fmt.Sprintf("number of past forecasts to score, 0 to %d", app.MaxOrigins))
	f.BoolVar(&q.Sums, "sums", false, "also forecast families, regions and the total of the pools shown")
	f.StringVar(&when, "at", "", "forecast from this time, with the demand observed before it (default now; with a file, its end)")
	f.StringArrayVar(&launches, "launch", nil, "a known change of demand as TIME=UNITS, for example 2026-07-01=+16 or 2026-08-01=-4; repeatable")
	f.StringArrayVar(&ignore, "ignore", nil, "a time to exclude from learning, as FROM/TO, for example 2026-05-03/2026-05-04; repeatable")
	f.StringVar(&file, "chart", "", chartFlag)
	asOfFlag(cmd, &asOf)
	return cmd
}

// knownChanges reads known changes of demand from flags.
func knownChanges(launches, ignore []string) ([]forecast.Change, error) {
	out := []forecast.Change{}
	for _, text := range launches {
		when, units, ok := strings.Cut(text, "=")
		if !ok {
			return nil, commandline.Usagef("--launch %q: want TIME=UNITS, for example 2026-07-01=+16", text)
		}
		at, err := domain.ParseTime(when)
		if err != nil {
			return nil, commandline.Usagef("--launch %q: %w", text, err)
		}
		d, err := decimal.NewFromString(strings.TrimPrefix(units, "+"))
		if err != nil || len(units) > 20 || d.Abs().GreaterThan(decimal.New(1, 12)) {
			return nil, commandline.Usagef("--launch %q: %q is not a number of units such as +16", text, units)
		}
		out = append(out, forecast.Change{Span: domain.Interval{From: at}, Milli: d.Shift(3).Round(0).IntPart()})
	}
	for _, text := range ignore {
		from, to, ok := strings.Cut(text, "/")
		if !ok {
			return nil, commandline.Usagef("--ignore %q: want FROM/TO, for example 2026-05-03/2026-05-04", text)
		}
		c := forecast.Change{Ignored: true}
		var err error
		if c.Span.From, err = domain.ParseTime(from); err == nil {
			c.Span.To, err = domain.ParseTime(to)
		}
		if err != nil {
			return nil, commandline.Usagef("--ignore %q: %w", text, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func (a *Program) showForecasts(answer *app.Forecasts, file string) error {
	answers := answer.Pools
	made := slices.DeleteFunc(slices.Clone(answers), func(f app.PoolForecast) bool { return f.Forecast == nil })
	if len(made) == 0 {
		f := &answers[0]
		return &app.ConflictError{Err: fmt.Errorf("forecast %s %s: %s", f.Region, f.Kind, f.Why)}
	}
	if file != "" {
		if len(made) > 1 {
			return fmt.Errorf("--chart draws one pool, and there are %d: choose with --region and --kind", len(made))
		}
		if err := a.writeChart(file, figureOf(&made[0])); err != nil {
			return err
		}
	}
	if a.json {
		return a.answerJSON(answer)
	}
	for i := range answers {
		f := &answers[i]
		if f.Forecast == nil {
			fmt.Fprintf(a.out, "%s %s: no forecast: %s\n\n", f.Region, f.Kind, f.Why)
			continue
		}
		a.showForecast(f)
	}
	a.showSums(answer.Sums)
	scores := []scored{}
	for _, r := range answer.Regions {
		scores = append(scores, scored{r.Region, r.Score})
	}
	if len(scores) > 1 {
		scores = append([]scored{{everyRegion, answer.All}}, scores...)
	}
	a.showScores("past forecasts compared with actual demand", scores)
	scores = scores[:0]
	for i := range answer.Sums {
		scores = append(scores, scored{nameOfSum(&answer.Sums[i]), answer.Sums[i].Score})
	}
	a.showScores("past forecasts of sums compared with actual demand", scores)
	return nil
}

// nameOfSum says what a sum is of.
func nameOfSum(s *app.SumForecast) string {
	switch s.Level {
	case "family":
		return s.Region + " family " + s.Family
	case "region":
		return s.Region
	}
	return "total, " + s.Unit
}

// showSums shows the forecasts of families, regions and the total, by week.
func (a *Program) showSums(sums []app.SumForecast) {
	if len(sums) == 0 {
		return
	}
	fmt.Fprintln(a.out, "sums of the pools, which add up exactly; the quantiles are those of the sum")
	t := a.table("sum of", "unit", "pools", "week from", "expected", "hours at 10%", "at 50%", "at 90%", "peak hour at 90%", "half-width")
	t.SetColumnConfigs(append(rightFrom(3, 3), rightFrom(5, 10)...))
	for i := range sums {
		s := &sums[i]
		if s.Forecast == nil {
			continue
		}
		made := s.Forecast
		for h := 0; h < len(made.Point); h += forecast.Week {
			end := h + forecast.Week
			row := table.Row{nameOfSum(s), s.Unit, comma(s.Pools), day(made.From + domain.Instant(h)*domain.Hour), milliMean(made.Point[h:end])}
			for _, l := range []int{100, 500, 900} {
				row = append(row, milliMean(made.At(l)[h:end]))
			}
			t.AppendRow(append(row, milliText(slices.Max(made.At(900)[h:end])), milliText(made.HalfWidth[h/forecast.Week])))
		}
	}
	t.Render()
	for i := range sums {
		if s := &sums[i]; len(s.Without) > 0 {
			fmt.Fprintf(a.out, "  %s is without pools that have no forecast: %s\n", nameOfSum(s), strings.Join(s.Without, ", "))
		}
	}
}

// scored is a named score.
type scored struct {
	name string
	*forecast.Score
}

// showScores shows the accuracy of forecasts compared with repeating the last week: MASE, and the
// pinball loss and coverage of each quantile.
func (a *Program) showScores(title string, scores []scored) {
	scores = slices.DeleteFunc(scores, func(s scored) bool { return s.Hours == 0 })
	if len(scores) == 0 {
		return
	}
	fmt.Fprintf(a.out, "\n%s\n", title)
	head := table.Row{"", "forecasts", "MASE", "weighted", ""}
	for _, q := range scores[0].Quantiles {
		head = append(head, percent(decimal.New(int64(q.Level), -3)))
	}
	t := a.table(head...)
	t.SetColumnConfigs(append(rightFrom(2, 4), rightFrom(6, len(head))...))
	for _, s := range scores {
		covered, loss, naive := table.Row{s.name, count(s.Forecasts), "", "", "hours within"}, table.Row{"", "", "", "", "pinball loss"}, table.Row{"", "", "", "", "of the last week repeated"}
		if s.Scaled > 0 {
			covered[2], naive[2] = s.MASE.StringFixed(3), s.Naive.StringFixed(3)
			covered[3], naive[3] = s.WeightedMASE.StringFixed(3), s.WeightedNaive.StringFixed(3)
		}
		for _, q := range s.Quantiles {
			covered, loss, naive = append(covered, percent(q.Covered)), append(loss, q.Pinball.StringFixed(2)), append(naive, q.Naive.StringFixed(2))
		}
		t.AppendRow(covered)
		t.AppendRow(loss)
		t.AppendRow(naive)
	}
	t.Render()
	if n := scores[0].Mass; n > 0 { // the first covers the others
		fmt.Fprintf(a.out, "in %s of %s hours demand equalled several quantiles, for example zero forecast and zero demand; these hours count in part\n", comma(n), comma(scores[0].Hours))
	}
}

func (a *Program) showForecast(f *app.PoolForecast) {
	made := f.Forecast
	fmt.Fprintf(a.out, "%s %s, in units of %s, by %s\n", f.Region, f.Kind, f.Unit, made.Candidate)
	t := a.table("week from", "expected", "hours at 10%", "at 50%", "at 90%", "at 99%", "peak hour at 90%", "half-width", "region", "pool", "unit")
	t.main, t.titled = true, 3
	t.SetColumnConfigs(rightFrom(2, 8))
	for h := 0; h < len(made.Point); h += forecast.Week {
		end := h + forecast.Week
		row := table.Row{day(made.From + domain.Instant(h)*domain.Hour), milliMean(made.Point[h:end])}
		for _, l := range []int{100, 500, 900, 990} {
			row = append(row, milliMean(made.At(l)[h:end]))
		}
		t.AppendRow(append(row, milliText(slices.Max(made.At(900)[h:end])), milliText(made.HalfWidth[h/forecast.Week]), f.Region, f.Kind, f.Unit))
	}
	t.Render()
	fmt.Fprintln(a.out, "values are means over the week's hours; a mean of hourly 90% quantiles is not the 90% quantile of the weekly mean, which varies less; "+
		"half-width is half the distance between the 5% and the 95% quantile")
	fmt.Fprintf(a.out, "learned from %s to %s, %s hours missing; errors of %d past weeks\n", day(made.Window.From), day(made.Window.To), comma(made.Missing), made.Origins)
	for _, g := range made.Gaps {
		fmt.Fprintf(a.out, "  gap, filled from other weeks: %s to %s\n", g.From, g.To)
	}
	for _, n := range f.Notes {
		fmt.Fprintf(a.out, "  %s\n", n)
	}
	for _, c := range made.Tried {
		fmt.Fprintf(a.out, "  %s: mean error %s\n", c.Candidate, milliText(c.Error))
	}
	for _, c := range f.Known {
		if c.Ignored {
			fmt.Fprintf(a.out, "  excluded from learning: %s to %s%s\n", c.Span.From, c.Span.To, because(c.Why))
		} else {
			fmt.Fprintf(a.out, "  known: %s from %s on%s\n", milliText(c.Milli), c.Span.From, because(c.Why))
		}
	}
	fmt.Fprintln(a.out)
}

// because returns a reason in parentheses, or "".
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// milliText formats thousandths with one decimal.
func milliText(milli int64) string { return decimal.New(milli, -3).StringFixed(1) }

func milliMean(milli []int64) string {
	sum := decimal.Zero
	for _, v := range milli {
		sum = sum.Add(decimal.New(v, -3))
	}
	return sum.DivRound(decimal.NewFromInt(int64(max(1, len(milli)))), 1).StringFixed(1)
}

// figureOf draws the last four weeks and the forecast.
func figureOf(f *app.PoolForecast) chart.Figure {
	made := f.Forecast
	place := func(from domain.Instant, n int) []float64 {
		x := make([]float64, n)
		for h := range x {
			x[h] = chart.Moment(from + domain.Instant(h)*domain.Hour)
		}
		return x
	}
	thousandths := func(v []int64) []float64 {
		y := make([]float64, len(v))
		for h := range v {
			y[h] = float64(v[h]) / 1000
		}
		return y
	}
	fig := chart.Lines{Title: strings.TrimSpace(f.Region+" "+f.Kind) + ": forecast of " + day(made.From), X: "day, UTC", Y: f.Unit + ", mean of the day's hours", Time: true, FromZero: true}
	x := place(made.From, len(made.Point))
	days, low := dayMeans(x, thousandths(made.At(100)))
	_, high := dayMeans(x, thousandths(made.At(900)))
	_, middle := dayMeans(x, thousandths(made.At(500)))
	fig.Bands = []chart.Band{{Name: "10% to 90%", X: days, Low: low, High: high}}
	fig.Lines = []chart.Line{{Name: "median", X: days, Y: middle}}
	past := f.History[max(0, len(f.History)-4*forecast.Week):]
	var at, values []float64
	for h, v := range past {
		if v >= 0 {
			at = append(at, chart.Moment(made.From-domain.Instant(len(past)-h)*domain.Hour))
			values = append(values, float64(v)/1000)
		}
	}
	if len(at) > 0 {
		seen := chart.Line{Name: "observed"}
		seen.X, seen.Y = dayMeans(at, values)
		fig.Lines = append(fig.Lines, seen)
	}
	for _, c := range f.Known {
		if !c.Ignored && c.Span.From >= made.From && c.Span.From < made.From+domain.Instant(len(made.Point))*domain.Hour {
			fig.Marks = append(fig.Marks, chart.Mark{Name: milliText(c.Milli), At: chart.Moment(c.Span.From)})
		}
	}
	return fig
}

// dayMeans averages hours by UTC day, each at the first hour present, because a chart of every hour
// is too noisy.
func dayMeans(at, values []float64) (days, means []float64) {
	const day = 86_400
	n := 0.0
	for i, t := range at {
		if i == 0 || math.Floor(t/day) != math.Floor(at[i-1]/day) {
			days, means, n = append(days, t), append(means, 0), 0
		}
		last := len(means) - 1
		n++
		means[last] += (values[i] - means[last]) / n
	}
	return days, means
}
