package importer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

var update = flag.Bool("update", false, "write the goldens anew; read the difference before committing it")

// golden files, each with its options.
var goldens = []struct {
	kind importer.Kind
	file string
	opts importer.Options
}{
	{importer.Nodes, "nodes", importer.Options{Cluster: "c1", Epoch: epoch, Zone: "Europe/Berlin"}},
	{importer.Pods, "pods", importer.Options{Cluster: "c1", Workspace: "research", Epoch: epoch}},
	{importer.Usage, "usage", importer.Options{Cluster: "c1", Zone: "UTC", GPUModel: "V100M32", NodeGPUs: 4, Interval: 20 * time.Minute, Workspaces: map[string]string{"vcB": "beta"}, SKU: "v100.quad", Account: "1234", CPUMilli: 64_000, MemoryMiB: 262_145}},
	{importer.Usage, "activity", importer.Options{Cluster: "c1", Zone: "UTC", GPUModel: "V100M32", NodeGPUs: 4, Interval: 30 * time.Minute}},
	{importer.Demand, "demand", importer.Options{Cluster: "c1", Historical: true}},
	{importer.Demand, "shavedice", importer.Options{Cluster: "c1", Zone: "UTC", Shift: 24 * time.Hour}},
	{importer.Prices, "prices", importer.Options{}},
	{importer.Energy, "energy", importer.Options{Cluster: "c1", Zone: "Europe/Berlin"}},
}

// render writes an event as one line of text.
func render(e *domain.Envelope) string {
	body, err := json.Marshal(e.Event)
	if s, ok := e.Event.(*domain.NodeSampled); ok {
		holders := []string{}
		for i := range s.HolderWorkspace {
			holders = append(holders, s.Strings[s.HolderWorkspace[i]-1]+"/"+s.Strings[s.HolderDeployment[i]-1])
		}
		body = fmt.Appendf(nil, "%s to %s held %v by %v", s.Interval.From, s.Interval.To, s.Holder, holders)
		if s.ActivityField != 0 || s.MemoryUsedMiB != nil {
			body = fmt.Appendf(body, ", field %d was %v, memory %v", s.ActivityField, s.ActivityMean, s.MemoryUsedMiB)
		}
		rest := *s
		rest.ActivityField, rest.ActivityMean, rest.MemoryUsedMiB = 0, nil, nil
		rest.Node, rest.Interval, rest.Strings, rest.IDs, rest.Holder = "", domain.Interval{}, nil, nil, nil
		rest.HolderWorkspace, rest.HolderDeployment, rest.HolderUnit = nil, nil, nil
		if !reflect.DeepEqual(rest, domain.NodeSampled{}) {
			body = append(body, " and says more than the file does"...)
		}
	}
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("%s %s subject=%q", e.Time, e.Event.Type(), e.Subject)
	for _, attribute := range []struct{ name, value string }{{"workspace", e.Workspace}, {"cluster", e.Cluster}, {"recorded", e.Recorded.String()}} {
		if attribute.value != "" {
			s += fmt.Sprintf(" %s=%q", attribute.name, attribute.value)
		}
	}
	return s + "\n  " + string(body) + "\n"
}

func TestGoldens(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.file, func(t *testing.T) {
			in, err := os.ReadFile(filepath.Join("testdata", g.file+".csv"))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			fmt.Fprintln(&got, importer.SourceName(g.kind, [32]byte{0xab}, g.opts))
			sum, err := importer.Run(context.Background(), g.kind, bytes.NewReader(in), g.file+".csv", g.opts, func(e *domain.Envelope) error {
				if err := domain.Validate(e); err != nil {
					t.Error(err)
				}
				got.WriteString(render(e))
				return nil
			}, func(b tabular.BadRow) { t.Errorf("bad row: %s", b) })
			if err != nil {
				t.Fatal(err)
			}
			text, _ := json.MarshalIndent(sum, "", " ")
			got.Write(append(text, '\n'))

			path := filepath.Join("testdata", g.file+".golden")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s differs; got:\n%s", path, got.Bytes())
			}
		})
	}
}
