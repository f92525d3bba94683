// Package projections computes the current state from the log.
//
// A [Projector] takes the records of one partition one by one and changes rows: it is
// the only implementation of the meaning of events. A [Runner] reads the log and feeds
// Projectors. A [Store] keeps the rows and the position that they are for. This package
// is the core: rows, projectors, runner, ports and snapshots. It imports only package
// domain, so that a program that only replays a log needs nothing else. The views are
// the packages below (registry, inventory, usage, serving, costs, demand, market,
// failures, planning): pure functions over the rows at a position.
//
// What always holds:
//
//   - Rows are a pure function of the records of their partition, in order. The folds
//     use no clock, no randomness and no I/O.
//   - A row's key contains the topic key of the events that make it. So every row
//     belongs to one partition, and the order between partitions cannot matter. Joins
//     between topics are computed on reading.
//   - An event counts once, however often it is in the log ([Stream]), and missing
//     events are known.
//   - A record that cannot be folded becomes a [Quarantined] row. It is never dropped
//     silently, and it does not stop other records.
//   - Rows, stream state, quarantine and position change in one transaction.
//   - Equal rows have equal bytes ([EncodeRow]), so a digest compares states.
//   - Answers and digests do not depend on whether rows of a sealed month are in the
//     store or in a part below it ([Over]).
//
// # Tables
//
// Declared things (workspaces, clusters, nodes, deployments, offers, commitments, bills
// and so on) are [History] rows: every version in [domain.Precedence]. Measurements are
// summed by hour: [UsageHour] for the holders of devices, [ServingHour] and [ServerHour]
// for model servers. By month there are [DemandMonth], because demand comes as means
// over hours, and [NodeGPUs], the GPUs that were reported under a node's name. [Table]
// lists them by topic.
package projections
