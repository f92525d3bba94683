package domain

import (
	_ "C" // refused
	_ "crypto/ed25519"
	_ "crypto/rand"  // refused
	_ "io/ioutil"    // refused
	_ "log/slog"     // refused
	_ "math/rand"    // refused
	_ "math/rand/v2" // refused
	_ "net"          // refused
	_ "net/http"     // refused
	_ "os"           // refused
	_ "os/exec"      // refused
	_ "time"

	_ "github.com/segmentio/kafka-go" // refused
	_ "github.com/shopspring/decimal"
	_ "google.golang.org/protobuf/proto" // refused
	_ "pgregory.net/rapid"               // refused
	_ "quartermaster"                    // refused
	_ "quartermaster/domain/linear"      // refused
	_ "quartermaster/projections"        // refused
	_ "quartermaster/schemas/events/v1"  // refused
)
