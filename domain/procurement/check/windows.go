package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"quartermaster/domain/procurement/joint"
)

// running names when a demand's work that waits runs: in which way, epoch and case.
type running struct{ way, epoch, k, demand int }

// run reads when work runs, and checks that all of it does within its window, and none before it
// comes.
func (c *coupled) run() error {
	p := c.p
	c.runs = map[running][]int64{}
	for i := range c.s.Runs {
		r := &c.s.Runs[i]
		at := running{r.Way, r.Epoch, r.Case, r.Demand}
		switch {
		case r.Way < 0 || r.Epoch < 0 || r.Epoch >= len(p.Epochs) || r.Case < 0 || r.Case >= len(p.Epochs[r.Epoch].Cases) ||
			r.Demand < 0 || r.Demand >= len(p.Demands) || p.Demands[r.Demand].Window == 0:
			return fmt.Errorf("run %d is of no epoch, scenario and demand that waits", i)
		case c.runs[at] != nil:
			return fmt.Errorf("run %d is there twice", i)
		}
		hours := p.Epochs[r.Epoch].Cases[r.Case].Slots
		units, err := decode(r.Units, len(hours))
		if err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
		open := int64(0) // what has come in the window and not run
		for h := range hours {
			if hours[h].Waits != nil {
				open += int64(hours[h].Waits[r.Demand]) * joint.Grain
			}
			open -= units[h]
			switch ends := h+1 == len(hours) || (h+1)%p.Demands[r.Demand].Window == 0; {
			case open < 0:
				return fmt.Errorf("demand %q runs in hour %d of epoch %d, case %d, before it comes", p.Demands[r.Demand].ID, h, r.Epoch, r.Case)
			case ends && open > 0:
				return fmt.Errorf("demand %q waits beyond its window in hour %d of epoch %d, case %d", p.Demands[r.Demand].ID, h, r.Epoch, r.Case)
			}
		}
		c.runs[at] = units
	}
	return nil
}

// decode reads unsigned varints.
func decode(encoded []byte, n int) ([]int64, error) {
	out := make([]int64, 0, n)
	for len(encoded) > 0 {
		v, size := binary.Uvarint(encoded)
		if size <= 0 || v > 1<<60 || len(out) == n {
			return nil, errors.New("its units cannot be read")
		}
		out, encoded = append(out, int64(v)), encoded[size:]
	}
	if len(out) != n {
		return nil, fmt.Errorf("it is of %d hours, of %d", len(out), n)
	}
	return out, nil
}

// hours are the slots of demands of which some wait.
func (c *coupled) hours(demands []int, epoch, k int) slots {
	var out slots
	for _, s := range c.p.Epochs[epoch].Cases[k].Slots {
		units, waits := make([]int, len(demands)), make([]int, len(demands))
		for i, d := range demands {
			if units[i] = s.Units[d]; s.Waits != nil {
				waits[i] = s.Waits[d]
			}
		}
		out.units, out.waits, out.hours = append(out.units, units), append(out.waits, waits), append(out.hours, int64(s.Hours))
	}
	return out
}

// loads are what is served in each slot, by the demands, in fractions of grain.
func (c *coupled) loads(demands []int, of *slots, way, epoch, k int) (loads [][]int64, grain int64) {
	grain = 1
	if of.waits != nil {
		grain = joint.Grain
	}
	for _, units := range of.units {
		load := make([]int64, len(units))
		for i, u := range units {
			load[i] = int64(u) * grain
		}
		loads = append(loads, load)
	}
	if of.waits == nil {
		return loads, grain
	}
	for i, d := range demands {
		for h, units := range c.runs[running{way, epoch, k, d}] {
			loads[h][i] += units - int64(of.waits[h][i])*grain
		}
	}
	return loads, grain
}

// largest is, by slot, the most units of each demand that may have to be served there.
func (c *coupled) largest(epoch, k int) [][]int {
	var out [][]int
	open := make([]int, len(c.p.Demands))
	for h, s := range c.p.Epochs[epoch].Cases[k].Slots {
		units := make([]int, len(s.Units))
		for d, u := range s.Units {
			if w := c.p.Demands[d].Window; w > 0 && h%w == 0 {
				open[d] = 0
			}
			if units[d] = u + open[d]; s.Waits != nil {
				open[d] += s.Waits[d]
			}
		}
		out = append(out, units)
	}
	return out
}

// waiting is what the work that waits is worth: each part as much as in the hour of its window, from
// that on in which it comes, in which it is worth least.
func (t *tangents) waiting(b *joint.Block, of *slots, worths []*hourly) *big.Int {
	sum := new(big.Int)
	if of.waits == nil {
		return sum
	}
	for i, d := range b.Demands {
		window := t.p.Demands[d].Window
		if window == 0 {
			continue
		}
		var least *big.Int
		for h := len(worths) - 1; h >= 0; h-- {
			if least == nil || (h+1)%window == 0 || worths[h].lambda[i].Cmp(least) < 0 {
				least = worths[h].lambda[i]
			}
			plus(sum, least, whole(int64(of.waits[h][i])))
		}
	}
	return sum
}
