package attribution

import "quartermaster/domain"

// ScopeOf is a set of charges that lines follow together; see [Scopes]. Its names are texts, or the numbers of texts,
// where the zero is none.
type ScopeOf[T comparable] struct {
	Kind                      ScopeKind
	Issuer, Account, Currency T
	Invoice, Object           T
	Period                    domain.Interval
}

// Scope is a scope by texts.
type Scope = ScopeOf[string]

// scope is a scope by numbers.
type scope = ScopeOf[name]

// ScopeKind says what the charges of a scope have in common.
type ScopeKind uint8

// The kinds.
const (
	ofResource ScopeKind = iota
	ofDetail
	ofInvoice
	ofAccount
	ofCommitment // of a recurring purchase: the usage that the commitment covered
)

// charged is what the scopes of a line depend on.
type charged[T comparable] struct {
	issuer, account, currency, resource, detail, invoice T
	billing                                              domain.Interval
}

// scopes appends the scopes of a line, nearest first.
func (c *charged[T]) scopes(to []ScopeOf[T]) []ScopeOf[T] {
	var none T
	s := ScopeOf[T]{Issuer: c.issuer, Account: c.account, Currency: c.currency}
	if c.resource != none {
		x := s
		x.Kind, x.Object, x.Period = ofResource, c.resource, c.billing
		to = append(to, x)
	}
	if c.detail != none {
		x := s
		x.Kind, x.Invoice, x.Object = ofDetail, c.invoice, c.detail
		to = append(to, x)
	}
	if c.invoice != none {
		x := s
		x.Kind, x.Invoice = ofInvoice, c.invoice
		to = append(to, x)
	}
	s.Kind, s.Period = ofAccount, c.billing
	return append(to, s)
}

func scopesOf(r *record, to []scope) []scope {
	c := charged[name]{r.issuer, r.account, r.currency, r.resource, r.detail, r.invoice, r.billing}
	return c.scopes(to)
}

// Scopes appends the scopes of a line, nearest first. A tax, credit, rounding or adjustment follows the charges of the
// first that has any with nonzero amounts.
func Scopes(l *Line, to []Scope) []Scope {
	c := charged[string]{l.Issuer, l.Account, l.Currency, l.Resource, l.Detail, l.Invoice, l.BillingPeriod}
	return c.scopes(to)
}

// CoveredBy is the scope that a recurring purchase of a commitment follows.
func CoveredBy(purchase *Line) Scope {
	return Scope{Kind: ofCommitment, Issuer: purchase.Issuer, Currency: purchase.Currency, Object: purchase.Commitment, Period: purchase.ChargePeriod}
}

// Follows reports whether the line follows charges of [Scopes], and so is never followed.
func (l *Line) Follows() bool { return l.Class.follows() && l.ToRule == "" }

// scopeName is the name of a scope in explanations.
func scopeName[T comparable](s *ScopeOf[T]) T {
	switch s.Kind {
	case ofInvoice:
		return s.Invoice
	case ofAccount:
		return s.Account
	}
	return s.Object
}

// followed returns the scope under a name as it is explained, without charges.
func (s *ScopeOf[T]) followed(name string) Followed {
	return Followed{Scope: scopeNames[s.Kind], Name: name, Period: s.Period}
}

// Explained returns the scope as explanations have it, without charges.
func Explained(s *Scope) Followed { return s.followed(scopeName(s)) }

var scopeNames = [...]string{
	ofResource: "resource", ofDetail: "invoice_detail", ofInvoice: "invoice",
	ofAccount: "account", ofCommitment: "commitment",
}
