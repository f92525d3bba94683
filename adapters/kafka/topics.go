package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// SettingError means that a topic exists with a setting under which the log
// could lose, reorder or refuse events. Only an operator can mend it, by
// changing the setting or by moving to a new topic; nothing was changed.
type SettingError struct {
	Topic         domain.Topic
	Setting       string // "partitions" or the name of a Kafka topic setting
	Found, Wanted string // Found is "" when the broker did not say
}

func (e *SettingError) Error() string {
	found := e.Found
	if found == "" {
		found = "unknown"
	}
	return fmt.Sprintf("topic %s: %s is %s, must be %s", e.Topic, e.Setting, found, e.Wanted)
}

// setting is one topic setting: what a new topic gets, and which values of an
// existing topic will do.
type setting struct {
	name, value string
	atLeast     bool // a larger number will do as well
	optional    bool // brokers that do not know it (the embedded one) are safe without
}

func (l *Log) settings() []setting {
	s := []setting{
		{name: "cleanup.policy", value: "delete"},
		{name: "retention.ms", value: "-1"},
		{name: "retention.bytes", value: "-1"},
		{name: "message.timestamp.type", value: "CreateTime"},
		{name: "max.message.bytes", value: strconv.Itoa(maxBatchBytes), atLeast: true},
		// Kafka 4 refuses records from a clock an hour ahead; folds judge such events instead.
		{name: "message.timestamp.after.max.ms", value: strconv.FormatInt(math.MaxInt64, 10), optional: true},
		{name: "unclean.leader.election.enable", value: "false", optional: true},
	}
	if l.cfg.Replication > 1 {
		s = append(s, setting{name: "min.insync.replicas", value: strconv.Itoa(max(1, l.cfg.Replication-1)), atLeast: true})
	}
	return s
}

// EnsureTopics creates the topics that do not exist and checks those that do.
// It returns every [SettingError] it finds, joined.
func (l *Log) EnsureTopics(ctx context.Context, specs []domain.TopicSpec) error {
	if len(specs) == 0 {
		return nil
	}
	for _, spec := range specs {
		if err := l.createTopic(ctx, spec); err != nil {
			return fmt.Errorf("create topic %s: %w", spec.Topic, err)
		}
	}
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = string(s.Topic)
	}
	var refused []error
	if err := l.retry(ctx, func(ctx context.Context) error {
		var err error
		refused, err = l.checkTopics(ctx, specs, names)
		return err
	}); err != nil {
		return fmt.Errorf("check topics: %w", err)
	}
	return errors.Join(refused...)
}

func (l *Log) createTopic(ctx context.Context, spec domain.TopicSpec) error {
	create := func(optional bool) error {
		var entries []kafkago.ConfigEntry
		for _, s := range l.settings() {
			if optional || !s.optional {
				entries = append(entries, kafkago.ConfigEntry{ConfigName: s.name, ConfigValue: s.value})
			}
		}
		return l.retry(ctx, func(ctx context.Context) error {
			res, err := l.client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{
				Topic:             string(spec.Topic),
				NumPartitions:     spec.Partitions,
				ReplicationFactor: l.cfg.Replication,
				ConfigEntries:     entries,
			}}})
			if err != nil {
				return err
			}
			return res.Errors[string(spec.Topic)]
		})
	}
	err := create(true)
	if errors.Is(err, kafkago.InvalidConfiguration) {
		err = create(false)
	}
	if errors.Is(err, kafkago.TopicAlreadyExists) {
		return nil
	}
	return err
}

// checkTopics returns what must be refused, or an error when it cannot tell.
func (l *Log) checkTopics(ctx context.Context, specs []domain.TopicSpec, names []string) (refused []error, err error) {
	at, err := l.leaders(ctx, names...)
	if err != nil {
		return nil, err
	}
	count := map[domain.Topic]int{}
	for tp := range at {
		count[tp.Topic]++
	}
	req := &kafkago.DescribeConfigsRequest{}
	for _, s := range specs {
		if count[s.Topic] != s.Partitions {
			refused = append(refused, &SettingError{s.Topic, "partitions", strconv.Itoa(count[s.Topic]), strconv.Itoa(s.Partitions)})
		}
		req.Resources = append(req.Resources, kafkago.DescribeConfigRequestResource{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: string(s.Topic),
		})
	}
	res, err := l.client.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, err
	}
	found := map[string]map[string]string{}
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, fmt.Errorf("read settings of topic %s: %w", r.ResourceName, r.Error)
		}
		found[r.ResourceName] = map[string]string{}
		for _, e := range r.ConfigEntries {
			found[r.ResourceName][e.ConfigName] = e.ConfigValue
		}
	}
	for _, spec := range specs {
		for _, s := range l.settings() {
			value, ok := found[string(spec.Topic)][s.name]
			if !s.accepts(value) && (ok || !s.optional) {
				wanted := s.value
				if s.atLeast {
					wanted += " or more"
				}
				refused = append(refused, &SettingError{spec.Topic, s.name, value, wanted})
			}
		}
	}
	return refused, nil
}

func (s setting) accepts(value string) bool {
	if !s.atLeast {
		return value == s.value
	}
	found, err := strconv.ParseInt(value, 10, 64)
	wanted, err2 := strconv.ParseInt(s.value, 10, 64)
	return err == nil && err2 == nil && found >= wanted
}
