// Package simdcgm builds a libdcgm.so.4 for machines without GPUs, which go-dcgm opens
// unchanged: eight GPUs, or as many as a scenario says, whose load follows a seed, and
// every fault that can be asked for.
//
// The library is C (lib/) and is compiled against the headers inside the go-dcgm
// module. Two files steer it. The scenario says what there is; commands appended to the
// control file take effect within a second. Both hold a command a line:
//
//	gpus N                    model TEXT      memory MIB    driver VERSION   version DCGM
//	seed N                    period SECONDS  links N       profiling on|missing|off
//	recoveries on|off         start CODE      mismatch health|nvlink|mig|connect|version
//	at SECONDS COMMAND        a command of the scenario that waits
//	xid GPU CODE [INSTANCE]   recovery GPU ACTION           health GPU SYSTEM CODE warn|fail
//	healthy GPU               lost GPU        found GPU     nvlink GPU LINK up|down
//	ecc GPU corrected|uncorrectable N         replay GPU N
//	remap GPU corrected|uncorrectable|pending|failed N
//	retire GPU corrected|uncorrectable|pending N
//	thermal GPU on|off        brake GPU on|off              load GPU PERCENT
//	mig GPU off|on|SLICES[:COMPUTES]...                     field ID STATUS [GPU]
//	hang [MILLISECONDS]       hang health     hang live     disconnect       resume
//	crash                     clock SECONDS   print TEXT    minor GPU N
//
// A line that is none is said on standard error with its file and number.
//
// Clients connect to an engine by a path that exists or a TCP address where something
// listens; [Machine.Connects] tells which they asked for. Start is what starting or
// connecting returns. The status of a field is what DCGM
// returns for it, or 1 for a value that is the mark for none under a status that says
// all is well, or 2 for one that is two minutes old.
package simdcgm

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Library is the name that DCGM's clients open.
const Library = "libdcgm.so.4"

//go:embed lib/*.c lib/*.h
var source embed.FS

// ErrNoCompiler says that there is no C compiler: a test skips.
var ErrNoCompiler = errors.New("no C compiler found: install gcc, or name one with CC")

// Build compiles the library into dir. Without names functions to leave out, as an older
// library would: "VERSION", "HEALTH".
func Build(dir string, without ...string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(strings.Fields(cc)[0]); err != nil {
		return ErrNoCompiler
	}
	headers, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	if err != nil {
		return fmt.Errorf("find the headers of go-dcgm: %v", err)
	}
	from, err := os.MkdirTemp("", "simdcgm")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(from) }()
	if err := os.CopyFS(from, source); err != nil {
		return err
	}
	args := append(strings.Fields(cc)[1:], "-shared", "-fPIC", "-O2", "-g", "-fvisibility=hidden", "-DDCGM_API_EXPORT",
		"-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,-soname,"+Library,
		"-I", filepath.Join(strings.TrimSpace(string(headers)), "pkg", "dcgm"))
	for _, w := range without {
		args = append(args, "-DWITHOUT_"+w)
	}
	args = append(args, "-o", filepath.Join(dir, Library), filepath.Join(from, "lib", "simdcgm.c"), filepath.Join(from, "lib", "world.c"), "-lm")
	if out, err := exec.Command(strings.Fields(cc)[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %v\n%s", Library, err, out)
	}
	return nil
}

// Machine is a made-up node.
type Machine struct {
	Library  string // folder of the library
	Scenario string // file
	Control  string // file; what was appended to it and when stands in Control+".at" too
}

// NewMachine makes a node in the folder dir from the lines of a scenario, with a library
// that [Build] put into another.
func NewMachine(library, dir string, scenario ...string) (*Machine, error) {
	m := &Machine{Library: library, Scenario: filepath.Join(dir, "scenario"), Control: filepath.Join(dir, "control")}
	return m, errors.Join(
		os.WriteFile(m.Scenario, []byte(strings.Join(scenario, "\n")+"\n"), 0o600),
		os.WriteFile(m.Control, nil, 0o600),
	)
}

// Connects returns the addresses that clients connected to or tried to, in their order:
// "unix PATH" or "tcp HOST:PORT".
func (m *Machine) Connects() ([]string, error) {
	b, err := os.ReadFile(m.Control + ".connects")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// Env is what a program must have in its environment to see the node.
func (m *Machine) Env() []string {
	return []string{"LD_LIBRARY_PATH=" + m.Library, "SIMDCGM_SCENARIO=" + m.Scenario, "SIMDCGM_CONTROL=" + m.Control}
}

// Do appends commands to the control file, at once.
func (m *Machine) Do(commands ...string) error {
	f, err := os.OpenFile(m.Control, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(commands, "\n") + "\n")
	return errors.Join(err, f.Close())
}
