package wire

import (
	_ "quartermaster/adapters/kafka" // refused
	_ "quartermaster/schemas/events/v1"
)
