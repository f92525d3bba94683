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
		last := a.madeBefore(k, h, s.Offset)
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

// proposed returns "" unless somebody signed a recommendation who is no operator of its workspace, nor of the root's.
func (a *Authority) proposed(v *projections.Version) string {
	s := v.Signer
	if s == nil || len(a.supposed) > 0 && bytes.Equal(s.Key, a.supposed) {
		return ""
	}
	_, reason := a.grant(v.Workspace, s)
	return reason
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
