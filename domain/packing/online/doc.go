// Package online places replicas on a fleet that is in use, one as it arrives,
// without knowing what comes after it, and gives back what a replica held when
// it departs.
//
// [Fleet] holds the machines; a [Policy] chooses among those that can take a
// replica. A policy refuses nothing that fits. [Replay] runs the experiment by
// which policies are compared: more arrives than there is room for, and what
// share of the GPUs is allocated in the end.
//
// What always holds: no machine is filled beyond what it has, in CPU, memory or
// on any one GPU; the constraints of a [packing.Workload] hold for every replica
// at any time; a departure restores what was there before the arrival; the same
// nodes in any order, arrivals and draws give the same placements. Scores are
// integers, so they are the same on every machine.
//
// Not covered: gangs, MIG layouts, priorities and eviction (see package
// packing); [Moves] proposes migrations instead.
package online
