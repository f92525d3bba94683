// Package advice judges the figures of a fleet by rules: it says what is wrong, since when, by how much, and what leaving
// it costs. Correlate and Step turn findings into incidents.
//
// Everything is a pure function. [Figures] are read at one position of the log for one tick; [Evaluate] judges them by
// [Thresholds] and returns the same findings for the same figures, in the same order.
//
// What always holds:
//
//   - A finding names its rule and version, subject, measured value, threshold, window, telemetry coverage, and the
//     question that gives the same figure.
//   - A figure with too little coverage is [Unknown], never fine.
//   - Money is exact, and is what a month of leaving it costs in the effective ledger. Where no bill prices it, there is
//     none, and not zero.
//   - A finding about a whole (the fleet, a provider) is not made where its parts explain it.
package advice

// Method is the version of the rules and of how findings become incidents. Events about incidents carry it, and a change
// of either needs another one.
const Method = "advice/1"
