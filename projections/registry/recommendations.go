package registry

import (
	"bytes"
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
		for i := range h.Versions {
			w := &h.Versions[i]
			switch ev := w.Event.(type) {
			case *domain.RecommendationMade:
				if strings.TrimPrefix(ev.Requester, domain.OperatorActor("")) == s.Operator {
					return fmt.Sprintf("operator %q asked for it: another person must approve it", s.Operator)
				}
				if w.Signer != nil && bytes.Equal(w.Signer.Key, s.Key) {
					return fmt.Sprintf("the key of operator %q asked for it: another key must approve it", w.Signer.Operator)
				}
				if ev.Expires != 0 && s.Time >= ev.Expires {
					return fmt.Sprintf("it expired at %s: it must be proposed again", ev.Expires)
				}
			case *domain.RecommendationWithdrawn:
				if w.Signer != nil && w.Signer.Offset < s.Offset && a.judge(k, h, w) == "" {
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

// commanded returns "" if each approval that a command carries is in the log, and valid.
func (a *Authority) commanded(k projections.Key, h *projections.History, command *domain.CommandIssued) string {
	for i := range command.Approvals {
		of := &command.Approvals[i]
		if !slices.ContainsFunc(h.Versions, func(w projections.Version) bool {
			_, approves := w.Event.(*domain.RecommendationApproved)
			return approves && w.Signer != nil && w.Signer.Operator == of.Operator && bytes.Equal(w.Signer.Key, of.PublicKey) &&
				a.judge(k, h, &w) == ""
		}) {
			return fmt.Sprintf("the log has no valid approval by operator %q", of.Operator)
		}
	}
	return ""
}
