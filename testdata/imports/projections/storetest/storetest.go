package storetest

import (
	_ "os" // refused
	_ "pgregory.net/rapid"
	_ "quartermaster/projections"
	_ "testing"
)
