package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sys/unix"

	"quartermaster/adapters/durable"
)

// advertised is the address in metadata. The name is reserved (RFC 2606), so that a client without
// [Broker.Dial] fails instead of reaching another broker.
const (
	advertised     = advertisedHost + ":9092"
	advertisedHost = "embedded.invalid"
	advertisedPort = 9092
)

// owner is the broker itself and the guard in front of it.
type owner struct {
	dir     *directory
	guard   *guard
	cluster *kfake.Cluster
}

// own opens the log. The directory d holds its lock. The function end is called with the reason when
// the broker stops.
func own(ctx context.Context, cfg Config, d *directory, end func(error)) (_ *owner, r Report, err error) {
	// Listen first, so that another process that finds the lock taken waits in the backlog until the
	// log has been checked.
	l, err := d.listen()
	if err != nil {
		return nil, r, err
	}
	defer func() {
		if err != nil {
			l.Close()
			d.removeSocket()
		}
	}()
	logPath := filepath.Join(d.path, logDir)
	if err := os.MkdirAll(filepath.Join(logPath, "partitions"), 0o700); err != nil {
		return nil, r, fmt.Errorf("create log: %w", err)
	}
	stopped := filepath.Join(d.path, stoppedFile)
	_, statErr := os.Stat(stopped)
	began := time.Now()
	r, err = scan(ctx, logPath, statErr == nil)
	if err != nil {
		return nil, r, err
	}
	r.Scan = time.Since(began)
	for _, t := range r.Trimmed {
		cfg.Log.Warn("torn tail trimmed", "what", t.String())
	}
	for _, f := range r.Rebuilt {
		cfg.Log.Info("index rebuilt", "file", f)
	}
	if err := os.Remove(stopped); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, r, fmt.Errorf("open log: %w", err)
	}
	if err := durable.SyncDirectory(d.path); err != nil {
		return nil, r, fmt.Errorf("open log: %w", err)
	}
	raiseFileLimit(r.Segments, cfg.Log)
	id, err := d.identity()
	if err != nil {
		return nil, r, fmt.Errorf("open log: %w", err)
	}

	g := newGuard(l, cfg, newDisk(logPath, cfg.MinFree), end)
	w := &watcher{guard: g, log: cfg.Log}
	began = time.Now()
	// The broker reads whole segments of all partitions concurrently. Frequent garbage collection
	// limits the memory that this takes.
	percent := debug.SetGCPercent(20)
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ClusterID(id),
		kfake.DataDir(logPath),
		kfake.SyncWrites(),
		kfake.WithLogger(w),
		kfake.MaxVersions(admitted()),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return g, nil }),
		kfake.BrokerConfigs(map[string]string{
			"log.cleanup.policy":  "delete",
			"log.retention.ms":    "-1",
			"log.retention.bytes": "-1",
			"log.segment.bytes":   strconv.FormatInt(cfg.SegmentBytes, 10),
			// A hundred years, so that an absent consumer keeps its offsets.
			"offsets.retention.minutes": "52560000",
		}),
	)
	debug.SetGCPercent(percent)
	if err != nil {
		return nil, r, fmt.Errorf("start log: %w", err)
	}
	if err = errors.Join(w.loaded(), syncTree(logPath)); err != nil {
		g.shut()
		cluster.Close()
		return nil, r, fmt.Errorf("start log: %w", err)
	}
	r.Start = time.Since(began)
	return &owner{dir: d, guard: g, cluster: cluster}, r, nil
}

// stop stops the broker. Without an error it leaves the mark of a clean stop.
func (o *owner) stop(clean bool) error {
	o.guard.shut()
	o.cluster.Close()
	err := o.guard.broken()
	if err == nil && clean {
		err = syncTree(filepath.Join(o.dir.path, logDir))
		if err == nil {
			err = replaceFile(filepath.Join(o.dir.path, stoppedFile), nil)
		}
	}
	o.guard.disk.close()
	o.dir.removeSocket()
	return errors.Join(err, durable.SyncDirectory(o.dir.path))
}

// allowedConfig reports whether a topic may have a setting. It refuses settings that could delete
// events.
func allowedConfig(name, value string) bool {
	switch name {
	case "cleanup.policy":
		return value == "delete"
	case "retention.ms", "retention.bytes":
		return value == "-1"
	case "segment.bytes":
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n >= 1<<10 && n <= 1<<30
	case "message.timestamp.type":
		return value == "CreateTime"
	}
	return true
}

// watcher is the logger of the broker. The broker continues after failed writes and reports them
// only here, on the goroutine that then sends the answer. So any message about persistence stops
// the guard before that.
type watcher struct {
	guard *guard
	log   *slog.Logger
	first atomic.Pointer[string]
}

// diskTrouble are the prefixes of the broker's messages about its files.
var diskTrouble = []string{
	"persist", "compact", "rebuildSegments", "partition ", "groups.log", "pids.log",
	"save session state", "load session state", "delete topic", "endTx: failed",
}

func (w *watcher) Logf(level kfake.LogLevel, format string, args ...any) {
	if level > kfake.LogLevelWarn {
		return
	}
	text := fmt.Sprintf(format, args...)
	for _, start := range diskTrouble {
		if strings.HasPrefix(format, start) {
			w.first.CompareAndSwap(nil, &text)
			w.guard.fail(fmt.Errorf("log stopped, nothing more is acknowledged: %s", text))
			return
		}
	}
	w.log.Warn("broker", "message", text)
}

// loaded returns the first complaint of the broker while it read the log. The scan should have
// refused or repaired its cause.
func (w *watcher) loaded() error {
	if text := w.first.Load(); text != nil {
		return fmt.Errorf("the broker does not accept the log: %s", *text)
	}
	return nil
}

// raiseFileLimit raises the limit of file descriptors to the maximum, because the broker keeps every
// sealed segment open that it has read.
func raiseFileLimit(segments int, log *slog.Logger) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return
	}
	if lim.Cur < lim.Max {
		up := unix.Rlimit{Cur: lim.Max, Max: lim.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &up) == nil {
			lim = up
		}
	}
	if need := uint64(segments) + 1024; uint64(lim.Cur) < need { //nolint:unconvert // signed on other systems
		log.Warn("few file descriptors: raise the limit before the log grows", "limit", lim.Cur, "segments", segments)
	}
}
