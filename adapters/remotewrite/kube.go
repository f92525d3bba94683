package remotewrite

import (
	"maps"
	"math"
	"slices"

	"quartermaster/domain"
)

// kube is the last known state of a cluster's deployments and nodes. No count depends on it. It
// only avoids repeating unchanged statements at each scrape. Statements are repeated after restate,
// so that two instances that see different parts of the cluster soon agree.
type kube struct {
	models      map[string]served // by deployment: the model that its servers report
	deployments map[string]*replicas
	controllers int // in deployments
	nodes       map[string]*nodeState
	faults      map[faultKey]count // last value of each fault gauge
}

type served struct{ model, tier string }

// replicas are the replicas of a deployment. A deployment is one controller in Kubernetes, unless a
// mapping rule joins several into one deployment. Then their replicas are added up.
type replicas struct {
	workspace   string
	controllers map[string]*controller // by namespace and name
	stated      [2]uint64
	statedAt    int64
}

type controller struct{ desired, ready count }

// sum returns the numbers of ready and desired replicas, and their time. known is false while part
// of it is missing.
func (r *replicas) sum() (now [2]uint64, at int64, known bool) {
	for _, c := range r.controllers {
		if c.desired.time == 0 || c.ready.time == 0 {
			return now, 0, false
		}
		now[0], now[1] = now[0]+c.ready.value, now[1]+c.desired.value
		at = max(at, c.ready.time, c.desired.time)
	}
	return now, at, true
}

// count is a value with its time in milliseconds since 1970; time 0 means not seen yet.
type count struct {
	value uint64
	time  int64
}

type nodeState struct {
	ready, unschedulable count
	stated               string
	statedAt             int64
	// mended says that a repair cordon from before this process started has been ended.
	mended bool
}

const (
	restate = 10 * 60_000 // milliseconds
	// maxFacts bounds each map. A cluster has a few thousand nodes.
	maxFacts = 20_000
)

func newKube() kube {
	return kube{
		models:      map[string]served{},
		deployments: map[string]*replicas{},
		nodes:       map[string]*nodeState{},
		faults:      map[faultKey]count{},
	}
}

// serves records which model a deployment serves.
func (c *cluster) serves(deployment, model, tier string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kube.models) >= maxFacts {
		clear(c.kube.models)
	}
	c.kube.models[deployment] = served{model, tier}
}

// factSample is a sample of kube-state-metrics.
type factSample struct {
	fact       fact
	name       string // deployment or node
	workspace  string
	controller string // of a deployment
	samples    int
	count
}

// fact takes a series of kube-state-metrics.
func (s *scan) fact(m *metric) {
	n := len(s.samples)
	f := factSample{fact: m.fact}
	var name []byte
	if m.family == familyNodes {
		if m.fact == factCondition && (string(s.values[keyCondition]) != "Ready" || string(s.values[keyStatus]) != "true") {
			s.drop(otherSeries, n)
			return
		}
		name = s.values[keyNode]
		if len(name) == 0 {
			s.drop(noNode, n)
			return
		}
	} else {
		name = s.first(keyDeployment, keyStatefulSet)
		if len(name) == 0 {
			s.drop(noServer, n)
			return
		}
	}
	namespace := s.first(keyExportedNamespace, keyNamespace)
	if !plain(name) || !plain(namespace) {
		s.drop(badLabel, n)
		return
	}
	f.name = string(name)
	if m.family == familyReplicas {
		kind := "deployment"
		if len(s.values[keyDeployment]) == 0 {
			kind = "statefulset"
		}
		h := s.belongs(namespace, name, false)
		if len(h.deployment) > maxText {
			s.drop(badLabel, n)
			return
		}
		f.name, f.workspace, f.controller = h.deployment, h.workspace, kind+"\x00"+string(namespace)+"\x00"+string(name)
	}
	// Of several samples the last one counts. The samples before it count as part of it.
	for _, x := range s.samples {
		v, ok := s.usable(x, m)
		if !ok {
			continue
		}
		f.samples++
		if x.time >= f.time {
			f.count = count{v, x.time}
		}
	}
	if f.time > 0 {
		s.spend(perTarget + 4*(len(name)+len(namespace)) + perEvent)
		s.facts = append(s.facts, f)
	}
}

func (c *count) take(n count) {
	if n.time >= c.time {
		*c = n
	}
}

// statements appends events for facts that changed or were not stated for a while. The caller MUST
// call the returned function once they are in the log.
func (s *scan) statements(events []domain.Envelope) ([]domain.Envelope, func()) {
	if len(s.facts) == 0 {
		return events, func() {}
	}
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kube
	if k.controllers >= maxFacts {
		clear(k.deployments)
		k.controllers = 0
	}
	if len(k.nodes) >= maxFacts {
		clear(k.nodes)
	}
	deployments, nodes := map[string]bool{}, map[string]bool{} // whether they are stated
	for _, f := range s.facts {
		switch f.fact {
		case factDesired, factReady:
			r := k.deployments[f.name]
			if r == nil {
				r = &replicas{controllers: map[string]*controller{}, statedAt: math.MinInt64 / 2}
				k.deployments[f.name] = r
			}
			r.workspace = f.workspace
			one := r.controllers[f.controller]
			if one == nil {
				one = &controller{}
				r.controllers[f.controller] = one
				k.controllers++
			}
			if f.fact == factDesired {
				one.desired.take(f.count)
			} else {
				one.ready.take(f.count)
			}
			deployments[f.name] = false
		default:
			n := k.nodes[f.name]
			if n == nil {
				n = &nodeState{statedAt: math.MinInt64 / 2}
				k.nodes[f.name] = n
			}
			if f.fact == factCondition {
				n.ready.take(f.count)
			} else {
				n.unschedulable.take(f.count)
			}
			nodes[f.name] = false
		}
	}
	var done []func()
	for _, name := range slices.Sorted(maps.Keys(deployments)) {
		r := k.deployments[name]
		model, ok := k.models[name]
		now, at, known := r.sum()
		if !ok || !known {
			continue // no model server of it is known, or only half of its counts
		}
		if now == r.stated && at < r.statedAt+restate {
			continue
		}
		events = append(events, domain.Envelope{
			Cluster: c.name, Workspace: r.workspace, Subject: name, Time: domain.Instant(at) * 1_000_000,
			Event: &domain.ReplicasObserved{
				Deployment: name, Model: model.model, Tier: model.tier,
				Ready: uint32(now[0]), Desired: uint32(now[1]),
			},
		})
		done = append(done, func() { r.stated, r.statedAt = now, at })
		deployments[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := k.nodes[name]
		state := n.state()
		at := max(n.ready.time, n.unschedulable.time)
		// A repair cordon and a plain cordon would otherwise both last. Another instance, or this
		// process before a restart, may have stated the first one.
		changed := n.stated != "" && n.stated != state && state != "ready" && n.stated != "ready"
		mends := state == "unschedulable" && n.ready.time > 0 && !n.mended
		if state == "" || state == n.stated && at < n.statedAt+restate && !mends {
			continue
		}
		var ev domain.Event
		switch state {
		case "not ready":
			ev = &domain.NodeCordoned{Node: name, Repair: true, Reason: "kubernetes: not ready"}
		case "unschedulable":
			ev = &domain.NodeCordoned{Node: name, Reason: "kubernetes: unschedulable"}
		default:
			ev = &domain.NodeReturned{Node: name, Reason: "kubernetes: ready"}
		}
		if changed || mends {
			why := "kubernetes: ready"
			if changed {
				why = "kubernetes: no longer " + n.stated
			}
			events = append(events, domain.Envelope{Cluster: c.name, Subject: name, Time: domain.Instant(at)*1_000_000 - 1,
				Event: &domain.NodeReturned{Node: name, Reason: why}})
		}
		events = append(events, domain.Envelope{Cluster: c.name, Subject: name, Time: domain.Instant(at) * 1_000_000, Event: ev})
		mended := state == "ready" || state == "unschedulable" && (n.mended || mends)
		done = append(done, func() { n.stated, n.statedAt, n.mended = state, at, mended })
		nodes[name] = true
	}
	for _, f := range s.facts {
		if deployments[f.name] && f.controller != "" || nodes[f.name] && f.controller == "" {
			s.account.samples[mapped] += f.samples
		} else {
			s.drop(noNews, f.samples)
		}
	}
	return events, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, f := range done {
			f()
		}
	}
}

// state returns the state of a node, or "" while it is unknown.
func (n *nodeState) state() string {
	switch {
	case n.ready.time > 0 && n.ready.value == 0:
		return "not ready"
	case n.unschedulable.time > 0 && n.unschedulable.value > 0:
		return "unschedulable"
	case n.ready.time > 0 && n.unschedulable.time > 0:
		return "ready"
	}
	return ""
}
