package app

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/config"
)

func TestAmong(t *testing.T) {
	names := make([]string, 25)
	for i := range names {
		names[i] = fmt.Sprintf("c%02d", i)
	}
	if err := among("cluster", "x", names); err == nil || !strings.HasSuffix(err.Error(), "c18, c19 and 5 more") {
		t.Errorf("25 names are offered as %v", err)
	}
	if err := among("cluster", "x", nil); err == nil || among("cluster", "", nil) != nil || among("cluster", "c03", names) != nil {
		t.Errorf("no names are offered as %v", err)
	}
}

// In production log and rows are elsewhere: a container may have no HOME.
func TestProductionNeedsNoDirectory(t *testing.T) {
	if err := (&App{Config: &config.Config{}}).placed(); err != nil {
		t.Errorf("with a configuration: %v", err)
	}
}
