package domain

// Events of qm.deployments, keyed by cluster: what should run and what does.

// WorkloadClass distinguishes workloads that need different service.
type WorkloadClass string

// The classes of workloads.
const (
	ClassTraining   WorkloadClass = "training"
	ClassFineTuning WorkloadClass = "fine_tuning"
	ClassBatch      WorkloadClass = "batch"
	ClassServing    WorkloadClass = "serving"
)

// GPUNeed is what one replica needs.
type GPUNeed struct {
	Models     []string `json:"models,omitempty"`      // allowed GPU models; none: any
	Count      uint32   `json:"count,omitempty"`       // whole GPUs on one node
	Milli      uint32   `json:"milli,omitempty"`       // thousandths of one GPU, when Count is 1
	MIGProfile string   `json:"mig_profile,omitempty"` // instead of Count
	MemoryMiB  uint64   `json:"gpu_memory_mib,omitempty"`
	CPUMilli   uint64   `json:"cpu_milli,omitempty"`
	RAMMiB     uint64   `json:"ram_mib,omitempty"`
	GangNodes  uint32   `json:"gang_nodes,omitempty"` // nodes that must start together in one fabric domain
}

// DeploymentChanged declares a model or job that a workspace runs in a cluster, or changes it.
type DeploymentChanged struct {
	Deployment     string        `json:"deployment"`
	Model          string        `json:"model,omitempty"`
	Tier           string        `json:"tier,omitempty"`
	Environment    string        `json:"environment,omitempty"`
	Class          WorkloadClass `json:"class"`
	Replicas       uint32        `json:"replicas"`
	Need           GPUNeed       `json:"need"`
	Countries      []string      `json:"countries,omitempty"` // residency
	Certifications []string      `json:"certifications,omitempty"`
	MaxPerNode     uint32        `json:"max_per_node,omitempty"` // anti-co-location; 0: no bound
	Dedicated      bool          `json:"dedicated,omitempty"`
	Interruptible  bool          `json:"interruptible,omitempty"`
	LatencyMicros  uint64        `json:"latency_micros,omitempty"` // budget for the network round trip
	Priority       int32         `json:"priority,omitempty"`
}

// DeploymentRemoved ends a deployment.
type DeploymentRemoved struct {
	Deployment string `json:"deployment"`
	Reason     string `json:"reason,omitempty"`
}

// ReplicasObserved reports how many replicas of a model run, declared or not.
type ReplicasObserved struct {
	Deployment string `json:"deployment,omitempty"` // empty: not known to belong to one
	Model      string `json:"model"`
	Tier       string `json:"tier,omitempty"`
	Ready      uint32 `json:"ready"`
	Desired    uint32 `json:"desired"`
}
