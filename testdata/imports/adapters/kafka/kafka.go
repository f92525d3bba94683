package kafka

import (
	_ "github.com/segmentio/kafka-go"
	_ "os"
	_ "quartermaster/adapters/kafka/embedded"
	_ "quartermaster/adapters/kafkatwo" // refused
	_ "quartermaster/adapters/wire"     // refused
	_ "quartermaster/cmd/quartermaster" // refused
	_ "quartermaster/domain"
	_ "quartermaster/schemas"
	_ "quartermaster/schemas/events/v1" // refused
)
