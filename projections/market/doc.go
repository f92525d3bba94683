// Package market lists what suppliers offer at a time: offers, on-demand quotas, and interruption
// rates of spot capacity.
package market
