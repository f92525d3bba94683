package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Authority says whose decisions count. It is computed from the histories of operators and of
// clusters, and every view consults it before a signed event takes effect.
//
// Trust starts at the root: the first admin in the log who registered himself. Only the root may
// sign their own registration. All others must be registered by an admin with a valid registration:
// an admin of the root's workspace for any workspace, of another workspace for that one. Operators
// of the root's workspace decide everywhere, others within their workspace. Decisions without a
// workspace (rates, tariffs, quotas of accounts, corrections of usage, books), retention and legal
// holds are for operators of the root's workspace.
//
// The root is first by offset, not by time, because a time can be forged and a place in the log
// cannot. Otherwise the time at which a decision was made counts ([projections.Signer]), not the
// time at which it takes effect: a rate for last month is decided today. A revoked key decides
// nothing that is dated or was appended after its end, so its decisions cannot be backdated.
// Registrations that a key signed after the time from which it is revoked are void too.
//
// A mapping rule is decided by operators of the workspace that it makes pay.
//
// A recommendation is not approved by whoever asked for it, nor after it expired or was withdrawn. An approval names the
// digest of what it approves: if other content was proposed meanwhile, it approves nothing. A command says what its
// approvals approve. What a key of a cluster did counts if the cluster had that key, to receive commands.
//
// A cluster is owned by the workspace that registered it first. Its keys are decided by operators
// of its owner. So is a transfer to another workspace, for which they must also be operators of
// that workspace.
//
// An admin may decide everything, so that one person can run a small installation. Money limits and
// the four-eyes rule bind admins too, and nobody raises a limit of their own. The last admin of the
// root's workspace cannot be revoked or given another role, because then nobody could register
// anyone any more.
type Authority struct {
	supposed []byte // the key whose decisions a view supposes; see Supposing
	root     string // the workspace of the first admin
	grants   map[operatorKey][]Grant
	owners   map[string][]ownership // of each cluster, by offset
	keys     map[clusterKey]*ClusterKeyEntry
	rejected []Rejection
	events   []operatorEvent // in the order of the log
	// sees, unless nil, says of which workspaces operators are shown; see Narrowed.
	sees func(workspace string) bool
}

// ownership is a valid registration of a cluster.
type ownership struct {
	offset    int64 // in the partition that also contains the cluster's keys
	workspace string
}

// Supposing is a view with hypothetical decisions: a fork of the log for a what-if question.
// Decisions signed with its supposed key are valid. No view of a real log is one.
type Supposing interface {
	projections.View
	// Supposed returns the key whose decisions are valid without an operator.
	Supposed() (publicKey []byte)
}

// Judged is a view of some rows, with the authority over all of them.
type Judged interface {
	projections.View
	// Authority returns who may decide.
	Authority() (*Authority, error)
}

type operatorKey struct{ workspace, operator, key string }

// Grant is the right of one key of an operator to decide, from From on and, if To is not zero,
// until To.
type Grant struct {
	Workspace       string         `json:"workspace"`
	Operator        string         `json:"operator"`
	PublicKey       []byte         `json:"public_key"`
	Role            domain.Role    `json:"role"`
	AuthorityLimits []domain.Money `json:"authority_limits,omitempty"` // one per currency
	From            domain.Instant `json:"from"`
	To              domain.Instant `json:"to,omitempty"`
	RegisteredBy    string         `json:"registered_by"`
	Root            bool           `json:"root,omitempty"` // belongs to the workspace whose operators decide everywhere

	revoked bool // ended by a revocation, not by a new registration
}

// Revoked reports whether a revocation ends the grant, and not a new registration.
func (g *Grant) Revoked() bool { return g.revoked }

// Rejection is a void decision, and why it is void.
type Rejection struct {
	Table     string         `json:"table"`
	Scope     string         `json:"scope"` // the topic key of the event
	ID        string         `json:"id"`
	Type      domain.Type    `json:"type"`
	Time      domain.Instant `json:"time"`
	Operator  string         `json:"operator"`
	PublicKey []byte         `json:"public_key"`
	Reason    string         `json:"reason"`
}

func reject(k projections.Key, v *projections.Version, reason string) Rejection {
	r := Rejection{
		Table: k.Table.String(), Scope: k.Scope, ID: k.ID, Type: v.Event.Type(), Time: v.Order.Effective,
		Reason: reason,
	}
	if s := v.Signer; s != nil {
		r.Operator, r.PublicKey, r.Time = s.Operator, s.Key, s.Time
	}
	return r
}

type operatorEvent struct {
	key projections.Key
	v   *projections.Version
}

// NewAuthority computes who may decide at a position.
func NewAuthority(view projections.View) (*Authority, error) {
	if j, ok := view.(Judged); ok {
		return j.Authority()
	}
	var events []operatorEvent
	err := view.Scan(projections.Query{Table: projections.TableOperators}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if h.Versions[i].Signer != nil {
				events = append(events, operatorEvent{k, &h.Versions[i]})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read operators: %w", err)
	}
	slices.SortFunc(events, func(a, b operatorEvent) int { return cmp.Compare(a.v.Signer.Offset, b.v.Signer.Offset) })
	// A revocation may take effect before registrations that come before it in the log. The first
	// new one ends the pass and is known from the start of the next, so that what its key signed
	// later is judged without it. There are at most as many passes as revocations, plus one.
	known := map[int64]bool{}
	for {
		a, again := derive(events, known)
		if !again {
			a.events = events
			if s, ok := view.(Supposing); ok {
				a.supposed = s.Supposed()
			}
			if err := a.own(view); err != nil {
				return nil, err
			}
			a.keys, err = a.clusterKeys(view)
			return a, err
		}
	}
}

// then returns the authority as the registry was when a decision was appended. Decisions about books are
// judged by it, so that nobody opens books again by a revocation that is dated before their close.
func (a *Authority) then(s *projections.Signer) *Authority {
	before := slices.DeleteFunc(slices.Clone(a.events), func(e operatorEvent) bool { return e.v.Signer.Appended > s.Appended })
	if len(before) == len(a.events) {
		return a
	}
	known := map[int64]bool{}
	for {
		if b, again := derive(before, known); !again {
			b.events, b.supposed, b.owners = before, a.supposed, a.owners
			return b
		}
	}
}

// FirstAuthority is the authority after an operator is registered as the first admin, and nobody
// else.
func FirstAuthority(workspace, operator string, publicKey []byte) *Authority {
	return &Authority{
		root:   workspace,
		owners: map[string][]ownership{},
		grants: map[operatorKey][]Grant{{workspace, operator, string(publicKey)}: {{
			Workspace: workspace, Operator: operator, PublicKey: publicKey, Role: domain.RoleAdmin,
			RegisteredBy: operator, Root: true,
		}}},
	}
}

// own processes the registrations of clusters in log order.
func (a *Authority) own(view projections.View) error {
	a.owners = map[string][]ownership{}
	err := view.Scan(projections.Query{Table: projections.TableClusters}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		var signed []*projections.Version
		for i := range h.Versions {
			if h.Versions[i].Signer != nil {
				signed = append(signed, &h.Versions[i])
			}
		}
		slices.SortFunc(signed, func(v, w *projections.Version) int { return cmp.Compare(v.Signer.Offset, w.Signer.Offset) })
		for _, v := range signed {
			if a.judge(k, h, v) == "" {
				a.owners[k.Scope] = append(a.owners[k.Scope], ownership{v.Signer.Offset, v.Workspace})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableClusters, err)
	}
	return nil
}

// owner returns the workspace that owned a cluster before an offset of its partition, "" if it was
// not registered.
func (a *Authority) owner(cluster string, before int64) string {
	owner := ""
	for _, o := range a.owners[cluster] {
		if o.offset >= before {
			break
		}
		owner = o.workspace
	}
	return owner
}

// Clusters returns the histories of clusters without void registrations. Clusters without a valid
// registration are left out.
func (a *Authority) Clusters(view projections.View) (map[string]*projections.History, error) {
	out := map[string]*projections.History{}
	err := view.Scan(projections.Query{Table: projections.TableClusters}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		var held []projections.Version
		for i := range h.Versions {
			if a.Judge(k, h, i) == "" {
				held = append(held, h.Versions[i])
			}
		}
		if len(held) > 0 {
			out[k.Scope] = &projections.History{Versions: held}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableClusters, err)
	}
	return out, nil
}

// raises returns "" unless operators would raise their own limit. Only an admin registers
// operators, and there is no higher role.
func raises(g *Grant, ev *domain.OperatorRegistered) string {
	for _, m := range ev.AuthorityLimits {
		if covers(g, m) != "" {
			return fmt.Sprintf("operator %q would raise their own limit to %s: another admin must", g.Operator, m)
		}
	}
	return ""
}

// derive processes the operators' events in log order. It adds the first valid revocation that is
// new to known, and reports whether there was one: then the pass must be repeated.
func derive(events []operatorEvent, known map[int64]bool) (*Authority, bool) {
	a := &Authority{grants: map[operatorKey][]Grant{}}
	found := false
	end := func(key operatorKey, from domain.Instant) domain.Instant {
		var to domain.Instant
		for _, e := range events {
			r, ok := e.v.Event.(*domain.OperatorRevoked)
			if !ok || !known[e.v.Signer.Offset] || (operatorKey{e.key.Scope, r.Operator, string(r.PublicKey)}) != key {
				continue
			}
			if at := e.v.Signer.Time; at >= from && (to == 0 || at < to) {
				to = at
			}
		}
		return to
	}
	for _, e := range events {
		s := e.v.Signer
		switch ev := e.v.Event.(type) {
		case *domain.OperatorRegistered:
			if !found && ev.Role == domain.RoleAdmin && s.Operator == ev.Operator && bytes.Equal(s.Key, ev.PublicKey) {
				found, a.root = true, e.key.Scope
			} else if reason := a.judge(e.key, nil, e.v); reason != "" {
				a.rejected = append(a.rejected, reject(e.key, e.v, reason))
				continue
			}
			key := operatorKey{e.key.Scope, ev.Operator, string(ev.PublicKey)}
			grants := a.grants[key]
			// If a key is registered again, it has the new role and limit from then on.
			for i := range grants {
				if g := &grants[i]; g.To == 0 || g.To > s.Time {
					g.To, g.revoked = max(g.From, s.Time), false
				}
			}
			to := end(key, s.Time)
			a.grants[key] = append(grants, Grant{
				Workspace: e.key.Scope, Operator: ev.Operator, PublicKey: ev.PublicKey,
				Role: ev.Role, AuthorityLimits: ev.AuthorityLimits,
				From: s.Time, To: to, RegisteredBy: s.Operator, Root: e.key.Scope == a.root, revoked: to != 0,
			})
		case *domain.OperatorRevoked:
			if known[s.Offset] {
				continue
			}
			if reason := a.judge(e.key, nil, e.v); reason != "" {
				a.rejected = append(a.rejected, reject(e.key, e.v, reason))
				continue
			}
			known[s.Offset] = true
			return a, true
		}
	}
	return a, false
}

// last returns "" unless a key is that of the only admin of the root's workspace at a time. Without
// it, nobody could register operators.
func (a *Authority) last(workspace, operator string, key []byte, at domain.Instant) string {
	if a.root == "" || workspace != a.root {
		return ""
	}
	own := false
	for k, grants := range a.grants {
		for i := range grants {
			g := &grants[i]
			if k.workspace != a.root || g.Role != domain.RoleAdmin || at < g.From || g.To != 0 && (g.revoked || g.To <= at) {
				continue
			}
			if k.operator != operator || k.key != string(key) {
				return ""
			}
			own = true
		}
	}
	if !own {
		return ""
	}
	return fmt.Sprintf("operator %q is the last admin of workspace %q: register another admin first", operator, a.root)
}

// Root returns the workspace whose operators decide everywhere, "" if the registry has no valid
// operator.
func (a *Authority) Root() string { return a.root }

// Narrowed returns the same authority for a view of some rows. It shows operators of some workspaces alone, and takes
// registrations of clusters without a signature as valid: those of which the view shows only a part.
func (a *Authority) Narrowed(sees func(workspace string) bool) *Authority {
	narrowed := *a
	narrowed.sees = sees
	return &narrowed
}

// Grants returns every grant, by workspace, operator, key and time.
func (a *Authority) Grants() []Grant {
	var out []Grant
	for k, gs := range a.grants {
		if a.sees == nil || a.sees(k.workspace) {
			out = append(out, gs...)
		}
	}
	slices.SortFunc(out, func(g, h Grant) int {
		return cmp.Or(cmp.Compare(g.Workspace, h.Workspace), cmp.Compare(g.Operator, h.Operator),
			bytes.Compare(g.PublicKey, h.PublicKey), cmp.Compare(g.From, h.From), cmp.Compare(g.To, h.To))
	})
	return out
}

// Judge returns "" if version i of a history is valid, and otherwise why it is void. Events that
// need no signature are always valid, but for commands, which carry approvals that must be valid, for recommendations
// that an operator proposes, who must be one of the workspace or the root's, and for what a cluster did with a key.
func (a *Authority) Judge(k projections.Key, h *projections.History, i int) string {
	v := &h.Versions[i]
	if k.Table == projections.TableOperators {
		for _, r := range a.rejected {
			if s := v.Signer; s != nil && r.Scope == k.Scope && r.ID == k.ID && r.Type == v.Event.Type() &&
				r.Time == s.Time && r.Operator == s.Operator && bytes.Equal(r.PublicKey, s.Key) {
				return r.Reason
			}
		}
		return ""
	}
	return a.judge(k, h, v)
}

func (a *Authority) judge(k projections.Key, h *projections.History, v *projections.Version) string {
	if !domain.NeedsSignature(v.Event) {
		switch ev := v.Event.(type) {
		case *domain.CommandIssued:
			return a.commanded(k, h, v)
		case *domain.RecommendationMade:
			return a.proposed(v)
		case *domain.RecommendationActuated:
			return a.keyed(ev.Cluster, domain.ActingKey(ev.Actor), v)
		case *domain.OutcomeRecorded:
			return a.keyed(ev.Cluster, domain.ActingKey(ev.Actor), v)
		}
		return ""
	}
	s := v.Signer
	switch {
	case s == nil && a.sees != nil && k.Table == projections.TableClusters:
		return "" // the view shows only a part of a valid registration
	case s == nil:
		return "it is not signed"
	}
	if len(a.supposed) > 0 && bytes.Equal(s.Key, a.supposed) {
		return ""
	}
	if k.Table == projections.TableCloses {
		a = a.then(s)
	}
	scope, reason := a.decidedFor(k, v)
	if reason != "" {
		return reason
	}
	g, reason := a.grant(scope, s)
	if reason != "" {
		return reason
	}
	if r, ok := v.Event.(*domain.OperatorRevoked); ok {
		if reason := a.last(scope, r.Operator, r.PublicKey, s.Time); reason != "" {
			return reason
		}
		if r.Operator == s.Operator {
			return "" // everyone may revoke a key of their own
		}
	}
	if reason := mayDecide(g, v.Event); reason != "" {
		return reason
	}
	switch ev := v.Event.(type) {
	case *domain.OperatorRegistered:
		if ev.Role != domain.RoleAdmin {
			if reason := a.last(scope, ev.Operator, ev.PublicKey, s.Time); reason != "" {
				return reason
			}
		}
		if ev.Operator == s.Operator || bytes.Equal(ev.PublicKey, s.Key) {
			return raises(g, ev)
		}
	case *domain.ClusterRegistered:
		// An operator who transfers a cluster must have the right to give it away.
		if owner := a.owner(k.Scope, s.Offset); owner != "" && owner != scope {
			from, reason := a.grant(owner, s)
			if reason == "" {
				reason = mayDecide(from, ev)
			}
			if reason != "" {
				return fmt.Sprintf("cluster %q belongs to workspace %q: %s", k.Scope, owner, reason)
			}
		}
	}
	amounts, reason := a.commits(k, h, v)
	if reason != "" {
		return reason
	}
	for _, m := range amounts {
		if reason := covers(g, m); reason != "" {
			return reason
		}
	}
	switch k.Table {
	case projections.TableCloses:
		return a.closing(h, v)
	case projections.TableRecommendations:
		return a.recommending(k, h, v)
	}
	return ""
}

// decidedFor returns the workspace that a decision is for, "" if it is for all workspaces, and
// otherwise why it is for none.
func (a *Authority) decidedFor(k projections.Key, v *projections.Version) (workspace, reason string) {
	switch k.Table {
	case projections.TableOnDemandQuotas, projections.TableTariffs, projections.TableFXRates,
		projections.TableCloses, projections.TableResolutions, projections.TableLegalHolds, projections.TablePeople,
		projections.TableUsageCorrections: // a correction takes from one workspace what it gives to another
		return "", ""
	case projections.TableClusters:
		return v.Workspace, ""
	case projections.TableMappingRules:
		// The workspace that pays.
		return cmp.Or(v.Event.(*domain.MappingRuleSet).ToWorkspace, k.Scope), ""
	case projections.TablePolicies:
		if ev, ok := v.Event.(*domain.PolicySet); ok && ev.Kind == domain.PolicyRetention {
			return "", "" // it removes records of all workspaces
		}
	case projections.TableClusterKeys, projections.TableNodes, projections.TableOutages:
		owner := a.owner(k.Scope, v.Signer.Offset)
		if owner == "" {
			return "", fmt.Sprintf("cluster %q was not registered before", k.Scope)
		}
		return owner, ""
	}
	return k.Scope, ""
}

// mayDecide returns "" if the role of a grant may decide an event.
func mayDecide(g *Grant, ev domain.Event) string {
	if roles := deciders(ev); !slices.Contains(roles, g.Role) {
		return fmt.Sprintf("operator %q is %s, and %s is for %v", g.Operator, g.Role, ev.Type(), roles)
	}
	return ""
}

// grant returns the grant under which a key decides for a workspace.
func (a *Authority) grant(workspace string, s *projections.Signer) (*Grant, string) {
	reason := fmt.Sprintf("operator %q has no such key in the registry", s.Operator)
	scopes := []string{workspace, a.root}
	if workspace == "" || workspace == a.root {
		scopes = scopes[1:]
	}
	for _, scope := range scopes {
		for i := range a.grants[operatorKey{scope, s.Operator, string(s.Key)}] {
			g := &a.grants[operatorKey{scope, s.Operator, string(s.Key)}][i]
			switch {
			case s.Time < g.From:
				reason = fmt.Sprintf("the key of operator %q was registered at %s, after it decided", s.Operator, g.From)
			case g.To != 0 && s.Time >= g.To:
				reason = fmt.Sprintf("the key of operator %q ended at %s", s.Operator, g.To)
			case g.To != 0 && g.revoked && s.Appended >= g.To:
				reason = fmt.Sprintf("the key of operator %q ended at %s, and this was appended later", s.Operator, g.To)
			default:
				return g, ""
			}
		}
	}
	return nil, reason
}

// deciders returns the roles that may decide an event.
func deciders(ev domain.Event) []domain.Role {
	switch ev := ev.(type) {
	case *domain.OperatorRegistered, *domain.OperatorRevoked, *domain.PersonNamed,
		*domain.AccessGranted, *domain.AccessRevoked, *domain.ServiceKeyIssued, *domain.ServiceKeyRevoked:
		return []domain.Role{domain.RoleAdmin}
	case *domain.PolicySet:
		switch ev.Kind {
		case domain.PolicyCommitmentDiscount, domain.PolicyIdleCost, domain.PolicyActivity, domain.PolicyCostOfCapital,
			domain.PolicyRetention, domain.PolicyDepreciation, domain.PolicyCapitalCharge, domain.PolicyRecoverableTax,
			domain.PolicySharedCosts, domain.PolicyLedgerAccount, domain.PolicySecondApproval:
			return []domain.Role{domain.RoleAdmin, domain.RoleFinance}
		}
		return []domain.Role{domain.RoleAdmin, domain.RolePlanner}
	case *domain.QuotaSet:
		return []domain.Role{domain.RoleAdmin, domain.RolePlanner}
	case *domain.OnDemandQuotaSet:
		return []domain.Role{domain.RoleAdmin, domain.RolePlanner, domain.RoleOperator}
	case *domain.ClusterRegistered, *domain.ClusterKeyIssued, *domain.ClusterKeyRotated, *domain.ClusterKeyRevoked,
		*domain.GPURetired, *domain.OutageDeclared:
		return []domain.Role{domain.RoleAdmin, domain.RoleOperator}
	case *domain.CertificationHeld:
		return []domain.Role{domain.RoleAdmin, domain.RoleAuditor, domain.RoleOperator}
	case *domain.QuarantineResolved, *domain.StreamGapResolved, *domain.GenerationSwitched:
		return []domain.Role{domain.RoleAdmin, domain.RoleOperator}
	case *domain.LegalHoldSet:
		return []domain.Role{domain.RoleAdmin, domain.RoleFinance, domain.RoleAuditor}
	case *domain.RecommendationApproved, *domain.RecommendationRejected, *domain.RecommendationWithdrawn:
		return []domain.Role{domain.RoleAdmin, domain.RoleFinance, domain.RolePlanner}
	case *domain.RecommendationActuated, *domain.OutcomeRecorded:
		return []domain.Role{domain.RoleAdmin, domain.RoleFinance, domain.RolePlanner, domain.RoleOperator}
	case *domain.IncidentAcknowledged, *domain.IncidentSilenced:
		return []domain.Role{domain.RoleAdmin, domain.RolePlanner, domain.RoleOperator}
	default:
		// Budgets, rates, tariffs, mapping rules, methods, corrections, commitments, closes.
		return []domain.Role{domain.RoleAdmin, domain.RoleFinance}
	}
}

// commits returns the money that a decision commits: for a purchase, that of the whole term; for an
// approval, the cost that the recommendation states.
func (a *Authority) commits(k projections.Key, h *projections.History, v *projections.Version) ([]domain.Money, string) {
	if _, ok := v.Event.(*domain.RecommendationApproved); !ok {
		return committed(v.Event), ""
	}
	made := a.madeBefore(k, h, v.Signer.Offset)
	if made == nil {
		return nil, "it approves a recommendation that is not in the log"
	}
	return []domain.Money{made.Event.(*domain.RecommendationMade).Cost}, ""
}

// committed returns the money that a purchase or a renewal commits.
func committed(ev domain.Event) []domain.Money {
	switch ev := ev.(type) {
	case *domain.CommitmentPurchased:
		hourly := ev.Hourly.Amount.Mul(decimal.NewFromInt(int64(ev.Units)))
		if ev.SpendPerHour.Valid {
			hourly = decimal.Max(hourly, ev.SpendPerHour.Decimal)
		}
		return term(ev.Upfront, domain.Money{Amount: hourly, Currency: cmp.Or(ev.Hourly.Currency, ev.Upfront.Currency)}, ev.Term)
	case *domain.CommitmentRenewed:
		hourly := ev.Hourly.Amount.Mul(decimal.NewFromInt(int64(ev.Units)))
		return term(ev.Upfront, domain.Money{Amount: hourly, Currency: cmp.Or(ev.Hourly.Currency, ev.Upfront.Currency)}, ev.Term)
	}
	return nil
}

func term(upfront, hourly domain.Money, t domain.Interval) []domain.Money {
	ns := decimal.NewFromInt(int64(t.Length()))
	hourly.Amount = hourly.Amount.Mul(ns).DivRound(decimal.NewFromInt(int64(domain.Hour)), 18)
	if upfront.Currency == hourly.Currency || upfront.Amount.IsZero() {
		hourly.Amount = hourly.Amount.Add(upfront.Amount)
		return []domain.Money{hourly}
	}
	return []domain.Money{upfront, hourly}
}

// covers returns "" if a grant's limit in the amount's currency covers it. Without a limit in that
// currency no money may be committed. Currencies are never converted, because the choice of a rate
// would be a decision of its own.
func covers(g *Grant, m domain.Money) string {
	if m.Amount.Sign() <= 0 {
		return ""
	}
	if len(g.AuthorityLimits) == 0 {
		return fmt.Sprintf("operator %q may commit no money, this commits %s", g.Operator, m)
	}
	limits := make([]string, len(g.AuthorityLimits))
	for i, limit := range g.AuthorityLimits {
		if limits[i] = limit.String(); limit.Currency != m.Currency {
			continue
		}
		if m.Amount.GreaterThan(limit.Amount) {
			return fmt.Sprintf("operator %q may commit %s, this commits %s", g.Operator, limit, m)
		}
		return ""
	}
	return fmt.Sprintf("operator %q has no limit in %s, this commits %s: their limits are %s",
		g.Operator, m.Currency, m, strings.Join(limits, ", "))
}

// At returns the version of a history in effect at a time, like [projections.History.At], but skips
// void decisions. It returns nil if there is none.
func (a *Authority) At(k projections.Key, h *projections.History, t domain.Instant) *projections.Version {
	for i := len(h.Versions) - 1; i >= 0; i-- {
		if h.Versions[i].Order.Effective <= t && a.Judge(k, h, i) == "" {
			return &h.Versions[i]
		}
	}
	return nil
}

// Latest returns the valid version that takes effect last, even if that is in the future, nil if
// there is none.
func (a *Authority) Latest(k projections.Key, h *projections.History) *projections.Version {
	for i := len(h.Versions) - 1; i >= 0; i-- {
		if a.Judge(k, h, i) == "" {
			return &h.Versions[i]
		}
	}
	return nil
}

// told returns the reason that readers of a view hear. Why a decision is void may follow from rights that a narrowed view
// does not have, so there it is the same for all.
func (a *Authority) told(v *projections.Version, reason string) string {
	if reason == "" || a.sees == nil || v.Signer == nil {
		return reason
	}
	return fmt.Sprintf("no right of operator %q covered it", v.Signer.Operator)
}

// signedTables lists the tables with decisions.
func signedTables() []projections.Table {
	return []projections.Table{
		projections.TableOperators, projections.TablePolicies, projections.TableQuotas, projections.TableBudgets,
		projections.TableCertifications, projections.TableMethods, projections.TableMappingRules, projections.TableLegalHolds, projections.TablePeople,
		projections.TableClusters, projections.TableClusterKeys, projections.TableNodes,
		projections.TableOutages, projections.TableUsageCorrections,
		projections.TableOnDemandQuotas, projections.TableTariffs, projections.TableFXRates,
		projections.TableRecommendations, projections.TableCommitments, projections.TableCloses, projections.TableResolutions,
		projections.TableGapResolutions, projections.TableSwitches,
		projections.TableGrants, projections.TableServiceKeys, projections.TableIncidents, projections.TableSilences,
	}
}

// Rejections returns every void decision in the log, by table, scope, id and order.
func (a *Authority) Rejections(view projections.View) ([]Rejection, error) {
	out := []Rejection{}
	for _, t := range signedTables() {
		err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			h := row.(*projections.History)
			for i := range h.Versions {
				if reason := a.told(&h.Versions[i], a.Judge(k, h, i)); reason != "" {
					out = append(out, reject(k, &h.Versions[i], reason))
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	return out, nil
}
