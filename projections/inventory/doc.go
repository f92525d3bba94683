// Package inventory shows the fleet: clusters, nodes, GPUs, the placement of models, and the state
// of every GPU at a time.
//
// [Fleet] holds the declarations of machines over time: when they were in service, failed, or in
// maintenance. [Aliases] finds a GPU that is reported under two names, so that no GPU counts twice.
// The views usage, serving, costs and planning build on both.
//
// It owns no tables: it reads the tables of the core and joins them.
package inventory
