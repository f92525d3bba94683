package kafka

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// SettingError means that a topic exists with a setting under which the log could lose, reorder
// or refuse events. Nothing was changed. Only an operator can fix it, by changing the setting or
// by moving to a new topic.
type SettingError struct {
	Topic         domain.Topic
	Setting       string // "partitions", [Replicas] or the name of a Kafka topic setting
	Found, Wanted string // Found is "" if the broker did not report it
}

func (e *SettingError) Error() string {
	found := e.Found
	if found == "" {
		found = "unknown"
	}
	return fmt.Sprintf("topic %s: %s is %s, must be %s", e.Topic, e.Setting, found, e.Wanted)
}

// setting is one topic setting: the value for a new topic, and the values accepted for an
// existing one.
type setting struct {
	name, value string
	atLeast     bool // a larger number is accepted as well
	optional    bool // brokers that do not support it (the embedded one) are safe without it
}

func (l *Log) settings() []setting {
	s := []setting{
		{name: "cleanup.policy", value: "delete"},
		{name: "retention.ms", value: "-1"},
		{name: "retention.bytes", value: "-1"},
		{name: "message.timestamp.type", value: "CreateTime"},
		{name: "max.message.bytes", value: strconv.Itoa(maxBatchBytes), atLeast: true},
		// By default Kafka 4 refuses records from a clock more than an hour ahead. Folds
		// handle such events instead.
		{name: "message.timestamp.after.max.ms", value: strconv.FormatInt(math.MaxInt64, 10), optional: true},
		{name: "unclean.leader.election.enable", value: "false", optional: true},
	}
	return append(s, setting{name: minInSync, value: strconv.Itoa(inSync(l.cfg.Replication)), atLeast: true})
}

// The settings that, with the number of replicas, decide whether an acknowledged event survives
// the loss of a machine.
const (
	Replicas      = "replicas" // in a [SettingError]: the number of replicas, which is not a Kafka setting
	minInSync     = "min.insync.replicas"
	flushMessages = "flush.messages"
	flushMs       = "flush.ms"
)

// inSync is the minimum of min.insync.replicas for a topic. With several replicas, no event may
// be acknowledged that only one machine has.
func inSync(replicas int) int { return min(2, replicas) }

// Durability is the settings of a topic that decide whether an acknowledged event survives the
// loss of a machine: see docs/operate/diverged.md.
type Durability struct {
	Topic    domain.Topic
	Replicas int // of the partition with the fewest
	InSync   int // min.insync.replicas
	// FlushMessages and FlushMs are the number of records and of milliseconds after which the
	// broker flushes to disk; 0 if it does not report them. Kafka's default is never.
	FlushMessages, FlushMs int64
}

// Flushed reports whether the broker flushes to disk before it acknowledges.
func (d *Durability) Flushed() bool { return d.FlushMessages == 1 }

// Durabilities returns the durability of the topics, which MUST exist, in the order of specs.
func (l *Log) Durabilities(ctx context.Context, specs []domain.TopicSpec) (ds []Durability, err error) {
	err = l.retry(ctx, func(ctx context.Context) error {
		found, err := l.describe(ctx, specs)
		if err != nil {
			return err
		}
		ds = ds[:0]
		for _, s := range specs {
			ds = append(ds, found[s.Topic].durability(s.Topic))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the durability of topics: %w", err)
	}
	return ds, nil
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
	return l.CheckTopics(ctx, specs)
}

// ErrNoRight means that this user may not create a topic. An administrator of the cluster has to
// grant Create on the cluster or on the topics.
var ErrNoRight = errors.New("no right to create the topic")

// TryTopics checks whether EnsureTopics could create the topics, without creating any. On success
// it takes as long as Patience, because the client waits for the topics to appear.
func (l *Log) TryTopics(ctx context.Context, topics ...domain.Topic) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	req := &kafkago.CreateTopicsRequest{ValidateOnly: true}
	for _, topic := range topics {
		spec := domain.TopicSpec{Topic: topic, Partitions: topic.Partitions()}
		req.Topics = append(req.Topics, l.newTopic(spec, false))
	}
	res, err := l.client.CreateTopics(ctx, req)
	if err != nil {
		return fmt.Errorf("check whether topics can be created: %w", err)
	}
	for _, topic := range topics {
		if err := created(res.Errors[string(topic)]); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return nil
}

// CheckTopics is [Log.EnsureTopics] without creating topics. It is cheap, so a long-running
// program calls it at intervals to detect added partitions and changed settings. If a topic does
// not exist, it returns an error after Patience.
func (l *Log) CheckTopics(ctx context.Context, specs []domain.TopicSpec) error {
	var refused []error
	if err := l.retry(ctx, func(ctx context.Context) (err error) {
		refused, err = l.checkTopics(ctx, specs)
		return err
	}); err != nil {
		return fmt.Errorf("check topics: %w", err)
	}
	return errors.Join(refused...)
}

// MissingTopics returns the topics that do not exist, in the order of specs. It does not wait for
// them.
func (l *Log) MissingTopics(ctx context.Context, specs []domain.TopicSpec) (missing []domain.Topic, err error) {
	there := map[string]bool{}
	if err := l.retry(ctx, func(ctx context.Context) error {
		md, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{}) // of all topics
		if err != nil {
			return err
		}
		for _, t := range md.Topics {
			there[t.Name] = true
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	for _, s := range specs {
		if !there[string(s.Topic)] {
			missing = append(missing, s.Topic)
		}
	}
	return missing, nil
}

// Brokers returns the current number of brokers in the cluster.
func (l *Log) Brokers(ctx context.Context) (n int, err error) {
	err = l.retry(ctx, func(ctx context.Context) error {
		md, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{}})
		if err == nil {
			n = len(md.Brokers)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the brokers: %w", err)
	}
	return n, nil
}

func (l *Log) createTopic(ctx context.Context, spec domain.TopicSpec) error {
	create := func(optional bool) error {
		return l.retry(ctx, func(ctx context.Context) error {
			res, err := l.client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
				Topics: []kafkago.TopicConfig{l.newTopic(spec, optional)},
			})
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
	return created(err)
}

// newTopic returns the configuration of a new topic, with or without the optional settings.
func (l *Log) newTopic(spec domain.TopicSpec, optional bool) kafkago.TopicConfig {
	var entries []kafkago.ConfigEntry
	for _, s := range l.settings() {
		if optional || !s.optional {
			entries = append(entries, kafkago.ConfigEntry{ConfigName: s.name, ConfigValue: s.value})
		}
	}
	return kafkago.TopicConfig{
		Topic:             string(spec.Topic),
		NumPartitions:     spec.Partitions,
		ReplicationFactor: l.cfg.Replication,
		ConfigEntries:     entries,
	}
}

// created returns why the creation of a topic failed. A topic that exists already is no failure.
func created(err error) error {
	switch {
	case errors.Is(err, kafkago.TopicAlreadyExists):
		return nil
	case errors.Is(err, kafkago.TopicAuthorizationFailed), errors.Is(err, kafkago.ClusterAuthorizationFailed):
		return fmt.Errorf("%w: %w", ErrNoRight, err)
	}
	return err
}

// topicState is the state of a topic as the brokers report it.
type topicState struct {
	partitions, replicas int // replicas: of the partition with the fewest
	settings             map[string]string
}

func (t *topicState) durability(topic domain.Topic) Durability {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(t.settings[name], 10, 64)
		return n
	}
	return Durability{topic, t.replicas, int(number(minInSync)), number(flushMessages), number(flushMs)}
}

// describe returns the state of topics. It fails unless every topic exists and every partition
// has a leader.
func (l *Log) describe(ctx context.Context, specs []domain.TopicSpec) (map[domain.Topic]*topicState, error) {
	var names []string
	req := &kafkago.DescribeConfigsRequest{}
	found := map[domain.Topic]*topicState{}
	for _, s := range specs {
		names = append(names, string(s.Topic))
		req.Resources = append(req.Resources, kafkago.DescribeConfigRequestResource{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: string(s.Topic),
		})
		found[s.Topic] = &topicState{settings: map[string]string{}}
	}
	md, err := l.metadata(ctx, names...)
	if err != nil {
		return nil, err
	}
	for _, t := range md.Topics {
		state := found[domain.Topic(t.Name)]
		state.partitions = len(t.Partitions)
		for i, p := range t.Partitions {
			if n := len(p.Replicas); i == 0 || n < state.replicas {
				state.replicas = n
			}
		}
	}
	res, err := l.client.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, fmt.Errorf("read settings of topic %s: %w", r.ResourceName, r.Error)
		}
		for _, e := range r.ConfigEntries {
			found[domain.Topic(r.ResourceName)].settings[e.ConfigName] = e.ConfigValue
		}
	}
	return found, nil
}

// checkTopics returns the settings that must be refused. Its error means that it could not check.
func (l *Log) checkTopics(ctx context.Context, specs []domain.TopicSpec) (refused []error, err error) {
	found, err := l.describe(ctx, specs)
	if err != nil {
		return nil, err
	}
	for _, spec := range specs {
		refuse := func(setting, found, wanted string) {
			refused = append(refused, &SettingError{spec.Topic, setting, found, wanted})
		}
		t := found[spec.Topic]
		if t.partitions != spec.Partitions {
			refuse("partitions", strconv.Itoa(t.partitions), strconv.Itoa(spec.Partitions))
		}
		if t.replicas < l.cfg.Replication {
			refuse(Replicas, strconv.Itoa(t.replicas), fmt.Sprintf("%d or more (kafka.replication)", l.cfg.Replication))
		}
		for _, s := range l.settings() {
			if s.name == minInSync { // depends on the actual replicas, not on those of a new topic
				s.value = strconv.Itoa(inSync(t.replicas))
			}
			value, ok := t.settings[s.name]
			if !s.accepts(value) && (ok || !s.optional) {
				wanted := s.value
				if s.atLeast {
					wanted += " or more"
				}
				refuse(s.name, value, wanted)
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

// RecreatedError is an [ErrTrimmed]: a topic was deleted and created again, so its offsets now
// refer to other records.
type RecreatedError struct {
	Topic   domain.Topic
	Was, Is string // ids, as [Log.TopicIDs] returns them
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("%v: topic %s was deleted and created again: its id was %s and is %s", ErrTrimmed, e.Topic, e.Was, e.Is)
}

func (e *RecreatedError) Unwrap() error { return ErrTrimmed }

// topicID is the cluster's id of a topic, for as long as the topic exists.
type topicID [16]byte

// String returns the form that Kafka's own tools show.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// TopicIDs returns the ids of the given topics, or of [domain.TopicSpecs] if none are given. A
// topic keeps its id until it is deleted; a new topic with the same name gets a new id. A program
// that computes from the log stores the ids next to its position. It MUST NOT continue from that
// position when an id has changed.
//
// During the life of a Log this is checked automatically: TopicIDs, Read and Follow return a
// [*RecreatedError] when an id has changed. Append refers to topics only by name.
//
// The result is empty if the brokers do not support ids. That is Apache Kafka before 3.1, and the
// embedded log, which never deletes a topic and is identified by [Log.ID].
func (l *Log) TopicIDs(ctx context.Context, topics ...domain.Topic) (map[domain.Topic]string, error) {
	if !l.byID {
		return map[domain.Topic]string{}, nil
	}
	if len(topics) == 0 {
		for _, s := range domain.TopicSpecs() {
			topics = append(topics, s.Topic)
		}
	}
	ids := map[domain.Topic]string{}
	err := l.retry(ctx, func(ctx context.Context) error {
		md, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{}})
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		for i, broker := range md.Brokers { // any broker can answer
			found, err := l.askTopicIDs(ctx, net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)), topics)
			if err != nil && temporary(err) && i < len(md.Brokers)-1 {
				continue
			}
			for topic, id := range found {
				ids[topic] = id.String()
			}
			return err
		}
		return kafkago.BrokerNotAvailable
	})
	if err != nil {
		return nil, fmt.Errorf("get the ids of topics: %w", err)
	}
	return ids, nil
}

func (l *Log) askTopicIDs(ctx context.Context, address string, topics []domain.Topic) (map[domain.Topic]topicID, error) {
	conn, err := l.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return l.identify(conn, topics...)
}

const (
	metadataKey     = 3
	metadataWithIDs = 12
)

// identify asks a broker for the ids of topics (Metadata, version 12). It fails if an id differs
// from the one that this Log has seen before.
func (l *Log) identify(conn net.Conn, topics ...domain.Topic) (map[domain.Topic]topicID, error) {
	b := requestHead(nil, metadataKey, metadataWithIDs, 0, l.cfg.ClientID)
	b = append(b, 0) // no tagged fields, here and below
	b = binary.AppendUvarint(b, uint64(len(topics))+1)
	for _, t := range topics {
		b = append(b, make([]byte, len(topicID{}))...) // by name
		b = binary.AppendUvarint(b, uint64(len(t))+1)
		b = append(append(b, t...), 0)
	}
	b = append(b, 0, 0, 0) // do not create topics, do not report authorized operations
	if err := writeRequest(conn, finishRequest(b)); err != nil {
		return nil, err
	}
	c, _, err := readAnswer(conn, nil, 0, requestTimeout)
	if err != nil {
		return nil, err
	}
	ids, err := parseTopicIDs(&c)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range topics {
		id, found := ids[t]
		if !found {
			return nil, fmt.Errorf("metadata answer lacks topic %s", t)
		}
		if was, seen := l.ids[t]; seen && was != id {
			return nil, &RecreatedError{t, was.String(), id.String()}
		}
		l.ids[t] = id
	}
	return ids, nil
}

func parseTopicIDs(c *cursor) (map[domain.Topic]topicID, error) {
	c.tags()  // of the header
	c.int32() // throttle time; the broker has waited already
	for range c.compactCount() {
		c.int32() // broker
		c.compactString()
		c.int32()
		c.compactString()
		c.tags()
	}
	c.compactString() // cluster
	c.int32()         // controller
	ids := map[domain.Topic]topicID{}
	for range c.compactCount() {
		code := kafkago.Error(c.int16())
		name := c.compactString()
		if code != 0 && !c.bad {
			return nil, fmt.Errorf("read metadata of topic %s: %w", name, code)
		}
		ids[domain.Topic(name)] = c.uuid()
		c.skip(1) // internal
		for range c.compactCount() {
			c.skip(2 + 4 + 4 + 4) // error, partition, leader and its epoch
			for range 3 {         // replicas: all, in sync, offline
				c.skip(4 * c.compactCount())
			}
			c.tags()
		}
		c.int32() // authorized operations
		c.tags()
	}
	if c.tags(); c.bad || len(c.b) > 0 {
		return nil, errors.New("malformed metadata answer")
	}
	return ids, nil
}
