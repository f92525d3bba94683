package highs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// A child is this same program with one argument and one environment variable set. Both are
// required, so that a program does not become a child by accident.
const (
	childArgument = "solve-linear-programs"
	childVariable = "QUARTERMASTER_HIGHS_CHILD"
)

// Every program that imports this package can be its own child. A child starts here and never
// reaches main.
func init() {
	if len(os.Args) == 3 && os.Args[1] == childArgument && os.Getenv(childVariable) == moduleSum {
		os.Exit(serve(os.Stdin, os.Stdout, os.Stderr, os.Args[2]))
	}
}

// plenty is the largest buffer kept between programs, in bytes.
const plenty = 64 << 20

// serve answers programs until its input ends.
func serve(in io.Reader, out, errs io.Writer, cacheDir string) int {
	fail := func(err error) int {
		fmt.Fprintln(errs, err)
		return 1
	}
	begun := time.Now()
	ctx := context.Background()
	m, cached, err := prepare(cacheDir, func(c wazero.CompilationCache) (*machine, error) {
		return newMachine(ctx, c)
	})
	if err != nil {
		return fail(err)
	}
	hello, err := json.Marshal(Start{Took: time.Since(begun), Cached: cached})
	if err != nil {
		return fail(err)
	}
	if err := writeFrame(out, kindHello, hello); err != nil {
		return fail(err)
	}

	// The goroutine that reads also notices during a solve that the parent is gone.
	type frame struct {
		body []byte
		done chan struct{}
	}
	frames := make(chan frame)
	go func() {
		r := bufio.NewReaderSize(in, 1<<20)
		var buf []byte
		for {
			kind, body, err := readFrame(r, buf, maxProgram)
			if err == nil && kind != kindProgram {
				err = fmt.Errorf("%w: of kind %d", errFrame, kind)
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					os.Exit(0) //nolint:revive // deep-exit: a child has no main
				}
				fmt.Fprintln(errs, err)
				os.Exit(1) //nolint:revive // deep-exit: a child has no main
			}
			f := frame{body, make(chan struct{})}
			frames <- f
			// The parent sends nothing until it has its answer. Until then, Peek can only
			// return the end of the input.
			if _, err := r.Peek(1); err != nil {
				os.Exit(0) //nolint:revive // deep-exit: a child has no main
			}
			<-f.done
			if buf = body; cap(buf) > plenty {
				buf = nil
			}
		}
	}()
	var answer []byte
	for f := range frames {
		kind := uint32(kindFailure)
		r, err := parseProgram(f.body)
		if err == nil {
			// The module cannot be preempted. A garbage collection would wait for it, and
			// all other goroutines would wait for the garbage collection.
			percent := debug.SetGCPercent(-1)
			s, serr := m.solve(ctx, r)
			debug.SetGCPercent(percent)
			if err = serr; err == nil {
				kind, answer = kindSolution, appendSolution(answer[:0], s)
			}
		}
		if err != nil {
			text := err.Error()
			answer = append(answer[:0], text[:min(len(text), maxText)]...)
		}
		close(f.done)
		if err := writeFrame(out, kind, answer); err != nil {
			return fail(err)
		}
		if cap(answer) > plenty {
			answer = nil
		}
	}
	return 0
}

// prepare makes a machine from the cached code, or compiles. A folder that is not writable or a
// full disk only costs the time of compiling, at this start and the next.
func prepare(cacheDir string, compile func(wazero.CompilationCache) (*machine, error)) (m *machine, cached bool, err error) {
	store := openCache(cacheDir)
	if m, err = compile(store.cache); err == nil {
		return m, store.seal(), nil
	}
	if store.cache == nil {
		return nil, false, err
	}
	store.unlock() // the files that it wrote have no digest, so they are ignored
	m, err = compile(nil)
	return m, false, err
}

// store is the cache of compiled code, because compiling takes ten seconds. The code is executed
// without further checks. So a file counts only if its SHA-256 is in a file next to it, and a
// folder only if it is owned by this user and not writable by others. A file that does not match
// is removed and compiled again. One process compiles while the others wait for it.
type store struct {
	cache wazero.CompilationCache // nil when the folder cannot be used
	dir   string
	lock  *os.File
	known map[string]bool // files with a matching digest
}

const sealed = ".sha256"

func openCache(dir string) *store {
	s := &store{dir: dir, known: make(map[string]bool)}
	if dir == "" || os.MkdirAll(dir, 0o700) != nil || !ours(dir) {
		return s
	}
	if f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err == nil {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		s.lock = f
	}
	walkCode(dir, func(file, sum string) {
		if want, err := os.ReadFile(file + sealed); err == nil && string(want) == sum {
			s.known[file] = true
			return
		}
		_ = os.Remove(file)
	})
	// Without a cache every start compiles.
	s.cache, _ = wazero.NewCompilationCacheWithDir(dir)
	return s
}

// ours reports whether a folder is owned by this user and not writable by others.
func ours(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}

// seal writes the digests of the files compiled since openCache and releases the lock. It reports
// whether nothing had to be compiled.
func (s *store) seal() (cached bool) {
	if s.cache == nil {
		return false
	}
	cached = true
	walkCode(s.dir, func(file, sum string) {
		if !s.known[file] {
			cached = false
			_ = os.WriteFile(file+sealed, []byte(sum), 0o600)
		}
	})
	s.unlock()
	return cached
}

func (s *store) unlock() {
	if s.lock != nil {
		s.lock.Close()
	}
}

// walkCode calls f for each file of code. It ignores files that cannot be read.
func walkCode(dir string, f func(file, sum string)) {
	_ = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(file, sealed) && filepath.Dir(file) != dir {
			if b, err := os.ReadFile(file); err == nil {
				sum := sha256.Sum256(b)
				f(file, hex.EncodeToString(sum[:]))
			}
		}
		return nil
	})
}
