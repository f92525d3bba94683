package attribution_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// An estate is the complete input of a division, held in memory.
type estate struct {
	lines       []attribution.Line
	nodes       []attribution.Node
	also        []attribution.OtherID
	hours       []attribution.NodeHour
	commitments []attribution.Commitment
	rules       []attribution.MeterRule
	invoices    []attribution.Invoice
	policy      attribution.Policy
	trace       *attribution.Ref
}

func (e *estate) input() *attribution.Input {
	order := make([]int, len(e.hours))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &e.hours[i], &e.hours[j]
		x, y := &e.nodes[a.Node], &e.nodes[b.Node]
		return cmp.Or(strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Node, y.Node), cmp.Compare(a.Hour, b.Hour), cmp.Compare(x.Service.From, y.Service.From), cmp.Compare(a.Held.From, b.Held.From))
	})
	return &attribution.Input{
		Lines: func(yield func(*attribution.Line) error) error {
			var reused attribution.Line
			for _, l := range e.lines {
				reused = l
				if err := yield(&reused); err != nil {
					return err
				}
			}
			return nil
		},
		Nodes: e.nodes, Also: e.also,
		Usage: func(spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) error {
			for i := 1; i < len(spans); i++ {
				if spans[i].From <= spans[i-1].To {
					return fmt.Errorf("spans %v are not ascending and disjoint", spans)
				}
			}
			for _, i := range order {
				h := e.hours[i]
				hour := domain.Interval{From: h.Hour, To: h.Hour + domain.Hour}
				if slices.ContainsFunc(spans, func(s domain.Interval) bool { return !s.Intersect(hour).Empty() }) {
					for _, part := range e.cut(h, cuts(h.Node, h.Hour)) {
						if err := yield(&part); err != nil {
							return err
						}
					}
				}
			}
			return nil
		},
		Commitments: e.commitments, Rules: e.rules, Invoices: e.invoices, Policy: e.policy, Trace: e.trace,
	}
}

// cut splits a node's usage at times within it. Usage that was not drawn for a shorter time is
// assumed to be constant.
func (e *estate) cut(h attribution.NodeHour, at []domain.Instant) (parts []attribution.NodeHour) {
	held := e.held(&h)
	at = slices.DeleteFunc(slices.Clone(at), func(t domain.Instant) bool { return t <= held.From || t >= held.To })
	if len(at) == 0 {
		return []attribution.NodeHour{h}
	}
	from := held.From
	for _, to := range append(at, held.To) {
		part := h
		part.Held, part.Parts = domain.Interval{From: from, To: to}, slices.Clone(h.Parts)
		for i := range part.Parts {
			p := &part.Parts[i]
			for _, ms := range []*int64{&p.UsefulMs, &p.KnownMs, &p.HeldMs} {
				upTo := func(t domain.Instant) int64 {
					return *ms * int64((t-held.From)/1_000_000) / int64(held.Length()/1_000_000)
				}
				*ms = upTo(to) - upTo(from)
			}
			all := h.Parts[i].GPUMs*1000 + h.Parts[i].Micros
			upTo := func(t domain.Instant) int64 {
				return all * int64((t-held.From)/1_000_000) / int64(held.Length()/1_000_000)
			}
			micros := upTo(to) - upTo(from)
			p.GPUMs, p.Micros = micros/1000, micros%1000
			p.UsefulMs = min(p.UsefulMs, p.GPUMs)
		}
		parts = append(parts, part)
		from = to
	}
	return parts
}

// held is the time that an hour covers.
func (e *estate) held(h *attribution.NodeHour) domain.Interval {
	if h.Held != (domain.Interval{}) {
		return h.Held
	}
	return e.nodes[h.Node].Service.Intersect(domain.Interval{From: h.Hour, To: h.Hour + domain.Hour})
}

// allocation is an allocation with its own copy of the line.
type allocation struct {
	attribution.Allocation
	line    attribution.Line
	node    string // of the line
	holders string // units, machines and weights
}

func (e *estate) run() ([]allocation, *attribution.Result, error) {
	var all []allocation
	res, err := attribution.Run(e.input(), func(l *attribution.Allocation) error {
		kept := allocation{*l, *l.Line, l.Line.Node, holdersText(l.Holders)}
		kept.line.Matching, kept.line.Node = attribution.Matching{}, "" // other lines change the numbers of groups
		kept.Allocation.Line, kept.Allocation.Holders = nil, nil
		all = append(all, kept)
		return nil
	})
	return all, res, err
}

func holdersText(h *attribution.Holders) string {
	var b strings.Builder
	for i := range h.Len() {
		of := h.At(i)
		fmt.Fprintf(&b, "%s@%s", of.Unit, of.Node)
		if h.Len() > 1 {
			fmt.Fprintf(&b, " %d %s %s", of.Micros, of.Billed, of.Effective)
		}
		b.WriteString("; ")
	}
	return b.String()
}

const (
	start = domain.Instant(1_777_593_600) * domain.Second // 2026-05-01T00:00:00Z
	ms    = domain.Second / 1000
	hour  = int64(domain.Hour / ms)
)

var month = domain.Interval{From: start, To: start + 31*domain.Day}

// drawing says what estates may contain.
type drawing struct {
	plain   bool // no weights by CPU or memory
	crowded bool // many lines state the time of few machines
	shared  bool // rules share some lines
	taxed   bool // some tax is recoverable
}

func drawEstate(t *rapid.T, d drawing) *estate {
	e := &estate{}
	step := domain.Hour
	if rapid.Bool().Draw(t, "cut hours") {
		step = third
	}
	const hours = 3
	cuts := int(hours * domain.Hour / step)
	period := func(name string) domain.Interval {
		if rapid.IntRange(0, 2).Draw(t, name+" is all") > 0 {
			return domain.Interval{From: start, To: start + hours*domain.Hour}
		}
		from := rapid.IntRange(0, cuts-1).Draw(t, name+" from")
		to := rapid.IntRange(from+1, cuts).Draw(t, name+" to")
		return domain.Interval{From: start + domain.Instant(from)*step, To: start + domain.Instant(to)*step}
	}
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	workspace := func(name string) string { return pick(name, "ada", "bob", "cyd") }

	for i := range rapid.IntRange(0, 3).Draw(t, "machines") {
		n := attribution.Node{
			Cluster: pick("cluster", "c1", "c2"), Node: fmt.Sprintf("n%d", i), Account: pick("node account", "x", "x", "y", ""),
			Region: "r", SKU: pick("node SKU", "big", "big", "small"), Resource: pick("node resource", "", fmt.Sprintf("i-%d", i), fmt.Sprintf("i-%d", i)),
			Billing: domain.BillingModel(pick("model", "", "reserved", "on_demand", "spot", "owned")), GPUModel: pick("GPU model", "", "h", "h", "a"),
			GPUs: rapid.SampledFrom([]int{0, 1, 2, 8, 1, 2, 8, 5000}).Draw(t, "GPUs"), Registered: rapid.Bool().Draw(t, "registered"),
			Service: period("service"),
		}
		if !d.plain && rapid.Bool().Draw(t, "has CPU") {
			n.CPUMilli, n.MemoryMiB = 8000, 1000
		}
		if d.crowded {
			n.Account, n.Resource, n.GPUs = "x", "i-0", max(1, min(n.GPUs, 8))
		}
		descs := []attribution.Node{n}
		if length := n.Service.Length(); length > step && rapid.Bool().Draw(t, "described anew") {
			again := n
			again.GPUs = rapid.SampledFrom([]int{1, n.GPUs}).Draw(t, "GPUs later")
			again.GPUModel = pick("GPU model later", n.GPUModel, "a")
			again.Resource = pick("resource later", n.Resource, "", "i-other")
			descs[0].Service.To = n.Service.From + length/step/2*step
			again.Service.From = descs[0].Service.To
			descs = append(descs, again)
		}
		owner := pick("owner", "", "ada", "bob")
		for _, n := range descs {
			e.nodes = append(e.nodes, n)
			for h := n.Service.From.HourStart(); h < n.Service.To && n.GPUs > 0; h += domain.Hour {
				if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
					continue
				}
				all := n.Service.Intersect(domain.Interval{From: h, To: h + domain.Hour})
				for from := all.From; from < all.To; from += step {
					nh := attribution.NodeHour{Node: len(e.nodes) - 1, Hour: h, Owner: owner}
					held := all.Length()
					if step < domain.Hour {
						held = min(step, all.To-from)
						nh.Held = domain.Interval{From: from, To: from + held}
					}
					left := int64(min(n.GPUs, 8)) * int64(held/ms)
					for left > 0 {
						p := attribution.Part{
							Component: rapid.SampledFrom([]attribution.Component{
								attribution.Allocated, attribution.Allocated, attribution.Allocated, attribution.Idle, attribution.BusyUnattributed,
								attribution.Unprovisioned, attribution.Failed, attribution.Maintenance, attribution.Unobserved,
							}).Draw(t, "component"),
							GPUMs: min(left, rapid.SampledFrom([]int64{1, 977, 600_000, hour, hour, 8 * hour}).Draw(t, "GPU time")),
						}
						if len(nh.Parts) == 3 {
							p.GPUMs = left
						}
						p.Micros = rapid.SampledFrom([]int64{0, 0, 333, -334}).Draw(t, "rounded away")
						left -= p.GPUMs
						if p.Component == attribution.Allocated {
							p.Workspace, p.Deployment, p.Unit = workspace("holder"), pick("deployment", "", "d"), pick("unit", "", "u1", "u2")
							p.UsefulMs = p.GPUMs * int64(rapid.IntRange(0, 4).Draw(t, "activity")) / 4
							p.KnownMs = rapid.SampledFrom([]int64{p.GPUMs, p.GPUMs, p.UsefulMs, 0}).Draw(t, "measured")
							if !d.plain && rapid.Bool().Draw(t, "asks") {
								p.HeldMs = int64(held / ms)
								p.CPUMilli, p.MemoryMiB = uint64(rapid.IntRange(0, 8000).Draw(t, "CPU")), uint64(rapid.IntRange(0, 1000).Draw(t, "memory"))
							}
						}
						nh.Parts = append(nh.Parts, p)
					}
					e.hours = append(e.hours, nh)
				}
			}
		}
	}

	for i := range e.nodes {
		if rapid.IntRange(0, 3).Draw(t, "has another name") == 0 {
			e.also = append(e.also, attribution.OtherID{Node: i, Account: pick("other account", "x", "x", "y"), Resource: pick("other resource", "i-0", "i-1", "i-2", "i-other")})
		}
	}

	amount := func(name string) attribution.Amount {
		a, err := attribution.AmountOf(decimal.New(rapid.SampledFrom([]int64{0, 1, 5, 7, 100, 123, 99999}).Draw(t, name), rapid.SampledFrom([]int32{0, -2, -2, -11, -18}).Draw(t, name+" scale")))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.IntRange(0, 5).Draw(t, name+" below zero") == 0 {
			a = a.Neg()
		}
		return a
	}
	classes := []attribution.Class{
		attribution.OnDemand, attribution.OnDemand, attribution.Committed, attribution.Committed, attribution.Spot, attribution.Owned,
		attribution.Shared, attribution.Credit, attribution.Tax, attribution.Rounding,
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "lines") {
		l := attribution.Line{
			Issuer: "S", Account: pick("account", "x", "x", "y"), ID: fmt.Sprintf("l%d", i),
			Invoice: pick("invoice", "", "v1", "v1", "v2"), Detail: pick("detail", "", "d1"),
			Currency: pick("currency", "USD", "USD", "USD", "JPY"), BillingPeriod: month, ChargePeriod: period("charge"),
			Class: rapid.SampledFrom(classes).Draw(t, "class"), Category: "Usage",
			Resource: pick("resource", "", "", "i-0", "i-1", "i-2", "i-other"), Region: pick("region", "r", "r", ""), SKU: pick("SKU", "", "big", "small"),
			Billed: amount("billed"), Effective: amount("effective"),
		}
		switch l.Class {
		case attribution.Tax, attribution.Credit:
			l.Category = l.Class.String()
			l.Category = strings.ToUpper(l.Category[:1]) + l.Category[1:]
		case attribution.Rounding:
			l.Category = "Adjustment"
		case attribution.Committed:
			l.Commitment = pick("commitment", "k1", "k2")
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				l.Category = "Purchase"
			case 1:
				l.Category, l.Recurring = "Purchase", true
			case 2:
				l.Unused = true
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "quantity") {
		case 1:
			l.NodeMs = rapid.SampledFrom([]int64{1, hour / 2, hour, 3 * hour, 5 * hour, 900_000_000_000_000, 1 << 60}).Draw(t, "machine time")
		case 2:
			l.GPUMs = rapid.SampledFrom([]int64{1, hour, 8 * hour, 24 * hour, 1 << 60}).Draw(t, "GPU time bought")
		case 3:
			l.UnusableQuantity = pick("unusable", "", "", "quantity 1e99 Hours")
		}
		switch addOn := rapid.IntRange(0, 4).Draw(t, "add-on") == 0; {
		case addOn:
			l.Meter = attribution.AddOn
		case l.GPUMs != 0:
			l.Meter = attribution.GPUTime
		case l.NodeMs != 0:
			l.Meter = rapid.SampledFrom([]attribution.Meter{attribution.MachineTime, attribution.PlainTime}).Draw(t, "meter")
		default:
			l.Meter = attribution.Unstated
		}
		if l.Meter == attribution.AddOn && rapid.Bool().Draw(t, "by free text only") {
			switch {
			case l.GPUMs != 0:
				l.Alone = attribution.GPUTime
			case l.NodeMs != 0:
				l.Alone = attribution.HardwareTime
			}
		}
		l.Product = pick("product", "", "", "p", "q")
		if d.crowded {
			l.Account, l.Resource, l.Currency, l.Billed = "x", "i-0", "USD", l.Billed.Abs()
			if l.Effective = l.Effective.Abs(); l.GPUMs == 0 && l.Meter != attribution.AddOn && l.UnusableQuantity == "" {
				l.NodeMs = rapid.SampledFrom([]int64{hour / 2, hour, hour, 3 * hour}).Draw(t, "machine time")
				l.Meter = rapid.SampledFrom([]attribution.Meter{attribution.MachineTime, attribution.PlainTime}).Draw(t, "meter")
			}
		}
		e.lines = append(e.lines, l)
		if d.crowded && rapid.IntRange(0, 3).Draw(t, "charged again") == 0 {
			again := l
			again.ID += "-again"
			e.lines = append(e.lines, again)
			if rapid.Bool().Draw(t, "refunded") {
				l.ID += "-refund"
				l.Billed, l.Effective = l.Billed.Neg(), l.Effective.Neg()
				e.lines = append(e.lines, l)
			}
		}
	}

	if rapid.Bool().Draw(t, "owned") {
		e.commitments = []attribution.Commitment{{ID: "k1", Owners: []domain.Share{{Workspace: "ada", Share: decimal.New(7, -1)}, {Workspace: "bob", Share: decimal.New(3, -1)}}}, {ID: "k2"}}
	}
	for _, id := range []string{"v1", "v2"} {
		if rapid.Bool().Draw(t, "invoice came") {
			var total attribution.Amount
			for _, l := range e.lines {
				if l.Account == "x" && l.Currency == "USD" && l.Invoice == id {
					total = total.Add(l.Billed)
				}
			}
			if rapid.Bool().Draw(t, "invoice is rounded") {
				total, _ = attribution.AmountOf(total.Decimal().Round(2))
			}
			if rapid.IntRange(0, 4).Draw(t, "invoice is wrong") == 0 {
				total = total.Add(attribution.Whole(3))
			}
			var rows []attribution.InvoiceDetail
			for range rapid.IntRange(0, 2).Draw(t, "rows") {
				d := attribution.InvoiceDetail{ID: pick("row", "d1", "d1", "d2", "")}
				for _, l := range e.lines {
					if l.Account == "x" && l.Currency == "USD" && l.Invoice == id && l.Detail == d.ID {
						d.Amount = d.Amount.Add(l.Billed)
					}
				}
				if rapid.Bool().Draw(t, "row is rounded") {
					d.Amount, _ = attribution.AmountOf(d.Amount.Decimal().Round(2))
				}
				if rapid.IntRange(0, 4).Draw(t, "row is wrong") == 0 {
					d.Amount = d.Amount.Add(attribution.Whole(3))
				}
				rows = append(rows, d)
			}
			e.invoices = append(e.invoices, attribution.Invoice{Issuer: "S", Account: "x", ID: id, Currency: "USD", Total: total, Details: rows,
				Status: pick("status", "Issued", "Issued", "Voided")})
		}
	}
	if d.shared {
		e.share(t)
	}
	if d.taxed {
		e.tax(t)
	}
	e.policy = attribution.Policy{
		Discount:       attribution.Discount(pick("discount", "", "as_supplied", "owners_first", "pool_rate")),
		IdleToPlatform: rapid.Bool().Draw(t, "idle to platform"),
	}
	return e
}
