package embedded

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"quartermaster/domain/long"
)

// TestPowerCut discards everything that was not synced. The log is on an ext4 image behind a loop
// device. The owner is stopped between two instructions, and the image is copied without the
// dirty pages of the kernel. Every acknowledged record must be on the copy, including its
// directory entries.
func TestPowerCut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting an image needs root")
	}
	cuts := long.Count(2, 20)
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	mount := func(image string) string {
		at := t.TempDir()
		if err := run("mount", "-o", "loop", image, at); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { run("umount", "-l", at) })
		return at
	}
	images := t.TempDir()
	image := filepath.Join(images, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 96<<20); err != nil {
		t.Fatal(err)
	}
	if err := run("mkfs.ext4", "-q", image); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(mount(image), "data")
	acked := make(map[string]int64) // offset by partition and value
	for cut := range cuts {
		a := start(t, dir, "EMBEDDED_TEST_WRITE=1")
		if line := a.line(t); !strings.HasPrefix(line, "open true") {
			t.Fatal(line)
		}
		stop := 20 + rand.IntN(300)
		for n := 0; n < stop; n++ {
			if f := strings.Fields(a.line(t)); f[0] == "ack" {
				acked[f[1]+" "+f[3]], _ = strconv.ParseInt(f[2], 10, 64)
			}
		}
		if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(images, fmt.Sprint("cut", cut))
		if err := run("cp", "--sparse=always", image, copied); err != nil {
			t.Fatal(err)
		}
		b := open(t, Config{Dir: filepath.Join(mount(copied), "data"), MinFree: -1})
		var logs [writers][]string
		for p := range logs {
			logs[p] = readAll(t, b, "t", p)
		}
		for key, off := range acked {
			p, value, _ := strings.Cut(key, " ")
			n, _ := strconv.Atoi(p)
			if int64(len(logs[n])) < off+3 || !strings.HasPrefix(logs[n][off], value+"-") {
				t.Fatalf("cut %d: record %d of partition %d was acknowledged and is gone, the log ends at %d", cut, off, n, len(logs[n]))
			}
		}
		t.Logf("cut %d: %d acknowledged batches, opened: %+v", cut, len(acked), b.Report)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		os.Remove(copied)
		a.cmd.Process.Kill()
		a.cmd.Wait()
	}
}
