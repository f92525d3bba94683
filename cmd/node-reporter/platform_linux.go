package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill a collector when this process is killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// kernelError returns the kernel's bound on the clock's error, and whether the clock is
// synchronized.
func kernelError() (time.Duration, bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil || t.Status&unix.STA_UNSYNC != 0 {
		return 0, false
	}
	return time.Duration(t.Maxerror) * time.Microsecond, true
}

// memoryMiB returns the size of the machine's memory in MiB.
func memoryMiB() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) >> 20 //nolint:unconvert // the type differs between platforms
}
