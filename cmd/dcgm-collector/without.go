//go:build !cgo || !linux

package main

import (
	"context"
	"io"
	"os"

	"quartermaster/adapters/dcgm"
)

const withoutC = "this dcgm-collector was built without C and cannot load DCGM: " +
	"build it on Linux with a C compiler, make collector"

func collect(_ context.Context, _ Config, stdout *os.File, _ io.Writer) error {
	t := dcgm.Trouble{Code: dcgm.TroubleWithoutC, Text: withoutC, Fatal: true}
	if err := dcgm.NewWriter(stdout).Write(dcgm.Frame{Body: &t}); err != nil {
		return errOutput
	}
	return &fatal{t}
}

func check(Config) *Report {
	return &Report{Trouble: dcgm.TroubleWithoutC, Text: withoutC, Exit: exitWithoutC}
}

func claimOutput() (*os.File, error) { return os.Stdout, nil }

func isTerminal(*os.File) bool { return false }
