package registry

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Retention is what retention policies let go at a time, what legal holds stop, and what was removed.
type Retention struct {
	// Rules has one rule for each kind of records that a policy lets go. What has none stays for ever.
	Rules []RetentionRule `json:"rules"`
	// Holds are the legal holds in force.
	Holds []LegalHold `json:"holds"`
	// Removals are those that began, the latest first.
	Removals []Removal `json:"removals"`
}

// RetentionRule says how long a kind of records stays.
type RetentionRule struct {
	What      domain.Retained `json:"what"`
	Keep      domain.Keep     `json:"keep"`
	Rule      string          `json:"rule"` // Keep in words
	Policy    string          `json:"policy"`
	DecidedBy string          `json:"decided_by"`
}

// LegalHold is a legal hold in force.
type LegalHold struct {
	domain.LegalHoldSet
	Since domain.Instant `json:"since"`
	SetBy string         `json:"set_by"`
}

// Removal is a removal that began. Nobody signs it: only what a policy in force lets go may be removed
// for it.
type Removal struct {
	domain.RemovalStarted
	Started domain.Instant `json:"started"`
	// Ended is nil until what was removed is recorded.
	Ended *domain.RecordsRemoved `json:"ended,omitempty"`
}

// NewRetention reads policies, holds and removals. Of several policies for the same records the one
// that keeps longest counts.
func NewRetention(view projections.View, a *Authority, at domain.Instant) (*Retention, error) {
	r := &Retention{Rules: []RetentionRule{}, Holds: []LegalHold{}, Removals: []Removal{}}
	for t, add := range map[projections.Table]func(projections.Key, *projections.History){
		projections.TablePolicies: func(k projections.Key, h *projections.History) { r.addRule(a.At(k, h, at), at) },
		projections.TableLegalHolds: func(k projections.Key, h *projections.History) {
			v := a.At(k, h, at)
			if v == nil {
				v = a.Latest(k, h) // set by a clock that is ahead
			}
			r.addHold(v)
		},
		projections.TableRemovals: func(_ projections.Key, h *projections.History) { r.addRemoval(h) },
	} {
		if err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			add(k, row.(*projections.History))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	slices.SortFunc(r.Rules, func(x, y RetentionRule) int { return cmp.Compare(x.What, y.What) })
	slices.SortFunc(r.Holds, func(x, y LegalHold) int {
		return cmp.Or(cmp.Compare(x.Hold, y.Hold), cmp.Compare(x.Since, y.Since), cmp.Compare(x.SetBy, y.SetBy))
	})
	slices.SortFunc(r.Removals, func(x, y Removal) int {
		return cmp.Or(cmp.Compare(y.Started, x.Started), cmp.Compare(x.Removal, y.Removal))
	})
	return r, nil
}

func (r *Retention) addRule(v *projections.Version, at domain.Instant) {
	if v == nil {
		return
	}
	p, ok := v.Event.(*domain.PolicySet)
	if !ok || p.Kind != domain.PolicyRetention || p.EffectiveTo != 0 && p.EffectiveTo <= at {
		return
	}
	what := domain.Retained(p.Scope)
	keep, err := domain.ParseKeep(what, p.Value)
	if err != nil {
		return // an event that was folded is valid
	}
	rule := RetentionRule{What: what, Keep: keep, Rule: keep.String(), Policy: p.Policy}
	if v.Signer != nil {
		rule.DecidedBy = v.Signer.Operator
	}
	old := r.Rule(what)
	switch {
	case old == nil:
		r.Rules = append(r.Rules, rule)
	case keep.Longer(old.Keep) || !old.Keep.Longer(keep) && rule.Policy < old.Policy:
		*old = rule
	}
}

func (r *Retention) addHold(v *projections.Version) {
	if v == nil {
		return
	}
	if h, ok := v.Event.(*domain.LegalHoldSet); ok && !h.Lifted {
		hold := LegalHold{LegalHoldSet: *h, Since: v.Order.Time}
		if v.Signer != nil {
			hold.SetBy = v.Signer.Operator
		}
		r.Holds = append(r.Holds, hold)
	}
}

func (r *Retention) addRemoval(h *projections.History) {
	var m *Removal
	for i := range h.Versions {
		if e, ok := h.Versions[i].Event.(*domain.RemovalStarted); ok && m == nil {
			m = &Removal{RemovalStarted: *e, Started: h.Versions[i].Order.Time}
		}
	}
	if m == nil {
		return
	}
	for i := range h.Versions {
		if e, ok := h.Versions[i].Event.(*domain.RecordsRemoved); ok && m.Ended == nil {
			m.Ended = e
		}
	}
	r.Removals = append(r.Removals, *m)
}

// Rule returns how long records of a kind stay, nil for ever.
func (r *Retention) Rule(what domain.Retained) *RetentionRule {
	for i := range r.Rules {
		if r.Rules[i].What == what {
			return &r.Rules[i]
		}
	}
	return nil
}

// Unfinished returns the removals of a kind that began and whose end is not recorded, the oldest
// first.
func (r *Retention) Unfinished(what domain.Retained) (list []*Removal) {
	for i := range r.Removals {
		if m := &r.Removals[i]; m.What == what && m.Ended == nil {
			list = append(list, m)
		}
	}
	slices.Reverse(list)
	return list
}

// removedFromQuarantine returns the ids of the records that removals took off the list.
func removedFromQuarantine(view projections.View) (map[string]bool, error) {
	removed := map[string]bool{}
	query := projections.Query{Table: projections.TableRemovals}
	err := view.Scan(query, func(_ projections.Key, row projections.Row) error {
		r := Retention{}
		r.addRemoval(row.(*projections.History))
		for i := range r.Removals {
			if end := r.Removals[i].Ended; end != nil && end.What == domain.RetainedQuarantine {
				for _, one := range end.Removed {
					removed[projections.RecordID(one.Topic, one.Partition, one.From)] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableRemovals, err)
	}
	return removed, nil
}

// ClusterPartitions returns the partitions of topics keyed by cluster that may hold records of a
// cluster: those of its own key and of every shard that has rows.
func ClusterPartitions(view projections.View, cluster string) (map[domain.TopicPartition]bool, error) {
	keys := map[string]bool{cluster: true}
	for _, t := range projections.Tables() {
		if !KeyedByCluster(t.Topic()) {
			continue
		}
		scopes, err := projections.Stored(view).Scopes(t)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
		for _, s := range scopes {
			if domain.ClusterOf(s) == cluster {
				keys[s] = true
			}
		}
	}
	in := map[domain.TopicPartition]bool{}
	for _, spec := range domain.TopicSpecs() {
		for key := range keys {
			if KeyedByCluster(spec.Topic) {
				in[domain.TopicPartition{
					Topic: spec.Topic, Partition: domain.PartitionOf([]byte(key), spec.Topic.Partitions()),
				}] = true
			}
		}
	}
	return in, nil
}

// KeyedByCluster reports whether the records of a topic have a cluster, or a shard of one, as their key.
func KeyedByCluster(t domain.Topic) bool {
	switch t {
	case domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware, domain.TopicDeployments:
		return true
	}
	return false
}
