// Package whatif answers "what if": it takes a scenario, forks the log at a
// position, adds the events that the scenario supposes, runs the same folds and
// the same planner over them, and compares alternatives over many trials of
// what is uncertain.
//
// # From a file to an answer
//
//  1. [Parse] reads the tree of a file into a [Scenario]. Every fault has its
//     place in the file.
//  2. [Fork] lays hypothetical events over rows, without changing them. What the
//     log has an event for (prices, offers, purchases, renewals, deployments,
//     quotas, rates, maintenance) becomes one, at the median of what is uncertain
//     about it, and is folded as any event is.
//  3. The forked rows give the planner's question, and that an instance. What has
//     no event (growth, efficiency, failures, interruptions, outages) changes the
//     instance or its trials.
//  4. The trials are reduced to a small weighted set of scenarios, and each
//     alternative's purchases are solved once over that set.
//  5. Each trial then says what the purchases come to: recourse alone. Pools that are
//     alone are served by their load-duration curves; pools that share a quota, or may
//     serve one another, hour by hour by the linear program of package joint.
//
// # What always holds
//
//   - The same scenario, position and method version give the same bytes.
//   - A random number belongs to a variable's name and a trial's number, not to an
//     order of calls. So alternatives share them: two equal alternatives differ by
//     exactly nothing in every trial.
//   - Floating point turns a uniform number into a value of a distribution, which
//     is then rounded to nine decimals, with every operation that a processor may
//     fuse kept apart. From there on all is integers and decimals.
//   - Demand is whole units, spare ones for failures included, in trials as in the
//     problem. With nothing uncertain, and nothing lost for hours, trials come to
//     what was solved, unless a budget or limit has it served otherwise.
//   - Work that waits is levelled within its windows first and multiplied then, in
//     trials and in the problem of what they change: the bound of that is of work that
//     runs so. What a launch adds does not wait.
//   - What begins within an epoch counts from its first day if it is demand or a
//     quota, which is then the least within it; a price of that epoch is its mean,
//     and an offer is there from the next. What is uncertain of these varies from
//     the next epoch on. Outages, maintenance and late deliveries are evaluated by
//     the hour.
//   - Purchases are solved for what scenarios of an instance can have: demand and
//     the spot that can be had. What the trials vary besides is named as unmodelled drivers.
package whatif

// Method is the version of this package's method. A result names it.
const Method = "whatif/6"
