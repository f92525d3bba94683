package domain

import (
	"slices"
	"strings"
)

// Events of qm.access, keyed by workspace: who may read, and who did.

// The kinds of principals.
const (
	PrincipalUser    = "user"    // somebody whom an identity provider knows: user:PROVIDER/SUBJECT
	PrincipalGroup   = "group"   // whoever has a claim of an identity provider: group:PROVIDER/GROUP
	PrincipalAccount = "account" // a service account: account:NAME
)

// Principal is who asks, in one text: the kind, a colon and the name. PROVIDER is the name that the configuration gives
// an identity provider, so that two providers cannot claim each other's people.
type Principal string

// UserOf returns the principal of a subject of an identity provider.
func UserOf(provider, subject string) Principal {
	return Principal(PrincipalUser + ":" + provider + "/" + subject)
}

// GroupOf returns the principal of a group of an identity provider.
func GroupOf(provider, group string) Principal {
	return Principal(PrincipalGroup + ":" + provider + "/" + group)
}

// AccountOf returns the principal of a service account.
func AccountOf(name string) Principal { return Principal(PrincipalAccount + ":" + name) }

// Kind returns the kind and the name of a principal. It reports false if the text is not one.
func (p Principal) Kind() (kind, name string, ok bool) {
	kind, name, _ = strings.Cut(string(p), ":")
	switch kind {
	case PrincipalUser, PrincipalGroup:
		provider, of, _ := strings.Cut(name, "/")
		return kind, name, provider != "" && of != ""
	case PrincipalAccount:
		return kind, name, name != "" && !strings.Contains(name, "/")
	}
	return kind, name, false
}

// AccessGranted lets a principal read what a role may read, in the event's workspace and in those below it. A grant of the
// same id is replaced.
type AccessGranted struct {
	Grant     string    `json:"grant"` // id within the workspace
	Principal Principal `json:"principal"`
	Role      Role      `json:"role"`
	Clusters  []string  `json:"clusters,omitempty"` // only these; empty: all that the workspace sees
	Until     Instant   `json:"until,omitempty"`    // zero: until revoked
}

// AccessRevoked ends a grant at once.
type AccessRevoked struct {
	Grant  string `json:"grant"`
	Reason string `json:"reason,omitempty"`
}

// ServiceKeyIssued records a new key of a service account by its HMAC ([ServiceKey.MAC]); the key itself is shown once and
// never stored. A previous key stays valid until PreviousValidUntil.
type ServiceKeyIssued struct {
	Account            string  `json:"account"` // name within the workspace
	KeyID              string  `json:"key_id"`
	MAC                []byte  `json:"mac"` // 32 bytes
	Expires            Instant `json:"expires,omitempty"`
	PreviousKeyID      string  `json:"previous_key_id,omitempty"`
	PreviousValidUntil Instant `json:"previous_valid_until,omitempty"`
}

// ServiceKeyRevoked ends a key of a service account at once.
type ServiceKeyRevoked struct {
	KeyID  string `json:"key_id"`
	Reason string `json:"reason,omitempty"`
}

// SessionEnded ends whatever a principal was given by their identity provider before At: sessions of browsers and access
// tokens. It is appended at their logout, or by whoever ends them.
type SessionEnded struct {
	Principal Principal `json:"principal"`
	At        Instant   `json:"at"`
	Reason    string    `json:"reason,omitempty"`
}

// AccessRecorded says what a principal asked in a minute, in the order of operations.
type AccessRecorded struct {
	Principal Principal    `json:"principal"`
	Journal   string       `json:"journal"` // of the server; what one journal says of a minute counts once
	Window    Interval     `json:"window"`
	Asked     []AccessRead `json:"asked"`
}

// AccessRead is what was asked of one operation, or another request of the API.
type AccessRead struct {
	Operation  string   `json:"operation"`            // for example costs, or a method and path
	Workspaces []string `json:"workspaces,omitempty"` // that could be seen; empty: the whole estate
	Count      uint64   `json:"count"`
	Refused    uint64   `json:"refused,omitempty"` // of Count
	Position   string   `json:"position,omitempty"`
	Digest     []byte   `json:"digest,omitempty"` // SHA-256 of the last question
}

// grantable are the roles that a grant may give.
var grantable = []Role{RoleAdmin, RoleFinance, RolePlanner, RoleAuditor, RoleOperator, RoleViewer}

// Grantable returns the roles that a grant may give.
func Grantable() []Role { return slices.Clone(grantable) }

func (c *checker) principal(p Principal) {
	c.id("principal", string(p))
	if _, _, ok := p.Kind(); c.err == nil && !ok {
		c.bad("principal", "%q is none: want user:PROVIDER/SUBJECT, group:PROVIDER/GROUP or account:NAME", Clip(string(p), 80))
	}
}

func (c *checker) accessGranted(e *AccessGranted) {
	c.id("grant", e.Grant)
	c.principal(e.Principal)
	oneOf(c, "role", e.Role, grantable...)
	c.ids("clusters", e.Clusters)
	c.optionalInstant("until", e.Until)
}

func (c *checker) serviceKeyIssued(e *ServiceKeyIssued) {
	c.id("account", e.Account)
	if _, _, ok := AccountOf(e.Account).Kind(); c.err == nil && !ok {
		c.bad("account", "%q contains a slash", Clip(e.Account, 80))
	}
	c.id("key_id", e.KeyID)
	c.bytes("mac", e.MAC, 32)
	c.optionalInstant("expires", e.Expires)
	c.optionalID("previous_key_id", e.PreviousKeyID)
	c.optionalInstant("previous_valid_until", e.PreviousValidUntil)
	if c.err == nil && (e.PreviousKeyID == "") != (e.PreviousValidUntil == 0) {
		c.bad("previous_valid_until", "goes with previous_key_id: want both or none")
	}
}

func (c *checker) accessRecorded(e *AccessRecorded) {
	c.principal(e.Principal)
	c.id("journal", e.Journal)
	c.interval("window", e.Window)
	c.listed("asked", len(e.Asked))
	if c.err == nil && len(e.Asked) == 0 {
		c.bad("asked", "is empty")
	}
	for i := range e.Asked {
		if c.err != nil {
			return
		}
		c.in("asked", i)
		a := &e.Asked[i]
		c.id("operation", a.Operation)
		c.ids("workspaces", a.Workspaces)
		if a.Position != "" {
			c.position("position", a.Position)
		}
		if n := len(a.Digest); c.err == nil && n != 0 && n != 32 {
			c.bad("digest", "has %d bytes, want 32", n)
		}
		if c.err == nil && (a.Count == 0 || a.Refused > a.Count) {
			c.bad("count", "is %d, of which %d were refused", a.Count, a.Refused)
		}
	}
}
