// Package failures counts, per GPU model, the hours in service and the interruptions
// that were seen, as evidence for the rates in package reliability.
package failures
