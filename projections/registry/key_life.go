package registry

import "quartermaster/domain"

// KeyLife says how long a key is valid.
type KeyLife struct {
	Until   domain.Instant `json:"until,omitempty"` // zero: until revoked
	Why     string         `json:"why,omitempty"`   // reason for Until: expires, replaced or revoked, and the reason given
	Revoked bool           `json:"revoked"`
}

// Live reports whether the key is valid at a time. It is valid as soon as it is known, and invalid
// as soon as it is known to be revoked, because the clocks of those who decide and of those who
// check differ.
func (l *KeyLife) Live(at domain.Instant) bool { return !l.Revoked && (l.Until == 0 || at < l.Until) }

// End ends the key. Of several ends the first in time counts.
func (l *KeyLife) End(at domain.Instant, why string, revoked bool) {
	l.Revoked = l.Revoked || revoked
	if l.Until == 0 || at < l.Until {
		l.Until, l.Why = at, why
	}
}

// RevokedFor returns the reason for the end of what was revoked.
func RevokedFor(reason string) string {
	if reason == "" {
		return "revoked"
	}
	return "revoked: " + reason
}
