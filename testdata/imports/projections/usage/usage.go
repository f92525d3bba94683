package usage

import (
	_ "quartermaster/domain/packing"
	_ "quartermaster/projections"
	_ "quartermaster/projections/inventory"
	_ "quartermaster/projections/storetest" // refused
	_ "quartermaster/simulations"           // refused
)
