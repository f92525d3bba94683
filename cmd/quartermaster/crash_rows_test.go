package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// The reference bounds rows of faults as the folds do, whatever is reported in whatever
// order.
func TestReferenceBoundsFaults(t *testing.T) {
	for seed := range uint64(long.Count(8, 400)) {
		r := rand.New(rand.NewPCG(seed, 1))
		gpus, codes, spread := 1+r.IntN(8), 1+r.IntN(60), 1+r.IntN(86_400)
		l, ref := storetest.NewLog(), newReference()
		for i := range 500 {
			env := domain.Envelope{
				Source: fmt.Sprint("reporter/", r.IntN(2)), Incarnation: 1, Sequence: uint64(i + 1), Cluster: "c",
				Time: storetest.Start + domain.Instant(r.IntN(spread))*domain.Second,
				Event: &domain.GPUFaultObserved{
					Node: "n", GPU: storetest.GPU("c", "n", r.IntN(gpus)), Kind: []domain.FaultKind{domain.FaultXID, domain.FaultECC}[r.IntN(2)],
					Code: uint32(r.IntN(codes)), Count: uint64(r.IntN(3)), Fatal: r.IntN(2) == 0, Detail: fmt.Sprint(i),
				},
			}
			at := storetest.Start + domain.Day + domain.Instant(i)*domain.Hour/4
			tp, offset := l.AppendAt(env, at)
			rec := domain.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: offset, Time: at}
			if err := ref.state("c", &env, &rec); err != nil {
				t.Fatal(err)
			}
		}
		sameAsReference(t, l, ref, projections.TableFaults)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The reference keeps outages and corrections as the folds do: signed, under their names,
// declared again and called off.
func TestReferenceKeepsDecisions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	l, ref := storetest.NewLog(), newReference()
	for i := range 200 {
		at := storetest.Start + domain.Instant(i)*domain.Hour
		span := domain.Interval{From: at - domain.Hour, To: at}
		var ev domain.Event = &domain.OutageDeclared{Outage: fmt.Sprint("o-", r.IntN(3)), Window: span, Reason: "power", Cancelled: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			ev = &domain.UsageCorrected{Correction: fmt.Sprint("x-", r.IntN(3)), Node: "n", GPU: storetest.DeviceOf(r.IntN(2)), Interval: span, Reason: "r", Cancelled: r.IntN(2) == 0}
		}
		env := storetest.Root.Sign(domain.Envelope{Source: "desk", Incarnation: 1, Cluster: "c", Time: at, Event: ev})
		tp, offset := l.AppendAt(env, at)
		env.Sequence = uint64(offset + 1)
		if err := ref.state("c", &env, &domain.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: offset, Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	sameAsReference(t, l, ref, projections.TableOutages, projections.TableUsageCorrections)
}

// sameAsReference compares the folded rows of tables with those of the reference.
func sameAsReference(t *testing.T, l *storetest.Log, ref *reference, tables ...projections.Table) {
	t.Helper()
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	if err := m.View(t.Context(), func(v projections.View) error {
		for _, table := range tables {
			if err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
				rows++
				got, err := projections.EncodeRow(row)
				if err != nil {
					return err
				}
				of := ref.rows[rowName{table.String(), k.Scope, k.ID, k.Hour}]
				if of == nil {
					t.Errorf("the reference has no row %s", k)
					return nil
				}
				want, err := of.encode()
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					t.Errorf("row %s differs:\n%q\n%q", k, got, want)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if rows != len(ref.rows) {
		t.Errorf("%d rows, the reference has %d", rows, len(ref.rows))
	}
}
