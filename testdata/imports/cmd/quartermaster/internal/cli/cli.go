package cli

import (
	_ "github.com/spf13/cobra"
	_ "quartermaster/cmd/quartermaster/internal/app"
	_ "quartermaster/cmd/quartermaster/internal/daemon" // refused
)
