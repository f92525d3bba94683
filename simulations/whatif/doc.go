// Package whatif answers "what if" questions. It takes a scenario, forks the log at a position,
// adds the hypothetical events of the scenario, runs the same folds and the same planner over them,
// and compares alternatives over many trials of what is uncertain.
//
// # From a file to an answer
//
//  1. [Parse] reads the tree of a file into a [Scenario]. Every fault has its place in the file.
//  2. [Fork] adds hypothetical events on top of rows, without changing them. A change for which the
//     log has an event type (prices, offers, purchases, renewals, deployments, quotas, rates,
//     maintenance) becomes an event, at the median of its uncertain numbers, and is folded like any
//     other.
//  3. The forked rows give the planner's question, and that gives an instance. A change without an
//     event type (growth, efficiency, failures, interruptions, outages) modifies the instance or
//     its trials.
//  4. The trials are reduced to a small weighted set of scenarios, and each alternative's purchases
//     are solved once over that set.
//  5. Each trial then computes the result of the purchases by recourse alone. Independent pools are
//     served by their load-duration curves. Pools that share a quota, or may serve one another, are
//     served hour by hour with the linear program of package joint.
//
// # What always holds
//
//   - The same scenario, position and method version give the same bytes.
//   - A random number is determined by a variable's name and a trial's number, not by the order of
//     calls. So alternatives share random numbers: two equal alternatives have a difference of
//     exactly zero in every trial.
//   - Floating point is used to turn a uniform number into a value of a distribution, which is then
//     rounded to nine decimals. Operations that a processor may fuse are kept apart. All further
//     computation uses integers and decimals.
//   - Demand is in whole units, including failure spares, in trials as in the problem. If nothing is
//     uncertain and no hours are lost, trials give the cost of the solved problem, unless a budget or
//     limit changes how it is served.
//   - Deferrable work is first levelled within its windows and then multiplied, in trials and in
//     the problem. The problem's bound assumes this schedule. Demand added by a launch is not
//     deferred.
//   - Demand or a quota that begins within an epoch counts from the epoch's first day; a quota is
//     then the lowest within it. A price of that epoch is its mean, and an offer is available from
//     the next epoch. Uncertain numbers of these vary from the next epoch on. Outages, maintenance
//     and late deliveries are evaluated by the hour.
//   - Purchases are solved for what scenarios of an instance can vary: demand and available spot.
//     Other things that vary in the trials are listed as unmodelled drivers.
package whatif

// Method is the version of this package's method. A result names it.
const Method = "whatif/6"
