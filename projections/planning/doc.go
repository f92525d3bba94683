// Package planning composes the planner's questions from the rows at a position: the demand,
// offers, quotas and commitments of every pool ([Question]), the nodes and workloads to pack
// ([PackingNodes], [Workloads]), and the placements of replicas ([PlacementsAt]).
package planning
