package inventory

import (
	"strconv"
)

// State is the state of a GPU at a moment. Every moment of a GPU in service is in exactly
// one state. If several apply, the first counts:
//
//   - allocated: it was seen to have a holder. That is an observation of the moment
//     itself, while "failed" lasts from one event to another, of which the second may be
//     missing. And a held GPU is not available to others, whatever its condition. Time
//     that was held while failed is reported separately.
//   - failed: a fatal fault or a cordon for repair without a return since, or a declared
//     outage. A failure within a maintenance window is a failure: the window did not
//     cause it.
//   - maintenance: set aside deliberately, by a window, a cordon that is not for repair,
//     or a drain.
//   - busy_unattributed: it was busy, at [projections.BusyAt] or more, without a known
//     holder: a process on the machine itself, or a holder that no observer knew of.
//   - idle: reported, without a known holder, and not seen busy.
//   - unprovisioned: the part of a MIG-partitioned GPU that no instance covers. It is not
//     available until somebody creates an instance. Only a report shows that, so a GPU
//     that never reported is not in this state.
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

var stateNames = [StateEnd]string{
	"allocated", "failed", "maintenance", "busy_unattributed", "idle", "unprovisioned", "unobserved",
}

// String returns the state's name.
func (s State) String() string {
	if s < StateEnd {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
