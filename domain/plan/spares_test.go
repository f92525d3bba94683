package plan

import (
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain/reliability"
)

// A machine of eight GPUs is down with probability 8 × 0.001 × 12.5 = 0.1. With ten in use and two
// spares, at most two are down with P(Bin(12, 0.1) ≤ 2) = 0.889; with three spares, at most three
// of thirteen with 0.966. So 0.95 takes three.
func TestSparesByHand(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	for i := range p.Series[0].Milli {
		p.Series[0].Milli[i] = 10 * 8000
	}
	plain := compute(t, q).Regions[0].Pools[0]
	p.Failures = &reliability.Estimate{PerGPUHour: dec("0.001"), RepairHours: dec("12.5"), Source: "by hand"}
	q.Assumptions.ServiceLevel = dec("0.95")
	got := compute(t, q).Regions[0].Pools[0]
	if d := got.Demand; d.Peak != 13 || d.SparePeak != 3 || d.SpareHours != 3*8760 || d.UnitHours != 13*8760 {
		t.Errorf("demand is %+v", d)
	}
	if got.Cost.LessThanOrEqual(plain.Cost) || !got.Stranded.Equal(decimal.Zero) {
		t.Errorf("with spares %s, without %s, stranded %s", got.Cost, plain.Cost, got.Stranded)
	}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if b := in.Demands[0].Buffer; b == nil || in.Demands[0].Hourly[0] != 10 || !b.ServiceLevel.Equal(dec("0.95")) {
		t.Errorf("the instance has %d units and the buffer %+v", in.Demands[0].Hourly[0], b)
	}
	q.Assumptions.ServiceLevel = dec("1")
	if _, err := Compute(t.Context(), q, nil); err == nil {
		t.Error("a service level of 1 was planned")
	}
}

// Machines have spares as GPUs do. If no offer says how many GPUs a machine has, the notes say that
// there are none.
func TestSparesOfMachines(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	p.Unit, p.Kind = "vm", "big.8x"
	for i := range p.Series[0].Milli {
		p.Series[0].Milli[i] = 10 * 1000
	}
	q.Assumptions.ServiceLevel = dec("0.95")
	p.Failures = &reliability.Estimate{PerGPUHour: dec("0.001"), RepairHours: dec("12.5"), Source: "by hand"}
	if d := compute(t, q).Regions[0].Pools[0].Demand; d.SparePeak != 3 {
		t.Errorf("demand is %+v", d)
	}
	p.Failures = nil
	got := compute(t, q).Regions[0].Pools[0]
	if notes := strings.Join(got.Notes, "\n"); got.Demand.SparePeak != 0 || !strings.Contains(notes, "holds no spare machines for a service level of 0.95") {
		t.Errorf("%d spares, notes %s", got.Demand.SparePeak, notes)
	}
}

// Machines that are down more often than up have no spares, and a lower service level does not help.
func TestSparesOfBrokenMachines(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	q.Pools[0].Failures = &reliability.Estimate{PerGPUHour: dec("0.1"), RepairHours: dec("12"), Source: "by hand"}
	q.Assumptions.ServiceLevel = dec("0.95")
	if x := compute(t, q).Excluded; len(x) != 1 || !strings.Contains(x[0].Reason, "down more often than up") || !strings.Contains(x[0].Next, "plan without spare machines") {
		t.Errorf("excluded %+v", x)
	}
}
