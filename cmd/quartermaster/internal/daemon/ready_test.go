package daemon

import (
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
)

// A partition that stands still before the end of the log for longer than a
// minute is named, and no other.
func TestReadinessStuck(t *testing.T) {
	all := domain.AllPartitions()[:3]
	held := []postgres.Holding{{Generation: "a", TopicPartition: all[0]}, {Generation: "a", TopicPartition: all[1]}, {Generation: "a", TopicPartition: all[2]}}
	end := domain.Position{all[0]: 9, all[1]: 9, all[2]: 9}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := readiness{stuck: time.Minute, heard: start}
	var err error
	for i := range 8 {
		now := start.Add(time.Duration(i) * 10 * time.Second)
		at := map[string]domain.Position{"a": {all[0]: 4, all[1]: int64(i), all[2]: 9}}
		err = r.look(now, held, at, end, now)
		if i < 7 && err != nil {
			t.Fatalf("after %s: %v", now.Sub(start), err)
		}
	}
	if err == nil || !strings.Contains(err.Error(), all[0].String()+" of generation a has been at 4") || strings.Contains(err.Error(), all[1].String()) {
		t.Errorf("it says %v", err)
	}
	if err := r.look(start.Add(3*time.Minute), nil, nil, end, start.Add(70*time.Second)); err == nil || !strings.Contains(err.Error(), "the log has not answered") {
		t.Errorf("a silent log: %v", err)
	}
	if err := r.look(start.Add(3*time.Minute), held, map[string]domain.Position{"a": end}, end, start.Add(3*time.Minute)); err != nil {
		t.Errorf("once all is folded: %v", err)
	}
}
