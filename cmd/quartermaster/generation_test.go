package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// production NODES HOURS makes a log in production: a broker whose log has a small
// fleet, an empty database on the server of QM_POSTGRES_DSN, and their
// configuration, which every command then takes from the environment.
func production(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: production nodes hours")
	}
	nodes, err := strconv.Atoi(args[0])
	ts.Check(err)
	hours, err := strconv.Atoi(args[1])
	ts.Check(err)

	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	ts.Check(err)
	ts.Defer(broker.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, err := kafka.Open(ctx, kafka.Config{Brokers: broker.ListenAddrs()})
	ts.Check(err)
	defer log.Close()
	ts.Check(log.EnsureTopics(ctx, domain.TopicSpecs()))
	fleet := storetest.Fleet(nodes, hours, apptest.May)
	var records []domain.Record
	for _, tp := range domain.AllPartitions() {
		held := fleet.Records(tp)
		for i := range held {
			env := fleet.Event(&held[i])
			if env.Signature != nil { // not as wire signs; the operator of the data directory is the first
				continue
			}
			rec, err := wire.Encode(env)
			ts.Check(err)
			rec.Time = held[i].Time
			records = append(records, rec)
		}
	}
	ts.Check(log.Append(ctx, records))

	dsn := os.Getenv("QM_POSTGRES_DSN")
	u, err := url.Parse(dsn)
	ts.Check(err)
	server, err := sql.Open("postgres", dsn)
	ts.Check(err)
	u.Path = "/qm_script_" + strings.ToLower(rand.Text()[:12])
	_, err = server.ExecContext(ctx, "create database "+u.Path[1:])
	ts.Check(err)
	ts.Defer(func() {
		_, err := server.Exec("drop database " + u.Path[1:] + " with (force)")
		if err != nil { // an autovacuum is at work, which only waiting ends
			_, err = server.Exec("drop database " + u.Path[1:])
		}
		if err = errors.Join(err, server.Close()); err != nil {
			ts.Logf("%v", err)
		}
	})
	dsnFile, config := ts.MkAbs("dsn"), ts.MkAbs("quartermaster.yaml")
	ts.Check(os.WriteFile(dsnFile, []byte(u.String()), 0o600))
	ts.Check(os.WriteFile(config, fmt.Appendf(nil, `instance: test
kafka: {brokers: ['%s'], replication: 1, batch: 100}
postgres: {dsn_file: dsn}
lease: 1s
schedules: {advice: off}
`, strings.Join(broker.ListenAddrs(), "', '")), 0o600))
	ts.Setenv("QUARTERMASTER_CONFIG", config)
}

// rowsDatabase opens what production made.
func rowsDatabase(ts *testscript.TestScript) *postgres.DB {
	dsn, err := os.ReadFile(ts.MkAbs("dsn"))
	ts.Check(err)
	db, err := postgres.Open(context.Background(), postgres.Config{DSN: string(dsn)})
	ts.Check(err)
	return db
}

// foldrows NAME folds everything in the log into a generation, as an instance does.
func foldRows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: foldrows generation")
	}
	db := rowsDatabase(ts)
	defer db.Close()
	ctx := context.Background()
	s, err := db.Join(ctx, postgres.SessionConfig{Instance: "folder", Method: projections.Method})
	ts.Check(err)
	defer s.Close()
	store := s.Store(args[0])
	for _, tp := range domain.AllPartitions() {
		if ok, err := store.Claim(ctx, tp); err != nil || !ok {
			ts.Fatalf("claim %s: %t, %v", tp, ok, err)
		}
	}
	c, err := config.Load(ts.Getenv("QUARTERMASTER_CONFIG"), func(string) string { return "" })
	ts.Check(err)
	log, err := kafka.Open(ctx, kafka.Config{Brokers: c.Kafka.Brokers})
	ts.Check(err)
	defer log.Close()
	_, end, err := log.AllBounds(ctx, domain.AllPartitions())
	ts.Check(err)
	ts.Check(app.NewRunner(log, store).CatchUp(ctx, end))
	for _, tp := range domain.AllPartitions() {
		ts.Check(store.Release(ctx, tp))
	}
}

// execsql STATEMENT runs a statement in the database.
func execSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: execsql statement")
	}
	db := rowsDatabase(ts)
	defer db.Close()
	res, err := db.Exec(args[0])
	ts.Check(err)
	if n, err := res.RowsAffected(); err == nil && n == 0 {
		ts.Fatalf("%s: no row", args[0])
	}
}

// killrebuild NAME rebuilds a generation, and kills the process with SIGKILL once
// some of it is folded and not all.
func killRebuild(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killrebuild name")
	}
	db := rowsDatabase(ts)
	defer db.Close()
	path, err := exec.LookPath("quartermaster")
	ts.Check(err)
	c := exec.Command(path, "generation", "rebuild", args[0])
	c.Env = append(os.Environ(), "QUARTERMASTER_CONFIG="+ts.Getenv("QUARTERMASTER_CONFIG"))
	ts.Check(c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		g, err := db.Generation(context.Background(), args[0])
		if err == nil && g.Position()[domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte("c1"), domain.TopicTelemetry.Partitions())}] > 0 {
			break
		}
		if err != nil && !errors.Is(err, postgres.ErrNoGeneration) {
			ts.Fatalf("%v", err)
		}
		select {
		case err := <-ended:
			ts.Fatalf("the rebuild ended before it could be killed: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	ts.Check(c.Process.Kill())
	if err := <-ended; err == nil {
		ts.Fatalf("the rebuild ended before it was killed")
	}
}

// A command that needs a configuration says so, and does nothing else.
func TestProjectionNeedsConfig(t *testing.T) {
	for _, args := range [][]string{{"migrate"}, {"status"}, {"rebuild", "b"}, {"switch", "b", "--reason", "folds/7"}, {"drop", "b"}} {
		dir := filepath.Join(t.TempDir(), "home")
		code, out := command(t, dir, append([]string{"generation"}, args...)...)
		if code == 0 || !strings.Contains(out, "--config") {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v made a data directory", args)
		}
	}
}
