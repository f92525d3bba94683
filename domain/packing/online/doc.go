// Package online places replicas on a fleet in use, one at a time as they arrive, without knowledge
// of later arrivals, and frees what a replica held when it departs.
//
// [Fleet] holds the machines; a [Policy] chooses among those that can take a replica. A policy
// places every replica that fits. [Replay] runs the experiment that compares policies: more arrives
// than there is room for, and the result is the share of GPUs allocated in the end.
//
// What always holds: no machine exceeds its CPU, memory or any one GPU. The constraints of a
// [packing.Workload] hold for every replica at any time. A departure restores the state before the
// arrival. The same nodes in any order, arrivals and draws give the same placements. Scores are
// integers, so they are the same on every machine.
//
// Not covered: gangs, MIG layouts, priorities and eviction (see package packing); [Moves] proposes
// migrations instead.
package online
