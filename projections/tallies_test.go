package projections_test

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// The tallies of a month change with its rows, and do not depend on how records were batched, on
// repeats, or on a snapshot in between.
func TestTallies(t *testing.T) {
	type month struct {
		tp    domain.TopicPartition
		month int64
	}
	look := func(t *rapid.T, m *projections.Memory) (marks map[month]string, parts map[month][32]byte, text string) {
		marks, parts = map[month]string{}, map[month][32]byte{}
		storetest.Look(t, m, func(v projections.View) error {
			all, err := projections.TalliesOf(v)
			if err != nil {
				return err
			}
			for _, of := range all {
				k := month{of.Partition, of.Month}
				marks[k] += fmt.Sprintln(of.Table, of.Rows, of.Changed)
				text += fmt.Sprintln(of)
			}
			r := projections.NewPartReader(v)
			for _, tp := range domain.AllPartitions() {
				d, err := r.Digest(tp)
				if err != nil {
					return err
				}
				for _, p := range d.Parts {
					parts[month{tp, p.Month}] = p.Digest
				}
			}
			return nil
		})
		return marks, parts, text
	}
	long.Check(t, 30, 5_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage, storetest.DrawDemand}).Draw(t, "log")
		l := draw(t)
		end := l.End()
		early := domain.Position{}
		for tp, n := range end {
			early[tp] = rapid.Int64Range(0, n).Draw(t, tp.String())
		}
		m := projections.NewMemory(domain.TopicSpecs())
		m.Strict = true
		catchUp := func(m *projections.Memory, to domain.Position) {
			if err := l.Runner(m).CatchUp(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}
		catchUp(m, early)
		marks, parts, _ := look(t, m)
		if rapid.Bool().Draw(t, "snapshot") {
			var b bytes.Buffer
			if _, _, err := m.WriteSnapshot(&b, "test"); err != nil {
				t.Fatal(err)
			}
			m = projections.NewMemory(domain.TopicSpecs())
			if _, err := m.ReadSnapshot(&b, int64(b.Len()), "test"); err != nil {
				t.Fatal(err)
			}
		}
		catchUp(m, end)
		later, now, text := look(t, m)
		for k, digest := range now {
			if parts[k] != digest && marks[k] == later[k] {
				t.Errorf("the rows of %s in %d changed, and their tallies did not:\n%s", k.tp, k.month, later[k])
			}
		}
		l.Batch = rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "batch")
		if _, _, want := look(t, storetest.Fold(t, l)); want != text {
			t.Errorf("tallies are\n%swant\n%s", text, want)
		}
	})
}
