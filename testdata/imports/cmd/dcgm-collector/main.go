package main

import (
	_ "C"
	_ "quartermaster/adapters/dcgm"
)
