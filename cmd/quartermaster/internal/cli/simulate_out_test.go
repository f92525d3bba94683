package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A directory holds the files of one answer: those of an earlier one go, and what no
// simulation wrote is not touched.
func TestSimulateOutNeverMixes(t *testing.T) {
	dir := t.TempDir()
	instance, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy", "demo", "instances", "owned-hardware.json"))
	if err != nil {
		t.Fatal(err)
	}
	file, out := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "out")
	simulate := func(seed, alternatives string) (int, string) {
		text := scenarioHead + "base: {instance: \"" + filepath.ToSlash(instance) + "\"}\nruns: 5\nseed: " + seed + "\nchanges: [{kind: demand_growth, monthly: {triangular: [0, 0.02, 0.05]}}]\nalternatives: " + alternatives + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return command(t, filepath.Join(dir, "home"), "simulate", file, "--out", out)
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if code, text := simulate("1", "[{name: first}, {name: another}]"); code != 0 || !slices.Contains(names(), "tornado-first.svg") {
		t.Fatalf("exit %d, %v\n%s", code, names(), text)
	}
	picture, err := os.ReadFile(filepath.Join(out, "tornado-first.svg"))
	if err != nil || !strings.Contains(string(picture), "sim-") || !strings.Contains(string(picture), "5 trials, seed 1") {
		t.Errorf("the picture does not say which simulation it is of: %v", err)
	}
	if code, text := simulate("2", "[{name: second}]"); code != 0 || slices.Contains(names(), "tornado-first.svg") || !slices.Contains(names(), "tornado-second.svg") {
		t.Errorf("exit %d, %v\n%s", code, names(), text)
	}
	if err := os.WriteFile(filepath.Join(out, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := names()
	if code, text := simulate("3", "[{name: third}]"); code != 1 || !strings.Contains(text, "contains notes.txt, which is not from a simulation") || !slices.Equal(names(), before) {
		t.Errorf("exit %d, %v\n%s", code, names(), text)
	}
	// Nothing is left beside it.
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}
