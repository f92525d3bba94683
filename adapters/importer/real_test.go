package importer_test

import (
	"context"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/simulations/public"
)

// collect runs an import and checks the invariants of every import.
type collected struct {
	importer.Summary
	bad []tabular.BadRow
}

func collect(t testing.TB, kind importer.Kind, name string, opts importer.Options, each func(*domain.Envelope)) collected {
	t.Helper()
	var c collected
	sum, err := importer.Run(context.Background(), kind, public.Open(t, name), name, opts, func(e *domain.Envelope) error {
		if err := domain.Validate(e); err != nil {
			t.Fatalf("%s gives an event that is invalid: %v", name, err)
		}
		if each != nil {
			each(e)
		}
		return nil
	}, func(b tabular.BadRow) { c.bad = append(c.bad, b) })
	if err != nil {
		t.Fatal(err)
	}
	c.Summary = sum
	if len(c.bad) != sum.Bad {
		t.Errorf("%d bad rows were handed out, the summary says %d", len(c.bad), sum.Bad)
	}
	return c
}

const epoch = domain.Instant(1577836800) * domain.Second // 2020-01-01T00:00:00Z

func TestOpenbNodes(t *testing.T) {
	gpus := 0
	models := map[string]int{}
	c := collect(t, importer.Nodes, "openb/openb_node_list_gpu_node.csv", importer.Options{Cluster: "openb", Epoch: epoch}, func(e *domain.Envelope) {
		n := e.Event.(*domain.NodeRegistered)
		gpus += len(n.GPUs)
		for _, g := range n.GPUs {
			models[g.Model]++
		}
	})
	if c.Rows != 1213 || c.Events != 1213 || c.Bad != 0 || gpus != 6212 {
		t.Errorf("rows %d, events %d, bad %d, GPUs %d, want 1213, 1213, 0, 6212", c.Rows, c.Events, c.Bad, gpus)
	}
	if len(c.Warnings) != 2 || c.Warnings[0].Value != "G3" || c.Warnings[0].Rows != 39 || c.Warnings[1].Value != "G2" || c.Warnings[1].Rows != 549 {
		t.Errorf("warnings %+v, want G3 on 39 and G2 on 549 nodes", c.Warnings)
	}
	if models["V100 32GB"] == 0 || models["V100M32"] != 0 {
		t.Errorf("models %v: V100M32 must be written as the catalogue does", models)
	}
}

func TestOpenbPods(t *testing.T) {
	for _, f := range []struct {
		name                   string
		rows, removed, serving int
	}{
		{"openb_pod_list_default.csv", 8152, 8152, 4647},
		{"openb_pod_list_gpuspec10.csv", 8152, 8152, 4647},
		{"openb_pod_list_cpu050.csv", 7439, 7439, 4223},
		{"openb_pod_list_gpushare100.csv", 8152, 8152, 2360},
		{"openb_pod_list_multigpu20.csv", 8324, 0, 0}, // without times and qos
	} {
		serving, milli := 0, uint64(0)
		c := collect(t, importer.Pods, "openb/"+f.name, importer.Options{Cluster: "openb", Workspace: "research", Epoch: epoch}, func(e *domain.Envelope) {
			if d, ok := e.Event.(*domain.DeploymentChanged); ok {
				if d.Class == domain.ClassServing {
					serving++
				}
				if d.Need.Milli != 0 {
					milli += uint64(d.Need.Milli)
				} else {
					milli += 1000 * uint64(d.Need.Count)
				}
			}
		})
		if c.Rows != f.rows || c.Bad != 0 || c.Types[domain.TypeDeploymentChanged] != f.rows || c.Types[domain.TypeDeploymentRemoved] != f.removed || serving != f.serving {
			t.Errorf("%s: %+v, %d serving, want %+v", f.name, c.Summary, serving, f)
		}
		if f.name == "openb_pod_list_default.csv" && milli != 6086800 {
			t.Errorf("%s asks for %d thousandths of a GPU, want 6086800", f.name, milli)
		}
	}
}

// The totals were computed from the file independently: held GPU-intervals are the sum of six
// times each mean, rounded half to even.
func TestHeliosUsage(t *testing.T) {
	var held, entries int
	var running, pending uint64
	c := collect(t, importer.Usage, "helios/earth_vc_hourly.csv.gz", importer.Options{Cluster: "earth", Zone: "UTC", GPUModel: "V100"}, func(e *domain.Envelope) {
		switch ev := e.Event.(type) {
		case *domain.DemandObserved:
			running += ev.RunningMilli
			pending += ev.PendingMilli
		case *domain.NodeSampled:
			entries += ev.Entries()
			for _, h := range ev.Holder {
				held += int(h)
			}
		}
	})
	if c.Rows != 11904 || c.Bad != 0 || len(c.Warnings) != 0 {
		t.Errorf("%+v, want 11904 good rows", c.Summary)
	}
	if c.Types[domain.TypeDemandObserved] != 11904 || c.Types[domain.TypeNodeRegistered] != 107 || c.Types[domain.TypeNodeSampled] != 477648 {
		t.Errorf("events %v, want 11904 DemandObserved, 107 NodeRegistered, 477648 NodeSampled", c.Types)
	}
	if entries != 6*636864 || held != 2548618 || running != 424772510 || pending != 45671820 {
		t.Errorf("entries %d, held %d, running %d, pending %d, want %d, 2548618, 424772510, 45671820", entries, held, running, pending, 6*636864)
	}
}

func TestShavedIceDemand(t *testing.T) {
	pools := map[string]bool{}
	hours := map[domain.Instant]bool{}
	var running uint64
	c := collect(t, importer.Demand, "demand/shavedice_regions_1_2.csv.gz", importer.Options{Cluster: "snow", Zone: "UTC"}, func(e *domain.Envelope) {
		d := e.Event.(*domain.DemandObserved)
		if d.Unit != "vm" {
			t.Fatalf("unit %q, want vm: the data set counts machines", d.Unit)
		}
		pools[d.Pool] = true
		hours[d.Interval.From] = true
		running += d.RunningMilli
	})
	if c.Rows != 217708 || c.Bad != 0 || len(pools) != 23 || len(hours) != 26280 || running != 21703189_000 {
		t.Errorf("%+v, %d pools, %d hours, running %d", c.Summary, len(pools), len(hours), running)
	}
}

func TestOffers(t *testing.T) {
	ids := map[string]bool{}
	gpus, milli, parts, reserved := 0, 0, 0, 0
	hourly, upfront := decimal.Zero, decimal.Zero
	c := collect(t, importer.Prices, "prices/gpu_offers.csv", importer.Options{}, func(e *domain.Envelope) {
		o := e.Event.(*domain.OfferQuoted)
		id := o.Market.Key() + " " + o.Offer
		if ids[id] {
			t.Errorf("offer %s is there twice", id)
		}
		ids[id] = true
		gpus += int(o.GPUCount)
		if o.GPUMilli != 0 {
			parts++
			milli += int(o.GPUMilli)
			if o.GPUMemoryMiB != 48<<10 || o.GPUCount != 0 {
				t.Errorf("offer %s: %d GPUs of %d MiB, want a part of one of 49152", id, o.GPUCount, o.GPUMemoryMiB)
			}
		}
		hourly, upfront = hourly.Add(o.Hourly), upfront.Add(o.Upfront)
		if o.Kind == domain.OfferReserved {
			reserved++
		}
		if o.GuaranteesCapacity {
			t.Errorf("offer %s guarantees capacity, which the file says of none", id)
		}
	})
	// 70 rows offer 28 times an eighth, 14 times a quarter and 28 times a half of
	// a GPU, and two rows repeat a third.
	if c.Rows != 3110 || c.Events != 3108 || c.Bad != 2 || gpus != 9545 || parts != 70 || milli != 28*125+14*250+28*500 || reserved != 1591 {
		t.Errorf("rows %d, events %d, bad %d, GPUs %d and %d thousandths in %d parts, reserved %d", c.Rows, c.Events, c.Bad, gpus, milli, parts, reserved)
	}
	if hourly.String() != "22322.643014" || upfront.String() != "101210440.67" {
		t.Errorf("hourly prices add up to %s and upfront prices to %s, want 22322.643014 and 101210440.67", hourly, upfront)
	}
	reasons := map[string]int{}
	for _, b := range c.bad {
		reasons[b.Field+" "+b.Reason]++
	}
	if reasons["instance_type repeats line 2821"] != 2 || len(reasons) != 1 {
		t.Errorf("bad rows for %v", reasons)
	}
	byReason := map[string]int{}
	for _, w := range c.Warnings {
		byReason[w.Reason] += w.Rows
	}
	if byReason["several prices for one offer id"] != 11 {
		t.Errorf("warnings %v, want 11 offers at several prices", byReason)
	}
}
