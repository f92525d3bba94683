package kafka

import (
	"testing"

	"quartermaster/domain"
)

// Before returns the first record at or after a time, even if clocks disagree, or the end of the
// log if there is none.
func TestBefore(t *testing.T) {
	l := openAny(t)
	topic := newTopic(t, l, 3)
	a, b, empty := domain.TopicPartition{Topic: topic}, domain.TopicPartition{Topic: topic, Partition: 1}, domain.TopicPartition{Topic: topic, Partition: 2}
	start := domain.Instant(1_780_000_000) * domain.Second
	put := func(tp domain.TopicPartition, seconds ...int) {
		recs := numbered(tp, 0, len(seconds))
		for i, s := range seconds {
			recs[i].Time = start + domain.Instant(s)*domain.Second
		}
		if err := l.Append(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
	}
	put(a, 0, 10, 20)
	put(a, 30, 15, 40) // 15 is from a clock that is slow
	put(b, 5)
	for _, c := range []struct {
		at   domain.Instant
		want domain.Position
	}{
		{start - domain.Second, domain.Position{}},
		{start, domain.Position{}},
		{start + 1, domain.Position{a: 1}}, // the log stores milliseconds
		{start + 10*domain.Second, domain.Position{a: 1, b: 1}},
		{start + 10*domain.Second + domain.Second/1000, domain.Position{a: 2, b: 1}},
		{start + 25*domain.Second, domain.Position{a: 3, b: 1}},
		{start + 35*domain.Second, domain.Position{a: 5, b: 1}},
		{start + 41*domain.Second, domain.Position{a: 6, b: 1}},
	} {
		got, err := l.Before(t.Context(), []domain.TopicPartition{a, b, empty}, c.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, tp := range []domain.TopicPartition{a, b, empty} {
			if got[tp] != c.want[tp] {
				t.Errorf("before %s: %s at %d, want %d", c.at, tp, got[tp], c.want[tp])
			}
		}
	}
}
