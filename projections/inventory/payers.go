package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Unmapped is [domain.Unmapped].
const Unmapped = domain.Unmapped

// payers decides which workspace pays for what a pod held. A program that observes a pod names the
// pod and not a workspace, because the pod's owner could write any workspace into its labels. The
// signed mapping rules decide, when usage is read. Of the rules valid at the start of an hour, the
// first that names the pod's cluster and namespace counts, by priority and then by name.
type payers struct {
	rules  []ruleTimes
	epochs []domain.Instant // when rules change, ascending
	known  map[podsOf]string
	row    projections.UsageHour // the last result of paid
}

// ruleTimes is a mapping rule with its valid versions.
type ruleTimes struct {
	name     string // workspace and rule
	versions []projections.Version
}

// podsOf are the pods of a namespace between two changes of the rules.
type podsOf struct {
	cluster, namespace string
	epoch              int
}

func readPayers(view projections.View) (*payers, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	p := &payers{known: map[podsOf]string{}}
	err = view.Scan(projections.Query{Table: projections.TableMappingRules}, func(k projections.Key, row projections.Row) error {
		h, r := row.(*projections.History), ruleTimes{name: strings.Clone(k.Scope + "\x00" + k.ID)}
		for i := range h.Versions {
			if a.Judge(k, h, i) == "" {
				r.versions = append(r.versions, h.Versions[i])
				p.epochs = append(p.epochs, h.Versions[i].Order.Effective)
			}
		}
		if len(r.versions) > 0 {
			p.rules = append(p.rules, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableMappingRules, err)
	}
	slices.Sort(p.epochs)
	p.epochs = slices.Compact(p.epochs)
	return p, nil
}

// namespaceOf returns the namespace of a pod, "" if its name has none.
func namespaceOf(pod string) string {
	namespace, _, ok := strings.Cut(pod, "/")
	if !ok {
		return ""
	}
	return namespace
}

// of returns the workspace that pays for what a pod held in the hour of a time.
func (p *payers) of(cluster, pod string, at domain.Instant) string {
	at = at.HourStart()
	epoch, found := slices.BinarySearch(p.epochs, at)
	if found {
		epoch++ // epochs[epoch-1] is the last change at or before it
	}
	k := podsOf{cluster, namespaceOf(pod), epoch}
	if payer, ok := p.known[k]; ok {
		return payer
	}
	var best *domain.MappingRuleSet
	var name string
	for _, r := range p.rules {
		v := (&projections.History{Versions: r.versions}).At(at)
		if v == nil {
			continue
		}
		ev := v.Event.(*domain.MappingRuleSet)
		if ev.ToWorkspace == "" || len(ev.Columns) > 0 || ev.Cluster != "" && ev.Cluster != k.cluster ||
			ev.Namespace != "" && ev.Namespace != k.namespace {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(ev.Priority, best.Priority), cmp.Compare(r.name, name)) < 0 {
			best, name = ev, r.name
		}
	}
	payer := Unmapped
	if best != nil {
		payer = best.ToWorkspace
	}
	p.known[podsOf{strings.Clone(k.cluster), strings.Clone(k.namespace), k.epoch}] = payer
	return payer
}

// paid returns a row in which every holder has a workspace. It shares memory with the given row,
// and with the next result.
func (p *payers) paid(k projections.Key, row *projections.UsageHour) *projections.UsageHour {
	first := slices.IndexFunc(row.Holders, func(h projections.Holder) bool { return h.Workspace == "" })
	if first < 0 {
		return row
	}
	p.row.Holders = append(p.row.Holders[:0], row.Holders...)
	p.row.Observers = row.Observers
	for i := first; i < len(p.row.Holders); i++ {
		if h := &p.row.Holders[i]; h.Workspace == "" {
			h.Workspace = p.of(k.Scope, h.Unit, domain.Instant(k.Hour)*domain.Hour)
		}
	}
	return &p.row
}
