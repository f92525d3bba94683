//go:build !linux

package main

import (
	"syscall"
	"time"
)

// Nodes run Linux. Elsewhere this program is built and tested alone.

func dieWithParent(*syscall.SysProcAttr) {}

func kernelError() (time.Duration, bool) { return 0, false }

func memoryMiB() uint64 { return 0 }
