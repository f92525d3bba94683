package question

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"quartermaster/domain"
)

// need is guaranteed capacity that must be there when a region or a provider is lost.
type need struct {
	lost   string // in words
	terms  []NeedTerm
	least  int
	epochs []int
}

// mostSets bounds the groups of protected demand that may go to different pools.
const mostSets = 10

// survive states what a posture needs.
func (r *reading) survive() error {
	p := r.doc.Posture
	if p == nil || p.Share.IsZero() {
		return nil
	}
	var protected []int
	at := map[string][]int{} // by home region
	for i := range r.doc.Demands {
		d := &r.doc.Demands[i]
		if slices.Contains(p.Demands, d.ID) || len(p.Demands) == 0 && d.Class == "serving" {
			protected = append(protected, i)
			home := r.doc.Pools[r.pool[d.Pool]].Region
			at[home] = append(at[home], i)
		}
	}
	if p.Kind == "multi_provider" {
		var gone []string
		for _, pool := range r.doc.Pools {
			if pool.Provider == "" {
				return fmt.Errorf("posture: pool %q names no provider", pool.ID)
			}
			if slices.Contains(gone, pool.Provider) {
				continue
			}
			gone = append(gone, pool.Provider)
		}
		slices.Sort(gone)
		for _, lost := range gone {
			if err := r.lose(fmt.Sprintf("provider %q", lost), protected, func(p *pool) bool { return p.Provider != lost }); err != nil {
				return err
			}
		}
		return nil
	}
	for _, lost := range r.doc.Regions {
		var err error
		words := fmt.Sprintf("region %q", lost.ID)
		switch {
		case p.Kind == "active_active":
			err = r.lose(words, protected, func(p *pool) bool { return p.Region != lost.ID })
		case p.Kind != "active_passive":
			err = fmt.Errorf("posture %q is none of active_active, active_passive and multi_provider", p.Kind)
		case lost.ID == p.Standby || len(at[lost.ID]) == 0:
		case p.Cold != nil:
			err = r.cold(lost.ID, at[lost.ID])
		default:
			err = r.lose(words, slices.Concat(at[lost.ID], at[p.Standby]), func(x *pool) bool { return x.Region == p.Standby })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lose states the needs for a loss: for each set of demands, the pools that remain.
func (r *reading) lose(lost string, demands []int, remains func(p *pool) bool) error {
	stays := func(pool int) bool { return remains(&r.doc.Pools[pool]) }
	var alike [][]int // demands with the same pools
	names := map[string]int{}
	for _, i := range demands {
		var pools []int
		for _, way := range r.routes[i] {
			if stays(way.pool) {
				pools = append(pools, way.pool)
			}
		}
		if len(pools) == 0 {
			return fmt.Errorf("posture: no pool may serve demand %q when %s is lost", r.doc.Demands[i].ID, lost)
		}
		slices.Sort(pools)
		name := fmt.Sprint(pools)
		k, ok := names[name]
		if !ok {
			k = len(alike)
			names[name] = k
			alike = append(alike, nil)
		}
		alike[k] = append(alike[k], i)
	}
	if len(alike) > mostSets {
		return fmt.Errorf("posture: demand goes %d different ways when %s is lost", len(alike), lost)
	}
	peaks, err := r.peaks(alike)
	if err != nil {
		return err
	}
	type of struct {
		set   int
		terms []NeedTerm
		key   string
	}
	var sets []of
	for set := 1; set < 1<<len(alike); set++ {
		x := of{set: set}
		for pool := range r.doc.Pools {
			if !stays(pool) {
				continue
			}
			num, den := 0, 1 // the most that a unit of the set takes of the pool
			for k := range alike {
				if set&(1<<k) == 0 {
					continue
				}
				for _, i := range alike[k] {
					for _, way := range r.routes[i] {
						if way.pool == pool && int64(way.num)*int64(den) > int64(num)*int64(way.den) {
							num, den = way.num, way.den
						}
					}
				}
			}
			if num > 0 && 1000*den/num > 0 {
				x.terms = append(x.terms, NeedTerm{pool, 1000 * den / num})
			}
		}
		if len(x.terms) == 0 {
			return fmt.Errorf("posture: when %s is lost a unit takes more than 1000 units of whatever remains", lost)
		}
		x.key = fmt.Sprint(x.terms)
		sets = append(sets, x)
	}
	slices.SortStableFunc(sets, func(a, b of) int { return bits.OnesCount(uint(b.set)) - bits.OnesCount(uint(a.set)) })
	share := r.doc.Posture.Share.Shift(3).Ceil().IntPart()
	for n, x := range sets {
		// A larger set with the same capacity says more.
		if slices.ContainsFunc(sets[:n], func(y of) bool { return y.key == x.key && y.set&x.set == x.set }) {
			continue
		}
		scale, terms := 1000, x.terms
		if !slices.ContainsFunc(terms, func(t NeedTerm) bool { return t.PerUnit != 1000 }) {
			scale, terms = 1, slices.Clone(terms)
			for i := range terms {
				terms[i].PerUnit = 1
			}
		}
		by := map[int][]int{}
		for e, peak := range peaks[x.set] {
			if units := int((int64(peak)*share + 999) / 1000); units > 0 {
				by[units] = append(by[units], e)
			}
		}
		var all []int
		for units := range by {
			all = append(all, units)
		}
		slices.Sort(all)
		for _, units := range all {
			r.needs = append(r.needs, need{lost, terms, units * scale, by[units]})
		}
	}
	return nil
}

// peaks are, for each set of lists of demands and each epoch, the most that is wanted in one hour of
// any scenario, as it comes.
func (r *reading) peaks(lists [][]int) ([][]int, error) {
	out := make([][]int, 1<<len(lists))
	for i := range out {
		out[i] = make([]int, r.cal.n)
	}
	sums := make([]int, len(out))
	for s := range r.scenarios {
		each := make([][]int, len(lists))
		for k, list := range lists {
			each[k] = make([]int, r.cal.hours[r.cal.n])
			for _, i := range list {
				load, _, _, err := r.wanted(i, s)
				if err != nil {
					return nil, err
				}
				for h, n := range load {
					each[k][h] += n
				}
			}
		}
		for e := range r.cal.n {
			for h := r.cal.hours[e]; h < r.cal.hours[e+1]; h++ {
				for set := 1; set < len(out); set++ {
					low := bits.TrailingZeros(uint(set))
					sums[set] = sums[set&^(1<<low)] + each[low][h]
					out[set][e] = max(out[set][e], sums[set])
				}
			}
		}
	}
	return out, nil
}

// cold adds what a cold standby costs.
func (r *reading) cold(lost string, demands []int) error {
	p := r.doc.Posture
	share := p.Share.Shift(3).Ceil()
	none := len(r.doc.Pools)
	for _, i := range demands {
		peaks, err := r.peaks([][]int{{i}})
		if err != nil {
			return err
		}
		sum := zero
		for e := range r.cal.n {
			var least *domain.Decimal
			for _, way := range r.routes[i] {
				if prices := r.onDemand[way.pool]; prices != nil && r.doc.Pools[way.pool].Region == p.Standby {
					v := prices[e].Mul(whole(way.num)).DivRound(whole(way.den), places)
					if least == nil || v.LessThan(*least) {
						least = &v
					}
				}
			}
			if least == nil {
				return fmt.Errorf("posture: the standby %q sells nothing on demand for demand %q when region %q is lost",
					p.Standby, r.doc.Demands[i].ID, lost)
			}
			money := least.Mul(*p.Cold).Mul(whole(peaks[1][e])).Mul(share).Shift(-3).Mul(whole(r.cal.length(e)))
			r.cash[e], r.accrual[none][e] = r.cash[e].Add(money), r.accrual[none][e].Add(money)
			sum = sum.Add(money.Mul(r.cal.middle[e]))
		}
		r.committed = r.committed.Add(sum)
	}
	return nil
}

// kept verifies the needs against guaranteed capacity by pool and epoch.
func (r *reading) kept(guaranteed [][]int) error {
	for _, n := range r.needs {
		for _, e := range n.epochs {
			have, pools := int64(0), []string{}
			for _, t := range n.terms {
				have += int64(t.PerUnit) * int64(guaranteed[t.Pool][e])
				pools = append(pools, r.doc.Pools[t.Pool].ID)
			}
			if have < int64(n.least) {
				return fmt.Errorf("posture: when %s is lost in %s, pools %s carry %d of %d", n.lost, r.cal.name(e),
					strings.Join(pools, ", "), have, n.least)
			}
		}
	}
	return nil
}
