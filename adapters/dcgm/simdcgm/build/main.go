// Command build compiles the simulated libdcgm.so.4 into a folder.
package main

import (
	"fmt"
	"os"

	"quartermaster/adapters/dcgm/simdcgm"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: build FOLDER")
		os.Exit(2)
	}
	err := os.MkdirAll(os.Args[1], 0o755)
	if err == nil {
		err = simdcgm.Build(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
