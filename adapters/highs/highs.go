// Package highs solves linear programs, also such with whole variables, by
// HiGHS: compiled to WebAssembly by others, embedded here, translated to machine
// code by wazero. No C compiler and no library is needed.
//
// What always holds:
//
//   - Equal programs and limits give equal solutions, bit for bit, on every
//     machine. A program is solved in a fresh instance of the module, in one
//     thread, with a fixed seed, without a clock: time is what the module counts
//     by asking for it. WebAssembly leaves no room in how floats are rounded.
//   - A solve can be ended at any moment. It runs in a child process, which is this
//     same program started once more, and which is killed when the context ends.
//     The next solve starts another.
//   - Nothing that a program can hold reaches out of the child: the module has no
//     file, network or environment, and at most 2 GiB of memory.
//
// The module is put in place by "make highs"; without it Available says no.
package highs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"quartermaster/domain/linear"
)

// Options of a solver. The zero value is a good choice.
type Options struct {
	// CacheDir keeps the compiled module, about 20 MB. Empty stands for
	// quartermaster/highs in the user's cache directory.
	CacheDir string
}

// Start says what it took to start a child: ten seconds or so when the module had
// to be compiled, which happens once on a machine, else some tenths.
type Start struct {
	Took   time.Duration
	Cached bool // the compiled module was there
}

// Available reports whether this build can solve linear programs on this machine.
func Available() bool {
	b, err := embedded()
	return err == nil && b != nil && compiles()
}

// compiles reports whether wazero can compile for this machine; interpreting
// would take a hundred times as long.
func compiles() bool {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "freebsd"
	}
	return false
}

// Solver is a linear.Solver. It may be used from several goroutines, and solves
// one program at a time.
type Solver struct {
	options Options
	turn    chan struct{} // holds one token: whoever has it may solve

	mu     sync.Mutex // guards what follows
	child  *child
	starts []Start
	closed bool
}

var _ linear.Solver = (*Solver)(nil)

// errClosed is for programs that come after Close.
var errClosed = errors.New("the solver of linear programs is closed")

// Open returns a solver, which starts its child at the first program. The error
// wraps linear.ErrUnavailable when the build has no module or the machine is none
// for which it can be compiled.
func Open(o Options) (*Solver, error) {
	b, err := embedded()
	switch {
	case err != nil:
		return nil, err
	case b == nil:
		return nil, fmt.Errorf("%w: run make highs and build again", linear.ErrUnavailable)
	case !compiles():
		return nil, fmt.Errorf("%w: not for %s/%s", linear.ErrUnavailable, runtime.GOOS, runtime.GOARCH)
	}
	if o.CacheDir == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			o.CacheDir = filepath.Join(dir, "quartermaster", "highs")
		}
	}
	s := &Solver{options: o, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s, nil
}

// Starts returns what each child took to start, the first one first.
func (s *Solver) Starts() []Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Start(nil), s.starts...)
}

// Close kills the child and waits until it is gone. A solve in progress returns
// an error.
func (s *Solver) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.child != nil {
		s.child.kill()
	}
	s.mu.Unlock()
	<-s.turn // who solves fails now and takes the child away
	defer func() { s.turn <- struct{}{} }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		s.child.wait()
		s.child = nil
	}
	return nil
}

// Warm starts the child, so that the first program does not wait for it.
func (s *Solver) Warm(ctx context.Context) error {
	return s.with(ctx, func(*child) error { return nil })
}

// Solve solves a program. See linear.Solver for its errors. Without whole
// variables Limits.Iterations alone bounds the work, with them the others do; a
// Gap of 0 is then one of 1e-4. Values beyond 1e15 in the matrix are refused,
// those within 1e-9 of 0 count as 0, and a bound from 1e20 on is none.
func (s *Solver) Solve(ctx context.Context, p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if err := checkLimits(l); err != nil {
		return nil, err
	}
	if rows, columns, entries := len(p.RowLower), len(p.Cost), len(p.Index); rows > MaxRows || columns > MaxColumns || entries > MaxEntries {
		return nil, fmt.Errorf("a program of %d rows, %d columns and %d entries is too large: at most %d, %d and %d fit into the solver's 2 GiB", rows, columns, entries, MaxRows, MaxColumns, MaxEntries)
	}
	if len(p.Cost) == 0 {
		return empty(p), nil
	}
	var solution *linear.Solution
	err := s.with(ctx, func(c *child) (err error) {
		solution, err = c.solve(p, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return solution, nil
}

func checkLimits(l linear.Limits) error {
	if l.Iterations < 0 || l.Nodes < 0 || l.Checks < 0 || !(l.Gap >= 0) || l.Gap > 1e9 {
		return fmt.Errorf("limits of %d iterations, %d nodes, %d checks and gap %g: none may be negative, and a gap is a number", l.Iterations, l.Nodes, l.Checks, l.Gap)
	}
	return nil
}

// empty solves a program without columns: every row is 0.
func empty(p *linear.Program) *linear.Solution {
	s := &linear.Solution{Status: linear.Optimal, X: []float64{}, Prices: make([]float64, len(p.RowLower))}
	s.Basis = &linear.Basis{Columns: []int8{}, Rows: make([]int8, len(p.RowLower))}
	for i := range p.RowLower {
		s.Basis.Rows[i] = basic
		if p.RowLower[i] > 0 || p.RowUpper[i] < 0 {
			return &linear.Solution{Status: linear.Infeasible, Objective: math.Inf(1), Bound: math.Inf(1)}
		}
	}
	return s
}

// refused is what a child says of a program that it could not solve, and after
// which it can solve the next.
type refused string

func (r refused) Error() string { return string(r) }

// errGone is for a child that ended while it had nothing to do.
var errGone = errors.New("it ended while it was idle")

// with runs f with a child that runs, and kills it when the context ends or f
// fails otherwise than by a refusal. For a child that is gone it starts another,
// once.
func (s *Solver) with(ctx context.Context, f func(*child) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	}
	err := s.once(ctx, f)
	if errors.Is(err, errGone) {
		err = s.once(ctx, f)
	}
	return err
}

func (s *Solver) once(ctx context.Context, f func(*child) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	c := s.child
	if c == nil {
		var err error
		if c, err = spawn(s.options.CacheDir); err != nil {
			s.mu.Unlock()
			return err
		}
		s.child = c
	}
	s.mu.Unlock()

	stop := context.AfterFunc(ctx, c.kill)
	err := s.ready(c)
	if err == nil {
		err = f(c)
	}
	intime := stop()
	if err == nil && intime {
		return nil
	}
	var r refused
	if errors.As(err, &r) && intime {
		return fmt.Errorf("solve a linear program: %s", string(r))
	}
	c.kill()
	said := c.wait()
	s.mu.Lock()
	s.child = nil
	closed := s.closed
	s.mu.Unlock()
	switch {
	case err == nil: // the answer came before the context ended
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case closed:
		return errClosed
	}
	return fmt.Errorf("the process that solves linear programs failed, and the next program starts another: %w%s", err, said)
}

// ready waits for a child's first word.
func (s *Solver) ready(c *child) error {
	if c.started {
		return nil
	}
	kind, body, err := readFrame(c.out, nil, maxText)
	if err != nil {
		return fmt.Errorf("it did not start: %w", err)
	}
	var start Start
	if err := json.Unmarshal(body, &start); kind != kindHello || err != nil {
		return fmt.Errorf("%w: it did not start with a hello", errFrame)
	}
	c.started = true
	s.mu.Lock()
	s.starts = append(s.starts, start)
	s.mu.Unlock()
	return nil
}

// child is a process that solves.
type child struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	in      io.WriteCloser
	out     *bufio.Reader
	said    tail
	started bool
	buf     []byte
}

func spawn(cacheDir string) (*child, error) {
	self, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it once more: %w", err)
	}
	c := &child{cmd: exec.Command(self, childArgument, cacheDir), ended: make(chan struct{})}
	c.cmd.Args[0] = os.Args[0]
	// Nothing of the parent's environment is needed, and no secret in it is passed on.
	c.cmd.Env = []string{childVariable + "=" + moduleSum, "GOMAXPROCS=2"}
	c.cmd.Stderr = &c.said
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 64<<10)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that solves linear programs: %w", err)
	}
	go func() {
		_, _ = c.cmd.Process.Wait()
		close(c.ended)
	}()
	return c, nil
}

// executable is the file of this program, also when another has taken its place
// since it started.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		const self = "/proc/self/exe"
		if _, err := os.Stat(self); err == nil {
			return self, nil
		}
	}
	return os.Executable()
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// wait returns what the child said last on its standard error, once it has ended.
func (c *child) wait() string {
	_ = c.in.Close()
	<-c.ended
	_ = c.cmd.Wait() // of what it said
	if said := c.said.String(); said != "" {
		return ": " + said
	}
	return ""
}

func (c *child) solve(p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	select {
	case <-c.ended: // its pipes may still be open
		return nil, errGone
	default:
	}
	c.buf = appendProgram(c.buf[:0], p, l)
	if _, err := c.in.Write(appendHeader(nil, kindProgram, len(c.buf))); err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if _, err := c.in.Write(c.buf); err != nil {
		return nil, err
	}
	kind, body, err := readFrame(c.out, c.buf, maxAnswer)
	if errors.Is(err, io.EOF) {
		err = errors.New("it ended in the middle of a program")
	}
	if err != nil {
		return nil, err
	}
	if c.buf = body; cap(body) > plenty {
		c.buf = nil
	}
	switch kind {
	case kindSolution:
		return parseSolution(body, len(p.RowLower), len(p.Cost))
	case kindFailure:
		return nil, refused(body)
	}
	return nil, fmt.Errorf("%w: of kind %d", errFrame, kind)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 4 << 10
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
