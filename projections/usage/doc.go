// Package usage resolves what observers reported of every GPU into one account:
// each second of a GPU in service is in exactly one [inventory.State], with its holder.
//
// Where several observers report the same second, the most trusted one counts
// ([projections.ObserverRank]). [EachDeviceHour] yields the resolved hours, [NewReport]
// adds them up by dimensions.
package usage
