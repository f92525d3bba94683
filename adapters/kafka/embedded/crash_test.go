package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"quartermaster/domain/long"
)

// The test binary runs itself as other processes. The environment selects the role.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EMBEDDED_TEST_SERVE"); dir != "" {
		serve(dir)
		return
	}
	if dir := os.Getenv("EMBEDDED_TEST_LOOK"); dir != "" {
		look(dir)
		return
	}
	os.Exit(m.Run())
}

// serve owns dir and appends to it from four writers until it is killed or
// its input ends. It prints each record after its acknowledgement.
func serve(dir string) {
	if os.Getenv("EMBEDDED_TEST_MEASURE") != "" {
		b := measure(dir)
		io.Copy(io.Discard, os.Stdin)
		if err := b.Close(); err != nil {
			fmt.Println("error", err)
		}
		return
	}
	if batches, err := strconv.Atoi(os.Getenv("EMBEDDED_TEST_FILL")); err == nil {
		b, err := Open(context.Background(), Config{Dir: dir})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fillLog(b, batches)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	b, err := Open(context.Background(), Config{Dir: dir, SegmentBytes: 64 << 10})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	tr := &kafka.Transport{Dial: b.Dial}
	c := &kafka.Client{Addr: kafka.TCP(b.Address()), Transport: tr}
	if err := createTopic(c, "t", writers); err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Printf("open %v %d\n", b.Owner(), len(b.Report.Trimmed))
	if os.Getenv("EMBEDDED_TEST_WRITE") != "" {
		for p := range writers {
			go func() {
				for n := 0; ; n++ {
					value := fmt.Sprintf("%d-%d-%s", os.Getpid(), n, strings.Repeat("v", rand.IntN(2000)))
					off, err := produceTo(c, "t", p, value, value, value)
					if err != nil {
						fmt.Println("error", err)
						return
					}
					// One write per line, so that a kill leaves at most one partial line.
					fmt.Fprintf(os.Stdout, "ack %d %d %d-%d\n", p, off, os.Getpid(), n)
					if n%16 == 0 {
						if err := commitOffset(c, p, off); err == nil {
							fmt.Fprintf(os.Stdout, "commit %d %d\n", p, off)
						}
					}
				}
			}()
		}
	}
	io.Copy(io.Discard, os.Stdin)
	if err := b.Close(); err != nil {
		fmt.Println("error", err)
	}
}

const writers = 4

func commitOffset(c *kafka.Client, partition int, offset int64) error {
	resp, err := c.OffsetCommit(context.Background(), &kafka.OffsetCommitRequest{GroupID: "g", GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{"t": {{Partition: partition, Offset: offset}}}})
	if err != nil {
		return err
	}
	return resp.Topics["t"][0].Error
}

// another is another process of this test binary.
type another struct {
	cmd   *exec.Cmd
	in    io.Closer
	out   io.Reader
	lines *bufio.Scanner
}

func start(t *testing.T, dir string, env ...string) *another {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "EMBEDDED_TEST_SERVE="+dir)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &another{cmd, in, out, bufio.NewScanner(out)}
}

func (a *another) line(t *testing.T) string {
	t.Helper()
	if !a.lines.Scan() {
		t.Fatalf("the other process ended: %v", a.lines.Err())
	}
	return a.lines.Text()
}

// TestKill repeatedly kills the owner while four writers append. Every acknowledged record must
// exist at its offset, and the log must open.
func TestKill(t *testing.T) {
	kills := long.Count(10, 50)
	dir := t.TempDir()
	type place struct {
		partition int
		offset    int64
	}
	acked := make(map[place]string)
	committed := make(map[int]int64)
	for range kills {
		a := start(t, dir, "EMBEDDED_TEST_WRITE=1")
		if line := a.line(t); !strings.HasPrefix(line, "open true") {
			t.Fatal(line)
		}
		stop := rand.IntN(40)
		for n := 0; a.lines.Scan(); n++ {
			f := strings.Fields(a.lines.Text())
			switch {
			case f[0] == "ack" && len(f) == 4:
				p, _ := strconv.Atoi(f[1])
				off, _ := strconv.ParseInt(f[2], 10, 64)
				acked[place{p, off}] = f[3]
			case f[0] == "commit" && len(f) == 3:
				p, _ := strconv.Atoi(f[1])
				off, _ := strconv.ParseInt(f[2], 10, 64)
				committed[p] = off
			default:
				t.Fatal(a.lines.Text())
			}
			if n == stop {
				// The output until its death counts as well.
				a.cmd.Process.Kill()
			}
		}
		a.cmd.Wait()
	}
	b := open(t, Config{Dir: dir})
	t.Logf("%d kills, %d acknowledged batches, opened: %+v", kills, len(acked), b.Report)
	if b.Report.Clean {
		t.Error("a killed owner counts as a clean stop")
	}
	var logs [writers][]string
	for p := range logs {
		logs[p] = readAll(t, b, "t", p)
	}
	for at, want := range acked {
		for i := range int64(3) {
			if int64(len(logs[at.partition])) <= at.offset+i {
				t.Fatalf("record %d of partition %d was acknowledged and is gone, the log ends at %d", at.offset+i, at.partition, len(logs[at.partition]))
			}
			if got := logs[at.partition][at.offset+i]; !strings.HasPrefix(got, want+"-") {
				t.Fatalf("record %d of partition %d is %.20s, acknowledged was %s", at.offset+i, at.partition, got, want)
			}
		}
	}
	resp, err := client(t, b).OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: "g", Topics: map[string][]int{"t": {0, 1, 2, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range resp.Topics["t"] {
		if p.CommittedOffset < committed[p.Partition] {
			t.Errorf("group stands at %d of partition %d, %d was acknowledged", p.CommittedOffset, p.Partition, committed[p.Partition])
		}
	}
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir)
	if line := a.line(t); line != "open true 0" {
		t.Fatal(line)
	}
	b := open(t, Config{Dir: dir})
	if b.Owner() {
		t.Fatal("two processes own the directory")
	}
	if _, err := produceTo(client(t, b), "t", 0, "from the second"); err != nil {
		t.Fatal(err)
	}
	a.cmd.Process.Kill()
	a.cmd.Wait()
	<-b.Done()
	// The socket of the killed owner still exists; the next opening replaces it.
	if _, err := os.Stat(filepath.Join(dir, socketFile)); err != nil {
		t.Fatal(err)
	}
	b = open(t, Config{Dir: dir})
	if !b.Owner() {
		t.Fatal("the directory was not taken over")
	}
	if vs := readAll(t, b, "t", 0); len(vs) != 1 {
		t.Fatalf("read %v", vs)
	}
}

// TestStoppedOwner stops the owner with SIGSTOP: it holds the lock and its
// socket accepts, but nobody answers.
func TestStoppedOwner(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir)
	a.line(t)
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Wait until every thread has stopped.
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
	_, err := Open(t.Context(), Config{Dir: dir, Wait: 200 * time.Millisecond})
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", a.cmd.Process.Pid)) {
		t.Fatalf("got %v", err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if b := open(t, Config{Dir: dir}); b.Owner() {
		t.Fatal("two owners")
	}
}
