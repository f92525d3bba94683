package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// A GPU that a registration omits stays in service. If the node's own agent omits it, it counts as
// failed until it is seen again, replaced in its slot, or validly retired. Its faults end when it
// leaves.
func TestMissingGPUs(t *testing.T) {
	gpu := func(i int) domain.GPUID { return storetest.GPU("c", "n", i) }
	name := func(id domain.GPUID) string {
		for i := range 9 {
			if gpu(i) == id {
				return fmt.Sprint(i)
			}
		}
		return id.String()
	}
	type slot struct {
		gpu, index int
		pci        string
	}
	registered := func(source string, minutes int, derived bool, slots ...slot) domain.Envelope {
		e := &domain.NodeRegistered{Node: "n", IDsDerived: derived}
		for _, s := range slots {
			e.GPUs = append(e.GPUs, domain.GPUDeclared{ID: gpu(s.gpu), Index: uint32(s.index), Model: "H100 80GB", PCI: s.pci})
		}
		return domain.Envelope{Source: source, Cluster: "c", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute, Event: e}
	}
	const agent, file = "node-reporter/c/n", "apply/x"
	event := func(minutes int, ev domain.Event) domain.Envelope {
		return domain.Envelope{Source: agent, Cluster: "c", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute, Event: ev}
	}
	fault := event(2, &domain.GPUFaultObserved{Node: "n", GPU: gpu(1), Kind: domain.FaultXID, Code: 79, Count: 1, Fatal: true})
	retired := &domain.GPURetired{Node: "n", GPU: gpu(1), Reason: "sent back"}
	two := []slot{{0, 0, "p0"}, {1, 1, "p1"}}
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // GPUs in service, ! failed; state; missing
	}{
		{"the agent omits one", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, two[0])}, "0 1! failed 1"},
		{"it is seen again", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, two[0]), registered(agent, 4, false, two...)}, "0 1 ok"},
		{"the first of two, and what stays moves up", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, slot{1, 0, "p1"})}, "1 0! failed 0"},
		{"a file omits one", []domain.Envelope{registered(agent, 1, false, two...), registered(file, 3, false, two[0])}, "0 1 ok"},
		{"replaced in its slot, with its faults", []domain.Envelope{registered(agent, 1, false, two...), fault, registered(agent, 3, false, two[0], slot{2, 1, "p1"})}, "0 2 ok"},
		{"another in another slot", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, two[0], slot{2, 1, "p2"})}, "0 2 1! failed 1"},
		{"unknown slot: the index counts", []domain.Envelope{registered(file, 1, false, slot{0, 0, ""}, slot{1, 1, ""}), registered(agent, 3, false, two[0], slot{2, 1, "p1"})}, "0 2 ok"},
		{"ids were derived from names", []domain.Envelope{registered(file, 1, true, slot{7, 0, ""}, slot{8, 1, ""}), registered(agent, 3, false, two[0])}, "0 ok"},
		{"retired by the owner's operator, with its faults", []domain.Envelope{registered(agent, 1, false, two...), fault, registered(agent, 3, false, two[0]), storetest.Ann.Sign(event(4, retired))}, "0 ok"},
		{"and the agent registers again", []domain.Envelope{registered(agent, 1, false, two...), storetest.Ann.Sign(event(4, retired)), registered(agent, 5, false, two[0])}, "0 ok"},
		{"it comes back after it was retired", []domain.Envelope{registered(agent, 1, false, two...), fault, storetest.Ann.Sign(event(4, retired)), registered(agent, 5, false, two...)}, "0 1 ok"},
		{"an operator of another workspace retires nothing", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, two[0]), storetest.Mallory.Sign(event(4, retired))}, "0 1! failed 1"},
		{"a return does not end the absence", []domain.Envelope{registered(agent, 1, false, two...), registered(agent, 3, false, two[0]), event(4, &domain.NodeReturned{Node: "n"})}, "0 1! failed 1"},
		{"the node is retired and comes back with one", []domain.Envelope{registered(agent, 1, false, two...), fault, event(3, &domain.NodeRetired{Node: "n"}), registered(agent, 4, false, two[0])}, "0 ok"},
	} {
		l := storetest.NewLog()
		l.Append(
			storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
			storetest.Ann.Register(storetest.Root, "acme", domain.RoleOperator, nil, storetest.Start+1),
			storetest.Mallory.Register(storetest.Root, "beta", domain.RoleAdmin, nil, storetest.Start+1),
			storetest.Ann.Sign(storetest.Cluster("c", "acme", "p", "eu", storetest.Start+2)),
		)
		l.Append(c.log...)
		n := take(t, l, inventory.Filter{At: storetest.Start + 10*storetest.Minute}).Clusters[0].Nodes[0]
		var got []string
		for _, g := range n.GPUs {
			x := name(g.ID)
			if g.Failed {
				x += "!"
			}
			got = append(got, x)
		}
		got = append(got, n.Health.State)
		for i := range 9 {
			for _, m := range n.Health.Missing {
				if m == gpu(i).String() {
					got = append(got, fmt.Sprint(i))
				}
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s; %+v", c.name, s, c.want, n.Health)
		}
	}
}
