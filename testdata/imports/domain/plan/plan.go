package plan

import (
	_ "quartermaster/domain/forecast"
	_ "quartermaster/domain/packing"
	_ "quartermaster/simulations" // refused
)
