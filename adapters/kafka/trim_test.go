package kafka

import (
	"errors"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// TestDeleteRecords trims a log of ours, and one of Apache Kafka if there is one.
func TestDeleteRecords(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 2)
	if first, err := l.DeleteRecords(t.Context(), tp, 7); first != 7 || err != nil {
		t.Fatal(first, err)
	}
	first, next, err := l.Bounds(t.Context(), tp)
	if first != 7 || next != 50 || err != nil {
		t.Fatal(first, next, err)
	}
	if got := values(t, l, tp, 7, 50); got[0] != text(7) {
		t.Fatal(got[0])
	}
	for _, before := range []int64{51, -1} { // beyond the end; all, for Kafka
		if _, err := l.DeleteRecords(t.Context(), tp, before); err == nil || before > 0 && !errors.Is(err, kafkago.OffsetOutOfRange) {
			t.Errorf("before %d: %v", before, err)
		}
	}
	if first, next, err := l.Bounds(t.Context(), tp); first != 7 || next != 50 || err != nil {
		t.Fatal(first, next, err)
	}
}

func FuzzDeleteRecordsAnswer(f *testing.F) {
	tp := domain.TopicPartition{Topic: "t", Partition: 1}
	good := []byte{
		0, 0, 0, 0, // throttle time
		0, 0, 0, 1, 0, 1, 't', // one topic
		0, 0, 0, 1, 0, 0, 0, 1, // one partition, 1
		0, 0, 0, 0, 0, 0, 0, 7, 0, 0, // first offset, no error
	}
	if first, err := parseDeleted(&cursor{b: good}, tp); first != 7 || err != nil {
		f.Fatal(first, err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		if first, err := parseDeleted(&cursor{b: b}, tp); err == nil && len(b) < len(good) {
			t.Errorf("%d from an answer that is cut short", first)
		}
	})
}
