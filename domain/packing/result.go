package packing

// Result is who is where, what is left over and how good that is.
type Result struct {
	Method string `json:"method"`
	// Order is the order that won: what comes first (the largest share of a
	// machine, the most GPUs, what the fewest GPUs may take, or a mix), and
	// which machine takes it (the snuggest, the one least out of proportion, the
	// one where least gets stranded). "Large first" is for the machines to open.
	Order string `json:"order"`
	// Machines lists the machines on which something was placed, by node and
	// contents.
	Machines []Machine `json:"machines"`
	// Used counts them by node or kind. It names those with none used, too.
	Used []Used `json:"used"`
	// Unplaced lists the workloads of which not every replica was placed.
	Unplaced []Unplaced `json:"unplaced"`

	NodesUsed int `json:"nodes_used"`
	// LowerBound is proven: no placement of all replicas uses fewer machines.
	// Replicas that fit on no machine even while it is empty are left out. A
	// bound above the number of machines that there are proves that not
	// everything fits.
	LowerBound int `json:"lower_bound"`
	// Cost is what the machines used cost, and no placement of all replicas costs
	// less than CostLowerBound; both 0 where no kind has a cost.
	Cost           int64 `json:"cost"`
	CostLowerBound int64 `json:"cost_lower_bound"`
	// Columns says whether the greedy outcome was improved upon.
	Columns Columns `json:"columns"`

	// In thousandths of a GPU: what all replicas need, what those placed need,
	// and what the machines have, all of them in Pack and the opened ones in
	// Need.
	GPUMilliNeeded int64 `json:"gpu_milli_needed"`
	GPUMilliPlaced int64 `json:"gpu_milli_placed"`
	GPUMilliTotal  int64 `json:"gpu_milli_total"`

	// Stranded is about the same machines as GPUMilliTotal, by GPU model.
	Stranded []Stranded `json:"stranded"`
}

// Columns is what column generation did.
type Columns struct {
	State    ColumnsState `json:"state"`
	Rounds   int          `json:"rounds"`   // of pricing
	Patterns int          `json:"patterns"` // machines that were chosen among
	Programs int          `json:"programs"` // linear programs solved
}

// ColumnsState is how column generation ended.
type ColumnsState string

// The states. In all but ColumnsDone the bound may be weaker than it could be.
const (
	ColumnsNotAsked    ColumnsState = "not_asked"   // no solver was given
	ColumnsUnavailable ColumnsState = "unavailable" // the solver is not built in
	ColumnsStopped     ColumnsState = "stopped"     // the work ran out
	ColumnsDone        ColumnsState = "done"        // no pattern is lacking
)

// Machine is a number of machines with the same contents.
type Machine struct {
	Node     string  `json:"node"`
	Machines int     `json:"machines"`
	On       []Share `json:"on"` // by workload
}

// Share is how many replicas of a workload are on one machine.
type Share struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas"`
	// GPUs are the indices, from 0, of the GPUs on which the replicas sit: one
	// for each replica that needs a part of a GPU, n for each that needs n.
	GPUs []int `json:"gpus,omitempty"`
	// Starts are, of replicas on MIG instances, the first memory slice of each.
	Starts []int `json:"starts,omitempty"`
}

// Used is how many machines of a node or kind hold something that was placed.
type Used struct {
	Node     string `json:"node"`
	Machines int    `json:"machines"`
}

// Unplaced is a workload of which replicas were left over, and why the machines
// did not take one more of them at the end.
type Unplaced struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas"`
	// RuledOut is in the order in which constraints are tried. The counts add
	// up to all machines; in Need, a kind without a bound counts the machines
	// that are open and one more.
	RuledOut []RuledOut `json:"ruled_out"`
}

// RuledOut is how many machines a constraint was the first to rule out.
type RuledOut struct {
	Constraint Constraint `json:"constraint"`
	Machines   int        `json:"machines"`
}

// Stranded is how much of the free GPUs of a model is of no use to the
// workloads, see [Fragmentation].
type Stranded struct {
	Model         string `json:"model"`
	TotalMilli    int64  `json:"total_milli"`
	FreeMilli     int64  `json:"free_milli"`
	StrandedMilli int64  `json:"stranded_milli"` // expected, to the nearest
}
