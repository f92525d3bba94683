package app

import (
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// gathered gathers tables from rows without a log.
func gathered(t *testing.T, l *storetest.Log, gather func(*evidence) error) map[string]*EvidenceTable {
	t.Helper()
	e := &evidence{tables: map[string]*EvidenceTable{}, months: []domain.Interval{storetest.MayBill}}
	for _, table := range evidenceTables() {
		e.tables[table.Name] = &table
	}
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		e.view = v
		if e.auth, err = registry.NewAuthority(v); err == nil {
			err = gather(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return e.tables
}

// A checkpoint names everyone who signed it: the log, and then its witnesses. Damage is shown as it is.
func TestEvidenceHasCheckpoints(t *testing.T) {
	c := merkle.Checkpoint{Origin: merkle.Origin("log"), Size: 7}
	signed, err := c.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	signed = append(signed, "— witness.example/w1 AAAAAAAA\n"...)
	l := storetest.NewLog()
	l.Append(
		domain.Envelope{Time: storetest.Start, Event: &domain.CheckpointSigned{Entity: Platform, Position: "qm.fleet/3=1", Note: signed}},
		domain.Envelope{Time: storetest.Start + domain.Hour, Event: &domain.CheckpointSigned{Entity: Platform, Position: "qm.fleet/3=2", Note: []byte("torn")}},
	)
	rows := gathered(t, l, func(e *evidence) error { return e.checkpoints(t.Context()) })["checkpoints"].Rows
	if len(rows) != 2 {
		t.Fatalf("checkpoints %q", rows)
	}
	if got := strings.Join(rows[0][1:6], " "); got != "qm.fleet/3=1 quartermaster.log/log 7 "+c.Root.String()+" quartermaster.log/log witness.example/w1" {
		t.Errorf("checkpoint %q", got)
	}
	if got := strings.Join(rows[1][1:], " "); got != "qm.fleet/3=2     torn" {
		t.Errorf("a damaged checkpoint is shown as %q", got)
	}
}

// What a stream skipped is awaited. What an agent lost is listed once, although it touches two months.
func TestEvidenceHasGaps(t *testing.T) {
	sample := func(sequence uint64) domain.Envelope {
		env := storetest.Sampled("node-reporter/c/n", 0, 20, storetest.Held("a"))
		env.Incarnation, env.Sequence = 1, sequence
		return env
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c", "own", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start), sample(1), sample(5),
		domain.Envelope{Source: "node-reporter/c/n", Cluster: "c", Time: storetest.MayBill.To + domain.Hour, Event: &domain.SpoolDropped{
			Node: "n", Stream: "node-reporter/c/n " + string(domain.TopicTelemetry), Incarnation: 2, From: 3, To: 4,
			Covered: domain.Interval{From: storetest.MayBill.To - domain.Hour, To: storetest.MayBill.To + domain.Hour}, Reason: "disk full",
		}},
	)
	tables := gathered(t, l, func(e *evidence) error {
		for _, month := range []domain.Interval{storetest.MayBill, projections.BillingMonth(storetest.MayBill.To)} {
			d, err := costs.Divide(e.view, month, 1<<30)
			if err == nil {
				err = e.coverage(d)
			}
			if err != nil {
				return err
			}
		}
		return e.gaps(t.Context())
	})
	var got []string
	for _, row := range tables["gaps"].Rows {
		got = append(got, strings.Join(row[:6], " "))
	}
	want := []string{"awaited qm.telemetry node-reporter/c/n 3 2 4", "dropped qm.telemetry c/n 2  "}
	if !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q", got, want)
	}
	// The close counts the awaited events in each month, because nobody knows what they are about.
	for _, row := range tables["coverage"].Rows {
		if row[1] != "" || row[8] != "3" {
			t.Errorf("coverage %q, want 3 events that have not arrived", row)
		}
	}
	if len(tables["coverage"].Rows) != 2 {
		t.Errorf("coverage %q, want a row for each month", tables["coverage"].Rows)
	}
}
