package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"quartermaster/adapters/dcgm"
)

// supervisor keeps a collector running, and detects a silent one: it ended, sends nothing, or waits
// too long for DCGM. It never waits for a process that cannot be killed, because a driver that
// hangs may block one for ever.
type supervisor struct {
	command string
	args    func() []string // of a new run
	silent  time.Duration
	log     *slog.Logger
	pace    pace

	// frame handles a frame of the current run. It may block; then the collector waits.
	frame func(context.Context, dcgm.Frame) error
	// down is called with the reason each time that a collector ends.
	down func(reason string)

	starts atomic.Int64
}

// steady is the duration of a run after which the next one is started without a longer delay.
const steady = time.Minute

func (s *supervisor) run(ctx context.Context) {
	b := s.pace.backoff(s.pace.collector)
	for ctx.Err() == nil {
		began := time.Now()
		reason := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		s.down(reason)
		if time.Since(began) > steady {
			b.Reset()
		}
		wait := b.NextBackOff()
		s.log.Warn("the collector is silent and is restarted",
			"reason", reason, "in", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// once runs a collector to its end and returns the reason of the end.
func (s *supervisor) once(ctx context.Context) (reason string) {
	s.starts.Add(1)
	cmd := exec.Command(s.command, s.args()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Sprintf("cannot be started: %v", err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Sprintf("cannot be started: %v", err)
	}
	started := make(chan error, 1)
	ended := make(chan string, 1) // how it ended; "" for success
	told := make(chan string, 1)  // the last line of its standard error
	heard := make(chan struct{})
	go func() {
		// With Pdeathsig, a child dies with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		last := lines(stderr, s.log)
		told <- last
		<-heard // Wait closes the pipe, so unread frames would be lost
		how := ""
		if err := cmd.Wait(); err != nil {
			how = err.Error()
		}
		ended <- how
	}()
	if err := <-started; err != nil {
		return fmt.Sprintf("cannot be started: %v", err)
	}
	frames := make(chan dcgm.Frame)
	failed := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(heard)
		r := dcgm.NewReader(out)
		for {
			f, err := r.Next()
			if err != nil {
				failed <- err
				_, _ = io.Copy(io.Discard, out)
				return
			}
			select {
			case frames <- f:
			case <-stop:
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
	}()
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer kill()
	trouble := ""
	timer := time.NewTimer(s.silent)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(2 * time.Second):
			}
			return "was asked to end"
		case f := <-frames:
			switch b := f.Body.(type) {
			case *dcgm.Heartbeat:
				if b.Waiting >= s.silent {
					return fmt.Sprintf("DCGM has not answered %s for %s: the driver hangs", b.Call, b.Waiting.Round(time.Second))
				}
			case *dcgm.Trouble:
				s.log.Warn("the collector reports trouble",
					"code", b.Code, "group", b.Group, "text", b.Text, "returned", b.Returned, "fatal", b.Fatal)
				if b.Fatal {
					trouble = b.Text
				}
			}
			if err := s.frame(ctx, f); err != nil {
				return fmt.Sprintf("its frames could not be taken: %v", err)
			}
			timer.Reset(s.silent)
		case <-timer.C:
			return fmt.Sprintf("said nothing for %s", s.silent)
		case err := <-failed:
			if !errors.Is(err, io.EOF) {
				kill()
			}
			reason := "ended"
			select {
			case how := <-ended:
				if how != "" {
					reason = "ended: " + how
				}
			case <-time.After(2 * time.Second):
				reason = "closed its output"
			}
			if trouble == "" {
				select {
				case trouble = <-told:
				default:
				}
			}
			switch {
			case trouble != "":
				reason += ": " + trouble
			case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
				reason = fmt.Sprintf("said what is no frame: %v", err)
			}
			return reason
		}
	}
}

// lines logs a collector's standard error, bounded, and returns the last line.
func lines(r io.Reader, log *slog.Logger) (last string) {
	const most = 100
	br := bufio.NewReaderSize(r, 4<<10)
	for n := 0; ; n++ {
		line, isPrefix, err := br.ReadLine()
		if err != nil {
			return last
		}
		for isPrefix && err == nil {
			_, isPrefix, err = br.ReadLine()
		}
		last = printable(string(line), 1000)
		if n < most {
			log.Info("collector: " + last)
		}
	}
}

// collectorArgs returns the flags of a run that continues from a cursor.
func collectorArgs(c *CollectorConfig, cursor int64) []string {
	args := []string{"--engine", c.Engine, "--profiling=" + strconv.FormatBool(c.Profiling)}
	if cursor > 0 {
		args = append(args, "--since", strconv.FormatInt(cursor, 10))
	}
	return args
}
