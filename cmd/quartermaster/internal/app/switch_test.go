package app

import (
	"testing"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// What is lost begins where that is known from.
func TestLostRecords(t *testing.T) {
	tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: 1}
	for _, c := range []struct{ position, end, since, want int64 }{
		{10, 7, -1, 7},  // the log is shorter
		{10, -1, -1, 9}, // its last record is another
		{10, -1, 4, 4},  // the broker says from where on
		{10, 7, 4, 4},
	} {
		d := &kafka.DivergedError{Partition: tp, Position: c.position, End: c.end, Since: c.since}
		if got := lostRecords(d, 12); got != (domain.LostRecords{Topic: tp.Topic, Partition: 1, Since: c.want, Position: c.position, End: 12}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
