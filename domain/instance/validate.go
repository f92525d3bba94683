package instance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
)

// Bounds of an instance.
const (
	MaxMonths    = 240
	MaxDays      = 3660
	MaxUnits     = 100_000_000
	maxQuota     = 1_000_000_000_000
	maxTerm      = 36_525 // epochs
	maxList      = 100_000
	maxScenarios = 1_000
	maxPermille  = 1_000_000
	maxWeight    = 1_000_000
	maxPast      = 24 * 3660
	// maxName holds a region, a kind, a provider, an offer and a zone of the log, 256 bytes each.
	maxName = 1400
)

var (
	one      = decimal.NewFromInt(1)
	thousand = decimal.NewFromInt(1000)
	// latest is the last day on which a horizon may begin, so that the longest term still ends in a
	// year that an instant can represent.
	latest = domain.InstantOf(time.Date(2140, 1, 1, 0, 0, 0, 0, time.UTC))
)

// Validate returns nil, or [Faults] with the rules that the instance violates.
func (in *Instance) Validate() error {
	v := &validator{
		in: in, pools: map[string]*Pool{}, regions: map[string]*Region{}, demands: map[string]*Demand{},
		quotas: map[string]bool{},
	}
	v.instance()
	if v.faults.More+len(v.faults.List) == 0 {
		v.together()
	}
	if len(v.faults.List) > 0 {
		return &v.faults
	}
	return nil
}

type validator struct {
	in      *Instance
	faults  Faults
	spans   []domain.Interval // nil while the horizon is invalid
	regions map[string]*Region
	pools   map[string]*Pool
	demands map[string]*Demand
	quotas  map[string]bool
}

func (v *validator) fault(path, text string, args ...any) {
	if len(v.faults.List) == mostFaults {
		v.faults.More++
		return
	}
	v.faults.List = append(v.faults.List, Fault{Path: path, Detail: fmt.Sprintf(text, args...)})
}

func (v *validator) check(ok bool, path, text string, args ...any) bool {
	if !ok {
		v.fault(path, text, args...)
	}
	return ok
}

func (v *validator) share(d domain.Decimal, path string) bool {
	return v.check(!d.IsNegative() && !d.GreaterThan(one), path, "%s is not a share from 0 to 1", d)
}

func (v *validator) amount(d domain.Decimal, path string) bool {
	if !v.check(!d.IsNegative(), path, "%s is negative", d) {
		return false
	}
	return v.check(d.LessThan(decimal.New(1, 18)) && d.Exponent() >= -40, path, "%s is beyond what amounts may be",
		clip(d.String()))
}

func (v *validator) id(id, path string) {
	switch {
	case id == "":
		v.fault(path, "it has no name")
	case len(id) > maxName || !utf8.ValidString(id) || strings.TrimSpace(id) != id ||
		strings.ContainsFunc(id, func(r rune) bool {
			return r < 0x20 || r == 0x7f
		}):
		v.fault(path, "%q is not a valid name: use 1 to %d bytes without control characters or surrounding space", clip(id),
			maxName)
	}
}

// unique checks the names of a list.
func unique[T any](v *validator, list []T, path string, id func(*T) string) {
	if len(list) > maxList {
		v.fault(path, "%d entries, more than the %d that may be", len(list), maxList)
		return
	}
	seen := make(map[string]int, len(list))
	for i := range list {
		x := id(&list[i])
		at := fmt.Sprintf("%s/%d/id", path, i)
		v.id(x, at)
		if j, ok := seen[x]; ok {
			v.fault(at, "%q is the name of %s/%d too", x, path, j)
		}
		seen[x] = i
	}
}

func (v *validator) currency(c, path string) {
	if c == "" || c == v.in.Currency {
		return
	}
	if _, ok := v.in.FX[c]; !ok {
		v.fault(path, "no rate is given for %q in fx: say how much %s one %s is worth", clip(c), v.in.Currency, clip(c))
	}
}

func isCurrency(c string) bool {
	return len(c) == 3 && !strings.ContainsFunc(c, func(r rune) bool { return r < 'A' || r > 'Z' })
}

func isCountry(c string) bool {
	return len(c) == 2 && !strings.ContainsFunc(c, func(r rune) bool { return r < 'A' || r > 'Z' })
}

func (v *validator) instance() {
	in := v.in
	v.check(in.Format == Format, "/format", "format is %q, not %q", clip(in.Format), Format)
	v.check(isCurrency(in.Currency), "/currency",
		"%q is not an ISO 4217 code of three capital letters, for example USD", clip(in.Currency))
	v.horizon()
	v.share(in.AnnualRate, "/annual_rate")
	v.share(in.Salvage, "/salvage")
	for _, c := range slices.Sorted(maps.Keys(in.FX)) {
		path := "/fx/" + escape(c)
		v.check(isCurrency(c), path, "%q is not an ISO 4217 code of three capital letters", clip(c))
		v.check(c != in.Currency, path, "%s is the instance's own currency, which is worth 1", c)
		v.check(in.FX[c].IsPositive() && in.FX[c].LessThan(decimal.New(1, 12)), path,
			"a rate of %s is not above 0 and below 10¹²", in.FX[c])
	}
	unique(v, in.Regions, "/regions", func(r *Region) string { return r.ID })
	for i := range in.Regions {
		r := &in.Regions[i]
		v.regions[r.ID] = r
		v.check(r.Country == "" || isCountry(r.Country), fmt.Sprintf("/regions/%d/country", i),
			"%q is not an ISO 3166-1 code of two capital letters, for example DE", clip(r.Country))
	}
	unique(v, in.Quotas, "/quotas", func(q *Quota) string { return q.ID })
	for i := range in.Quotas {
		v.quota(&in.Quotas[i], fmt.Sprintf("/quotas/%d", i))
	}
	v.check(len(in.Pools) > 0, "/pools", "there is no pool")
	unique(v, in.Pools, "/pools", func(p *Pool) string { return p.ID })
	for i := range in.Pools {
		v.pool(&in.Pools[i], fmt.Sprintf("/pools/%d", i))
	}
	v.check(len(in.Demands) > 0, "/demands", "there is no demand")
	unique(v, in.Demands, "/demands", func(d *Demand) string { return d.ID })
	for i := range in.Demands {
		v.demand(&in.Demands[i], fmt.Sprintf("/demands/%d", i))
	}
	unique(v, in.Offers, "/offers", func(o *Offer) string { return o.ID })
	for i := range in.Offers {
		v.offer(&in.Offers[i], fmt.Sprintf("/offers/%d", i))
	}
	unique(v, in.Commitments, "/commitments", func(c *Commitment) string { return c.ID })
	for i := range in.Commitments {
		v.commitment(&in.Commitments[i], fmt.Sprintf("/commitments/%d", i))
	}
	v.spends()
	v.overflow()
	v.substitutes()
	if in.Posture != nil {
		v.posture(in.Posture)
	}
	unique(v, in.Budgets, "/budgets", func(b *Budget) string { return b.ID })
	for i := range in.Budgets {
		v.budget(&in.Budgets[i], fmt.Sprintf("/budgets/%d", i))
	}
	if s := in.Limits.MaxUnservedShare; s != nil {
		v.share(*s, "/limits/max_unserved_share")
	}
	if s := in.Limits.MaxSpotShare; s != nil {
		v.share(*s, "/limits/max_spot_share")
	}
	v.scenarios()
}

// escape writes a key in JSON Pointer notation.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func (v *validator) horizon() {
	in := v.in
	most := MaxMonths
	switch in.Epoch {
	case Months:
	case Days:
		most = MaxDays
	default:
		v.fault("/epoch", "%q is neither %q nor %q", clip(string(in.Epoch)), Months, Days)
		return
	}
	ok := v.check(in.Epochs >= 1 && in.Epochs <= most, "/epochs", "%d is not within 1 to %d %ss", in.Epochs, most, in.Epoch)
	switch u := in.From.Time(); {
	case in.From.IsZero():
		v.fault("/from", "the start of the horizon is not given")
	case in.From != in.From.DayStart():
		v.fault("/from", "%s is not midnight UTC", in.From)
	case in.Epoch == Months && u.Day() != 1:
		v.fault("/from", "%s is not the first of a month, and epochs are months", in.From)
	case in.From > latest:
		v.fault("/from", "%s is after %s", in.From, latest)
	default:
		if ok {
			v.spans = in.Spans()
		}
	}
}

func (v *validator) quota(q *Quota, path string) {
	v.quotas[q.ID] = true
	v.check(q.Limit >= 0 && q.Limit <= maxQuota, path+"/limit", "%d is not within 0 to %d", q.Limit, maxQuota)
	for i, s := range q.Path {
		at := fmt.Sprintf("%s/path/%d", path, i)
		v.check(s.Limit >= 0 && s.Limit <= maxQuota, at+"/limit", "%d is not within 0 to %d", s.Limit, maxQuota)
		v.check(!s.From.IsZero(), at+"/from", "the day on which it takes effect is missing")
		v.check(i == 0 || s.From > q.Path[i-1].From, at+"/from", "%s is not after the step before", s.From)
	}
}

func (v *validator) price(p *Price, path string) {
	v.amount(p.Hourly, path+"/hourly")
	v.currency(p.Currency, path+"/currency")
	for i, s := range p.Path {
		at := fmt.Sprintf("%s/path/%d", path, i)
		v.amount(s.Hourly, at+"/hourly")
		v.check(!s.From.IsZero(), at+"/from", "the day on which it takes effect is missing")
		v.check(i == 0 || s.From > p.Path[i-1].From, at+"/from", "%s is not after the step before", s.From)
	}
}

func (v *validator) pool(p *Pool, path string) {
	v.pools[p.ID] = p
	if v.regions[p.Region] == nil {
		v.fault(path+"/region", "there is no region %q", clip(p.Region))
	}
	v.id(p.Class, path+"/class")
	v.check(p.Unit == "gpu" || p.Unit == "vm", path+"/unit", "%q is neither \"gpu\" nor \"vm\"", clip(p.Unit))
	v.check(p.GPUs >= 0 && p.GPUs <= 1024, path+"/gpus_per_unit", "%d is not within 0 to 1024", p.GPUs)
	v.check(p.Unit != "gpu" || p.GPUs <= 1, path+"/gpus_per_unit", "a unit is a GPU and has %d", p.GPUs)
	if p.OnDemand != nil {
		v.price(p.OnDemand, path+"/on_demand")
	}
	if p.Quota != "" && !v.quotas[p.Quota] {
		v.fault(path+"/quota", "there is no quota %q", clip(p.Quota))
	}
	v.check(p.QuotaPerUnit >= 0 && p.QuotaPerUnit <= 1_000_000, path+"/quota_per_unit",
		"%d is not within 0 to 1000000", p.QuotaPerUnit)
	v.check(p.Quota != "" || p.QuotaPerUnit == 0, path+"/quota_per_unit", "it needs a quota")
	if p.Spot != nil {
		v.price(&p.Spot.Price, path+"/spot")
		if v.share(p.Spot.Overhead, path+"/spot/overhead") {
			v.check(p.Spot.Overhead.LessThan(one), path+"/spot/overhead", "interruptions lose all of the time: leave spot out")
		}
		if n := p.Spot.Available; n != nil {
			v.check(*n >= 0 && *n <= MaxUnits, path+"/spot/available_units", "%d is not within 0 to %d", *n, MaxUnits)
		}
	}
	for i, c := range p.Certifications {
		v.id(c, fmt.Sprintf("%s/certifications/%d", path, i))
	}
}

// hourly checks demand by the hour.
func (v *validator) hourly(units []int, path string) {
	if v.spans != nil {
		want := hoursOf(domain.Interval{From: v.spans[0].From, To: v.spans[len(v.spans)-1].To})
		v.check(int64(len(units)) == want, path,
			"%d hours are given, and the horizon has %d: demand without gaps is needed, 0 where there is none",
			len(units), want)
	}
	for i, n := range units {
		if n < 0 || n > MaxUnits {
			v.fault(fmt.Sprintf("%s/%d", path, i), "%d is not within 0 to %d", n, MaxUnits)
			return
		}
	}
}

func (v *validator) demand(d *Demand, path string) {
	v.demands[d.ID] = d
	home := v.pools[d.Pool]
	if home == nil {
		v.fault(path+"/pool", "there is no pool %q", clip(d.Pool))
	}
	switch domain.WorkloadClass(d.Class) {
	case "", domain.ClassTraining, domain.ClassFineTuning, domain.ClassBatch, domain.ClassServing:
	default:
		v.fault(path+"/class", "%q is none of training, fine_tuning, batch, serving", clip(d.Class))
	}
	switch {
	case d.Hourly == nil && d.Duration == nil:
		v.fault(path, "neither hourly nor duration is given")
	case d.Hourly != nil && d.Duration != nil:
		v.fault(path, "hourly and duration are both given: give one of them")
	case d.Hourly != nil:
		v.hourly(d.Hourly, path+"/hourly")
	default:
		v.duration(d.Duration, path+"/duration")
	}
	v.check(len(d.Past) <= maxPast, path+"/past_hourly", "%d hours, more than the %d that may be", len(d.Past), maxPast)
	for i, n := range d.Past {
		if !v.check(n >= -1 && n <= MaxUnits, fmt.Sprintf("%s/past_hourly/%d", path, i),
			"%d is not within 0 to %d, nor the -1 of an hour that was not observed", n, MaxUnits) {
			break
		}
	}
	v.share(d.Interruptible, path+"/interruptible_share")
	v.amount(d.Shortage, path+"/shortage_hourly")
	v.check(d.LatencyBudgetMS >= 0, path+"/latency_budget_ms", "%d is negative", d.LatencyBudgetMS)
	v.amount(d.OverflowHourly, path+"/overflow_hourly")
	for i, c := range d.Countries {
		v.check(isCountry(c), fmt.Sprintf("%s/countries/%d", path, i),
			"%q is not an ISO 3166-1 code of two capital letters", clip(c))
	}
	if home != nil {
		if r := v.regions[home.Region]; r != nil && len(d.Countries) > 0 {
			v.check(slices.Contains(d.Countries, r.Country), path+"/countries",
				"the region %q of its own pool is in %s, which is none of them", r.ID, orUnknown(r.Country))
		}
		for i, c := range d.Certifications {
			v.check(slices.Contains(home.Certifications, c), fmt.Sprintf("%s/certifications/%d", path, i),
				"its own pool %q is not certified %q", home.ID, clip(c))
		}
	}
	v.share(d.DeferrableShare, path+"/deferrable_share")
	v.check(d.DeferHours >= 0 && d.DeferHours <= 744, path+"/defer_hours",
		"%d is not within 0 to 744, which are 31 days", d.DeferHours)
	v.check(d.DeferHours > 0 || d.DeferrableShare.IsZero(), path+"/defer_hours",
		"it does not say how long the deferrable share may wait")
	v.check(d.DeferHours == 0 || d.Duration == nil, path+"/defer_hours",
		"a load-duration curve has no order of hours in which demand could wait: give it hourly")
	if b := d.Buffer; b != nil {
		at := path + "/buffer"
		v.check(b.ServiceLevel.IsPositive() && b.ServiceLevel.LessThan(one), at+"/service_level",
			"%s is not above 0 and below 1", b.ServiceLevel)
		v.amount(b.FailuresPerGPUHour, at+"/failures_per_gpu_hour")
		v.amount(b.RepairHours, at+"/repair_hours")
		v.check(b.Counted >= 0 && b.Counted <= reliability.MaxCounted, at+"/interruptions_counted", "%d is not within 0 to %d",
			b.Counted, reliability.MaxCounted)
		v.check(b.UnitsPerNode >= 0 && b.UnitsPerNode <= 100_000, at+"/units_per_node",
			"%d is not within 0 to 100000", b.UnitsPerNode)
		v.check(b.GPUsPerUnit >= 0 && b.GPUsPerUnit <= 1024, at+"/gpus_per_unit", "%d is not within 0 to 1024", b.GPUsPerUnit)
		if gpus := max(1, b.UnitsPerNode) * max(1, b.GPUsPerUnit); gpus <= 1_000_000 &&
			!b.FailuresPerGPUHour.IsNegative() && !b.RepairHours.IsNegative() {
			down := reliability.Unavailability(b.FailuresPerGPUHour, b.RepairHours, gpus)
			v.check(down.LessThanOrEqual(decimal.New(5, -1)), at,
				"a node would be down %s of the time, more than half of it: %s failures of a GPU an hour, "+
					"repaired in %s hours", down.Round(4), b.FailuresPerGPUHour, b.RepairHours)
		}
	}
}

func orUnknown(country string) string {
	if country == "" {
		return "no country that is given"
	}
	return country
}

func (v *validator) duration(curves [][]Step, path string) {
	if v.spans == nil {
		return
	}
	if !v.check(len(curves) == len(v.spans), path, "%d curves are given, and the horizon has %d epochs", len(curves),
		len(v.spans)) {
		return
	}
	for m, curve := range curves {
		hours, whole := int64(0), hoursOf(v.spans[m])
		for i, s := range curve {
			at := fmt.Sprintf("%s/%d/%d", path, m, i)
			v.check(s.Units >= 0 && s.Units <= MaxUnits, at+"/units", "%d is not within 0 to %d", s.Units, MaxUnits)
			v.check(i == 0 || s.Units > curve[i-1].Units, at+"/units", "%d is not above the step before", s.Units)
			if !v.check(s.Hours >= 1 && int64(s.Hours) <= whole, at+"/hours",
				"%d is not within 1 to the %d hours of the epoch", s.Hours, whole) {
				return
			}
			hours += int64(s.Hours)
		}
		v.check(hours == whole, fmt.Sprintf("%s/%d", path, m),
			"%d hours, and the epoch has %d: each is needed, in steps of 0 units where nothing is wanted", hours,
			whole)
	}
}

func (v *validator) scenarios() {
	list := v.in.Scenarios
	unique(v, list, "/scenarios", func(s *Scenario) string { return s.ID })
	v.check(len(list) <= maxScenarios, "/scenarios", "%d scenarios, more than the %d that may be", len(list), maxScenarios)
	for i := range list {
		s, path := &list[i], fmt.Sprintf("/scenarios/%d", i)
		v.check(s.Weight >= 1 && s.Weight <= maxWeight, path+"/weight", "%d is not within 1 to %d", s.Weight, maxWeight)
		v.check(s.Factor >= 0 && s.Factor <= maxPermille, path+"/factor_permille", "%d is not within 0 to %d",
			s.Factor, maxPermille)
		for _, id := range slices.Sorted(maps.Keys(s.Factors)) {
			at := path + "/factors_permille/" + escape(id)
			v.check(v.demands[id] != nil, at, "there is no demand %q", clip(id))
			v.check(s.Factors[id] >= 0 && s.Factors[id] <= maxPermille, at, "%d is not within 0 to %d", s.Factors[id],
				maxPermille)
		}
		for _, id := range slices.Sorted(maps.Keys(s.Hourly)) {
			at := path + "/hourly/" + escape(id)
			d := v.demands[id]
			if v.check(d != nil, at, "there is no demand %q", clip(id)) {
				v.check(d.Hourly != nil, at, "demand %q is a load-duration curve, which hours cannot replace", id)
			}
			v.hourly(s.Hourly[id], at)
		}
		for _, id := range slices.Sorted(maps.Keys(s.Spot)) {
			at := path + "/spot_available_units/" + escape(id)
			p := v.pools[id]
			if v.check(p != nil, at, "there is no pool %q", clip(id)) {
				v.check(p.Spot != nil, at, "pool %q has no spot", id)
			}
			v.check(s.Spot[id] >= 0 && s.Spot[id] <= MaxUnits, at, "%d is not within 0 to %d", s.Spot[id], MaxUnits)
		}
	}
}
