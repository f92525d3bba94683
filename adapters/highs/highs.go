// Package highs solves linear and mixed-integer programs with HiGHS. The npm package highs
// compiles HiGHS to WebAssembly; this package embeds that module, and wazero compiles it to
// machine code. So it needs neither a C compiler nor a C library.
//
// What always holds:
//
//   - Equal programs and limits give equal solutions, bit for bit, on every machine. Each
//     program is solved in a new instance of the module, in one thread, with a fixed seed and
//     without a real clock: its time advances only when the module asks for it. WebAssembly
//     defines the rounding of floating point exactly.
//   - A solve can be cancelled at any moment. It runs in a child process, another instance of
//     this same program, which is killed when the context ends. The next solve starts a new
//     child.
//   - A program cannot affect anything outside of the child: the module has no files, network
//     or environment, and at most 2 GiB of memory.
//
// "make highs" installs the module. Without it, Available returns false.
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

// Options are the options of a solver. The zero value is a good choice.
type Options struct {
	// CacheDir holds the compiled module, about 20 MB. The default is quartermaster/highs in the
	// user's cache directory.
	CacheDir string
}

// Start is how long a child took to start: about ten seconds if it had to compile the module,
// which happens once per machine, else some tenths of a second.
type Start struct {
	Took   time.Duration
	Cached bool // the compiled module was in the cache
}

// Available reports whether this build can solve linear programs on this machine.
func Available() bool {
	b, err := embedded()
	return err == nil && b != nil && compiles()
}

// compiles reports whether wazero can compile for this machine. Interpreting would take a hundred
// times as long.
func compiles() bool {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "freebsd"
	}
	return false
}

// Solver is a linear.Solver. It is safe for concurrent use and solves one program at a time.
type Solver struct {
	options Options
	turn    chan struct{} // holds one token: its holder may solve

	mu     sync.Mutex // guards the fields below
	child  *child
	starts []Start
	closed bool
}

var _ linear.Solver = (*Solver)(nil)

// errClosed is the error of a program after Close.
var errClosed = errors.New("the solver of linear programs is closed")

// Open returns a solver. It starts its child at the first program. The error wraps
// linear.ErrUnavailable if the build has no module or the module cannot be compiled for this
// machine.
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

// Starts returns how long each child took to start, in order.
func (s *Solver) Starts() []Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Start(nil), s.starts...)
}

// Close kills the child and waits until it has ended. A solve in progress returns an error.
func (s *Solver) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.child != nil {
		s.child.kill()
	}
	s.mu.Unlock()
	<-s.turn // a solve in progress fails now and removes the child
	defer func() { s.turn <- struct{}{} }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		s.child.wait()
		s.child = nil
	}
	return nil
}

// Warm starts the child, so that the first program need not wait for it.
func (s *Solver) Warm(ctx context.Context) error {
	return s.with(ctx, func(*child) error { return nil })
}

// Solve solves a program. See linear.Solver for its errors. Limits.Iterations bounds the work of
// a program without integer variables; the other limits bound that of a program with them, where
// a Gap of 0 means 1e-4. Matrix values above 1e15 in magnitude are refused, values below 1e-9
// count as 0, and a bound of 1e20 or more means no bound.
func (s *Solver) Solve(ctx context.Context, p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if err := checkLimits(l); err != nil {
		return nil, err
	}
	rows, columns, entries := len(p.RowLower), len(p.Cost), len(p.Index)
	if rows > MaxRows || columns > MaxColumns || entries > MaxEntries {
		return nil, fmt.Errorf(
			"a program of %d rows, %d columns and %d entries is too large: at most %d, %d and %d fit into the solver's 2 GiB",
			rows, columns, entries, MaxRows, MaxColumns, MaxEntries,
		)
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
		return fmt.Errorf(
			"limits of %d iterations, %d nodes, %d checks and gap %g: want none negative, and a gap of at most 1e9",
			l.Iterations, l.Nodes, l.Checks, l.Gap,
		)
	}
	return nil
}

// empty solves a program without columns, in which every row is 0.
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

// refused is a child's error for a program that it could not solve. The child can solve the next
// program.
type refused string

func (r refused) Error() string { return string(r) }

// errGone means that the child ended while it was idle.
var errGone = errors.New("it ended while it was idle")

// with runs f with a running child. It kills the child when the context ends or when f fails
// with an error other than refused. If the child is gone, it starts another one and tries once
// more.
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
	return fmt.Errorf("the solver process failed; the next program starts another: %w%s", err, said)
}

// ready waits for a child's hello.
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
		return nil, fmt.Errorf("find the executable of this program: %w", err)
	}
	c := &child{cmd: exec.Command(self, childArgument, cacheDir), ended: make(chan struct{})}
	c.cmd.Args[0] = os.Args[0]
	// The child does not need the parent's environment, which may contain secrets.
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
		return nil, fmt.Errorf("start the solver process: %w", err)
	}
	go func() {
		_, _ = c.cmd.Process.Wait()
		close(c.ended)
	}()
	return c, nil
}

// executable returns the file of this program, even if the file was replaced since the start.
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

// wait waits for the end of the child and returns the end of its standard error.
func (c *child) wait() string {
	_ = c.in.Close()
	<-c.ended
	_ = c.cmd.Wait() // for the copy of its standard error
	if said := c.said.String(); said != "" {
		return ": " + said
	}
	return ""
}

func (c *child) solve(p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	select {
	case <-c.ended: // check first, because its pipes may still be open
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
