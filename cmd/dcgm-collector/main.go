// Command dcgm-collector reads the GPUs of a node through NVIDIA's DCGM and writes the results to
// its standard output, as frames (package adapters/dcgm). node-reporter starts it, and kills it if
// it hangs.
//
// It is the only program of the project with C code. It is a separate process for three reasons. A
// function that libdcgm.so.4 lacks ends the calling process with exit code 127. A driver that hangs
// blocks the calling thread for ever. And a crash in the driver's libraries must not lose earlier
// observations. So the collector keeps no state on disk, and in memory only what it needs to detect
// a change.
//
// Invariants:
//
//   - Every DCGM function is looked up before the first call of DCGM.
//   - Each group of fields works or fails on its own.
//   - A value is a number only if its status, its age and its range are good.
//   - Standard output carries only frames, whatever a library prints.
//   - Heartbeats come from a thread that makes no DCGM calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/buildinfo"
	"quartermaster/adapters/commandline"
	"quartermaster/adapters/dcgm"
)

// Config is the collector's configuration. There is no file for it: node-reporter passes flags.
type Config struct {
	// Engine is the DCGM that reads the GPUs; see candidates.
	Engine dcgm.Engine
	// Since is the cursor of an earlier run, in microseconds since 1970. XIDs that an nv-hostengine
	// kept since then are reported. 0 begins now.
	Since int64
	// Every is the time between readings of utilization.
	Every time.Duration
	// Medium is the time between readings of thermals and clocks, Slow that of errors and links.
	Medium, Slow time.Duration
	// Heartbeat is the time between heartbeats.
	Heartbeat time.Duration
	// Profiling says whether to use the profiling module. With some drivers, two clients cannot
	// profile the same GPU, and a debugger may need it.
	Profiling bool
}

// Exit codes. The text of the fatal Trouble says more.
const (
	exitOther      = 1
	exitUsage      = 2
	exitWithoutC   = 3
	exitNoLibrary  = 10
	exitVersion    = 11
	exitSymbol     = 12
	exitPermission = 13
	exitEngine     = 14
	exitDriver     = 15
	exitNoGPUs     = 16
	exitConnection = 17
	exitOutput     = 18 // the frames' reader is gone
)

var exits = map[string]int{
	dcgm.TroubleNoLibrary:  exitNoLibrary,
	dcgm.TroubleVersion:    exitVersion,
	dcgm.TroubleSymbol:     exitSymbol,
	dcgm.TroublePermission: exitPermission,
	dcgm.TroubleEngine:     exitEngine,
	dcgm.TroubleDriver:     exitDriver,
	dcgm.TroubleNoGPUs:     exitNoGPUs,
	dcgm.TroubleConnection: exitConnection,
	dcgm.TroubleWithoutC:   exitWithoutC,
}

// fatal is an error that ends the program.
type fatal struct{ dcgm.Trouble }

func (f *fatal) Error() string { return f.Text }

var errOutput = errors.New("nobody reads the frames any more")

func main() {
	// Two threads suffice: one for DCGM, one for heartbeats. The memory is bounded because each
	// DCGM value takes 4 KiB, and is garbage a second later.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(32 << 20)
	out, err := claimOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "dcgm-collector: %v\n", err)
		os.Exit(exitOther)
	}
	os.Exit(run(os.Args[1:], out, os.Stderr))
}

// run is the program without its process.
func run(args []string, stdout *os.File, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	code := 0
	var cfg Config
	var engine string
	root := &cobra.Command{
		Use:   "dcgm-collector",
		Short: "Read this node's GPUs through DCGM and write frames to standard output",
		Long: `Reads this node's GPUs through NVIDIA's DCGM 4 and writes frames to standard
output, for node-reporter, which starts this program. Run "dcgm-collector check" to
see what works on this node.

It attaches to an nv-hostengine if one runs, because two engines on one node contend for
the profiling counters. auto tries the Unix sockets /run/nv-hostengine.sock and
/tmp/nv-hostengine, then tcp://127.0.0.1:5555, and embeds DCGM if none answers. auto
skips an engine that another user may have started; an engine that --engine names is
always used. If auto embedded DCGM and an nv-hostengine starts later, the collector
ends, and attaches to it when it is started again. "dcgm-collector check" shows which
engine was used, and the results of the others.

It needs libdcgm.so.4 (package datacenter-gpu-manager-4-core) and the right to open
/dev/nvidia*. Profiling counters may need more rights, and are left out if they are
refused.

Exit codes: 0 ended when asked to, 1 other, 2 wrong flags, 3 built without C,
10 no libdcgm.so.4, 11 another version of DCGM, 12 the library lacks a function,
13 no permission, 14 no engine, 15 no driver, 16 no GPUs, 17 the nv-hostengine went
away, or one came while DCGM was embedded, 18 nobody reads the frames.`,
		Example: `  dcgm-collector check
  dcgm-collector check -o json
  dcgm-collector --engine tcp://127.0.0.1:5555 | my-reader
  dcgm-collector --engine embedded --profiling=false`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			if cfg.Engine, err = dcgm.ParseEngine(engine); err != nil {
				return fmt.Errorf("--engine %w", err)
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			if isTerminal(stdout) {
				return errors.New("frames are binary, and standard output is a terminal: " +
					"pipe it into node-reporter, or run \"dcgm-collector check\"")
			}
			if err := cfg.valid(); err != nil {
				return err
			}
			err := collect(ctx, cfg, stdout, stderr)
			code = exitOf(err)
			if err != nil {
				fmt.Fprintf(stderr, "dcgm-collector: %v\n", err)
			}
			return nil
		},
	}
	fs := root.PersistentFlags()
	fs.StringVar(&engine, "engine", "auto", "tcp://HOST:PORT or unix:PATH of an nv-hostengine, embedded, "+
		"or auto: the first that is there and that root or this user started, else embedded")
	fs.BoolVar(&cfg.Profiling, "profiling", true, "read SM, tensor and DRAM activity from the profiling module")
	own := root.Flags()
	own.Int64Var(&cfg.Since, "since", 0, "cursor of an earlier run, microseconds since 1970: report XIDs from there on")
	own.DurationVar(&cfg.Every, "every", time.Second, "time between readings of utilization")
	own.DurationVar(&cfg.Medium, "medium", 10*time.Second, "time between readings of thermals and clocks")
	own.DurationVar(&cfg.Slow, "slow", 30*time.Second, "time between readings of errors and links, and between health checks")
	own.DurationVar(&cfg.Heartbeat, "heartbeat", 2*time.Second, "time between heartbeats")
	var output string
	commandline.OutputFlag(fs, &output, "form of check and version: text or json", "text", "json")
	root.AddCommand(checkCommand(&cfg, stdout, &code, &output))
	version := buildinfo.Of("dcgm-collector")
	if err := commandline.SetVersion(root, version.Version, version); err != nil {
		fmt.Fprintf(stderr, "dcgm-collector: %v\n", err)
		return exitOther
	}
	commandline.Strict(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "dcgm-collector: %v\n", err)
		return exitUsage
	}
	return code
}

func (c *Config) valid() error {
	switch {
	case c.Every < 100*time.Millisecond:
		return fmt.Errorf("--every %v is shorter than 100ms, the fastest that DCGM samples", c.Every)
	case c.Medium < c.Every || c.Slow < c.Medium:
		return fmt.Errorf("--every %v, --medium %v and --slow %v must not become shorter", c.Every, c.Medium, c.Slow)
	case c.Heartbeat < 10*time.Millisecond:
		return fmt.Errorf("--heartbeat %v is shorter than 10ms", c.Heartbeat)
	case c.Since < 0:
		return fmt.Errorf("--since %d is before 1970", c.Since)
	}
	return nil
}

func exitOf(err error) int {
	var f *fatal
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errOutput):
		return exitOutput
	case errors.As(err, &f):
		if code, ok := exits[f.Code]; ok {
			return code
		}
	}
	return exitOther
}

// Report is the result of check, as JSON.
type Report struct {
	OK      bool          `json:"ok"`
	Trouble string        `json:"trouble,omitempty"` // a code word, as in frames
	Text    string        `json:"text,omitempty"`    // for people
	Exit    int           `json:"exit"`              // exit code of the program
	Library string        `json:"library,omitempty"` // version of DCGM
	Path    string        `json:"path,omitempty"`    // of the library
	Driver  string        `json:"driver,omitempty"`
	Engine  string        `json:"engine,omitempty"` // the one in use
	Tried   []Attempt     `json:"tried,omitempty"`  // engines, in the order of trying
	Devices []ReportGPU   `json:"devices,omitempty"`
	Groups  []ReportGroup `json:"groups,omitempty"`
}

// ReportGPU is a GPU, or a MIG device of one.
type ReportGPU struct {
	GPU     uint32 `json:"gpu"`
	UUID    string `json:"uuid,omitempty"`
	Model   string `json:"model,omitempty"`
	PCI     string `json:"pci,omitempty"`
	Profile string `json:"profile,omitempty"` // of a MIG device
	Lost    bool   `json:"lost,omitempty"`
}

// ReportGroup is a set of fields.
type ReportGroup struct {
	Name   string   `json:"name"`
	Works  bool     `json:"works"`
	Fields []uint32 `json:"fields,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

func checkCommand(cfg *Config, stdout io.Writer, code *int, output *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say what works on this node, and what is missing",
		Long: `Loads DCGM, attaches to an engine or embeds one, lists the GPUs and watches every
group of fields for a moment. The exit codes are the collector's.

Keys of -o json: ok; trouble (a word), text and exit if something is missing;
library (version of DCGM), path, driver; engine (the one in use); tried (engine, result:
used, absent, untrusted or failed, reason); devices (gpu, uuid, model, pci, profile,
lost); groups (name, works, fields, reason).`,
		Example: `  dcgm-collector check
  dcgm-collector check --engine tcp://127.0.0.1:5555 -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg.Every, cfg.Medium, cfg.Slow, cfg.Heartbeat = time.Second, 10*time.Second, 30*time.Second, time.Second
			r := check(*cfg)
			*code = r.Exit
			if *output == "json" {
				e := json.NewEncoder(stdout)
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			r.print(stdout)
			return nil
		},
	}
}

func (r *Report) print(w io.Writer) {
	if !r.OK {
		fmt.Fprintf(w, "not ready: %s\n", r.Text)
	}
	if r.Path != "" {
		fmt.Fprintf(w, "library   DCGM %s, %s\n", r.Library, r.Path)
	}
	if r.Engine != "" {
		fmt.Fprintf(w, "engine    %s\n", r.Engine)
	}
	for _, a := range r.Tried {
		fmt.Fprintf(w, "tried     %s: %s\n", a.Engine, a.text())
	}
	if r.Driver != "" {
		fmt.Fprintf(w, "driver    %s\n", r.Driver)
	}
	for _, d := range r.Devices {
		what := d.Model
		if d.Profile != "" {
			what = "MIG " + d.Profile
		}
		if d.Lost {
			what += " (lost)"
		}
		fmt.Fprintf(w, "gpu %-5d %s  %s  %s\n", d.GPU, d.UUID, d.PCI, what)
	}
	for _, g := range r.Groups {
		state := "works"
		if !g.Works {
			state = "not available: " + g.Reason
		} else if g.Reason != "" {
			state = "works in part: " + g.Reason
		}
		fmt.Fprintf(w, "%-9s %s\n", g.Name, state)
	}
}
