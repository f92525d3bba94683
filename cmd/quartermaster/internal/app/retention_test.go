package app_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// retained is a log of 150 archived events of the cluster lab, with an operator.
type retained struct {
	*testing.T
	*app.App
	*app.Caller
	key     ed25519.PrivateKey
	tp      domain.TopicPartition // of the cluster's telemetry
	cluster *kfake.Cluster
}

func newRetained(t *testing.T) *retained {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := &retained{T: t, App: &app.App{Dir: t.TempDir(), Brokers: cluster.ListenAddrs()}, cluster: cluster}
	r.Caller = r.For(app.Everyone)
	r.tp = domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte("lab"), domain.TopicTelemetry.Partitions())}
	_, r.key = apptest.FirstOperator(t, r.App)
	r.apply("workspaces: [{id: research}]\nregions: [{id: eu, country: NL}]\n" +
		"clusters: [{id: lab, provider: own, provider_class: owned, region: eu}]\n")
	h := r.open()
	apptest.AppendEvents(t, h.Log, observed(0, 100)...)
	r.shut(h)
	r.seal()
	h = r.open()
	apptest.AppendEvents(t, h.Log, observed(100, 50)...)
	r.shut(h)
	r.seal()
	t.Cleanup(func() {
		if err := r.App.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *retained) open() *app.Conn {
	r.Helper()
	if err := r.App.Close(); err != nil {
		r.Fatal(err)
	}
	h, err := r.Open(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return h
}

func (r *retained) shut(h *app.Conn) {
	r.Helper()
	if err := h.Shut(); err != nil {
		r.Fatal(err)
	}
}

func (r *retained) seal() {
	r.Helper()
	if _, err := r.Archive(r.Context(), true, nil); err != nil {
		r.Fatal(err)
	}
	if err := r.App.Close(); err != nil {
		r.Fatal(err)
	}
}

func (r *retained) apply(lists string) {
	r.Helper()
	apptest.Apply(r.T, r.App, r.key, lists)
	if err := r.App.Close(); err != nil {
		r.Fatal(err)
	}
}

// first returns the first offset of the cluster's telemetry in the log.
func (r *retained) first() int64 {
	r.Helper()
	h := r.open()
	defer r.shut(h)
	first, _, err := h.Log.BrokerBounds(r.Context(), []domain.TopicPartition{r.tp})
	if err != nil {
		r.Fatal(err)
	}
	return first[r.tp]
}

func (r *retained) trim(q app.TrimQuestion) (*app.TrimPlan, error) {
	r.Helper()
	plan, err := r.Trim(r.Context(), q)
	if err := r.App.Close(); err != nil {
		r.Fatal(err)
	}
	return plan, err
}

// ended counts the records of the log that end a removal, by its id, however often they count.
func (r *retained) ended() map[string]int {
	r.Helper()
	n := map[string]int{}
	if _, err := r.Tail(r.Context(), app.Newest{Lines: app.MaxTail}, false, func(rec app.Record) error {
		if rec.Type == domain.TypeRecordsRemoved {
			n[strings.TrimPrefix(rec.Subject, "quartermaster/removal/ended/")]++
		}
		return nil
	}); err != nil {
		r.Fatal(err)
	}
	if err := r.App.Close(); err != nil {
		r.Fatal(err)
	}
	return n
}

const (
	logPolicy = "policies: [{id: log, kind: retention, scope: log, value: 1 day}]\n"
	hold      = "legal_holds: [{id: case-7, reason: a lawsuit%s}]\n"
)

// Without a policy nothing is removed. With one a dry run removes nothing, and what is younger stays.
// The removal is in the log, once.
func TestTrimByPolicy(t *testing.T) {
	r := newRetained(t)
	if _, err := r.trim(app.TrimQuestion{Delete: true}); app.KindOf(err) != app.KindDenied || r.first() != 0 {
		t.Fatalf("trimmed without a policy: %v", err)
	}
	r.apply(logPolicy)
	for _, before := range []string{"soon", "2999-01-01"} {
		if _, err := r.trim(app.TrimQuestion{Before: before}); app.KindOf(err) != app.KindInvalid {
			t.Errorf("%s: %v", before, err)
		}
	}
	before := (apptest.May + 120*domain.Hour).String()
	plan, err := r.trim(app.TrimQuestion{Before: before})
	if err != nil || !plan.DryRun || len(plan.Partitions) != 1 || plan.Partitions[0].TrimTo != 100 || r.first() != 0 {
		t.Fatalf("%+v: %v", plan, err)
	}
	if plan, err = r.trim(app.TrimQuestion{Before: before, Delete: true}); err != nil || plan.Records != 100 || plan.Removal == "" || r.first() != 100 {
		t.Fatalf("%+v: %v", plan, err)
	}
	if n := r.ended(); len(n) != 1 || n[plan.Removal] != 1 {
		t.Errorf("removals in the log: %v", n)
	}
	shown, err := r.Retention(t.Context())
	if err != nil || len(shown.Removals) != 1 || shown.Removals[0].Ended == nil || shown.Removals[0].Policy != "log" ||
		len(shown.Due) != 1 || shown.Due[0].Records == 0 {
		t.Fatalf("%+v: %v", shown, err)
	}
	got, err := r.Get(t.Context(), "", "removals", "", "")
	if err != nil || len(got.Entries) != 1 || got.Entries[0].Name != plan.Removal {
		t.Fatalf("%+v: %v", got, err)
	}

	// A damaged segment stops every further removal.
	damageSegment(t, r.Dir, "qm.telemetry")
	if _, err := r.trim(app.TrimQuestion{Delete: true}); !errors.Is(err, kafka.ErrArchive) || r.first() != 100 {
		t.Fatal(err)
	}
}

// A hold stops a trim of what it covers until it is lifted. It keeps later records too, because a log
// is deleted from its beginning.
func TestHoldStopsTrim(t *testing.T) {
	for _, c := range []struct {
		covers string
		first  int64 // of the log afterwards
	}{
		{"", 0},
		{", covers: {cluster: lab}", 0},
		{", covers: {workspace: research}", 0},
		{", covers: {period: {from: 2026-05-03, to: 2026-05-04}}", 0},
		{", covers: {cluster: lab, period: {from: 2026-05-06, to: 2026-05-07}}", 100},
		{", covers: {period: 2027-01}", 150},
	} {
		r := newRetained(t)
		r.apply(logPolicy + fmt.Sprintf(hold, c.covers))
		plan, err := r.trim(app.TrimQuestion{Delete: true})
		if err != nil || r.first() != c.first {
			t.Fatalf("%s: the log begins at %d: %+v: %v", c.covers, r.first(), plan, err)
		}
		if c.first < 150 && !slices.Equal(plan.Holds, []string{"case-7"}) {
			t.Errorf("%s: held by %v", c.covers, plan.Holds)
		}
		r.apply(fmt.Sprintf(hold, c.covers+", lifted: true"))
		if plan, err := r.trim(app.TrimQuestion{Delete: true}); err != nil || r.first() != 150 || len(plan.Holds) > 0 {
			t.Fatalf("%s: lifted, the log begins at %d: %+v: %v", c.covers, r.first(), plan, err)
		}
	}
}

// begin records that a removal of the first 100 records begins, as a process that is killed afterwards
// does.
func (r *retained) begin() string {
	r.Helper()
	h := r.open()
	defer r.shut(h)
	at := app.Now()
	id := fmt.Sprintf("log/%s", at)
	if err := h.RecordRemoval(r.Context(), &domain.RemovalStarted{
		Entity: app.Platform, Removal: id, What: domain.RetainedLog, Policy: "log", Rule: "1 day", By: "a test",
		Removed: []domain.Removed{{Topic: r.tp.Topic, Partition: uint32(r.tp.Partition), To: 100, Records: 100}},
	}, at); err != nil {
		r.Fatal(err)
	}
	return id
}

func (r *retained) deleteFirst() {
	r.Helper()
	h := r.open()
	defer r.shut(h)
	if _, err := h.Log.DeleteRecords(r.Context(), r.tp, 100); err != nil {
		r.Fatal(err)
	}
}

// A removal that was killed before or after it deleted is finished by the next one, and is in the log
// once. What a hold or a policy that was set in between keeps stays, and without a policy everything
// does: nobody signs the beginning of a removal.
func TestRemovalInterrupted(t *testing.T) {
	const longer = "policies: [{id: log, kind: retention, scope: log, value: 3650 days}]\n"
	for _, c := range []struct {
		name    string
		policy  string
		deleted bool   // before it was killed
		since   string // declared afterwards
		first   int64
		removed uint64
		holds   int
	}{
		{"before", logPolicy, false, "", 100, 100, 0},
		{"after", logPolicy, true, "", 100, 100, 0},
		{"before, held", logPolicy, false, fmt.Sprintf(hold, ""), 0, 0, 1},
		{"after, held", logPolicy, true, fmt.Sprintf(hold, ""), 100, 100, 0},
		{"before, kept longer", logPolicy, false, longer, 0, 0, 0},
		{"after, kept longer", logPolicy, true, longer, 100, 100, 0},
		{"forged, without a policy", "", false, "", 0, 0, 0},
		{"forged, against the policy", longer, false, "", 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRetained(t)
			if c.policy != "" {
				r.apply(c.policy)
			}
			id := r.begin()
			if c.deleted {
				r.deleteFirst()
			}
			if c.since != "" {
				r.apply(c.since)
			}
			plan, err := r.trim(app.TrimQuestion{Delete: true})
			if err != nil || !plan.Resumed || plan.Removal != id || plan.Records != c.removed ||
				len(plan.Holds) != c.holds || r.first() != c.first {
				t.Fatalf("the log begins at %d: %+v: %v", r.first(), plan, err)
			}
			for range 2 {
				_, err := r.trim(app.TrimQuestion{Delete: true})
				if err != nil && (c.policy != "" || app.KindOf(err) != app.KindDenied) {
					t.Fatal(err)
				}
			}
			if c.removed == 0 && r.first() != 0 {
				t.Errorf("the log begins at %d", r.first())
			}
			if n := r.ended(); n[id] != 1 {
				t.Errorf("removals in the log: %v", n)
			}
		})
	}
}

// beginRemoval appends the beginning of a removal that no policy allowed.
func beginRemoval(t *testing.T, h *app.Conn, what domain.Retained, removed ...domain.Removed) {
	t.Helper()
	at := app.Now()
	if err := h.RecordRemoval(t.Context(), &domain.RemovalStarted{
		Entity: app.Platform, Removal: fmt.Sprintf("%s/%s", what, at), What: what, Policy: "s", Rule: "1 day", By: "a test",
		Removed: removed,
	}, at); err != nil {
		t.Fatal(err)
	}
}

// The end of a removal that is appended twice counts once: it is a repeat, and no conflict.
func TestRemovalRecordedTwice(t *testing.T) {
	r := newRetained(t)
	r.apply(logPolicy)
	plan, err := r.trim(app.TrimQuestion{Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	h := r.open()
	at, err := domain.ParseInstant(strings.TrimPrefix(plan.Removal, "log/"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.RecordRemoval(t.Context(), &domain.RecordsRemoved{
		Entity: app.Platform, Removal: plan.Removal, What: plan.What, Policy: plan.Policy, Rule: plan.Rule,
		By: "archive trim, run by " + app.Me(), Removed: plan.Removed,
	}, at); err != nil {
		t.Fatal(err)
	}
	r.shut(h)
	s, err := r.LogStats(t.Context(), "")
	if err != nil || s.Rows["quarantine"] != 0 || r.ended()[plan.Removal] != 2 {
		t.Fatalf("%+v: %v", s, err)
	}
	shown, err := r.Retention(t.Context())
	if err != nil || len(shown.Removals) != 1 {
		t.Fatalf("%+v: %v", shown, err)
	}
}

// Scheduled snapshots are removed by policy, unless a hold keeps them, and never without one.
func TestSnapshotsByPolicy(t *testing.T) {
	r := newRetained(t)
	h := r.open()
	defer r.shut(h)
	var paths []string
	for i := range 4 {
		if i > 0 {
			apptest.AppendEvents(t, h.Log, observed(200+i, 1)...)
			if err := h.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		outcome, err := h.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(outcome, ", digest")
		made := time.Date(2026, 5, 10+i, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(path, made, made); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Base(path))
	}
	left := func() (names []string) {
		infos, err := snapshotfile.Infos(h.Snapshots())
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range infos {
			if in.Kind == snapshotfile.Scheduled {
				names = append(names, filepath.Base(in.Path))
			}
		}
		slices.Sort(names)
		return names
	}
	remove := func() string {
		t.Helper()
		outcome, err := h.RemoveAll(t.Context(), "a test", app.Now())
		if err != nil {
			t.Fatal(err)
		}
		return outcome.String()
	}
	if got := remove(); got != "nothing to remove" || len(left()) != 4 {
		t.Fatalf("without a policy: %s", got)
	}
	named := func(path string) domain.Removed {
		in := snapshotfile.InfoOf(filepath.Join(h.Snapshots(), path))
		return domain.Removed{File: path, Records: 1, Digest: in.Digest[:]}
	}
	beginRemoval(t, h, domain.RetainedSnapshots, named(paths[0]), named(paths[3]))
	if got := remove(); !strings.HasSuffix(got, ": 0 records") || len(left()) != 4 {
		t.Fatalf("forged, without a policy: %s, and %v stay", got, left())
	}
	r.apply("policies: [{id: s, kind: retention, scope: snapshots, value: 2 days}]\n" + fmt.Sprintf(hold, ", covers: {period: {from: 2026-05-11, to: 2026-05-12}}"))
	if remove(); !slices.Equal(left(), paths[1:]) {
		t.Fatalf("%v stay", left())
	}
	r.apply(fmt.Sprintf(hold, ", covers: {period: {from: 2026-05-11, to: 2026-05-12}}, lifted: true"))
	if remove(); !slices.Equal(left(), paths[2:]) {
		t.Fatalf("%v stay", left())
	}
	if got := remove(); got != "nothing to remove" {
		t.Errorf("again: %s", got)
	}
	beginRemoval(t, h, domain.RetainedSnapshots, named(paths[3]))
	if got := remove(); !strings.HasSuffix(got, ": 0 records") || !slices.Equal(left(), paths[2:]) {
		t.Errorf("forged: %s, and %v stay", got, left())
	}
}

// Resolved records leave the list of the quarantine by policy, and the list says how many did.
func TestQuarantineByPolicy(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir) // owns the log
	defer apptest.Close(t, h)
	a := &app.App{Dir: dir}
	c := a.For(app.Everyone)
	defer a.Close()
	_, key := apptest.FirstOperator(t, a)
	if err := errors.Join(a.Close(), apptest.Plant(dir, "garbage", "unsigned")); err != nil {
		t.Fatal(err)
	}
	list := func() *app.Quarantine {
		t.Helper()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		q, err := c.Quarantine(t.Context(), "", app.QuarantineFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	of := list()
	if len(of.Entries) != 2 {
		t.Fatalf("%+v", of.Entries)
	}
	_, draft, err := c.Discard(t.Context(), []string{of.Entries[0].ID}, app.QuarantineFilter{}, "noise")
	if err != nil {
		t.Fatal(err)
	}
	apptest.Decide(t, a, key, draft)
	remove := func(now time.Duration) string {
		t.Helper()
		outcome, err := h.RemoveAll(t.Context(), "a test", app.Now()+domain.Instant(now))
		if err != nil {
			t.Fatal(err)
		}
		return outcome.String()
	}
	e := &of.Entries[0]
	beginRemoval(t, h, domain.RetainedQuarantine, domain.Removed{
		Topic: e.Topic, Partition: uint32(e.Partition), From: e.Offset, To: e.Offset + 1, Records: 1,
	})
	if got := remove(49 * time.Hour); !strings.HasSuffix(got, ": 0 records") || len(list().Entries) != 2 {
		t.Fatalf("forged, without a policy: %s", got)
	}
	const policy = "policies: [{id: q, kind: retention, scope: quarantine, value: 2 days}]\n"
	apptest.Apply(t, a, key, policy+fmt.Sprintf(hold, ""))
	if got := remove(49 * time.Hour); got != "nothing to remove" {
		t.Fatalf("held: %s", got)
	}
	apptest.Apply(t, a, key, fmt.Sprintf(hold, ", lifted: true"))
	if got := remove(47 * time.Hour); got != "nothing to remove" {
		t.Fatalf("too early: %s", got)
	}
	for range 2 {
		remove(49 * time.Hour)
		if q := list(); len(q.Entries) != 1 || q.Removed != 1 || q.Open != 1 || q.Entries[0].ID != of.Entries[1].ID {
			t.Fatalf("%+v", q)
		}
	}
}
