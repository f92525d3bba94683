// Package usage merges the reports of all observers of a GPU: each second of a GPU in service is in
// exactly one [inventory.State], with its holder.
//
// If several observers report the same second, the most trusted one counts
// ([projections.ObserverRank]). [EachDeviceHour] yields the merged hours, [NewReport] sums them by
// dimensions.
package usage
