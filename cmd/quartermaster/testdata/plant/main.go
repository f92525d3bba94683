// Command plant appends bad records to the log of a data directory, by their names: for tests of the pages.
//
//	plant DIRECTORY NAME...
package main

import (
	"errors"
	"fmt"
	"os"

	"quartermaster/cmd/quartermaster/internal/apptest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plant:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: plant DIRECTORY NAME...")
	}
	return apptest.Plant(args[0], args[1:]...)
}
