package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// hours returns n folded usage hours of nodes with eight GPUs, each with half an hour of samples.
func hours(b *testing.B, n int) *projections.Memory {
	b.Helper()
	l := storetest.NewLog()
	for i := range n {
		node := fmt.Sprintf("node-%05d", i)
		for at := storetest.Start; at < storetest.Start+domain.Hour; at += 300 * domain.Second {
			devices := make([]storetest.Seen, 8)
			for d := range devices {
				devices[d] = storetest.Seen{ID: storetest.GPU("c1", node, d), Activity: (i*7 + d*13) % 1001}
				if who := (i + d + int(at/(900*domain.Second))) % 4; who > 0 {
					devices[d].Workspace, devices[d].Deployment = fmt.Sprintf("team-%d", who), fmt.Sprintf("job-%d", (i+d)%3)
				}
			}
			l.Append(domain.Envelope{
				Source: "reporter/c1/" + node, Cluster: "c1", Time: at + 300*domain.Second,
				Event: storetest.Sample(node, domain.Interval{From: at, To: at + 300*domain.Second}, devices...),
			})
		}
	}
	m, err := l.Fold(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkCommit stores usage hours with their rows of usage_held. It compares with a plain COPY
// of the same rows into the same tables. "new" inserts rows, "again" replaces them.
func BenchmarkCommit(b *testing.B) {
	db := opened(b)
	g := generation(b, db)
	for _, n := range []int{100, 1000, 10_000} {
		m := hours(b, n)
		for _, way := range []struct {
			name string
			new  bool
		}{{"new", true}, {"again", false}} {
			b.Run(fmt.Sprintf("%d/%s", n, way.name), func(b *testing.B) {
				truncate(b, db, g)
				s := db.Store(g, "")
				w := writeOf(b, s, m, way.new)
				if err := s.ensureMonths(b.Context(), db.DB, w.months); err != nil {
					b.Fatal(err)
				}
				if !way.new {
					store(b, db, w)
				}
				b.ResetTimer()
				before := cpu(b, db)
				for range b.N {
					if way.new {
						b.StopTimer()
						truncate(b, db, g)
						b.StartTimer()
					}
					store(b, db, w)
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "hours/s")
				b.ReportMetric(float64((cpu(b, db)-before).Microseconds())/float64(n)/float64(b.N), "cpu-us/hour")
				b.ReportMetric(float64(n+len(w.held))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
		b.Run(fmt.Sprintf("%d/plain-copy", n), func(b *testing.B) {
			s := db.Store(g, "")
			w := writeOf(b, s, m, true)
			b.ResetTimer()
			before := cpu(b, db)
			for range b.N {
				b.StopTimer()
				truncate(b, db, g)
				b.StartTimer()
				inTx(b, db, func(tx *sql.Tx) error {
					t := tableOf[projections.TableUsage]
					if err := copyRows(b.Context(), tx, s.schema+"."+t.name(), t.columns(), w.rows[t.of], copyUsage); err != nil {
						return err
					}
					return copyRows(b.Context(), tx, s.schema+"."+held, heldColumnNames, w.held, copyHeld)
				})
			}
			b.ReportMetric(float64((cpu(b, db)-before).Microseconds())/float64(n)/float64(b.N), "cpu-us/hour")
			b.ReportMetric(float64(n+len(w.held))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "hours/s")
		})
	}
}

func copyRows[R any](ctx context.Context, tx *sql.Tx, into, columns string, rows []R, values func(*R) []any) (err error) {
	stmt, err := tx.PrepareContext(ctx, fmt.Sprintf("copy %s (%s) from stdin", into, columns))
	if err != nil {
		return err
	}
	defer func() {
		if e := stmt.Close(); err == nil {
			err = e
		}
	}()
	for i := range rows {
		if _, err := stmt.ExecContext(ctx, values(&rows[i])...); err != nil {
			return err
		}
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

func copyUsage(r *stored) []any { return []any{r.scope, r.id, hourText(r.key.Hour), nil, r.row} }

func copyHeld(r *heldRow) []any {
	return []any{
		r.workspace, r.cluster, r.deployment, r.node, hourText(r.hour), r.source,
		thousandths(r.whole), thousandths(r.part), thousandths(r.known), fmt.Sprintf("%d.%06d", r.active/1e6, r.active%1e6),
	}
}

func thousandths(n uint64) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) }

// hourText returns an hour as the server reads it.
func hourText(hour int64) string {
	return (domain.Instant(hour) * domain.Hour).Time().Format("2006-01-02 15:04:05+00")
}

func truncate(b *testing.B, db *DB, g string) {
	b.Helper()
	schema := schemaOf(g)
	if _, err := db.ExecContext(b.Context(), fmt.Sprintf("truncate %s.usage_hours, %[1]s.usage_held, %[1]s.streams", schema)); err != nil {
		b.Fatal(err)
	}
}

func store(b *testing.B, db *DB, w *write) {
	b.Helper()
	tx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := w.write(b.Context(), tx); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

// writeOf returns the usage rows of a memory store, marked as new or not.
func writeOf(b *testing.B, s *Store, m *projections.Memory, fresh bool) *write {
	b.Helper()
	w := newWrite(s)
	w.uncertain = !fresh
	err := m.View(b.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableUsage}, func(k projections.Key, row projections.Row) error {
			return w.add(k, row, true, nil)
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkFold measures the whole path from samples in memory to stored rows: loading, folding and
// storing, in batches of a few sizes.
func BenchmarkFold(b *testing.B) {
	db := opened(b)
	g := generation(b, db)
	for _, batch := range []int{500, 2000, 10_000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			l := storetest.Fleet(500, 6, storetest.Start)
			l.Batch = batch
			before := cpu(b, db)
			for range b.N {
				b.StopTimer()
				truncate(b, db, g)
				s := claimed(b, db, emptied(b, db, g), nil)
				b.StartTimer()
				if err := l.Runner(s).CatchUp(b.Context(), l.End()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b, db)-before).Microseconds())/float64(l.End().Records())/float64(b.N), "cpu-us/event")
			b.ReportMetric(float64(l.End().Records())*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkLoad reads rows by key from a month of them.
func BenchmarkLoad(b *testing.B) {
	db := opened(b)
	s := claimed(b, db, generation(b, db), nil)
	l := storetest.Fleet(200, 100, storetest.Start)
	if err := l.Runner(s).CatchUp(b.Context(), l.End()); err != nil {
		b.Fatal(err)
	}
	tp := domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte("c1"), domain.TopicTelemetry.Partitions())}
	for _, n := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var keys []projections.Key
			for i := range n {
				keys = append(keys, projections.Key{Table: projections.TableUsage, Scope: "c1", ID: fmt.Sprintf("n%05d", i%200), Hour: int64(storetest.Start/domain.Hour) + int64(i/200)})
			}
			b.ResetTimer()
			before := cpu(b, db)
			for range b.N {
				b.StopTimer()
				if _, err := s.Claim(b.Context(), tp); err != nil {
					b.Fatal(err)
				}
				tx, err := s.Begin(b.Context(), tp)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				rows, err := tx.Load(context.WithoutCancel(b.Context()), slices.Values(keys))
				if err != nil || rows.Len() != n {
					b.Fatalf("%d rows, error %v", rows.Len(), err)
				}
				tx.Rollback()
			}
			b.ReportMetric(float64((cpu(b, db)-before).Microseconds())/float64(n)/float64(b.N), "cpu-us/row")
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// cpu returns the CPU time of this process and, if the server runs on the same Linux machine, of
// its connections to this database. Unlike elapsed time, it does not depend on the load of the
// machine.
func cpu(b *testing.B, db *DB) time.Duration {
	b.Helper()
	pids := []string{"self"}
	more, err := collectText(db.QueryContext(b.Context(), `select pid::text from pg_stat_activity where datname = current_database() and backend_type = 'client backend'`))
	if err != nil {
		b.Fatal(err)
	}
	var ticks int64
	for _, pid := range append(pids, more...) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		// The program's name, in parentheses, may contain any character.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
