package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// loseTail is the end of a campaign: the broker is killed and the files of some of its
// partitions are cut in the middle of what was acknowledged and folded last, as a power
// cut does with what was not flushed. What the log lost then, nobody can bring back. It
// must be noticed, whatever takes the offsets: nothing is appended by commands, no
// instance says that it has caught up, and the rows are healed by a rebuild and a signed
// switch to it.
func (c *campaign) loseTail(ctx context.Context, rows *rowsOf) {
	t := c.t
	var wg sync.WaitGroup
	defer wg.Wait()
	// serve runs two rivals until it is stopped.
	serve := func(names ...string) (stop func()) {
		running, stop := context.WithCancel(ctx)
		for _, name := range names {
			wg.Go(func() { c.keep(running, rows, name, "", true) })
		}
		return stop
	}
	command := func(args ...string) (code int, out, said string) {
		var answer, rest strings.Builder
		args = append(args, "--config", rows.config, "--data-dir", filepath.Join(c.dir, "home"))
		code = run(args, strings.NewReader(""), &answer, &rest)
		return code, answer.String(), rest.String()
	}
	ends := func() domain.Position {
		_, end, err := c.log.AllBounds(ctx, domain.AllPartitions())
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	extend := func(steps int) {
		for range steps {
			if err := c.work.step(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}

	before := []string{"tail-1", "tail-2"}
	stop := serve(before...)
	defer stop()
	c.await(ctx, rows, firstGeneration)
	from := c.segments()
	// No record comes again, so that what is lost stays lost.
	c.work.old, c.work.late = nil, nil
	extend(12)
	c.work.old, c.work.late = nil, nil
	c.await(ctx, rows, firstGeneration)
	to, end := c.segments(), ends()
	var grown []domain.TopicPartition
	for _, tp := range domain.AllPartitions() {
		if to[tp].size > from[tp].size {
			grown = append(grown, tp)
		}
	}
	c.mu.Lock()
	c.rng.Shuffle(len(grown), func(i, j int) { grown[i], grown[j] = grown[j], grown[i] })
	c.mu.Unlock()
	cut := grown[:min(len(grown), 3+c.pick(4))]
	slices.SortFunc(cut, domain.TopicPartition.Compare)
	if _, err := c.script(ctx, "kafka", "kill"); err != nil {
		t.Fatal(err)
	}
	for _, tp := range cut {
		size := from[tp].size + int64(c.pick(int(to[tp].size-from[tp].size)))
		if err := os.Truncate(to[tp].file, size); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.script(ctx, "kafka", "start"); err != nil {
		t.Fatal(err)
	}
	short, lost := ends(), int64(0)
	for _, tp := range domain.AllPartitions() {
		n := end[tp] - short[tp]
		if lost += n; (n > 0) != slices.Contains(cut, tp) {
			t.Errorf("%s lost %d records, and %v were cut", tp, n, cut)
		}
	}
	c.say("the broker lost %d records of %d partitions: %v", lost, len(cut), cut)

	// Those that were connected all the while find out.
	c.noticed(ctx, command, cut)
	refused := func() {
		t.Helper()
		key := filepath.Join(c.dir, "ann.pem")
		if code, out, said := command("operator", "add", "ann", "--role", "admin", "--new-key", key); code == 0 || !strings.Contains(said, "diverged") {
			t.Errorf("appended to a log that lost records: exit %d\n%s%s", code, out, said)
		}
	}
	refused()
	// Other records take the offsets, and those that start now find out as well. Some
	// partitions get few events, so what those lack is made up.
	extend(20)
	now, filled := ends(), []domain.Record(nil)
	for _, tp := range cut {
		for range end[tp] + 1 - now[tp] {
			filled = append(filled, domain.Record{Topic: tp.Topic, Partition: tp.Partition, Key: []byte("crash-0"), Value: []byte("another record")})
		}
	}
	if err := c.work.give(ctx, filled); err != nil {
		t.Fatal(err)
	}
	stop()
	wg.Wait()
	after := []string{"tail-3", "tail-4"}
	stop = serve(after...)
	defer stop()
	said := func(name string) string {
		b, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		return string(b)
	}
	each := func(text string) bool {
		return !slices.ContainsFunc(after, func(name string) bool { return !strings.Contains(said(name), text) })
	}
	if !c.becomes(ctx, func() bool { return each("diverged") }) {
		t.Error("instances that start do not say that the log has diverged")
	}
	c.noticed(ctx, command, cut)
	rest(ctx, 4*crashLease)
	refused()
	for _, name := range after {
		address := regexp.MustCompile(`msg=listening address=(\S+)`).FindStringSubmatch(said(name))
		if strings.Contains(said(name), "caught up") || address == nil {
			t.Errorf("%s has caught up with another log, or listens nowhere:\n%s", name, said(name))
			return
		}
		// Whichever of them folds a partition that lost records, each names all.
		var code int
		var body []byte
		if !c.becomes(ctx, func() bool {
			client := http.Client{Timeout: 10 * time.Second}
			resp, err := client.Get("http://" + address[1] + "/readyz")
			if err != nil {
				code, body = 0, []byte(err.Error())
				return false
			}
			code = resp.StatusCode
			body, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
			return code == http.StatusServiceUnavailable && !slices.ContainsFunc(cut, func(tp domain.TopicPartition) bool {
				return !strings.Contains(string(body), "diverged: "+tp.String()+" ")
			})
		}) {
			t.Errorf("/readyz of %s does not name %v: %d %s", name, cut, code, body)
		}
	}
	if t.Failed() {
		return
	}

	// The rows that there are differ from the log as it is now; a rebuild does not.
	d, _, err := compareNow(ctx, rows, firstGeneration, c.brokers, newReference())
	if err != nil || len(d.Lost)+len(d.Extra)+len(d.Changed) == 0 {
		t.Errorf("rows of records that are lost are taken for those of the log: %v", err)
		return
	}
	const healed = healedGeneration
	answer := func(into any, args ...string) bool {
		for tries := 0; ; tries++ {
			code, out, said := command(append(args, "-o", "json", "--quiet")...)
			// A machine that stands still for longer than a lease ends a rebuild, too.
			if code != 0 && tries < 5 && strings.Contains(said, "run it again to resume") && rest(ctx, 2*crashLease) {
				c.say("%v: %s", args, said)
				continue
			}
			if err := json.Unmarshal([]byte(out), into); code != 0 || err != nil {
				t.Errorf("%v: exit %d, %v: %s%s", args, code, err, out, said)
				return false
			}
			return true
		}
	}
	var rebuilt app.Rebuilt
	if !answer(&rebuilt, "generation", "rebuild", healed) {
		return
	}
	if rebuilt.Switched || len(rebuilt.Diverged) != len(cut) {
		t.Errorf("rebuilt %+v", rebuilt)
	}
	ref := newReference()
	d, at, err := compareNow(ctx, rows, healed, c.brokers, ref)
	if err != nil {
		t.Errorf("compare: %v", err)
		return
	}
	if d.any() {
		t.Errorf("rebuilt rows are not those of the log at %s:\n%s", at, d)
	}
	var switched app.Switched
	if !answer(&switched, "generation", "switch", healed, "--reason", "the broker lost records") {
		return
	}
	if !switched.Replayed || switched.Digest != rebuilt.Digest || len(switched.Lost) != len(cut) {
		t.Errorf("switched %+v", switched)
	}
	extend(2)
	if !c.becomes(ctx, func() bool { return each("caught up") }) {
		t.Error("instances do not catch up after the switch")
	}
	c.await(ctx, rows, healed)
	if code, out, said := command("log", "replay", "--verify"); code != 0 || strings.Contains(said, "not folded") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	c.say("%d rows of the log as it is now were rebuilt and switched to", d.Rows)
	c.count(func(r *crashRun) {
		r.TailRecords, r.TailPartitions, r.TailRows = lost, len(cut), d.Rows
	})
	stop()
}

// healedGeneration is the one that is switched to.
const healedGeneration = "healed"

// segment is the last file of a partition.
type segment struct {
	file string
	size int64
}

// segments returns those of the broker.
func (c *campaign) segments() map[domain.TopicPartition]segment {
	out := map[domain.TopicPartition]segment{}
	for _, tp := range domain.AllPartitions() {
		found, err := filepath.Glob(filepath.Join(c.dir, "kafka", "*", "data", string(tp.Topic)+"-"+strconv.Itoa(tp.Partition), "*.log"))
		if err != nil || len(found) == 0 {
			c.t.Fatalf("segments of %s: %v, %v", tp, found, err)
		}
		file := slices.Max(found)
		info, err := os.Stat(file)
		if err != nil {
			c.t.Fatal(err)
		}
		out[tp] = segment{file, info.Size()}
	}
	return out
}

// tailPatience is how long anything may take to be noticed or folded, on a machine that
// is busy with something else.
const tailPatience = 3 * time.Minute

// becomes waits until something is so, and reports whether it came to be.
func (c *campaign) becomes(ctx context.Context, so func() bool) bool {
	for began := time.Now(); time.Since(began) < tailPatience; {
		if so() {
			return true
		}
		if !rest(ctx, 200*time.Millisecond) {
			return false
		}
	}
	return false
}

// noticed waits until exactly these partitions stand still because the log has diverged.
func (c *campaign) noticed(ctx context.Context, command func(...string) (code int, out, said string), cut []domain.TopicPartition) {
	c.t.Helper()
	var last string
	if !c.becomes(ctx, func() bool {
		code, out, said := command("generation", "status", "-o", "json", "--quiet")
		var status app.GenerationsStatus
		if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil {
			last = fmt.Sprintf("exit %d, %v: %s%s", code, err, out, said)
			return false
		}
		var stand []domain.TopicPartition
		for _, p := range status.Generations[0].Partitions {
			if p.Stopped != nil && strings.Contains(p.Stopped.Reason, "diverged") {
				stand = append(stand, domain.TopicPartition{Topic: p.Topic, Partition: p.Partition})
			}
		}
		last = fmt.Sprint(stand)
		return slices.Equal(stand, cut)
	}) {
		c.t.Errorf("partitions that lost records: %v; that stand still: %s", cut, last)
	}
}
