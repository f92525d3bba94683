package app

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"quartermaster/adapters/manifest"
	"quartermaster/domain"
	"quartermaster/projections"
)

// register is the register of assets: what the log has of each, and what files declare.
type register map[assetName]*assetState

type assetName struct{ cluster, asset string }

// assetState is what counts of an asset.
type assetState struct {
	acquired *domain.AssetAcquired
	disposed *domain.AssetDisposed
}

// forever ends the life of an asset that is on the books.
const forever = domain.Instant(math.MaxInt64)

// life returns the time for which an asset is on the books.
func (s *assetState) life() domain.Interval {
	life := domain.Interval{From: s.acquired.InServiceFrom, To: forever}
	if s.disposed != nil && s.disposed.At >= life.From {
		life.To = s.disposed.At
	}
	return life
}

func (r register) enter(cluster string, event domain.Event) {
	of := func(asset string) *assetState {
		name := assetName{cluster, asset}
		if r[name] == nil {
			r[name] = &assetState{}
		}
		return r[name]
	}
	switch ev := event.(type) {
	case *domain.AssetAcquired:
		of(ev.Asset).acquired = ev
	case *domain.AssetDisposed:
		of(ev.Asset).disposed = ev
	}
}

// readRegister reads the assets of the log, and enters those of the declarations.
func readRegister(v projections.View, envs []domain.Envelope) (register, error) {
	r := register{}
	err := v.Scan(projections.Query{Table: projections.TableAssets}, func(k projections.Key, row projections.Row) error {
		versions := slices.Clone(row.(*projections.History).Versions)
		slices.SortStableFunc(versions, func(a, b projections.Version) int { // what was stated last counts
			return cmp.Compare(a.Order.Appended, b.Order.Appended)
		})
		for i := range versions {
			r.enter(k.Scope, versions[i].Event)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read assets: %w", err)
	}
	for i := range envs {
		r.enter(envs[i].Cluster, envs[i].Event)
	}
	return r, nil
}

// checkAssets refuses events about assets that no bill could follow: a node of two assets at one time, and a revision
// or disposal of an asset that is unknown or not yet in service. at are the indexes of new events. The faults of all
// are reported, with file and line.
func checkAssets(v projections.View, envs []domain.Envelope, entries []manifest.Entry, at []int) error {
	at = slices.DeleteFunc(slices.Clone(at), func(i int) bool {
		switch envs[i].Event.(type) {
		case *domain.AssetAcquired, *domain.AssetRevised, *domain.AssetDisposed:
			return false
		}
		return true
	})
	if len(at) == 0 {
		return nil
	}
	r, err := readRegister(v, envs)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range at {
		fault := func(field, format string, args ...any) {
			errs = append(errs, entries[i].Fault(field, format, args...))
		}
		of := func(asset string) *assetState {
			s := r[assetName{envs[i].Cluster, asset}]
			if s == nil || s.acquired == nil {
				fault("asset", "cluster %q has no asset %q, in these files or in the log", envs[i].Cluster, asset)
				return nil
			}
			return s
		}
		switch ev := envs[i].Event.(type) {
		case *domain.AssetAcquired:
			if problem := r.overlap(envs[i].Cluster, ev); problem != "" {
				fault("nodes", "%s", problem)
			}
		case *domain.AssetDisposed:
			if s := of(ev.Asset); s != nil && ev.At < s.acquired.InServiceFrom {
				fault("at", "%s is before asset %q comes into service, at %s", ev.At, ev.Asset, s.acquired.InServiceFrom)
			}
		case *domain.AssetRevised:
			s := of(ev.Asset)
			if s == nil {
				continue
			}
			if life := s.life(); ev.EffectiveFrom < life.From || ev.EffectiveFrom >= life.To {
				fault("effective_from", "at %s asset %q is not in service: it is from %s%s", ev.EffectiveFrom, ev.Asset, life.From, until(life.To))
			}
			currency := s.acquired.Capex.Currency
			if m := ev.Residual; m.Currency != "" && m.Currency != currency {
				fault("residual", "%s is not in the currency of the asset, %s", m, currency)
			}
			if m := ev.Impairment; m.Currency != "" && m.Currency != currency {
				fault("impairment", "%s is not in the currency of the asset, %s", m, currency)
			}
		}
	}
	if len(errs) > 0 {
		return &InvalidError{Err: errors.Join(errs...)}
	}
	return nil
}

func until(t domain.Instant) string {
	if t == forever {
		return ""
	}
	return " to " + t.String()
}

// overlap says which node of an asset is another's at the same time, "" for none.
func (r register) overlap(cluster string, ev *domain.AssetAcquired) string {
	own := r[assetName{cluster, ev.Asset}].life()
	var others []string
	for name, s := range r {
		if name.cluster == cluster && name.asset != ev.Asset && s.acquired != nil && !s.life().Intersect(own).Empty() {
			others = append(others, name.asset)
		}
	}
	slices.Sort(others)
	for _, asset := range others {
		s := r[assetName{cluster, asset}]
		for _, node := range ev.Nodes {
			if slices.Contains(s.acquired.Nodes, node) {
				life := s.life()
				return fmt.Sprintf("node %q is of asset %q from %s%s: dispose of that first, or leave the node out",
					node, asset, life.From, until(life.To))
			}
		}
	}
	return ""
}
