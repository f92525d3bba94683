package eventsv1

import (
	_ "google.golang.org/protobuf/proto"
	_ "quartermaster/domain" // refused
)
