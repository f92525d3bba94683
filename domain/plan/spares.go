package plan

import (
	"fmt"

	"quartermaster/domain/procurement"
	"quartermaster/domain/reliability"
)

// spares adds to a pool's demand the machines that keep the service level. Machines fail as a whole
// and independently. More machines never need fewer spares, so distinct steps stay distinct.
func (c *composer) spares(k *candidate) error {
	f := k.future
	if c.a.ServiceLevel.IsZero() || f.summary.Peak == 0 {
		return nil
	}
	if k.Failures == nil || k.shelf.gpus == 0 {
		k.notes = append(k.notes,
			fmt.Sprintf("demand holds no spare machines for a service level of %s: failures are known by the GPU, "+
				"and no offer says how many GPUs %s has", c.a.ServiceLevel, k.Kind))
		return nil
	}
	b, err := c.buffer(k, f.summary.Peak)
	if err != nil {
		return err
	}
	f.summary.SparePeak = b.Spares(f.summary.Peak)
	f.summary.Failures = k.Failures
	if n := len(f.cases); n > 0 {
		for i := range f.cases {
			f.cases[i] = withSpares(f.cases[i], b, &f.summary.SpareHours)
		}
		f.summary.SpareHours = mean(f.summary.SpareHours, n)
		c.summarize(f)
	} else {
		f.steps = withSpares(f.steps, b, &f.summary.SpareHours)
		f.summary.Peak += f.summary.SparePeak
		f.summary.UnitHours += f.summary.SpareHours
	}
	k.notes = append(k.notes,
		fmt.Sprintf("demand holds spare machines for a service level of %s: %s interruptions of a GPU an hour, %s "+
			"hours to repair, %s of that rate from %s",
			c.a.ServiceLevel, k.Failures.PerGPUHour, k.Failures.RepairHours, k.Failures.RatePrior, k.Failures.Source))
	return nil
}

// buffer returns the spares that keep the service level for up to top machines.
func (c *composer) buffer(k *candidate, top int) (*reliability.Buffer, error) {
	b, err := reliability.NewBuffer(top, 1, k.Failures.Unavailability(k.shelf.gpus), c.a.ServiceLevel)
	if err != nil {
		return nil, &refusal{"spare machines: " + err.Error(), "ask for a lower service level"}
	}
	return b, nil
}

func withSpares(steps [][]procurement.Step, b *reliability.Buffer, hours *int64) [][]procurement.Step {
	out := make([][]procurement.Step, len(steps))
	for m := range steps {
		for _, s := range steps[m] {
			spare := b.Spares(s.Units)
			*hours += int64(spare) * int64(s.Hours)
			out[m] = append(out[m], procurement.Step{Units: s.Units + spare, Hours: s.Hours})
		}
	}
	return out
}
