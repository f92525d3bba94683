package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// headerUUID is the header with the UUID of a message. Watermill's own Kafka adapter uses the same
// name.
const headerUUID = "_watermill_message_uuid"

// Publisher is Watermill's message.Publisher over a [Log].
type Publisher struct {
	log *Log
	key func(topic string, m *message.Message) []byte

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher. The function key returns the record key of a message, which
// determines its partition. If key or its result is nil, the key is the UUID of the message.
func NewPublisher(log *Log, key func(topic string, m *message.Message) []byte) *Publisher {
	p := &Publisher{log: log, key: key}
	p.ctx, p.cancel = log.bind(context.Background())
	return p
}

// Publish appends the messages with one [Log.Append], with the same guarantees: messages with the
// same key keep their order, and nothing waits for a batch to fill. The topic MUST exist. The
// metadata of a message become record headers.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.ctx.Err() != nil {
		return fmt.Errorf("publish to %s: %w", topic, ErrClosed)
	}
	var partitions int
	if err := p.log.retry(p.ctx, func(ctx context.Context) error {
		at, err := p.log.leaders(ctx, topic)
		partitions = len(at)
		if err == nil && partitions == 0 {
			err = kafkago.LeaderNotAvailable
		}
		return err
	}); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	recs := make([]domain.Record, len(messages))
	for i, m := range messages {
		var key []byte
		if p.key != nil {
			key = p.key(topic, m)
		}
		if key == nil {
			key = []byte(m.UUID)
		}
		recs[i] = domain.Record{
			Topic: domain.Topic(topic), Partition: domain.PartitionOf(key, partitions),
			Key: key, Value: m.Payload,
			Headers: []domain.Header{{Key: headerUUID, Value: []byte(m.UUID)}},
		}
		for _, name := range slices.Sorted(maps.Keys(m.Metadata)) {
			recs[i].Headers = append(recs[i].Headers, domain.Header{Key: name, Value: []byte(m.Metadata[name])})
		}
	}
	if err := p.log.Append(p.ctx, recs); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// Close ends publishing; the Log stays open.
func (p *Publisher) Close() error {
	p.cancel()
	return nil
}

// SubscriberConfig is the configuration of a [Subscriber].
type SubscriberConfig struct {
	// Group is the consumer group. Its members share the partitions, and the broker stores its
	// offsets. Empty means all partitions, from Start.
	Group string

	// Start returns the offset to begin at without a Group; nil means the first offset of the
	// log. A group without a committed offset begins there too, and commits it.
	Start func(domain.TopicPartition) int64

	// NackDelay is the delay before a nacked message is delivered again; 100 ms when zero.
	NackDelay time.Duration

	// Drain is how long Close waits for messages in handlers; 1 s when zero.
	Drain time.Duration

	// Partitions is the number of partitions of topics that SubscribeInitialize creates, except
	// those of [domain.TopicSpecs]; 1 when zero.
	Partitions int

	// Logger gets the errors that cannot be returned. If nil, nothing is logged.
	Logger watermill.LoggerAdapter
}

const (
	commitEvery = 200 * time.Millisecond
	heartbeat   = time.Second
	// sessionTimeout is how long a dead member keeps its partitions. rebalanceTimeout is how
	// long the others wait for a member that left during a rebalance. Brokers require a session
	// timeout of at least 6 s.
	sessionTimeout   = 10 * time.Second
	rebalanceTimeout = 5 * time.Second
)

// Subscriber is Watermill's message.Subscriber over a [Log].
//
// Each partition delivers one message at a time, in offset order. The next message follows once
// the last one was acknowledged, so the committed offset never passes an unfinished message. A
// nacked message is delivered again. After a rebalance or a crash, messages since the last commit
// are delivered again.
//
// Once a rebalance begins, this member delivers nothing more of the old assignment, because no
// queue of a reader outlives it. The contexts of messages in handlers end, and acknowledging them
// has no effect. They are delivered again, to this or another member. A member that was cut off or
// frozen learns of the rebalance late, at the latest when it resumes. Until then it may handle the
// same messages as another member. So delivery is at least once, and a handler whose effect must
// not be repeated MUST key it by the message.
//
// A trimmed log delivers nothing and is logged as an error.
type Subscriber struct {
	log       *Log
	cfg       SubscriberConfig
	rebalance time.Duration

	mu      sync.Mutex
	stop    chan struct{} // closed by Close
	closed  bool
	running sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a subscriber. The Log MUST stay open until the subscriber is closed.
func NewSubscriber(log *Log, cfg SubscriberConfig) *Subscriber {
	if cfg.NackDelay == 0 {
		cfg.NackDelay = 100 * time.Millisecond
	}
	if cfg.Drain == 0 {
		cfg.Drain = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = watermill.NopLogger{}
	}
	return &Subscriber{log: log, cfg: cfg, rebalance: rebalanceTimeout, stop: make(chan struct{})}
}

// SubscribeInitialize creates the topic with [Log.EnsureTopics].
func (s *Subscriber) SubscribeInitialize(topic string) error {
	n := domain.Topic(topic).Partitions()
	if n == 0 {
		n = max(s.cfg.Partitions, 1)
	}
	return s.log.EnsureTopics(s.log.ctx, []domain.TopicSpec{{Topic: domain.Topic(topic), Partitions: n}})
}

// Subscribe delivers the messages of the topic until ctx ends or the subscriber is closed. Then it
// closes the channel. The context of a message carries its record ([RecordFrom]). It ends when the
// message is acked or nacked, or when delivery ends.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, ErrClosed)
	}
	sub := &subscription{
		Subscriber: s,
		topic:      domain.Topic(topic),
		out:        make(chan *message.Message),
		logger:     s.cfg.Logger.With(watermill.LogFields{"topic": topic, "group": s.cfg.Group}),
	}
	run := sub.runAll
	if s.cfg.Group != "" {
		group, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
			ID:                s.cfg.Group,
			Brokers:           s.log.cfg.Brokers,
			Dialer:            s.log.dialer(nil),
			Topics:            []string{topic},
			HeartbeatInterval: heartbeat,
			SessionTimeout:    sessionTimeout,
			RebalanceTimeout:  s.rebalance,
			JoinGroupBackoff:  heartbeat,
			StartOffset:       kafkago.FirstOffset,
		})
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
		}
		run = func(ctx context.Context) { sub.runGroup(ctx, group) }
	}
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(s.log.ctx, cancel)
	s.running.Go(func() {
		defer close(sub.out)
		defer cancel()
		defer unbind()
		run(ctx)
	})
	return sub.out, nil
}

// Close stops delivery, waits for messages in handlers, commits, leaves the group and closes the
// channels. It may be called more than once.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// subscription is one call of Subscribe.
type subscription struct {
	*Subscriber
	topic  domain.Topic
	out    chan *message.Message
	logger watermill.LoggerAdapter
	failed failures // to join
}

// stopping returns a context that ends with ctx or when the subscriber begins to close.
func (s *subscription) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// runAll consumes every partition, without a group.
func (s *subscription) runAll(ctx context.Context) {
	taking, cancel := s.stopping(ctx)
	defer cancel()
	var at map[domain.TopicPartition]string
	for {
		var err error
		if at, err = s.log.leaders(taking, string(s.topic)); err == nil {
			break
		}
		if !s.pause(taking, &s.failed, "find partitions", err) {
			return
		}
	}
	var wg sync.WaitGroup
	for tp := range at {
		wg.Go(func() { s.consume(ctx, taking, tp, kafkago.FirstOffset, func(int64) {}) })
	}
	wg.Wait()
}

// runGroup consumes the partitions that the group assigns to this member, generation by generation.
func (s *subscription) runGroup(ctx context.Context, group *kafkago.ConsumerGroup) {
	taking, cancel := s.stopping(ctx)
	defer cancel()
	defer func() { _ = group.Close() }() // its error only repeats that of leaving the group
	for taking.Err() == nil {
		gen, err := group.Next(taking)
		if err != nil {
			if !s.pause(taking, &s.failed, "join group", err) {
				return
			}
			continue
		}
		s.again(&s.failed, "joined the group again")
		ended := make(chan struct{})
		gen.Start(func(life context.Context) {
			defer close(ended)
			s.runGeneration(ctx, taking, life, gen)
			if taking.Err() != nil {
				go func() { _ = group.Close() }() // leave before returning, because returning would rejoin
				<-life.Done()
			}
		})
		<-ended
	}
}

// runGeneration consumes until the group rebalances, which ends life, or until delivery stops. It
// MUST return soon after that, because the group waits for it.
func (s *subscription) runGeneration(ctx, taking, life context.Context, gen *kafkago.Generation) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	taking, cancelTaking := context.WithCancel(taking)
	defer cancelTaking()
	defer context.AfterFunc(life, cancelTaking)()

	var mu sync.Mutex
	done := map[int]int64{} // next offset by partition, not committed yet
	commit := func() {
		mu.Lock()
		due := maps.Clone(done)
		clear(done)
		mu.Unlock()
		if len(due) == 0 {
			return
		}
		if err := gen.CommitOffsets(map[string]map[int]int64{string(s.topic): due}); err != nil {
			s.logger.Error("commit: messages may come again", err, nil)
		}
	}
	var wg sync.WaitGroup
	for _, p := range gen.Assignments[string(s.topic)] {
		wg.Go(func() {
			s.consume(ctx, taking, domain.TopicPartition{Topic: s.topic, Partition: p.ID}, p.Offset, func(next int64) {
				mu.Lock()
				done[p.ID] = next
				mu.Unlock()
			})
		})
	}
	idle := make(chan struct{})
	go func() {
		<-taking.Done() // a member without partitions stays until then too
		wg.Wait()
		close(idle)
	}()
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			commit()
		case <-idle:
			commit()
			return
		}
	}
}

// consume delivers the messages of one partition until taking ends. The context ctx ends later,
// when messages in handlers are abandoned.
func (s *subscription) consume(
	ctx, taking context.Context,
	tp domain.TopicPartition,
	from int64,
	acked func(next int64),
) {
	var failed failures
	for {
		fresh := from < 0
		err := s.start(taking, tp, &from)
		if err == nil && fresh {
			acked(from) // commit the start, so that the group never consults Start again
		}
		if err == nil {
			err = s.log.Follow(taking, tp, from, func(recs []domain.Record) error {
				s.again(&failed, "reads "+tp.String()+" again")
				for i := range recs {
					// Spans have no messages; folds record them.
					if recs[i].Span == nil && !s.deliver(ctx, taking, &recs[i]) {
						return context.Canceled
					}
					from = recs[i].Next()
					acked(from)
				}
				return nil
			})
		}
		if !s.pause(taking, &failed, "read "+tp.String(), err) {
			return
		}
	}
}

// start sets the offset to begin at, if it is not known yet.
func (s *subscription) start(ctx context.Context, tp domain.TopicPartition, from *int64) (err error) {
	if *from >= 0 {
		return nil
	}
	if s.cfg.Start != nil {
		*from = s.cfg.Start(tp)
		return nil
	}
	first, _, err := s.log.Bounds(ctx, tp)
	if err == nil {
		*from = first
	}
	return err
}

// again logs the end of failures, if there were any.
func (s *subscription) again(f *failures, what string) {
	lasted := f.end(time.Now())
	switch {
	case lasted == 0:
	case s.log.cfg.Logger != nil: // Watermill's logger may be configured to drop Info
		s.log.cfg.Logger.Info(
			what,
			"topic", string(s.topic),
			"group", s.cfg.Group,
			"after", lasted.Round(100*time.Millisecond).String(),
		)
	default:
		s.logger.Info(what, watermill.LogFields{"after": lasted.String()})
	}
}

// pause waits a second after a failure. It logs the failure unless one was logged within the last
// minute. It reports false when ctx has ended.
func (s *subscription) pause(ctx context.Context, f *failures, doing string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	var answer kafkago.Error
	forms := errors.As(err, &answer) && answer.Temporary() // the group is forming or moving
	switch say := f.fail(time.Now(), !forms); {
	case say && forms:
		s.logger.Info(doing+": "+answer.Title()+"; trying again", nil)
	case say:
		s.logger.Error(doing+"; trying again", err, nil)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		return true
	}
}

// deliver delivers a record until it is acknowledged. It reports false if delivery ended before.
func (s *subscription) deliver(ctx, taking context.Context, r *domain.Record) bool {
	own := cloneRecord(r)
	for {
		live, cancel := context.WithCancel(context.WithValue(ctx, recordKey{}, &own))
		m := messageOf(&own)
		m.SetContext(live)
		switch s.handle(ctx, taking, m) {
		case done:
			cancel()
			return true
		case gone:
			cancel()
			return false
		}
		cancel()
		select {
		case <-taking.Done():
			return false
		case <-time.After(s.cfg.NackDelay):
		}
	}
}

type outcome int

const (
	done    outcome = iota // acknowledged
	refused                // deliver again
	gone                   // delivery has ended
)

func (s *subscription) handle(ctx, taking context.Context, m *message.Message) outcome {
	if taking.Err() != nil { // check first, because select would choose randomly
		return gone
	}
	select {
	case <-taking.Done():
		return gone
	case s.out <- m:
	}
	var late <-chan time.Time
	stop := taking.Done()
	for {
		select {
		case <-m.Acked():
			return done
		case <-m.Nacked():
			return refused
		case <-ctx.Done():
			return gone
		case <-stop:
			stop, late = nil, time.After(s.cfg.Drain)
		case <-late:
			return gone
		}
	}
}

func cloneRecord(r *domain.Record) domain.Record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	return c
}

// messageOf turns a record into a message. The UUID of a record that was not published as a message
// is its CloudEvents id, else its topic, partition and offset.
func messageOf(r *domain.Record) *message.Message {
	uuid := string(r.Header(headerUUID))
	if uuid == "" {
		uuid = string(r.Header("ce_id"))
	}
	if uuid == "" {
		uuid = fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset)
	}
	m := message.NewMessage(uuid, bytes.Clone(r.Value))
	for i := range r.Headers {
		if h := &r.Headers[i]; h.Key != headerUUID {
			m.Metadata.Set(h.Key, string(h.Value))
		}
	}
	return m
}

type recordKey struct{}

// RecordFrom returns the record in the context of a message. The handler may keep it but MUST NOT
// change it.
func RecordFrom(ctx context.Context) (*domain.Record, bool) {
	r, ok := ctx.Value(recordKey{}).(*domain.Record)
	return r, ok
}
