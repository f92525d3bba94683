// Command quartermaster keeps the books of a GPU fleet: it appends facts to the
// log, folds the log into rows, and answers from them.
//
// Package app has its use cases, package cli the commands, and package daemon what serves.
// main joins them.
package main

import (
	"context"
	"io"
	"os"

	"quartermaster/adapters/bucket"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process, for tests.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return commandLine(&app.App{OpenBucket: openBucket}, stdout, stderr).Run(args, stdin)
}

func openBucket(ctx context.Context, address string) (app.Bucket, error) {
	return bucket.Open(ctx, address)
}

// commandLine is the command line with the commands of the daemon.
func commandLine(on *app.App, stdout, stderr io.Writer) *cli.Program {
	p := cli.New(on, stdout, stderr)
	p.Add(daemon.Command(on, p.JSON))
	p.HoldOpen = func(ctx context.Context, listen string) error {
		if err := on.Close(); err != nil { // one process holds a log, and opens it once
			return err
		}
		d := daemon.New(on, stderr, p.JSON())
		d.Browser = daemon.Loopback
		return d.Serve(ctx, listen, config.Gateway{}, config.API{})
	}
	return p
}
