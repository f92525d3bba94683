package projections

import (
	"errors"
	"fmt"
	"testing"

	"quartermaster/domain"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// When a snapshot cannot be written, nobody reads the rows any more once that
// is known: folding goes on at once. The race detector watches.
func TestFailedSnapshotReadsNoFurther(t *testing.T) {
	m := NewMemory(domain.TopicSpecs())
	round := 0
	fold := func() {
		round++
		for _, tp := range domain.AllPartitions() {
			tx, err := m.Begin(t.Context(), tp)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Load(t.Context(), func(func(Key) bool) {})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				k := Key{Table: TableWorkspaces, Scope: tp.String(), ID: fmt.Sprint(i)}
				if err := change[*History](rows, k).insert(Version{
					Order: domain.Order{Effective: domain.Instant(round)},
					Event: &domain.WorkspaceRegistered{Name: fmt.Sprint(round)},
				}, true); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(t.Context(), int64(round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fold()
	for range 20 {
		if _, _, err := m.WriteSnapshot(fullDisk{}, "test"); err == nil {
			t.Fatal("a snapshot was written to a full disk")
		}
		fold()
	}
}
