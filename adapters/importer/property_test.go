package importer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/simulations/public"
)

// hourOfPool is the expansion of a usage row, by interval and node.
type hourOfPool struct {
	demand domain.DemandObserved
	held   map[domain.Interval][]int // devices held, by node
	sizes  map[domain.Interval][]int // devices reported, by node
}

// TestUsageExpansion checks the documented rules of the expansion on random files, with rounding
// by rational numbers.
func TestUsageExpansion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := importer.Options{
			Cluster: "c1", Zone: "UTC", GPUModel: "T4",
			NodeGPUs: rapid.IntRange(1, 12).Draw(t, "node GPUs"),
			Interval: rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 36 * time.Second, time.Hour}).Draw(t, "interval"),
		}
		var file strings.Builder
		file.WriteString("pending_gpu_mean,vc,hour,running_gpu_mean,total_gpu\n")
		at := map[string]int{}
		var want []*big.Rat // mean of each row
		var totals []int
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			vc := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "vc")
			at[vc] += rapid.IntRange(1, 3).Draw(t, "hours on")
			total := rapid.IntRange(0, 40).Draw(t, "total")
			milli := rapid.IntRange(0, total*1000).Draw(t, "running")
			fmt.Fprintf(&file, "0,%s,%s,%d.%03d,%d\n", vc, time.Unix(1_599_998_400, 0).UTC().Add(time.Duration(at[vc])*time.Hour).Format("2006-01-02 15:04"), milli/1000, milli%1000, total)
			want = append(want, big.NewRat(int64(milli), 1000))
			totals = append(totals, total)
		}

		var hours []*hourOfPool
		registered := map[string][]domain.GPUID{}
		sum, err := importer.Run(context.Background(), importer.Usage, strings.NewReader(file.String()), "f", opts, func(e *domain.Envelope) error {
			if err := domain.Validate(e); err != nil {
				t.Fatal(err)
			}
			switch ev := e.Event.(type) {
			case *domain.DemandObserved:
				hours = append(hours, &hourOfPool{demand: *ev, held: map[domain.Interval][]int{}, sizes: map[domain.Interval][]int{}})
			case *domain.NodeRegistered:
				var ids []domain.GPUID
				for i, g := range ev.GPUs {
					if g.ID != domain.DeriveGPUID("c1", ev.Node, i) || !ev.IDsDerived {
						t.Fatalf("%s registers GPU %d as %s", ev.Node, i, g.ID)
					}
					ids = append(ids, g.ID)
				}
				if len(ids) <= len(registered[ev.Node]) {
					t.Fatalf("%s is registered again without having grown", ev.Node)
				}
				registered[ev.Node] = ids
			case *domain.NodeSampled:
				h := hours[len(hours)-1]
				if want := fmt.Sprintf("%s-%03d", h.demand.Pool, len(h.sizes[ev.Interval])); ev.Node != want {
					t.Fatalf("sample of %s where %s is next", ev.Node, want)
				}
				held := 0
				for i, by := range ev.Holder {
					if by == 1 && held == i {
						held++
					} else if by != 0 {
						t.Fatalf("%s is held %v: not the lowest devices", ev.Node, ev.Holder)
					}
					if ids := registered[ev.Node]; i >= len(ids) || !bytes.Equal(ids[i][:], ev.IDs[16*i:16*i+16]) {
						t.Fatalf("%s samples device %d, which is not registered", ev.Node, i)
					}
				}
				if (held > 0) != (len(ev.HolderWorkspace) == 1) || e.Time != ev.Interval.To || len(ev.ActivityMean) > 0 {
					t.Fatalf("sample %+v", ev)
				}
				h.held[ev.Interval] = append(h.held[ev.Interval], held)
				h.sizes[ev.Interval] = append(h.sizes[ev.Interval], ev.Entries())
			}
			return nil
		}, func(b tabular.BadRow) { t.Fatal(b) })
		if err != nil || len(hours) != len(want) {
			t.Fatalf("%+v, error %v, want %d hours", sum, err, len(want))
		}
		for i, h := range hours {
			step := domain.Instant(opts.Interval)
			n := int64(domain.Hour / step)
			sum := int64(0)
			for k := range n {
				iv := domain.Interval{From: h.demand.Interval.From + domain.Instant(k)*step, To: h.demand.Interval.From + domain.Instant(k+1)*step}
				devices, held, open := 0, 0, false
				for node, size := range h.sizes[iv] {
					if size > opts.NodeGPUs || open && h.held[iv][node] > 0 {
						t.Fatalf("%v: sizes %v, held %v: not the lowest nodes", iv, h.sizes[iv], h.held[iv])
					}
					open = open || h.held[iv][node] < size
					devices += size
					held += h.held[iv][node]
				}
				if devices != totals[i] || held > totals[i] {
					t.Fatalf("%v: %d devices, %d held of %d", iv, devices, held, totals[i])
				}
				if over := new(big.Rat).Sub(big.NewRat(int64(held), 1), want[i]); over.Cmp(big.NewRat(1, 1)) >= 0 || over.Cmp(big.NewRat(-2, 1)) <= 0 {
					t.Fatalf("%v: %d held where the mean is %s", iv, held, want[i].FloatString(3))
				}
				sum += int64(held)
				delete(h.sizes, iv)
			}
			if len(h.sizes) > 0 {
				t.Fatalf("samples outside the intervals of the hour: %v", h.sizes)
			}
			if exact := halfEven(new(big.Rat).Mul(want[i], big.NewRat(n, 1))); sum != exact {
				t.Fatalf("row %d: the intervals sum to %d, the mean %s over %d of them to %d", i, sum, want[i].FloatString(3), n, exact)
			}
		}
	})
}

func halfEven(r *big.Rat) int64 {
	twice := new(big.Rat).Mul(r, big.NewRat(2, 1))
	floor := new(big.Int).Div(r.Num(), r.Denom()).Int64()
	switch twice.Cmp(big.NewRat(2*floor+1, 1)) {
	case -1:
		return floor
	case 1:
		return floor + 1
	}
	return floor + floor%2
}

// fuzzKind reads damaged files of a kind: every event is valid, every row that is not imported is
// reported, in order, and a second run gives the same result.
func fuzzKind(f *testing.F, kind importer.Kind, seeds ...string) {
	f.Helper()
	for _, g := range goldens {
		if g.kind == kind {
			b, err := os.ReadFile(filepath.Join("testdata", g.file+".csv"))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add(zipped(f, s))
	}
	opts := options
	opts.Zone = "America/New_York"
	opts.Interval = 30 * time.Minute
	opts.Limits = tabular.Limits{LineBytes: 4096, DecodedBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, in []byte) {
		once := func(out io.Writer) (importer.Summary, string) {
			events, bads, last := 0, 0, 0
			sum, err := importer.Run(context.Background(), kind, bytes.NewReader(in), "f", opts, func(e *domain.Envelope) error {
				if events++; events > 20_000 {
					return io.ErrShortWrite // a pool of 100,000 GPUs is valid but slow
				}
				if err := domain.Validate(e); err != nil {
					t.Fatalf("invalid event: %v", err)
				}
				if _, err := e.Key(); err != nil {
					t.Fatal(err)
				}
				_, err := fmt.Fprintf(out, "%s %s %v\n", e.Time, e.Subject, e.Event)
				return err
			}, func(b tabular.BadRow) {
				bads++
				if b.Line <= last || b.Reason == "" || len(b.Value) > 140 {
					t.Fatalf("bad row %+v after one in line %d", b, last)
				}
				last = b.Line
			})
			if sum.Bad != bads || sum.Bad > sum.Rows {
				t.Fatalf("summary %+v beside %d bad rows", sum, bads)
			}
			return sum, fmt.Sprint(err)
		}
		var one, two bytes.Buffer
		sum1, err1 := once(&one)
		sum2, err2 := once(&two)
		if !bytes.Equal(one.Bytes(), two.Bytes()) || err1 != err2 || fmt.Sprint(sum1) != fmt.Sprint(sum2) {
			t.Fatalf("two runs differ: %+v %s and %+v %s", sum1, err1, sum2, err2)
		}
	})
}

func FuzzNodes(f *testing.F) {
	fuzzKind(f, importer.Nodes, nodeHeader+"n1,1,1,2,T4,\nn2,1,1,0,,\n", nodeHeader+"\"n\n1\",1e3,1,1,T4,5a1c0d6e-1111-4222-8333-444455556666\n")
}

func FuzzPods(f *testing.F) {
	fuzzKind(f, importer.Pods, podHeader+"p1,1,1,1,500,LS,1,2\np2,1,1,0,0,,,\n")
}

func FuzzUsage(f *testing.F) {
	fuzzKind(f, importer.Usage, usageHeader+"2020-03-08 02:00,a,8,7.5,0\n2020-11-01T05:00:00Z,a,3,1e-3,4\n")
}

func FuzzDemand(f *testing.F) {
	fuzzKind(f, importer.Demand, demandHeader+"2020-03-08 02:00,a,8,gpu\n2020-11-01 01:00,b,0.0005,vm\n")
}

func FuzzEnergy(f *testing.F) {
	fuzzKind(f, importer.Energy, energyHeader+"m,2020-05-01,2020-05-02,1,n1;n2\n",
		"meter,time,kwh_total\nm,2020-05-01T00:00:00Z,1\nm,2020-05-02T00:00:00Z,2e3\n")
}

func FuzzPrices(f *testing.F) {
	fuzzKind(f, importer.Prices, priceHeader+"aws,r1,,A100,8,320 GB HBM2,8-16,32 GB,spot,0,0,1e-2,1,USD,2023..2026-01,s\n")
}

func benchmark(b *testing.B, kind importer.Kind, name string, opts importer.Options) {
	text, err := io.ReadAll(public.Open(b, name))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	events := 0
	for b.Loop() {
		sum, err := importer.Run(context.Background(), kind, bytes.NewReader(text), name, opts, func(*domain.Envelope) error { return nil }, nil)
		if err != nil {
			b.Fatal(err)
		}
		events += sum.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkUsage(b *testing.B) {
	benchmark(b, importer.Usage, "helios/earth_vc_hourly.csv.gz", importer.Options{Cluster: "earth", Zone: "UTC", GPUModel: "V100"})
}

func BenchmarkDemand(b *testing.B) {
	benchmark(b, importer.Demand, "demand/shavedice_regions_1_2.csv.gz", importer.Options{Cluster: "snow", Zone: "UTC"})
}

func BenchmarkPrices(b *testing.B) {
	benchmark(b, importer.Prices, "prices/gpu_offers.csv", importer.Options{})
}
