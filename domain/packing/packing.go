// Package packing puts workloads onto nodes: whole GPUs, parts of one, CPU and
// memory, under the constraints of residency, certification, GPU model,
// placement, anti-co-location and dedication. It says how many nodes are
// needed at least, what did not fit and which constraint was in the way, and
// how many GPUs are stranded: free, and of no use to the workloads that there
// are.
package packing

// Method is the version of this package's method. A plan names it.
const Method = "packing/1"

// Node is a machine, or a kind of machine of which there are several.
type Node struct {
	ID             string // of the machine, or of the kind
	Count          int    // machines of the kind; 1 for a machine
	Cluster        string
	Region         string
	Country        string // ISO 3166-1 alpha-2, "" when not known
	Model          string // GPU model, as the catalogue spells it
	GPUs           int
	CPUMilli       int64
	MemoryMiB      int64
	Certifications []string
	Dedicated      string // workspace that alone may use it, "" for any
}

// Workload is a number of equal replicas.
type Workload struct {
	ID         string
	Workspace  string
	Class      string
	Deployment string
	Replicas   int
	// What one replica needs. GPUMilli is in thousandths: 1000 × n for n whole
	// GPUs, 1 to 999 for a part of one, 0 for none.
	GPUMilli  int64
	CPUMilli  int64
	MemoryMiB int64

	Models         []string // GPU models allowed; none: any
	Countries      []string // residency; none: any
	Certifications []string // all needed
	Clusters       []string // clusters allowed; none: any
	Dedicated      bool     // shares no node with anyone
	MaxPerNode     int      // replicas on a node at most; 0: no bound
	ApartNode      []string // ids of workloads with which it shares no node
	ApartCluster   []string // ids of workloads with which it shares no cluster
}

// Constraint is a reason for which a replica cannot be on a node.
type Constraint string

// The constraints, in the order in which they are tried: the first that rules
// a node out is the one that is counted.
const (
	ModelConstraint         Constraint = "gpu_model"
	PlacementConstraint     Constraint = "placement"
	ResidencyConstraint     Constraint = "residency"
	CertificationConstraint Constraint = "certification"
	DedicatedConstraint     Constraint = "dedicated"
	ApartConstraint         Constraint = "apart"
	MaxPerNodeConstraint    Constraint = "max_per_node"
	GPUConstraint           Constraint = "gpu"
	CPUConstraint           Constraint = "cpu"
	MemoryConstraint        Constraint = "memory"
)
