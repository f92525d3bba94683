package inventory_test

import (
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// The model of an undeclared GPU is the last reported one, in every order of samples.
func TestSeenModels(t *testing.T) {
	const at = 1_780_272_000 * domain.Second // 2026-06-01
	sample := func(hour int, models ...string) domain.Envelope {
		var seen []storetest.Seen
		for i, m := range models {
			seen = append(seen, storetest.Seen{ID: storetest.GPU("lab", "n1", i), Model: m})
		}
		from := at + domain.Instant(hour)*domain.Hour
		s := storetest.Sample("n1", domain.Interval{From: from, To: from + 60*domain.Second}, seen...)
		return domain.Envelope{Source: "prometheus/lab", Cluster: "lab", Subject: "n1", Time: s.Interval.To, Event: s}
	}
	envs := []domain.Envelope{
		sample(1, "NVIDIA A100", "", ""), sample(3, "NVIDIA H100", strings.Repeat("x", 97), ""), sample(2, "NVIDIA B200", "NVIDIA L4", ""),
	}
	for range 2 {
		l := storetest.NewLog()
		for _, e := range envs {
			l.Append(e)
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := m.View(t.Context(), func(v projections.View) error {
			nodes, err := inventory.SeenNodes(v, "lab", at+4*domain.Hour)
			for _, n := range nodes {
				for i := range 3 {
					j := slices.IndexFunc(n.GPUs, func(g inventory.SeenGPU) bool { return g.ID == storetest.GPU("lab", "n1", i) })
					got = append(got, n.GPUs[j].Model)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"NVIDIA H100", "NVIDIA L4", ""}; !slices.Equal(got, want) {
			t.Errorf("models %q, want %q", got, want)
		}
		slices.Reverse(envs)
	}
}
