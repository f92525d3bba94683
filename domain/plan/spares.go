package plan

import (
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain/reliability"
)

// spares adds to hours of a pool's demand the machines that keep the service level, and describes
// them. Machines fail as a whole and independently.
func (c *composer) spares(k *candidate, cases [][]int) error {
	top := 0
	for i := range cases {
		top = max(top, slices.Max(cases[i]))
	}
	if c.a.ServiceLevel.IsZero() || top == 0 {
		return nil
	}
	if k.Failures == nil || k.shelf.gpus == 0 {
		k.notes = append(k.notes,
			fmt.Sprintf("demand holds no spare machines for a service level of %s: failures are known by the GPU, "+
				"and no offer says how many GPUs %s has", c.a.ServiceLevel, k.Kind))
		return nil
	}
	b, err := reliability.NewBuffer(top, 1, k.Failures.Unavailability(k.shelf.gpus), c.a.ServiceLevel, k.Failures.Counted)
	if err != nil {
		next := "ask for a lower service level"
		if k.Failures.Unavailability(k.shelf.gpus).GreaterThan(decimal.New(5, -1)) {
			next = "check the interruptions and repairs that were observed of it, or plan without spare machines"
		}
		return &refusal{"spare machines: " + err.Error(), next}
	}
	s, spare := &k.future.summary, int64(0)
	for i := range cases {
		for h, n := range cases[i] {
			more := b.Spares(n)
			cases[i][h] += more
			spare += int64(more)
		}
	}
	s.SparePeak, s.SpareHours, s.Failures = b.Spares(top), mean(spare, len(cases)), k.Failures
	k.notes = append(k.notes,
		fmt.Sprintf("demand holds spare machines for a service level of %s: %s interruptions of a GPU an hour, counted "+
			"from %d, %s hours to repair, %s of that rate from %s",
			c.a.ServiceLevel, k.Failures.PerGPUHour, k.Failures.Counted, k.Failures.RepairHours, k.Failures.RatePrior,
			k.Failures.Source))
	return nil
}
