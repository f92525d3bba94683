package projections

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"

	"quartermaster/domain"
)

// joinRows joins the rows of one node and time under several keys. The result does not depend on
// which partition was folded first. It is nil if there are none.
func joinRows(k Key, parts []Row) (Row, error) {
	switch len(parts) {
	case 0:
		return nil, nil
	case 1:
		return parts[0], nil
	}
	switch k.Table {
	case TableUsage:
		return joinUsage(rowsOf[*UsageHour](parts)), nil
	case TableNodeGPUs:
		return joinNodeGPUs(rowsOf[*NodeGPUs](parts)), nil
	default:
		return joinHistories(k, rowsOf[*History](parts))
	}
}

func rowsOf[R Row](parts []Row) []R {
	out := make([]R, len(parts))
	for i, p := range parts {
		out[i] = p.(R)
	}
	return out
}

// joinUsage joins usage hours. What one source reported of a device under several keys counts once:
// the hour that begins first counts where they overlap. So observers are in the order in which they
// came into the hour. A gap between the last scrape under one key and the first under another is not
// bridged (see scrape.go), so a failed scrape at a change of shards is unobserved time.
func joinUsage(parts []*UsageHour) *UsageHour {
	slices.SortStableFunc(parts, func(a, b *UsageHour) int { return cmp.Compare(a.Seen(0).From, b.Seen(0).From) })
	out := &UsageHour{}
	for _, p := range parts {
		holders := make([]uint32, len(p.Holders)+1)
		for i, h := range p.Holders {
			at := slices.Index(out.Holders, h)
			if at < 0 {
				at = len(out.Holders)
				out.Holders = append(out.Holders, h)
			}
			holders[i+1] = uint32(at + 1)
		}
		for i := range p.Observers {
			from := &p.Observers[i]
			at := slices.IndexFunc(out.Observers, func(o Observer) bool { return o.Source == from.Source })
			if at < 0 {
				at = len(out.Observers)
				out.Observers = append(out.Observers, Observer{Source: from.Source})
			}
			out.Observers[at].join(from, holders)
		}
	}
	return out
}

// join adds what the same source reported under another key. holders are the numbers of the other
// row's holders in this one. Numbers of samples and sums of readings that are not of a time of their
// own count by the part of the time that is not in this row yet.
func (o *Observer) join(from *Observer, holders []uint32) {
	o.ActivityField = from.ActivityField
	added := make([]share, len(from.Devices))
	var all share
	places := make([]uint32, len(from.Devices)) // of its devices in this row
	for i, d := range from.Devices {
		if d.Cut > 0 {
			cut := from.Cuts[d.Cut-1]
			at := slices.Index(o.Cuts, cut)
			if at < 0 {
				at = len(o.Cuts)
				o.Cuts = append(o.Cuts, cut)
			}
			d.Cut = uint32(at + 1)
		}
		at := slices.IndexFunc(o.Devices, func(e Device) bool { return e.ID == d.ID && e.Replica == d.Replica })
		if at < 0 {
			at = len(o.Devices)
			o.Devices = append(o.Devices, Device{ID: d.ID, Replica: d.Replica, Cut: d.Cut})
		}
		places[i] = uint32(at)
		added[i].whole = d.seenUpTo(MsPerHour)
		added[i].part = o.Devices[at].join(d, holders)
		all.whole += added[i].whole
		all.part += added[i].part
	}
	o.Samples += uint32(all.of(uint64(from.Samples)))
	for _, x := range from.Others {
		s := added[x.Device]
		if s.part == 0 {
			continue
		}
		x.Count, x.Sum = s.of(x.Count), s.of(x.Sum)
		x.Device = places[x.Device]
		at := slices.IndexFunc(o.Others, func(y Other) bool { return y.Device == x.Device && y.Field == x.Field })
		if at < 0 {
			o.Others = append(o.Others, x)
			continue
		}
		y := &o.Others[at]
		y.Count, y.Sum, y.Max = y.Count+x.Count, y.Sum+x.Sum, max(y.Max, x.Max)
	}
}

// share is a part of a time.
type share struct{ part, whole uint64 }

// of returns the share of a sum, to the nearest.
func (s share) of(sum uint64) uint64 {
	if s.part == s.whole {
		return sum
	}
	hi, lo := bits.Mul64(sum, s.part)
	lo, carry := bits.Add64(lo, s.whole/2, 0)
	out, _ := bits.Div64(hi+carry, lo, s.whole)
	return out
}

// join adds what was seen of the same device, in the time in which it was not seen here. It returns
// how many milliseconds that is.
func (d *Device) join(from Device, holders []uint32) uint64 {
	free := WholeHour
	if len(d.Segments) > 0 {
		free = nil
		end := uint32(0)
		for _, s := range d.Segments {
			if end < s.From {
				free = append(free, Span{end, s.From})
			}
			end = s.To
		}
		if end < MsPerHour {
			free = append(free, Span{end, MsPerHour})
		}
	}
	part, ok := from.within(free)
	if !ok {
		return 0
	}
	for _, g := range part.Segments {
		g.Holder = holders[g.Holder]
		d.hold(g)
	}
	for _, r := range [...][2]*Reading{
		{&d.Tensor, &part.Tensor}, {&d.DRAM, &part.DRAM}, {&d.Memory, &part.Memory},
		{&d.Power, &part.Power}, {&d.Heat, &part.Heat}, {&d.Clock, &part.Clock},
	} {
		r[0].Sum, r[0].Known, r[0].Max = r[0].Sum+r[1].Sum, r[0].Known+r[1].Known, max(r[0].Max, r[1].Max)
	}
	d.Unasked = append(d.Unasked, part.Unasked...)
	slices.SortFunc(d.Unasked, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return part.seenUpTo(MsPerHour)
}

func joinNodeGPUs(parts []*NodeGPUs) *NodeGPUs {
	out := &NodeGPUs{}
	for _, p := range parts {
		for _, g := range p.GPUs {
			at, known := out.Find(g.ID)
			if known {
				have := &out.GPUs[at]
				have.First, have.Last = min(have.First, g.First), max(have.Last, g.Last)
			} else {
				out.GPUs = slices.Insert(out.GPUs, at, g)
			}
		}
		for _, m := range p.Models {
			at, known := slices.BinarySearchFunc(out.Models, m.ID, func(t ToldModel, id domain.GPUID) int {
				return bytes.Compare(t.ID[:], id[:])
			})
			switch {
			case !known:
				out.Models = slices.Insert(out.Models, at, m)
			case m.After(out.Models[at]):
				out.Models[at] = m
			}
		}
		for _, d := range p.Late {
			out.late(d)
		}
	}
	return out
}

// joinHistories enters the statements of all parts again, in the order of their times.
func joinHistories(k Key, parts []*History) (*History, error) {
	var all []Version
	for _, p := range parts {
		for _, v := range p.Versions {
			all = append(all, v)
			if v.Again != nil {
				all[len(all)-1].Again = nil
				v.Order, v.Again = *v.Again, nil
				all = append(all, v)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Version) int {
		switch {
		case b.Order.After(a.Order):
			return -1
		case a.Order.After(b.Order):
			return 1
		}
		return 0
	})
	out := &History{}
	for _, v := range all {
		env := domain.Envelope{Source: v.Order.Source, Time: v.Order.Time, Cluster: k.Scope, Event: v.Event}
		p, _ := Place(&env, k.Scope)
		switch {
		case p.fault && v.Rest:
			out.put(v)
		case p.fault:
			if !Scraped(v.Order.Source) || !out.sight(&v) {
				out.enterFault(v)
			}
		default:
			if err := out.insert(v, p.collapse); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
