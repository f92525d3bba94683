package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// recommending returns "" unless a signed event about a recommendation is void because of what else the log says about it.
func (a *Authority) recommending(k projections.Key, h *projections.History, v *projections.Version) string {
	s := v.Signer
	switch v.Event.(type) {
	case *domain.RecommendationApproved:
		last := a.madeBefore(k, h, s.Offset)
		if reason := approves(v.Event.(*domain.RecommendationApproved), last); reason != "" {
			return reason
		}
		for i := range h.Versions {
			w := &h.Versions[i]
			if !before(w, s.Offset) {
				continue
			}
			switch ev := w.Event.(type) {
			case *domain.RecommendationMade:
				if strings.TrimPrefix(ev.Requester, domain.OperatorActor("")) == s.Operator {
					return fmt.Sprintf("operator %q asked for it: another person must approve it", s.Operator)
				}
				if w.Signer != nil && bytes.Equal(w.Signer.Key, s.Key) {
					return fmt.Sprintf("the key of operator %q asked for it: another key must approve it", w.Signer.Operator)
				}
				if w == last && ev.Expires != 0 && s.Time >= ev.Expires {
					return fmt.Sprintf("it expired at %s: it must be proposed again", ev.Expires)
				}
			case *domain.RecommendationWithdrawn:
				if w.Signer != nil && after(w, last) && a.judge(k, h, w) == "" {
					return fmt.Sprintf("operator %q withdrew it at %s", w.Signer.Operator, w.Signer.Time)
				}
			}
		}
	case *domain.RecommendationActuated, *domain.OutcomeRecorded:
		if actor := domain.ActorOf(v.Event); domain.OperatorActor(s.Operator) != actor {
			return fmt.Sprintf("it names %q as its actor, and operator %q signed it", actor, s.Operator)
		}
	}
	return ""
}

// approves returns "" if an approval is of the content that was proposed last.
func approves(approval *domain.RecommendationApproved, last *projections.Version) string {
	if len(approval.Digest) == 0 {
		return "it does not say which content it approves"
	}
	digest, err := last.Event.(*domain.RecommendationMade).Digest()
	if err != nil {
		return err.Error()
	}
	if !bytes.Equal(digest, approval.Digest) {
		return fmt.Sprintf("it approves content %.8x, and what was proposed last is %.8x", approval.Digest, digest)
	}
	return ""
}

// keyed returns "" unless what a key of a cluster did or stated is void: the cluster did not have the key then, or not to
// receive commands. A key counts from when it is known, because clocks differ.
func (a *Authority) keyed(cluster, id string, v *projections.Version) string {
	if id == "" {
		return ""
	}
	switch key := a.keys[clusterKey{cluster, id}]; {
	case key == nil:
		return fmt.Sprintf("cluster %q has no key %q", cluster, id)
	case !key.May(domain.KeyReceive):
		return fmt.Sprintf("key %q of cluster %q may not receive commands", id, cluster)
	case key.Until != 0 && v.Order.Time >= key.Until:
		return fmt.Sprintf("key %q of cluster %q ended at %s", id, cluster, key.Until)
	}
	return ""
}

// proposed returns "" unless somebody signed a recommendation who is no operator of its workspace, nor of the root's.
func (a *Authority) proposed(v *projections.Version) string {
	s := v.Signer
	if s == nil || len(a.supposed) > 0 && bytes.Equal(s.Key, a.supposed) {
		return ""
	}
	_, reason := a.grant(v.Workspace, s)
	return reason
}

// commanded returns "" if each approval that a command carries is in the log, valid, and of what the command says.
func (a *Authority) commanded(k projections.Key, h *projections.History, v *projections.Version) string {
	command := v.Event.(*domain.CommandIssued)
	last := a.madeBefore(k, h, offsetOf(v))
	approved, unknown := a.approvalsOf(k, h, v, last)
	if unknown != "" {
		return fmt.Sprintf("the log has no valid approval by operator %q", unknown)
	}
	until := approved[len(approved)-1].Signer.Time + CommandLife
	made := last.Event.(*domain.RecommendationMade) // something was approved
	order, err := domain.CanonicalJSON(OrderOf(made, v.Workspace, command.Cluster))
	switch {
	case err != nil:
		return err.Error()
	case !slices.Contains(made.Clusters, command.Cluster):
		return fmt.Sprintf("the recommendation does not touch cluster %q", command.Cluster)
	case command.Kind != made.Kind || !bytes.Equal(order, command.Document):
		return "it does not say what was approved"
	case command.Expires > until:
		return fmt.Sprintf("it expires at %s, after the %s that its approvals are good for", command.Expires, until)
	}
	return ""
}

// approvalsOf returns the valid approvals of what was proposed last that a command carries, by time, or the operator of one that
// is not in the log before it.
func (a *Authority) approvalsOf(k projections.Key, h *projections.History, v, last *projections.Version) (found []*projections.Version, unknown string) {
	command := v.Event.(*domain.CommandIssued)
	for i := range command.Approvals {
		of := &command.Approvals[i]
		at := slices.IndexFunc(h.Versions, func(w projections.Version) bool {
			_, approves := w.Event.(*domain.RecommendationApproved)
			return approves && w.Signer != nil && w.Signer.Operator == of.Operator && bytes.Equal(w.Signer.Key, of.PublicKey) &&
				before(&w, offsetOf(v)) && after(&w, last) && a.judge(k, h, &w) == ""
		})
		if at < 0 {
			return nil, of.Operator
		}
		found = append(found, &h.Versions[at])
	}
	slices.SortFunc(found, func(x, y *projections.Version) int { return cmp.Compare(x.Signer.Time, y.Signer.Time) })
	return found, ""
}

// enough reports whether a valid command carries the approvals of as many people as it needed when the last of them signed.
func (a *Authority) enough(k projections.Key, h *projections.History, p *Proposal, v *projections.Version, limits approvalLimitsAt) bool {
	approved, unknown := a.approvalsOf(k, h, v, a.madeBefore(k, h, offsetOf(v)))
	if unknown != "" || len(approved) == 0 {
		return false
	}
	then := *p
	then.needs(limits(approved[len(approved)-1].Signer.Time))
	var people voters
	for _, w := range approved {
		people.add(w.Signer)
	}
	return len(people) >= then.Needs
}

// voters are people who approved something. A person counts once, whatever keys they have, and so does a key.
type voters []*projections.Signer

// add reports whether a signature is that of another person.
func (all *voters) add(s *projections.Signer) bool {
	if slices.ContainsFunc(*all, func(x *projections.Signer) bool { return x.Operator == s.Operator || bytes.Equal(x.Key, s.Key) }) {
		return false
	}
	*all = append(*all, s)
	return true
}

// offsetOf returns where in its partition a version is.
func offsetOf(v *projections.Version) int64 {
	switch {
	case v.Record != nil:
		return v.Record.Offset
	case v.Signer != nil:
		return v.Signer.Offset
	}
	return 0
}

// before reports whether a version is in the log before an offset of its partition.
func before(v *projections.Version, offset int64) bool { return offsetOf(v) < offset }

// after reports whether a version is in the log after another; nil: it always is.
func after(v, of *projections.Version) bool { return of == nil || offsetOf(v) > offsetOf(of) }

// madeBefore returns the last valid proposal of a recommendation before an offset, nil if there is none. What was proposed again
// must be decided again.
func (a *Authority) madeBefore(k projections.Key, h *projections.History, offset int64) (last *projections.Version) {
	for i := range h.Versions {
		w := &h.Versions[i]
		if _, ok := w.Event.(*domain.RecommendationMade); ok && before(w, offset) && after(w, last) && a.judge(k, h, w) == "" {
			last = w
		}
	}
	return last
}
