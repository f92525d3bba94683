package packing

import (
	_ "quartermaster/domain"
	_ "quartermaster/domain/forecast" // refused
	_ "quartermaster/domain/linear"
)
