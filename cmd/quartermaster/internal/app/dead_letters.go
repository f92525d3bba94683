package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/domain"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// DeadLetter is an event that a reaction could not handle.
type DeadLetter struct {
	At        domain.Instant `json:"at"` // when it was given up
	Reaction  string         `json:"reaction"`
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Type      domain.Type    `json:"type,omitempty"`
	Subject   string         `json:"subject,omitempty"`
	Reason    string         `json:"reason"`
}

// DeadLettersOf returns the newest messages of the topic, the oldest first. It
// reads the one partition that the topic is made with.
func DeadLettersOf(ctx context.Context, log *kafka.Log, n int) ([]DeadLetter, error) {
	list := []DeadLetter{}
	// The first reaction to start makes it; who only looks does not.
	if missing, err := log.MissingTopics(ctx, PoisonTopics); err != nil || len(missing) > 0 {
		return list, err
	}
	tp := domain.TopicPartition{Topic: TopicPoison}
	first, next, err := log.Bounds(ctx, tp)
	if err != nil {
		return nil, err
	}
	err = log.Read(ctx, tp, max(first, next-int64(n)), next, func(recs []domain.Record) error {
		for i := range recs {
			r := &recs[i]
			if r.IsMarker() {
				continue
			}
			e := DeadLetter{
				At: r.Time, Reaction: ReactionOf(string(r.Header(PoisonHandler))), Topic: domain.Topic(r.Header(PoisonTopic)),
				Type: wire.TypeOf(r), Subject: string(r.Header("ce_subject")), Reason: string(r.Header(PoisonReason)),
			}
			var err error
			e.Partition, err = strconv.Atoi(string(r.Header(PoisonPartition)))
			if err == nil {
				e.Offset, err = strconv.ParseInt(string(r.Header(PoisonOffset)), 10, 64)
			}
			if err != nil {
				// Somebody else's message hides none of ours.
				e = DeadLetter{
					At: r.Time, Topic: tp.Topic, Partition: tp.Partition, Offset: r.Offset, Type: e.Type, Subject: e.Subject,
					Reason: fmt.Sprintf("no reaction wrote this message: %v", err),
				}
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}

// DeadLetters answers the newest events that a reaction gave up, the oldest first. wrong says
// that the topic is not as it was made, so that some may be missing.
func (c *Caller) DeadLetters(ctx context.Context, n int) (list []DeadLetter, wrong, err error) {
	if n < 1 || n > MaxTail {
		return nil, nil, invalid("lines", "%d: want 1 to %d", n, MaxTail)
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, nil, err
	}
	if h.Broker != nil {
		return nil, nil, invalid("brokers", "there are no reactions on the embedded log: name a Kafka cluster with --config or --brokers")
	}
	if list, err = DeadLettersOf(ctx, h.Log, n); err != nil {
		return nil, nil, err
	}
	var setting *kafka.SettingError
	if err := h.Log.CheckTopics(ctx, PoisonTopics); len(list) > 0 && errors.As(err, &setting) {
		wrong = err
	}
	return list, wrong, nil
}

// TopicPoison holds the events that a reaction could not handle. It is no part
// of the log: nothing is folded from it. A message there is the record with its
// key, headers and value, and the headers named below.
const TopicPoison = "qm.dead-letters"

// PoisonTopics is how the dead-letter topic is made, which keeps what it has for ever.
var PoisonTopics = []domain.TopicSpec{{Topic: TopicPoison, Partitions: 1}}

// The headers that the dead-letter topic adds; the first three are Watermill's names.
const (
	PoisonReason    = middleware.ReasonForPoisonedKey
	PoisonTopic     = middleware.PoisonedTopicKey
	PoisonHandler   = middleware.PoisonedHandlerKey
	PoisonPartition = "partition_poisoned"
	PoisonOffset    = "offset_poisoned"
	// PoisonExcluded says why the value is not there.
	PoisonExcluded = "value_excluded"
)

// ReactionOf returns the reaction of a handler, which is one of its topics.
func ReactionOf(handler string) string { return handler[:max(0, strings.LastIndexByte(handler, ' '))] }
