// Package registry answers who may do what, and what a log contains and lacks.
//
// [Authority] derives the operators and their rights from the signed events of the log, in their
// order of effect, and judges every other signed row by them. A row whose signer had no right to it
// stays in the log and is void in every view. [Registry] lists what was declared and what was
// rejected. [CompletenessOf] says what a report may lack: open quarantine, gaps in streams, and
// events that agents reported as dropped.
//
// It owns no tables: it reads the tables of the core.
package registry
