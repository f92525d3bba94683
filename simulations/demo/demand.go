package demo

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"quartermaster/domain"
)

// DemandPeriod is the time that [Demand] covers: 26,280 hours that end with May 2026, UTC.
var DemandPeriod = domain.Interval{
	From: domain.InstantOf(time.Date(2023, time.June, 2, 0, 0, 0, 0, time.UTC)),
	To:   domain.InstantOf(time.Date(2026, time.June, 1, 0, 0, 0, 0, time.UTC)),
}

// demandRegion is the demand of a region, with the figures of the region of the Shaved Ice data
// that it follows (Stokely et al., ICPE'25).
type demandRegion struct {
	name   string
	final  int     // machines at the end, the mean of a week; invented
	growth [7]int  // level after 0, 1 … 6 half years, per mille of the last
	byHour [24]int // percent of the mean, UTC
	byDay  [7]int  // from Sunday
	// Type A is replaced by type B from day replacedFrom on, within replacedIn days.
	replacedFrom, replacedIn int
	spread                   int // standard deviation around all that, per mille
}

var demandRegions = []demandRegion{
	{
		name: "1", final: 160,
		growth: [7]int{197, 329, 465, 631, 803, 854, 1000},
		byHour: [24]int{125, 128, 119, 113, 126, 130, 134, 124, 118, 107, 98, 91, 84, 76, 81, 83, 92, 75, 73, 70, 74,
			79, 88, 113},
		byDay: [7]int{81, 104, 110, 111, 109, 105, 80},

		replacedFrom: 520, replacedIn: 42, spread: 80,
	},
	{
		name: "2", final: 240,
		growth: [7]int{300, 390, 542, 657, 715, 826, 1000},
		byHour: [24]int{90, 94, 103, 108, 106, 114, 114, 117, 116, 117, 110, 109, 108, 107, 102, 97, 88, 88, 90, 91,
			86, 82, 78, 84},
		byDay: [7]int{79, 106, 109, 109, 108, 105, 83},

		replacedFrom: 638, replacedIn: 28, spread: 50,
	},
}

const (
	// The last week of December, in percent: 84 to 90 in the two regions.
	yearEnd = 86
	// Machines of the third type, per mille of all: 50 to 100 in the regions.
	thirdType = 60
	// Autocorrelation of the deviation from hour to hour, per mille.
	persistence = 970
	// New deviation per hour, per mille, so that the total has the stated spread: √(1 − 0.97²).
	innovation = 243
)

// Demand writes hourly demand in the columns of the Shaved Ice data set: in two regions, machines
// of type A, of type B that replaces it, and of a small third type C. As in the data set, a type
// without demand in an hour has no row. Hours are written with a trailing Z.
func Demand(w io.Writer, draw func() uint64) error {
	t := newTable(w, "USAGE_HOUR", "REGION_NUM", "INSTANCE_TYPE", "NORM_USAGE")
	d := dice{draw}
	// The deviation of each region from its level, per mille, and that of type C.
	away := make([]int, len(demandRegions))
	awayThird := make([]int, len(demandRegions))
	hours := int((DemandPeriod.To - DemandPeriod.From) / domain.Hour)
	for h := range hours {
		at := DemandPeriod.From + domain.Instant(h)*domain.Hour
		stamp := at.Time().Format("2006-01-02 15:04:05.000Z07:00")
		for i, r := range demandRegions {
			away[i] = away[i]*persistence/1000 + d.spread(r.spread*innovation/1000)
			awayThird[i] = awayThird[i]*persistence/1000 + d.spread(r.spread*innovation/1000)
			level := r.level(h, hours) // millionths of a machine from here on
			third := level / 1000 * thirdType / 1000 * max(0, 1000+awayThird[i])
			level = level / 1000 * (1000 - thirdType) / 1000 * max(0, 1000+away[i])
			newer := r.replaced(h)
			for _, row := range []struct {
				name     string
				machines int
			}{{"A", level / 1000 * (1000 - newer)}, {"B", level / 1000 * newer}, {"C", third}} {
				if n := (row.machines + 500_000) / 1_000_000; n > 0 {
					t.row(stamp, r.name, row.name, strconv.Itoa(n))
				}
			}
		}
	}
	if err := t.close(); err != nil {
		return fmt.Errorf("write demand: %w", err)
	}
	return nil
}

// level is the demand of an hour without randomness, in millionths of a machine.
func (r *demandRegion) level(hour, hours int) int {
	steps := len(r.growth) - 1
	step, within := hour*steps/hours, hour*steps%hours
	growth := r.growth[step]*1000 + (r.growth[step+1]-r.growth[step])*1000*within/hours
	when := (DemandPeriod.From + domain.Instant(hour)*domain.Hour).Time()
	level := r.final * growth * r.byHour[when.Hour()] / 100 * r.byDay[when.Weekday()] / 100
	if when.Month() == time.December && when.Day() >= 24 {
		level = level * yearEnd / 100
	}
	return level
}

// replaced is the part of type A that type B has taken over, per mille.
func (r *demandRegion) replaced(hour int) int {
	return min(1000, max(0, (hour-r.replacedFrom*24)*1000/(r.replacedIn*24)))
}
