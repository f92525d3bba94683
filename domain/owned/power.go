package owned

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
)

type nodeName struct{ cluster, node string }

// share is a node's part of a reading.
type share struct {
	interval domain.Interval
	wh       *rat
}

// meter divides the readings of meters among the nodes that they name, or else among those of the cluster, while these
// are in service. A reading counts evenly over its time.
func (b *biller) meter(assets []Asset) {
	watts := map[nodeName]*rat{}
	service := map[nodeName]domain.Interval{}
	of := map[string][]string{} // nodes of assets, by cluster
	b.owner = map[nodeName]string{}
	for i := range assets {
		a := &assets[i]
		for j := range a.Nodes {
			at := nodeName{a.Cluster, a.Nodes[j].Name}
			if first, both := b.owner[at]; both {
				b.problems = append(b.problems, Problem{NodeOfSeveral, a.Cluster + "/" + a.ID, "asset " + first + " names node " + at.node + " too, and is charged for its power"})
				continue
			}
			b.owner[at] = a.ID
			of[a.Cluster] = append(of[a.Cluster], at.node)
			watts[at] = times(a.weight(j), new(rat).SetUint64(a.PowerWatts))
			service[at] = a.service(domain.Interval{To: b.month.To})
		}
	}
	b.readings = map[nodeName][]share{}
	for _, r := range b.apart() {
		nodes := r.Nodes
		if len(nodes) == 0 {
			nodes = of[r.Cluster]
		}
		var services []domain.Interval
		for _, n := range nodes {
			if in, ok := service[nodeName{r.Cluster, n}]; ok {
				services = append(services, in)
			}
		}
		wh := ratOf(r.WattHours)
		for _, within := range cut(r.Interval, services) {
			in := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
				of, ok := service[nodeName{r.Cluster, n}]
				return ok && of.Intersect(within).Empty()
			})
			b.divide(r.Cluster, in, watts, share{within, times(wh, frac(int64(within.Length()), int64(r.Interval.Length())))})
		}
	}
}

// cut cuts a time where any of others begins or ends.
func cut(at domain.Interval, others []domain.Interval) (parts []domain.Interval) {
	times := []domain.Instant{at.From, at.To}
	for _, o := range others {
		for _, t := range []domain.Instant{o.From, o.To} {
			if at.From < t && t < at.To {
				times = append(times, t)
			}
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	for i := range len(times) - 1 {
		parts = append(parts, domain.Interval{From: times[i], To: times[i+1]})
	}
	return parts
}

// divide divides energy among nodes by their nameplate power, or evenly if that of one is not known.
func (b *biller) divide(cluster string, nodes []string, watts map[nodeName]*rat, energy share) {
	all, rated := new(rat), true
	for _, n := range nodes {
		w := watts[nodeName{cluster, n}]
		if w == nil || w.Sign() == 0 {
			rated = false
			break
		}
		all = sum(all, w)
	}
	for _, n := range nodes {
		at := nodeName{cluster, n}
		part := frac(1, int64(len(nodes)))
		if rated {
			part = ratio(watts[at], all)
		}
		b.readings[at] = append(b.readings[at], share{energy.interval, times(energy.wh, part)})
	}
}

// apart returns the readings of which none overlaps another of its meter. Of two that do, the one that
// begins or ends first counts.
func (b *biller) apart() []Reading {
	readings := slices.Clone(b.in.Readings)
	slices.SortStableFunc(readings, func(x, y Reading) int {
		return cmp.Or(
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Meter, y.Meter),
			cmp.Compare(x.Interval.From, y.Interval.From), cmp.Compare(x.Interval.To, y.Interval.To),
		)
	})
	var last *Reading
	return slices.DeleteFunc(readings, func(r Reading) bool {
		if last != nil && last.Cluster == r.Cluster && last.Meter == r.Meter && r.Interval.From < last.Interval.To {
			b.problems = append(b.problems, Problem{
				OverlappingReadings, r.Cluster + "/" + r.Meter,
				fmt.Sprintf("the reading of %s to %s overlaps that of %s to %s, and is not charged",
					r.Interval.From, r.Interval.To, last.Interval.From, last.Interval.To),
			})
			return true
		}
		last = &r
		return false
	})
}

// priced is a tariff within a time.
type priced struct {
	*Tariff
	within domain.Interval
}

// tariffsOf returns the tariffs of each site by time.
func tariffsOf(all []Tariff) map[string][]Tariff {
	sites := map[string][]Tariff{}
	for _, t := range all {
		sites[t.Site] = append(sites[t.Site], t)
	}
	for _, list := range sites {
		slices.SortStableFunc(list, func(x, y Tariff) int { return cmp.Compare(x.From, y.From) })
	}
	return sites
}

// during returns the tariffs of an asset's site within a time. It reports the time without one, if
// except is not nil.
func (b *biller) during(a *Asset, within domain.Interval, except func(ProblemKind, string, ...any)) []priced {
	refuse := func(format string, args ...any) []priced {
		if except != nil {
			except(NoTariff, format, args...)
		}
		return nil
	}
	if within.Empty() {
		return nil
	}
	if a.Site == "" {
		return refuse("it names no site")
	}
	list := b.tariffs[a.Site]
	operators := map[string]bool{}
	for i := range list {
		operators[list[i].Operator] = true
	}
	if len(operators) > 1 {
		return refuse("site %s has tariffs of several operators: %v", a.Site, slices.Sorted(maps.Keys(operators)))
	}
	var out []priced
	for i := range list {
		in := domain.Interval{From: list[i].From, To: within.To}
		if i+1 < len(list) {
			in.To = min(in.To, list[i+1].From)
		}
		if in = in.Intersect(within); !in.Empty() {
			out = append(out, priced{&list[i], in})
		}
	}
	if len(out) == 0 || out[0].within.From > within.From {
		until := within.To
		if len(out) > 0 {
			until = out[0].within.From
		}
		refuse("site %s has no tariff from %s to %s", a.Site, within.From, until)
	}
	return out
}

// power returns the charges for power: metered, and estimated where no meter counted.
func (b *biller) power(a *Asset, service domain.Interval, except func(ProblemKind, string, ...any)) []line {
	if service.Empty() {
		return nil
	}
	metered := slices.ContainsFunc(a.Nodes, func(n Node) bool {
		return slices.ContainsFunc(b.readings[nodeName{a.Cluster, n.Name}], func(s share) bool {
			return !s.interval.Intersect(service).Empty()
		})
	})
	if !metered && a.PowerWatts == 0 && len(a.Nodes) == 0 {
		return nil // racks and cables need none
	}
	if !metered && a.PowerWatts == 0 {
		except(NoPower, "no meter names its nodes, and it has no nameplate power")
		return nil
	}
	tariffs := b.during(a, service, except)
	if len(tariffs) == 0 {
		return nil
	}
	var lines []line
	if len(a.Nodes) == 0 {
		lines = b.charge(lines, a, tariffs, -1, PowerEstimated, func(in domain.Interval) *rat {
			return times(new(rat).SetUint64(a.PowerWatts), hours(in))
		})
	}
	for i := range a.Nodes {
		if b.owner[nodeName{a.Cluster, a.Nodes[i].Name}] != a.ID {
			continue // another asset names the node, and is charged
		}
		readings := b.readings[nodeName{a.Cluster, a.Nodes[i].Name}]
		rated := times(a.weight(i), new(rat).SetUint64(a.PowerWatts))
		lines = b.charge(lines, a, tariffs, i, Power, func(in domain.Interval) *rat { return counted(readings, in) })
		var covered []domain.Interval
		for _, r := range readings {
			if in := r.interval.Intersect(service); !in.Empty() {
				covered = append(covered, in)
			}
		}
		gaps := service.Without(covered)
		if a.PowerWatts == 0 {
			if len(gaps) > 0 {
				except(NoPower, "no meter counted node %s for all of the month, and it has no nameplate power", a.Nodes[i].Name)
			}
			continue
		}
		lines = b.charge(lines, a, tariffs, i, PowerEstimated, func(in domain.Interval) *rat {
			wh := new(rat)
			for _, gap := range gaps {
				wh = sum(wh, times(rated, hours(gap.Intersect(in))))
			}
			return wh
		})
		most := new(rat)
		for _, in := range service.Without(gaps) {
			most = sum(most, times(rated, hours(in)))
		}
		if wh := counted(readings, service); wh.Cmp(most) > 0 {
			except(AboveRated, "meters of node %s count %s Wh, and its nameplate allows %s Wh", a.Nodes[i].Name,
				decimalOf(wh, 0), decimalOf(most, 0))
		}
	}
	return lines
}

// counted returns the watt-hours that readings counted within a time. A reading is spread evenly over its
// interval.
func counted(readings []share, in domain.Interval) *rat {
	wh := new(rat)
	for _, r := range readings {
		if both := r.interval.Intersect(in); !both.Empty() {
			wh = sum(wh, times(r.wh, frac(int64(both.Length()), int64(r.interval.Length()))))
		}
	}
	return wh
}

// charge adds the lines for the power of a node, one for each currency of the tariffs.
func (b *biller) charge(lines []line, a *Asset, tariffs []priced, node int, what string, wh func(domain.Interval) *rat) []line {
	at := map[string]int{}
	for _, t := range tariffs {
		kwh := times(wh(t.within), frac(1, 1000))
		if kwh.Sign() == 0 || t.PerKWh.Currency == "" {
			continue
		}
		pue := frac(1, 1)
		if !t.PUE.IsZero() {
			pue = ratOf(t.PUE)
		}
		site := times(kwh, pue)
		n, ok := at[t.PerKWh.Currency]
		if !ok {
			n = len(lines)
			at[t.PerKWh.Currency] = n
			lines = append(lines, line{
				node: node, what: what, currency: t.PerKWh.Currency, amount: new(rat), consumed: new(rat), priced: new(rat),
				describes: meters[what] + ", site " + a.Site,
			})
		}
		l := &lines[n]
		l.amount = sum(l.amount, times(site, ratOf(t.PerKWh.Amount)))
		l.consumed, l.priced = sum(l.consumed, kwh), sum(l.priced, site)
	}
	return lines
}
