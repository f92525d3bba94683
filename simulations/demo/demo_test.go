package demo_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"quartermaster/simulations/demo"
)

// seeded returns draws that are the same in every run.
func seeded() func() uint64 { return rand.New(rand.NewPCG(20260601, 7)).Uint64 }

// files holds every file, each generated once from its own draws.
var files = sync.OnceValues(func() (map[string][]byte, error) {
	var nodes, pods, load, demand, prices bytes.Buffer
	err := errors.Join(
		demo.Fleet(&nodes, &pods, seeded()), demo.Load(&load, seeded(), seeded()), demo.Demand(&demand, seeded()), demo.Prices(&prices),
	)
	return map[string][]byte{
		"nodes": nodes.Bytes(), "pods": pods.Bytes(), "load": load.Bytes(), "demand": demand.Bytes(), "prices": prices.Bytes(),
	}, err
})

func generated(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := files()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rows parses a file and returns its rows by the names of the columns.
func rows(t testing.TB, name string) []map[string]string {
	t.Helper()
	return parse(t, generated(t)[name])
}

func parse(t testing.TB, file []byte) []map[string]string {
	t.Helper()
	all, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]map[string]string, 0, len(all)-1)
	for _, fields := range all[1:] {
		row := make(map[string]string, len(fields))
		for i, f := range fields {
			row[all[0][i]] = f
		}
		out = append(out, row)
	}
	return out
}

// number reads an integer or fails the test.
func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The same draws give the same bytes, on every machine and in every year. A
// golden changes only when a generator is meant to change.
func TestGolden(t *testing.T) {
	for name, file := range generated(t) {
		if dir := os.Getenv("QM_DEMO_OUT"); dir != "" { // to look at them
			if err := os.WriteFile(filepath.Join(dir, name+".csv"), file, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden(t, name, file, file)
	}
	for name, told := range told() {
		var lines bytes.Buffer
		for i := range told {
			body, err := json.Marshal(told[i].Event)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%s %s %s %s %s\n", told[i].At, told[i].Event.Type(), told[i].Workspace, told[i].Subject, body)
		}
		golden(t, name, lines.Bytes(), lines.Bytes())
	}
}

// told returns every series of events.
var told = sync.OnceValue(func() map[string][]demo.Told {
	return map[string][]demo.Told{
		"deployments": demo.Deployments("research", demo.LoadPeriod.From),
		"reports":     demo.Reports("gen", "research", seeded(), seeded()),
		"serving":     demo.Serving("research", seeded()),
		"jobs":        demo.Jobs(seeded(), seeded()),
		"planted":     demo.Planted(seeded()),
	}
})

// Other draws give other files, except those without randomness.
func TestDrawsMatter(t *testing.T) {
	other := rand.New(rand.NewPCG(1, 1)).Uint64
	var nodes, pods, load, demand bytes.Buffer
	if err := errors.Join(demo.Fleet(&nodes, &pods, other), demo.Load(&load, other, other), demo.Demand(&demand, other)); err != nil {
		t.Fatal(err)
	}
	first := generated(t)
	if !bytes.Equal(first["nodes"], nodes.Bytes()) {
		t.Error("the list of nodes depends on the draws")
	}
	for name, file := range map[string][]byte{"pods": pods.Bytes(), "load": load.Bytes(), "demand": demand.Bytes()} {
		if bytes.Equal(first[name], file) {
			t.Errorf("%s does not depend on the draws", name)
		}
	}
}

var errFull = errors.New("no space left")

// full is a writer with room for a number of bytes.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.room {
		return 0, errFull
	}
	f.room -= len(b)
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"nodes":  func(w io.Writer) error { return demo.Fleet(w, io.Discard, seeded()) },
		"pods":   func(w io.Writer) error { return demo.Fleet(io.Discard, w, seeded()) },
		"load":   func(w io.Writer) error { return demo.Load(w, seeded(), seeded()) },
		"demand": func(w io.Writer) error { return demo.Demand(w, seeded()) },
		"prices": demo.Prices,
	} {
		for _, room := range []int{0, 5000} {
			if err := write(&full{room}); !errors.Is(err, errFull) {
				t.Errorf("%s with room for %d bytes: error %v, want %v", name, room, err, errFull)
			}
		}
	}
}

func TestCatalogue(t *testing.T) {
	origins := map[string]bool{}
	for _, s := range demo.Catalogue() {
		if s.What == "" || s.Citation == "" {
			t.Errorf("source %+v says too little", s)
		}
		origins[s.Citation] = true
	}
	for _, r := range rows(t, "prices") {
		if !origins[r["source"]] {
			t.Fatalf("the catalogue does not name %q", r["source"])
		}
	}
}
