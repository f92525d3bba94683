package projections

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Table names a kind of row. The numbers are internal; encodings and digests use the name.
type Table uint8

// The tables, by the topic whose events make their rows.
const (
	// Every topic.
	TableStreams Table = iota + 1
	TableQuarantine

	// qm.workspaces
	TableWorkspaces
	TableOperators
	TablePolicies
	TableQuotas
	TableBudgets
	TableRegions
	TableCertifications
	TableMethods
	TableMappingRules
	TableLegalHolds
	TablePeople

	// qm.fleet
	TableClusters
	TableClusterKeys
	TableNodes
	TableAssets
	TableMaintenance
	TableOutages

	// qm.telemetry
	TableUsage
	TableNodeGPUs
	TableServing
	TableServers
	TableJobs
	TableDemand
	TableEnergy
	TableUsageCorrections

	// qm.hardware
	TableFaults
	TableHealth

	// qm.deployments
	TableDeployments
	TableReplicas

	// qm.billing
	TableBillingLines
	TableInvoices
	TableBillingPeriods

	// qm.market
	TableOffers
	TableOnDemandQuotas
	TableSpotInterruptions
	TableTariffs
	TableFXRates

	// qm.procurement
	TablePlans
	TableScenarios
	TableRecommendations
	TableCommitments

	// qm.books
	TableCloses
	TableExports
	TableCheckpoints
	TableResolutions
	TableConflicts
	TableGapResolutions
	TableSwitches
	TableRemovals
	TableDenials

	// qm.access
	TableGrants
	TableServiceKeys
	TableSessions
	TableAccess

	// qm.incidents
	TableIncidents
	TableSilences

	tableEnd
)

var tableNames = [tableEnd]string{
	TableStreams: "streams", TableQuarantine: "quarantine",
	TableWorkspaces: "workspaces", TableOperators: "operators", TablePolicies: "policies",
	TableQuotas: "quotas", TableBudgets: "budgets", TableRegions: "regions",
	TableCertifications: "certifications", TableMethods: "methods", TableMappingRules: "mapping_rules",
	TableLegalHolds: "legal_holds", TablePeople: "people",
	TableClusters: "clusters", TableClusterKeys: "cluster_keys", TableNodes: "nodes",
	TableAssets: "assets", TableMaintenance: "maintenance", TableOutages: "outages",
	TableUsage: "usage_hours", TableNodeGPUs: "node_gpus", TableServing: "serving_hours",
	TableServers: "server_hours", TableJobs: "jobs",
	TableDemand: "demand_months", TableEnergy: "energy", TableUsageCorrections: "usage_corrections",
	TableFaults: "faults", TableHealth: "health",
	TableDeployments: "deployments", TableReplicas: "replicas",
	TableBillingLines: "billing_lines", TableInvoices: "invoices", TableBillingPeriods: "billing_periods",
	TableOffers: "offers", TableOnDemandQuotas: "on_demand_quotas",
	TableSpotInterruptions: "spot_interruptions", TableTariffs: "tariffs", TableFXRates: "fx_rates",
	TablePlans: "plans", TableScenarios: "scenarios", TableRecommendations: "recommendations",
	TableCommitments: "commitments",
	TableCloses:      "closes", TableExports: "exports", TableCheckpoints: "checkpoints",
	TableResolutions: "quarantine_resolutions", TableConflicts: "stream_conflicts", TableGapResolutions: "stream_gap_resolutions",
	TableSwitches: "generation_switches", TableRemovals: "removals", TableDenials: "denials",
	TableGrants: "grants", TableServiceKeys: "service_keys", TableSessions: "sessions", TableAccess: "access",
	TableIncidents: "incidents", TableSilences: "silences",
}

// String returns the table's name.
func (t Table) String() string {
	if t > 0 && t < tableEnd {
		return tableNames[t]
	}
	return fmt.Sprintf("table(%d)", uint8(t))
}

// Tables returns every table, in the order in which they are declared.
func Tables() []Table {
	ts := make([]Table, 0, tableEnd-1)
	for t := Table(1); t < tableEnd; t++ {
		ts = append(ts, t)
	}
	return ts
}

// Topic returns the topic whose events make the table's rows, "" for streams and quarantine, which
// all topics have.
func (t Table) Topic() domain.Topic {
	switch {
	case t <= TableQuarantine:
		return ""
	case t <= TablePeople:
		return domain.TopicWorkspaces
	case t <= TableOutages:
		return domain.TopicFleet
	case t <= TableUsageCorrections:
		return domain.TopicTelemetry
	case t <= TableHealth:
		return domain.TopicHardware
	case t <= TableReplicas:
		return domain.TopicDeployments
	case t <= TableBillingPeriods:
		return domain.TopicBilling
	case t <= TableFXRates:
		return domain.TopicMarket
	case t <= TableCommitments:
		return domain.TopicProcurement
	case t <= TableDenials:
		return domain.TopicBooks
	case t <= TableAccess:
		return domain.TopicAccess
	default:
		return domain.TopicIncidents
	}
}

// TableNamed returns the table with a name. It reports false if there is none.
func TableNamed(name string) (Table, bool) {
	for t, n := range tableNames {
		if n == name && n != "" {
			return Table(t), true
		}
	}
	return 0, false
}

// Key identifies a row. Scope is the topic key of the events that make the row. So a row always
// belongs to one partition, and no two partitions ever write the same row: that is why their order
// cannot matter. Readers see the cluster as the scope of a row about a node; see [ClusterView].
type Key struct {
	Table Table
	Scope string
	ID    string
	// Hour places a row in time if its table is split by time: hours since 1970 UTC of the hour,
	// day or month that it covers. It is 0 otherwise.
	Hour int64
}

// Compare orders keys by table name, scope, id and hour: the order of rows in
// scans, snapshots and digests.
func (k Key) Compare(l Key) int {
	if k.Table != l.Table {
		return strings.Compare(k.Table.String(), l.Table.String())
	}
	if c := strings.Compare(k.Scope, l.Scope); c != 0 {
		return c
	}
	if c := strings.Compare(k.ID, l.ID); c != 0 {
		return c
	}
	return cmp.Compare(k.Hour, l.Hour)
}

// String returns "table scope/id@hour".
func (k Key) String() string {
	s := k.Table.String() + " " + k.Scope + "/" + k.ID
	if k.Hour != 0 {
		s += "@" + domain.Instant(k.Hour*int64(domain.Hour)).String()
	}
	return s
}

// clone copies the key's text, which may share memory with a record.
func (k Key) clone() Key {
	k.Scope = strings.Clone(k.Scope)
	k.ID = strings.Clone(k.ID)
	return k
}

// HourOf returns the hour of a time, in hours since 1970 UTC.
func HourOf(t domain.Instant) int64 { return int64(t.HourStart() / domain.Hour) }

// DayOf returns the first hour of the day of a time, in hours since 1970 UTC.
func DayOf(t domain.Instant) int64 { return int64(t.DayStart() / domain.Hour) }

// MonthStart returns the first hour of the month of a time, in hours since 1970 UTC.
func MonthStart(t domain.Instant) int64 {
	u := t.Time()
	return int64(domain.InstantOf(u.AddDate(0, 0, 1-u.Day())).DayStart() / domain.Hour)
}

// Row is what folds keep: one of [*Stream], [*Quarantined], [*History], [*UsageHour], [*NodeGPUs],
// [*ServingHour], [*ServerHour] and [*DemandMonth]. Its key is not part of it.
type Row interface{ row() }

func newRow(t Table) Row {
	switch t {
	case TableStreams:
		return &Stream{}
	case TableQuarantine:
		return &Quarantined{}
	case TableUsage:
		return &UsageHour{}
	case TableNodeGPUs:
		return &NodeGPUs{}
	case TableServing:
		return &ServingHour{}
	case TableServers:
		return &ServerHour{}
	case TableDemand:
		return &DemandMonth{}
	default:
		return &History{}
	}
}

type entry struct {
	key  Key
	row  Row    // nil while sealed
	raw  []byte // the row's encoding while sealed, nil otherwise
	mark uint64 // the last batch that changed it
	gone bool   // removed by this batch
}

// shelf holds the sealed usage hours of a node, by hour. It is one object for hundreds of rows, so
// that history slows down neither lookups nor the garbage collector.
type shelf struct {
	hours []int64 // ascending
	raws  [][]byte
}

type shelfKey struct {
	scope, id string
	month     int64
}

// ShelfHours is the number of hours that a shelf spans: about a month.
const ShelfHours = 31 * 24

func shelfOf(k Key) shelfKey { return shelfKey{k.Scope, k.ID, k.Hour / ShelfHours} }

// find returns the index of an hour, or where to insert it.
func (s *shelf) find(hour int64) (int, bool) {
	if n := len(s.hours); n == 0 || hour > s.hours[n-1] {
		return n, false
	}
	return slices.BinarySearch(s.hours, hour)
}

// read returns the row without unsealing the entry, so that concurrent reads are safe.
func (e *entry) read() (Row, error) {
	if e.row != nil {
		return e.row, nil
	}
	row, err := DecodeRow(e.key.Table, e.raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.key, err)
	}
	return row, nil
}

// WorkingSet is the working set of one partition: the rows that a fold reads and changes. It is not
// safe for concurrent use. A [Store] provides it within a transaction.
type WorkingSet struct {
	tables [tableEnd]tableRows
	// Usage hours are not in tables: hours holds the open ones, shelves the sealed ones.
	hours   map[Key]*entry
	shelves map[shelfKey]*shelf
	sealed  int // hours on shelves
	changed []*entry
	// changes are the tallies of what changed since Settle, offset is that of the current record.
	changes tallies
	days    map[usageDay]int64 // the last record that changed each since Settle
	offset  int64
	settled []*entry // stored, to be sealed at once
	batch   uint64
	// declared, unless nil, is the set of keys that the fold announced. Touching any other key is a
	// programming error, which strict stores report.
	declared map[Key]bool
	trespass []Key
	// names holds one copy of each name in rows, because thousands of rows share a few names.
	names map[string]string
	// newest is the latest usage hour. kept is the number of hours that stayed open when
	// some were last sealed.
	newest int64
	kept   int
	least  int   // number that may always stay open
	served int64 // the latest hour of a server; earlier ones are sealed
	open   int   // usage hours that were left after the last eviction
	// spare are usage hours whose memory is reused for new ones.
	spare []*UsageHour
	// err is the first failure to open a sealed row.
	err error
	// below, unless nil, returns the encoding of a row that the store left to a part; nil if there is
	// none. A row that a fold asks for becomes the store's own.
	below func(Key) ([]byte, error)
}

// NewWorkingSet returns an empty working set.
func NewWorkingSet() *WorkingSet {
	return &WorkingSet{
		batch: 1, least: leastOpen,
		hours: make(map[Key]*entry), shelves: make(map[shelfKey]*shelf), days: make(map[usageDay]int64),
	}
}

// lookup returns the entry of a key, nil if there is none.
func (r *WorkingSet) lookup(k Key) *entry {
	if k.Table != TableUsage {
		return r.tables[k.Table][spanOf(k)][k]
	}
	if e := r.hours[k]; e != nil {
		return e
	}
	if s := r.shelves[shelfOf(k)]; s != nil {
		if i, ok := s.find(k.Hour); ok {
			return &entry{key: k, raw: s.raws[i]}
		}
	}
	return nil
}

// enter adds an entry.
func (r *WorkingSet) enter(e *entry) {
	if e.key.Table == TableUsage {
		if e.row == nil {
			r.shelve(e.key, e.raw)
			return
		}
		r.hours[e.key] = e
		r.newest = max(r.newest, e.key.Hour)
		return
	}
	t := &r.tables[e.key.Table]
	if *t == nil {
		*t = tableRows{}
	}
	in := spanOf(e.key)
	if (*t)[in] == nil {
		(*t)[in] = map[Key]*entry{}
	}
	(*t)[in][e.key] = e
}

// tableRows are the rows of a table by span, so that a question about some hours does not visit those of all of history.
type tableRows map[int64]map[Key]*entry

// spanOf returns the span of a row: about a month in tables that are split by time.
func spanOf(k Key) int64 {
	if k.Table.Timed() {
		return k.Hour / ShelfHours
	}
	return 0
}

// may reports whether a span may have rows that a query selects.
func (q *Query) may(span int64) bool {
	return !q.Table.Timed() || (q.From == 0 || span >= q.From/ShelfHours) && (q.To == 0 || span <= (q.To-1)/ShelfHours)
}

func (t tableRows) len() (n int) {
	for _, rows := range t {
		n += len(rows)
	}
	return n
}

// remove removes the rows for which drop returns true.
func (t tableRows) remove(drop func(Key, *entry) bool) {
	for span, rows := range t {
		if maps.DeleteFunc(rows, drop); len(rows) == 0 {
			delete(t, span)
		}
	}
}

// shelve puts a sealed hour on its shelf.
func (r *WorkingSet) shelve(k Key, raw []byte) {
	at := shelfOf(k)
	s := r.shelves[at]
	if s == nil {
		s = &shelf{}
		r.shelves[at] = s
	}
	i, ok := s.find(k.Hour)
	if ok {
		s.raws[i] = raw
		return
	}
	s.hours, s.raws = slices.Insert(s.hours, i, k.Hour), slices.Insert(s.raws, i, raw)
	r.sealed++
}

// reaches reports whether an hour of the shelf may be within the bounds of a query.
func (s *shelf) reaches(q Query) bool {
	n := len(s.hours)
	return n > 0 && (q.From == 0 || s.hours[n-1] >= q.From) && (q.To == 0 || s.hours[0] < q.To)
}

// within returns the hours of the shelf within the bounds of a query, half-open.
func (s *shelf) within(q Query) (from, to int) {
	to = len(s.hours)
	if q.From != 0 {
		from, _ = slices.BinarySearch(s.hours, q.From)
	}
	if q.To != 0 {
		to, _ = slices.BinarySearch(s.hours, q.To)
	}
	return from, max(from, to)
}

// unshelve takes an hour off its shelf, if it is on one.
func (r *WorkingSet) unshelve(k Key) {
	if s := r.shelves[shelfOf(k)]; s != nil {
		if i, ok := s.find(k.Hour); ok {
			s.hours, s.raws = slices.Delete(s.hours, i, i+1), slices.Delete(s.raws, i, i+1)
			r.sealed--
		}
	}
}

// each calls yield with every entry of a table that a query selects, in no particular order. Of a query for the last row
// of a scope and id it may yield earlier ones too.
func (r *WorkingSet) each(q Query, yield func(*entry)) {
	if q.Table != TableUsage {
		for span, rows := range r.tables[q.Table] {
			if !q.may(span) {
				continue
			}
			for k, e := range rows {
				if q.Holds(k) {
					yield(e)
				}
			}
		}
		return
	}
	if q.Scope != "" && q.ID != "" && q.From > 0 && q.To > 0 {
		r.eachOf(q, yield)
		return
	}
	for k, e := range r.hours {
		if q.Holds(k) {
			yield(e)
		}
	}
	for at, s := range r.shelves {
		if !s.reaches(q) || q.Scope != "" && q.Scope != at.scope || q.ID != "" && q.ID != at.id {
			continue
		}
		from, to := s.within(q)
		if q.Last { // the others come before it
			from = max(from, to-1)
		}
		for i := from; i < to; i++ {
			yield(&entry{key: Key{TableUsage, at.scope, at.id, s.hours[i]}, raw: s.raws[i]})
		}
	}
}

// eachOf is each for some hours of one node, without visiting other nodes.
func (r *WorkingSet) eachOf(q Query, yield func(*entry)) {
	for k := (Key{TableUsage, q.Scope, q.ID, q.From}); len(r.hours) > 0 && k.Hour < q.To; k.Hour++ {
		if e := r.hours[k]; e != nil {
			yield(e)
		}
	}
	for month := q.From / ShelfHours; month <= (q.To-1)/ShelfHours; month++ {
		s := r.shelves[shelfKey{q.Scope, q.ID, month}]
		if s == nil {
			continue
		}
		for i, to := s.within(q); i < to; i++ {
			yield(&entry{key: Key{TableUsage, q.Scope, q.ID, s.hours[i]}, raw: s.raws[i]})
		}
	}
}

func (r *WorkingSet) find(k Key) *entry {
	if r.declared != nil && !r.declared[k] {
		r.trespass = append(r.trespass, k.clone())
	}
	e := r.lookup(k)
	if e == nil && r.below != nil && k.Table.Timed() {
		raw, err := r.below(k)
		r.err = errors.Join(r.err, err)
		if raw != nil {
			e = &entry{raw: raw}
		}
	}
	if e == nil || e.row != nil {
		return e
	}
	e.key = k
	row, err := e.read()
	if err != nil {
		r.err = errors.Join(r.err, err)
		row = newRow(k.Table)
	}
	if k.Table == TableUsage {
		r.unshelve(k)
	}
	// The entry may have been made for this lookup, with a key that shares memory
	// with a record.
	k.Scope, k.ID = r.keep(k.Scope), r.keep(k.ID)
	e.key, e.row, e.raw = k, row, nil
	r.enter(e)
	return e
}

// sealsAtOnce reports whether rows of a table are sealed as soon as they are stored. A billing line
// is written once and read only with its month, and its encoding takes a quarter of the memory.
func sealsAtOnce(t Table) bool { return t == TableBillingLines }

// leastOpen is the number of usage hours that may stay open before any is sealed.
const leastOpen = 1024

// seal encodes the usage hours before the current one that the last batch did not touch. An encoded
// row takes a quarter of the memory, and the garbage collector does not scan it. A late sample
// opens it again. So the cost of folding does not grow with history.
func (r *WorkingSet) seal() {
	for _, e := range r.settled {
		if e.row == nil {
			continue
		}
		raw, err := EncodeRow(e.row)
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("%s: %w", e.key, err))
			continue
		}
		e.row, e.raw = nil, raw
	}
	clear(r.settled)
	r.settled = r.settled[:0]
	if len(r.hours) <= max(r.least, 2*r.kept) {
		return
	}
	last := r.batch - 1
	var b []byte
	for k, e := range r.hours {
		u, ok := e.row.(*UsageHour)
		if !ok || e.mark == last || k.Hour >= r.newest-1 {
			continue
		}
		b = appendUsage(b[:0], u)
		delete(r.hours, k)
		r.shelve(k, bytes.Clone(b))
		r.spare = append(r.spare, u)
	}
	r.kept = len(r.hours)
}

// Get returns a row for reading, nil if there is none.
func (r *WorkingSet) Get(k Key) Row {
	if e := r.find(k); e != nil && !e.gone {
		return e.row
	}
	return nil
}

// Add puts a row that is already stored into the working set.
func (r *WorkingSet) Add(k Key, row Row) { r.enter(&entry{key: k, row: row}) }

// addSealed adds a stored row in its encoded form.
func (r *WorkingSet) addSealed(k Key, raw []byte) { r.enter(&entry{key: k, raw: raw}) }

// fresh returns an empty row. It reuses the memory of a sealed one if possible.
func (r *WorkingSet) fresh(t Table) Row {
	if n := len(r.spare); t == TableUsage && n > 0 {
		u := r.spare[n-1]
		r.spare = r.spare[:n-1]
		u.Holders, u.Observers = u.Holders[:0], u.Observers[:0]
		return u
	}
	return newRow(t)
}

// maxNames bounds the memory of unused names.
const maxNames = 1 << 16

// keep returns a copy of a name that does not share memory with a record.
func (r *WorkingSet) keep(name string) string {
	if kept, ok := r.names[name]; ok {
		return kept
	}
	if r.names == nil || len(r.names) >= maxNames {
		r.names = make(map[string]string)
	}
	name = strings.Clone(name)
	r.names[name] = name
	return name
}

// Len returns the number of rows in the working set.
func (r *WorkingSet) Len() int {
	n := len(r.hours) + r.sealed
	for _, t := range r.tables {
		n += t.len()
	}
	return n
}

// Changed calls yield for each row changed since [WorkingSet.Settle], in the order of their first
// change. The row is nil if it was removed.
func (r *WorkingSet) Changed(yield func(Key, Row) bool) {
	for _, e := range r.changed {
		row := e.row
		if e.gone {
			row = nil
		}
		if !yield(e.key, row) {
			return
		}
	}
}

// Changes returns how many rows changed since [WorkingSet.Settle].
func (r *WorkingSet) Changes() int { return len(r.changed) }

// Settle clears the list of changes, after they were stored.
func (r *WorkingSet) Settle() {
	for _, e := range r.changed {
		if e.gone {
			delete(r.tables[e.key.Table][spanOf(e.key)], e.key)
		}
		if e.key.Table == TableServers {
			r.served = max(r.served, e.key.Hour)
		}
	}
	for _, e := range r.changed {
		if sealsAtOnce(e.key.Table) || e.key.Table == TableServers && e.key.Hour < r.served {
			r.settled = append(r.settled, e)
		}
	}
	r.changed = r.changed[:0]
	r.changes = tallies{}
	clear(r.days)
	r.batch++
}

// Evict drops rows that the last batch did not change. Usage hours before the current one are
// dropped as soon as there are more than leastOpen: they are hardly ever needed again, and memory
// would grow with history. Other rows are dropped if there are more than limit. Both wait until
// there are twice as many as were left the last time. It is for stores that can load rows again,
// after [WorkingSet.Settle].
func (r *WorkingSet) Evict(limit int) {
	clear(r.settled)
	r.settled = r.settled[:0]
	if len(r.hours) > max(r.least, 2*r.open) {
		maps.DeleteFunc(r.hours, func(k Key, e *entry) bool { return e.mark < r.batch-1 && k.Hour < r.newest-1 })
		r.open = len(r.hours)
	}
	if r.Len() <= max(limit, 2*r.kept) {
		return
	}
	stale := func(_ Key, e *entry) bool { return e.mark < r.batch-1 }
	for _, t := range r.tables {
		t.remove(stale)
	}
	maps.DeleteFunc(r.hours, stale)
	r.kept = r.Len()
}

// Holds reports whether the working set has a row under k.
func (r *WorkingSet) Holds(k Key) bool { return r.lookup(k) != nil }

// change returns the row under k for changes, a new one if there is none. Callers MUST have
// validated the event before.
func change[R Row](r *WorkingSet, k Key) R {
	e := r.find(k)
	if e == nil {
		k.Scope, k.ID = r.keep(k.Scope), r.keep(k.ID)
		e = &entry{key: k, row: r.fresh(k.Table)}
		r.enter(e)
		r.note(e.key, 1)
	}
	if e.gone {
		e.row, e.gone = r.fresh(k.Table), false
		r.note(e.key, 1)
	}
	r.touch(e)
	return e.row.(R)
}

func (r *WorkingSet) touch(e *entry) {
	r.note(e.key, 0)
	if e.mark != r.batch {
		e.mark = r.batch
		r.changed = append(r.changed, e)
	}
}

// remove deletes a row of a table that is never sealed.
func (r *WorkingSet) remove(k Key) {
	if e := r.find(k); e != nil && !e.gone {
		r.touch(e)
		r.note(e.key, -1)
		e.gone = true
	}
}
