package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Retention shows what may be removed now, and what holds it.
type Retention struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	// Due has what each policy lets go now.
	Due []RetentionDue `json:"due"`
	registry.Retention
}

// RetentionDue is what a policy lets go now.
type RetentionDue struct {
	What    domain.Retained  `json:"what"`
	Policy  string           `json:"policy"`
	Rule    string           `json:"rule"`
	Removed []domain.Removed `json:"removed"` // what would be removed
	Records uint64           `json:"records"` // in it
	Holds   []string         `json:"holds"`   // the legal holds that keep more
	// Note says why nothing can be removed, or what is not checked yet.
	Note string `json:"note,omitempty"`
}

// Retention returns what the policies let go now, and what holds it. It removes nothing, and does not
// read the archive through.
func (c *Caller) Retention(ctx context.Context) (ans *Retention, err error) {
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	ans = &Retention{At: c.app.clock(), Due: []RetentionDue{}}
	err = h.View(ctx, func(v projections.View) error {
		r, err := retentionOf(v, ans.At)
		if err != nil {
			return err
		}
		ans.Position, ans.Retention = v.Position().String(), *r
		for _, rule := range r.Rules {
			due := RetentionDue{
				What: rule.What, Policy: rule.Policy, Rule: rule.Rule, Removed: []domain.Removed{}, Holds: []string{},
			}
			rem, err := h.remover(rule.What, "")
			if err == nil {
				var plan removable
				if plan, err = rem.plan(ctx, v, r, &rule, ans.At); err == nil {
					due.Removed, due.Holds = append(due.Removed, plan.removed...), append(due.Holds, plan.holds...)
					due.Records = recordsOf(due.Removed)
				}
			}
			if k := KindOf(err); k == KindInvalid || k == KindUnavailable {
				due.Note, err = err.Error(), nil
			}
			if err != nil {
				return fmt.Errorf("look for %s to remove: %w", rule.What, err)
			}
			ans.Due = append(ans.Due, due)
		}
		return nil
	})
	return ans, err
}

func retentionOf(v projections.View, at domain.Instant) (*registry.Retention, error) {
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	return registry.NewRetention(v, auth, at)
}

func recordsOf(list []domain.Removed) (n uint64) {
	for i := range list {
		n += list[i].Records
	}
	return n
}

// removable is what a policy lets go.
type removable struct {
	removed []domain.Removed
	holds   []string // that keep more
}

func (p *removable) add(r domain.Removed) { p.removed = append(p.removed, r) }

// keep notes holds that keep something.
func (p *removable) keep(holds ...string) {
	for _, hold := range holds {
		if !slices.Contains(p.holds, hold) {
			p.holds = append(p.holds, hold)
		}
	}
	slices.Sort(p.holds)
}

// remover removes one kind of records.
type remover interface {
	// plan returns what a rule lets go at a time.
	plan(
		ctx context.Context, v projections.View, r *registry.Retention, rule *registry.RetentionRule, now domain.Instant,
	) (removable, error)
	// due returns what reports whether a rule lets go of something at a time. Whoever names it: a removal
	// that began is not proof that it may go.
	due(
		ctx context.Context, v projections.View, rule *registry.RetentionRule, now domain.Instant,
	) (func(*domain.Removed) (bool, error), error)
	// held returns the holds that keep what may be removed.
	held(ctx context.Context, v projections.View, holds []registry.LegalHold, r *domain.Removed) ([]string, error)
	// check fails if something of a plan must not be removed after all. It may take long.
	check(ctx context.Context, list []domain.Removed) error
	// remove removes something. What is removed already stays so. It fails with errStays if it must
	// not be removed now after all.
	remove(ctx context.Context, r *domain.Removed) error
	// gone reports whether something is removed.
	gone(ctx context.Context, r *domain.Removed) (bool, error)
}

// errStays means that something changed since a removal began, and stays for now. A later removal may
// take it.
var errStays = errors.New("it stays for now")

// remover returns the remover of a kind. only bounds what is removed further, if it is not empty: of the log
// by a time, of people to one of them.
func (h *Conn) remover(what domain.Retained, only string) (remover, error) {
	switch what {
	case domain.RetainedLog:
		if h.archive == nil {
			return nil, errNoArchive
		}
		t, err := beforeTime(only)
		return &logRemover{h, t}, err
	case domain.RetainedSnapshots:
		return snapshotRemover{h}, nil
	case domain.RetainedQuarantine:
		return &quarantineRemover{}, nil
	case domain.RetainedHours:
		if h.DB == nil || h.app.Config.Parts == "" {
			return nil, errNoParts
		}
		return &hoursRemover{h: h, dir: h.Parts()}, nil
	case domain.RetainedPeople:
		keys, err := h.app.peopleKeys()
		return &peopleRemover{keys: keys, only: only}, err
	}
	return nil, invalid("what", "%q is nothing that can be removed", what)
}

// errNoParts means that rows cannot be left to parts here.
var errNoParts = &InvalidError{Err: errors.New("rows leave only a database, and only with parts " +
	"in the configuration: a directory that every instance reads")}

// RemovedBy says what a removal did.
type RemovedBy struct {
	Removal string           `json:"removal,omitempty"` // its id; "" if there was nothing to remove
	What    domain.Retained  `json:"what"`
	Policy  string           `json:"policy"`
	Rule    string           `json:"rule"`
	Removed []domain.Removed `json:"removed"`
	Records uint64           `json:"records"`
	Holds   []string         `json:"holds"` // the legal holds that keep more
	Resumed bool             `json:"resumed"`
	DryRun  bool             `json:"dry_run"`
}

// errNoPolicy means that nothing may be removed, because no policy says so.
var errNoPolicy = errors.New("no retention policy lets go of it, so everything stays")

// removeBy removes what the policy for a kind of records lets go at a time. It finishes a removal that
// was interrupted first, as far as a policy still lets go of it, and then nothing more. A removal is in
// the log before it begins, and once it ended: whatever happens in between, the same removal is finished
// and recorded once.
func (h *Conn) removeBy(
	ctx context.Context, what domain.Retained, by, only string, now domain.Instant, dryRun bool,
) (*RemovedBy, error) {
	if err := h.settled(ctx, func(_ projections.View, r *registry.Retention) error {
		if r.Rule(what) == nil && (dryRun || len(r.Unfinished(what)) == 0) {
			return &DeniedError{Err: fmt.Errorf("remove %s: %w: \"quartermaster apply\" declares one (kind retention, scope %s)",
				what, errNoPolicy, what)}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	rem, err := h.remover(what, only)
	if err != nil {
		return nil, err
	}
	if !dryRun {
		if done, err := h.finishRemovals(ctx, rem, what, now); err != nil || done != nil {
			return done, err
		}
	}
	if what == domain.RetainedHours && !dryRun {
		if err := h.View(ctx, func(v projections.View) error {
			_, err := h.makeParts(ctx, v)
			return err
		}); err != nil {
			return nil, fmt.Errorf("make parts: %w", err)
		}
	}
	ans := &RemovedBy{What: what, DryRun: dryRun, Removed: []domain.Removed{}, Holds: []string{}}
	at := Now() // names the removal
	if err := h.settled(ctx, func(v projections.View, r *registry.Retention) error {
		rule := r.Rule(what)
		if rule == nil {
			return nil // it ended just now
		}
		ans.Policy, ans.Rule = rule.Policy, rule.Rule
		plan, err := rem.plan(ctx, v, r, rule, now)
		ans.Removed, ans.Holds = append(ans.Removed, plan.removed...), append(ans.Holds, plan.holds...)
		return err
	}); err != nil {
		return nil, err
	}
	ans.Records = recordsOf(ans.Removed)
	if len(ans.Removed) == 0 {
		return ans, nil
	}
	if err := rem.check(ctx, ans.Removed); err != nil || dryRun {
		return ans, err
	}
	ans.Removal = fmt.Sprintf("%s/%s", what, at)
	started := &domain.RemovalStarted{
		Entity: Platform, Removal: ans.Removal, What: what, Policy: ans.Policy, Rule: ans.Rule, By: by, Removed: ans.Removed,
	}
	if err := h.RecordRemoval(ctx, started, at); err != nil {
		return nil, err
	}
	checked := slices.Repeat([]bool{true}, len(ans.Removed))
	done, err := h.endRemoval(ctx, rem, &registry.Removal{RemovalStarted: *started, Started: at}, checked, now)
	if err != nil {
		return nil, err
	}
	kept := removable{holds: ans.Holds}
	kept.keep(done.Holds...)
	done.Holds = kept.holds
	return done, nil
}

// finishRemovals finishes the removals of a kind that were interrupted, and returns the last of them,
// nil if there was none.
func (h *Conn) finishRemovals(
	ctx context.Context, rem remover, what domain.Retained, now domain.Instant,
) (last *RemovedBy, err error) {
	var open []*registry.Removal
	var due [][]bool
	if err := h.settled(ctx, func(v projections.View, r *registry.Retention) error {
		open = r.Unfinished(what)
		for _, m := range open {
			list, err := dueNow(ctx, rem, v, r, m, now)
			if err != nil {
				return err
			}
			due = append(due, list)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, m := range open {
		var list []domain.Removed
		for j := range m.Removed {
			if due[i][j] {
				list = append(list, m.Removed[j])
			}
		}
		if err := rem.check(ctx, list); err != nil {
			return nil, fmt.Errorf("finish removal %s: %w", m.Removal, err)
		}
		if last, err = h.endRemoval(ctx, rem, m, due[i], now); err != nil {
			return nil, err
		}
		last.Resumed = true
	}
	return last, nil
}

// dueNow says of each thing that a removal named whether the policy in force lets go of it. Nobody
// signs a removal, and the policy may have changed since it began.
func dueNow(
	ctx context.Context, rem remover, v projections.View, r *registry.Retention, m *registry.Removal, now domain.Instant,
) ([]bool, error) {
	list := make([]bool, len(m.Removed))
	rule := r.Rule(m.What)
	if rule == nil {
		return list, nil
	}
	due, err := rem.due(ctx, v, rule, now)
	if err != nil {
		return nil, err
	}
	for i := range m.Removed {
		if list[i], err = due(&m.Removed[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// endRemoval removes what a removal named when it began, and records that. What a legal hold keeps now
// stays, and what the policy in force does not let go, and what was not checked.
func (h *Conn) endRemoval(
	ctx context.Context, rem remover, m *registry.Removal, checked []bool, now domain.Instant,
) (*RemovedBy, error) {
	end := &domain.RecordsRemoved{
		Entity: m.Entity, Removal: m.Removal, What: m.What, Policy: m.Policy, Rule: m.Rule, By: m.By,
		Removed: []domain.Removed{},
	}
	var todo []*domain.Removed
	var left removable
	if err := h.settled(ctx, func(v projections.View, r *registry.Retention) error {
		if i := slices.IndexFunc(r.Removals, func(known registry.Removal) bool { return known.Removal == m.Removal }); i < 0 {
			return &UnavailableError{Err: fmt.Errorf("removal %s was appended to the log and is not in the rows", m.Removal)}
		} else if same, err := projections.SameEvent(&r.Removals[i].RemovalStarted, &m.RemovalStarted); err != nil || !same {
			return &ConflictError{Err: fmt.Errorf("another process began removal %s", m.Removal)}
		}
		due, err := dueNow(ctx, rem, v, r, m, now)
		if err != nil {
			return err
		}
		for i := range m.Removed {
			by, err := rem.held(ctx, v, r.Holds, &m.Removed[i])
			if err != nil {
				return err
			}
			if due[i] && checked[i] && len(by) == 0 {
				todo = append(todo, &m.Removed[i])
				continue
			}
			gone, err := rem.gone(ctx, &m.Removed[i]) // an earlier attempt may have removed it before
			if err != nil {
				return err
			}
			if gone {
				end.Removed = append(end.Removed, m.Removed[i])
				continue
			}
			left.keep(by...)
			if len(by) == 0 {
				h.app.tell("%s of removal %s stays: no policy lets go of it now", &m.Removed[i], m.Removal)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, r := range todo {
		err := rem.remove(ctx, r)
		if errors.Is(err, errStays) {
			h.app.tell("%s of removal %s stays: %v", r, m.Removal, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("removal %s: %w", m.Removal, err)
		}
		end.Removed = append(end.Removed, *r)
	}
	end.Holds = left.holds
	if err := h.RecordRemoval(ctx, end, m.Started); err != nil {
		return nil, err
	}
	return &RemovedBy{
		Removal: m.Removal, What: m.What, Policy: m.Policy, Rule: m.Rule, Removed: end.Removed,
		Records: recordsOf(end.Removed), Holds: append([]string{}, end.Holds...),
	}, nil
}

// RecordRemoval appends the beginning or the end of a removal as the only event of its stream. Both
// have the time at which the removal began, so that appending one again repeats it.
func (h *Conn) RecordRemoval(ctx context.Context, ev domain.Event, started domain.Instant) error {
	source := "quartermaster/removal/"
	switch ev := ev.(type) {
	case *domain.RemovalStarted:
		source += "started/" + ev.Removal
	case *domain.RecordsRemoved:
		source += "ended/" + ev.Removal
	}
	env := &domain.Envelope{Time: started, Subject: source, Event: ev}
	if err := domain.Validate(env); err != nil {
		return fmt.Errorf("record a removal: %w", err)
	}
	return h.recordOnce(ctx, source, started, env)
}

// settled reads what policies and holds say, once the rows have every decision and removal that the
// log has.
func (h *Conn) settled(ctx context.Context, read func(projections.View, *registry.Retention) error) error {
	_, end, err := h.Bounds(ctx)
	if err != nil {
		return err
	}
	if err := h.CatchUp(ctx); err != nil {
		return err
	}
	return h.View(ctx, func(v projections.View) error {
		at := v.Position()
		for tp, to := range end {
			if (tp.Topic == domain.TopicWorkspaces || tp.Topic == domain.TopicBooks) && at[tp] < to {
				return &UnavailableError{Err: fmt.Errorf(
					"nothing was removed: the rows lack %d events of %s, which may set a legal hold", to-at[tp], tp)}
			}
		}
		r, err := retentionOf(v, Now())
		if err != nil {
			return err
		}
		return read(v, r)
	})
}

// RemoveAll removes everything that the policies let go at a time. What one kind of records cannot be
// removed for does not keep the others.
func (h *Conn) RemoveAll(ctx context.Context, by string, now domain.Instant) (done Removals, err error) {
	var errs []error
	done = Removals{}
	for _, what := range domain.AllRetained() {
		ans, err := h.removeBy(ctx, what, by, "", now, false)
		switch {
		case errors.Is(err, errNoPolicy):
		case err != nil:
			errs = append(errs, fmt.Errorf("remove %s: %w", what, err))
		case ans.Removal != "":
			done = append(done, ans)
		}
	}
	return done, errors.Join(errs...)
}

// Removals are what a run removed.
type Removals []*RemovedBy

// String returns one line.
func (r Removals) String() string {
	if len(r) == 0 {
		return "nothing to remove"
	}
	texts := make([]string, len(r))
	for i, one := range r {
		texts[i] = fmt.Sprintf("removal %s: %d records", one.Removal, one.Records)
	}
	return strings.Join(texts, "; ")
}

// RunRetention removes everything that the policies let go now.
func (c *Caller) RunRetention(ctx context.Context) (Removals, error) {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return nil, err
	}
	return h.RemoveAll(ctx, "retention run, by "+Me(), Now())
}
