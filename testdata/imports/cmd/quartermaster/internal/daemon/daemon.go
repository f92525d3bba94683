package daemon

import (
	_ "net/http"
	_ "quartermaster/cmd/quartermaster/internal/app"
	_ "quartermaster/cmd/quartermaster/internal/cli" // refused
)
