// Package projections computes the present from the log.
//
// A [Projector] takes the records of one partition one by one and changes rows:
// it is the only implementation of what an event means. A [Runner] reads the
// log and feeds Projectors; a [Store] keeps the rows and the position that they
// stand for. This package is the core: rows, projectors, runner, ports and
// snapshots. It imports package domain alone, so that a program which only
// replays a log holds nothing else. The views are the packages below
// (registry, inventory, usage, serving, costs, demand, market, failures,
// planning): pure functions over the rows at a position.
//
// What always holds:
//
//   - Rows are a pure function of the records of their partition, in order.
//     The folds know no clock, no randomness and no I/O.
//   - A row's key contains the topic key of the events that make it, so every
//     row belongs to one partition and the order between partitions cannot
//     matter. What joins topics is computed when read.
//   - An event counts once, however often it stands in the log ([Stream]), and
//     what is missing is known.
//   - A record that cannot be folded becomes a [Quarantined] row, never
//     silence, and stops nothing else.
//   - Rows, stream state, quarantine and position move in one transaction.
//   - Equal rows have equal bytes ([EncodeRow]), so a digest compares states.
//
// # Tables
//
// Things that are declared (workspaces, clusters, nodes, deployments, offers,
// commitments, bills and so on) are [History] rows: every version in
// [domain.Precedence]. Measurements are added up per hour: [UsageHour] for who held
// which device, [ServingHour] and [ServerHour] for model servers. By the month stand
// demand, which comes as means over hours, [DemandMonth], and which GPUs were reported
// under which name of a node, [NodeGPUs]. [Table] lists them by topic.
package projections
