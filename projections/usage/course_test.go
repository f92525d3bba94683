package usage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// coursed adds up a report by hour to the course that it should have, in one line for each group and bucket.
func coursed(r *usage.Report, from domain.Instant, hours int64) map[string]string {
	type bucket struct {
		usage.GPUTime
		held, active []int64
	}
	sums := map[string]*bucket{}
	for i := range r.Groups {
		g := &r.Groups[i]
		at, err := domain.ParseTime(g.Key[usage.ByHour])
		if err != nil {
			panic(err)
		}
		key := maps.Clone(g.Key)
		delete(key, usage.ByHour)
		name := fmt.Sprint(key, " ", int64((at-from)/domain.Hour)/hours)
		s := sums[name]
		if s == nil {
			s = &bucket{}
			sums[name] = s
		}
		for _, add := range [][2]*int64{
			{&s.Service, &g.Service}, {&s.Allocated, &g.Allocated}, {&s.BusyUnattributed, &g.BusyUnattributed}, {&s.Idle, &g.Idle},
			{&s.Failed, &g.Failed}, {&s.Maintenance, &g.Maintenance}, {&s.Unprovisioned, &g.Unprovisioned}, {&s.Unobserved, &g.Unobserved},
			{&s.Measured, &g.Measured}, {&s.Active, &g.Active},
		} {
			*add[0] += *add[1]
		}
		if g.Service > 0 {
			s.held = append(s.held, usage.Permille(g.Allocated, g.Service))
		}
		if g.Activity != nil {
			s.active = append(s.active, *g.Activity)
		}
	}
	lines := map[string]string{}
	for name, s := range sums {
		bounds := func(of []int64) string {
			if len(of) == 0 {
				return "- -"
			}
			return fmt.Sprint(slices.Min(of), " ", slices.Max(of))
		}
		share, activity := "-", "-"
		if s.Service > 0 {
			share = fmt.Sprint(usage.Permille(s.Allocated, s.Service))
		}
		if s.Measured > 0 {
			activity = fmt.Sprint(s.Active / s.Measured)
		}
		lines[name] = fmt.Sprint(s.Service, s.Allocated, s.BusyUnattributed, s.Idle, s.Failed, s.Maintenance, s.Unprovisioned, s.Unobserved,
			" ", share, " ", bounds(s.held), " ", activity, " ", bounds(s.active))
	}
	return lines
}

// lines returns a course as coursed does, without what is in service at no time.
func lines(c *usage.Course) map[string]string {
	text := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	out := map[string]string{}
	for _, s := range c.Series {
		for i := range c.Starts {
			if s.Service[i] > 0 {
				out[fmt.Sprint(s.Key, " ", i)] = fmt.Sprint(s.Service[i], s.Allocated[i], s.BusyUnattributed[i], s.Idle[i], s.Failed[i], s.Maintenance[i],
					s.Unprovisioned[i], s.Unobserved[i], " ", text(s.AllocatedShare[i]), " ", text(s.AllocatedLeast[i]), " ", text(s.AllocatedMost[i]),
					" ", text(s.Activity[i]), " ", text(s.ActivityLeast[i]), " ", text(s.ActivityMost[i]))
			}
		}
	}
	return out
}

// A course has what a report by hour has, added up, whatever the history, the question and the number of points.
func TestCourse(t *testing.T) {
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		l := storetest.NewLog()
		l.Append(drawMonths(t, rapid.IntRange(1, 25).Draw(t, "events"))...)
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			filter, by := asked(t)
			by = slices.DeleteFunc(by, func(d usage.Dimension) bool { return d == usage.ByHour || d == usage.ByDay })
			from := storetest.Start + domain.Instant(rapid.IntRange(-46*24, 24).Draw(t, "from"))*domain.Hour
			to := from + domain.Instant(rapid.IntRange(1, 200).Draw(t, "hours"))*domain.Hour
			points := rapid.IntRange(1, 60).Draw(t, "points")
			c, err := usage.NewCourse(v, domain.Interval{From: from, To: to}, points, filter, by...)
			if err != nil {
				return err
			}
			r, err := usage.NewReport(v, from, to, filter, append(by, usage.ByHour)...)
			if err != nil {
				return err
			}
			want := coursed(r, from, c.Hours)
			maps.DeleteFunc(want, func(_, line string) bool { return line[0] == '0' })
			if got := lines(c); !maps.Equal(got, want) {
				t.Fatalf("%s to %s by %v in %d points:\n%v\nwant\n%v", from, to, by, points, got, want)
			}
			if fmt.Sprint(c.Total.Service, c.Total.Allocated, c.Total.Unobserved) != fmt.Sprint(r.Total.Service, r.Total.Allocated, r.Total.Unobserved) {
				t.Fatalf("total %+v, want %+v", c.Total, r.Total)
			}
			if n := len(c.Starts); n > points || c.Starts[0] != from || c.Starts[n-1]+domain.Instant(c.Hours)*domain.Hour < to || c.Starts[n-1] >= to {
				t.Fatalf("buckets of %d hours from %s to %s start at %v", c.Hours, from, to, c.Starts)
			}
			return nil
		})
	})
}

// hoursShelf keeps the hours of months.
type hoursShelf map[string]*usage.Hours

func (s hoursShelf) Hours(i usage.Inputs) *usage.Hours { return s[i.Text] }
func (s hoursShelf) KeepHours(h *usage.Hours)          { s[h.Inputs.Text] = h }

// A course from kept hours is the same as one from rows, whatever was kept before later facts arrived.
func TestKeptHours(t *testing.T) {
	used := 0
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		l, kept := storetest.NewLog(), hoursShelf{}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			l.Append(drawMonths(t, rapid.IntRange(1, 15).Draw(t, "events"))...)
			storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
				filter, by := asked(t)
				by = slices.DeleteFunc(by, func(d usage.Dimension) bool { return d == usage.ByHour || d == usage.ByDay })
				if rapid.Bool().Draw(t, "of the fleet") {
					filter = usage.Filter{Cluster: filter.Cluster, Region: filter.Region}
					by = slices.DeleteFunc(by, func(d usage.Dimension) bool {
						return slices.Contains([]usage.Dimension{usage.ByWorkspace, usage.ByNode, usage.ByGPU, usage.ByDeployment, usage.ByWorkloadClass}, d)
					})
				}
				from := storetest.Start + domain.Instant(rapid.SampledFrom([]int{-61 * 24, -30 * 24, -7*24 - 5, -1}).Draw(t, "from"))*domain.Hour
				to := storetest.Start + domain.Instant(rapid.SampledFrom([]int{0, 1, 24}).Draw(t, "to"))*domain.Hour
				period, points := domain.Interval{From: from, To: to}, rapid.IntRange(1, 60).Draw(t, "points")
				want, err := usage.NewCourse(v, period, points, filter, by...)
				if err != nil {
					return err
				}
				had := len(kept)
				got, err := usage.NewCourseFrom(v, kept, projections.HourOf(storetest.Start), period, points, filter, by...)
				if err != nil {
					return err
				}
				used += len(kept) - had
				a, _ := json.Marshal(want)
				b, _ := json.Marshal(got)
				if string(a) != string(b) {
					t.Fatalf("%s to %s by %v of %+v: from kept hours\n%s\nwant\n%s", from, to, by, filter, b, a)
				}
				return nil
			})
		}
	})
	if used < 10 {
		t.Errorf("only %d months were kept", used)
	}
}

// One idle hour in a year is in the course, however few points it has.
func TestCourseKeepsSpikes(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
	for hour := range 48 {
		seen := storetest.Held("a")
		seen.Activity = 800
		switch hour {
		case 17:
			seen = storetest.Held("")
		case 40:
			seen.Activity = 0
		}
		l.Append(storetest.Sampled("reporter/n", 60*hour, 60*hour+60, seen))
	}
	storetest.FoldView(t, l, func(v projections.View) {
		c, err := usage.NewCourse(v, domain.Interval{From: storetest.Start, To: storetest.Start + 48*domain.Hour}, 2, usage.Filter{}, usage.ByCluster)
		if err != nil {
			t.Fatal(err)
		}
		s := c.Series[0]
		if got := fmt.Sprint(*s.AllocatedLeast[0], *s.AllocatedMost[0], *s.AllocatedLeast[1], *s.ActivityLeast[0], *s.ActivityLeast[1], *s.ActivityMost[1], *s.Activity[1]); got != "0 1000 1000 800 0 800 766" {
			t.Errorf("%s", got)
		}
	})
}

func TestCourseRefuses(t *testing.T) {
	storetest.FoldView(t, storetest.NewLog(), func(v projections.View) {
		day := domain.Interval{From: storetest.Start, To: storetest.Start + domain.Day}
		for _, c := range []struct {
			period domain.Interval
			points int
			by     usage.Dimension
		}{
			{domain.Interval{From: day.From + 1, To: day.To}, 1, usage.ByCluster}, {domain.Interval{From: day.From, To: day.To - 1}, 1, usage.ByCluster},
			{day, 0, usage.ByCluster}, {day, usage.MostPoints + 1, usage.ByCluster}, {day, 10, usage.ByHour}, {day, 10, usage.ByDay}, {day, 10, "colour"},
		} {
			if _, err := usage.NewCourse(v, c.period, c.points, usage.Filter{}, c.by); err == nil {
				t.Errorf("no error for %+v", c)
			}
		}
	})
	l := storetest.Fleet(50, 1, storetest.Start)
	storetest.FoldView(t, l, func(v projections.View) {
		ten := domain.Interval{From: storetest.Start, To: domain.InstantOf(storetest.Start.Time().AddDate(10, 0, 0))}
		if _, err := usage.NewCourse(v, ten, 10, usage.Filter{}, usage.ByGPU); !errors.Is(err, usage.ErrTooFine) {
			t.Errorf("%v, want %v", err, usage.ErrTooFine)
		}
	})
	l = storetest.Fleet(270, 1, storetest.Start)
	storetest.FoldView(t, l, func(v projections.View) {
		months := domain.Interval{From: storetest.Start, To: storetest.Start + usage.MostPoints*domain.Hour}
		if _, err := usage.NewCourse(v, months, usage.MostPoints, usage.Filter{}, usage.ByNode); !errors.Is(err, usage.ErrTooFine) {
			t.Errorf("by node in a bucket for each hour: %v, want %v", err, usage.ErrTooFine)
		}
		if _, err := usage.NewCourse(v, months, 1000, usage.Filter{}, usage.ByNode); err != nil {
			t.Errorf("by node in half as many buckets: %v", err)
		}
	})
}
