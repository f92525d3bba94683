package faults

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain"
)

// The table has every code of NVIDIA's catalog for which we hold facts, and does not contradict
// NVIDIA's immediate advice.
func TestEveryKnownXID(t *testing.T) {
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	f, err := os.Open(filepath.Join(dir, "xid.tsv"))
	if err != nil {
		t.Skipf("no facts to compare with: %v", err)
	}
	defer f.Close()
	mild := []string{ActionNone, ActionMonitor, ActionFollowCause, ActionContactSupport, ActionCheckLink, ActionDrainP2P, ActionRereadCapacity, ActionResetWhenIdle}
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		row := strings.Split(sc.Text(), "\t")
		code, err := strconv.ParseUint(row[0], 10, 32)
		if err != nil {
			continue
		}
		n++
		v := Standard().Judge(XID, uint32(code), RecoveryUnknown, 0)
		if !v.Known {
			t.Errorf("XID %d is not in the table", code)
			continue
		}
		switch row[3] {
		case "RESTART_APP":
			if v.Action != ActionRestartWorkload || v.Fatal {
				t.Errorf("XID %d: %s, fatal %v; NVIDIA advises %s", code, v.Action, v.Fatal, row[3])
			}
		case "RESET_GPU":
			if v.Action != ActionResetGPU || !v.Fatal {
				t.Errorf("XID %d: %s, fatal %v; NVIDIA advises %s", code, v.Action, v.Fatal, row[3])
			}
		case "RESTART_BM":
			if v.Action != ActionRebootNode || !v.Fatal {
				t.Errorf("XID %d: %s, fatal %v; NVIDIA advises %s", code, v.Action, v.Fatal, row[3])
			}
		case "IGNORE":
			if v.Fatal || !slices.Contains(mild, v.Action) {
				t.Errorf("XID %d: %s, fatal %v; NVIDIA advises %s", code, v.Action, v.Fatal, row[3])
			}
		}
		if row[5] == "application" && v.Class != "app" || row[5] == "hardware" && v.Class != "hardware" || row[5] == "driver" && v.Class != "driver" {
			t.Errorf("XID %d is of class %s; the facts say %s", code, v.Class, row[5])
		}
		if strings.EqualFold(v.Meaning, row[2]) {
			t.Errorf("XID %d: the meaning is NVIDIA's sentence, not ours", code)
		}
	}
	if n < 60 {
		t.Fatalf("only %d codes were read", n)
	}
}

// Every health code of DCGM, including those that go-dcgm has no name for, has an entry.
func TestHealthCodes(t *testing.T) {
	for code := uint32(117); code <= 129; code++ {
		if v := Standard().Judge(Health, code, RecoveryUnknown, 0); !v.Known {
			t.Errorf("health code %d is not in the table", code)
		}
	}
	for _, name := range signs {
		if v := Standard().JudgeSign(name, RecoveryUnknown, 0); !v.Known {
			t.Errorf("sign %s is not in the table", name)
		}
	}
}

func TestJudge(t *testing.T) {
	std := Standard()
	for _, c := range []struct {
		name     string
		code     uint32
		recovery Recovery
		seen     uint64
		want     Verdict
	}{
		{"table only", 79, RecoveryUnknown, 0, Verdict{"hardware", ActionRebootNode, true, "the GPU fell off the bus", true, false}},
		{"again", 79, RecoveryUnknown, 1, Verdict{"hardware", ActionReplaceGPU, true, "the GPU fell off the bus", true, false}},
		{"the driver wants more", 13, RecoveryReset, 0, Verdict{"app", ActionResetGPU, true, "exception in a kernel: an address or an instruction that is not valid", true, true}},
		{"the driver wants less", 62, RecoveryDrainP2P, 0, Verdict{"hardware", ActionDrainP2P, false, "a micro-controller halted", true, true}},
		{"the driver wants less than a replacement", 79, RecoveryDrainP2P, 3, Verdict{"hardware", ActionReplaceGPU, true, "the GPU fell off the bus", true, false}},
		{"the driver wants a reset, and it came again after one", 48, RecoveryReset, 1, Verdict{"hardware", ActionReplaceGPU, true, "memory error of two bits, not correctable", true, false}},
		{"the driver wants nothing of a GPU off the bus", 79, RecoveryNone, 0, Verdict{"hardware", ActionRebootNode, true, "the GPU fell off the bus", true, false}},
		{"the driver wants nothing of one to replace", 48, RecoveryNone, 1, Verdict{"hardware", ActionReplaceGPU, true, "memory error of two bits, not correctable", true, false}},
		{"the driver wants nothing, the work is lost all the same", 94, RecoveryNone, 0, Verdict{"hardware", ActionRestartWorkload, false, "memory error that hit one program alone", true, false}},
		{"the driver says that the device works", 62, RecoveryNone, 0, Verdict{"hardware", ActionResetGPU, false, "a micro-controller halted", true, false}},
		{"unknown code", 999, RecoveryUnknown, 0, Verdict{"", ActionLookUp, false, "xid 999 is in no table: look it up and add it", false, false}},
		{"unknown code, driver requests a reboot", 999, RecoveryReboot, 0, Verdict{"", ActionRebootNode, true, "xid 999 is in no table: look it up and add it", false, true}},
		{"a driver newer than the table", 13, 9, 0, Verdict{"app", ActionContactSupport, true, "exception in a kernel: an address or an instruction that is not valid; the driver wants recovery 8, which is in no table", true, true}},
		{"the link domain", 13, 6, 0, Verdict{"app", ActionRecoverIMEX, true, "exception in a kernel: an address or an instruction that is not valid", true, true}},
	} {
		if got := std.Judge(XID, c.code, c.recovery, c.seen); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// A requested recovery is also interpreted as a fault of its own. A recovery that is not in the
// table keeps the GPU down until it is mapped.
func TestRecoveries(t *testing.T) {
	for action, want := range map[uint32]Verdict{
		0: {"driver", ActionNone, false, "the driver wants nothing done", true, false},
		4: {"driver", ActionDrainAndReset, false, "the driver works with less than the whole GPU and wants it reset once it is free", true, false},
		5: {"driver", ActionRecoverIMEX, true, "the driver wants the domain of memory shared between nodes (IMEX) recovered", true, false},
		6: {"driver", ActionResetBus, true, "the driver wants the GPU's PCIe bus reset", true, false},
		7: {"driver", ActionRebootNode, true, "the driver wants the whole system rebooted", true, false},
		8: {"", ActionLookUp, true, "recovery 8 is in no table: look it up and add it", false, false},
	} {
		if got := Standard().Judge(Recovers, action, RecoveryUnknown, 0); got != want {
			t.Errorf("%d:\n got %+v\nwant %+v", action, got, want)
		}
	}
}

// A failed check of DCGM stands whatever the driver requests; so does a counter that requires a
// replacement.
func TestNoneStandsBack(t *testing.T) {
	for _, code := range []uint32{80, 120, 125, 4} {
		if v := Standard().Judge(Health, code, RecoveryNone, 0); !v.Fatal {
			t.Errorf("health %d: %+v", code, v)
		}
	}
	if v := Standard().JudgeSign(RemapFailed, RecoveryNone, 0); !v.Fatal || v.Action != ActionReplaceGPU {
		t.Errorf("%+v", v)
	}
	if v := Standard().Judge(Health, 13, RecoveryReset, 0); v.Action != ActionResetGPU || !v.Fatal {
		t.Errorf("the driver wants more than the check: %+v", v)
	}
}

// A verdict to replace the GPU stays. The GPU is out of service if the driver requests something
// that takes it out of service.
func TestReplaceAndDriver(t *testing.T) {
	const unmapped Recovery = 40
	for _, c := range []struct {
		recovery      Recovery
		fatal, driver bool
	}{
		{RecoveryUnknown, false, false}, {RecoveryNone, false, false}, {RecoveryDrainP2P, false, false},
		{RecoveryReset, true, true}, {RecoveryReboot, true, true}, {unmapped, true, true},
	} {
		for _, v := range []Verdict{
			Standard().JudgeSign(RemapUncorrectable, c.recovery, 1),
			Standard().Judge(Health, 84, c.recovery, 1),
			Standard().Judge(XID, 165, c.recovery, 1),
		} {
			if v.Action != ActionReplaceGPU || v.Fatal != c.fatal || v.Driver != c.driver {
				t.Errorf("recovery %d: %+v", c.recovery, v)
			}
		}
		if v := Standard().JudgeSign(RemapFailed, c.recovery, 0); v.Action != ActionReplaceGPU || !v.Fatal || v.Driver {
			t.Errorf("recovery %d, fatal by itself: %+v", c.recovery, v)
		}
	}
}

func TestWith(t *testing.T) {
	site, err := Parse("site.txt", "version 7\nxid 13 hardware replace_gpu - yes our boards do that\nxid 999 app restart_workload - no ours\n")
	if err != nil {
		t.Fatal(err)
	}
	both := Standard().With(site)
	if v := both.Judge(XID, 13, RecoveryUnknown, 0); v.Action != ActionReplaceGPU || v.Meaning != "our boards do that" {
		t.Errorf("13: %+v", v)
	}
	if v := both.Judge(XID, 999, RecoveryUnknown, 0); !v.Known {
		t.Errorf("999: %+v", v)
	}
	if v := both.Judge(XID, 79, RecoveryUnknown, 0); v.Action != ActionRebootNode {
		t.Errorf("79: %+v", v)
	}
	if v := Standard().Judge(XID, 13, RecoveryUnknown, 0); v.Class != "app" {
		t.Errorf("the standard table changed: %+v", v)
	}
	if Standard().Version() != "3" || both.Version() != "3+7" {
		t.Errorf("versions %q and %q", Standard().Version(), both.Version())
	}
}

func TestApply(t *testing.T) {
	e := &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultXID, Code: 79, Count: 1, Detail: "bus 0000:3b:00.0"}
	Standard().Judge(XID, 79, RecoveryUnknown, 0).Apply(e)
	if e.Class != "hardware" || e.Action != ActionRebootNode || !e.Fatal || e.Detail != "the GPU fell off the bus: bus 0000:3b:00.0" {
		t.Errorf("%+v", e)
	}
}

func TestParseErrors(t *testing.T) {
	const v = "version 1\n"
	for _, c := range []struct{ text, want string }{
		{"", `f: it does not state its version: begin with a line "version 1", and count up with each change`},
		{"version zwei\n", `f:1: version: "zwei" is not a number from 1 to 2147483647`},
		{v + "version 2\n", "f:2: version: it stands once, before the first fault"},
		{v + "xid 13\n", "f:2: line: has 2 fields, want sort, code, class, action, again, fatal and meaning"},
		{v + "sxid 13 app monitor - no x\n", `f:2: sort: "sxid" is unknown, want xid, health, recovery or sign`},
		{v + "xid -1 app monitor - no x\n", `f:2: code: "-1" is not a number from 0 to 4294967295`},
		{v + "sign nvlink_dwn app monitor - no x\n", `f:2: code: "nvlink_dwn" is no sign: did you mean nvlink_down?`},
		{v + "xid 1 user monitor - no x\n", `f:2: class: "user" is unknown, want app, driver, hardware`},
		{v + "xid 1 app reset_gpus - no x\n", `f:2: action: "reset_gpus" is unknown: did you mean reset_gpu?`},
		{v + "xid 1 app monitor moniter no x\n", `f:2: again: "moniter" is unknown: did you mean monitor?`},
		{v + "xid 1 app monitor - maybe x\n", `f:2: fatal: is "maybe", want yes or no`},
		{v + "xid 1 app monitor - no a\x1b[2Jb\n", `f:2: meaning: holds the character U+001B`},
		{v + "xid 1 app monitor - no x\nxid 01 app monitor - no y\n", `f:3: code: xid 1 stands in line 2 already`},
		{v + "xid 1 app monitor - no \xff\n", `f:2: line: is not UTF-8`},
		{v + strings.Repeat("x", 2000) + "\n", `f:2: line: has 2001 bytes, more than the 1024 allowed`},
	} {
		_, err := Parse("f", c.text)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// A parsed table contains nothing that an event must not contain, and survives a round trip.
func FuzzParse(f *testing.F) {
	f.Add(own)
	f.Add("version 1\nxid 1 app monitor - no x\n")
	f.Add("\ufeffversion 3\r\nsign power_brake hardware check_power - yes a  b\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Parse("f", text)
		if err != nil {
			return
		}
		var b strings.Builder
		b.WriteString("version " + table.Version() + "\n")
		for _, e := range table.Entries() {
			fatal, again := "no", e.Again
			if e.Fatal {
				fatal = "yes"
			}
			if again == "" {
				again = "-"
			}
			b.WriteString(strings.Join([]string{string(e.Sort), e.Code, e.Class, e.Action, again, fatal, e.Meaning}, " ") + "\n")
		}
		second, err := Parse("g", b.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if !slices.Equal(table.Entries(), second.Entries()) {
			t.Fatalf("not the same again:\n%v\n%v", table.Entries(), second.Entries())
		}
	})
}

// Faults that end with their program, or that require no action on the GPU, do not take the GPU
// down.
func TestProgramsHoldNoGPUDown(t *testing.T) {
	mild := []string{ActionNone, ActionMonitor, ActionFollowCause, ActionRestartWorkload, ActionLookUp}
	for _, e := range Standard().Entries() {
		if e.Fatal && (e.Class == "app" || slices.Contains(mild, e.Action)) {
			t.Errorf("%s %s is fatal, and asks for %s of class %s", e.Sort, e.Code, e.Action, e.Class)
		}
	}
	if v := Standard().Judge(XID, 4711, RecoveryUnknown, 0); v.Fatal {
		t.Errorf("a code that no table has is fatal: %+v", v)
	}
}
