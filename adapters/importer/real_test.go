package importer_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/importer"
	"quartermaster/domain"
)

// dataFile opens a file of the public data sets, or skips the test.
func dataFile(t testing.TB, name string) *os.File {
	t.Helper()
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("the public data sets are not here (set QUARTERMASTER_DATA): %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// collect runs an import and checks what holds for every one of them.
type collected struct {
	importer.Summary
	bad []importer.BadRow
}

func collect(t testing.TB, kind importer.Kind, name string, opts importer.Options, each func(*domain.Envelope)) collected {
	t.Helper()
	var c collected
	sum, err := importer.Run(context.Background(), kind, dataFile(t, name), name, opts, func(e *domain.Envelope) error {
		if err := domain.Validate(e); err != nil {
			t.Fatalf("%s gives an event that is invalid: %v", name, err)
		}
		if each != nil {
			each(e)
		}
		return nil
	}, func(b importer.BadRow) { c.bad = append(c.bad, b) })
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
		name            string
		rows, removed   int
		serving, with4s int
	}{
		{"openb_pod_list_default.csv", 8152, 8151, 4647, 0},
		{"openb_pod_list_gpuspec10.csv", 8152, 8151, 4647, 0},
		{"openb_pod_list_cpu050.csv", 7439, 7438, 4223, 0},
		{"openb_pod_list_gpushare100.csv", 8152, 8149, 2360, 0},
		{"openb_pod_list_multigpu20.csv", 8324, 0, 0, 0},
	} {
		serving := 0
		c := collect(t, importer.Pods, "openb/"+f.name, importer.Options{Cluster: "openb", Workspace: "research", Epoch: epoch}, func(e *domain.Envelope) {
			if d, ok := e.Event.(*domain.DeploymentChanged); ok && d.Class == domain.ClassServing {
				serving++
			}
		})
		t.Log(f.name, c.Rows, c.Bad, c.Types, c.bad, c.Warnings, serving)
	}
}

func TestHeliosUsage(t *testing.T) {
	var held, entries int
	var demand uint64
	c := collect(t, importer.Usage, "helios/earth_vc_hourly.csv.gz", importer.Options{Cluster: "earth", Zone: "UTC", GPUModel: "V100"}, func(e *domain.Envelope) {
		switch ev := e.Event.(type) {
		case *domain.DemandObserved:
			demand += ev.RunningMilli
		case *domain.NodeSampled:
			entries += ev.Entries()
			for _, h := range ev.Holder {
				held += int(h)
			}
		}
	})
	t.Log(c.Rows, c.Bad, c.Types, held, entries, demand, c.Warnings)
}

func TestShavedIceDemand(t *testing.T) {
	pools := map[string]bool{}
	hours := map[domain.Instant]bool{}
	var running uint64
	c := collect(t, importer.Demand, "demand/shavedice_regions_1_2.csv.gz", importer.Options{Cluster: "snow", Zone: "UTC"}, func(e *domain.Envelope) {
		d := e.Event.(*domain.DemandObserved)
		pools[d.Pool] = true
		hours[d.Interval.From] = true
		running += d.RunningMilli
	})
	t.Log(c.Rows, c.Bad, c.Types, len(pools), len(hours), running)
}

func TestOffers(t *testing.T) {
	ids := map[string]bool{}
	models := map[string]int{}
	c := collect(t, importer.Prices, "prices/gpu_offers.csv", importer.Options{}, func(e *domain.Envelope) {
		o := e.Event.(*domain.OfferQuoted)
		id := o.Market.Key() + " " + o.Offer
		if ids[id] {
			t.Errorf("offer %s is there twice", id)
		}
		ids[id] = true
		models[o.GPUModel]++
	})
	reasons := map[string]int{}
	for _, b := range c.bad {
		reasons[strings.SplitN(b.Reason, ":", 2)[0]]++
	}
	t.Log(c.Rows, c.Events, c.Bad, reasons, models)
	for _, w := range c.Warnings {
		t.Log(w)
	}
	for _, b := range c.bad[max(0, len(c.bad)-4):] {
		t.Log(b)
	}
}
