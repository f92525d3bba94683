package projections

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// How old an observation may be, and how far ahead, relative to the time of its record. A gateway
// accepts observations up to [domain.MaxAge] old. The extra hour allows for delays on the way into
// the log. These bounds are part of [Method].
const (
	maxLate  = domain.MaxAge + domain.Hour
	maxEarly = domain.MaxAhead
)

// checkAge checks that an observation was appended at about the time that it is of. Imports,
// commands of operators, corrections and decisions may be of any time. So may an event that repairs
// a quarantined record: an operator decided that it counts.
func (f *Projector) checkAge(rows *WorkingSet, rec *domain.Record) (kind string, err error) {
	env := &f.env
	from, to, observed := domain.ObservedTime(env)
	if !observed || imported(env.Source) || env.Signature != nil {
		return "", nil
	}
	switch {
	case from < rec.Time-maxLate:
		kind, err = KindTooOld, fmt.Errorf("it is of %s, more than 7 days before it was appended at %s: "+
			"\"quartermaster quarantine repair\" counts it if it is true", from, rec.Time)
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

// mends reports whether the event replaces a quarantined record. A record in another partition of
// the topic cannot be checked here. That is safe: only an operator's command cites one, and
// gateways refuse events that do.
func (f *Projector) mends(rows *WorkingSet) bool {
	part, _, _ := strings.Cut(f.env.Cites, "@")
	if cited, ok := f.cited(); ok {
		return rows.Get(cited) != nil
	}
	topic, _, _ := strings.Cut(part, "/")
	return topic == string(f.tp.Topic) && part != f.tp.String()
}

// cited returns the key of the quarantined record that the event repairs, if it is in this
// partition.
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

// importSources are the prefixes of the sources of files and commands, which report the past, and
// of what-if simulations. The gateway refuses events of nodes with such a source.
var importSources = []string{"sha256:", "quartermaster/", "what-if/"}

func imported(source string) bool {
	return slices.ContainsFunc(importSources, func(p string) bool { return strings.HasPrefix(source, p) })
}
