package main

import (
	_ "github.com/spf13/cobra"
	_ "quartermaster/adapters/wire"
	_ "quartermaster/cmd/node-reporter" // refused
	_ "quartermaster/domain/plan"
	_ "quartermaster/schemas"
	_ "quartermaster/schemas/events/v1" // refused
)
