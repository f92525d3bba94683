package domain

import (
	"fmt"
	"strconv"
	"strings"
)

// Retained is a kind of records that a retention policy is about. Without a policy they stay for
// ever.
type Retained string

// What a policy may let go.
const (
	// RetainedHours are rows of sealed months in the database, which parts hold too. They stay for a
	// number of months.
	RetainedHours Retained = "hours"
	// RetainedLog are records in the log that the archive has too. They stay for a number of days.
	RetainedLog Retained = "log"
	// RetainedQuarantine are resolved records in quarantine. They are listed for a number of days
	// after they were resolved.
	RetainedQuarantine Retained = "quarantine"
	// RetainedSnapshots are scheduled snapshots. The newest of each of a number of days, and of each
	// of a number of months, stays.
	RetainedSnapshots Retained = "snapshots"
	// RetainedPeople are the names of people. They can be read for a number of days after the last role of
	// the person ended, or after a person without a role was named.
	RetainedPeople Retained = "people"
)

// AllRetained returns every kind.
func AllRetained() []Retained {
	return []Retained{RetainedHours, RetainedLog, RetainedQuarantine, RetainedSnapshots, RetainedPeople}
}

// Keep is how long records stay.
type Keep struct {
	Days   int `json:"days,omitempty"`
	Months int `json:"months,omitempty"`
}

// String is what [ParseKeep] reads.
func (k Keep) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		unit string
	}{{k.Days, "day"}, {k.Months, "month"}} {
		if p.n == 1 {
			parts = append(parts, "1 "+p.unit)
		} else if p.n > 1 {
			parts = append(parts, strconv.Itoa(p.n)+" "+p.unit+"s")
		}
	}
	return strings.Join(parts, " and ")
}

// Longer reports whether k keeps longer than l. A month counts as 31 days.
func (k Keep) Longer(l Keep) bool { return k.Days+31*k.Months > l.Days+31*l.Months }

// mostKept bounds the numbers in a [Keep].
const mostKept = 36600

// ParseKeep reads how long records of a kind stay: "36 months" for hours, "90 days" for the log, people
// and the quarantine, "14 days and 36 months" for snapshots, where one of the two may be left out.
func ParseKeep(what Retained, s string) (k Keep, err error) {
	want := `a number of days, for example "90 days"`
	switch what {
	case RetainedHours:
		want = `a number of months, for example "36 months"`
	case RetainedSnapshots:
		want = `days or months or both, for example "14 days and 36 months"`
	}
	bad := fmt.Errorf("%q: want %s", s, want)
	for i, part := range strings.Split(s, " and ") {
		number, unit, _ := strings.Cut(part, " ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > mostKept || number != strconv.Itoa(n) || i > 1 {
			return Keep{}, bad
		}
		switch strings.TrimSuffix(unit, "s") {
		case "day":
			if k != (Keep{}) || what == RetainedHours {
				return Keep{}, bad
			}
			k.Days = n
		case "month":
			if k.Months != 0 || what == RetainedLog || what == RetainedQuarantine || what == RetainedPeople {
				return Keep{}, bad
			}
			k.Months = n
		default:
			return Keep{}, bad
		}
	}
	return k, nil
}

// LegalHoldSet stops the removal of what it covers, whatever a retention policy says, until it is
// set again with Lifted. Empty fields do not restrict it: without any, it covers everything.
type LegalHoldSet struct {
	Hold      string   `json:"hold"`
	Workspace string   `json:"workspace,omitempty"`
	Cluster   string   `json:"cluster,omitempty"`
	Period    Interval `json:"period,omitzero"` // of the facts
	Reason    string   `json:"reason"`
	Lifted    bool     `json:"lifted,omitempty"`
}

// PersonNamed says what a person is called whom decisions name by an id, such as an operator. The name is
// sealed with a key of that person, which is kept outside the log: without the key nobody can read it.
type PersonNamed struct {
	Person string `json:"person"` // id, as in OperatorRegistered
	Sealed []byte `json:"sealed"` // see adapters/sealing
}

// MaxSealed bounds the bytes of a sealed name.
const MaxSealed = 8 << 10
