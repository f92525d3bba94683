package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"quartermaster/adapters/sealing"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Decisions name people by ids. What they are called is in the log too, sealed with a key of each person, which is kept
// outside of it. A name is erased by destroying its key, as a retention policy allows: see adapters/sealing.

// sealedPlace binds a sealed name to the events that have it.
const sealedPlace = string(domain.TypePersonNamed)

// Person is somebody whom decisions name by an id.
type Person struct {
	Person string       `json:"person"`
	State  NameState    `json:"state"`
	Name   string       `json:"name,omitempty"` // if it can be read here
	Roles  []PersonRole `json:"roles"`
	Named  string       `json:"named,omitempty"`  // when it was said what they are called
	Erased string       `json:"erased,omitempty"` // when their name was
	// From is when a policy lets go of the name: empty without a policy, or while they have a role.
	From  string   `json:"erasable_from,omitempty"`
	Holds []string `json:"holds"` // legal holds that keep it
}

// PersonRole is a role that a person had or has.
type PersonRole struct {
	Workspace string         `json:"workspace"`
	Role      domain.Role    `json:"role"`
	From      domain.Instant `json:"from"`
	To        domain.Instant `json:"to,omitzero"` // zero: still
}

// NameState says whether the name of a person can be read.
type NameState string

// The states of names.
const (
	NameReadable   NameState = "readable"
	NameUnknown    NameState = "unnamed"     // nobody said what they are called
	NameErased     NameState = "erased"      // by a removal in the log
	NameKeyMissing NameState = "key_missing" // and no removal says so: the key is elsewhere, or was lost
	NameKeyDamaged NameState = "key_damaged" // or others than its owner may read it, or it is of another name
)

// person is what the rows have of a person.
type person struct {
	id     string
	grants []registry.Grant
	sealed []byte
	named  domain.Instant
	erased domain.Instant
}

// ended returns when the last role of a person ended, or when they were named, which ever is later; 0 while they have a
// role.
func (p *person) ended(now domain.Instant) domain.Instant {
	last := p.named
	for i := range p.grants {
		if to := p.grants[i].To; to == 0 || to > now {
			return 0
		} else if to > last {
			last = to
		}
	}
	return last
}

// heldBy returns the holds that keep the name of a person: those of everything, and of a workspace in which they had a
// role, in whose period they had one.
func (p *person) heldBy(holds []registry.LegalHold) (by []string) {
	for i := range holds {
		h := &holds[i]
		covers := h.Workspace == "" && (h.Period == (domain.Interval{}) || len(p.grants) == 0)
		for j := range p.grants {
			g := &p.grants[j]
			to := g.To
			if to == 0 {
				to = domain.Instant(1<<63 - 1)
			}
			in := h.Workspace == "" || h.Workspace == g.Workspace || g.Root
			covers = covers || in && (h.Period == (domain.Interval{}) || !h.Period.Intersect(domain.Interval{From: g.From, To: to}).Empty())
		}
		if covers {
			by = append(by, h.Hold)
		}
	}
	return by
}

// peopleOf returns the people whom the rows know, by id.
func peopleOf(v projections.View) (map[string]*person, error) {
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	all := map[string]*person{}
	of := func(id string) *person {
		if all[id] == nil {
			all[id] = &person{id: id}
		}
		return all[id]
	}
	for _, g := range auth.Grants() {
		p := of(g.Operator)
		p.grants = append(p.grants, g)
	}
	err = v.Scan(projections.Query{Table: projections.TablePeople}, func(k projections.Key, row projections.Row) error {
		valid := auth.Latest(k, row.(*projections.History))
		if valid == nil {
			return nil
		}
		if ev, ok := valid.Event.(*domain.PersonNamed); ok {
			p := of(ev.Person)
			p.sealed, p.named = ev.Sealed, valid.Order.Time
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TablePeople, err)
	}
	r, err := registry.NewRetention(v, auth, Now())
	if err != nil {
		return nil, err
	}
	for i := range r.Removals {
		if m := &r.Removals[i]; m.What == domain.RetainedPeople && m.Ended != nil {
			for _, one := range m.Ended.Removed {
				p := of(one.Person)
				p.erased = max(p.erased, m.Started)
			}
		}
	}
	return all, nil
}

// errNoPeopleKeys means that there is no place for keys.
var errNoPeopleKeys = &InvalidError{Err: errors.New("there is no directory for the keys of people's names: name one as people_keys in the configuration")}

// peopleKeys returns the keys of people's names.
func (s *App) peopleKeys() (sealing.Keys, error) {
	dir := ""
	if s.Config != nil {
		dir = s.Config.PeopleKeys
	}
	if dir == "" && s.Dir != "" {
		dir = filepath.Join(s.Dir, "people-keys")
	}
	if dir == "" {
		return sealing.Keys{}, errNoPeopleKeys
	}
	return sealing.NewKeys(dir), nil
}

// People returns the people whom decisions name, by id, with their names as far as they can be read here.
func (c *Caller) People(ctx context.Context) (list []Person, err error) {
	keys, err := c.app.peopleKeys()
	if err != nil {
		return nil, err
	}
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		now := Now()
		all, err := peopleOf(v)
		if err != nil {
			return err
		}
		r, err := retentionOf(v, now)
		if err != nil {
			return err
		}
		rule := r.Rule(domain.RetainedPeople)
		list = []Person{}
		for _, id := range slices.Sorted(maps.Keys(all)) {
			p := all[id]
			one := Person{
				Person: id, State: NameUnknown, Roles: []PersonRole{}, Named: p.named.String(), Erased: p.erased.String(),
				Holds: append([]string{}, p.heldBy(r.Holds)...),
			}
			for i := range p.grants {
				g := &p.grants[i]
				one.Roles = append(one.Roles, PersonRole{g.Workspace, g.Role, g.From, g.To})
			}
			if p.sealed != nil {
				// A removal is not signed: a name that can be read was not erased, whatever one says.
				if one.State, one.Name = readName(keys, p); p.erased != 0 && one.State == NameKeyMissing {
					one.State = NameErased
				}
				if ended := p.ended(now); rule != nil && ended != 0 && one.State != NameErased {
					one.From = (ended + domain.Instant(rule.Keep.Days)*domain.Day).String()
				}
			}
			list = append(list, one)
		}
		return nil
	})
	return list, err
}

func readName(keys sealing.Keys, p *person) (NameState, string) {
	key, err := keys.Load(p.id)
	if err == nil {
		var name string
		if name, err = key.Open(p.id, sealedPlace, p.sealed); err == nil {
			return NameReadable, name
		}
	}
	if errors.Is(err, sealing.ErrNoKey) || errors.Is(err, sealing.ErrOtherKey) {
		return NameKeyMissing, ""
	}
	return NameKeyDamaged, ""
}

// NamePerson drafts what a person is called. Their key is on disk when it returns. The person must be an operator.
func (c *Caller) NamePerson(ctx context.Context, id, name string) (Draft, error) {
	keys, err := c.app.peopleKeys()
	if err != nil {
		return Draft{}, err
	}
	var known *person
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		all, err := peopleOf(v)
		if err != nil {
			return err
		}
		if known = all[id]; known == nil {
			return oneOf("operator", id, slices.Sorted(maps.Keys(all)))
		}
		return nil
	})
	switch {
	case err != nil:
		return Draft{}, err
	case known.erased != 0:
		return Draft{}, &ConflictError{Err: fmt.Errorf("the name of %q was erased at %s: register the person under another id", id, known.erased)}
	}
	key, err := keys.Load(id)
	switch missing := errors.Is(err, sealing.ErrNoKey); {
	case missing && known.sealed != nil:
		err = &ConflictError{Err: fmt.Errorf("the key of the name of %q is not here: restore it, or find the directory that has it", id)}
	case missing:
		key, err = keys.Create(id)
	}
	if err != nil {
		return Draft{}, err
	}
	sealed, err := key.Seal(id, sealedPlace, name)
	if err != nil {
		return Draft{}, &InvalidError{Err: err}
	}
	return Draft{Use: "people-name", Events: []domain.Envelope{{
		Time: Now(), Subject: id, Workspace: Platform, Event: &domain.PersonNamed{Person: id, Sealed: sealed},
	}}}, nil
}

// ErasePerson erases the name of a person by destroying its key, if the retention policy lets go of it at a time. The
// removal is in the log before it begins and when it ended; after a crash it is finished. The error says why the name
// must stay.
func (c *Caller) ErasePerson(ctx context.Context, id string, now domain.Instant, dryRun bool) (*RemovedBy, error) {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return nil, err
	}
	erased := false
	err = h.settled(ctx, func(v projections.View, r *registry.Retention) error {
		all, err := peopleOf(v)
		if err != nil {
			return err
		}
		p := all[id]
		if p == nil {
			return oneOf("operator", id, slices.Sorted(maps.Keys(all)))
		}
		rule, ended := r.Rule(domain.RetainedPeople), p.ended(now)
		stays := func(format string, args ...any) error {
			return &DeniedError{Err: fmt.Errorf("the name of %q stays: %w", id, fmt.Errorf(format, args...))}
		}
		switch holds := p.heldBy(r.Holds); {
		case p.erased != 0 && h.lacksKey(id):
			erased = true
		case p.sealed == nil:
			return &NotFoundError{What: "name", Name: id, Err: fmt.Errorf("nobody said what %q is called, so there is nothing to erase", id)}
		case ended == 0:
			return stays("the person has a role: \"quartermaster operator revoke %s\" ends it", id)
		case len(holds) > 0:
			return stays("legal hold %s keeps it", holds[0])
		case rule == nil:
			return stays("no retention policy lets go of names: \"quartermaster apply\" declares one (kind retention, scope %s)", domain.RetainedPeople)
		case ended > keptSince(rule, now):
			return stays("policy %s keeps it for %s after the last role ended, until %s", rule.Policy, rule.Rule,
				ended+domain.Instant(rule.Keep.Days)*domain.Day)
		}
		return nil
	})
	if err != nil || erased {
		return &RemovedBy{What: domain.RetainedPeople, Removed: []domain.Removed{}, Holds: []string{}, DryRun: dryRun}, err
	}
	for {
		ans, err := h.removeBy(ctx, domain.RetainedPeople, "people erase, by "+Me(), id, now, dryRun)
		if err != nil {
			return nil, err
		}
		of := slices.ContainsFunc(ans.Removed, func(r domain.Removed) bool { return r.Person == id })
		switch {
		case of:
			return ans, h.CatchUp(ctx)
		case !ans.Resumed:
			return nil, &UnavailableError{Err: fmt.Errorf("the key of the name of %q is not here: erase it where the directory of keys is", id)}
		}
	}
}

// lacksKey reports whether the key of a person's name is not here.
func (h *Conn) lacksKey(id string) bool {
	keys, err := h.app.peopleKeys()
	if err == nil {
		_, err = keys.Load(id)
	}
	return errors.Is(err, sealing.ErrNoKey) || errors.Is(err, errNoPeopleKeys)
}

// peopleRemover erases names by destroying their keys.
type peopleRemover struct {
	keys   sealing.Keys
	only   string // the person; "": all
	people map[string]*person
}

func (p *peopleRemover) read(v projections.View) (err error) {
	p.people, err = peopleOf(v)
	return err
}

func (p *peopleRemover) plan(
	ctx context.Context, v projections.View, r *registry.Retention, rule *registry.RetentionRule, now domain.Instant,
) (plan removable, err error) {
	due, err := p.due(ctx, v, rule, now)
	if err != nil {
		return plan, err
	}
	for _, id := range slices.Sorted(maps.Keys(p.people)) {
		removed := domain.Removed{Person: id, Records: 1}
		if is, err := due(&removed); err != nil {
			return plan, err
		} else if !is || p.only != "" && p.only != id {
			continue
		}
		// Where the key is not, nothing can be erased.
		if _, err := p.keys.Load(id); errors.Is(err, sealing.ErrNoKey) {
			continue
		}
		by, err := p.held(ctx, v, r.Holds, &removed)
		if err != nil {
			return plan, err
		}
		plan.keep(by...)
		if len(by) == 0 {
			plan.add(removed)
		}
		if len(plan.removed) == mostUnlisted {
			break
		}
	}
	return plan, nil
}

func (p *peopleRemover) due(
	_ context.Context, v projections.View, rule *registry.RetentionRule, now domain.Instant,
) (func(*domain.Removed) (bool, error), error) {
	if err := p.read(v); err != nil {
		return nil, err
	}
	return func(r *domain.Removed) (bool, error) {
		of := p.people[r.Person]
		if of == nil || of.sealed == nil {
			return false, nil
		}
		ended := of.ended(now)
		return ended != 0 && ended <= keptSince(rule, now), nil
	}, nil
}

func (p *peopleRemover) held(
	_ context.Context, v projections.View, holds []registry.LegalHold, r *domain.Removed,
) ([]string, error) {
	if p.people == nil {
		if err := p.read(v); err != nil {
			return nil, err
		}
	}
	of := p.people[r.Person]
	return cmp.Or(of, &person{}).heldBy(holds), nil
}

func (*peopleRemover) check(context.Context, []domain.Removed) error { return nil }

func (p *peopleRemover) remove(_ context.Context, r *domain.Removed) error {
	err := p.keys.Destroy(r.Person)
	if errors.Is(err, sealing.ErrNoKey) {
		if p.keys.Destroyed(r.Person) {
			return nil
		}
		return fmt.Errorf("%w: the key is not here", errStays)
	}
	return err
}

func (p *peopleRemover) gone(_ context.Context, r *domain.Removed) (bool, error) {
	return p.keys.Destroyed(r.Person), nil
}
