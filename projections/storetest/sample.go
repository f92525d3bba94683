package storetest

import (
	"fmt"

	"quartermaster/domain"
)

// Seen is one device in a sample.
type Seen struct {
	ID      domain.GPUID
	Replica uint32
	// Parent and Profile say which part of a GPU a MIG instance is.
	Parent  domain.GPUID
	Profile string
	Model   string // "" if unknown
	// Workspace, Deployment and Unit identify the holder; without workspace and unit there is none.
	Workspace, Deployment, Unit string
	// Activity is in per mille; negative if not measured.
	Activity int
}

// Sample builds a sample of a node.
func Sample(node string, interval domain.Interval, devices ...Seen) *domain.NodeSampled {
	s := &domain.NodeSampled{Node: node, Interval: interval, ActivityField: 1002}
	text := func(v string) uint32 {
		if v == "" {
			return 0
		}
		for i, have := range s.Strings {
			if have == v {
				return uint32(i + 1)
			}
		}
		s.Strings = append(s.Strings, v)
		return uint32(len(s.Strings))
	}
	holders := map[[3]string]uint32{}
	for _, d := range devices {
		s.IDs = append(s.IDs, d.ID[:]...)
		s.Replica = append(s.Replica, d.Replica)
		s.ActivityMean = append(s.ActivityMean, uint32(max(0, d.Activity+1)))
		s.Profile = append(s.Profile, text(d.Profile))
		if d.Model != "" || s.Model != nil {
			s.Model = append(s.Model, make([]uint32, len(s.IDs)/16-1-len(s.Model))...)
			s.Model = append(s.Model, text(d.Model))
		}
		var parent uint32
		if d.Parent != (domain.GPUID{}) {
			for i := 0; i < len(s.Parents); i += 16 {
				if domain.GPUID(s.Parents[i:]) == d.Parent {
					parent = uint32(i/16 + 1)
				}
			}
			if parent == 0 {
				s.Parents = append(s.Parents, d.Parent[:]...)
				parent = uint32(len(s.Parents) / 16)
			}
		}
		s.Parent = append(s.Parent, parent)
		var holder uint32
		if d.Workspace != "" || d.Unit != "" {
			h := [3]string{d.Workspace, d.Deployment, d.Unit}
			if holder = holders[h]; holder == 0 {
				s.HolderWorkspace = append(s.HolderWorkspace, text(h[0]))
				s.HolderDeployment = append(s.HolderDeployment, text(h[1]))
				s.HolderUnit = append(s.HolderUnit, text(h[2]))
				holder = uint32(len(s.HolderWorkspace))
				holders[h] = holder
			}
		}
		s.Holder = append(s.Holder, holder)
	}
	return s
}

// GPU returns the id of the i-th GPU of a node.
func GPU(cluster, node string, i int) domain.GPUID { return domain.DeriveGPUID(cluster, node, i) }

// Node declares a node of n GPUs of a model, in service from a time.
func Node(cluster, node, model string, n int, from domain.Instant) domain.Envelope {
	r := &domain.NodeRegistered{
		Node: node, CPUMilli: 64_000, MemoryMiB: 1 << 20, IDsDerived: true,
		DriverVersion: "580.95.05", CUDAVersion: "13.0",
	}
	for i := range n {
		r.GPUs = append(r.GPUs, domain.GPUDeclared{ID: GPU(cluster, node, i), Index: uint32(i), Model: model})
	}
	return domain.Envelope{Cluster: cluster, Time: from, Event: r}
}

// Cluster declares a cluster of a workspace.
func Cluster(cluster, workspace, provider, region string, at domain.Instant) domain.Envelope {
	return domain.Envelope{Cluster: cluster, Workspace: workspace, Time: at, Event: &domain.ClusterRegistered{
		Name: cluster, Provider: provider, ProviderClass: domain.Neocloud, Region: region,
	}}
}

// Fleet returns a log of one cluster: nodes of eight GPUs, sampled every ten minutes for some
// hours, each GPU held by one of a few workspaces or by none. Equal arguments give equal logs.
func Fleet(nodes, hours int, start domain.Instant) *Log {
	l := NewLog()
	l.Batch = 1000
	l.Append(Cluster("c1", "acme", "example", "eu-1", start))
	for n := range nodes {
		l.Append(Node("c1", fmt.Sprintf("n%05d", n), "H100 80GB", 8, start))
	}
	const step = 10 * 60 * domain.Second
	devices := make([]Seen, 8)
	for at := start; at < start+domain.Instant(hours)*domain.Hour; at += step {
		for n := range nodes {
			node := fmt.Sprintf("n%05d", n)
			for i := range devices {
				devices[i] = Seen{ID: GPU("c1", node, i), Activity: (n*7 + i*13) % 1001}
				if who := (n + i + int(at/(2*domain.Hour))) % 4; who > 0 {
					devices[i].Workspace = fmt.Sprintf("team-%d", who)
					devices[i].Deployment = fmt.Sprintf("job-%d", (n+i)%5)
				}
			}
			l.Append(domain.Envelope{
				Source: "reporter/c1/" + node, Cluster: "c1", Time: at + step,
				Event: Sample(node, domain.Interval{From: at, To: at + step}, devices...),
			})
		}
	}
	return l
}
