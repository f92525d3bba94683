// Package simdcgm builds a simulated libdcgm.so.4 for machines without GPUs. go-dcgm opens it
// unchanged. It has eight GPUs, or as many as the scenario sets, with a seeded load, and
// injects every fault in the list below.
//
// The library is C (lib/) and is compiled against the headers of the go-dcgm module. Two
// files control it: the scenario describes the node at start, and commands appended to the
// control file take effect within a second. Both hold one command per line:
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
// An invalid line is reported on standard error with its file and line number.
//
// Clients connect to an engine through an existing path or a TCP address with a listener;
// [Machine.Connects] lists the addresses that they tried. "start" sets the code that starting
// or connecting returns. The STATUS of "field" is what DCGM returns for the field, with two
// special values: 1 returns success with a blank value, and 2 returns a value that is two
// minutes old.
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

// Library is the file name that DCGM's clients open.
const Library = "libdcgm.so.4"

//go:embed lib/*.c lib/*.h
var source embed.FS

// ErrNoCompiler means that there is no C compiler. A test skips.
var ErrNoCompiler = errors.New("no C compiler found: install gcc, or name one with CC")

// Build compiles the library into dir. To simulate an older library, without names functions
// to leave out: "VERSION", "HEALTH".
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

// Machine is a simulated node.
type Machine struct {
	Library  string // folder of the library
	Scenario string // file
	Control  string // file; Control+".at" records each command with its time
}

// NewMachine creates a node in the folder dir from the lines of a scenario. The argument
// library is the folder that [Build] compiled into.
func NewMachine(library, dir string, scenario ...string) (*Machine, error) {
	m := &Machine{Library: library, Scenario: filepath.Join(dir, "scenario"), Control: filepath.Join(dir, "control")}
	return m, errors.Join(
		os.WriteFile(m.Scenario, []byte(strings.Join(scenario, "\n")+"\n"), 0o600),
		os.WriteFile(m.Control, nil, 0o600),
	)
}

// Connects returns the addresses that clients tried to connect to, in order: "unix PATH" or
// "tcp HOST:PORT".
func (m *Machine) Connects() ([]string, error) {
	b, err := os.ReadFile(m.Control + ".connects")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// Env returns the environment variables that make a program use the node.
func (m *Machine) Env() []string {
	return []string{"LD_LIBRARY_PATH=" + m.Library, "SIMDCGM_SCENARIO=" + m.Scenario, "SIMDCGM_CONTROL=" + m.Control}
}

// Do appends commands to the control file in one write.
func (m *Machine) Do(commands ...string) error {
	f, err := os.OpenFile(m.Control, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(commands, "\n") + "\n")
	return errors.Join(err, f.Close())
}
