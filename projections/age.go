package projections

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// What an observation may be dated, against the time of its record. A gateway takes
// what is up to [domain.MaxAge] old; an hour more is for what waits on its way into the
// log. These bounds are part of [Method].
const (
	maxLate  = domain.MaxAge + domain.Hour
	maxEarly = domain.MaxAhead
)

// checkAge holds that an observation is of the time at which it was appended. Imports,
// what an operator's command states, corrections and decisions may be of any time, and
// so may an event that mends a record in quarantine: it was decided that it counts.
func (f *Projector) checkAge(rows *WorkingSet, rec *domain.Record) (kind string, err error) {
	env := &f.env
	from, to, observed := domain.ObservedTime(env)
	if !observed || imported(env.Source) || env.Signature != nil {
		return "", nil
	}
	switch {
	case from < rec.Time-maxLate:
		kind, err = KindTooOld, fmt.Errorf("it is of %s, more than 7 days before it was appended at %s: \"quartermaster quarantine repair\" counts it if it is true", from, rec.Time)
	case to > rec.Time+maxEarly:
		kind, err = KindInFuture, fmt.Errorf("it is of %s, more than 10 minutes after it was appended at %s", to, rec.Time)
	default:
		return "", nil
	}
	if f.mends(rows) {
		return "", nil
	}
	return kind, err
}

// mends reports whether the event stands for a record in quarantine. That of another
// partition of its topic is not seen here: only an operator's command cites one, and no
// gateway takes an event that does.
func (f *Projector) mends(rows *WorkingSet) bool {
	part, _, _ := strings.Cut(f.env.Cites, "@")
	if cited, ok := f.cited(); ok {
		return rows.Get(cited) != nil
	}
	topic, _, _ := strings.Cut(part, "/")
	return topic == string(f.tp.Topic) && part != f.tp.String()
}

// cited returns the key of the record in quarantine that the event mends, if that is
// in this partition.
func (f *Projector) cited() (Key, bool) {
	part, offset, _ := strings.Cut(f.env.Cites, "@")
	if part != f.tp.String() {
		return Key{}, false
	}
	at, err := domain.ParsePosition(part + "=" + offset)
	if err != nil {
		return Key{}, false
	}
	return f.quarantineKey(&domain.Record{Offset: at[f.tp]}), true
}

// importSources begin the sources of files and of commands, which tell of the past, and
// of what a simulation supposes. A node's events never have them: the gateway sees to that.
var importSources = []string{"sha256:", "quartermaster/", "what-if/"}

func imported(source string) bool {
	return slices.ContainsFunc(importSources, func(p string) bool { return strings.HasPrefix(source, p) })
}
