package simulations

import (
	_ "math/rand/v2"                // refused
	_ "quartermaster/adapters/wire" // refused
	_ "quartermaster/domain"
	_ "quartermaster/projections"
	_ "quartermaster/projections/storetest" // refused
	_ "quartermaster/simulations/public"    // refused
)
