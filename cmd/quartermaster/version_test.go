package main

import (
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/projections"
)

// Every report names the program that made it, and the keys of its JSON stay.
func TestReportsNameTheProgram(t *testing.T) {
	dir := apptest.FilledDir(t)
	month := []string{"--from", "2026-05-01", "--to", "2026-05-02"}
	for _, args := range [][]string{
		{"fleet"}, {"models"}, {"fragmentation", "--at", "2026-05-02"}, append([]string{"usage"}, month...), append([]string{"serving"}, month...), append([]string{"jobs"}, month...), {"costs", "--period", "2026-05"},
	} {
		code, out := command(t, dir, args...)
		if code != 0 || !strings.Contains(out, "\nprogram: quartermaster ") || !strings.Contains(out, projections.Method) {
			t.Errorf("%v: exit %d, and names no program\n%s", args, code, out)
		}
		var answer struct {
			Program  app.ProgramInfo
			Position string
		}
		code, out = command(t, dir, append(args, "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || answer.Program.Version == "" || answer.Program.Commit == "" || len(answer.Program.Methods) != len(app.Version().Methods) || answer.Position == "" {
			t.Errorf("%v -o json: exit %d, %v, %+v\n%s", args, code, err, answer, out)
		}
	}
	code, out := command(t, dir, "version", "-o", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v["version"] == nil || v["commit"] == nil || v["date"] == nil || v["methods"] == nil {
		t.Errorf("version: exit %d, %v\n%s", code, err, out)
	}
}
