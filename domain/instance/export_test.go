package instance

import (
	"math/rand/v2"

	"quartermaster/domain/linear"
)

// What the program of mip_test.go is compared with, which sees this package from outside.

// CoupledNames are the families of random coupled instances.
func CoupledNames() (names []string) {
	for _, f := range coupledFamilies {
		names = append(names, f.name)
	}
	return names
}

// CoupledInstance is the random instance of a family and a seed.
func CoupledInstance(family int, seed uint64) *Instance {
	return coupledInstance(coupledFamilies[family], seed)
}

// LinearSolver is shared by all tests, nil in a build without one.
func LinearSolver() linear.Solver { return solver() }

// DrawAll is a small random instance of any of the constraints that there are. It may be invalid.
func DrawAll(seed uint64) *Instance { return drawAll(rand.New(rand.NewPCG(99, seed))) }
