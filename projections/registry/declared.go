package registry

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Declared returns the version that an event would replace: the one in effect when the event would
// take effect. It returns nil if there is none or if the event is a measurement. An event that
// takes effect at once is compared with the latest version. Void decisions do not count.
func Declared(v projections.View, a *Authority, env *domain.Envelope) (*projections.Version, error) {
	p, h, err := history(v, env)
	switch {
	case err != nil || h == nil:
		return nil, err
	case p.Effective == 0:
		return a.Latest(p.Key, h), nil
	default:
		return a.At(p.Key, h, p.Effective), nil
	}
}

// Refusals returns for each event why it would be void if all were appended now in this order; ""
// if it would be valid or needs no signature. Writers of decisions check this first, because a void
// decision stays in the log forever. Events may depend on a cluster that is registered along with
// them, but not on an operator who is.
func (a *Authority) Refusals(v projections.View, envs []*domain.Envelope) ([]string, error) {
	then := *a
	then.owners = maps.Clone(a.owners)
	reasons := make([]string, len(envs))
	closes := map[projections.Key]*projections.History{} // with what is decided before in envs
	for i, env := range envs {
		if env.Signature == nil {
			continue
		}
		p, h, err := history(v, env)
		if err != nil {
			return nil, err
		}
		if with := closes[p.Key]; with != nil {
			h = with
		}
		if h == nil {
			h = &projections.History{}
		}
		order := env.Precedence(p.Effective)
		order.Appended = math.MaxInt64
		offset := math.MaxInt64 - int64(len(envs)-i)
		version := projections.Version{
			Order: order, Workspace: env.Workspace, Event: env.Event,
			Signer: &projections.Signer{
				Operator: env.Signature.Operator, Key: env.Signature.Key,
				Time: env.Time, Appended: env.Time, Offset: offset,
			},
		}
		reasons[i] = then.judge(p.Key, h, &version)
		if p.Key.Table == projections.TableCloses {
			closes[p.Key] = &projections.History{Versions: append(slices.Clone(h.Versions), version)}
		}
		if env.Event.Type() == domain.TypeClusterRegistered && reasons[i] == "" {
			owned := then.owners[env.Cluster]
			then.owners[env.Cluster] = append(owned[:len(owned):len(owned)], ownership{offset, env.Workspace})
		}
	}
	return reasons, nil
}

// Identity identifies what an event declares and from when. Two events with the same identity
// contradict or repeat each other.
func Identity(env *domain.Envelope) (string, error) {
	scope, err := env.Key()
	if err != nil {
		return "", err
	}
	p, _ := projections.Place(env, scope)
	return fmt.Sprintf("%s %s %s", p.Key, env.Event.Type(), p.Effective), nil
}

// history returns the history that an event belongs to, nil if there is none.
func history(v projections.View, env *domain.Envelope) (projections.Placement, *projections.History, error) {
	scope, err := env.Key()
	if err != nil {
		return projections.Placement{}, nil, err
	}
	p, ok := projections.Place(env, scope)
	if !ok {
		return p, nil, nil
	}
	row, err := v.Get(p.Key)
	if err != nil {
		return p, nil, err
	}
	h, _ := row.(*projections.History)
	return p, h, nil
}
