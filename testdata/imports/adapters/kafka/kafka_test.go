package kafka_test

import (
	_ "github.com/ThreeDotsLabs/watermill/pubsub/tests"
	_ "quartermaster/adapters/kafka"
	_ "quartermaster/adapters/wire" // refused
)
