package packing_test

import (
	"fmt"
	"testing"

	"quartermaster/domain/packing"
)

// bytes are read one by one, zeros after the end.
type bytes struct{ left []byte }

func (b *bytes) next() int64 {
	if len(b.left) == 0 {
		return 0
	}
	x := b.left[0]
	b.left = b.left[1:]
	return int64(x)
}

func (b *bytes) list(of ...string) []string {
	var l []string
	for bits := b.next(); bits > 0; bits >>= 1 {
		if bits&1 == 1 {
			l = append(l, of[int(bits>>1)%len(of)])
		}
	}
	return l
}

// decode reads nodes and workloads from bytes; every byte string is a valid case. If wild is set,
// quantities may be meaningless.
func decode(data []byte) (nodes []packing.Node, loads []packing.Workload, wild bool) {
	b := &bytes{data}
	head := b.next()
	wild = head&128 != 0
	amount := func(scale int64) int64 {
		x := b.next() * scale
		if wild && x > 250*scale {
			x = -x << (b.next() % 40)
		}
		return x
	}
	for i := range head%8 + 1 {
		n := packing.Node{
			ID: fmt.Sprint("n", i), Count: int(b.next()%3) + 1, Cluster: fmt.Sprint("c", b.next()%3),
			Model: []string{"m0", "A100 80GB"}[b.next()%2], GPUs: int(b.next() % 10), CPUMilli: amount(100), MemoryMiB: amount(10),
		}
		kind := b.next()
		n.MIG, n.Unshared, n.Fabric = kind&1 == 1, kind&14 == 2, []string{"f1", "", "f2", "f1"}[kind>>4&3]
		n.Region = fmt.Sprint("p", kind%2)
		if kind > 200 {
			n.Certifications, n.Country, n.Dedicated = b.list("x", "y"), fmt.Sprint("r", b.next()%2), fmt.Sprint("w", b.next()%2)
			for range b.next() % int64(n.GPUs+1) {
				n.Held.GPUMilli = append(n.Held.GPUMilli, b.next()*3)
			}
			n.Held.CPUMilli = min(amount(50), n.CPUMilli)
		}
		if wild {
			n.Count -= 2
		}
		nodes = append(nodes, n)
	}
	for i := 0; len(b.left) > 0 && i < 20; i++ {
		w := packing.Workload{
			ID: fmt.Sprint("w", i), Workspace: fmt.Sprint("w", b.next()%2), Replicas: int(b.next() % 40),
			GPUMilli: b.next() * 5, CPUMilli: amount(20), MemoryMiB: amount(2),
		}
		if w.GPUMilli > 1000 && !wild {
			w.GPUMilli = w.GPUMilli / 100 * 1000 % 9000
		}
		switch kind := b.next(); kind % 16 {
		case 0:
			w.Models = b.list("m0", "A100 80GB", "m2")
		case 1:
			w.Clusters = b.list("c0", "c1")
		case 2:
			w.Countries, w.Certifications = b.list("r0", "r1"), b.list("x", "y", "z")
		case 3:
			w.Dedicated = true
		case 4:
			w.ApartNode = b.list("w0", "w1", "w2", "w3", "w4", "w5")
		case 5:
			w.ApartCluster = b.list("w0", "w1", "w2", "w3", "w4", "w5")
		case 14, 15:
			w.ApartIn = []packing.Apart{{Workloads: b.list("w0", "w1", "w2", "w3", "w4", "w5"), Cluster: kind > 127, In: packing.Place{Regions: b.list("p0", "p1")}}}
		case 6:
			w.MaxPerNode = int(b.next() % 5)
		case 10, 11:
			w.Gang = fmt.Sprint("g", b.next()%2)
		case 12:
			w.Class = fmt.Sprint("c", b.next()%3)
		case 13:
			w.Isolated = true
		case 8, 9:
			w.GPUMilli, w.Profile = 0, []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.6gb"}[b.next()%8]
		case 7:
			w.ID = fmt.Sprint("w", b.next()%20)
		}
		loads = append(loads, w)
	}
	return nodes, loads, wild
}

// FuzzPack checks that no input panics, that meaningful input is not refused, and that the verifier
// agrees with every answer.
func FuzzPack(f *testing.F) {
	f.Add([]byte{3, 1, 0, 0, 8, 96, 200, 0, 0, 9, 100, 20, 10, 30})
	f.Add([]byte{129, 0, 0, 1, 4, 255, 255, 3, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 300 {
			return
		}
		nodes, loads, wild := decode(data)
		for _, open := range []bool{false, true} {
			pack := packing.Pack
			if open {
				pack = packing.Need
				for i := range nodes {
					if !wild {
						nodes[i].Held = packing.Held{}
					}
				}
			}
			pairs := [][2]string{{"c0", "c1"}, {"c2", "c1"}}
			r, err := pack(nodes, loads, packing.Options{ApartClasses: pairs, LP: simplex{}})
			if err != nil {
				if !wild && distinct(loads) {
					t.Fatal(err)
				}
				continue
			}
			if err := verify(nodes, loads, r, open, pairs...); err != nil {
				t.Fatalf("%v\n%s", err, text(r))
			}
		}
	})
}

func distinct(loads []packing.Workload) bool {
	seen := map[string]bool{}
	for _, w := range loads {
		if seen[w.ID] {
			return false
		}
		seen[w.ID] = true
	}
	return true
}
