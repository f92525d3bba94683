package usage

import (
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// within says what a narrowed view sees of GPU time that was computed from all rows. Of clusters of its workspaces it
// sees all time, and of other holders their workspace. Of other clusters it sees what its workspaces held, without the
// owner, the machines and how they are paid for. Nothing is shown of others there, not even as a sum: sums over
// several can be subtracted from each other.
type within struct {
	lens    access.Lens
	cluster string // of owns
	owns    bool
	holds   string // a workspace that own is about, in the cluster
	own     bool
	hour    DeviceHour
	shown   DeviceSegment
	holder  projections.Holder
}

// newWithin returns nil for a view that is not narrowed.
func newWithin(view projections.View) *within {
	lens, is := access.Of(view)
	if !is {
		return nil
	}
	return &within{lens: lens}
}

// segment returns what is seen of a segment, nil for nothing. It is reused by the next call.
func (w *within) segment(d *DeviceHour, s *DeviceSegment) (*DeviceHour, *DeviceSegment, error) {
	if w == nil {
		return d, s, nil
	}
	if w.cluster != d.Cluster || w.cluster == "" {
		var err error
		if w.owns, err = w.lens.Owns(d.Cluster); err != nil {
			return nil, nil, err
		}
		w.cluster, w.holds = d.Cluster, ""
	}
	own := false
	if s.Holder != nil {
		if s.Holder.Workspace != w.holds || w.holds == "" {
			w.holds, w.own = s.Holder.Workspace, w.lens.Scope().Sees(s.Holder.Workspace, d.Cluster)
		}
		own = w.own
	}
	switch {
	case w.owns && (own || s.Holder == nil):
		return d, s, nil
	case w.owns:
		w.holder = projections.Holder{Workspace: s.Holder.Workspace}
		w.shown = *s
		w.shown.Holder = &w.holder
		return d, &w.shown, nil
	case own:
		w.hour = DeviceHour{
			Cluster: d.Cluster, Region: d.Region, Provider: d.Provider, ProviderClass: d.ProviderClass, Hour: d.Hour,
			Model: d.Model, Declared: d.Declared,
		}
		return &w.hour, s, nil
	}
	return nil, nil, nil
}
