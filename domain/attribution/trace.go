package attribution

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// Trace explains one allocation. It is recorded while the allocation's line is divided, by the code
// that divides it, and so shows exactly what that used.
type Trace struct {
	// Allocation is the allocation, with its own copy of the line.
	Allocation Allocation `json:"allocation"`
	// ClassReason is the line's: the columns that decided its class. MatchReason says why the line
	// was divided by the allocation's match method.
	ClassReason string `json:"class_reason"`
	MatchReason string `json:"match_reason"`
	// MeterReason says what the line sells, and why it does or does not buy machine time; "" for a
	// line that is not for machines.
	MeterReason string `json:"meter_reason,omitempty"`
	// Machines are those that the line was matched to and that were in service or used in its
	// charge period, by index. They are empty for a line that is not divided by use.
	Machines []MachineWeight `json:"machines"`
	// UnseenMs is the part of the allocation's Of that was bought beyond what the machines had in
	// the charge period, in GPU milliseconds.
	UnseenMs int64 `json:"unseen_ms"`
	// Followed is what the line followed; nil for a line that followed none.
	Followed *Followed `json:"followed,omitempty"`
}

// inMs converts microseconds to milliseconds, rounding down cumulative sums.
func (x *Trace) inMs() {
	var weight, period int64
	for i := range x.Machines {
		m := &x.Machines[i]
		w, p := weight+m.WeightMs, period+m.PeriodMs
		m.WeightMs, m.PeriodMs, m.UsefulMs = w/1000-weight/1000, p/1000-period/1000, m.UsefulMs/1000
		weight, period = w, p
	}
}

// MachineWeight is the weight of one machine, under one description, in a traced allocation and in
// the charge period of its line, in GPU milliseconds. Time counts as it was used in the division:
// limited to the charge period, and by dominant shares.
type MachineWeight struct {
	// Node is an index into Input.Nodes: the first with the description.
	Node int `json:"node"`
	// WeightMs add up to the allocation's Weight in whole milliseconds, except for an Unseen
	// allocation, whose time is not on any machine. UsefulMs is the useful part of WeightMs.
	WeightMs int64 `json:"weight_ms"`
	UsefulMs int64 `json:"useful_ms"`
	// PeriodMs is all of the machine's time in the charge period, whoever held it. With UnseenMs
	// they add up to the allocation's Of. Under OwnersFirst they may add up to more, because a
	// commitment takes a part of the time and leaves the rest to other lines. WeightMs is then the
	// machine's part of what was left or taken, in proportion to its time under the allocation's
	// key.
	PeriodMs int64 `json:"period_ms"`
}

// Followed describes the charges that a line was divided by.
type Followed struct {
	// Scope is resource, invoice_detail, invoice, account or commitment, and Name identifies it.
	// Period is the billing period of a resource or an account, and the charge period of a
	// commitment's fee.
	Scope  string          `json:"scope"`
	Name   string          `json:"name"`
	Period domain.Interval `json:"period,omitzero"`
	Lines  int             `json:"lines"` // number of lines followed
	// Billed and Effective are the net cost of those lines. The allocation's Of adds up only
	// allocation keys whose cost has the sign of the total. For a credit for a resource, it adds up
	// only what credits pay for.
	Billed    Amount `json:"billed"`
	Effective Amount `json:"effective"`
}

// how says how a line found its match, or why it found none.
type how uint8

const (
	howNotByUse how = iota
	howNamed
	howShared
	howBare
	howDeclared
	howPool
	howWholePool
	howUnknownName
	howNotInService
	howNoMachine
	howNoPeriod
	howLongPeriod

	// Found out when the line is divided.
	howNoUsage
	howNoCharge
	howCancelled
)

var howTexts = [...]string{
	howNamed:  "ResourceId names machines of the billing account",
	howShared: "it is not for a machine, and all machines of the billing account share it",
	howBare:   "ResourceId names a machine without GPUs, which serves all machines of the billing account",
	howDeclared: "it is for the account's machines of the SKU and region that no line names, " +
		"and that are declared as what it pays for",
	howPool: "it is for the account's machines of the SKU and region that no line names",
	howWholePool: "the discount rule divides it among all of the account's machines of the SKU and region " +
		"except owned hardware, named by lines or not",
	howUnknownName:  "ResourceId names no machine of the fleet, and other lines do name machines that it could be for",
	howNotInService: "ResourceId names a machine that was not in service in the charge period",
	howNoMachine:    "no machine of the fleet matches it",
	howNoPeriod:     "its charge period is empty",
	howLongPeriod:   "its charge period is longer than ten years",
	howNoUsage:      "there was no usage in the charge period to divide it by",
	howNoCharge:     "there is no charge that it could follow",
	howCancelled:    "the charges that it follows cancel out",
}

// trace is the state of a Trace.
type trace struct {
	ref    Ref
	record int32 // of the allocation's line; -1 for a rounding adjustment, whose line is not in the book
	match  int32 // of that record's line; -1 for none
	period domain.Interval
	key    uint32
	taken  bool                     // a part of the measured time went to owners, and a part to others
	had    map[int32]*MachineWeight // by description

	current  bool   // the line being divided is the allocation's
	reason   string // why it was divided by the match method
	sells    string // what it sells
	unseen   int64
	followed *Followed
	found    *Trace
	line     Line
}

// newTrace returns nil if no trace was requested.
func (r *run) newTrace(ref *Ref) *trace {
	if ref == nil {
		return nil
	}
	t := &trace{ref: *ref, record: -1, match: -1, had: map[int32]*MachineWeight{}}
	t.key = r.keys.id(allocationKey{ref.Workspace, ref.Cluster, ref.Deployment, ref.Component})
	for i := range r.book.records {
		if rec := &r.book.records[i]; t.names(r.book.texts[rec.issuer], r.book.texts[rec.account], rec.id) {
			t.record, t.match, t.period, t.reason, t.sells = int32(i), rec.match, rec.charge, howTexts[rec.how], rec.sells(r.book)
		}
	}
	if t.match < 0 {
		return t
	}
	t.taken = r.matches[t.match].ownersFirst
	for _, d := range r.matches[t.match].descs {
		if !r.fleet.descs[d].Service.Intersect(t.period).Empty() {
			t.at(d)
		}
	}
	return t
}

func (t *trace) names(issuer, account, id string) bool {
	return id == t.ref.Line && account == t.ref.Account && issuer == t.ref.Issuer
}

func (t *trace) at(desc int32) *MachineWeight {
	m := t.had[desc]
	if m == nil {
		m = &MachineWeight{}
		t.had[desc] = m
	}
	return m
}

// use records what a machine adds to a slot of the traced line's match.
func (t *trace) use(desc int32, s *slot, u use, whole bool) {
	if s.from < t.period.From || s.from >= t.period.To {
		return
	}
	m := t.at(desc)
	m.PeriodMs += u.micros
	if u.key == t.key && (whole || s.from.HourStart() == t.ref.Hour) {
		m.WeightMs += u.micros
		m.UsefulMs += u.useful
	}
}

// followed records what the current line is divided by.
func (r *run) followed(rec *record, t *tally) {
	if r.trace == nil || !r.trace.current {
		return
	}
	b, s := r.book, &t.of
	f := s.followed(b.texts[scopeName(s)])
	f.Lines = t.lines
	for _, c := range t.sums {
		f.Billed, f.Effective = f.Billed.Add(c.billed), f.Effective.Add(c.effective)
	}
	r.trace.followed = &f
	r.trace.reason = fmt.Sprintf("it follows the charges of %s %q, the nearest that cost anything", f.Scope, f.Name)
	if rec.basis == byCovered {
		r.trace.reason = fmt.Sprintf("it is a fee for commitment %q, and follows what that covered and what stayed unused", f.Name)
	}
}

// because records why the current line has its match method.
func (t *trace) because(format string, args ...any) {
	if t != nil && t.current {
		t.reason = fmt.Sprintf(format, args...)
	}
}

// given records the allocation, if it is the traced one.
func (t *trace) given(l *Allocation) {
	if l.Hour != t.ref.Hour || !t.names(l.Line.Issuer, l.Line.Account, l.Line.ID) {
		return
	}
	t.line = *l.Line
	t.found = &Trace{Allocation: *l}
	t.found.Allocation.Line = &t.line
}

// done returns the trace after everything was divided.
func (t *trace) done(f *fleet) *Trace {
	if t == nil || t.found == nil {
		return nil
	}
	x := t.found
	x.ClassReason, x.MatchReason, x.MeterReason, x.UnseenMs, x.Followed = t.line.ClassReason, t.reason, t.sells, t.unseen, t.followed
	x.Machines = make([]MachineWeight, 0, len(t.had))
	if x.Allocation.MatchMethod > ByAccount {
		return x
	}
	first := make([]int, len(f.descs))
	for i := len(f.index) - 1; i >= 0; i-- {
		first[f.index[i]] = i
	}
	var measured uint64
	for d, m := range t.had {
		m.Node = first[d]
		x.Machines = append(x.Machines, *m)
		measured += uint64(m.WeightMs)
	}
	slices.SortFunc(x.Machines, func(a, b MachineWeight) int { return cmp.Compare(a.Node, b.Node) })
	weight, _ := x.Allocation.Weight.parts()
	whole, _ := weight.divMod(one18 / 1000)
	defer x.inMs()
	if !t.taken || measured == 0 {
		return x
	}
	parts, at := division{whole: whole}, uint64(0)
	for i := range x.Machines {
		m := &x.Machines[i]
		if m.WeightMs > 0 {
			at += uint64(m.WeightMs)
			part := parts.nextMs(at, measured)
			m.UsefulMs = int64(u128{0, uint64(m.UsefulMs)}.scale64(uint64(part), uint64(m.WeightMs)).lo)
			m.WeightMs = part
		}
	}
	return x
}
