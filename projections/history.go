package projections

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"sort"

	"quartermaster/domain"
)

// Signer says who decided an event and with which key. That the signature
// verified was checked by the fold; whether this key had the right to decide
// is answered when the row is read.
//
// Time is when it was decided, which need not be when it takes effect: a rate
// may be set for last month. Appended and Offset are its place in the log, by
// which a decision is known that was dated back.
type Signer struct {
	Operator string         `json:"operator"`
	Key      []byte         `json:"key"`
	Time     domain.Instant `json:"time"`
	Appended domain.Instant `json:"appended"`
	Offset   int64          `json:"offset"`
}

// Version is one event about a thing.
type Version struct {
	Order     domain.Precedence `json:"order"`
	Recorded  domain.Instant    `json:"recorded,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Signer    *Signer           `json:"signer,omitempty"`
	// Again is when the same was last stated again with nothing else between,
	// nil when it was not. What arrives late from between then does not hold
	// beyond it.
	Again *domain.Precedence `json:"again,omitempty"`
	// Count is how many faults it stands for, the first of them at Order and the last at
	// Last; both are 0 where it is one, or Last alone is when monitoring systems saw that
	// one again. Rest says that those were different, of which
	// Event has the kind, whether they are fatal, and where GPU is set, the device.
	Count uint64         `json:"count,omitempty"`
	Last  domain.Instant `json:"last,omitempty"`
	Rest  bool           `json:"rest,omitempty"`
	Event domain.Event   `json:"event"`

	// Of a fleet that was read, and in no row: left is a return because the GPU left its
	// node, which no repeat outlasts; moved, that the GPU went to another node with it.
	Left, Moved bool
}

// History is the row of a thing that is declared: everything that was said of
// it, in [domain.Precedence]. The last version in effect at a time is what held
// then. Tables whose things change for ever are cut up by day or month, so that a
// row stays small.
type History struct {
	Versions []Version `json:"versions"`
}

func (*History) row() {}

// At returns the version in effect at a time, nil when there is none yet.
func (h *History) At(t domain.Instant) *Version {
	i := sort.Search(len(h.Versions), func(i int) bool { return h.Versions[i].Order.Effective > t })
	if i == 0 {
		return nil
	}
	return &h.Versions[i-1]
}

// Latest returns the version that took effect last.
func (h *History) Latest() *Version { return &h.Versions[len(h.Versions)-1] }

// insert puts a version in its place. With collapse, a version that says just
// what the one before it says is only noted there: reporters declare themselves at
// every start, and that is no change.
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

// SightingGap is how far apart several monitoring systems, or one that was started
// again, may report the same change of a gauge.
const SightingGap = 15 * 60 * domain.Second

func sameVersion(a, b *Version) (bool, error) {
	// A decision is never left out: the one before it may turn out to be void.
	if a.Event.Type() != b.Event.Type() || a.Workspace != b.Workspace || a.Signer != nil || b.Signer != nil {
		return false, nil
	}
	return SameEvent(a.Event, b.Event)
}

// SameEvent reports whether two events say the same, by their canonical bytes.
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

// Known returns since when a statement is known: as its source recorded it,
// else since it was appended.
func (v *Version) Known() domain.Instant { return cmp.Or(v.Recorded, v.Order.Appended) }

// EventDigest returns a digest that is equal for events that say the same; see
// [SameEvent].
func EventDigest(ev domain.Event) ([32]byte, error) {
	b, err := canonical.Marshal(ev)
	return sha256.Sum256(append(b, ev.Type()...)), err
}
