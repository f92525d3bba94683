package main

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"quartermaster/cmd/quartermaster/internal/apptest"
	instances "quartermaster/domain/instance"
)

func TestHelpNamesEveryKeyOfAppraisals(t *testing.T) {
	keys := map[string]bool{}
	apptest.JSONKeys(reflect.TypeFor[instances.Appraisal](), keys)
	_, help := command(t, t.TempDir(), "plan", "evaluate", "--help")
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(help) {
			t.Errorf("it does not name %q", k)
		}
	}
}
