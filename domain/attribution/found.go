package attribution

import "quartermaster/domain"

// What a division finds out about machines: billed but not seen, and seen but not billed.

// noteworthy reports whether GPU time is more than the rounding of a bill's
// quantities: a minute of one GPU, and a thousandth of what it is part of.
func noteworthy(ms, of int64) bool {
	return ms >= 60_000 && ms/1000 >= of/1_000_000
}

// foundOut reports the difference between what the lines of a match bought and what was in service.
func (r *run) foundOut(x *match, sum *matchSum) {
	if !x.buys {
		return
	}
	subject := r.subjectOf(x)
	if over := max(sum.excess, sum.bought-sum.seen); noteworthy(over, sum.bought) && sum.bought > 0 {
		r.ex.time(BilledNeverSeen, subject, "bought for longer than it was in service", over)
	}
	if noteworthy(sum.unreported, sum.bought) {
		r.ex.time(BilledNeverSeen, subject, "bought, in service and not reported", sum.unreported)
	}
	if under := sum.seen - sum.bought; !sum.unmeasured && sum.bought > 0 && noteworthy(under, sum.seen) && r.alone(x) {
		r.ex.time(SeenNeverBilled, subject, "in service for longer than was bought", under)
	}
}

// alone reports whether no other match buys time of a match's machines. If one does, a surplus or
// deficit of this match alone means nothing.
func (r *run) alone(x *match) bool {
	for _, d := range x.descs {
		buying := 0
		for _, id := range r.fleet.descs[d].matches {
			if r.matches[id].buys {
				buying++
			}
		}
		if buying > 1 {
			return false
		}
	}
	return true
}

// bills are the bills of an account that a month has.
type bills struct {
	domain.Interval                 // from the first to the last
	last            domain.Interval // the billing period that ends last
}

func (b *bills) add(period domain.Interval) {
	b.From, b.To = min(b.From, period.From), max(b.To, period.To)
	if period.To > b.last.To || period.To == b.last.To && period.From > b.last.From {
		b.last = period
	}
}

// due returns the time for which the month has bills of the account, or lacks them: suppliers bill by the
// week, or by months of their own zone, and what their bills of this month are not for is on those of
// another. A period of the length of the last one that would be the month's, too, is lacking: a period
// belongs to the UTC month that has its middle.
func (b *bills) due() domain.Interval {
	if b.last.Empty() {
		return b.Interval
	}
	due, length := b.Interval, b.last.Length()
	month := (b.last.From + length/2).Month()
	if after := month.To - due.To - length/2; after > 0 {
		due.To += (after + length - 1) / length * length
	}
	if before := due.From - length + length/2 - month.From; before >= 0 {
		due.From -= (before/length + 1) * length
	}
	return due
}

// machines reports machines that no line is for.
func (r *run) machines(spans []domain.Interval) {
	for i := range r.fleet.machines {
		m := &r.fleet.machines[i]
		if m.seen && noteworthy(m.unbilledMs, 0) {
			r.ex.time(SeenNeverBilled, m.subject(r.fleet), "in service, and no line of its account covers the time", m.unbilledMs)
		}
		if m.seen || m.billed {
			continue
		}
		var ms int64
		for at := m.first; at < m.end; at++ {
			if d := &r.fleet.descs[at]; d.Registered {
				gpus := int64(d.counted())
				if gpus < 0 {
					gpus = 1 // at least
				}
				for _, s := range spans {
					if !d.due.Empty() {
						s = s.Intersect(d.due)
					}
					ms += int64(d.Service.Intersect(s).Length()/millisecond) * gpus
				}
			}
		}
		if ms > 0 {
			r.ex.time(RegisteredNeither, m.subject(r.fleet), "registered, and neither reported nor billed", ms)
		}
	}
}
