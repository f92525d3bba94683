package projections

import (
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/jackc/pgx/v5"         // refused
	_ "os"                              // refused
	_ "quartermaster/adapters/kafka"    // refused
	_ "quartermaster/domain/packing"    // refused
	_ "quartermaster/projections/usage" // refused
	_ "quartermaster/simulations"       // refused
)
