package inventory

import (
	"strconv"
)

// State is what a GPU was in at a moment. Every moment of a GPU in service is
// in exactly one state; where several could be said, the first that applies
// counts:
//
//   - allocated: somebody was seen to hold it. That is observed of the moment
//     itself, while "failed" lasts from one event to another of which the
//     second may be missing; and what one holds nobody else can have, however
//     ill it is. What was held while failed is reported beside it.
//   - failed: a fatal fault or a cordon for repair, and the node not yet
//     returned; or an outage that somebody declared. A failure inside a maintenance window is a failure: the window
//     did not cause it.
//   - maintenance: set aside on purpose, by a window, a cordon that is no
//     repair, or a drain.
//   - busy_unattributed: it worked, at [projections.BusyAt] or more, and nobody is known to have
//     held it: a process on the machine itself, or a holder that no observer knew of.
//   - idle: reported, nobody is known to have held it, and it was not seen to work.
//   - unprovisioned: the part of a GPU that is cut into MIG instances which no
//     instance covers: nobody can be given it until somebody cuts it. It takes
//     a report to know that, so a GPU that never reported is not in it.
//   - unobserved: in service, and nothing is known.
type State uint8

// The states, in the order of their precedence.
const (
	Allocated State = iota
	Failed
	Maintenance
	BusyUnattributed
	Idle
	Unprovisioned
	Unobserved
	StateEnd
)

var stateNames = [StateEnd]string{"allocated", "failed", "maintenance", "busy_unattributed", "idle", "unprovisioned", "unobserved"}

// String returns the state's name.
func (s State) String() string {
	if s < StateEnd {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
