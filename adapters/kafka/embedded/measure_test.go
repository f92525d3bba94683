package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"quartermaster/domain/long"
)

// TestMeasure prints the cost of opening: time and peak memory (VmHWM) of a new process, at one
// and five million records of 300 bytes in batches of a thousand over four partitions, after kill
// -9 and after a clean stop. It writes up to 1.6 GB and runs with CI_LONG=1 only.
func TestMeasure(t *testing.T) {
	long.Only(t, "a measurement")
	for _, millions := range []int{1, 5} {
		dir := t.TempDir()
		a := start(t, dir, fmt.Sprintf("EMBEDDED_TEST_FILL=%d", millions*1000))
		t.Logf("%d M: %s", millions, a.line(t))
		a.cmd.Process.Kill()
		a.cmd.Wait()
		for _, after := range []string{"kill -9", "clean stop", "clean stop", "clean stop, read only"} {
			how := "own"
			if strings.HasSuffix(after, "read only") {
				how = "read"
			}
			a := start(t, dir, "EMBEDDED_TEST_MEASURE="+how)
			t.Logf("%d M, after %s: %s", millions, after, a.line(t))
			a.in.Close()
			for a.lines.Scan() {
				t.Log(a.lines.Text())
			}
			if err := a.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func peak() string {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

// measure opens dir and returns the cost.
func measure(dir string) *Broker {
	began := time.Now()
	b, err := Open(context.Background(), Config{Dir: dir, ReadOnly: os.Getenv("EMBEDDED_TEST_MEASURE") == "read"})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	took := time.Since(began)
	r := b.Report
	fmt.Printf("open %v (scan %v, broker %v), peak %s, clean %v, %d records, %d segments, %d MB\n", took.Round(time.Millisecond),
		r.Scan.Round(time.Millisecond), r.Start.Round(time.Millisecond), peak(), r.Clean, r.Records, r.Segments, r.Bytes>>20)
	return b
}

// fillLog appends batches of a thousand records and returns the cost.
func fillLog(b *Broker, batches int) {
	c := &kafka.Client{Addr: kafka.TCP(b.Address()), Transport: &kafka.Transport{Dial: b.Dial}}
	if err := createTopic(c, "t", writers); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for p := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(p)))
			values := make([]string, 1000)
			for range batches / writers {
				for i := range values {
					v := make([]byte, 290)
					for j := range v[:150] {
						v[j] = byte(rng.Uint32())
					}
					values[i] = string(v)
				}
				if _, err := produceTo(c, "t", p, values...); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	fmt.Printf("%d records appended in %v, %.0f/s, peak %s\n", batches*1000, took.Round(time.Millisecond), float64(batches*1000)/took.Seconds(), peak())
}

func BenchmarkAppend(b *testing.B) {
	for _, records := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", records), func(b *testing.B) {
			br := open(b, Config{Dir: b.TempDir()})
			c := client(b, br)
			if err := createTopic(c, "t", 1); err != nil {
				b.Fatal(err)
			}
			values := make([]string, records)
			for i := range values {
				values[i] = strings.Repeat("v", 300)
			}
			for b.Loop() {
				if _, err := produceTo(c, "t", 0, values...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(records*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
