// Package planning composes the questions that the planner answers from the rows at a
// position: the demand, offers, quotas and commitments of every pool ([Question]), the
// nodes and workloads to be packed ([PackingNodes], [Workloads]), and the placements
// of replicas ([PlacementsAt]).
package planning
