//go:build !linux

package main

import (
	"syscall"
	"time"
)

// Nodes run Linux. On other platforms this program is only built and tested.

func dieWithParent(*syscall.SysProcAttr) {}

func kernelError() (time.Duration, bool) { return 0, false }

func memoryMiB() uint64 { return 0 }
