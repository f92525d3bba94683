package main

import (
	"quartermaster/adapters/commandline"
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

// version names this build and the methods with which it computes.
func version() commandline.Version {
	return commandline.VersionOf("quartermaster",
		projections.Method, attribution.Method, reliability.Method, forecast.Method, plan.Method, packing.Method,
		procurement.Method, joint.Method, problem.Method, problem.ContractMethod, whatif.Method, backtest.Method)
}
