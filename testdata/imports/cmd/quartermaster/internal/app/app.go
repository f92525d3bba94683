package app

import (
	_ "github.com/shopspring/decimal"
	_ "github.com/spf13/cobra"             // refused
	_ "net/http"                           // refused
	_ "quartermaster/adapters/commandline" // refused
	_ "quartermaster/adapters/wire"
	_ "quartermaster/cmd/quartermaster/internal/apptest" // refused
	_ "quartermaster/cmd/quartermaster/internal/cli"     // refused
	_ "quartermaster/cmd/quartermaster/internal/daemon"  // refused
)
