//go:build never

package embedded

import (
	_ "C" // refused
	_ "quartermaster/adapters/kafka"
	_ "quartermaster/adapters/postgres" // refused
)
