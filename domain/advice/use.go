package advice

import (
	"fmt"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// used sums GPU time of a cluster, or of several.
type used struct {
	usable, known, active int64 // active in milliseconds × per mille
	window                domain.Interval
	cost                  domain.Money // of all in service, a month
	clusters              int
}

func (u *used) add(v *used) {
	u.usable, u.known, u.active = u.usable+v.usable, u.known+v.known, u.active+v.active
	u.window, u.clusters = v.window, u.clusters+1
	if u.cost.Currency == "" && u.clusters == 1 {
		u.cost = v.cost
	} else if u.cost.Currency == v.cost.Currency {
		u.cost.Amount = u.cost.Amount.Add(v.cost.Amount)
	} else {
		u.cost.Currency = mixed
	}
}

// value is the mean activity: active ÷ known, where a GPU without a holder is known to do nothing.
func (u *used) value() decimal.Decimal {
	if u.known == 0 {
		return decimal.Decimal{}
	}
	return decimal.NewFromInt(u.active).DivRound(decimal.NewFromInt(u.known).Mul(decimal.NewFromInt(1000)), 18)
}

// utilization judges the mean activity of clusters over a window, and that of the fleet without those that are findings.
// What it costs is the part of the price that the same work would not need at the threshold: cost × (1 − value ÷ threshold).
func (e *evaluation) utilization(id RuleID) {
	r := e.rules[id]
	sums := map[string]*used{}
	var order []string
	for i := range e.f.Use {
		u := &e.f.Use[i]
		if u.Window.Length() != domain.Instant(r.Window) {
			continue
		}
		s := sums[u.Cluster]
		if s == nil {
			s = &used{window: u.Window, clusters: 1}
			sums[u.Cluster] = s
			order = append(order, u.Cluster)
		}
		s.usable, s.known, s.active = s.usable+u.Service-u.Down, s.known+u.Measured+u.Idle, s.active+u.Active
		e.perMonth(&s.cost, u.Cluster, u.GPUModel, u.Service, u.Window)
	}
	var rest used
	for _, cluster := range order {
		u := sums[cluster]
		if u.usable <= 0 {
			continue
		}
		if e.judgeUse(id, u, e.place(Subject{Cluster: cluster})) != Firing {
			rest.add(u)
		}
	}
	if rest.clusters > 1 {
		e.judgeUse(id, &rest, Subject{})
	}
}

func (e *evaluation) judgeUse(id RuleID, u *used, s Subject) Status {
	value, m := u.value(), measure{rule: id, subject: s, window: u.window, known: u.known > 0, coverage: covered(u.known, u.usable)}
	m.value = value
	if t := e.threshold(id, "", s); t.IsPositive() && value.LessThan(t) {
		if money := priced(u.cost); money != nil {
			left := times(*money, decimal.NewFromInt(1).Sub(value.DivRound(t, 18)))
			m.perMonth = &left
		}
	}
	who := "cluster " + s.Cluster
	if s.Cluster == "" {
		who = "the " + Many(u.clusters, "cluster") + " that no finding is about"
	}
	m.summary = fmt.Sprintf("mean SM activity of %s is %s", who, percent(value))
	if u.known == 0 {
		m.summary = "the SM activity of " + who + " is not known"
	}
	m.question = Ask("usage", "by", "cluster", "cluster", s.Cluster, "from", u.window.From.String(), "to", u.window.To.String())
	return e.judge(m)
}

// tiers judges the share of devices whose activity is below 40%, of clusters and of the fleet without those that are findings.
// What it costs is all that those devices cost.
func (e *evaluation) tiers() {
	type sum struct {
		all, known, low, clusters int
		window                    domain.Interval
		cost                      domain.Money
	}
	sums := map[string]*sum{}
	var order []string
	for i := range e.f.Devices {
		d := &e.f.Devices[i]
		s := sums[d.Cluster]
		if s == nil {
			s = &sum{window: d.Window}
			sums[d.Cluster] = s
			order = append(order, d.Cluster)
		}
		s.all, s.known, s.low = s.all+d.All, s.known+d.Known, s.low+d.Low
		e.perMonth(&s.cost, d.Cluster, d.GPUModel, d.LowMs, d.Window)
	}
	judge := func(s *sum, of Subject) Status {
		who := "cluster " + of.Cluster
		if of.Cluster == "" {
			who = "the " + Many(s.clusters, "cluster") + " that no finding is about"
		}
		return e.judge(measure{
			rule: TierMismatch, subject: of, value: share(int64(s.low), int64(s.known)), known: s.known > 0,
			coverage: covered(int64(s.known), int64(s.all)), perMonth: priced(s.cost), window: s.window, parts: s.low,
			summary:  fmt.Sprintf("%d of %s of %s have an SM activity below 40%%", s.low, Many(s.known, "device"), who),
			question: Ask("usage", "by", "gpu", "cluster", of.Cluster, "from", s.window.From.String(), "to", s.window.To.String()),
		})
	}
	var rest sum
	for _, cluster := range order {
		s := sums[cluster]
		if s.all == 0 {
			continue
		}
		// A few devices are no tier: below seven, one of them is more than 15%.
		if s.all < fewDevices || judge(s, e.place(Subject{Cluster: cluster})) != Firing {
			rest.all, rest.known, rest.low, rest.clusters = rest.all+s.all, rest.known+s.known, rest.low+s.low, rest.clusters+1
			rest.window = s.window
			if rest.clusters == 1 || rest.cost.Currency == s.cost.Currency {
				rest.cost = domain.Money{Amount: rest.cost.Amount.Add(s.cost.Amount), Currency: s.cost.Currency}
			} else {
				rest.cost.Currency = mixed
			}
		}
	}
	if rest.clusters > 1 {
		judge(&rest, Subject{})
	}
}

// fewDevices is the number of devices below which a cluster alone says nothing about tiers.
const fewDevices = 7

// oversized judges deployments that need a part of their GPUs. What it costs is the part that they do not need.
func (e *evaluation) oversized() {
	for i := range e.f.Holdings {
		h := &e.f.Holdings[i]
		var cost domain.Money
		e.perMonth(&cost, h.Cluster, h.GPUModel, h.SavedMs, h.Window)
		e.judge(measure{
			rule: Oversized, workspace: h.Workspace, known: h.GPUMs > 0, window: h.Window, perMonth: priced(cost),
			subject: e.place(Subject{Cluster: h.Cluster, Workspace: h.Workspace, Deployment: h.Deployment, GPUModel: h.GPUModel}),
			value:   share(h.SavedMs, h.GPUMs), coverage: covered(h.Coverage, 1000),
			summary: fmt.Sprintf("deployment %s uses at most %d MiB and %s of a %s: %s is enough",
				h.Deployment, h.PeakMiB, percent(share(h.Activity, 1000)), h.GPUModel, h.To),
			question: Ask("fragmentation", "region", e.place(Subject{Cluster: h.Cluster}).Region, "days", "7", "at", h.Window.To.String()),
		})
	}
}

// weekHours are the hours of a week.
const weekHours = 7 * 24

func (w *Week) weeks() int { return min(len(w.Service), len(w.Unused)) / weekHours }

// idle returns the hours of the week in which at least 90% had no holder in each of n weeks, and how many hours of them all
// had GPUs in service.
func (w *Week) idle(n int) (idle [weekHours]bool, known, all int64) {
	for h := range weekHours {
		idle[h] = true
		for k := range n {
			s, u := w.Service[k*weekHours+h], w.Unused[k*weekHours+h]
			idle[h] = idle[h] && s > 0 && u*10 >= s*9
			all++
			if s > 0 {
				known++
			}
		}
	}
	return idle, known, all
}

// Idle returns the GPU time without a holder in all idle windows of at least some hours: 0 for less than four weeks.
func (w *Week) Idle(least decimal.Decimal) (ms int64) {
	n := w.weeks()
	if n < 4 {
		return 0
	}
	idle, _, _ := w.idle(n)
	for _, r := range runs(idle[:]) {
		if decimal.NewFromInt(int64(r[1])).LessThan(least) {
			continue
		}
		for h := range r[1] {
			for k := range n {
				ms += w.Unused[k*weekHours+(r[0]+h)%weekHours]
			}
		}
	}
	return ms
}

// weeks judges the hours of the week in which at least 90% of a cluster's GPUs of a model had no holder in each of the
// last four weeks: the longest run of them. What it costs is the time without a holder in all of its runs.
func (e *evaluation) weeks() {
	for i := range e.f.Weeks {
		w := &e.f.Weeks[i]
		n := w.weeks()
		if n < 4 {
			continue
		}
		idle, known, all := w.idle(n)
		start, length := longest(idle[:])
		if length == 0 {
			continue
		}
		need := e.threshold(IdleWindow, "", Subject{Cluster: w.Cluster})
		var cost domain.Money
		e.perMonth(&cost, w.Cluster, w.GPUModel, w.Idle(need), w.Window)
		from := w.Window.From + domain.Instant(start)*domain.Hour
		at := from.Time()
		e.judge(measure{
			rule: IdleWindow, subject: e.place(Subject{Cluster: w.Cluster, GPUModel: w.GPUModel}), window: w.Window,
			value: decimal.NewFromInt(int64(length)), known: known > 0, coverage: covered(known, all), perMonth: priced(cost),
			summary: fmt.Sprintf("GPUs of model %s in cluster %s have no holder for %s from %s %02d:00 UTC in each of %d weeks",
				w.GPUModel, w.Cluster, Many(length, "hour"), at.Weekday(), at.Hour(), n),
			question: Ask("usage", "by", "hour", "cluster", w.Cluster, "from", w.Window.From.String(), "to", w.Window.To.String()),
		})
	}
}

// runs returns the runs of a circle of hours, as start and length.
func runs(idle []bool) (all [][2]int) {
	n := len(idle)
	first := 0
	for first < n && idle[first] {
		first++
	}
	if first == n {
		return [][2]int{{0, n}}
	}
	for k := 0; k < n; {
		at := (first + k) % n
		length := 0
		for length < n && idle[(at+length)%n] {
			length++
		}
		if length > 0 {
			all = append(all, [2]int{at, length})
		}
		k += length + 1
	}
	return all
}

// longest returns the longest run, the first of equal ones.
func longest(idle []bool) (start, length int) {
	for _, r := range runs(idle) {
		if r[1] > length || r[1] == length && r[0] < start {
			start, length = r[0], r[1]
		}
	}
	return start, length
}
