package projections

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"sort"

	"quartermaster/domain"
)

// Signer says who decided an event and with which key. The fold verified the signature. Whether the
// key had the right to decide is answered when the row is read.
//
// Time is when it was decided, which may differ from when it takes effect: a rate may be set for
// last month. Appended and Offset are its place in the log. They reveal a backdated decision.
type Signer struct {
	Operator string         `json:"operator"`
	Key      []byte         `json:"key"`
	Time     domain.Instant `json:"time"`
	Appended domain.Instant `json:"appended"`
	Offset   int64          `json:"offset"`
}

// Located is where in the log a record is, and the cluster that its event names beside its key.
type Located struct {
	Partition uint32 `json:"partition"` // of the topic of the row's table
	Offset    int64  `json:"offset"`
	Cluster   string `json:"cluster,omitempty"`
}

// Version is one event about a thing.
type Version struct {
	Order     domain.Precedence `json:"order"`
	Recorded  domain.Instant    `json:"recorded,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Line      uint64            `json:"line,omitempty"` // see [domain.Envelope]
	Signer    *Signer           `json:"signer,omitempty"`
	// Record is set where a trail names the record of an event, and the key of the row and [Signer] do not tell it: in
	// recommendations and denials, and for signed events of nodes, whose record has the key of their shard.
	Record *Located `json:"record,omitempty"`
	// Again is when the same statement was last repeated with nothing else in between, nil if it
	// was not. A late statement from in between does not hold beyond it.
	Again *domain.Precedence `json:"again,omitempty"`
	// Count is the number of faults that it stands for, the first at Order and the last at Last.
	// For a single fault Count is 0, and Last is 0 too unless monitoring systems reported the fault
	// again. Rest says that the faults were different; Event then holds their kind, whether they
	// are fatal, and their device if GPU is set.
	Count uint64         `json:"count,omitempty"`
	Last  domain.Instant `json:"last,omitempty"`
	Rest  bool           `json:"rest,omitempty"`
	Event domain.Event   `json:"event"`

	// Set only in a loaded fleet, never in a row. Left: a return because the GPU left its node,
	// which ends all repeats. Moved: the GPU moved to another node with it.
	Left, Moved bool
}

// History is the row of a declared thing: all statements about it, in [domain.Precedence]. The last
// version in effect at a time is valid then. Tables of things that change continuously are split by
// day or month, so that a row stays small.
type History struct {
	Versions []Version `json:"versions"`
}

func (*History) row() {}

// At returns the version in effect at a time, nil if there is none yet.
func (h *History) At(t domain.Instant) *Version {
	i := sort.Search(len(h.Versions), func(i int) bool { return h.Versions[i].Order.Effective > t })
	if i == 0 {
		return nil
	}
	return &h.Versions[i-1]
}

// Latest returns the version with the latest effective time.
func (h *History) Latest() *Version { return &h.Versions[len(h.Versions)-1] }

// insert puts a version in its place. With collapse, a version equal to the one before it is only
// noted there: reporters declare themselves at every start, and that is not a change.
func (h *History) insert(v Version, collapse bool) error {
	i := sort.Search(len(h.Versions), func(i int) bool { return h.Versions[i].Order.After(v.Order) })
	if i > 0 {
		before := &h.Versions[i-1]
		if before.Order == v.Order {
			return nil
		}
		if collapse {
			same, err := sameVersion(before, &v)
			if err != nil {
				return err
			}
			if same {
				if before.Again == nil || v.Order.After(*before.Again) {
					before.Again = &v.Order
				}
				return nil
			}
		}
	}
	h.Versions = slices.Insert(h.Versions, i, v)
	if i > 0 {
		if again := h.Versions[i-1].Again; again != nil && again.After(v.Order) {
			resumed := h.Versions[i-1]
			resumed.Order, resumed.Again = *again, nil
			h.Versions[i-1].Again = nil
			h.Versions = slices.Insert(h.Versions, i+1, resumed)
		}
	}
	return nil
}

// SightingGap is the maximum time between reports of the same change of a gauge by several
// monitoring systems, or by one that was restarted.
const SightingGap = 15 * 60 * domain.Second

func sameVersion(a, b *Version) (bool, error) {
	// A decision is never dropped: the one before it may turn out to be void.
	if a.Event.Type() != b.Event.Type() || a.Workspace != b.Workspace || a.Signer != nil || b.Signer != nil {
		return false, nil
	}
	return SameEvent(a.Event, b.Event)
}

// SameEvent reports whether two events are equal in their canonical bytes.
func SameEvent(a, b domain.Event) (bool, error) {
	if a.Type() != b.Type() {
		return false, nil
	}
	ab, err := canonical.Marshal(a)
	if err != nil {
		return false, err
	}
	bb, err := canonical.Marshal(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(ab, bb), nil
}

// Known returns when a statement became known: as its source recorded it, else when it was
// appended.
func (v *Version) Known() domain.Instant { return cmp.Or(v.Recorded, v.Order.Appended) }

// EventDigest returns a digest that is equal for equal events; see [SameEvent].
func EventDigest(ev domain.Event) ([32]byte, error) {
	b, err := canonical.Marshal(ev)
	return sha256.Sum256(append(b, ev.Type()...)), err
}
