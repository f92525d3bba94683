package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// The data directory of tests answers with keys of every kind, so that schemas are put to
// the test.
func TestAnswersHaveKeys(t *testing.T) {
	dir := apptest.FilledDir(t)
	if code, out := command(t, dir, "quarantine", "list"); code != 0 || !strings.Contains(out, "nothing is quarantined") {
		t.Fatalf("the data directory is not as it should be: exit %d\n%s", code, out)
	}
	for name, c := range map[string]struct {
		args []string
		some []string // that must be there, or the data directory does not show what it should
	}{
		"fleet": {[]string{"--at", "2026-05-01T02:00:00Z"}, []string{
			"country", "valid_to", "evidence", "resource_id", "dedicated_workspace", "last_telemetry", "since", "maintenance", "faults",
			"mig", "uuid_derived", "amount", "disposed", "space_units", "detail", "gpus", "missing",
		}},
		"models": {[]string{"--at", "2026-05-01T01:10:00Z"}, []string{"tier", "environment", "declared_at", "ready_replicas", "last_seen", "shadow", "incomplete"}},
		"serving": {[]string{"--from", "2026-05-01", "--to", "2026-05-02"}, []string{
			"provider", "region", "tier", "up_to", "least_cluster", "permille", "ttft_mean_micros", "queue_wait", "gpu_requests_milli", "batch_permille",
		}},
		"jobs": {[]string{"--from", "2026-05-01", "--to", "2026-05-02"}, []string{"class", "queue_wait_p95_ms", "success_permille"}},
		"usage": {[]string{"--from", "2026-05-01", "--to", "2026-05-02", "--by", "workspace,cluster,node,gpu,gpu_model,deployment,region,hour,day"}, []string{
			"workspace", "day", "key", "allocated_while_failed_gpu_ms", "activity_permille", "missing",
		}},
	} {
		code, out := command(t, dir, append([]string{name, "-o", "json"}, c.args...)...)
		var answer any
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v\n%s", name, code, err, out)
		}
		keys := map[string]bool{}
		apptest.KeysUnder(answer, keys)
		for _, k := range c.some {
			if !keys[k] {
				t.Errorf("%s does not answer with %q, so that its schema is not put to the test", name, k)
			}
		}
	}
}

// What is asked for and not there is refused by its name, and what is asked for
// by mistake is not answered with silence.
func TestAskedForNothing(t *testing.T) {
	dir := apptest.FilledDir(t)
	span := []string{"--from", "2026-05-01", "--to", "2026-05-02"}
	usage := func(args ...string) []string { return append(append([]string{"usage"}, span...), args...) }
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"fleet", "--cluster", "nosuch"}, 2, "there is no cluster \"nosuch\"; there are: lab, " + apptest.LongName[:39] + "…"},
		{[]string{"fleet", "--region", "nosuch"}, 2, "there is no region \"nosuch\"; there are: eu, us"},
		{[]string{"fleet", "--workspace", "nosuch"}, 2, "there is no workspace \"nosuch\"; there are: platform, research"},
		{[]string{"fleet", "--cluster", "lab", "--region", "us"}, 0, "no clusters with --cluster lab --region us"},
		{[]string{"models", "--cluster", "nosuch"}, 2, "there is no cluster \"nosuch\""},
		{[]string{"models", "--workspace", "nosuch"}, 2, "there is no workspace \"nosuch\""},
		{[]string{"models", "--workspace", app.Platform}, 0, "no deployments at "},
		{[]string{"models", "--at", "2026-04-01"}, 0, "no deployments at 2026-04-01T00:00:00Z: declare"},
		{[]string{"models", "--limit", "-1"}, 2, "--limit -1: want 0 or more"},
		{[]string{"models", "--limit", "0"}, 0, "and 1 more"},
		{usage("--cluster", "nosuch"), 2, "there is no cluster \"nosuch\""},
		{usage("--region", "nosuch"), 2, "there is no region \"nosuch\""},
		{usage("--workspace", "nosuch"), 2, "there is no workspace \"nosuch\""},
		{usage("--workspace", "research", "--region", "us"), 0, "total"},
		{usage("--by", "workspace,deployment"), 0, "(nobody)   (nobody)"},
		{[]string{"usage", "--from", "2016-05-01", "--to", "2026-05-02"}, 2, "is more than 10 years"},
		{[]string{"usage", "--from", "2016-05-02", "--to", "2026-05-02"}, 0, "total"},
		{[]string{"fleet", "-o", "wide", "--at", "2026-05-02"}, 0, apptest.LongName[:39] + "… "},
	} {
		if code, out := command(t, dir, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
}

// What a report may lack stands under its table, and what nobody is known to
// have is called so only where it is about somebody.
func TestReportsPrintWhatTheyLack(t *testing.T) {
	dir := apptest.FilledDir(t)
	a := commandLine(&app.App{Dir: dir}, io.Discard, io.Discard)
	h, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := domain.DeriveGPUID("stray", "n2", 0)
	stray, err := wire.Encode(&domain.Envelope{Source: "reporter/n2", Incarnation: 1, Sequence: 3, Time: apptest.May + domain.Hour, Cluster: "stray", Event: &domain.NodeSampled{
		Node: "n2", Interval: domain.Interval{From: apptest.May, To: apptest.May + domain.Hour}, IDs: id[:], Holder: []uint32{0},
	}})
	if err != nil {
		t.Fatal(err)
	}
	stray.Time = apptest.May + domain.Hour
	poison := domain.Record{Topic: domain.TopicFleet, Value: []byte("not an event")}
	if err := errors.Join(h.Log.Append(t.Context(), []domain.Record{stray, poison}), h.CatchUp(t.Context()), h.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"fleet"}, {"models"}, {"usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "region,gpu_model"}} {
		code, out := command(t, dir, args...)
		if code != 5 || !strings.Contains(out, "\nincomplete: 1 event; 2 events have not arrived: see ") {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
		if args[0] == "usage" && (!strings.Contains(out, "(none)") || strings.Contains(out, "(nobody)")) {
			t.Errorf("a region and a model are nobody:\n%s", out)
		}
		var answer struct{ Incomplete, Missing int }
		if _, out := command(t, dir, append(args, "-o", "json")...); json.Unmarshal([]byte(out), &answer) != nil || answer.Incomplete != 1 || answer.Missing != 2 {
			t.Errorf("%v: %+v", args, answer)
		}
	}
}
