package domain_test

import (
	_ "os"
	_ "testing"

	_ "github.com/stretchr/testify/require" // refused
	_ "pgregory.net/rapid"
	_ "quartermaster/adapters/wire" // refused
	_ "quartermaster/domain"
	_ "quartermaster/simulations/public"
)
