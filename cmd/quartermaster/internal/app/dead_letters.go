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
	At        domain.Instant `json:"at"` // when the reaction gave up
	Reaction  string         `json:"reaction"`
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Type      domain.Type    `json:"type,omitempty"`
	Subject   string         `json:"subject,omitempty"`
	Reason    string         `json:"reason"`
}

// DeadLettersOf returns the newest n messages of the topic, the oldest first. The topic has one
// partition.
func DeadLettersOf(ctx context.Context, log *kafka.Log, n int) ([]DeadLetter, error) {
	list := []DeadLetter{}
	// The first reaction to start creates the topic; a reader does not.
	if missing, err := log.MissingTopics(ctx, DeadLetterTopics); err != nil || len(missing) > 0 {
		return list, err
	}
	tp := domain.TopicPartition{Topic: TopicDeadLetters}
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
				At: r.Time, Reaction: ReactionOf(string(r.Header(DeadLetterHandler))), Topic: domain.Topic(r.Header(DeadLetterTopic)),
				Type: wire.TypeOf(r), Subject: string(r.Header("ce_subject")), Reason: string(r.Header(DeadLetterReason)),
			}
			var err error
			e.Partition, err = strconv.Atoi(string(r.Header(DeadLetterPartition)))
			if err == nil {
				e.Offset, err = strconv.ParseInt(string(r.Header(DeadLetterOffset)), 10, 64)
			}
			if err != nil {
				// A foreign message must not hide ours.
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

// DeadLetters returns the newest dead letters, the oldest first. wrong says that the topic's
// settings were changed, so that some may be missing.
func (c *Caller) DeadLetters(ctx context.Context, n int) (list []DeadLetter, wrong, err error) {
	if n < 1 || n > MaxTail {
		return nil, nil, invalid("lines", "%d: want 1 to %d", n, MaxTail)
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, nil, err
	}
	if list, err = DeadLettersOf(ctx, h.Log, n); err != nil || len(list) == 0 {
		return list, nil, err
	}
	var setting *kafka.SettingError
	if err := h.Log.CheckTopics(ctx, DeadLetterTopics); errors.As(err, &setting) {
		wrong = err
	}
	return list, wrong, nil
}

// TopicDeadLetters holds the events that a reaction could not handle. It is not part of the log:
// nothing is folded from it. A message has the key, headers and value of the record, and the
// headers below.
const TopicDeadLetters = "qm.dead-letters"

// DeadLetterTopics specifies the dead-letter topic, whose records are kept forever.
var DeadLetterTopics = []domain.TopicSpec{{Topic: TopicDeadLetters, Partitions: 1}}

// Headers that are added to a dead letter. Watermill names the first three.
const (
	DeadLetterReason    = middleware.ReasonForPoisonedKey
	DeadLetterTopic     = middleware.PoisonedTopicKey
	DeadLetterHandler   = middleware.PoisonedHandlerKey
	DeadLetterPartition = "partition_poisoned"
	DeadLetterOffset    = "offset_poisoned"
	// DeadLetterExcluded says why the value is missing.
	DeadLetterExcluded = "value_excluded"
)

// ReactionOf returns the reaction of a handler's name, which is "REACTION TOPIC".
func ReactionOf(handler string) string { return handler[:max(0, strings.LastIndexByte(handler, ' '))] }
