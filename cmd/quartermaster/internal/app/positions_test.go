package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShortPositions(t *testing.T) {
	a := &App{Dir: t.TempDir()}
	c := a.For(Everyone)
	const position = "qm.fleet/0=12,qm.telemetry/3=4711"
	short := c.ShortPosition(position)
	if len(short) != 7 || short[0] != '@' || c.ShortPosition(position) != short {
		t.Fatalf("%s is shown as %q, then as %q", position, short, c.ShortPosition(position))
	}
	if got, err := a.positionOf(short); got != position || err != nil {
		t.Errorf("%s is %q, %v", short, got, err)
	}
	if got, err := a.positionOf(strings.ToUpper(short)); got != position || err != nil {
		t.Errorf("in capitals it is %q, %v", got, err)
	}
	var missing *NotFoundError
	for _, wrong := range []string{"@000000", "@", short[:4]} {
		if got, err := a.positionOf(wrong); !errors.As(err, &missing) {
			t.Errorf("%s is %q, %v", wrong, got, err)
		}
	}
	if got := c.ShortPosition("0"); got != "0" {
		t.Errorf("0 is shown as %q", got)
	}
	// Somebody else's line, and one that was cut off, name nothing.
	path := filepath.Join(a.Dir, positionsName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text[:len(text)-5], "\nabcdef 12\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.positionOf(short); !errors.As(err, &missing) {
		t.Errorf("a line that was cut off is taken: %v", err)
	}
}

// The file does not grow without bound, and where nothing can be written positions are whole.
func TestShortPositionsAreBounded(t *testing.T) {
	a := &App{Dir: t.TempDir()}
	lines := make([]string, 0, 2*keptPositions)
	for i := range 2*keptPositions - 1 {
		lines = append(lines, fmt.Sprint(i))
	}
	if err := a.remember("last", append(lines, "last")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(a.Dir, positionsName))
	if n := strings.Count(string(text), "\n"); err != nil || n != keptPositions || !strings.HasSuffix(string(text), "\nlast\n") {
		t.Errorf("%d lines, %v", n, err)
	}
	const position = "qm.fleet/0=12"
	nowhere := &App{Dir: filepath.Join(a.Dir, "nowhere", "at all")}
	if got := nowhere.For(Everyone).ShortPosition(position); got != position {
		t.Errorf("it is shown as %q", got)
	}
}
