package attribution

import (
	"fmt"

	"quartermaster/domain"
)

// run is the state of one division.
type run struct {
	book            *book
	fleet           *fleet
	keys            *keys
	names           *names
	ex              *exceptions
	reconciliations *reconciliations
	owners          *owners
	follow          *following
	result          *Result
	policy          Policy
	hardware        *hardwares

	sharing        *sharing
	matches        []match
	group          []uint32 // of each match, its place in Result.Groups from 1; 0 without lines
	nodes          []string // of each match with lines, [Line.Node]
	allocation     func(*Allocation) error
	line           Line // of the current record
	out            Allocation
	feeds          []int32 // tallies that the current record feeds
	recoverable    Amount  // tax of the current record that is not given yet
	taxed          bool    // a part of the current record is recoverable tax
	reconciliation *reconciliation
	counted        bool // the current record is counted in Result.Matches
	weights        []weight
	cut            []domain.Instant
	trace          *trace // nil when no allocation is to be explained
}

// Run divides every line of the input among those who used what was billed, and
// calls allocation with each part. The allocation and its line are reused after
// allocation returns. The same input gives the same allocations in the same order:
//
//  1. Lines that are divided by use, as soon as the usage of the last machine
//     that they match was read: by that machine (cluster, node), match method, match
//     (by its first line), charge period, and line.
//  2. Unused commitments, prepaid purchases, lines that match nothing and those that a rule gives to somebody or shares, by line.
//  3. Recurring purchases of commitments, by line.
//  4. Taxes, credits and adjustments, by line.
//  5. The rounding adjustments of invoices, by invoice; see [Reconciliation]. Their line
//     is not in the input: its id is "invoice:" and the invoice's id, its class Rounding.
//
// "By line" is by issuer, account and id. The allocations of one line come together, by hour,
// workspace, cluster, deployment and component, each at most once.
//
// A repeated line, equal in all fields, counts once. Of different lines with the same
// issuer, account and id, the first by content counts, and the others are exceptions of
// kind [LineConflict]. Account ids are assumed to be unique across suppliers.
//
// Memory is bounded by the lines (about 140 bytes each plus their ids), the usage of one
// machine, and the distinct allocation keys of what several machines share: per hour for
// pools, and per charge period for accounts.
//
// Run returns an error for input that violates its contract, and the first error of
// Lines, Usage or allocation.
func Run(in *Input, allocation func(*Allocation) error) (*Result, error) {
	switch in.Policy.Discount {
	case "", AsSupplied, OwnersFirst, PoolRate:
	default:
		return nil, fmt.Errorf("discount rule %q is unknown, want %s, %s or %s",
			in.Policy.Discount, AsSupplied, OwnersFirst, PoolRate)
	}
	r := &run{
		policy: in.Policy, allocation: allocation,
		keys: newKeys(), ex: &exceptions{}, result: &Result{}, hardware: newHardwares(),
	}
	var err error
	if r.book, err = readBook(in, r.ex); err != nil {
		return nil, err
	}
	r.fleet = newFleet(in.Nodes, in.Also, r.hardware, r.ex)
	r.names = newNames(r.fleet)
	if r.owners, err = newOwners(in.Commitments); err != nil {
		return nil, err
	}
	if r.reconciliations, err = newReconciliations(r.book, in.Invoices, r.ex); err != nil {
		return nil, err
	}
	r.book.lookalikes(r.ex)
	r.fleet.elsewhere = in.Known
	m := &matcher{book: r.book, fleet: r.fleet, rule: in.Policy.Discount}
	m.run()
	if r.sharing, err = newSharing(in.Rules, r.book); err != nil {
		return nil, err
	}
	r.billedAccounts()
	order := m.order()
	r.matches = m.matches
	*m = matcher{}
	r.buyTime()
	r.unknownMachines()
	r.groupsOf(order)
	r.follow = newFollowing(r.book)
	r.trace = r.newTrace(in.Trace)

	if err := r.divideByUse(in, order); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		bases  []basis
		divide func(*record) error
	}{
		{[]basis{byOwner, byPrepaid, byNobody, byRule}, r.withoutUse},
		{[]basis{byCovered}, r.covered},
		{[]basis{byOthers}, r.others},
	} {
		for i := range r.book.records {
			rec := &r.book.records[i]
			for _, c := range step.bases {
				if rec.basis == c {
					r.begin(rec)
					if err := r.withTax(rec, step.divide); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	if err := r.reconcile(); err != nil {
		return nil, err
	}
	r.finish()
	return r.result, nil
}

// begin makes a record the current one.
func (r *run) begin(rec *record) {
	r.book.line(rec, &r.line)
	r.line.Matching, r.line.Node = r.matching(rec), r.nodeOf(rec)
	r.out = Allocation{Line: &r.line}
	r.feeds = r.follow.feeds(rec, r.feeds[:0])
	for _, f := range r.feeds {
		r.follow.tallies[f].begin(&r.line)
	}
	if r.trace != nil {
		r.trace.current = r.trace.record >= 0 && rec == &r.book.records[r.trace.record]
	}
	r.recoverable, r.taxed = rec.recoverable, !rec.recoverable.IsZero()
	r.reconciliation = &r.reconciliations.all[rec.reconciliation]
	r.result.Lines++
	r.counted = false
	r.owners.account(r.book, rec)
}

// give emits the current allocation under a key. The caller MUST have set the hour, match method,
// weights and times of r.out.
func (r *run) give(key, hardware uint32, billed, effective Amount) error {
	if !r.recoverable.IsZero() && compareKeys(&recoverableTax, &r.keys.all[key]) < 0 {
		if err := r.giveTax(); err != nil {
			return err
		}
	}
	return r.emit(key, hardware, billed, effective)
}

func (r *run) emit(key, hardware uint32, billed, effective Amount) error {
	k := &r.keys.all[key]
	hardware = r.hardware.paid(hardware, r.line.Class)
	r.out.Hardware = r.hardware.all[hardware]
	r.out.Workspace, r.out.Cluster, r.out.Deployment, r.out.Component = k.workspace, k.cluster, k.deployment, k.component
	r.out.Billed, r.out.Effective = billed, effective
	if r.taxed { // what is recoverable has no weight among users, and the weights of a line add up
		r.out.Weight, r.out.Of = billed.Abs(), r.line.Billed.Abs()
	}
	r.result.Allocations++
	if !r.counted {
		r.result.matched(r.out.MatchMethod, r.line.Currency, &r.line)
		r.counted = true
	}
	r.reconciliation.attributed = r.reconciliation.attributed.Add(billed)
	if r.reconciliation.parts == nil {
		r.reconciliation.parts = map[uint32]Amount{}
	}
	w := r.keys.workspace[key]
	r.reconciliation.parts[w] = r.reconciliation.parts[w].Add(billed)
	for _, f := range r.feeds {
		if k.component == TaxRecoverable {
			break // nothing follows what is no cost
		}
		r.follow.tallies[f].add(key, hardware, &r.out, r.hardware)
	}
	if r.trace != nil && r.trace.key == key {
		r.trace.given(&r.out)
	}
	return r.allocation(&r.out)
}

// all gives the whole current record to one key, with the given hardware.
func (r *run) all(rec *record, hour domain.Instant, method MatchMethod, k allocationKey, hardware uint32, boughtMs int64) error {
	r.out.Hour, r.out.MatchMethod = hour, method
	r.out.Weight, r.out.Of = Whole(1), Whole(1)
	r.out.BoughtMs, r.out.AllocatedMs, r.out.UsefulMs, r.out.MeasuredMs = boughtMs, 0, 0, 0
	return r.give(r.keys.id(k), hardware, rec.cost(), rec.effective)
}

// withoutUse divides a line that needs no usage.
func (r *run) withoutUse(rec *record) error {
	switch rec.basis {
	case byOwner:
		return r.owned(rec)
	case byRule:
		if r.line.To == "" {
			return r.shared(rec)
		}
		r.trace.because("mapping rule %s charges %s for it", r.line.ToRule, r.line.To)
		k := allocationKey{workspace: r.line.To, component: Assigned}
		if r.line.To == PlatformOutside {
			k.component = Outside
		}
		return r.all(rec, 0, ByRule, k, 0, 0)
	case byPrepaid:
		r.trace.because("it pays in advance for the term of commitment %q", r.line.Commitment)
		return r.all(rec, 0, ByCommitment, allocationKey{workspace: PlatformPrepaid, component: Prepaid}, r.committed(rec), 0)
	}
	return r.unmatched(rec, rec.how)
}

// unmatched charges the current record to the platform.
func (r *run) unmatched(rec *record, how how) error {
	if rec.how < howUnknownName { // otherwise the matcher's reason is more precise
		r.line.Matching.how = how
		r.trace.because("%s", howTexts[how])
	}
	why := howTexts[how]
	kind := UnmatchedLine
	if rec.how == howNotInService {
		kind = NotInService
	}
	r.ex.money(kind, r.book.subject(rec), why, r.book, rec)
	return r.all(rec, 0, ByNothing, allocationKey{workspace: Platform, component: Unmatched}, 0, 0)
}

// unknownMachines reports lines that name a machine unknown to the fleet, and lines that a pool
// pays although their machine was not in service.
func (r *run) unknownMachines() {
	for i := range r.book.records {
		rec := &r.book.records[i]
		if rec.resource == 0 || !rec.class.buys() || rec.basis != byUse && rec.basis != byNobody || rec.method == ByResource {
			continue
		}
		account, resource := r.book.texts[rec.account], r.book.texts[rec.resource]
		switch {
		case !r.fleet.knows(account, resource):
			r.ex.money(BilledNeverSeen, r.book.subject(rec), "no machine of the account has this resource id", r.book, rec)
		case rec.basis == byUse && !r.fleet.inService(r.fleet.byResource[[2]string{account, resource}], rec.charge):
			r.ex.money(NotInService, r.book.subject(rec),
				"the machine was not in service in the charge period, and its pool pays", r.book, rec)
		}
	}
}

// billedAccounts notes for machines when the bills of their accounts are for, if some line of the account
// buys machines. Other accounts have no bill, so nothing can be missing from it.
func (r *run) billedAccounts() {
	buys, due := map[name]bool{}, map[name]*bills{}
	for i := range r.book.records {
		rec := &r.book.records[i]
		if rec.class.buys() && (rec.basis == byUse || rec.basis == byNobody) {
			buys[rec.account] = true
		}
		if due[rec.account] == nil {
			due[rec.account] = &bills{Interval: rec.billing}
		}
		due[rec.account].add(rec.billing)
	}
	for i := range r.fleet.descs {
		d := &r.fleet.descs[i]
		if account, known := r.book.ids[d.Account]; known && buys[account] {
			d.due = due[account].due()
		}
	}
}
