package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel end a collector when this process is killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// kernelError returns the greatest error of the clock that the kernel allows for, when
// something keeps it synchronised.
func kernelError() (time.Duration, bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil || t.Status&unix.STA_UNSYNC != 0 {
		return 0, false
	}
	return time.Duration(t.Maxerror) * time.Microsecond, true
}

// memoryMiB returns how much memory the machine has.
func memoryMiB() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) >> 20 //nolint:unconvert // its type is another on other platforms
}
