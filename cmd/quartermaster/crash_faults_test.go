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
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.View(t.Context(), func(v projections.View) error {
			return v.Scan(projections.Query{Table: projections.TableFaults}, func(k projections.Key, row projections.Row) error {
				got, err := projections.EncodeRow(row)
				if err != nil {
					return err
				}
				want, err := ref.rows[rowName{"faults", k.Scope, k.ID, k.Hour}].encode()
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					t.Errorf("seed %d: rows differ:\n%q\n%q", seed, got, want)
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
}
