package attribution

import (
	"fmt"
	"slices"
)

// The names of classes, match methods and components in reports. They are stable: a name is never
// reused for something else.
var (
	classNames = []string{
		Committed: "committed", OnDemand: "on_demand", Spot: "spot", Owned: "owned",
		Shared: "shared", Credit: "credit", Tax: "tax", Rounding: "rounding",
	}
	meterNames = []string{
		GPUTime: "gpu_time", MachineTime: "machine_time", HardwareTime: "hardware_time",
		PlainTime: "time", Unstated: "unstated", AddOn: "add_on",
	}
	matchMethodNames = []string{
		ByResource: "by_resource", ByPool: "by_pool", ByAccount: "by_account",
		ByCommitment: "by_commitment", ByFollowing: "by_following", ByNothing: "by_nothing", ByRule: "by_rule",
	}
	componentNames = []string{
		Allocated: "allocated", BusyUnattributed: "busy_unattributed", Idle: "idle",
		Unprovisioned: "unprovisioned", Failed: "failed", Maintenance: "maintenance",
		Unobserved: "unobserved", Unseen: "unseen", UnusedCommitment: "unused_commitment",
		Prepaid: "prepaid", Unmatched: "unmatched", RoundingAdjustment: "rounding_adjustment",
		Assigned: "assigned", Outside: "outside", SharedCost: "shared",
		TaxRecoverable: "tax_recoverable",
	}
)

func nameOf[T ~uint8](names []string, v T) string {
	if v > 0 && int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}

func parseName[T ~uint8](names []string, what, s string) (T, error) {
	if i := slices.Index(names, s); i > 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("%s %q is unknown", what, s)
}

// ParseClass reads a name that [Class.String] returns.
func ParseClass(s string) (Class, error) { return parseName[Class](classNames, "class", s) }

// String returns the class's name, for example on_demand.
func (c Class) String() string { return nameOf(classNames, c) }

// MarshalText writes the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Class) UnmarshalText(b []byte) (err error) {
	*c, err = ParseClass(string(b))
	return err
}

// String returns the meter's name, for example machine_time.
func (m Meter) String() string { return nameOf(meterNames, m) }

// MarshalText writes the name.
func (m Meter) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// ParseMatchMethod reads a name that [MatchMethod.String] returns.
func ParseMatchMethod(s string) (MatchMethod, error) {
	return parseName[MatchMethod](matchMethodNames, "match_method", s)
}

// String returns the match method's name, for example by_resource.
func (r MatchMethod) String() string { return nameOf(matchMethodNames, r) }

// MarshalText writes the name.
func (r MatchMethod) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a name.
func (r *MatchMethod) UnmarshalText(b []byte) (err error) {
	*r, err = ParseMatchMethod(string(b))
	return err
}

// ParseComponent reads a name that [Component.String] returns.
func ParseComponent(s string) (Component, error) {
	return parseName[Component](componentNames, "component", s)
}

// String returns the component's name, for example unused_commitment.
func (c Component) String() string { return nameOf(componentNames, c) }

// MarshalText writes the name.
func (c Component) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a name.
func (c *Component) UnmarshalText(b []byte) (err error) {
	*c, err = ParseComponent(string(b))
	return err
}
