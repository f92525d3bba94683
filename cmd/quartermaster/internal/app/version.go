package app

import (
	"maps"
	"slices"

	"quartermaster/adapters/buildinfo"
	"quartermaster/domain/attribution"
	"quartermaster/domain/forecast"
	problem "quartermaster/domain/instance"
	"quartermaster/domain/packing"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/simulations/backtest"
	"quartermaster/simulations/whatif"
)

// ProgramInfo identifies the program that made a report.
type ProgramInfo struct {
	Version string   `json:"version"`
	Commit  string   `json:"commit"`
	Date    string   `json:"date"`    // of the commit
	Methods []string `json:"methods"` // method versions
}

// Program returns the ProgramInfo of this program.
func Program() ProgramInfo {
	v := Version()
	return ProgramInfo{v.Version, v.Commit, v.Date, slices.Sorted(maps.Values(v.Methods))}
}

// Version returns this build and its method versions.
func Version() buildinfo.Version {
	return buildinfo.Of("quartermaster",
		projections.Method, attribution.Method, reliability.Method, forecast.Method, plan.Method, packing.Method,
		procurement.Method, joint.Method, problem.Method, problem.ContractMethod, whatif.Method, backtest.Method)
}
