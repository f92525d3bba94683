package daemon

import (
	"testing"

	"quartermaster/domain"
)

// A silence is an alert when it begins, and none when it ends.
func TestSilenceIsOneAlert(t *testing.T) {
	begins := &domain.CollectorSilent{Node: "n1", Silent: domain.Interval{From: domain.Hour}}
	ends := &domain.CollectorSilent{Node: "n1", Silent: domain.Interval{From: domain.Hour, To: 2 * domain.Hour}}
	if alert(begins) == "" || alert(ends) != "" {
		t.Errorf("it begins: %q, it ends: %q", alert(begins), alert(ends))
	}
}

// Somebody hears of records that claim the place of others in their stream.
func TestConflictIsAnAlert(t *testing.T) {
	if alert(&domain.StreamConflictObserved{}) == "" {
		t.Error("nobody hears of it")
	}
}
