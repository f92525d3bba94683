// Package market lists what suppliers offer at a time: offers, on-demand quotas, and the
// rates at which spot capacity was interrupted.
package market
