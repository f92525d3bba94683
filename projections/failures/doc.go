// Package failures counts, per GPU model, the hours in service and the observed interruptions, as
// evidence for the rates in package reliability.
package failures
