package packing

// Result is the placement, what is left over, and the proven bounds.
type Result struct {
	Method string `json:"method"`
	// Order is the order that won. It names what comes first (the largest share of a machine, the
	// most GPUs, what the fewest GPUs may take, or a mix) and which machine takes it (the snuggest,
	// the least out of proportion, or the one that strands least). "Large first" refers to the
	// machines to open.
	Order string `json:"order"`
	// Machines lists the machines on which something was placed, by node and contents.
	Machines []Machine `json:"machines"`
	// Used counts them by node or kind, including those with none used.
	Used []Used `json:"used"`
	// Unplaced lists the workloads with unplaced replicas.
	Unplaced []Unplaced `json:"unplaced"`

	NodesUsed int `json:"nodes_used"`
	// LowerBound is proven: no placement of all replicas uses fewer machines. Replicas that fit on
	// no empty machine are left out. A bound above the number of machines proves that not
	// everything fits.
	LowerBound int `json:"lower_bound"`
	// Cost is the cost of the machines used. No placement of all replicas costs less than
	// CostLowerBound. Both are 0 if no kind has a cost.
	Cost           int64 `json:"cost"`
	CostLowerBound int64 `json:"cost_lower_bound"`
	// Columns says whether column generation improved the greedy outcome.
	Columns Columns `json:"columns"`

	// In thousandths of a GPU: the need of all replicas, the need of those placed, and the capacity
	// of the machines: all in Pack, the opened ones in Need.
	GPUMilliNeeded int64 `json:"gpu_milli_needed"`
	GPUMilliPlaced int64 `json:"gpu_milli_placed"`
	GPUMilliTotal  int64 `json:"gpu_milli_total"`

	// Stranded covers the same machines as GPUMilliTotal, by GPU model.
	Stranded []Stranded `json:"stranded"`
}

// Columns is what column generation did.
type Columns struct {
	State    ColumnsState `json:"state"`
	Rounds   int          `json:"rounds"`   // of pricing
	Patterns int          `json:"patterns"` // machine contents to choose from
	Programs int          `json:"programs"` // linear programs solved
}

// ColumnsState is how column generation ended.
type ColumnsState string

// The states. In all but ColumnsDone the bound may be weaker than possible.
const (
	ColumnsNotAsked    ColumnsState = "not_asked"   // no solver was given
	ColumnsUnavailable ColumnsState = "unavailable" // the solver is not built in
	ColumnsStopped     ColumnsState = "stopped"     // the work ran out
	ColumnsDone        ColumnsState = "done"        // no pattern is missing
)

// Machine is a number of machines with the same contents.
type Machine struct {
	Node     string  `json:"node"`
	Machines int     `json:"machines"`
	On       []Share `json:"on"` // by workload
}

// Share is the number of replicas of a workload on one machine.
type Share struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas"`
	// GPUs are the indices, from 0, of the replicas' GPUs: one for each replica that needs a part
	// of a GPU, n for each that needs n.
	GPUs []int `json:"gpus,omitempty"`
	// Starts are the first memory slices of replicas on MIG instances.
	Starts []int `json:"starts,omitempty"`
}

// Used is the number of machines of a node or kind on which something was placed.
type Used struct {
	Node     string `json:"node"`
	Machines int    `json:"machines"`
}

// Unplaced is a workload with unplaced replicas, and why the machines did not take one more of them
// at the end.
type Unplaced struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas"`
	// RuledOut is in the order in which constraints are tried. The counts add up to all machines;
	// in Need, an unlimited kind counts the open machines and one more.
	RuledOut []RuledOut `json:"ruled_out"`
}

// RuledOut is the number of machines that a constraint was the first to rule out.
type RuledOut struct {
	Constraint Constraint `json:"constraint"`
	Machines   int        `json:"machines"`
}

// Stranded is how much of the free GPUs of a model the workloads cannot use, see [Fragmentation].
type Stranded struct {
	Model         string `json:"model"`
	TotalMilli    int64  `json:"total_milli"`
	FreeMilli     int64  `json:"free_milli"`
	StrandedMilli int64  `json:"stranded_milli"` // expected, to the nearest
}
