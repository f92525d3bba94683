package main

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lib/pq"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
	"quartermaster/domain"
	"quartermaster/projections"
)

// A rival is one of the processes of the campaign: "serve" as it is, but that
// what connects it to Postgres is tapped, so that it can end, freeze or lose its
// connection at a chosen place, on its own order. The test binary runs itself
// again under this name.
const rivalName = "crash-rival"

func init() {
	if filepath.Base(os.Args[0]) == rivalName {
		runRival()
	}
}

// rivalOrder says what a rival is to do; it stands in the environment, as JSON.
type rivalOrder struct {
	Config   string        // the configuration, as for serve
	Instance string        // its name
	Lease    time.Duration // as in the configuration
	Seed     uint64
	Control  string // "" or one of the defects that the campaign must find
	Calm     bool   // nothing befalls it by its own hand
	Unfrozen bool   // it does not freeze itself
	Ports    [2]int // of Postgres and Kafka, to cut on SIGUSR1 and SIGUSR2
}

const rivalVariable = "QM_CRASH_RIVAL"

// rivalEvent is what a rival tells the campaign, a line of JSON each.
type rivalEvent struct {
	Event     string // hears, kill, freeze, thawed, cut, fenced, stall
	Place     string
	Partition string `json:",omitempty"`
	Epoch     int64  `json:",omitempty"`
	Next      int64  `json:",omitempty"`
}

// The places where something may befall a rival, in the order of a fold's
// transaction, with how often each is chosen. The first statement of the
// transaction is the compare-and-set of the position.
var places = []struct {
	name  string
	share int
}{
	{"claim", 4}, {"load", 5}, {"before compare-and-set", 8}, {"after compare-and-set", 8}, {"between rows", 12},
	{"before commit", 10}, {"commit sent", 12}, {"after commit", 8},
}

// The defects of the negative controls.
const (
	controlFencing  = "fencing off"
	controlPosition = "position outside the transaction"
	controlRepeats  = "repeats not dropped"
	controlClock    = "sessions ahead of the clock alive"
)

type rival struct {
	order rivalOrder
	tell  *os.File
	inner driver.Connector

	mu      sync.Mutex
	rng     *rand.Rand
	place   string // where the next thing happens
	act     string // kill, freeze, cut or stall
	skip    int    // how many times the place is passed before
	patient int    // transactions until another place is chosen, since some are rare

	stalled atomic.Bool
}

func runRival() {
	r := &rival{tell: os.NewFile(3, "events")}
	fail := func(err error) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", rivalName, err)
		os.Exit(1)
	}
	if err := json.Unmarshal([]byte(os.Getenv(rivalVariable)), &r.order); err != nil {
		fail(err)
	}
	r.rng = rand.New(rand.NewPCG(r.order.Seed, 1))
	r.choose()
	cfg, err := config.Load(r.order.Config, func(string) string { return "" })
	if err != nil {
		fail(err)
	}
	cfg.Instance, cfg.WrapDatabase, cfg.Patient = r.order.Instance, r.wrap, r.order.Seed%2 == 0
	if r.order.Control == controlRepeats {
		cfg.Decoder = func() projections.Decoder { return &forgetful{} }
	}
	cuts := make(chan os.Signal, 8)
	signal.Notify(cuts, syscall.SIGUSR1, syscall.SIGUSR2)
	r.say(rivalEvent{Event: "hears"})
	go func() {
		for s := range cuts {
			port := r.order.Ports[0]
			if s == syscall.SIGUSR2 {
				port = r.order.Ports[1]
			}
			cutConnections(port)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := daemon.New(&app.App{Config: cfg, ConfigPath: r.order.Config}, os.Stderr, false)
	if err := d.ServeProduction(ctx, "127.0.0.1:0"); err != nil {
		fail(err)
	}
	os.Exit(0)
}

// cutConnections ends every connection of this process to a port of this
// machine, as a network that drops them would: what is on its way may or may not
// arrive.
func cutConnections(port int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		peer, err := syscall.Getpeername(fd)
		if at, ok := peer.(*syscall.SockaddrInet4); err == nil && ok && at.Port == port {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // it may be gone already
		}
	}
}

// forgetful is the defect of [controlRepeats]: each record gets a sequence of its
// own, so that none is ever a repeat.
type forgetful struct{ wire.Decoder }

func (f *forgetful) Decode(rec *domain.Record, env *domain.Envelope) error {
	err := f.Decoder.Decode(rec, env)
	env.Sequence = uint64(rec.Offset) + 1
	return err
}

// choose draws what befalls the rival next.
func (r *rival) choose() {
	if r.order.Calm {
		return
	}
	total := 0
	for _, p := range places {
		total += p.share
	}
	n := r.rng.IntN(total)
	for _, p := range places {
		if n -= p.share; n < 0 {
			r.place = p.name
			break
		}
	}
	switch d := r.rng.IntN(10); {
	case d < 6:
		r.act = "kill"
	case d < 8:
		r.act = "freeze"
	default:
		r.act = "cut"
	}
	if r.place == "before compare-and-set" && r.act != "freeze" && r.rng.IntN(2) == 0 {
		r.act = "freeze" // what wakes up here has everything ready, and must be refused
	}
	if r.act == "freeze" && r.order.Unfrozen {
		r.act = "kill"
	}
	r.skip, r.patient = r.rng.IntN(4), 40
	switch r.order.Control {
	case controlFencing:
		r.place, r.act, r.skip = "before compare-and-set", "stall", 2+r.rng.IntN(5)
	case controlPosition:
		r.place, r.act = "before commit", "kill"
	case controlRepeats:
		r.place = ""
	}
}

func (r *rival) say(e rivalEvent) {
	b, _ := json.Marshal(e) // plain fields
	_, _ = r.tell.Write(append(b, '\n'))
}

// at is called at each place, and does what was chosen for it.
func (r *rival) at(place string, c *tapped) (acted string) {
	r.mu.Lock()
	if place == "after commit" {
		if r.patient--; r.patient < 0 {
			r.choose()
		}
	}
	pause := time.Duration(0)
	if !r.order.Calm && r.rng.IntN(25) == 0 {
		// So that what the campaign does at random times finds transactions open.
		pause = time.Duration(r.rng.IntN(80)) * time.Millisecond
	}
	now := place == r.place
	if now && r.skip > 0 {
		r.skip, now = r.skip-1, false
	}
	act := r.act
	if now {
		r.choose()
	}
	r.mu.Unlock()
	if !now {
		rest(context.Background(), pause)
		return ""
	}
	r.do(act, place, c)
	return act
}

// do does it.
func (r *rival) do(act, place string, c *tapped) {
	e := rivalEvent{Event: act, Place: place}
	if c.fold != nil {
		e.Partition, e.Epoch, e.Next = c.fold.partition, c.fold.epoch, c.fold.from
	}
	switch act {
	case "kill":
		r.say(e)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "freeze":
		r.say(e)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		rest(context.Background(), 5*time.Millisecond) // the stop may reach another thread first
		e.Event = "thawed"
		r.say(e)
	case "cut":
		r.say(e)
		c.wire.Close()
	case "stall":
		r.say(e)
		r.stall(c)
	}
}

// stall is half of the defect of [controlFencing]: the rival is taken for dead,
// but never hears of it, and goes on when others have taken over.
func (r *rival) stall(c *tapped) {
	r.stalled.Store(true)
	ctx := context.Background()
	own, err := r.inner.Connect(ctx)
	if err != nil {
		return
	}
	_, _ = own.(driver.ExecerContext).ExecContext(ctx, `
		update quartermaster.sessions set alive_until = now() - interval '1 second' where instance = $1`, arguments(r.order.Instance))
	_ = own.Close()
	rest(context.Background(), 3*r.order.Lease)
	c.fold.stalled = true
	go func() {
		rest(context.Background(), r.order.Lease)
		r.stalled.Store(false)
	}()
}

func arguments(values ...driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(values))
	for i, v := range values {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}

// ---- The tap

// pqConn is what a connection of lib/pq can do.
type pqConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type wireKey struct{}

// wireTap is the connection below one of lib/pq, to do something between a
// request and its answer.
type wireTap struct {
	net.Conn
	sent func() // called once before the next answer is read
}

func (w *wireTap) Read(b []byte) (int, error) {
	if f := w.sent; f != nil {
		w.sent = nil
		f()
	}
	return w.Conn.Read(b)
}

type wireDialer struct{ net.Dialer }

func (*wireDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout(network, address, timeout)
}

func (d *wireDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if w, ok := ctx.Value(wireKey{}).(*wireTap); ok && err == nil {
		w.Conn = c
		return w, nil
	}
	return c, err
}

// tap is a connector whose connections are tapped.
type tap struct {
	driver.Connector
	r *rival
}

func (r *rival) wrap(inner driver.Connector) driver.Connector {
	inner.(*pq.Connector).Dialer(&wireDialer{})
	r.inner = inner
	return tap{inner, r}
}

func (t tap) Connect(ctx context.Context) (driver.Conn, error) {
	w := &wireTap{}
	c, err := t.Connector.Connect(context.WithValue(ctx, wireKey{}, w))
	if err != nil {
		return nil, err
	}
	return &tapped{pqConn: c.(pqConn), wire: w, r: t.r}, nil
}

type tapped struct {
	pqConn
	wire *wireTap
	r    *rival
	fold *foldTx // the transaction that is open, nil when it is not a fold's
}

type foldTx struct {
	partition       string
	from, to, epoch int64
	stalled         bool
}

func (c *tapped) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.fold = nil
	tx, err := c.pqConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &tappedTx{tx, c}, nil
}

type tappedTx struct {
	driver.Tx
	c *tapped
}

func (t *tappedTx) Commit() error {
	c := t.c
	if c.fold == nil {
		return t.Tx.Commit()
	}
	c.r.at("before commit", c)
	c.wire.sent = func() { c.r.at("commit sent", c) }
	err := t.Tx.Commit()
	c.wire.sent = nil
	if c.fold.stalled {
		// Whoever goes on would fold again what was folded meanwhile, and mend it.
		c.r.do("kill", "after commit", c)
	}
	c.r.at("after commit", c)
	c.fold = nil
	return err
}

func (t *tappedTx) Rollback() error {
	t.c.fold = nil
	return t.Tx.Rollback()
}

func (c *tapped) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.r.order.Control == controlClock {
		query = withoutAhead(query)
	}
	switch {
	case strings.Contains(query, "set next_offset = "):
		return c.compareAndSet(ctx, query, args)
	case c.r.order.Control == controlFencing && strings.Contains(query, "set alive_until"):
		if _, err := c.pqConn.ExecContext(ctx, query, args); err != nil {
			return nil, err
		}
		return driver.RowsAffected(1), nil // whatever the database says
	}
	res, err := c.pqConn.ExecContext(ctx, query, args)
	if c.fold != nil {
		c.r.at("between rows", c)
	}
	return res, err
}

// traceSQL stands before the compare-and-set, so that what is committed says
// itself who did it, under which claim. Whoever is fenced leaves no trace. The
// rival's name follows the ten values of the compare-and-set.
const traceSQL = `with trace as (insert into crash.trace (generation, topic, partition, from_offset, epoch, to_offset, rival) values ($1, $2, $3, $4, $5, $6, $11)) `

// fencedSQL is the compare-and-set's condition, which [controlFencing] leaves out.
const fencedSQL = "and next_offset = $4 and epoch = $5"

func (c *tapped) compareAndSet(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	number := func(i int) int64 { n, _ := strconv.ParseInt(fmt.Sprint(args[i].Value), 10, 64); return n }
	c.fold = &foldTx{partition: fmt.Sprintf("%v/%v", args[1].Value, args[2].Value), from: number(3), epoch: number(4), to: number(5)}
	if c.r.at("before compare-and-set", c) == "freeze" {
		// Everything in the process tells it to stop by now. The database must, too.
		ctx = context.WithoutCancel(ctx)
	}
	args = append(args[:len(args):len(args)], driver.NamedValue{Ordinal: len(args) + 1, Value: c.r.order.Instance})
	if c.r.order.Control == controlFencing {
		if !strings.Contains(query, fencedSQL) {
			return nil, fmt.Errorf("the compare-and-set has another form: %s", query)
		}
		query = strings.Replace(query, fencedSQL, "", 1)
	}
	var on driver.ExecerContext = c.pqConn
	if c.r.order.Control == controlPosition {
		own, err := c.r.inner.Connect(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = own.Close() }()
		on = own.(driver.ExecerContext)
	}
	res, err := on.ExecContext(ctx, traceSQL+query, args)
	if err != nil {
		return nil, err
	}
	if n, err := res.RowsAffected(); err == nil && n == 0 {
		c.r.say(rivalEvent{Event: "fenced", Partition: c.fold.partition, Epoch: c.fold.epoch, Next: c.fold.from})
	}
	c.r.at("after compare-and-set", c)
	return res, err
}

func (c *tapped) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.r.order.Control == controlClock {
		query = withoutAhead(query)
	}
	switch {
	case strings.Contains(query, "epoch = greatest(epoch, "):
		defer c.r.at("claim", c)
	case strings.Contains(query, "with ordinality k("):
		c.r.at("load", c)
	case strings.Contains(query, "with alive as"):
		for c.r.stalled.Load() {
			rest(context.Background(), 10*time.Millisecond)
		}
	}
	return c.pqConn.QueryContext(ctx, query, args)
}
