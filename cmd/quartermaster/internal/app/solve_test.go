package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/highs"
	instances "quartermaster/domain/instance"
	"quartermaster/schemas"
	"quartermaster/simulations/whatif"
)

// The schema has the fields that the parser knows: each is read, and one more is
// refused by name.
func TestSchemaOfContracts(t *testing.T) {
	var schema struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schemas.Contract, &schema); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(schema.Properties)) {
		_, _, err := parseContract([]byte("apiVersion: quartermaster/v1\nkind: Contract\n" + key + ": {}\n"))
		if err == nil || regexp.MustCompile(`unknown field`).MatchString(err.Error()) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, _, err := parseContract([]byte("apiVersion: quartermaster/v1\nkind: Contract\nprice: 3\n")); err == nil || !regexp.MustCompile(`3:1: price: unknown field`).MatchString(err.Error()) {
		t.Errorf("a field that is not in the schema: %v", err)
	}
	for _, key := range schema.Required {
		_, ok := schema.Properties[key]
		if !ok {
			t.Errorf("%s is required and not described", key)
		}
	}
}

// Whatever a file holds, it is a contract or an error that says where.
func FuzzContract(f *testing.F) {
	f.Add("apiVersion: quartermaster/v1\nkind: Contract\nname: x\npool: p\nterm_epochs: 12\nhourly: 3.5\nguarantees_capacity: true\ntiers: [{units: 2, hourly: 3}]\nramp: [{epoch: 0, permille: 500}]\n")
	f.Add("a: &a [*a]")
	f.Add("hourly: .nan\nfrom: 2026-13\n")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		doc, c, err := parseContract([]byte(text))
		var faults whatif.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("not an error with a place: %v", err)
		}
		if err == nil && (doc == nil || c.Term < 1 || c.Hourly.IsNegative() || c.Name == "") {
			t.Fatalf("read as %+v", c)
		}
	})
}

// The examples are what the code above makes, they are answered within the gap
// that is promised, and their answers are proven again.
func TestDemoInstances(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "deploy", "demo", "instances")
	solver, done := linearSolver()
	defer done()
	for name, in := range demoInstances() {
		path := filepath.Join(dir, name+".json")
		text := written(in)
		if *writeInstances {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, text) {
			t.Fatalf("%s is not what this test makes (%v): run it with -write-instances", path, err)
		}
		t.Run(name, func(t *testing.T) {
			if name != "single-pool" && name != "owned-hardware" && !highs.Available() {
				t.Skip("this build has no solver of linear programs: make highs")
			}
			parsed, err := instances.Parse(path, have)
			if err != nil {
				t.Fatal(err)
			}
			a, err := instances.Solve(t.Context(), parsed, solver)
			if err != nil {
				t.Fatal(err)
			}
			if a.Gap.GreaterThan(listed("0.001")) {
				t.Errorf("the gap is %s", a.Gap)
			}
			t.Logf("cost %s, lower bound %s, gap %s, %d purchases", a.Cost.Round(2), a.LowerBound.Round(2), a.Gap, len(a.Purchases))
			if err := instances.Check(t.Context(), parsed, a); err != nil {
				t.Error(err)
			}
		})
	}
}

// No text is more than a shape or an error.
func FuzzNodeShape(f *testing.F) {
	f.Add("96000m,393216MiB,8")
	f.Add("96,384GiB,8,A100")
	f.Add("-1m,9999999999999999999GiB,+8")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseShape(text)
		if err == nil && (n.CPUMilli < 0 || n.MemoryMiB < 0 || n.GPUs < 0 || strings.Count(text, ",") < 2) {
			t.Errorf("%q gives %+v", text, n)
		}
	})
}

// No file is more than nodes or pods that the packer takes, or an error.
func FuzzPackFiles(f *testing.F) {
	f.Add([]byte("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,8000,32768,1,T4\n"), []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,4000,8192,1,500,P100\np2,2000,4096,0,0,\n"))
	f.Add([]byte("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n"), []byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,18446744073709551615,1,1,1\n"))
	f.Fuzz(func(t *testing.T, nodes, pods []byte) {
		if len(nodes)+len(pods) > 1<<12 {
			return
		}
		dir := t.TempDir()
		fl := PackQuery{Nodes: filepath.Join(dir, "nodes.csv"), Pods: filepath.Join(dir, "pods.csv")}
		for name, text := range map[string][]byte{fl.Nodes: nodes, fl.Pods: pods} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n, err := readNodes(t.Context(), fl.Nodes)
		if err != nil {
			return
		}
		p, err := readPods(t.Context(), fl.Pods)
		if err != nil {
			return
		}
		if ans, err := packFiles(t.Context(), fl, n, p); err == nil && ans.Pods != len(p) {
			t.Errorf("%d of %d pods", ans.Pods, len(p))
		}
	})
}
