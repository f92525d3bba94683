package daemon

import (
	"testing"
	"time"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
)

// A partition counts as failing until it was tried again for a while.
func TestFailing(t *testing.T) {
	at := time.Now()
	holding := func(p int) postgres.Holding {
		return postgres.Holding{Generation: "a", TopicPartition: domain.TopicPartition{Topic: domain.TopicFleet, Partition: p}}
	}
	in := &instance{failed: map[postgres.Holding]time.Time{holding(0): at, holding(1): at.Add(-failingFor), holding(2): at.Add(-failingFor - 1)}}
	if n := in.failing(at); n != 2 {
		t.Errorf("%d fail, want 2", n)
	}
	if n := in.failing(at.Add(failingFor + 1)); n != 0 || len(in.failed) != 0 {
		t.Errorf("%d fail long after", n)
	}
}
