package usage

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// MonthMethod is the version of what a [Month] holds and of how it is computed. A change of either
// needs another version, under which months are computed again.
const MonthMethod = "usage-days/1"

// Month is the GPU time of a calendar month by day, resolved as [EachDeviceHour] does. It is a pure
// function of what its Inputs name, so it holds as long as these are the same.
//
// Nodes, GPUs and hours are summed up. What changes more slowly than a day (the description of a
// cluster, the class of a deployment) is not in it, but looked up when it is asked for.
type Month struct {
	Inputs Inputs
	Days   []Day // by [Day.Compare], no two equal
}

// Day is the GPU time of one day and key.
type Day struct {
	Day     domain.Instant // its start
	Cluster string
	Model   string // of the GPU; "" if not declared
	Billing domain.BillingModel
	// Held says that a workspace held it. Workspace and Deployment are the holder's.
	Held                  bool
	Workspace, Deployment string
	Time                  GPUTime // Activity and Coverage are not set
}

// Compare orders by day and key.
func (d *Day) Compare(e *Day) int {
	held := func(d *Day) int {
		if d.Held {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(d.Day, e.Day), strings.Compare(d.Cluster, e.Cluster), strings.Compare(d.Model, e.Model),
		cmp.Compare(d.Billing, e.Billing), cmp.Compare(held(d), held(e)),
		strings.Compare(d.Workspace, e.Workspace), strings.Compare(d.Deployment, e.Deployment),
	)
}

// Inputs name what a month is computed from, as text. Equal inputs give equal months.
type Inputs struct {
	Month domain.Interval
	Text  string
}

// Digest returns the SHA-256 of the text.
func (i *Inputs) Digest() [32]byte { return sha256.Sum256([]byte(i.Text)) }

// monthTables are the tables that are split by time and decide about the usage of a month.
var monthTables = []projections.Table{projections.TableNodeGPUs, projections.TableUsage}

// Catalogue returns the SHA-256 of the catalogue of GPUs.
func Catalogue() [32]byte { return catalogue }

// catalogue is the SHA-256 of the catalogue of GPUs, which has the weights of MIG instances.
var catalogue = func() [32]byte {
	b, err := json.Marshal(domain.GPUModels())
	if err != nil {
		panic(err)
	}
	return sha256.Sum256(b)
}()

// inputsOf returns the inputs of a month.
func inputsOf(
	view projections.View, f *inventory.Fleet, tallies []projections.Tally, month domain.Interval,
) (Inputs, error) {
	fleet, err := f.DigestWithin(view, month)
	if err != nil {
		return Inputs{}, err
	}
	var b strings.Builder
	first := projections.HourOf(month.From)
	fmt.Fprintf(&b, "%s on %s of %s\n", MonthMethod, projections.Method, projections.MonthName(first))
	for _, t := range tallies {
		if t.Month == first && slices.Contains(monthTables, t.Table) {
			fmt.Fprintf(&b, "%s %s: %d rows, last changed by offset %d\n", t.Partition, t.Table, t.Rows, t.Changed)
		}
	}
	fmt.Fprintf(&b, "declarations, incidents, corrections and rules: %x\ncatalogue: %x\n", fleet, catalogue)
	return Inputs{month, b.String()}, nil
}

// newMonth computes a month from its rows.
func newMonth(view projections.View, f *inventory.Fleet, inputs Inputs) (*Month, error) {
	days := map[Day]*GPUTime{}
	var k, last Day
	var sum *GPUTime
	err := eachDeviceHour(view, f, inputs.Month.From, inputs.Month.To, func(d *DeviceHour) error {
		for i := range d.Segments {
			s := &d.Segments[i]
			k = Day{Day: d.Hour.DayStart(), Cluster: d.Cluster, Model: d.Model, Billing: d.Billing}
			if s.Holder != nil {
				k.Held, k.Workspace, k.Deployment = true, s.Holder.Workspace, s.Holder.Deployment
			}
			if sum == nil || k != last {
				if sum = days[k]; sum == nil {
					sum = &GPUTime{}
					own := k
					own.Workspace, own.Deployment = strings.Clone(k.Workspace), strings.Clone(k.Deployment)
					days[own] = sum
				}
				last = k
			}
			sum.add(s, d.Declared)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &Month{Inputs: inputs, Days: make([]Day, 0, len(days))}
	for k, t := range days {
		k.Time = *t
		m.Days = append(m.Days, k)
	}
	slices.SortFunc(m.Days, func(a, b Day) int { return a.Compare(&b) })
	return m, nil
}

// of returns the entries of one day.
func (m *Month) of(day domain.Instant) []Day {
	at := func(d Day, day domain.Instant) int { return cmp.Compare(d.Day, day) }
	from, _ := slices.BinarySearchFunc(m.Days, day, at)
	to, _ := slices.BinarySearchFunc(m.Days, day+1, at)
	return m.Days[from:to]
}

// Kept keeps months of usage.
type Kept interface {
	// Month returns the month that was kept with these inputs, nil if there is none.
	Month(Inputs) *Month
	// Keep keeps a month. It MUST NOT change it.
	Keep(*Month)
}

// Bytes returns about how much memory the month takes.
func (m *Month) Bytes() int {
	const day = 250 // with a share of its names
	return len(m.Inputs.Text) + day*len(m.Days)
}
