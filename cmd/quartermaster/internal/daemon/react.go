package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// Reactions are what this program does because of an event, besides folding it: it logs
// alerts, calls webhooks, and plans again. Instances share the work through Kafka consumer
// groups, one group for each reaction.
//
// Invariants:
//
//   - A reaction handles every event of its types at least once, in the order of
//     each partition: the next event of a partition waits for the one before. It
//     may handle one twice, after a crash or when instances come and go.
//   - It handles what the folds would accept: an event that cannot be decoded, is
//     invalid or lacks its signature is in quarantine for the folds, and goes to the
//     dead-letter topic here. Whether an operator had the right to decide is not
//     checked, because only the rows can tell.
//   - An event that cannot be handled goes to the dead-letter topic, with the reason,
//     and the next one is handled. Nothing is dropped silently.
//   - A reaction that runs for the first time starts at the end of the log.

// How an event that cannot be handled is retried. The waits double, so that a hiccup costs a
// second and a restarting receiver is not overloaded. After a quarter of an hour, enough for most
// deployments and restarts, the event goes to the dead-letter topic: the receiver may fail on
// this one event, and the partition waits behind it.
var retries = middleware.Retry{
	MaxRetries:          1000, // bounded by MaxElapsedTime instead
	InitialInterval:     time.Second,
	Multiplier:          2,
	MaxInterval:         time.Minute,
	MaxElapsedTime:      15 * time.Minute,
	RandomizationFactor: 0.2,
}

const (
	// reactionDrain is how long a stop waits for running handlers: longer than one webhook call,
	// so that its answer is not lost. It does not wait for retries.
	reactionDrain = webhookTimeout + 5*time.Second
	// maxReason bounds the reason in a dead letter; that of a panic includes a stack.
	maxReason = 4 << 10
)

// workMetrics counts the work besides folding: reactions and scheduled jobs.
type workMetrics struct {
	reactions, runs  *prometheus.CounterVec
	last, took       *prometheus.GaugeVec
	deadLettersWrong prometheus.Gauge
}

func newWorkMetrics() *workMetrics {
	return &workMetrics{
		reactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_reactions_total", Help: "Events that reactions dealt with, by what became of them; \"retried\" counts attempts that failed and were repeated.",
		}, []string{"reaction", "outcome"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_scheduled_runs_total", Help: "Runs of scheduled work by this instance.",
		}, []string{"job", "outcome"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "quartermaster_scheduled_last_success_timestamp_seconds", Help: "When this instance last finished scheduled work.",
		}, []string{"job"}),
		took: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "quartermaster_scheduled_last_success_seconds", Help: "How long the scheduled work took that this instance last finished.",
		}, []string{"job"}),
		deadLettersWrong: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quartermaster_dead_letter_topic_misconfigured", Help: "1 when the dead-letter topic's settings were not what they should be when this instance started its reactions.",
		}),
	}
}

// Describe implements [prometheus.Collector].
func (m *workMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.reactions.Describe(ch)
	m.runs.Describe(ch)
	m.last.Describe(ch)
	m.took.Describe(ch)
	m.deadLettersWrong.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *workMetrics) Collect(ch chan<- prometheus.Metric) {
	m.reactions.Collect(ch)
	m.runs.Collect(ch)
	m.last.Collect(ch)
	m.took.Collect(ch)
	m.deadLettersWrong.Collect(ch)
}

// reaction handles events of some types.
type reaction struct {
	name  string // used in logs, metrics and the dead-letter topic
	group string // Kafka consumer group, which stores its offsets
	types []domain.Type
	// do handles an event. It may be called twice for the same event. A [backoff.Permanent] error
	// is not retried; after [notYet] it is called again later, as if for the first time.
	do func(ctx context.Context, rec *domain.Record, env *domain.Envelope) error
}

func (r *reaction) topics() []domain.Topic {
	topics := map[domain.Topic]bool{}
	for _, t := range r.types {
		topics[domain.TopicOf(t)] = true
	}
	return slices.Sorted(maps.Keys(topics))
}

// react runs the reactions until ctx ends, then finishes the events in progress. It closes ready once all have been started; nil:
// nobody waits for it.
func react(ctx context.Context, h *app.Conn, cfg *config.Config, once onceFunc, m *workMetrics, log *slog.Logger, ready chan<- struct{}) error {
	hooks, err := newWebhooks(cfg.Webhooks)
	if err != nil {
		return fmt.Errorf("start reactions: %w", err)
	}
	list := []reaction{alertReaction(log)}
	for _, w := range hooks {
		if len(w.eventTypes()) > 0 {
			list = append(list, w.reaction(h))
		}
	}
	// Without a plan schedule, no plans are made unasked.
	if cfg.Schedules.Plan != "" {
		list = append(list, (&replanner{conn: h, once: once, now: app.Now, wait: sleep}).reaction())
	}
	rt := &reactor{log: h.Log, retries: retries, nackDelay: time.Second, metrics: m, slog: log, ready: ready}
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		switch err := rt.run(ctx, list); {
		case ctx.Err() != nil: // an interrupted event is delivered again
		case lasting(err):
			return fmt.Errorf("reactions: %w", err)
		default:
			// Folding continues meanwhile, if it can.
			log.Warn("reactions have stopped; restarting them", "in", wait.String(), "error", err)
			sleep(ctx, wait) //nolint:errcheck // the loop looks at ctx
		}
	}
	return nil
}

// reactor runs reactions on a Watermill router.
type reactor struct {
	log       *kafka.Log
	retries   middleware.Retry
	nackDelay time.Duration
	metrics   *workMetrics
	slog      *slog.Logger
	ready     chan<- struct{} // closed once every reaction has started; may be nil
	opened    sync.Once       // ready was closed
}

// run returns once ctx has ended and the events in progress are finished, or with the error that
// stops it.
func (rt *reactor) run(ctx context.Context, list []reaction) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := rt.ensureDeadLetters(ctx); err != nil {
		return err
	}
	ends, err := rt.ends(ctx, list)
	if err != nil {
		return err
	}
	// At level Info, Watermill logs every step.
	logger := watermill.NewSlogLoggerWithLevelMapping(rt.slog, map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: reactionDrain + 5*time.Second}, logger)
	if err != nil {
		return err
	}
	publisher := &deadLetterPublisher{kafka.NewPublisher(rt.log, recordKey), rt.metrics, rt.slog}
	deadLetters, err := middleware.PoisonQueueWithFilter(publisher, app.TopicDeadLetters,
		func(err error) bool { return !errors.Is(err, errInterrupted) })
	if err != nil {
		return err
	}
	var subscribers []*kafka.Subscriber
	for i := range list {
		r := &list[i]
		for _, topic := range r.topics() {
			s := kafka.NewSubscriber(rt.log, kafka.SubscriberConfig{
				Group: r.group, Start: func(tp domain.TopicPartition) int64 { return ends[tp] },
				NackDelay: rt.nackDelay, Drain: reactionDrain, Logger: logger,
			})
			subscribers = append(subscribers, s)
			router.AddConsumerHandler(handlerOf(r, topic), string(topic), undisturbed{s}, rt.handle(r)).AddMiddleware(
				rt.interruptible(ctx, r), deadLetters, patient, rt.retries.Middleware, rt.attempt(r), middleware.Recoverer)
		}
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closed := make(chan error, 1)
		go func() { closed <- router.Close() }()
		var wg sync.WaitGroup
		for _, s := range subscribers {
			wg.Go(func() { _ = s.Close() }) // which only waits
		}
		wg.Wait()
		stopped <- <-closed
	}()
	if rt.ready != nil {
		go func() {
			select {
			case <-router.Running():
				rt.opened.Do(func() { close(rt.ready) })
			case <-ctx.Done(): // it never ran
			}
		}()
	}
	err = router.Run(context.WithoutCancel(ctx))
	if err == nil && ctx.Err() == nil {
		err = errors.New("every subscription has ended")
	}
	cancel()
	return errors.Join(err, <-stopped)
}

// ensureDeadLetters creates the dead-letter topic. A topic with wrong settings is used anyway: it
// is not part of the log, and no reason to stop.
func (rt *reactor) ensureDeadLetters(ctx context.Context) error {
	err := rt.log.EnsureTopics(ctx, app.DeadLetterTopics)
	var setting *kafka.SettingError
	if !errors.As(err, &setting) {
		rt.metrics.deadLettersWrong.Set(0)
		return err
	}
	rt.metrics.deadLettersWrong.Set(1)
	rt.slog.Warn("the dead-letter topic may lose what reactions could not handle; correct its settings", "topic", app.TopicDeadLetters, "error", err)
	return nil
}

// ends returns the end of the log, where a reaction without stored offsets starts.
func (rt *reactor) ends(ctx context.Context, list []reaction) (domain.Position, error) {
	topics := map[domain.Topic]bool{}
	for i := range list {
		for _, t := range list[i].topics() {
			topics[t] = true
		}
	}
	tps := domain.AllPartitions()
	tps = slices.DeleteFunc(tps, func(tp domain.TopicPartition) bool { return !topics[tp.Topic] })
	_, next, err := rt.log.AllBounds(ctx, tps)
	return next, err
}

// undisturbed keeps the router from cancelling running handlers when it begins to close: closing
// the subscriber lets them finish.
type undisturbed struct{ *kafka.Subscriber }

func (u undisturbed) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return u.Subscriber.Subscribe(context.WithoutCancel(ctx), topic)
}

// recordKey is the key of the record that a message came from.
func recordKey(_ string, m *message.Message) []byte {
	if rec, ok := kafka.RecordFrom(m.Context()); ok {
		return rec.Key
	}
	return nil
}

// errInterrupted means that an event was not finished when the program stopped or its partition
// moved to another instance. It is delivered again.
var errInterrupted = errors.New("interrupted; the event comes again")

// handlerOf names a reaction's handler of a topic. [app.ReactionOf] is its inverse.
func handlerOf(r *reaction, topic domain.Topic) string { return r.name + " " + string(topic) }

// heldKey is the key under which a message's context keeps the context that ends when the event
// no longer belongs to this instance.
type heldKey struct{}

// held returns the context for a call that a stop must let finish.
func held(ctx context.Context) context.Context {
	if c, ok := ctx.Value(heldKey{}).(context.Context); ok {
		return c
	}
	return ctx
}

// interruptible ends waiting on stop, and adds the record's place to the message, for readers of
// the dead-letter topic.
func (rt *reactor) interruptible(stop context.Context, r *reaction) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			mine := m.Context()
			ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(mine), heldKey{}, mine))
			defer cancel(nil)
			defer context.AfterFunc(stop, func() { cancel(errInterrupted) })()
			defer context.AfterFunc(mine, func() { cancel(errInterrupted) })()
			m.SetContext(ctx)
			if rec, ok := kafka.RecordFrom(mine); ok {
				m.Metadata.Set(app.DeadLetterPartition, strconv.Itoa(rec.Partition))
				m.Metadata.Set(app.DeadLetterOffset, strconv.FormatInt(rec.Offset, 10))
			}
			_, err := next(m)
			if errors.Is(err, errInterrupted) {
				err = fmt.Errorf("%w: %w", err, context.Canceled) // which the router does not treat as an error
			}
			return nil, err
		}
	}
}

// notYet returns an error that postpones the handling of an event.
func notYet(wait time.Duration) error { return backoff.Permanent(&earlyError{wait}) }

type earlyError struct{ wait time.Duration }

func (e *earlyError) Error() string { return "it is too early by " + e.wait.String() }

// patient waits until an event can be handled, outside of the retries, whose time starts after
// the wait. Any failure after this instance lost the event counts as an interruption: the loss
// may have caused it, so it is no reason for a dead letter.
func patient(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		for {
			_, err := next(m)
			var early *earlyError
			if errors.As(err, &early) {
				if err = sleep(m.Context(), early.wait); err == nil {
					continue
				}
			}
			if err != nil && lost(m.Context()) {
				err = errInterrupted
			}
			return nil, err
		}
	}
}

// lost reports whether the event no longer belongs to this instance, or the program stops. The
// context of the message's own handler is checked too, because it ends first.
func lost(ctx context.Context) bool { return ctx.Err() != nil || held(ctx).Err() != nil }

// attempt classifies the result of one try. A failure after the event was lost is an
// interruption, and a panic is a defect that retrying does not fix.
func (rt *reactor) attempt(r *reaction) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx := m.Context()
			_, err := next(m)
			var panicked middleware.RecoveredPanicError
			var final *backoff.PermanentError
			switch {
			case err == nil:
				return nil, nil
			case lost(ctx):
				return nil, backoff.Permanent(errInterrupted)
			case errors.As(err, &panicked):
				return nil, backoff.Permanent(err)
			case errors.As(err, &final):
				return nil, err
			}
			rt.metrics.reactions.WithLabelValues(r.name, "retried").Inc()
			rt.slog.Warn("a reaction failed; retrying it", "reaction", r.name, "event", placeOf(ctx), "error", err)
			return nil, err
		}
	}
}

func placeOf(ctx context.Context) string {
	if rec, ok := kafka.RecordFrom(ctx); ok {
		return placeOfRecord(rec)
	}
	return ""
}

func placeOfRecord(rec *domain.Record) string {
	return fmt.Sprintf("%s/%d@%d", rec.Topic, rec.Partition, rec.Offset)
}

// handle decodes a record like the folds and passes the event to its reaction.
func (rt *reactor) handle(r *reaction) message.NoPublishHandlerFunc {
	return func(m *message.Message) error {
		rec, ok := kafka.RecordFrom(m.Context())
		if !ok {
			return backoff.Permanent(errors.New("the message does not come from a record"))
		}
		// No reaction waits for an unknown or missing type. Such a record is in quarantine.
		if !slices.Contains(r.types, wire.TypeOf(rec)) {
			return nil
		}
		var env domain.Envelope
		if err := new(wire.Decoder).Decode(rec, &env); err != nil {
			return backoff.Permanent(err)
		}
		if err := errors.Join(domain.Validate(&env), env.CheckSignature()); err != nil {
			return backoff.Permanent(err)
		}
		if err := r.do(m.Context(), rec, &env); err != nil {
			return err
		}
		rt.metrics.reactions.WithLabelValues(r.name, "handled").Inc()
		return nil
	}
}

// deadLetterPublisher writes bounded messages to the dead-letter topic, and logs them.
type deadLetterPublisher struct {
	message.Publisher
	metrics *workMetrics
	slog    *slog.Logger
}

// Publish implements [message.Publisher].
func (p *deadLetterPublisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		reason := m.Metadata.Get(app.DeadLetterReason)
		if len(reason) > maxReason {
			reason = strings.ToValidUTF8(reason[:maxReason], "") // not within a character
			m.Metadata.Set(app.DeadLetterReason, reason)
		}
		err := p.Publisher.Publish(topic, m)
		if large := new(kafka.TooLargeError); errors.As(err, &large) {
			// The added headers do not fit beside the value. The record stays in the log.
			bare := message.NewMessage(m.UUID, nil)
			bare.SetContext(m.Context())
			for _, name := range []string{app.DeadLetterReason, app.DeadLetterTopic, app.DeadLetterHandler, app.DeadLetterPartition, app.DeadLetterOffset} {
				bare.Metadata.Set(name, m.Metadata.Get(name))
			}
			bare.Metadata.Set(app.DeadLetterExcluded, "too large")
			err = p.Publisher.Publish(topic, bare)
		}
		if err != nil {
			return err
		}
		name := app.ReactionOf(m.Metadata.Get(app.DeadLetterHandler))
		p.metrics.reactions.WithLabelValues(name, "poisoned").Inc()
		p.slog.Error("an event could not be handled and went to the dead-letter topic", "reaction", name, "event", placeOf(m.Context()), "topic", topic, "error", reason)
	}
	return nil
}
