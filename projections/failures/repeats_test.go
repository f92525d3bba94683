package failures_test

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/failures"
	"quartermaster/projections/storetest"
)

// Repeats merged in one version count like separate faults.
func TestReliabilityOfRepeats(t *testing.T) {
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		same domain.Instant
		want string // interruptions, repairs and minutes of repair
	}{
		{"each hour of a storm", storetest.Storm(0, 300, 0, 31, false), domain.Hour, "5 0 0"},
		{"each of a storm", storetest.Storm(0, 300, 0, 31, false), 0, "1800 0 0"},
		{"again after a return", append(storetest.Storm(0, 300, 0, 31, false), storetest.Hardware(150, &domain.NodeReturned{Node: "n"})), domain.Hour, "6 0 0"},
		{"fatal ones", storetest.Storm(0, 300, 0, 79, true), domain.Hour, "1 0 360"},
		{"fatal ones with a return in between", append(storetest.Storm(0, 300, 0, 79, true), storetest.Mended(150, 0), storetest.Mended(310, 0)), domain.Hour, "2 2 310"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Node("c", "n", "H100 80GB", 2, storetest.Start))
			l.Append(c.log...)
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			counts := reliability.Counts{Fatal: true, XIDs: []uint32{31}, Same: c.same}
			var got string
			if err := m.View(t.Context(), func(v projections.View) error {
				models, err := failures.ByModel(v, storetest.Start, storetest.Start+6*domain.Hour, counts)
				for _, r := range models {
					got += fmt.Sprint(r.Interruptions, " ", r.Repairs, " ", r.RepairMs/60_000)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
