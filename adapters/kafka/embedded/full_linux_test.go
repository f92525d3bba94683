package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a small file system and returns a function that grows it.
func smallDisk(t *testing.T, bytes int) (dir string, grow func(bytes int)) {
	t.Helper()
	dir = t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	mount := func(bytes int, flags uintptr) error {
		return unix.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%d", bytes))
	}
	if err := mount(bytes, 0); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func(bytes int) {
		if err := mount(bytes, unix.MS_REMOUNT); err != nil {
			t.Fatal(err)
		}
	}
}

// fill appends until an append fails, and returns the acknowledged records.
func fill(t *testing.T, c *kafka.Client, from []string) ([]string, error) {
	t.Helper()
	for n := len(from); ; n++ {
		value := fmt.Sprintf("%d-%s", n, strings.Repeat("v", 20000))
		off, err := produceTo(c, "t", 0, value)
		if err != nil {
			return from, err
		}
		if off != int64(n) {
			t.Fatalf("append %d was given offset %d", n, off)
		}
		from = append(from, value)
	}
}

func checkAcknowledged(t *testing.T, b *Broker, want []string) {
	t.Helper()
	got := readAll(t, b, "t", 0)
	if len(got) < len(want) {
		t.Fatalf("%d records were acknowledged, %d are there", len(want), len(got))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("record %d is not the one acknowledged", i)
		}
	}
}

// TestFullDisk: appends are refused before the disk is full and succeed again once there is space.
func TestFullDisk(t *testing.T) {
	dir, grow := smallDisk(t, 8<<20)
	var l logged
	cfg := Config{Dir: dir, MinFree: 2 << 20, SegmentBytes: 1 << 20, Log: l.logger()}
	b := open(t, cfg)
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	acked, err := fill(t, c, nil)
	if !errors.Is(err, kafka.KafkaStorageError) || len(acked) < 200 || b.Err() != nil {
		t.Fatalf("%d appended, then %v; broker: %v", len(acked), err, b.Err())
	}
	if !strings.Contains(l.String(), "free some space") {
		t.Fatalf("logged %s", l.String())
	}
	checkAcknowledged(t, b, acked)
	if err := commitOffset(c, 0, 5); err != nil {
		t.Fatalf("commit while appends are refused: %v", err)
	}
	grow(12 << 20)
	more, err := fill(t, c, acked)
	if !errors.Is(err, kafka.KafkaStorageError) || len(more) < len(acked)+150 {
		t.Fatalf("%d, then %d appended, then %v", len(acked), len(more), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, cfg)
	if !b.Report.Clean || len(b.Report.Trimmed) != 0 {
		t.Fatalf("%+v", b.Report)
	}
	checkAcknowledged(t, b, more)
}

// TestDiskFillsUnderTheBroker: the disk fills between the check and the write. The broker stops
// with a reason, and no acknowledged record is lost.
func TestDiskFillsUnderTheBroker(t *testing.T) {
	dir, grow := smallDisk(t, 4<<20)
	cfg := Config{Dir: dir, MinFree: -1, SegmentBytes: 1 << 20}
	b := open(t, cfg)
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	acked, err := fill(t, c, nil)
	if err == nil || len(acked) < 100 {
		t.Fatalf("%d appended, then %v", len(acked), err)
	}
	<-b.Done()
	if err := b.Err(); !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "nothing more is acknowledged") {
		t.Fatalf("stopped with %v", err)
	}
	if err := b.Close(); err == nil {
		t.Fatal("closed as if all were well")
	}
	grow(8 << 20)
	b = open(t, cfg)
	if b.Report.Clean {
		t.Fatal("counts as a clean stop")
	}
	checkAcknowledged(t, b, acked)
	if off, err := produceTo(client(t, b), "t", 0, "on"); err != nil || off < int64(len(acked)) {
		t.Fatalf("appended at %d, %v", off, err)
	}
}
