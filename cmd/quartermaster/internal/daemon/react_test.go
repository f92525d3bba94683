package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// brokered opens a log on a broker in memory that knows consumer groups.
func brokered(t *testing.T) func() *kafka.Log {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	open := func() *kafka.Log {
		l, err := kafka.Open(t.Context(), kafka.Config{Brokers: c.ListenAddrs(), Patience: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	if err := open().EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	return open
}

// started is a reactor that runs.
type started struct {
	metrics *workMetrics
	logged  *apptest.SyncBuffer
	stop    func()
}

// fast is the retries of a test: three, at once.
var fast = middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, Multiplier: 1, MaxInterval: time.Millisecond}

// startReactions returns once the reactions have been started. stop, which may be
// called twice, returns once they have ended.
func startReactions(t *testing.T, log *kafka.Log, retries middleware.Retry, list ...reaction) *started {
	t.Helper()
	s := &started{metrics: newWorkMetrics(), logged: &apptest.SyncBuffer{}}
	ready := make(chan struct{})
	rt := &reactor{log: log, retries: retries, nackDelay: time.Millisecond, metrics: s.metrics, slog: slog.New(slog.NewTextHandler(s.logged, nil)), ready: ready}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := rt.run(ctx, list); err != nil {
			t.Errorf("reactions: %v", err)
		}
	}()
	s.stop = func() { cancel(); <-ended }
	t.Cleanup(s.stop)
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the reactions ended at once")
	}
	return s
}

// cordoned is a failed node; subject tells it from others.
func cordoned(cluster, subject string) domain.Envelope {
	return domain.Envelope{Time: apptest.May, Cluster: cluster, Subject: subject, Event: &domain.NodeCordoned{Node: subject, Repair: true}}
}

// told is what a receiver got of an event.
type told struct {
	Subject, Cluster, Sequence, Type, ID, Source string
	header                                       http.Header
	body                                         []byte
}

// receiver answers every event with what answer says, and hands it on.
func receiver(t *testing.T, answer func(told) int) (url string, got <-chan told) {
	t.Helper()
	ch := make(chan told, 10_000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e told
		e.body, _ = io.ReadAll(r.Body)
		e.header = r.Header
		if err := json.Unmarshal(e.body, &e); err != nil {
			t.Errorf("a body that is no event: %v", err)
		}
		status := answer(e)
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		ch <- e
	}))
	t.Cleanup(srv.Close)
	return srv.URL, ch
}

func hook(t *testing.T, c config.Webhook) *webhook {
	t.Helper()
	hooks, err := newWebhooks([]config.Webhook{c})
	if err != nil {
		t.Fatal(err)
	}
	return hooks[0]
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two instances share a webhook, one of them comes later and the other goes: every
// event is told at least once and, of each cluster, in order.
func TestWebhookIsSharedInOrder(t *testing.T) {
	open := brokered(t)
	const clusters = 6
	seen := map[string]int{}
	var mu sync.Mutex
	calls := 0
	url, got := receiver(t, func(told) int {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%7 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	w := hook(t, config.Webhook{Name: "shared", URL: url, Types: []string{"NodeCordoned"}, SecretFile: secretFile(t, "s3cret")})
	said := 0 // events of each cluster
	say := func(log *kafka.Log, n int) {
		for range n {
			for c := range clusters {
				apptest.AppendEvents(t, log, cordoned(fmt.Sprint("c", c), strconv.Itoa(said)))
			}
			said++
		}
	}
	wait := func(n int) {
		t.Helper()
		for done := 0; done < clusters; {
			e := <-got
			i, err := strconv.Atoi(e.Subject)
			if err != nil {
				t.Fatal(err)
			}
			if i > seen[e.Cluster] {
				t.Fatalf("cluster %s: event %d came before event %d", e.Cluster, i, seen[e.Cluster])
			}
			if i == seen[e.Cluster] {
				seen[e.Cluster]++
			}
			done = 0
			for c := range clusters {
				if seen[fmt.Sprint("c", c)] >= n {
					done++
				}
			}
			mac := hmac.New(sha256.New, []byte("s3cret"))
			mac.Write(e.body)
			key := sha256.Sum256([]byte(e.Source + "\n" + e.ID))
			for name, want := range map[string]string{
				"Content-Type":            "application/cloudevents+json",
				"Quartermaster-Signature": "sha256=" + hex.EncodeToString(mac.Sum(nil)),
				"Idempotency-Key":         hex.EncodeToString(key[:]),
			} {
				if have := e.header.Get(name); have != want {
					t.Fatalf("%s is %q, want %q", name, have, want)
				}
			}
		}
	}
	log := open()
	first := startReactions(t, log, fast, w.reaction(nil))
	say(log, 10)
	wait(5) // the first is in the middle of it
	second := startReactions(t, open(), fast, w.reaction(nil))
	// Until partitions were handed over.
	for handled(second, "webhook.shared", "handled") == 0 {
		say(log, 1)
		wait(said)
	}
	say(log, 10)
	first.stop()
	say(log, 10)
	wait(said)
}

func handled(s *started, reaction, outcome string) int {
	return int(testutil.ToFloat64(s.metrics.reactions.WithLabelValues(reaction, outcome)))
}

// What became of an event that was not handled at once: tried again, or set aside
// with its reason, and the next of its partition is handled.
func TestDeadLetterTopic(t *testing.T) {
	log := brokered(t)()
	var mu sync.Mutex
	tries := map[string]int{}
	url, got := receiver(t, func(e told) int {
		mu.Lock()
		defer mu.Unlock()
		tries[e.Subject]++
		switch {
		case e.Subject == "hiccup" && tries[e.Subject] < 3:
			return http.StatusBadGateway
		case e.Subject == "down":
			return http.StatusInternalServerError
		case e.Subject == "unwanted":
			return http.StatusUnprocessableEntity
		case e.Subject == "moved":
			return http.StatusMovedPermanently
		}
		return http.StatusOK
	})
	panics := reaction{name: "panics", group: "panics", types: []domain.Type{domain.TypeNodeCordoned}, do: func(_ context.Context, _ *domain.Record, env *domain.Envelope) error {
		if env.Subject == "hiccup" {
			panic("out of order")
		}
		return nil
	}}
	alerts := &apptest.SyncBuffer{}
	w := hook(t, config.Webhook{Name: "w", URL: url, Types: []string{"NodeCordoned", "GPUFaultObserved", "CommitmentEnded"}})
	s := startReactions(t, log, fast, w.reaction(nil), panics, alertReaction(slog.New(slog.NewTextHandler(alerts, nil))))

	const cluster = "lab"
	given := func() (out []string) {
		t.Helper()
		list, err := app.DeadLettersOf(t.Context(), log, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out = append(out, fmt.Sprintf("%s %s/%d@%d %s %s: %s", e.Reaction, e.Topic, e.Partition, e.Offset, e.Type, e.Subject, e.Reason))
		}
		return out
	}
	counter := func(name, outcome string) int { return handled(s, name, outcome) }

	// A group has a member for each topic, and an event in progress when the second one joins is
	// delivered again. So the counts start once every member has handled an event.
	apptest.AppendEvents(t, log, domain.Envelope{Time: apptest.May, Workspace: app.Platform, Subject: "early", Event: &domain.CommitmentEnded{Commitment: "early", At: apptest.May}})
	until(t, func() bool { return counter("webhook.w", "poisoned") > 0 && counter("alerts", "poisoned") > 0 })
	apptest.AppendEvents(t, log, cordoned(elsewhere(domain.TopicHardware, cluster), "early"))
	until(t, func() bool {
		return counter("webhook.w", "handled") > 0 && counter("alerts", "handled") > 0 && counter("panics", "handled") > 0
	})
	early := given()
	was := map[string]int{}
	for _, outcome := range []string{"handled", "retried", "poisoned"} {
		was[outcome] = counter("webhook.w", outcome)
	}
	wasAlerts, wasPanics := counter("alerts", "handled"), counter("panics", "handled")

	tp := domain.TopicPartition{Topic: domain.TopicHardware, Partition: domain.PartitionOf([]byte(cluster), domain.TopicHardware.Partitions())}
	broken, err := wire.Encode(&domain.Envelope{Source: "x", Incarnation: 1, Sequence: 1, Time: apptest.May, Cluster: cluster, Event: &domain.NodeCordoned{Node: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	broken.Value = []byte{0xff, 0xff}
	unknown := domain.Record{Topic: tp.Topic, Partition: tp.Partition, Key: []byte(cluster), Headers: []domain.Header{{Key: "ce_type", Value: []byte("quartermaster.NodePainted.v1")}}}
	if err := log.Append(t.Context(), []domain.Record{broken, unknown}); err != nil {
		t.Fatal(err)
	}
	apptest.AppendEvents(t, log, cordoned(cluster, "hiccup"), cordoned(cluster, "down"), cordoned(cluster, "unwanted"), cordoned(cluster, "moved"),
		domain.Envelope{Time: apptest.May, Cluster: cluster, Subject: "fault", Event: &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultXID, Code: 79, Count: 1}})
	unsigned := domain.Envelope{Time: apptest.May, Workspace: app.Platform, Subject: "c-1", Event: &domain.CommitmentEnded{Commitment: "c-1", At: apptest.May}}
	apptest.AppendEvents(t, log, unsigned, domain.Envelope{Time: apptest.May, Cluster: cluster, Subject: "last", Event: &domain.NodeCordoned{Node: "last", Repair: true}})

	for e := range got {
		if e.Subject == "last" {
			break
		}
	}
	until(t, func() bool {
		return len(given()) >= len(early)+9 && counter("webhook.w", "handled") >= was["handled"]+3 &&
			counter("alerts", "handled") >= wasAlerts+6 && counter("panics", "handled") >= wasPanics+4
	})
	at := func(offset int) string { return fmt.Sprintf("%s@%d", tp, offset) }
	have := given()[len(early):]
	for _, want := range []string{
		"webhook.w " + at(0) + " NodeCordoned : decode NodeCordoned: ",
		"panics " + at(0) + " NodeCordoned : decode NodeCordoned: ",
		"alerts " + at(0) + " NodeCordoned : decode NodeCordoned: ",
		"panics " + at(2) + " NodeCordoned hiccup: panic occurred: ",
		"webhook.w " + at(3) + " NodeCordoned down: webhook w answered 500 Internal Server Error",
		"webhook.w " + at(4) + " NodeCordoned unwanted: webhook w answered 422 ",
		"webhook.w " + at(5) + " NodeCordoned moved: webhook w answered 301 ",
		"webhook.w qm.procurement/0@1 CommitmentEnded c-1: CommitmentEnded: signature does not verify",
		"alerts qm.procurement/0@1 CommitmentEnded c-1: CommitmentEnded: signature does not verify",
	} {
		if !slices.ContainsFunc(have, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no dead letter says %q", want)
		}
	}
	if newest, err := app.DeadLettersOf(t.Context(), log, 2); err != nil || len(newest) != 2 {
		t.Errorf("%d of the newest, want 2: %v", len(newest), err)
	}
	if len(have) != 9 {
		t.Errorf("%d dead letters, want 9:\n%s", len(have), strings.Join(have, "\n"))
	}
	mu.Lock()
	defer mu.Unlock()
	for subject, want := range map[string]int{"hiccup": 3, "down": 4, "unwanted": 1, "moved": 1, "fault": 1, "last": 1} {
		if tries[subject] != want {
			t.Errorf("%s was told %d times, want %d", subject, tries[subject], want)
		}
	}
	for outcome, want := range map[string]int{"handled": 3, "retried": 2 + 4, "poisoned": 5} {
		if n := counter("webhook.w", outcome) - was[outcome]; n != want {
			t.Errorf("the webhook counts %d %s, want %d", n, outcome, want)
		}
	}
	if n := strings.Count(alerts.String(), "alert=NodeCordoned") - wasAlerts; n != 5 {
		t.Errorf("%d alerts of nodes, want 5:\n%s", n, alerts)
	}
	if strings.Contains(alerts.String(), "alert=GPUFaultObserved") {
		t.Error("a fault that is not fatal is an alert")
	}
	if strings.Contains(s.logged.String()+strings.Join(have, ""), url) {
		t.Error("the address, which may be a secret, is shown")
	}
}

// elsewhere returns a key in another partition of a topic than that of a key. The topic
// must have several partitions.
func elsewhere(topic domain.Topic, key string) string {
	n := topic.Partitions()
	for i := 0; ; i++ {
		if other := fmt.Sprint("other-", i); domain.PartitionOf([]byte(other), n) != domain.PartitionOf([]byte(key), n) {
			return other
		}
	}
}

// until waits for something that other goroutines bring about.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal("it did not come about")
		case <-tick.C:
		}
	}
}

// A webhook begins with what comes after its first start, and goes on where it
// was: also in a partition where nothing had come, and with an event that a stop
// interrupted between two tries.
func TestWebhookGoesOn(t *testing.T) {
	log := brokered(t)()
	// Two clusters of two partitions.
	busy := "c0"
	quiet := elsewhere(domain.TopicHardware, busy)
	apptest.AppendEvents(t, log, cordoned(busy, "history"), cordoned(quiet, "history"))
	var mu sync.Mutex
	down := false
	url, got := receiver(t, func(e told) int {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return http.StatusBadGateway
		}
		return http.StatusOK
	})
	w := hook(t, config.Webhook{Name: "w", URL: url, Types: []string{"NodeCordoned"}})
	next := func(want ...string) {
		t.Helper()
		var have []string
		for range want {
			have = append(have, (<-got).Subject)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Fatalf("told of %v, want %v", have, want)
		}
	}
	patient := middleware.Retry{MaxRetries: 10, InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 1}
	first := startReactions(t, log, patient, w.reaction(nil))
	apptest.AppendEvents(t, log, cordoned(busy, "1"))
	next("1")
	mu.Lock()
	down = true
	mu.Unlock()
	apptest.AppendEvents(t, log, cordoned(busy, "2"))
	next("2")
	first.stop() // within the hour until the next try
	mu.Lock()
	down = false
	mu.Unlock()
	apptest.AppendEvents(t, log, cordoned(busy, "3"), cordoned(quiet, "3 quiet"))
	second := startReactions(t, log, patient, w.reaction(nil))
	next("2", "3", "3 quiet")
	second.stop()
	if _, end, err := log.Bounds(t.Context(), domain.TopicPartition{Topic: app.TopicDeadLetters}); err != nil || end != 0 {
		t.Errorf("%d dead letters: %v", end, err)
	}
}

// A record that leaves no room for the reason goes without its value.
func TestDeadLetterOfTheLargestRecord(t *testing.T) {
	log := brokered(t)()
	s := startReactions(t, log, fast, reaction{name: "no", group: "no", types: []domain.Type{domain.TypeNodeCordoned}, do: nil})
	tp := domain.TopicPartition{Topic: domain.TopicHardware, Partition: domain.PartitionOf([]byte("k"), domain.TopicHardware.Partitions())}
	header := domain.Header{Key: "ce_type", Value: []byte("quartermaster.NodeCordoned.v1")}
	size := kafka.MaxRecordBytes - len("k") - len(header.Key) - len(header.Value)
	if err := log.Append(t.Context(), []domain.Record{{Topic: tp.Topic, Partition: tp.Partition, Key: []byte("k"), Value: make([]byte, size), Headers: []domain.Header{header}}}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return handled(s, "no", "poisoned") == 1 })
	if err := log.Read(t.Context(), domain.TopicPartition{Topic: app.TopicDeadLetters}, 0, 1, func(recs []domain.Record) error {
		r := &recs[0]
		if len(r.Value) != 0 || string(r.Header(app.DeadLetterExcluded)) != "too large" || string(r.Header(app.DeadLetterTopic)) != string(tp.Topic) || string(r.Header(app.DeadLetterOffset)) != "0" {
			t.Errorf("the dead letter has %d bytes and headers %v", len(r.Value), r.Headers)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The time within which an event is tried again begins when it may be handled at
// all, and whatever comes later is still tried again.
func TestWaitingIsNoTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &reactor{metrics: newWorkMetrics(), slog: slog.New(slog.DiscardHandler)}
		start, tries := time.Now(), 0
		do := func(*message.Message) ([]*message.Message, error) {
			if wait := 50*time.Minute - time.Since(start); wait > 0 {
				return nil, notYet(wait)
			}
			if tries++; tries < 4 {
				return nil, errors.New("the database was restarting")
			}
			return nil, nil
		}
		h := patient(retries.Middleware(rt.attempt(&reaction{name: "r"})(do)))
		if _, err := h(message.NewMessage("1", nil)); err != nil || tries != 4 {
			t.Errorf("after %d tries: %v, want 4 and none", tries, err)
		}
		if n := testutil.ToFloat64(rt.metrics.reactions.WithLabelValues("r", "retried")); n != 3 {
			t.Errorf("%v count as tried again, want 3", n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		start = time.Now()
		time.AfterFunc(time.Minute, func() { cancel(errInterrupted) })
		m := message.NewMessage("2", nil)
		m.SetContext(ctx)
		if _, err := h(m); !errors.Is(err, errInterrupted) || time.Since(start) != time.Minute {
			t.Errorf("interrupted: %v after %s", err, time.Since(start))
		}
	})
}

// What somebody else wrote into the dead-letter topic hides nothing, a reason ends with
// a whole character, looking makes no topic, and one that is not as it should be
// stops nothing.
func TestDeadLetterTopicOfOthers(t *testing.T) {
	log := brokered(t)()
	if list, err := app.DeadLettersOf(t.Context(), log, 10); err != nil || len(list) != 0 {
		t.Fatalf("%v: %v", list, err)
	}
	if missing, err := log.MissingTopics(t.Context(), app.DeadLetterTopics); err != nil || len(missing) != 1 {
		t.Fatalf("looking made the topic: %v", err)
	}
	if err := log.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: app.TopicDeadLetters, Partitions: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := log.Append(t.Context(), []domain.Record{{Topic: app.TopicDeadLetters, Value: []byte("lunch?")}}); err != nil {
		t.Fatal(err)
	}
	s := startReactions(t, log, fast, reaction{name: "no", group: "no", types: []domain.Type{domain.TypeNodeCordoned}, do: func(context.Context, *domain.Record, *domain.Envelope) error {
		return backoff.Permanent(errors.New("x" + strings.Repeat("é", maxReason)))
	}})
	if n := testutil.ToFloat64(s.metrics.deadLettersWrong); n != 1 {
		t.Error("a poison topic of two partitions is not noticed")
	}
	cluster := "lab"
	for domain.PartitionOf([]byte(cluster), 2) != 0 {
		cluster += "s"
	}
	apptest.AppendEvents(t, log, cordoned(cluster, "n"))
	until(t, func() bool { return handled(s, "no", "poisoned") == 1 })
	list, err := app.DeadLettersOf(t.Context(), log, 10)
	if err != nil || len(list) == 0 || list[0].Reaction != "" || list[0].Topic != app.TopicDeadLetters || !strings.HasPrefix(list[0].Reason, "no reaction wrote") {
		t.Fatalf("%+v: %v", list, err)
	}
	last := list[len(list)-1].Reason
	if len(list) != 2 || !utf8.ValidString(last) || !strings.HasSuffix(last, "é") || len(last) > maxReason {
		t.Errorf("%d messages, the last with %d bytes that end with %q", len(list), len(last), last[max(0, len(last)-4):])
	}
}

// A call that fails because its event went to another instance is an interruption, and no
// reason for a dead letter, even before the program's own context has ended.
func TestFailuresOfLostEvents(t *testing.T) {
	rt := &reactor{metrics: newWorkMetrics(), slog: slog.New(slog.DiscardHandler)}
	for _, retries := range []int{0, 3} {
		mine, lose := context.WithCancel(t.Context())
		m := message.NewMessage("1", nil)
		m.SetContext(context.WithValue(t.Context(), heldKey{}, mine))
		retry := fast
		retry.MaxRetries = retries
		call := func(*message.Message) ([]*message.Message, error) {
			lose()
			return nil, fmt.Errorf("webhook: %w", context.Canceled)
		}
		if _, err := patient(retry.Middleware(rt.attempt(&reaction{name: "r"})(call)))(m); !errors.Is(err, errInterrupted) {
			t.Errorf("after %d retries: %v, want an interruption", retries, err)
		}
		// The last try failed, and the event was lost before it was set aside.
		mine, lose = context.WithCancel(t.Context())
		m.SetContext(context.WithValue(t.Context(), heldKey{}, mine))
		failed := func(*message.Message) ([]*message.Message, error) {
			defer lose()
			return nil, errors.New("the database was restarting")
		}
		if _, err := patient(failed)(m); !errors.Is(err, errInterrupted) {
			t.Errorf("%v, want an interruption", err)
		}
	}
	if n := testutil.ToFloat64(rt.metrics.reactions.WithLabelValues("r", "retried")); n != 0 {
		t.Errorf("%v count as tried again, want none", n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "0": 0, "7": 7 * time.Second, "86400": maxRetryAfter, "99999999999999": 0,
		"Fri, 01 May 2026 00:00:30 GMT": 30 * time.Second, "Thu, 30 Apr 2026 00:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer srv.Close()
	var after *backoff.RetryAfterError
	if err := hook(t, config.Webhook{Name: "w", URL: srv.URL}).post(t.Context(), "s", "1", nil); !errors.As(err, &after) || after.Duration != 30*time.Second {
		t.Errorf("429 with Retry-After: %v", err)
	}
}

// Whatever fails, no part of an address is in the error.
func TestAddressIsNotShown(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer secure.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	reset, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer reset.Close()
	go func() {
		for {
			c, err := reset.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for address, want := range map[string]string{
		gone.URL:                                 "connection refused",
		"http://s3cret.invalid":                  "its host",
		strings.Replace(plain.URL, "p", "ps", 1): "HTTP response to HTTPS client",
		secure.URL:                               "certificate",
		"http://" + reset.Addr().String():        "",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		err = hook(t, config.Webhook{Name: "w", URL: address + "/t0ken?k3y"}).post(t.Context(), "s", "1", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
			continue
		}
		for _, part := range []string{u.Host, u.Hostname(), "t0ken", "k3y"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%s is in %q", part, err)
			}
		}
	}
	slow := &url.Error{Op: "Post", URL: "http://s3cret/", Err: context.DeadlineExceeded}
	if text := noAnswer(slow, &url.URL{Host: "s3cret"}); text != "no answer within 10s" {
		t.Error(text)
	}
	other := &url.Error{Op: "Post", URL: "http://s3cret/", Err: x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"a"}}, Host: "s3cret"}}
	if text := noAnswer(other, &url.URL{Host: "s3cret"}); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

func TestWebhookConfig(t *testing.T) {
	for want, cfgs := range map[string][]config.Webhook{
		"its own name":      {{Name: "a"}, {Name: "a"}},
		"no event type":     {{Name: "a", Types: []string{"NodePainted"}}},
		"there is no file":  {{Name: "a", SecretFile: "nowhere"}},
		"secret is empty; ": {{Name: "a", SecretFile: secretFile(t, "")}},
	} {
		if _, err := newWebhooks(cfgs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", cfgs, err, want)
		}
	}
	w := hook(t, config.Webhook{Name: "a", Types: []string{reminderType}})
	if !w.reminded() || len(w.eventTypes()) != 0 {
		t.Error("a webhook for reminders alone is told of events")
	}
}

// What the configuration names is started, and ends with the program.
func TestReact(t *testing.T) {
	url, got := receiver(t, func(told) int { return http.StatusOK })
	h := &app.Conn{Log: brokered(t)()}
	cfg := &config.Config{Schedules: config.Schedules{Plan: "30 4 * * *"}, Webhooks: []config.Webhook{
		{Name: "all", URL: url, Types: []string{"NodeCordoned"}}, {Name: "books", URL: url, Types: []string{"ClosePrepared"}}, {Name: "reminders", URL: url, Types: []string{reminderType}},
	}}
	ctx, stop := context.WithCancel(t.Context())
	logged := &apptest.SyncBuffer{}
	ended := make(chan error)
	go func() {
		ended <- react(ctx, h, cfg, (&runBook{}).once, newWorkMetrics(), slog.New(slog.NewTextHandler(logged, nil)), nil)
	}()
	// Groups start at the end of the log as they join, so events are appended until both
	// reactions have handled one. Deliveries are taken out, or a full channel would block the webhook.
	delivered := false
	for i := 0; !delivered || !strings.Contains(logged.String(), "alert=NodeCordoned"); i++ {
		apptest.AppendEvents(t, h.Log, cordoned("lab", strconv.Itoa(i)))
		for len(got) > 0 {
			<-got
			delivered = true
		}
		select {
		case err := <-ended:
			t.Fatalf("reactions ended: %v\n%s", err, logged)
		case <-time.After(5 * time.Millisecond): // leave the groups some processor time to join
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := react(t.Context(), h, &config.Config{Webhooks: []config.Webhook{{}}}, nil, newWorkMetrics(), silent, nil); err == nil || !strings.Contains(err.Error(), "its own name") {
		t.Errorf("a webhook without a name: %v", err)
	}
}
