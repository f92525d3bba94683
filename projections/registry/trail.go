package registry

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Entry is a line of the trail: who decided what, and what came of it.
type Entry struct {
	Time     domain.Instant `json:"time"` // when it was decided
	Appended domain.Instant `json:"appended"`
	// Operator decided it. Of a refused attempt it is whoever tried, of a recommendation whoever asked for it, and
	// otherwise "" for what nobody signed.
	Operator  string      `json:"operator,omitempty"`
	Actor     string      `json:"actor,omitempty"`      // who did or stated it: operator:NAME or key:KEYID
	PublicKey []byte      `json:"public_key,omitempty"` // that signed it; none: nobody did
	Role      domain.Role `json:"role,omitempty"`       // of the key at that time, if it is of a workspace that is seen
	Workspace string      `json:"workspace,omitempty"`  // that it is about; none: the whole estate
	Cluster   string      `json:"cluster,omitempty"`
	Subject   string      `json:"subject"` // id of what was decided about
	Type      domain.Type `json:"type"`
	Did       string      `json:"did"` // in words
	State     State       `json:"state"`
	Outcome   string      `json:"outcome"` // what came of it, in words
	Partition string      `json:"partition"`
	Offset    int64       `json:"offset"`
	Follows   []Evidence  `json:"follows"` // the records that say what came of it
	Says      string      `json:"says"`    // all of it in one sentence

	names []string // of workspaces and clusters that it is about, too
}

// State is what came of a decision.
type State string

// The states of decisions.
const (
	InEffect   State = "in_effect"  // since its effective time, which may be later than its time
	Void       State = "void"       // it took no effect
	Superseded State = "superseded" // by a later decision about the same
	Ended      State = "ended"      // revoked, cancelled or removed
	Pending    State = "pending"    // it waits for another decision, or to be carried out
	Completed  State = "completed"  // what it was for was done
	Denied     State = "denied"     // an attempt that was refused before anything was appended
)

// KeyName is what a refused attempt calls whoever has a key.
func KeyName(public []byte) string { return fmt.Sprintf("key %x", sha256.Sum256(public))[:20] }

// ownerOfKey returns the operator that [KeyName] belongs to, "" if there is none.
func (a *Authority) ownerOfKey(name string) string {
	if strings.HasPrefix(name, "key ") {
		for _, g := range a.Grants() {
			if KeyName(g.PublicKey) == name {
				return g.Operator
			}
		}
	}
	return ""
}

// Evidence is a record that says what came of a decision. Where nobody signed it, the partition may be "": the row does
// not keep where it is.
type Evidence struct {
	Type      domain.Type    `json:"type"`
	Time      domain.Instant `json:"time"`
	Operator  string         `json:"operator,omitempty"`
	Partition string         `json:"partition"`
	Offset    int64          `json:"offset"`
}

// TrailFilter selects entries; empty fields match all.
type TrailFilter struct {
	Workspace      string // that an entry is about, or that it makes pay
	Cluster        string
	Recommendation string // with what was proposed, carried out and recorded
	Operator       string
	From, To       domain.Instant // of the decision, To exclusive; 0: no bound
}

// trailTables lists the tables with signed events, and those with refused attempts. None of them grows with telemetry.
func trailTables() []projections.Table {
	return append(decisionTables(), projections.TableDenials)
}

// byDay reports whether a table of the trail is split by days.
func byDay(t projections.Table) bool {
	return t == projections.TableHealth || t == projections.TableDenials
}

// statement is a version with its row.
type statement struct {
	key projections.Key
	h   *projections.History
	at  int
	v   *projections.Version
}

func (s statement) record() (partition string, offset int64) {
	tp := domain.TopicPartition{Topic: s.key.Table.Topic()}
	if r := s.v.Record; r != nil {
		tp.Partition = int(r.Partition)
		return tp.String(), r.Offset
	}
	tp.Partition = domain.PartitionOf([]byte(s.key.Scope), tp.Topic.Partitions())
	return tp.String(), s.v.Signer.Offset
}

func (s statement) evidence() Evidence {
	e := Evidence{Type: s.v.Event.Type(), Time: s.v.Order.Time}
	if s.v.Signer == nil && s.v.Record == nil {
		return e // the row does not keep where it is
	}
	e.Partition, e.Offset = s.record()
	if s.v.Signer != nil {
		e.Operator = s.v.Signer.Operator
	}
	return e
}

// Trail returns who decided what, by time and record: every signed event, valid or void, and every refused attempt. With
// a recommendation, it has what nobody signed about it too. Nothing depends on the time of the question.
func (a *Authority) Trail(view projections.View, f TrailFilter) ([]Entry, error) {
	replaced := map[[2]string]statement{} // keys that a later key replaced, by scope and id
	var all []statement
	for _, t := range trailTables() {
		if f.Recommendation != "" && t.Topic() != domain.TopicProcurement {
			continue
		}
		q := projections.Query{Table: t}
		if t == projections.TableRecommendations {
			q.ID = f.Recommendation
		}
		if byDay(t) {
			// Rows are by the day of the event, which is dated when it is signed.
			if f.From != 0 {
				q.From = projections.DayOf(f.From)
			}
			if f.To != 0 {
				q.To = projections.HourOf(f.To-1) + 1
			}
		}
		err := view.Scan(q, func(k projections.Key, row projections.Row) error {
			h := row.(*projections.History)
			for i := range h.Versions {
				s := statement{k, h, i, &h.Versions[i]}
				if of := replaces(s.v.Event); of != "" && a.Judge(k, h, i) == "" {
					replaced[[2]string{k.Scope, of}] = s
				}
				if a.listed(s, f) {
					all = append(all, s)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	out := []Entry{}
	for _, s := range all {
		e := a.entry(s, replaced)
		if f.Cluster == "" || e.Cluster == f.Cluster || slices.Contains(e.names, "cluster "+f.Cluster) {
			if f.Workspace == "" || e.Workspace == f.Workspace || slices.Contains(e.names, "workspace "+f.Workspace) {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(x.Time, y.Time), strings.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	return out, nil
}

// listed reports whether a version has a line of its own, by what it needs no sentence for.
func (a *Authority) listed(s statement, f TrailFilter) bool {
	at, who := s.v.Order.Time, ""
	switch {
	case s.v.Signer != nil:
		at, who = s.v.Signer.Time, s.v.Signer.Operator
	case s.key.Table == projections.TableDenials:
		who = s.v.Event.(*domain.AccessDenied).Principal
		if owner := a.ownerOfKey(who); owner != "" && f.Operator != who {
			who = owner
		}
	case s.key.Table == projections.TableRecommendations && f.Recommendation != "":
		if made, ok := s.v.Event.(*domain.RecommendationMade); ok {
			who = made.Requester
		}
	default:
		return false
	}
	if f.Recommendation != "" && s.key.Table != projections.TableRecommendations {
		bought, ok := s.v.Event.(*domain.CommitmentPurchased)
		if !ok || bought.Recommendation != f.Recommendation {
			return false
		}
	}
	return (f.Operator == "" || who == f.Operator) && at >= f.From && (f.To == 0 || at < f.To)
}

func (a *Authority) entry(s statement, replaced map[[2]string]statement) Entry {
	v := s.v
	e := Entry{
		Time: v.Order.Time, Appended: v.Order.Appended, Workspace: v.Workspace, Subject: s.key.ID, Type: v.Event.Type(), Follows: []Evidence{},
	}
	e.Partition, e.Offset = s.record()
	if sg := v.Signer; sg != nil {
		e.Time, e.Operator, e.PublicKey = sg.Time, sg.Operator, sg.Key
		if g := a.under(s.key, v); g != nil && (a.sees == nil || a.sees(g.Workspace)) {
			e.Role = g.Role
		}
	}
	switch s.key.Table.Topic() {
	case domain.TopicFleet, domain.TopicHardware, domain.TopicDeployments, domain.TopicTelemetry:
		e.Cluster = s.key.Scope
		if owner := a.owner(e.Cluster, math.MaxInt64); e.Workspace == "" && (a.sees == nil || a.sees(owner)) {
			e.Workspace = owner
		}
	}
	if s.key.Table == projections.TableIncidents {
		e.Cluster = clusterOf(s.h)
	}
	about := func(kind, name string) {
		if name != "" {
			e.names = append(e.names, kind+" "+name)
		}
	}
	e.Did = Words(v.Event, e.Cluster)
	switch ev := v.Event.(type) {
	case *domain.MappingRuleSet:
		about("workspace", ev.ToWorkspace)
		for _, w := range ev.ToShares {
			about("workspace", w.Workspace)
		}
		about("cluster", ev.Cluster)
	case *domain.CertificationHeld:
		about("cluster", ev.Cluster)
	case *domain.PolicySet:
		about("workspace", ev.Selector.Workspace)
		about("cluster", ev.Selector.Cluster)
		for _, c := range ev.Clusters {
			about("cluster", c)
		}
	case *domain.LegalHoldSet:
		about("workspace", ev.Workspace)
		about("cluster", ev.Cluster)
	case *domain.UsageCorrected:
		about("workspace", ev.Workspace)
	case *domain.CommitmentPurchased:
		for _, o := range ev.Owners {
			about("workspace", o.Workspace)
		}
	case *domain.AccessGranted:
		for _, c := range ev.Clusters {
			about("cluster", c)
		}
	case *domain.AccessDenied:
		e.Operator, e.State, e.Outcome = ev.Principal, Denied, "refused: "+ev.Reason
		if owner := a.ownerOfKey(ev.Principal); owner != "" {
			e.Operator += " of operator " + owner
		}
		about("cluster", ev.Target)
		about("workspace", a.owner(ev.Target, math.MaxInt64))
	}
	if s.key.Table == projections.TableRecommendations {
		a.recommended(&e, s)
	}
	if e.State == "" {
		a.outcome(&e, s, replaced)
	}
	e.Did, e.Outcome = oneLine(e.Did), oneLine(e.Outcome)
	e.Says = oneLine(e.sentence())
	return e
}

// oneLine keeps the texts of others, such as the name of whoever was refused, from writing a line of their own, or to a
// terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func (e *Entry) sentence() string {
	who := "operator " + e.Operator
	switch {
	case e.State == Denied:
		who = e.Operator
	case len(e.PublicKey) == 0 && e.Operator != "":
		who = "requester " + e.Operator
	case e.Operator == "" && domain.ActingKey(e.Actor) != "":
		who = "key " + domain.ActingKey(e.Actor)
	case e.Operator == "":
		who = "a program"
	}
	if e.Workspace != "" {
		who += " in workspace " + e.Workspace
	}
	return who + " " + e.Did + ", " + e.Outcome
}

// clusterOf returns the cluster that the events of a row name, "" for none.
func clusterOf(h *projections.History) string {
	for i := range h.Versions {
		if r := h.Versions[i].Record; r != nil && r.Cluster != "" {
			return r.Cluster
		}
	}
	return ""
}

// recommended completes the entry of an event about a recommendation: what it is, and how it went on.
func (a *Authority) recommended(e *Entry, s statement) {
	made := madeIn(s.h)
	clusters := clustersOf(s.h, s.v.Event)
	for _, c := range clusters {
		e.names = append(e.names, "cluster "+c)
	}
	if len(clusters) == 1 {
		e.Cluster = clusters[0]
	}
	of := "recommendation " + s.key.ID
	if made != nil {
		of = made.Kind + " " + of
	}
	switch len(clusters) {
	case 0:
	case 1:
		of += " for cluster " + clusters[0]
	default:
		of += " for clusters " + strings.Join(clusters, ", ")
	}
	e.Actor = domain.ActorOf(s.v.Event)
	void := a.Judge(s.key, s.h, s.at)
	switch ev := s.v.Event.(type) {
	case *domain.RecommendationMade:
		e.Did, e.State, e.Outcome = "asked for "+of+because(ev.Summary), Pending, "nobody decided yet"
		if s.v.Signer == nil {
			e.Operator = ev.Requester
		}
		if d, ok := a.after(s, func(ev domain.Event) bool { return decidedWord(ev) != "" }); ok {
			e.State, e.Outcome = Completed, decidedBy(d)
			e.Follows = append(e.Follows, d.evidence())
		}
	case *domain.RecommendationApproved:
		e.Did = "approved " + of + because(ev.Note)
	case *domain.RecommendationRejected:
		e.Did = "rejected " + of + because(ev.Note)
	case *domain.RecommendationWithdrawn:
		e.Did = "withdrew " + of + because(ev.Reason)
	case *domain.CommandIssued:
		e.Did, e.State, e.Outcome = "issued command "+ev.Command+" of "+of+to(ev.Expires), Pending, "not carried out yet"
		if done, ok := a.after(s, func(next domain.Event) bool {
			did, ok := next.(*domain.RecommendationActuated)
			return ok && (did.Command == ev.Command || did.Command == "" && did.Cluster == ev.Cluster)
		}); ok {
			e.State, e.Outcome = Completed, actuated(done, false)
			e.Follows = append(e.Follows, done.evidence())
		}
	case *domain.RecommendationActuated:
		e.Did, e.State, e.Outcome = actuatedWord(ev)+" "+of+under(" as ", ev.Reference), Completed, actuated(s, false)
	case *domain.OutcomeRecorded:
		e.Did, e.State, e.Outcome = "recorded what came of "+of, Completed, "outcome "+ev.Outcome+because(ev.Detail)
	}
	switch s.v.Event.(type) {
	case *domain.RecommendationApproved, *domain.RecommendationRejected, *domain.RecommendationWithdrawn:
		if void == "" {
			a.carriedOut(e, s, clusters)
		}
	}
	if void != "" {
		e.State, e.Outcome = Void, "took no effect: "+a.told(s.v, void)
	}
}

// madeIn returns the first statement of a recommendation, nil if the log has none.
func madeIn(h *projections.History) *domain.RecommendationMade {
	for i := range h.Versions {
		if ev, ok := h.Versions[i].Event.(*domain.RecommendationMade); ok {
			return ev
		}
	}
	return nil
}

// clustersOf returns the clusters that an event about a recommendation is about: its own, else all of the recommendation.
func clustersOf(h *projections.History, ev domain.Event) []string {
	own := ""
	switch ev := ev.(type) {
	case *domain.CommandIssued:
		own = ev.Cluster
	case *domain.RecommendationActuated:
		own = ev.Cluster
	case *domain.OutcomeRecorded:
		own = ev.Cluster
	}
	if own != "" {
		return []string{own}
	}
	if made := madeIn(h); made != nil && len(made.Clusters) > 0 {
		return made.Clusters
	}
	if c := clusterOf(h); c != "" {
		return []string{c}
	}
	return nil
}

// decidedWord is what a decision did to a recommendation, "" for another event.
func decidedWord(ev domain.Event) string {
	switch ev.(type) {
	case *domain.RecommendationApproved:
		return "approved"
	case *domain.RecommendationRejected:
		return "rejected"
	case *domain.RecommendationWithdrawn:
		return "withdrawn"
	}
	return ""
}

func decidedBy(s statement) string {
	return fmt.Sprintf("%s by %s at %s", decidedWord(s.v.Event), s.v.Signer.Operator, second(s.v.Signer.Time))
}

// actuatedWord is what whoever carried out a recommendation did.
func actuatedWord(ev *domain.RecommendationActuated) string {
	switch ev.Result {
	case "failed":
		return "failed to carry out"
	case "refused":
		return "refused to carry out"
	}
	return "carried out"
}

// actuated says when and by whom a recommendation was carried out, and where if that needs to be said.
func actuated(s statement, where bool) string {
	ev := s.v.Event.(*domain.RecommendationActuated)
	what := "actuated at "
	if ev.Result == "failed" || ev.Result == "refused" {
		what = ev.Result + " at "
	}
	what += second(s.v.Order.Time)
	if where {
		what += under(" in cluster ", ev.Cluster)
	}
	return what + under(" by ", strings.Replace(ev.Actor, ":", " ", 1))
}

// carriedOut says what came of a valid decision about a recommendation for some clusters.
func (a *Authority) carriedOut(e *Entry, s statement, clusters []string) {
	var told []string
	done := map[string]bool{}
	var last *statement
	for i := s.at + 1; i < len(s.h.Versions); i++ {
		next := statement{s.key, s.h, i, &s.h.Versions[i]}
		switch ev := next.v.Event.(type) {
		case *domain.RecommendationActuated:
			if a.Judge(s.key, s.h, i) == "" {
				told = append(told, actuated(next, len(clusters) > 1))
				done[ev.Cluster] = true
				e.Follows = append(e.Follows, next.evidence())
			}
		case *domain.OutcomeRecorded:
			if a.Judge(s.key, s.h, i) == "" {
				last = &next
			}
		}
	}
	_, approved := s.v.Event.(*domain.RecommendationApproved)
	switch {
	case len(told) == 0 && !approved:
		e.State, e.Outcome = Completed, "not actuated"
		return
	case len(told) == 0:
		e.State, e.Outcome = Pending, "not actuated yet"
		if no, ok := a.after(s, func(ev domain.Event) bool {
			return decidedWord(ev) != "" && ev.Type() != domain.TypeRecommendationApproved
		}); ok {
			e.State, e.Outcome = Ended, decidedBy(no)
			e.Follows = append(e.Follows, no.evidence())
		}
	default:
		e.State, e.Outcome = Completed, strings.Join(told, ", ")
		if !approved {
			e.Outcome += " all the same"
		}
		if !done[""] && len(done) < len(clusters) {
			e.State = Pending
			e.Outcome += fmt.Sprintf(", not yet in %d of %d clusters", len(clusters)-len(done), len(clusters))
		}
	}
	if last != nil {
		of := last.v.Event.(*domain.OutcomeRecorded)
		e.Outcome += ", outcome " + outcomeWord(of.Outcome) + because(of.Detail)
		e.Follows = append(e.Follows, last.evidence())
	} else if len(told) > 0 {
		e.Outcome += ", no outcome recorded yet"
	}
}

// outcomeWord is the noun of an outcome.
func outcomeWord(outcome string) string {
	switch outcome {
	case "succeeded":
		return "success"
	case "failed":
		return "failure"
	case "partial":
		return "partial success"
	}
	return outcome
}

// after returns the first valid version of a row after a statement that fits.
func (a *Authority) after(s statement, fits func(domain.Event) bool) (statement, bool) {
	for i := s.at + 1; i < len(s.h.Versions); i++ {
		if fits(s.h.Versions[i].Event) && a.Judge(s.key, s.h, i) == "" {
			return statement{s.key, s.h, i, &s.h.Versions[i]}, true
		}
	}
	return statement{}, false
}

// replaces returns the key that a new key replaces, "" for none.
func replaces(ev domain.Event) string {
	switch ev := ev.(type) {
	case *domain.ClusterKeyRotated:
		return ev.PreviousKeyID
	case *domain.ServiceKeyIssued:
		return ev.PreviousKeyID
	}
	return ""
}

// outcome says what came of a decision that is about no recommendation.
func (a *Authority) outcome(e *Entry, s statement, replaced map[[2]string]statement) {
	if reason := a.Judge(s.key, s.h, s.at); reason != "" {
		e.State, e.Outcome = Void, "took no effect: "+a.told(s.v, reason)
		return
	}
	switch s.key.Table {
	case projections.TableCloses:
		a.closed(e, s)
		return
	case projections.TableIncidents:
		acknowledged(e, s)
		return
	}
	from := s.v.Order.Effective
	e.State, e.Outcome = InEffect, "in effect from "+second(from)
	for i := s.at + 1; i < len(s.h.Versions); i++ {
		next := statement{s.key, s.h, i, &s.h.Versions[i]}
		how, state := follows(s.v.Event, next.v.Event)
		if how == "" || a.Judge(s.key, s.h, i) != "" {
			continue
		}
		end := next.v.Order.Effective
		if e.State, e.Outcome = state, fmt.Sprintf("%s until %s: %s", e.Outcome, second(end), how); end <= from {
			e.Outcome = "never in effect: " + how
		}
		if sg := next.v.Signer; sg != nil {
			e.Outcome += " by " + sg.Operator
		}
		e.Follows = append(e.Follows, next.evidence())
		return
	}
	if next, ok := replaced[[2]string{s.key.Scope, s.key.ID}]; ok && isKey(s.v.Event) {
		until := domain.Instant(0)
		switch ev := next.v.Event.(type) {
		case *domain.ClusterKeyRotated:
			until = ev.PreviousValidUntil
		case *domain.ServiceKeyIssued:
			until = ev.PreviousValidUntil
		}
		e.State, e.Outcome = Superseded, fmt.Sprintf("%s until %s: replaced by key %s, by %s", e.Outcome, second(until), next.key.ID, next.v.Signer.Operator)
		e.Follows = append(e.Follows, next.evidence())
	}
}

func isKey(ev domain.Event) bool {
	switch ev.(type) {
	case *domain.ClusterKeyIssued, *domain.ClusterKeyRotated, *domain.ServiceKeyIssued:
		return true
	}
	return false
}

// closed says what came of a valid decision about the books.
func (a *Authority) closed(e *Entry, s statement) {
	of := int64(-1)
	switch ev := s.v.Event.(type) {
	case *domain.BooksClosed:
		e.State, e.Outcome = Completed, "the period is closed"
		return
	case *domain.ClosePrepared:
		of = s.v.Signer.Offset
	case *domain.CloseApproved:
		of = ev.Prepared
	}
	e.State, e.Outcome = Pending, "not closed yet"
	for _, v := range decisions(s.h) {
		at := slices.IndexFunc(s.h.Versions, func(w projections.Version) bool { return w.Signer != nil && w.Signer.Offset == v.Signer.Offset })
		next := statement{s.key, s.h, at, &s.h.Versions[at]}
		if v.Signer.Offset <= s.v.Signer.Offset || a.Judge(s.key, s.h, at) != "" {
			continue
		}
		switch ev := v.Event.(type) {
		case *domain.CloseApproved:
			if ev.Prepared == of && e.Type == domain.TypeClosePrepared {
				e.Outcome = fmt.Sprintf("approved by %s at %s", v.Signer.Operator, second(v.Signer.Time))
				e.Follows = append(e.Follows, next.evidence())
			}
		case *domain.BooksClosed:
			if ev.Prepared != of {
				e.State, e.Outcome = Superseded, "the period was closed by another proposal"
				e.Follows = append(e.Follows, next.evidence())
				return
			}
			closed := fmt.Sprintf("closed by %s at %s", v.Signer.Operator, second(v.Signer.Time))
			if len(e.Follows) > 0 {
				closed = e.Outcome + ", " + closed
			}
			e.State, e.Outcome = Completed, closed
			e.Follows = append(e.Follows, next.evidence())
			return
		}
	}
}

// acknowledged says what came of an incident that somebody deals with.
func acknowledged(e *Entry, s statement) {
	e.State, e.Outcome = Pending, "not resolved yet"
	for i := s.at + 1; i < len(s.h.Versions); i++ {
		next := statement{s.key, s.h, i, &s.h.Versions[i]}
		switch ev := next.v.Event.(type) {
		case *domain.IncidentResolved:
			e.State, e.Outcome = Completed, "resolved at "+second(ev.At)
		case *domain.IncidentChanged:
			if !ev.Reopened {
				continue
			}
			e.State, e.Outcome = Pending, "not resolved yet, back at "+second(ev.At)
		default:
			continue
		}
		e.Follows = append(e.Follows, next.evidence())
	}
}

// follows returns how a later event about the same thing ends what a decision says, "" if it does not.
func follows(before, after domain.Event) (how string, state State) {
	if before.Type() == after.Type() {
		switch b := before.(type) {
		case *domain.OperatorRegistered:
			if string(b.PublicKey) != string(after.(*domain.OperatorRegistered).PublicKey) {
				return "", ""
			}
		case *domain.FXRateSet:
			if b.Effective != after.(*domain.FXRateSet).Effective {
				return "", ""
			}
		case *domain.GPURetired, *domain.NodeDrained, *domain.NodeReturned, *domain.CommitmentRenewed, *domain.SessionEnded,
			*domain.QuarantineResolved, *domain.StreamGapResolved, *domain.GenerationSwitched, *domain.OperatorRevoked, *domain.AccessRevoked:
			return "", "" // each is an act of its own
		}
		if cancels(after) {
			return "cancelled", Ended
		}
		return "superseded", Superseded
	}
	switch after := after.(type) {
	case *domain.OperatorRevoked:
		if b, ok := before.(*domain.OperatorRegistered); ok && string(b.PublicKey) == string(after.PublicKey) {
			return "revoked", Ended
		}
	case *domain.AccessRevoked, *domain.ClusterKeyRevoked, *domain.ServiceKeyRevoked:
		return "revoked", Ended
	case *domain.AccessGranted:
		return "granted again", Superseded
	case *domain.DeploymentRemoved:
		return "removed", Ended
	case *domain.DeploymentChanged:
		return "declared again", Superseded
	case *domain.CommitmentEnded:
		return "ended", Ended
	case *domain.AssetDisposed:
		return "disposed", Ended
	case *domain.AssetRevised:
		return "revised", Superseded
	case *domain.NodeReturned:
		if before.Type() == domain.TypeNodeDrained || before.Type() == domain.TypeNodeCordoned {
			return "returned to service", Ended
		}
	}
	return "", ""
}

func cancels(ev domain.Event) bool {
	switch ev := ev.(type) {
	case *domain.MaintenanceScheduled:
		return ev.Cancelled
	case *domain.OutageDeclared:
		return ev.Cancelled
	case *domain.UsageCorrected:
		return ev.Cancelled
	case *domain.LegalHoldSet:
		return ev.Lifted
	}
	return false
}
