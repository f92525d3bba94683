package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/spool"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/domain/faults"
)

// queueNames are the topics, each of which has a queue in the spool.
var queueNames = []domain.Topic{domain.TopicHardware, domain.TopicFleet, domain.TopicTelemetry}

// reporter turns frames into events. Only one goroutine at a time may call the methods that handle
// frames.
type reporter struct {
	cfg   *Config
	log   *slog.Logger
	table *faults.Table
	spool *spool.Spool
	clock *clock
	held  *attributor
	pace  pace

	mu             sync.Mutex // serializes the collector's frames and the ticker
	memory         *memory
	sampler        *sampler
	hello          *dcgm.Hello
	last           domain.Instant // time of the last frame
	begun          time.Time      // start of this life
	measuredAt     time.Time      // last measurements in this life; zero: none
	boot           time.Duration  // boot clock of the last measurements
	trouble        string         // the collector's report of a driver that gives no new values
	saved          time.Time
	recoveryKnown  map[domain.GPUID]bool // GPUs whose recovery action was reported in this run
	unsaved        bool                  // the memory could not be written, which was logged
	couriers       []*courier
	super          *supervisor
	reportedLosses map[domain.Topic]spool.Loss // used by the ticker: losses whose event may not be on disk yet

	cursor   atomic.Int64
	samples  atomic.Int64
	faults   atomic.Int64
	repeats  atomic.Int64
	failed   atomic.Int64 // events that could not be made
	excluded atomic.Int64 // devices and shares that did not fit into the last sample
	blocked  atomic.Bool  // the spool accepts no faults, so frames wait
}

// openReporter opens the spool and the memory.
func openReporter(cfg *Config, log *slog.Logger) (*reporter, error) {
	table := faults.Standard()
	if cfg.Collector.Faults != "" {
		b, err := configfile.Small(cfg.Collector.Faults, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("collector.faults: %w", err)
		}
		own, err := faults.Parse(cfg.Collector.Faults, string(b))
		if err != nil {
			return nil, fmt.Errorf("collector.faults: %w", err)
		}
		table = table.With(own)
	}
	s, err := spool.Open(spool.Config{
		Dir: cfg.Spool.Dir, Source: cfg.source(), Incarnation: incarnation(),
		Queues: []spool.Rule{
			{Name: string(domain.TopicHardware), Keep: true, Segment: 64 << 10, Retain: true},
			{Name: string(domain.TopicFleet), Keep: true, Segment: 64 << 10},
			{Name: string(domain.TopicTelemetry)},
		},
		Quota: int64(cfg.Spool.QuotaMiB) << 20, Reserve: int64(cfg.Spool.ReserveKiB) << 10, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	r := &reporter{
		cfg: cfg, log: log, table: table, spool: s, clock: newClock(), held: newAttributor(cfg, log),
		sampler: newSampler(cfg.Cluster, cfg.Node, cfg.Interval), begun: time.Now(), saved: time.Now(),
		reportedLosses: map[domain.Topic]spool.Loss{},
	}
	if r.memory, err = openMemory(cfg.Spool.Dir, r.queue(domain.TopicHardware), log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if r.memory.Cursor == 0 {
		// The first life begins now. The cursor is saved, so that XIDs before the collector's first
		// cursor are not missed.
		r.memory.Cursor = time.Now().UnixMicro()
		if err := r.memory.save(now(), 0, 0); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	r.memory.Measured = max(r.memory.Measured, r.queue(domain.TopicTelemetry).Reached())
	r.cursor.Store(r.memory.Cursor)
	r.queue(domain.TopicHardware).Release(r.memory.kept.incarnation, r.memory.kept.sequence)
	return r, nil
}

// incarnation returns the number of an incarnation that begins now. Readers take it for its start, in
// microseconds.
func incarnation() uint64 { return uint64(max(1, time.Now().UnixMicro())) }

func (r *reporter) queue(t domain.Topic) *spool.Queue { return r.spool.Queue(string(t)) }

// askFor is how long a new node waits for the number of shards.
const askFor = 3 * time.Second

// run reports until ctx ends. Undelivered events then wait in the spool.
func (r *reporter) run(ctx context.Context, to sender) error {
	refused := newRefusedFile(r.cfg.Spool.Dir, r.log)
	for _, t := range queueNames {
		r.couriers = append(r.couriers, &courier{
			queue:   r.queue(t),
			topic:   t,
			cluster: r.cfg.Cluster,
			sender:  to,
			refused: refused,
			log:     r.log,
			pace:    r.pace,
		})
	}
	r.super = &supervisor{
		command: r.cfg.Collector.Command, silent: r.cfg.Collector.Silent, log: r.log, pace: r.pace,
		args:  func() []string { return collectorArgs(&r.cfg.Collector, r.since()) },
		frame: r.frame, down: r.down,
	}
	status, err := r.serve()
	if err != nil {
		return err
	}
	defer status()
	r.log.Info("reporting",
		"cluster", r.cfg.Cluster, "node", r.cfg.Node, "incarnation", r.spool.Incarnation(),
		"spool", r.cfg.Spool.Dir, "faults_table", r.table.Version())
	var wg sync.WaitGroup
	if r.queue(domain.TopicHardware).Reached() == 0 && r.queue(domain.TopicTelemetry).Reached() == 0 {
		// This is a new node. It asks, so that its first events have the key of the others.
		asking, stop := context.WithTimeout(ctx, askFor)
		_, _ = to.send(asking, nil) // the couriers log what is wrong
		stop()
	}
	r.reshard(to.shards())
	r.held.refresh(ctx, time.Now())
	for _, c := range r.couriers {
		wg.Go(func() { c.run(ctx) })
	}
	wg.Go(func() { r.super.run(ctx) })
	wg.Go(func() { r.attribute(ctx) })
	wg.Go(func() { r.tick(ctx, to) })
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(r.sampler.cut(r.sampler.at))
	r.remember()
	return r.close(to)
}

func (r *reporter) close(to sender) error {
	to.close()
	return r.spool.Close()
}

// since returns the cursor for the next run of the collector. If the cursor is in the future, the
// clock was set back since. Then the last minutes are read again, and the memory recognizes
// repeats.
func (r *reporter) since() int64 {
	now, cursor := time.Now().UnixMicro(), r.cursor.Load()
	if cursor > now {
		return now - (5 * time.Minute).Microseconds()
	}
	return cursor
}

// attribute asks for the holders of GPUs every interval.
func (r *reporter) attribute(ctx context.Context) {
	t := time.NewTicker(r.cfg.Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			r.held.refresh(ctx, now)
		}
	}
}

// tick runs every second. It writes events that the disk did not accept, reports losses, saves the
// memory, and follows the number of shards of the cluster.
func (r *reporter) tick(ctx context.Context, to sender) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, topic := range queueNames {
			_ = r.queue(topic).Sync() // the spool logs errors
		}
		for _, topic := range queueNames {
			r.reportLosses(topic)
		}
		r.stalled()
		r.reshard(to.shards())
		r.mu.Lock()
		if time.Since(r.saved) > time.Minute {
			r.remember()
		}
		r.mu.Unlock()
	}
}

// reshard begins a new incarnation if the cluster has another number of shards than the keys of this
// one.
func (r *reporter) reshard(n int) {
	if n == 0 || max(r.spool.Shards(), 1) == n {
		return
	}
	if err := r.spool.Reshard(n, incarnation()); err != nil {
		return // the disk does not accept events, which the spool logs; the next tick tries again
	}
	r.log.Info("the cluster has another number of shards", "shards", n, "incarnation", r.spool.Incarnation())
}

// reportLosses reports the losses of a queue, with one event each. A loss stays recorded until its
// event is on disk. While the disk accepts no events, no further event is made.
func (r *reporter) reportLosses(topic domain.Topic) {
	q := r.queue(topic)
	for _, l := range q.Losses() {
		if _, held := r.queue(domain.TopicHardware).Last(); held > 0 {
			return // it is reported later
		}
		if told, ok := r.reportedLosses[topic]; ok && told.Incarnation == l.Incarnation && told.From == l.From {
			l = told // its event is on disk now; the loss may have grown since
		} else {
			e := &domain.SpoolDropped{
				Node: r.cfg.Node, Stream: printable(r.cfg.source()+" "+string(topic), 256), From: l.From, To: l.To,
				Covered: l.Covered, Reason: l.Reason.String(), Incarnation: l.Incarnation,
			}
			at := now()
			if e.Covered.Empty() {
				e.Covered = domain.Interval{}
			} else {
				e.Covered = credible(e.Covered, at)
			}
			err := r.append(at, e, nil)
			if err != nil && !errors.Is(err, spool.ErrHeld) {
				return // it is reported later
			}
			r.reportedLosses[topic] = l
			r.log.Error("events were lost",
				"topic", string(topic), "from", l.From, "to", l.To, "reason", l.Reason.String(),
				"covered_from", l.Covered.From.String(), "covered_to", l.Covered.To.String())
			if err != nil {
				return
			}
		}
		delete(r.reportedLosses, topic)
		if err := q.Said(l); err != nil {
			r.log.Error("the report of a loss cannot be recorded: the loss may be reported again", "error", err)
			return
		}
	}
}

func now() domain.Instant { return domain.InstantOf(time.Now()) }

// append puts an event into the spool. An error that wraps spool.ErrHeld means that the event was
// accepted.
func (r *reporter) append(at domain.Instant, ev domain.Event, memo []byte) error {
	env := domain.Envelope{Source: r.cfg.source(), Cluster: r.cfg.Cluster, Subject: r.cfg.Node, Time: at, Event: ev}
	covered := domain.Interval{From: at, To: at + 1}
	if s, ok := ev.(*domain.NodeSampled); ok {
		covered = s.Interval
	}
	err := r.queue(env.Topic()).Append(covered, func(p spool.Place) ([]byte, error) {
		env.Incarnation, env.Sequence = p.Incarnation, p.Sequence
		env.PreviousIncarnation, env.PreviousSequence = p.PreviousIncarnation, p.PreviousSequence
		env.Shards = p.Shards
		rec, err := wire.Encode(&env)
		if err != nil {
			return nil, &encodeError{err}
		}
		if err := domain.Validate(&env); err != nil {
			return nil, &encodeError{err}
		}
		body, err := wire.AppendBatch(nil, &rec)
		if err != nil {
			return nil, &encodeError{err}
		}
		return pack(body, memo), nil
	})
	var u *encodeError
	if errors.As(err, &u) {
		r.failed.Add(1)
		r.log.Error("an observation cannot be encoded as an event; please report this",
			"type", string(ev.Type()), "error", u.err)
	}
	return err
}

// encodeError is why an event cannot be made. A retry does not help.
type encodeError struct{ err error }

func (u *encodeError) Error() string { return u.err.Error() }

// frame handles a frame of the collector. It returns once its events are on disk. While the disk
// accepts nothing, it returns once they are in memory, and waits if the memory bound is reached.
func (r *reporter) frame(ctx context.Context, f dcgm.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = f.At
	if err := r.reportReturns(ctx); err != nil {
		return err
	}
	switch b := f.Body.(type) {
	case *dcgm.Hello:
		r.hello, r.recoveryKnown = b, map[domain.GPUID]bool{}
		r.log.Info("the collector began",
			"program", b.Program, "dcgm", b.Library, "driver", b.Driver, "engine", b.Engine,
			"devices", len(b.Inventory.Devices))
		for _, g := range b.Groups {
			if !g.Works {
				r.log.Warn("a group of fields is not read", "group", g.Name, "reason", g.Reason)
			}
		}
		missing, err := r.inventory(ctx, &b.Inventory, f.At)
		if err == nil {
			err = r.reportMissing(ctx, missing, &f)
		}
		if err != nil {
			return err
		}
		return r.booted(ctx, b.BootID, f.At)
	case *dcgm.Inventory:
		r.log.Warn("the devices of this node changed", "reason", b.Reason, "devices", len(b.Devices))
		_, err := r.inventory(ctx, b, f.At)
		return err
	case *dcgm.Readings:
		if holdsValue(b) {
			r.measured(&f)
			r.put(r.sampler.readings(&f, b))
		}
		return r.checkRecovery(ctx, b, f.At)
	case *dcgm.Events:
		return r.events(ctx, &f, b)
	case *dcgm.Trouble:
		if b.Code == dcgm.TroubleDriver {
			r.trouble = b.Text
		}
	}
	return nil
}

// inventory handles a new list of devices, and returns the GPUs that are missing from it.
func (r *reporter) inventory(ctx context.Context, inv *dcgm.Inventory, at domain.Instant) (missing []gpuSlot, err error) {
	named := r.memory.restoreUUIDs(inv.Devices)
	replaced, missing, moved := r.memory.updateSlots(inv.Devices)
	r.put(r.sampler.inventory(inv, at))
	if err := r.replaced(ctx, replaced, at); err != nil {
		return nil, err
	}
	if named || moved {
		r.remember()
	}
	if r.cfg.Register.Enabled {
		r.register(at)
	}
	return missing, r.checkReturned(ctx, at)
}

// reportMissing reports GPUs that this node had in an earlier run of the collector and that are
// missing now. Within a run the collector reports that.
func (r *reporter) reportMissing(ctx context.Context, missing []gpuSlot, f *dcgm.Frame) error {
	for _, s := range missing {
		slot := cmp.Or(s.PCI, "an unknown slot")
		if err := r.event(ctx, f, &dcgm.Event{
			Kind: dcgm.KindLost, UUID: s.UUID, Count: 1, At: f.At, Found: true,
			Detail: fmt.Sprintf("GPU %d at %s is missing from this node; "+
				"if it was taken out for good: quartermaster node retire", s.Index, slot),
		}); err != nil {
			return err
		}
	}
	return nil
}

// register registers the node if its description changed.
func (r *reporter) register(at domain.Instant) {
	e := registration(r.cfg, r.hello, r.sampler.devices, runtime.NumCPU(), memoryMiB())
	text, err := json.Marshal(e)
	if err != nil {
		r.log.Error("the node cannot be described", "error", err)
		return
	}
	sum := sha256.Sum256(append(text, r.cfg.source()...)) // another cluster does not have the registration
	if slices.Equal(sum[:], r.memory.Registered) {
		return
	}
	if err := r.append(at, e, nil); err == nil || errors.Is(err, spool.ErrHeld) {
		r.memory.Registered = sum[:]
		r.remember()
	}
}

// put appends the sample of an interval. While the disk accepts none, it waits in memory.
func (r *reporter) put(done *reading) {
	if done == nil {
		return
	}
	held := r.held.holdings(r.cfg.Cluster, r.cfg.Node, done.devices)
	e, excluded := done.sample(r.cfg.Cluster, r.cfg.Node, held, r.clock.bound())
	if was := r.excluded.Swap(int64(excluded)); was != int64(excluded) && excluded > 0 {
		r.log.Error("a sample has no room for all devices and shares: the last ones are not reported; "+
			"let the device plugin divide GPUs into fewer shares", "reported", e.Entries(), "excluded", excluded)
	}
	if err := r.append(e.Interval.To, e, nil); err != nil {
		return // it is logged where it happened
	}
	r.samples.Add(1)
	_ = r.queue(domain.TopicTelemetry).Sync() // the spool logs errors
}

// events reports faults.
func (r *reporter) events(ctx context.Context, f *dcgm.Frame, b *dcgm.Events) error {
	for i := range b.Events {
		if err := r.event(ctx, f, &b.Events[i]); err != nil {
			return err
		}
	}
	if b.Cursor > 0 {
		r.cursor.Store(b.Cursor)
	}
	return nil
}

func (r *reporter) event(ctx context.Context, f *dcgm.Frame, e *dcgm.Event) error {
	if e.UUID == (domain.GPUID{}) && e.Device > 0 && int(e.Device) <= len(r.sampler.devices) {
		e.UUID = r.sampler.devices[e.Device-1].UUID
	}
	if e.Kind == dcgm.KindRecovery && r.recoveryKnown != nil {
		r.recoveryKnown[e.UUID] = true
	}
	if e.Over {
		return r.over(ctx, e, f.At)
	}
	news, seen := r.memory.judge(e)
	if !news {
		r.memory.baseline(e)
		r.repeats.Add(1)
		return nil
	}
	e.Detail = printable(e.Detail, 2000)
	ev, verdict, ok := dcgm.Fault(r.table, r.cfg.Node, *e, seen)
	if !ok {
		return nil
	}
	if !verdict.Known {
		r.log.Warn("a fault is in no table: it is reported with its number",
			"kind", e.Kind.String(), "code", e.Code, "table", r.table.Version())
	}
	ev.BootTime = f.At - domain.Instant(f.Boot)
	at := e.At
	if at <= 0 || at > f.At+domain.Day {
		at = f.At
	}
	r.log.Warn("a fault of a GPU",
		"gpu", e.UUID.String(), "kind", e.Kind.String(), "code", e.Code,
		"class", ev.Class, "action", ev.Action, "fatal", ev.Fatal, "detail", ev.Detail)
	down := downOf(verdict)
	if down == untilReplaced && verdict.Driver {
		// Only the driver's requested action takes this GPU out of service, until it is done.
		down = downOf(r.table.Judge(faults.Recovers, e.Recovery-1, faults.RecoveryUnknown, 0))
	}
	taken, err := r.keep(ctx, at, ev, makeMemo(e, down))
	if taken {
		r.memory.note(*e, down)
		r.faults.Add(1)
		if r.memory.since >= saveEvery {
			r.remember()
		}
	}
	return err
}

// keep appends an event that must not be lost, and waits while the spool is full. taken is false if
// the event cannot be made or ctx ends.
func (r *reporter) keep(ctx context.Context, at domain.Instant, ev domain.Event, memo []byte) (taken bool, err error) {
	for {
		err := r.append(at, ev, memo)
		var u *encodeError
		switch {
		case err == nil || errors.Is(err, spool.ErrHeld):
			return true, nil
		case errors.As(err, &u):
			return false, nil
		case !errors.Is(err, spool.ErrFull):
			return false, err
		}
		// The spool is full: the collector waits with its frames, and DCGM keeps the faults.
		if !r.blocked.Swap(true) {
			r.log.Error("the spool takes no more faults, on disk or in memory: the collector waits; free space on its disk",
				"dir", r.cfg.Spool.Dir)
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			r.mu.Lock()
			return false, ctx.Err()
		case <-time.After(time.Second):
		}
		r.mu.Lock()
		_ = r.queue(domain.TopicHardware).Sync()
		if r.queue(domain.TopicHardware).Stats().Held == 0 {
			r.blocked.Store(false)
		}
	}
}

// remember saves the memory. It does nothing while the spool holds faults in memory, because the
// file must not know of a fault that is not on disk.
func (r *reporter) remember() {
	q := r.queue(domain.TopicHardware)
	r.saved = time.Now()
	place, held := q.Last()
	if held > 0 {
		return
	}
	r.memory.Cursor = r.cursor.Load()
	err := r.memory.save(now(), place.Incarnation, place.Sequence)
	switch {
	case err == nil:
		q.Release(r.memory.Incarnation, r.memory.Sequence)
		if r.unsaved {
			r.log.Info("reported faults are remembered again", "file", r.memory.path)
		}
	case !r.unsaved:
		r.log.Error("the memory of reported faults cannot be written; the spool's faults are kept until it can",
			"file", r.memory.path, "error", err)
	}
	r.unsaved = err != nil
}
