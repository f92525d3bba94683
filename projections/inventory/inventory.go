package inventory

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Filter selects what an inventory shows; empty fields match all. At is the time of the inventory.
type Filter struct {
	Workspace string // that owns the cluster
	Cluster   string
	Region    string
	At        domain.Instant
}

// Inventory is the hardware at a time, and the inconsistencies found.
type Inventory struct {
	Position   string         `json:"position"`
	At         domain.Instant `json:"at"`
	Clusters   []ClusterEntry `json:"clusters"`
	Counts     []GPUCount     `json:"gpu_counts"` // of nodes in service
	Assets     []AssetEntry   `json:"assets"`
	Exceptions []Exception    `json:"exceptions"` // by kind, subject and detail
	registry.Completeness
}

// ClusterEntry is a cluster with its nodes in service.
type ClusterEntry struct {
	Cluster        string               `json:"cluster"`
	Registered     bool                 `json:"registered"` // false: events name it, but it was not declared
	Workspace      string               `json:"workspace"`  // owner
	Name           string               `json:"name,omitempty"`
	Provider       string               `json:"provider"`
	ProviderClass  domain.ProviderClass `json:"provider_class"`
	Region         string               `json:"region"`
	Country        string               `json:"country,omitempty"` // of the region, if that was defined
	Shards         uint32               `json:"shards"`            // of its telemetry and hardware events; 1: none
	Certifications []CertificationOf    `json:"certifications"`
	Nodes          []NodeEntry          `json:"nodes"`
	// UnregisteredNodes report without a declaration. They are not counted.
	UnregisteredNodes []UnregisteredNode `json:"unregistered_nodes"` // by node
}

// UnregisteredNode is an undeclared node that reports.
type UnregisteredNode struct {
	Node          string          `json:"node"`
	LastTelemetry domain.Instant  `json:"last_telemetry,omitempty"` // empty for a node that reported only faults
	Health        Health          `json:"health"`
	GPUs          []UndeclaredGPU `json:"gpus"` // as last reported, or with faults; by id
}

// UndeclaredGPU is a GPU of an undeclared node.
type UndeclaredGPU struct {
	ID     domain.GPUID `json:"uuid"`
	MIG    []string     `json:"mig,omitempty"` // profiles of its instances, as last observed
	Failed bool         `json:"failed"`        // a fatal fault without a return since
}

// CertificationOf is a certification of a cluster and its source.
type CertificationOf struct {
	Certification string         `json:"certification"`
	From          string         `json:"from"`               // cluster, provider, or registration: stated without evidence
	ValidTo       domain.Instant `json:"valid_to,omitempty"` // none for a registration
	Evidence      string         `json:"evidence,omitempty"`
}

// NodeEntry is a node in service.
type NodeEntry struct {
	Node               string              `json:"node"`
	Provider           string              `json:"provider,omitempty"` // if it differs from the cluster's
	BillingAccount     string              `json:"billing_account,omitempty"`
	ResourceID         string              `json:"resource_id,omitempty"`
	SKU                string              `json:"sku,omitempty"`
	Zone               string              `json:"zone,omitempty"`
	BillingModel       domain.BillingModel `json:"billing_model,omitempty"`
	CPUMilli           uint64              `json:"cpu_milli"`
	MemoryMiB          uint64              `json:"memory_mib"`
	FabricDomain       string              `json:"fabric_domain,omitempty"`
	DriverVersion      string              `json:"driver_version,omitempty"`
	CUDAVersion        string              `json:"cuda_version,omitempty"`
	DedicatedWorkspace string              `json:"dedicated_workspace,omitempty"`
	DescribedFrom      domain.Instant      `json:"described_from"` // start of this description
	LastTelemetry      domain.Instant      `json:"last_telemetry,omitempty"`
	Health             Health              `json:"health"`
	GPUs               []GPUEntry          `json:"gpus"`
}

// GPUEntry is a declared GPU.
type GPUEntry struct {
	ID         domain.GPUID `json:"uuid"`
	IDDerived  bool         `json:"uuid_derived,omitempty"` // derived from names, because the source gave none
	Index      uint32       `json:"index"`
	Model      string       `json:"model"`       // as the catalogue spells it, else as declared
	ModelKnown bool         `json:"model_known"` // in the catalogue
	MemoryMiB  uint64       `json:"memory_mib,omitempty"`
	MIG        []string     `json:"mig,omitempty"` // profiles of its instances, as last observed
	Failed     bool         `json:"failed"`        // a fatal fault without a return since
	// LastTelemetry is the end of the last report of the GPU itself, under any name of its node.
	LastTelemetry domain.Instant `json:"last_telemetry,omitempty"`
}

// GPUCount counts GPUs in service.
type GPUCount struct {
	Region        string               `json:"region"`
	Model         string               `json:"model"`
	ProviderClass domain.ProviderClass `json:"provider_class"`
	GPUs          int                  `json:"gpus"`
}

// AssetEntry is owned hardware on the books.
type AssetEntry struct {
	Cluster string `json:"cluster"`
	domain.AssetAcquired
	Disposed domain.Instant `json:"disposed,omitempty"`
}

// Exception is an inconsistency in the fleet.
type Exception struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Detail  string `json:"detail"`
}

// The kinds of exceptions.
const (
	GPUInTwoNodes         = "gpu_in_two_nodes"       // one UUID declared by several nodes in service
	GPUUnderTwoNames      = "gpu_under_two_names"    // one UUID reported under the names of several nodes
	TwoAgentsOfOneName    = "two_agents_of_one_name" // two machines report as one node
	NodeInTwoClusters     = "node_in_two_clusters"   // one machine in service in several clusters
	NodeUnregistered      = "node_unregistered"      // reported, never declared
	NodeNeverSeen         = "node_never_seen"        // declared, never reported
	NodeNotInService      = "node_not_in_service"    // reported when it was not in service
	GPUUndeclared         = "gpu_undeclared"         // reported by a declared node that does not declare it
	GPUNotReported        = "gpu_not_reported"       // declared, and missing in the node's last report
	ClusterUnregistered   = "cluster_unregistered"   // events name it, but it was not declared
	NamespaceUnmapped     = "namespace_unmapped"     // its pods held GPUs in a last report, and no mapping rule says who pays
	WorkspaceUnregistered = "workspace_unregistered" // named by a cluster, a deployment or a last report, but not registered
	UnknownGPUModel       = "gpu_model_unknown"      // not in the catalogue; one for each cluster
	CollectorIsSilent     = "collector_silent"       // a node's agent measures nothing
	SamplesDropped        = "samples_dropped"        // a node's agent had to drop samples
	StreamIncomplete      = "stream_incomplete"      // events are missing
	StreamAhead           = "stream_ahead_of_clock"  // events dated after they were appended
)

// maxAhead is how far a source's clock may run before the log's.
const maxAhead = 5 * 60 * domain.Second

// New returns the fleet at a time. Exceptions about streams are in every inventory that shows their
// cluster, because the content of missing events is unknown.
func New(view projections.View, filter Filter) (*Inventory, error) {
	f, err := ReadFleet(view)
	if err != nil {
		return nil, err
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	certified, err := registry.Certifications(view, a, filter.At)
	if err != nil {
		return nil, err
	}
	country, err := Countries(view, filter.At)
	if err != nil {
		return nil, err
	}
	seen, err := lastReports(view, f.Index, filter.At)
	if err != nil {
		return nil, err
	}
	shared, err := FindAliases(view, f.Index, projections.Query{To: projections.HourOf(filter.At-1) + 1, Last: true})
	if err != nil {
		return nil, err
	}
	under, err := shared.entered(view)
	if err != nil {
		return nil, err
	}
	inv := &Inventory{
		Position: view.Position().String(), At: filter.At, Clusters: []ClusterEntry{}, Counts: []GPUCount{},
		Assets: []AssetEntry{}, Exceptions: []Exception{},
	}
	inv.Completeness, err = registry.CompletenessOf(view, filter.Workspace, filter.Cluster, domain.Interval{},
		domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware, domain.TopicDeployments)
	if err != nil {
		return nil, err
	}
	named, err := registry.ClustersNamed(view)
	if err != nil {
		return nil, err
	}
	entries := map[string]*ClusterEntry{}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		e := ClusterEntry{
			Cluster: id, Shards: 1, Certifications: []CertificationOf{}, Nodes: []NodeEntry{},
			UnregisteredNodes: []UnregisteredNode{},
		}
		if c, owner := f.Cluster(id, filter.At); c != nil {
			e.Registered, e.Workspace, e.Name = true, owner, c.Name
			e.Provider, e.ProviderClass, e.Region = c.Provider, c.ProviderClass, c.Region
			e.Country, e.Shards = country[c.Region], max(1, c.Shards)
			e.certify(c, certified)
		}
		if (filter.Workspace == "" || filter.Workspace == e.Workspace) &&
			(filter.Cluster == "" || filter.Cluster == id) && (filter.Region == "" || filter.Region == e.Region) {
			entries[id] = &e
			if !e.Registered {
				inv.except(ClusterUnregistered, id, fmt.Sprintf("%s names it, and no ClusterRegistered does", named[id]))
			}
		}
	}
	if err := inv.nodes(view, f, shared, seen, under, entries); err != nil {
		return nil, err
	}
	inv.unregistered(f, seen, entries)
	inv.twoNames(f, under, entries)
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		inv.Clusters = append(inv.Clusters, *entries[id])
	}
	inv.count()
	inv.conflicts(f, entries)
	if err := inv.assets(view, entries); err != nil {
		return nil, err
	}
	known, err := registry.Registered(view, a)
	if err != nil {
		return nil, err
	}
	if err := inv.workspaces(view, seen, entries, known); err != nil {
		return nil, err
	}
	inv.silent(f, seen, entries)
	if err := inv.streams(view, filter.Cluster); err != nil {
		return nil, err
	}
	if err := inv.conflicting(view, filter.Cluster); err != nil {
		return nil, err
	}
	if err := inv.uncompared(view, filter.Cluster); err != nil {
		return nil, err
	}
	slices.SortFunc(inv.Exceptions, func(x, y Exception) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Detail, y.Detail))
	})
	return inv, nil
}

func (inv *Inventory) except(kind, subject, detail string) {
	inv.Exceptions = append(inv.Exceptions, Exception{kind, subject, detail})
}

func (e *ClusterEntry) certify(c *domain.ClusterRegistered, certified []registry.CertificationEntry) {
	for _, held := range certified {
		from := "cluster"
		if held.Cluster != e.Cluster || held.Cluster == "" {
			if from = "provider"; held.Provider == "" || held.Provider != e.Provider {
				continue
			}
		}
		e.Certifications = append(e.Certifications, CertificationOf{held.Certification, from, held.Valid.To, held.Evidence})
	}
	for _, name := range c.Certifications {
		e.Certifications = append(e.Certifications, CertificationOf{Certification: name, From: "registration"})
	}
	slices.SortFunc(e.Certifications, func(x, y CertificationOf) int {
		return cmp.Or(
			cmp.Compare(x.Certification, y.Certification), cmp.Compare(x.From, y.From),
			cmp.Compare(x.Evidence, y.Evidence),
		)
	})
}

// nodes adds the nodes in service, and exceptions about nodes.
func (inv *Inventory) nodes(
	view projections.View, f *Fleet, shared *Aliases, seen map[NodeName]*lastSeen, under map[NodeName]*underOther,
	entries map[string]*ClusterEntry,
) error {
	type modelOf struct{ cluster, model string }
	type unknownModel struct {
		gpus  int
		first string // node
	}
	unknown := map[modelOf]*unknownModel{}
	for _, n := range f.Nodes {
		e := entries[n.Cluster]
		if e == nil {
			continue
		}
		subject := n.Cluster + "/" + n.Node
		last := seen[n.NodeName]
		if len(n.Service) == 0 {
			continue
		}
		if last != nil && n.At(last.at-1) == nil {
			inv.except(NodeNotInService, subject, fmt.Sprintf("it reported up to %s, when it was not in service", last.at))
		}
		s := n.At(inv.At)
		if s == nil {
			continue
		}
		r := s.Node
		entry := NodeEntry{
			Node: n.Node, Provider: r.Provider, BillingAccount: r.BillingAccount, ResourceID: r.ResourceID,
			SKU: r.SKU, Zone: r.Zone,
			BillingModel: r.BillingModel, CPUMilli: r.CPUMilli, MemoryMiB: r.MemoryMiB, FabricDomain: r.FabricDomain,
			DriverVersion: r.DriverVersion, CUDAVersion: r.CUDAVersion, DedicatedWorkspace: r.DedicatedWorkspace,
			DescribedFrom: s.From, Health: n.HealthAt(inv.At), GPUs: []GPUEntry{},
		}
		other := under[n.NodeName]
		switch {
		case last == nil && other != nil:
			entry.LastTelemetry = other.at
		case last == nil:
			inv.except(NodeNeverSeen, subject,
				fmt.Sprintf("declared from %s with %d GPUs, and it has not reported", n.Service[0].From, len(r.GPUs)))
		default:
			entry.LastTelemetry = last.at
		}
		declared := map[domain.GPUID]bool{}
		for i, g := range r.GPUs {
			if s.GPUs[i].gone(inv.At) {
				continue
			}
			declared[g.ID] = true
			_, known := domain.LookupGPU(g.Model)
			x := GPUEntry{
				ID: g.ID, IDDerived: r.IDsDerived, Index: g.Index, Model: s.GPUs[i].Model, ModelKnown: known,
				MemoryMiB: g.MemoryMiB,
			}
			x.Failed = n.failed(g.ID, inv.At)
			if !known {
				u := unknown[modelOf{n.Cluster, g.Model}]
				if u == nil {
					u = &unknownModel{first: n.Node}
					unknown[modelOf{n.Cluster, g.Model}] = u
				}
				u.gpus++
			}
			if last != nil {
				x.MIG, x.LastTelemetry = last.mig[g.ID], last.gpu[g.ID]
				if _, reported := last.gpu[g.ID]; !reported && (other == nil || other.gpus[g.ID] == nil) {
					inv.except(GPUNotReported, g.ID.String(),
						fmt.Sprintf("%s declares it and last reported without it at %s", subject, last.at))
				}
			}
			if x.LastTelemetry == 0 {
				var err error
				if x.LastTelemetry, err = shared.lastReport(view, n.NodeName, g.ID, inv.At); err != nil {
					return err
				}
			}
			entry.GPUs = append(entry.GPUs, x)
		}
		if last != nil {
			for id := range last.gpu {
				if !declared[id] {
					inv.except(GPUUndeclared, id.String(),
						fmt.Sprintf("%s reported it at %s and does not declare it", subject, last.at))
				}
			}
		}
		e.Nodes = append(e.Nodes, entry)
	}
	for m, u := range unknown {
		inv.except(UnknownGPUModel, m.model, fmt.Sprintf("%d GPUs in %s, the first in node %s", u.gpus, m.cluster, u.first))
	}
	return nil
}

// unregistered adds the undeclared nodes that report, by samples or by faults.
func (inv *Inventory) unregistered(f *Fleet, seen map[NodeName]*lastSeen, entries map[string]*ClusterEntry) {
	names := map[NodeName]bool{}
	for name := range seen {
		names[name] = true
	}
	for _, n := range f.Nodes {
		// What a scheduler says of a node is not a report of its GPUs.
		if slices.ContainsFunc(n.Health, func(v projections.Version) bool {
			return v.Order.Effective <= inv.At && !projections.Scraped(v.Order.Source)
		}) {
			names[n.NodeName] = true
		}
	}
	for name := range names {
		n, e, last := f.Index[name], entries[name.Cluster], seen[name]
		if e == nil || n != nil && len(n.Service) > 0 {
			continue
		}
		if n == nil {
			n = &NodeTime{NodeName: name}
		}
		entry := UnregisteredNode{Node: name.Node, Health: n.HealthAt(inv.At), GPUs: []UndeclaredGPU{}}
		gpus := map[domain.GPUID]bool{}
		detail := "it reported no GPUs"
		if last != nil {
			entry.LastTelemetry = last.at
			for id := range last.gpu {
				gpus[id] = true
			}
			detail = fmt.Sprintf("it reported %d GPUs, last at %s,", len(gpus), last.at)
		}
		for _, d := range n.Down {
			if d.Failed && d.From <= inv.At && inv.At < d.To && d.GPU != (domain.GPUID{}) {
				gpus[d.GPU] = true
			}
		}
		for id := range gpus {
			g := UndeclaredGPU{ID: id, Failed: n.failed(id, inv.At)}
			if last != nil {
				g.MIG = slices.Clone(last.mig[id])
			}
			entry.GPUs = append(entry.GPUs, g)
		}
		slices.SortFunc(entry.GPUs, func(a, b UndeclaredGPU) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		e.UnregisteredNodes = append(e.UnregisteredNodes, entry)
		detail += ` and is not registered, so it counts nowhere: register it ` +
			`("quartermaster node register", an import), or let its agent do so (register.enabled)`
		if h := entry.Health; h.State != "ok" {
			detail += fmt.Sprintf("; %s since %s: %s", h.State, h.Since, h.Reason)
		}
		inv.except(NodeUnregistered, name.Cluster+"/"+name.Node, detail)
	}
	for _, e := range entries {
		slices.SortFunc(e.UnregisteredNodes, func(a, b UnregisteredNode) int { return cmp.Compare(a.Node, b.Node) })
	}
}

// count counts the GPUs of the shown nodes.
func (inv *Inventory) count() {
	type key struct {
		region, model string
		class         domain.ProviderClass
	}
	counts := map[key]int{}
	for _, c := range inv.Clusters {
		counted := map[domain.GPUID]bool{} // a GPU that two nodes declare counts once
		for _, n := range c.Nodes {
			for _, g := range n.GPUs {
				if counted[g.ID] {
					continue
				}
				counted[g.ID] = true
				counts[key{c.Region, g.Model, c.ProviderClass}]++
			}
		}
	}
	for k, n := range counts {
		inv.Counts = append(inv.Counts, GPUCount{k.region, k.model, k.class, n})
	}
	slices.SortFunc(inv.Counts, func(x, y GPUCount) int {
		return cmp.Or(
			cmp.Compare(x.Region, y.Region), cmp.Compare(x.Model, y.Model),
			cmp.Compare(x.ProviderClass, y.ProviderClass),
		)
	})
}

// twoNamesFor is the time for which the inventory lists a node whose GPUs are also reported under
// another name.
const twoNamesFor = 31 * domain.Day

// twoNames finds the names under which GPUs of other nodes were reported.
func (inv *Inventory) twoNames(f *Fleet, under map[NodeName]*underOther, shown map[string]*ClusterEntry) {
	for name, other := range under {
		if shown[name.Cluster] == nil || other.at < inv.At-twoNamesFor {
			continue
		}
		homes := map[string][]domain.GPUID{}
		for id, home := range other.gpus {
			isID := func(g Declared) bool { return g.ID == id }
			n := f.Index[name]
			if n != nil && n.At(other.at-1) != nil && slices.ContainsFunc(n.At(other.at-1).GPUs, isID) {
				continue // both declare it, which is reported already
			}
			homes[home.Node] = append(homes[home.Node], id)
		}
		for home, gpus := range homes {
			first := slices.MinFunc(gpus, func(a, b domain.GPUID) int { return bytes.Compare(a[:], b[:]) })
			inv.except(GPUUnderTwoNames, name.Cluster+"/"+name.Node, fmt.Sprintf(
				"%d GPUs of node %s are reported under this name too, last before %s, the first %s: "+
					"each counts once, under %s; relabel the exporter's hostname",
				len(gpus), home, other.at, first, home))
		}
	}
}

// conflicts finds things that two nodes or clusters claim at once, even if only one of them is
// shown.
func (inv *Inventory) conflicts(f *Fleet, shown map[string]*ClusterEntry) {
	gpus := map[domain.GPUID][]NodeName{}
	ids := map[string][]string{}
	for _, n := range f.Nodes {
		s := n.At(inv.At)
		if s == nil {
			continue
		}
		// Names of nodes are those of their cluster: a supplier's id tells machines apart that have the same one.
		id := n.Node
		if s.Node.ResourceID != "" {
			id = strings.TrimPrefix(s.Node.BillingAccount+"/"+s.Node.ResourceID, "/")
		}
		ids[id] = append(ids[id], n.Cluster)
		for i := range s.GPUs {
			if g := &s.GPUs[i]; !g.gone(inv.At) {
				gpus[g.ID] = append(gpus[g.ID], n.NodeName)
			}
		}
	}
	for id, names := range gpus {
		if len(names) > 1 && slices.ContainsFunc(names, func(n NodeName) bool { return shown[n.Cluster] != nil }) {
			var where []string
			for _, n := range names {
				where = append(where, n.Cluster+"/"+n.Node)
			}
			inv.except(GPUInTwoNodes, id.String(), fmt.Sprintf("declared by %v", where))
		}
	}
	for id, clusters := range ids {
		clusters = slices.Compact(clusters)
		if len(clusters) > 1 && slices.ContainsFunc(clusters, func(c string) bool { return shown[c] != nil }) {
			inv.except(NodeInTwoClusters, id, fmt.Sprintf("in service in %v", clusters))
		}
	}
}

func (inv *Inventory) assets(view projections.View, shown map[string]*ClusterEntry) error {
	err := view.Scan(projections.Query{Table: projections.TableAssets}, func(k projections.Key, row projections.Row) error {
		if shown[k.Scope] == nil {
			return nil
		}
		var e *AssetEntry
		for _, v := range row.(*projections.History).Versions {
			if v.Order.Effective > inv.At {
				break
			}
			switch ev := v.Event.(type) {
			case *domain.AssetAcquired:
				e = &AssetEntry{Cluster: k.Scope, AssetAcquired: *ev}
			case *domain.AssetRevised:
				if e != nil && ev.LifeMonths > 0 {
					e.LifeMonths = ev.LifeMonths
				}
				if e != nil && ev.Residual.Currency != "" {
					e.Residual = ev.Residual
				}
			case *domain.AssetDisposed:
				if e != nil {
					e.Disposed = ev.At
				}
			}
		}
		if e != nil {
			inv.Assets = append(inv.Assets, *e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read assets: %w", err)
	}
	return nil
}

// workspaces finds unregistered workspaces that are named by what is shown.
func (inv *Inventory) workspaces(
	view projections.View, seen map[NodeName]*lastSeen, shown map[string]*ClusterEntry, known map[string]bool,
) error {
	namedBy := map[string][]string{} // clusters first, then deployments, then nodes
	name := func(workspace, by string) {
		if workspace != "" && !known[workspace] {
			namedBy[workspace] = append(namedBy[workspace], by)
		}
	}
	for _, c := range inv.Clusters {
		name(c.Workspace, "cluster "+c.Cluster)
	}
	err := view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(inv.At); v != nil && shown[k.Scope] != nil {
			if _, ok := v.Event.(*domain.DeploymentChanged); ok {
				name(v.Workspace, "deployment "+k.Scope+"/"+k.ID)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	unmapped := map[string]int{} // nodes, by cluster and namespace
	for _, n := range slices.SortedFunc(maps.Keys(seen), func(a, b NodeName) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	}) {
		if shown[n.Cluster] != nil {
			for workspace := range seen[n].holders {
				if workspace != Unmapped {
					name(workspace, "the last report of "+n.Cluster+"/"+n.Node)
				}
			}
			for namespace := range seen[n].unmapped {
				unmapped[n.Cluster+"/"+namespace]++
			}
		}
	}
	for namespace, nodes := range unmapped {
		inv.except(NamespaceUnmapped, namespace, fmt.Sprintf(
			"it held GPUs of %d nodes, and no rule says who pays, so its workspace is %q: "+
				"for pods add a rule to mapping_rules of \"quartermaster apply\", "+
				"for jobs of Slurm (job) one to attribution.rules of the node-reporter", nodes, Unmapped))
	}
	for workspace, by := range namedBy {
		detail := by[0]
		if more := len(by) - 1; more > 0 {
			detail += fmt.Sprintf(" and %d more", more)
		}
		inv.except(WorkspaceUnregistered, workspace, "named by "+detail+", and nobody registered it")
	}
	return nil
}

func (inv *Inventory) streams(view projections.View, cluster string) error {
	agents := map[string]map[uint64]domain.Instant{} // by source and incarnation, the last event
	err := view.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
		s := row.(*projections.Stream)
		// An incarnation that has ended was followed by another on the same machine.
		current := s.Past == nil && s.Ended == 0 && s.Last >= inv.At-domain.Day
		if strings.HasPrefix(s.Source, registry.NodeSources) && current && !registry.OfAnother(s.Source, cluster) {
			source := strings.Clone(s.Source)
			if agents[source] == nil {
				agents[source] = map[uint64]domain.Instant{}
			}
			agents[source][s.Incarnation] = max(agents[source][s.Incarnation], s.Last)
		}
		if s.Ahead > maxAhead && !registry.OfAnother(s.Source, cluster) {
			inv.except(StreamAhead, streamName(k, s), fmt.Sprintf(
				"an event is dated %s after it was appended: the source's clock is wrong",
				s.Ahead.Time().Sub(domain.Instant(0).Time())))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read streams: %w", err)
	}
	for source, lives := range agents {
		inv.twoAgents(strings.TrimPrefix(source, registry.NodeSources), lives)
	}
	return registry.EachAwaited(view, func(k projections.Key, s *projections.Stream, n uint64) {
		if !registry.OfAnother(s.Source, cluster) {
			inv.except(StreamIncomplete, streamName(k, s), fmt.Sprintf("%d of %d events are missing", n, s.Mark))
		}
	})
}

// twoAgents finds agents of one name that reported at the same time. The incarnation of an agent is
// its start time, in microseconds since 1970. A clock that was set back by less than a minute
// between two incarnations does not count as a second agent.
func (inv *Inventory) twoAgents(subject string, lives map[uint64]domain.Instant) {
	started := slices.Sorted(maps.Keys(lives))
	for i := 1; i < len(started); i++ {
		start := domain.Instant(min(started[i], math.MaxInt64/1000)) * 1000
		for _, before := range started[:i] {
			both := min(lives[before], lives[started[i]])
			if both <= start+60*domain.Second {
				continue
			}
			inv.except(TwoAgentsOfOneName, subject, fmt.Sprintf(
				"agents started at %s and %s both reported up to %s: two machines use this name, "+
					"and each takes the other's GPUs out of service; "+
					"give each its own (node in the configuration of the node-reporter)",
				domain.Instant(before)*1000, start, both))
			return
		}
	}
}

func streamName(k projections.Key, s *projections.Stream) string {
	if s.Past != nil {
		return fmt.Sprintf("%s %s, an incarnation that has ended", k.Scope, s.Source)
	}
	return fmt.Sprintf("%s %s#%d", k.Scope, s.Source, s.Incarnation)
}

// Countries returns the country of each region, by the latest definition.
func Countries(view projections.View, at domain.Instant) (map[string]string, error) {
	out, orders := map[string]string{}, map[string]domain.Precedence{}
	err := view.Scan(projections.Query{Table: projections.TableRegions}, func(k projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(at); v != nil {
			if before, twice := orders[k.ID]; !twice || v.Order.After(before) {
				out[k.ID], orders[k.ID] = v.Event.(*domain.RegionDefined).Country, v.Order
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read regions: %w", err)
	}
	return out, nil
}

// silence is a time in which a node's collector reports nothing.
type silence struct {
	since  domain.Instant
	reason string
}

// silent finds collectors that are silent at the inventory's time, and losses of the month before.
// A silence ends when it is reported to have ended, and with a report of the node's agent for a
// later time. It does not end with the incarnation of the agent that reported it: the next one
// knows of it, and reports only its end.
func (inv *Inventory) silent(f *Fleet, seen map[NodeName]*lastSeen, shown map[string]*ClusterEntry) {
	open := map[NodeName]map[string]silence{} // by source
	for _, n := range f.Nodes {
		if shown[n.Cluster] == nil {
			continue
		}
		var losses []registry.Loss
		for i := range n.Health {
			v := &n.Health[i]
			if v.Order.Effective > inv.At {
				break
			}
			source := v.Order.Source
			switch e := v.Event.(type) {
			case *domain.CollectorSilent:
				if e.Silent.To > 0 {
					delete(open[n.NodeName], source)
					continue
				}
				if open[n.NodeName] == nil {
					open[n.NodeName] = map[string]silence{}
				}
				open[n.NodeName][source] = silence{e.Silent.From, e.Reason}
			case *domain.SpoolDropped:
				if l, ok := registry.LossOf(n.Cluster, v); ok && v.Order.Effective >= inv.At-registry.SpokenFor {
					losses = append(losses, l)
				}
			}
		}
		if len(losses) > 0 {
			last, total := &losses[len(losses)-1], uint64(0)
			for i := range losses {
				total += min(losses[i].Events, math.MaxUint64-total)
			}
			detail := fmt.Sprintf("%d events were dropped, %s", total, last)
			if len(losses) > 1 {
				detail = fmt.Sprintf("%d events were dropped in %d losses; of the last %s", total, len(losses), last)
			}
			inv.except(SamplesDropped, n.Cluster+"/"+n.Node, detail+": "+last.Reason)
		}
	}
	for name, by := range open {
		for _, s := range by {
			if last := seen[name]; last != nil && last.agent > s.since {
				continue
			}
			inv.except(CollectorIsSilent, name.Cluster+"/"+name.Node, fmt.Sprintf(
				"its collector measures nothing since %s: %s", s.since, cmp.Or(s.reason, "it did not say why")))
		}
	}
}
