package storetest

import (
	_ "os"
	_ "pgregory.net/rapid"
	_ "quartermaster/projections"
	_ "testing"
)
