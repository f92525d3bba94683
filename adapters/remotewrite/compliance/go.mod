// The public suite for receivers of remote write, which "make compliance" runs.
// It stands apart so that nothing of what it needs is among what the programs
// are built from. The suite's own go.mod misspells its path; hence the replace.
module quartermaster/adapters/remotewrite/compliance

go 1.25.0

require github.com/prometheus/complicance/remotewrite2 v0.0.0-00010101000000-000000000000

replace github.com/prometheus/complicance/remotewrite2 => github.com/prometheus/compliance/remotewrite/receiver v0.0.0-20260806071727-67b8327a2e93
