package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"quartermaster/domain"
	"quartermaster/domain/long"
)

// TestPubSub is Watermill's acceptance suite with the features of Kafka, at reduced size;
// CI_LONG=1 runs it at full size.
func TestPubSub(t *testing.T) {
	payload := func(_ string, m *message.Message) []byte { return m.Payload }
	grouped := tests.Features{ConsumerGroups: true, Persistent: true}
	ordered := tests.Features{ConsumerGroups: true, Persistent: true, GuaranteedOrder: true}
	groupless := tests.Features{Persistent: true, NewSubscriberReceivesOldMessages: true}
	for _, set := range []struct {
		name     string
		features tests.Features
		key      func(string, *message.Message) []byte
		group    bool
	}{{"Grouped", grouped, nil, true}, {"Ordered", ordered, payload, true}, {"Groupless", groupless, nil, false}} {
		t.Run(set.name, func(t *testing.T) {
			if b := os.Getenv("QM_KAFKA_BROKERS"); b == "" {
				t.Parallel()
			}
			set.features.ForceShort = !long.Run()
			shared := openAny(t)
			with := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				l := open(t, shared.cfg)
				s := NewSubscriber(l, SubscriberConfig{Group: group, Partitions: 4, Drain: 50 * time.Millisecond})
				s.rebalance = 1500 * time.Millisecond // the suite closes many members while they join
				return NewPublisher(l, set.key), s
			}
			tests.TestPubSub(t, set.features,
				func(t *testing.T) (message.Publisher, message.Subscriber) {
					if set.group {
						return with(t, "group-"+t.Name())
					}
					return with(t, "")
				}, with)
		})
	}
}

func receive(t *testing.T, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-ch:
		if !ok {
			t.Fatal("channel is closed")
		}
		return m
	case <-time.After(15 * time.Second):
		t.Fatal("no message")
	}
	return nil
}

// A message that a handler finishes while the subscriber closes is committed.
func TestCloseDrains(t *testing.T) {
	l := openAny(t)
	topic := newTopic(t, l, 1)
	p := NewPublisher(l, nil)
	for i := range 3 {
		if err := p.Publish(string(topic), message.NewMessage(fmt.Sprint(i), nil)); err != nil {
			t.Fatal(err)
		}
	}
	s := NewSubscriber(l, SubscriberConfig{Group: string(topic), Drain: time.Minute})
	ch, err := s.Subscribe(t.Context(), string(topic))
	if err != nil {
		t.Fatal(err)
	}
	receive(t, ch).Ack()
	held := receive(t, ch)
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	<-s.stop
	held.Ack()
	<-closed
	if _, ok := <-ch; ok {
		t.Fatal("delivered after close")
	}
	if _, err := s.Subscribe(t.Context(), string(topic)); !errors.Is(err, ErrClosed) {
		t.Fatalf("subscribe after close: %v", err)
	}
	s = NewSubscriber(l, SubscriberConfig{Group: string(topic)})
	defer s.Close()
	if ch, err = s.Subscribe(t.Context(), string(topic)); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, ch); m.UUID != "2" {
		t.Fatalf("goes on at message %s", m.UUID)
	}
}

func TestNackComesAgainInOrder(t *testing.T) {
	l := openAny(t)
	topic := newTopic(t, l, 1)
	tp := domain.TopicPartition{Topic: topic}
	if err := l.Append(t.Context(), numbered(tp, 0, 5)); err != nil {
		t.Fatal(err)
	}
	s := NewSubscriber(l, SubscriberConfig{Start: func(domain.TopicPartition) int64 { return 2 }, NackDelay: time.Millisecond})
	defer s.Close()
	ch, err := s.Subscribe(t.Context(), string(topic))
	if err != nil {
		t.Fatal(err)
	}
	for i := 2; i < 5; i++ {
		for range 2 {
			m := receive(t, ch)
			r, ok := RecordFrom(m.Context())
			if !ok || r.Offset != int64(i) || string(m.Payload) != text(i) || m.UUID != fmt.Sprintf("%s@%d", tp, i) {
				t.Fatalf("message %s, record %v", m.UUID, r)
			}
			m.Nack()
		}
		receive(t, ch).Ack()
	}
}

func TestPublisherErrors(t *testing.T) {
	l := open(t, Config{Brokers: fake(t).ListenAddrs(), Patience: time.Millisecond})
	p := NewPublisher(l, nil)
	if err := p.Publish("no-such-topic", message.NewMessage("1", nil)); err == nil {
		t.Error("published to a topic that does not exist")
	}
	p.Close()
	p.Close()
	if err := p.Publish("no-such-topic", message.NewMessage("1", nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

func TestSubscriptionEndsWithLog(t *testing.T) {
	l := openAny(t)
	topic := newTopic(t, l, 2)
	s := NewSubscriber(l, SubscriberConfig{})
	ch, err := s.Subscribe(context.Background(), string(topic))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, ok := <-ch; ok {
		t.Fatal("delivered")
	}
	s.Close()
}
