package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"quartermaster/adapters/highs"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain/long"
	"quartermaster/simulations/public"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"quartermaster": func() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// inMemory returns a folder in memory for the scripts to work in, where nothing is
// written to disk, and "" where there is none with enough room.
func inMemory(t *testing.T) string {
	var room unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &room); err != nil || room.Bavail*uint64(room.Bsize) < 1<<30 {
		return ""
	}
	dir, err := os.MkdirTemp("/dev/shm", "quartermaster-script-")
	if err != nil {
		return ""
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestScript plays what users do. Each script says why it exists.
func TestScript(t *testing.T) {
	data, err := filepath.Abs(public.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	if !public.Has(t, "helios") { // scripts that need the data are skipped
		data = ""
	}
	demo, err := filepath.Abs(filepath.Join("testdata", "first-hour"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: inMemory(t),
		Setup: func(env *testscript.Env) error {
			env.Setenv("QUARTERMASTER_DATA_DIR", filepath.Join(env.WorkDir, "home"))
			env.Setenv("DATA", data)
			env.Setenv("DEMO", demo)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("MONTH", time.Now().UTC().Format("2006-01"))
			if cache, err := os.UserCacheDir(); err == nil { // the solver is compiled once for all
				env.Setenv("XDG_CACHE_HOME", cache)
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "data":
				return data != "", nil
			case "highs":
				return highs.Available(), nil
			case "postgres":
				return os.Getenv("QM_POSTGRES_DSN") != "", nil
			case "long":
				return long.Run(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"crash":    crash,
			"repeat":   repeatText,
			"gzbomb":   gzipBomb,
			"flip":     flip,
			"poison":   apptest.Poison,
			"scrape":   scrape,
			"alike":    alike,
			"receive":  receive,
			"measure":  measure,
			"evaluate": evaluate,
			"killed":   killed,

			"production":  production,
			"foldrows":    foldRows,
			"execsql":     execSQL,
			"killrebuild": killRebuild,
		},
	})
}

// crash SEED TIMES LEAST MOST COMMAND... runs a command again and again, each
// time killing it with SIGKILL after a random time between LEAST and MOST, and
// in the end lets it finish. It fails when no run was killed before its end.
func crash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: crash seed times least most command...")
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	ts.Check(err)
	times, err := strconv.Atoi(args[1])
	ts.Check(err)
	least, err := time.ParseDuration(args[2])
	ts.Check(err)
	most, err := time.ParseDuration(args[3])
	ts.Check(err)
	rng := rand.New(rand.NewPCG(seed, 9))
	path, err := exec.LookPath(args[4])
	ts.Check(err)
	command := func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, path, args[5:]...) // CommandContext kills with SIGKILL
		c.Dir = ts.Getenv("WORK")
		c.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "QUARTERMASTER_DATA_DIR="+ts.Getenv("QUARTERMASTER_DATA_DIR"))
		return c
	}
	killed := 0
	for range times {
		ctx, cancel := context.WithTimeout(context.Background(), least+time.Duration(rng.Int64N(int64(most-least))))
		out, err := command(ctx).CombinedOutput()
		if ctx.Err() != nil && err != nil {
			killed++
		} else if err != nil {
			ts.Fatalf("a run failed by itself: %v\n%s", err, out)
		}
		cancel()
	}
	if killed == 0 {
		ts.Fatalf("every run ended before it was killed: shorten the times")
	}
	out, err := command(context.Background()).CombinedOutput()
	if err != nil {
		ts.Fatalf("the run after %d kills failed: %v\n%s", killed, err, out)
	}
	ts.Logf("killed %d times; the last run: %s", killed, out)
}

// repeat FILE N TEXT writes TEXT N times into FILE, without line ends.
func repeatText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeat file n text")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text, err := strconv.Unquote(`"` + args[2] + `"`)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	_, err = f.WriteString(strings.Repeat(text, n))
	ts.Check(errors.Join(err, f.Close()))
}

// gzbomb FILE N writes a gzip file that unpacks to N bytes.
func gzipBomb(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: gzbomb file n")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var out bytes.Buffer
	c := exec.Command("gzip", "-9")
	c.Stdin = bytes.NewReader(bytes.Repeat([]byte("0"), n))
	c.Stdout = &out
	ts.Check(c.Run())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), out.Bytes(), 0o600))
}

// flip GLOB POSITION changes one bit of the first file that matches, counted
// from its end when POSITION is negative.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip glob position")
	}
	paths, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(paths) == 0 {
		ts.Fatalf("no file matches %s", args[0])
	}
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	b, err := os.ReadFile(paths[0])
	ts.Check(err)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	ts.Check(os.WriteFile(paths[0], b, 0o600))
}
