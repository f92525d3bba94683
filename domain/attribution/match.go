package attribution

import (
	"cmp"
	"encoding/binary"
	"slices"

	"quartermaster/domain"
)

// maxPeriod bounds the charge period of lines that are divided by hour.
const maxPeriod = 10 * 366 * domain.Day

// match is a set of machines that lines are for. Lines of one match and one charge period are
// divided alike.
type match struct {
	method MatchMethod
	descs  []int32 // ascending
	last   int32   // the last machine
	whole  bool    // divided over the charge period as a whole, not by hour
	buys   bool    // some of its lines buy machines
	// ownersFirst: what commitments bought goes to their owners first.
	ownersFirst bool
	// lines are its records, by charge period and then in the order of lines.
	lines []int32
	grid  grid
}

// matchKey says how a match was found.
type matchKey struct {
	method  MatchMethod
	account name
	what    string // resource, or SKU
	region  string
	billing domain.BillingModel // pool restricted to this billing model
	all     bool                // pool that includes machines that lines name
}

// matcher finds the machines that lines are for.
type matcher struct {
	book  *book
	fleet *fleet
	rule  Discount

	matches []match
	ids     map[matchKey]int32
	sets    map[string]int32
	named   []bool // descriptions that are named by a line that may buy machines
	served  map[servedKey]bool
	known   map[comparableKey]bool
}

type comparableKey struct{ account, sku, region name }

// fewDescriptions is up to how many descriptions are looked at for each line: what a machine with hourly lines did is not
// remembered for each hour.
const fewDescriptions = 8

type servedKey struct {
	match  int32
	period domain.Interval
}

// buys reports whether a class buys machines.
func (c Class) buys() bool { return c == Committed || c == OnDemand || c == Spot || c == Owned }

// follows reports whether lines of a class follow other lines.
func (c Class) follows() bool { return c == Tax || c == Credit || c == Rounding }

// run decides the basis of every line. The result depends on the set of lines, never on their
// order.
func (m *matcher) run() {
	b := m.book
	m.named = make([]bool, len(m.fleet.descs))
	m.ids, m.sets = map[matchKey]int32{}, map[string]int32{}
	m.served, m.known = map[servedKey]bool{}, map[comparableKey]bool{}
	for i := range b.records {
		r := &b.records[i]
		r.basis, r.how = basisOf(r, b)
		if r.toRule != 0 && (r.basis == byOthers || r.basis == byNobody) {
			r.basis, r.method = byRule, ByRule
		}
		r.sold = r.meter
		r.buyer = r.mayBuy()
	}
	m.standAlone()
	for i := range b.records {
		r := &b.records[i]
		if r.basis == byUse && r.buyer && r.resource != 0 {
			m.fleet.billed[[2]string{b.texts[r.account], b.texts[r.resource]}] = true
		}
	}
	for i := range b.records {
		r := &b.records[i]
		if r.basis == byUse && r.buyer && r.resource != 0 {
			if id, ok := m.resource(r); ok {
				for _, d := range m.matches[id].descs {
					m.named[d] = true
				}
			}
		}
	}
	// The account matches of the first pass do not count; lines join them here.
	for i := range b.records {
		r := &b.records[i]
		if r.basis != byUse {
			continue
		}
		id, how := m.find(r)
		r.how = how
		if r.toRule != 0 && (id < 0 || m.matches[id].method == ByAccount) {
			r.basis, r.method = byRule, ByRule
			continue
		}
		if id < 0 {
			r.basis, r.method = byNobody, ByNothing
			continue
		}
		x := &m.matches[id]
		r.match, r.method = id, x.method
		x.lines = append(x.lines, int32(i))
		x.buys = x.buys || r.buyer && x.method != ByAccount
	}
	for id := range m.matches {
		x := &m.matches[id]
		if len(x.lines) == 0 {
			continue
		}
		slices.SortStableFunc(x.lines, func(i, j int32) int { return byPeriod(b.records[i].charge, b.records[j].charge) })
		for _, d := range x.descs {
			m.fleet.descs[d].matches = append(m.fleet.descs[d].matches, int32(id))
			if x.buys {
				m.fleet.machines[m.fleet.descs[d].machine].billed = true
			}
		}
	}
}

// object is what lines are for, as far as the lines themselves say.
type object struct{ account, resource, sku, region name }

func (r *record) object() object {
	if r.resource != 0 {
		return object{account: r.account, resource: r.resource}
	}
	return object{account: r.account, sku: r.sku, region: r.region}
}

// standAlone turns lines that only free text calls add-ons into buyers, if no other line would buy
// in their charge period.
func (m *matcher) standAlone() {
	b := m.book
	aside := func(r *record) bool {
		return r.basis == byUse && r.class.buys() && r.meter == AddOn && r.alone != 0
	}
	buying := map[object][]domain.Interval{}
	for i := range b.records {
		if r := &b.records[i]; aside(r) {
			buying[r.object()] = nil
		}
	}
	if len(buying) == 0 {
		return
	}
	for i := range b.records {
		if r := &b.records[i]; r.basis == byUse && r.buyer {
			if of, ok := buying[r.object()]; ok {
				buying[r.object()] = append(of, r.charge)
			}
		}
	}
	for o := range buying {
		slices.SortFunc(buying[o], byPeriod)
		buying[o] = merge(buying[o])
	}
	for i := range b.records {
		if r := &b.records[i]; aside(r) && overlap(buying[r.object()], r.charge) == 0 {
			r.sold = r.alone
			r.buyer = r.mayBuy()
		}
	}
}

func basisOf(r *record, b *book) (basis, how) {
	switch category := b.texts[r.category]; {
	case r.class.follows():
		return byOthers, howNotByUse
	case r.class == Committed && category == categoryPurchase && r.recurring:
		return byCovered, howNotByUse
	case r.class == Committed && category == categoryPurchase:
		return byPrepaid, howNotByUse
	case r.class == Committed && r.unused:
		return byOwner, howNotByUse
	case r.charge.Empty():
		return byNobody, howNoPeriod
	case r.charge.Length() > maxPeriod:
		return byNobody, howLongPeriod
	}
	return byUse, howNotByUse
}

// find returns the match of the first match method that has a machine in service during the charge
// period, and how it was found; -1 if none has.
func (m *matcher) find(r *record) (int32, how) {
	if (m.rule == PoolRate || m.rule == OwnersFirst) && (r.class == Committed || r.class == OnDemand || r.class == Spot) {
		if id, ok := m.wholePool(r); ok {
			return id, howWholePool
		}
	}
	bare := false // it names a machine without GPUs
	if r.resource != 0 {
		id, ok := m.resource(r)
		if ok {
			return id, howNamed
		}
		bare = m.fleet.inService(m.fleet.byResource[[2]string{m.book.texts[r.account], m.book.texts[r.resource]}], r.charge)
	}
	if r.class == Shared || bare {
		id, ok := m.account(r)
		switch {
		case !ok:
			return -1, howNoMachine
		case bare:
			return id, howBare
		}
		return id, howShared
	}
	switch {
	case r.resource == 0:
	case m.fleet.knows(m.book.texts[r.account], m.book.texts[r.resource]):
		return -1, howNotInService
	case m.comparable(r):
		return -1, howUnknownName
	}
	return m.pool(r)
}

// comparable reports whether bill and fleet use the same names of machines: some machine that the
// line could be for is named by a line. If so, an unknown name means a machine outside the fleet,
// and users of the other machines do not pay for it.
func (m *matcher) comparable(r *record) bool {
	if r.sku == 0 {
		return false
	}
	at := comparableKey{r.account, r.sku, r.region}
	known, ok := m.known[at]
	if !ok {
		named := func(i int32) bool { return m.named[i] }
		known = len(m.inPool(r.account, m.book.texts[r.sku], m.book.texts[r.region], named)) > 0
		m.known[at] = known
	}
	return known
}

func (m *matcher) resource(r *record) (int32, bool) {
	account, resource := m.book.texts[r.account], m.book.texts[r.resource]
	return m.serving(matchKey{method: ByResource, account: r.account, what: resource}, r.charge, func() []int32 {
		return m.withGPUs(m.fleet.named(account, resource))
	})
}

func (m *matcher) account(r *record) (int32, bool) {
	return m.serving(matchKey{method: ByAccount, account: r.account}, r.charge, func() []int32 {
		return m.fleet.byAccount[m.book.texts[r.account]]
	})
}

// models are the billing models that a class of lines pays for.
var models = map[Class][]domain.BillingModel{
	Committed: {domain.BillingReserved, domain.BillingCapacityBlock},
	OnDemand:  {domain.BillingOnDemand},
	Spot:      {domain.BillingSpot},
	Owned:     {domain.BillingOwned},
}

// pool returns the account's machines of the SKU that no line names. If some are declared with the
// billing model that the line pays for, only those count.
func (m *matcher) pool(r *record) (int32, how) {
	if r.sku == 0 {
		return -1, howNoMachine
	}
	key := matchKey{method: ByPool, account: r.account, what: m.book.texts[r.sku], region: m.book.texts[r.region]}
	for _, how := range []how{howDeclared, howPool} {
		k, declared := key, how == howDeclared
		if declared {
			k.billing = models[r.class][0]
		}
		id, ok := m.serving(k, r.charge, func() []int32 {
			return m.inPool(r.account, k.what, k.region, func(i int32) bool {
				return !m.named[i] && (!declared || slices.Contains(models[r.class], m.fleet.descs[i].Billing))
			})
		})
		if ok {
			return id, how
		}
	}
	return -1, howNoMachine
}

// wholePool returns all of the account's machines of the SKU except owned hardware, named by lines
// or not. SKU and region are those of the machine that the line names, else those of the line.
func (m *matcher) wholePool(r *record) (int32, bool) {
	sku, region := m.book.texts[r.sku], m.book.texts[r.region]
	for _, i := range m.fleet.byResource[[2]string{m.book.texts[r.account], m.book.texts[r.resource]}] {
		if d := &m.fleet.descs[i]; d.SKU != "" && !d.Service.Intersect(r.charge).Empty() {
			sku, region = d.SKU, d.Region
			break
		}
	}
	if sku == "" {
		return 0, false
	}
	key := matchKey{method: ByPool, account: r.account, what: sku, region: region, all: true}
	return m.serving(key, r.charge, func() []int32 {
		return m.inPool(r.account, sku, region, func(i int32) bool { return m.fleet.descs[i].Billing != domain.BillingOwned })
	})
}

// inPool returns an account's machines of a SKU, in any region if region is "".
func (m *matcher) inPool(account name, sku, region string, which func(int32) bool) []int32 {
	var in []int32
	for _, i := range m.fleet.bySKU[[2]string{m.book.texts[account], sku}] {
		if (region == "" || m.fleet.descs[i].Region == region) && which(i) {
			in = append(in, i)
		}
	}
	return in
}

func (m *matcher) withGPUs(descs []int32) []int32 {
	return slices.DeleteFunc(descs, func(i int32) bool { return m.fleet.descs[i].GPUs == 0 })
}

// serving returns the match of a key, if one of its machines was in service during the period. It
// makes the match on first use.
func (m *matcher) serving(k matchKey, period domain.Interval, descs func() []int32) (int32, bool) {
	id, ok := m.ids[k]
	if !ok {
		id = -1
		if d := descs(); len(d) > 0 {
			owners := k.all && m.rule == OwnersFirst
			id = m.add(match{method: k.method, descs: d, whole: k.method == ByAccount, ownersFirst: owners})
		}
		m.ids[k] = id
	}
	if id < 0 {
		return 0, false
	}
	descriptions := m.matches[id].descs
	if len(descriptions) <= fewDescriptions {
		return id, m.fleet.inService(descriptions, period)
	}
	at := servedKey{id, period}
	served, ok := m.served[at]
	if !ok {
		served = m.fleet.inService(descriptions, period)
		m.served[at] = served
	}
	return id, served
}

// add returns the match of a set of machines. Different keys may lead to the same set: lines for
// the same machines are divided alike.
func (m *matcher) add(x match) int32 {
	set := make([]byte, 0, 4*len(x.descs)+2)
	set = append(set, byte(x.method), 0)
	if x.ownersFirst {
		set[1] = 1
	}
	for _, i := range x.descs {
		x.last = max(x.last, m.fleet.descs[i].machine)
		set = binary.BigEndian.AppendUint32(set, uint32(i))
	}
	id, ok := m.sets[string(set)]
	if !ok {
		id = int32(len(m.matches))
		m.sets[string(set)] = id
		m.matches = append(m.matches, x)
	}
	return id
}

// spans returns the merged charge periods of the lines that are divided by use.
func spans(records []record) []domain.Interval {
	var all []domain.Interval
	most := 1 << 16
	for i := range records {
		if records[i].basis != byUse {
			continue
		}
		if len(all) == most { // millions of lines have few periods
			slices.SortFunc(all, byPeriod)
			all = merge(all)
			most = max(most, 2*len(all))
		}
		all = append(all, records[i].charge)
	}
	slices.SortFunc(all, byPeriod)
	return merge(all)
}

// merge joins ascending intervals that touch, in place.
func merge(all []domain.Interval) []domain.Interval {
	merged := all[:0]
	for _, i := range all {
		if n := len(merged); n > 0 && i.From <= merged[n-1].To {
			merged[n-1].To = max(merged[n-1].To, i.To)
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// order returns the matches that have lines, in the order in which their lines are divided: by last
// machine, match method, and first line.
func (m *matcher) order() []int32 {
	var ids []int32
	for i := range m.matches {
		if len(m.matches[i].lines) > 0 {
			ids = append(ids, int32(i))
		}
	}
	slices.SortFunc(ids, func(i, j int32) int {
		a, b := &m.matches[i], &m.matches[j]
		return cmp.Or(
			cmp.Compare(a.last, b.last), cmp.Compare(a.method, b.method),
			cmp.Compare(slices.Min(a.lines), slices.Min(b.lines)),
		)
	})
	return ids
}
