package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Which lines buy a machine's time. The package comment states the rule.

// stance says why a line does or does not buy the time of its match.
type stance uint8

const (
	noStance  stance = iota // it matched no machine
	buysTime                // it buys the time that it states
	addsOn                  // it is an add-on
	givesBack               // its cost and quantity have opposite signs
	outranked               // lines of a higher-ranked meter buy in all of its charge period
	shared                  // lines of a higher-ranked meter buy in a part of it
	outbid                  // another product of its meter buys
	refunded                // it was refunded and charged again
)

// mayBuy reports whether a line buys machine time unless other lines of the machine outrank it. A
// line whose cost and quantity have opposite signs refunds money and not time, such as the negation
// of a savings plan or a negotiated discount. So does its reversal, because both signs flip.
func (r *record) mayBuy() bool { return r.class.buys() && r.sold != AddOn && !r.givesBack() }

// isFree reports whether a line costs nothing in both ledgers.
func (r *record) isFree() bool { return r.billed.IsZero() && r.effective.IsZero() }

func (r *record) givesBack() bool {
	sign := cmp.Or(cmp.Compare(r.gpuMs, 0), cmp.Compare(r.nodeMs, 0))
	against := false
	for _, a := range [...]Amount{r.billed, r.effective} {
		switch a.Sign() {
		case 0:
		case sign:
			return false
		default:
			against = true
		}
	}
	return sign != 0 && against
}

// orStated returns the meter, or if there is none, the meter that the line's quantities imply.
func (m Meter) orStated(l *Line) Meter {
	switch {
	case m != 0:
		return m
	case l.GPUMs != 0:
		return GPUTime
	case l.NodeMs != 0:
		return PlainTime
	}
	return Unstated
}

// buyers decides which lines of each match buy its time. It needs the time that each line states.
func (r *run) buyers() {
	for id := range r.matches {
		x := &r.matches[id]
		first, one := -1, true
		refunds := map[refund]int{}
		for _, l := range x.lines {
			rec := &r.book.records[l]
			switch {
			case x.method == ByAccount:
				continue
			case !rec.class.buys() || rec.sold == AddOn:
				rec.stance = addsOn
				continue
			case !rec.buyer:
				rec.stance = givesBack
				refunds[rec.refund(rec.billed, rec.effective)]++
				continue
			}
			rec.stance = buysTime
			if rec.sold != rec.meter && !rec.isFree() {
				why := r.book.texts[rec.meterReason] +
					", and no other line buys the machine's time: it does; a mapping rule can say what it is"
				r.ex.money(BuyerAmbiguous, r.subjectOf(x), why, r.book, rec)
			}
			if first < 0 {
				first = int(l)
			}
			of := &r.book.records[first]
			one = one && rec.sold == of.sold && rec.product == of.product
		}
		if first >= 0 && (!one || len(refunds) > 0) {
			r.rank(x)
			r.compete(x, refunds)
		}
	}
}

// refund is the key that a line shares with the line that refunds all of it: its properties and its
// cost.
type refund struct {
	resource, product, commit name
	charge                    domain.Interval
	meter                     Meter
	nodeMs, gpuMs             int64
	billed, effective         Amount
}

func (r *record) refund(billed, effective Amount) refund {
	return refund{r.resource, r.product, r.commit, r.charge, r.sold, r.nodeMs, r.gpuMs, billed, effective}
}

// rank lets the lowest meter that states time at an instant buy. A line that is outranked in a part
// of its charge period buys the rest of its time, in proportion to length, rounded towards zero.
func (r *run) rank(x *match) {
	var taken []domain.Interval // by higher-ranked meters; ascending, disjoint
	for m := GPUTime; m <= Unstated; m++ {
		var own []domain.Interval
		for at := 0; at < len(x.lines); {
			n, net := r.samePeriod(x.lines[at:]), int64(0)
			period := r.book.records[x.lines[at]].charge
			before := overlap(taken, period)
			for _, l := range x.lines[at : at+n] {
				rec := &r.book.records[l]
				if rec.stance != buysTime || rec.sold != m {
					continue
				}
				net += rec.bought
				switch {
				case before == 0:
				case before >= period.Length():
					rec.stance, rec.bought = outranked, 0
				default:
					rest := divisionOfMs(rec.bought)
					rec.stance, rec.bought = shared, rest.nextMs(uint64(period.Length()-before), uint64(period.Length()))
				}
			}
			if net != 0 {
				own = append(own, period)
			}
			at += n
		}
		if len(own) > 0 {
			taken = append(taken, own...)
			slices.SortFunc(taken, byPeriod)
			taken = merge(taken)
		}
	}
}

// overlap returns how much of a period is covered by ascending, disjoint intervals.
func overlap(of []domain.Interval, period domain.Interval) (length domain.Instant) {
	from, _ := slices.BinarySearchFunc(of, period.From, func(i domain.Interval, t domain.Instant) int {
		return cmp.Compare(i.To, t)
	})
	for _, i := range of[from:] {
		if i.From >= period.To {
			break
		}
		length += i.Intersect(period).Length()
	}
	return length
}

// bid is the time that one product states in a stretch of overlapping charge periods.
type bid struct {
	product name
	own     bool // it is named as the machines' type is
	money   Amount
	net     int64
	lines   []int32
}

// compete decides between lines of one meter that together state more time than the machines were
// in service, in each stretch of overlapping charge periods.
func (r *run) compete(x *match, refunds map[refund]int) {
	for m := GPUTime; m <= PlainTime; m++ {
		var stretch domain.Interval
		var bids []bid
		for _, l := range x.lines {
			rec := &r.book.records[l]
			if rec.bought == 0 || rec.sold != m || rec.stance != buysTime && rec.stance != shared {
				continue
			}
			if len(bids) > 0 && rec.charge.From >= stretch.To {
				r.award(x, m, stretch, bids, refunds)
				bids = nil
			}
			if len(bids) == 0 {
				stretch = rec.charge
			}
			stretch.To = max(stretch.To, rec.charge.To)
			i := slices.IndexFunc(bids, func(b bid) bool { return b.product == rec.product })
			if i < 0 {
				i = len(bids)
				bids = append(bids, bid{product: rec.product})
			}
			b := &bids[i]
			b.net += rec.bought
			b.money = b.money.Add(rec.effective)
			b.own = b.own || r.isType(x, rec)
			b.lines = append(b.lines, l)
		}
		r.award(x, m, stretch, bids, refunds)
	}
}

// isType reports whether a line names the machines by their type.
func (r *run) isType(x *match, rec *record) bool {
	sku := r.book.texts[rec.sku]
	return sku != "" && slices.ContainsFunc(x.descs, func(d int32) bool { return r.fleet.descs[d].SKU == sku })
}

// award lets products buy while enough time is left for all that each states. Products named as the
// machines' type come first, then the more expensive, then by name. The others do not buy, and are
// an exception.
//
// Before that, refunded lines give up their time to the lines that charge it again, as long as too
// much is stated.
func (r *run) award(x *match, m Meter, stretch domain.Interval, bids []bid, refunds map[refund]int) {
	left, known := r.fleet.inServiceMs(x.descs, stretch)
	excess := func() bool {
		var all uint64
		for i := range bids {
			all += magnitude(bids[i].net)
		}
		return known && noteworthy(int64(all)-left, left)
	}
	for i := range bids {
		b := &bids[i]
		for _, l := range b.lines {
			rec := &r.book.records[l]
			if k := rec.refund(rec.billed.Neg(), rec.effective.Neg()); refunds[k] > 0 && b.net != rec.bought && excess() {
				refunds[k]--
				b.net -= rec.bought
				b.money = b.money.Sub(rec.effective)
				rec.stance, rec.bought = refunded, 0
			}
		}
	}
	competing := 0
	for i := range bids {
		if bids[i].net != 0 {
			competing++
		}
	}
	if competing < 2 || !excess() {
		return
	}
	slices.SortFunc(bids, func(a, b bid) int {
		return cmp.Or(-compareBool(a.own, b.own), b.money.Abs().Cmp(a.money.Abs()), cmp.Compare(a.product, b.product))
	})
	var buy, follow []string
	var out []bid
	for i, b := range bids {
		// The first buys whatever it states; the excess becomes Unseen.
		if over := int64(magnitude(b.net)) - left; i == 0 || b.net == 0 || !noteworthy(over, int64(magnitude(b.net))) {
			left -= int64(magnitude(b.net))
			buy = append(buy, fmt.Sprintf("%q", r.book.texts[b.product]))
			continue
		}
		out = append(out, b)
		if slices.ContainsFunc(b.lines, func(l int32) bool { return !r.book.records[l].isFree() }) {
			follow = append(follow, fmt.Sprintf("%q", r.book.texts[b.product]))
		}
	}
	if len(out) == 0 {
		return
	}
	why := fmt.Sprintf("SKUs state more %s than there was: %s buys it, %s follows; a mapping rule can say which does",
		strings.ReplaceAll(m.String(), "_", " "), strings.Join(buy, ", "), strings.Join(follow, ", "))
	for _, b := range out {
		for _, l := range b.lines {
			rec := &r.book.records[l]
			rec.stance, rec.bought = outbid, 0
			if !rec.isFree() {
				r.ex.money(BuyerAmbiguous, r.subjectOf(x), why, r.book, rec)
			}
		}
	}
}

var stanceTexts = [...]string{
	buysTime:  "it buys the time that it states",
	addsOn:    "it buys no time and is divided among those who held the machine",
	givesBack: "its cost and its quantity have opposite signs, so it refunds money and not time",
	outranked: "lines of a higher-ranked meter buy the machine's time, and it is divided among those who held it",
	shared:    "lines of a higher-ranked meter buy a part of its charge period, and it buys the rest",
	refunded:  "another line refunds all of it, and the time was charged again: it is divided among those who held the machine",
	outbid:    "more time is stated than there was, another SKU buys it, and this is divided among those who held the machine",
}

// sells explains why a line does or does not buy time.
func (r *record) sells(b *book) string {
	return sells(r.stance, r.meter, r.sold, b.texts[r.meterReason])
}

func sells(stance stance, meter, sold Meter, reason string) string {
	if stance == noStance {
		return ""
	}
	why := stanceTexts[stance]
	if sold != meter {
		why = "no other line would buy the machine's time, so it counts as " + sold.String() + "; " + why
	}
	if reason != "" {
		why = reason + "; " + why
	}
	return why
}
