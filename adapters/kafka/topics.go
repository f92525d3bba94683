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

// SettingError means that a topic exists with a setting under which the log
// could lose, reorder or refuse events. Only an operator can mend it, by
// changing the setting or by moving to a new topic; nothing was changed.
type SettingError struct {
	Topic         domain.Topic
	Setting       string // "partitions", [Replicas] or the name of a Kafka topic setting
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
	return append(s, setting{name: minInSync, value: strconv.Itoa(inSync(l.cfg.Replication)), atLeast: true})
}

// What decides, with the number of replicas, whether an acknowledged event outlives
// the loss of a machine.
const (
	Replicas      = "replicas" // in a [SettingError]: no setting of Kafka's, but where a topic's partitions are
	minInSync     = "min.insync.replicas"
	flushMessages = "flush.messages"
	flushMs       = "flush.ms"
)

// inSync is the least min.insync.replicas of a topic: where there are several replicas,
// no event is acknowledged that one machine alone has.
func inSync(replicas int) int { return min(2, replicas) }

// Durability is what the brokers say of a topic that decides whether an acknowledged
// event outlives the loss of a machine: see docs/operate/diverged.md.
type Durability struct {
	Topic    domain.Topic
	Replicas int // of the partition that has fewest
	InSync   int // min.insync.replicas
	// FlushMessages and FlushMs are after how many records, and how many milliseconds, the
	// broker waits for its disk; 0 where it does not say. Kafka's default is never.
	FlushMessages, FlushMs int64
}

// Flushed reports whether the broker waits for its disk before it acknowledges.
func (d *Durability) Flushed() bool { return d.FlushMessages == 1 }

// Durabilities returns what the brokers say of the topics, which must exist, in the order of specs.
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
		return nil, fmt.Errorf("read how topics are kept: %w", err)
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

// ErrNoRight means that this user may not create a topic. Who administers the
// cluster grants Create on the cluster, or on topics by the name.
var ErrNoRight = errors.New("no right to create the topic")

// TryTopics asks the cluster whether EnsureTopics could create the topics, and
// creates none. It takes as long as patience where it could: the client waits for
// the topics to appear, and answers when it has waited long enough.
func (l *Log) TryTopics(ctx context.Context, topics ...domain.Topic) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Patience)
	defer cancel()
	req := &kafkago.CreateTopicsRequest{ValidateOnly: true}
	for _, topic := range topics {
		req.Topics = append(req.Topics, l.newTopic(domain.TopicSpec{Topic: topic, Partitions: topic.Partitions()}, false))
	}
	res, err := l.client.CreateTopics(ctx, req)
	if err != nil {
		return fmt.Errorf("ask whether topics can be created: %w", err)
	}
	for _, topic := range topics {
		if err := created(res.Errors[string(topic)]); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return nil
}

// CheckTopics is EnsureTopics without creating any. It takes one request, so a
// long-running program calls it now and then to learn that partitions were
// added or a setting was changed. A topic that does not exist is an error once
// patience has run out.
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

// MissingTopics returns those topics that do not exist, in the order of specs. It
// does not wait for any.
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

// Brokers returns how many brokers the cluster has at the moment.
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
			res, err := l.client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{l.newTopic(spec, optional)}})
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

// newTopic describes a topic to be created, with the optional settings or without.
func (l *Log) newTopic(spec domain.TopicSpec, optional bool) kafkago.TopicConfig {
	var entries []kafkago.ConfigEntry
	for _, s := range l.settings() {
		if optional || !s.optional {
			entries = append(entries, kafkago.ConfigEntry{ConfigName: s.name, ConfigValue: s.value})
		}
	}
	return kafkago.TopicConfig{
		Topic: string(spec.Topic), NumPartitions: spec.Partitions, ReplicationFactor: l.cfg.Replication, ConfigEntries: entries,
	}
}

// created returns why a topic is not there after it was to be created.
func created(err error) error {
	switch {
	case errors.Is(err, kafkago.TopicAlreadyExists):
		return nil
	case errors.Is(err, kafkago.TopicAuthorizationFailed), errors.Is(err, kafkago.ClusterAuthorizationFailed):
		return fmt.Errorf("%w: %w", ErrNoRight, err)
	}
	return err
}

// topicState is what the brokers say of a topic.
type topicState struct {
	partitions, replicas int // replicas: of the partition that has fewest
	settings             map[string]string
}

func (t *topicState) durability(topic domain.Topic) Durability {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(t.settings[name], 10, 64)
		return n
	}
	return Durability{topic, t.replicas, int(number(minInSync)), number(flushMessages), number(flushMs)}
}

// describe asks for topics, every one of which must exist and be led.
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

// checkTopics returns what must be refused, or an error when it cannot tell.
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
			refuse(Replicas, strconv.Itoa(t.replicas), fmt.Sprintf("%d or more, as kafka.replication says", l.cfg.Replication))
		}
		for _, s := range l.settings() {
			if s.name == minInSync { // by the replicas that there are, which may be more or fewer than a new topic gets
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

// RecreatedError is an [ErrTrimmed]: a topic was deleted and created again, so
// that its offsets, however many there are, no longer count what they did.
type RecreatedError struct {
	Topic   domain.Topic
	Was, Is string // ids, as [Log.TopicIDs] returns them
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("%v: topic %s was deleted and created again: its id was %s and is %s", ErrTrimmed, e.Topic, e.Was, e.Is)
}

func (e *RecreatedError) Unwrap() error { return ErrTrimmed }

// topicID is what the cluster names a topic by, for as long as it exists.
type topicID [16]byte

// String is how Kafka's own tools show it.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// TopicIDs returns the ids of the topics named, of [domain.TopicSpecs] when
// none are. A topic keeps its id until it is deleted; one of the same name that
// is created after it has another. Whoever computes from the log keeps the ids
// beside its position, and MUST NOT go on from there when one has changed.
//
// Within the life of a Log a changed id is found without that: this call, Read
// and Follow return a [*RecreatedError], whatever the new topic holds. Append
// knows topics by name only.
//
// A log whose brokers tell no ids has none: the embedded one, which deletes no
// topic and is told from another by [Log.ID], and Apache Kafka before 3.1.
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
		for i, broker := range md.Brokers { // any of them knows
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
		return nil, fmt.Errorf("ask for the ids of topics: %w", err)
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

// identify asks a broker for the ids of topics, which must be those that this
// Log has seen before: Metadata, version 12.
func (l *Log) identify(conn net.Conn, topics ...domain.Topic) (map[domain.Topic]topicID, error) {
	b := requestHead(nil, metadataKey, metadataWithIDs, 0, l.cfg.ClientID)
	b = append(b, 0) // no tagged fields, here and below
	b = binary.AppendUvarint(b, uint64(len(topics))+1)
	for _, t := range topics {
		b = append(b, make([]byte, len(topicID{}))...) // by name
		b = binary.AppendUvarint(b, uint64(len(t))+1)
		b = append(append(b, t...), 0)
	}
	b = append(b, 0, 0, 0) // neither create topics nor tell who may do what
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
	c.tags()  // of the head
	c.int32() // throttled for; the broker has waited already
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
		c.int32() // what the client may do
		c.tags()
	}
	if c.tags(); c.bad || len(c.b) > 0 {
		return nil, errors.New("metadata answer does not have the form of one")
	}
	return ids, nil
}
