package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// mendedNode writes the event that mends the bad record "gpu-twice", and
// returns its file.
func mendedNode(t *testing.T, model string) string {
	t.Helper()
	return eventDocument(t, &domain.Envelope{Time: apptest.May, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
		Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: model}},
	}})
}

func eventDocument(t *testing.T, env *domain.Envelope) string {
	t.Helper()
	doc, err := wire.CloudEvent(env)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// firstQuarantined is the id of the first record in quarantine.
func firstQuarantined(t *testing.T, a *Program) string {
	t.Helper()
	q, err := a.caller().Quarantine(t.Context(), "", app.QuarantineFilter{Partition: -1})
	if err != nil || len(q.Entries) == 0 {
		t.Fatal(err)
	}
	return q.Entries[0].ID
}

// appendMended drafts the event that mends a record, and returns what appends it and
// resolves nothing.
func appendMended(t *testing.T, a *Program, id string, event *domain.Envelope) func() (*app.Repair, error) {
	t.Helper()
	s, err := a.signer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.caller().Repair(t.Context(), id, event, "mended")
	if err != nil {
		t.Fatal(err)
	}
	return func() (*app.Repair, error) {
		p, err := a.decided(t.Context(), s, r.Mended)
		if err != nil {
			t.Fatal(err)
		}
		return r, a.caller().Repaired(t.Context(), r, p)
	}
}

// begun is a data directory in which a run of repair died between its two events: it
// appended the mended one and resolved nothing. It returns the quarantined id.
func begun(t *testing.T, name string, event *domain.Envelope) (dir, id string) {
	t.Helper()
	dir = apptest.FilledDir(t)
	if err := apptest.Plant(dir, name); err != nil {
		t.Fatal(err)
	}
	a := commandLine(&app.App{Dir: dir}, io.Discard, io.Discard)
	defer a.Close()
	id = firstQuarantined(t, a)
	if r, err := appendMended(t, a, id, event)(); err != nil || r.Appended == "" {
		t.Fatal(err)
	}
	return dir, id
}

// citing counts the events that cite a record, and all events.
func citing(t *testing.T, dir, id string) (n, all int) {
	t.Helper()
	code, out := command(t, dir, "log", "export")
	if code != 0 {
		t.Fatal(out)
	}
	return strings.Count(out, `"cites":"`+id+`"`), strings.Count(out, "\n")
}

// A run that dies between the mended event and the resolution is finished by
// the next, without a second event.
func TestReappendIsFinished(t *testing.T) {
	policy := &domain.Envelope{Time: apptest.May, Workspace: app.Platform, Subject: "idle", Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, EffectiveFrom: apptest.May, Value: "owner",
	}}
	node := &domain.Envelope{Time: apptest.May, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
		Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: "H100"}},
	}}
	for _, c := range []struct {
		name, bad string
		event     *domain.Envelope
		with      []string
	}{
		{"the same file", "gpu-twice", node, []string{"--event", eventDocument(t, node)}},
		{"no file", "gpu-twice", node, nil},
		{"a decision", "unsigned", policy, []string{"--event", eventDocument(t, policy)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, id := begun(t, c.bad, c.event)
			if code, out := command(t, dir, "quarantine", "list"); code != 0 || !strings.Contains(out, "incomplete: 1 event") {
				t.Fatalf("exit %d\n%s", code, out)
			}
			if code, out := command(t, dir, "quarantine", "repair", id, "--reason", "x", "--event", mendedNode(t, "A100")); code == 0 {
				t.Errorf("something else was appended:\n%s", out)
			} else if c.bad == "gpu-twice" && !strings.Contains(out, "another event was appended for "+id+" before, qm.fleet/") {
				t.Error(out)
			}
			if code, out := command(t, dir, "quarantine", "discard", id, "--reason", "x"); code == 0 || !strings.Contains(out, "was appended again in part") {
				t.Errorf("exit %d\n%s", code, out)
			}
			_, before := citing(t, dir, id)
			args := append([]string{"quarantine", "repair", id, "--reason", "a restart"}, c.with...)
			if code, out := command(t, dir, append(args, "--dry-run")...); code != 0 || !strings.Contains(out, "an earlier run appended") {
				t.Errorf("exit %d\n%s", code, out)
			}
			if n, all := citing(t, dir, id); n != 1 || all != before {
				t.Errorf("a dry run left %d citing events, %d in all, of 1 and %d", n, all, before)
			}
			if code, out := command(t, dir, append(args, "-o", "json")...); code != 0 || !strings.Contains(out, `"resumed": true`) {
				t.Errorf("exit %d\n%s", code, out)
			}
			if n, all := citing(t, dir, id); n != 1 || all != before+1 {
				t.Errorf("%d events cite %s, and %d were appended", n, id, all-before)
			}
			if code, out := command(t, dir, append(args, "-o", "json")...); code == 0 || !strings.Contains(out, "is resolved already") {
				t.Errorf("exit %d\n%s", code, out)
			}
			if code, out := command(t, dir, "quarantine", "list"); code != 0 || strings.Contains(out, "incomplete") {
				t.Errorf("exit %d\n%s", code, out)
			}
		})
	}
}

// Two runs that append at the same time write one event twice: the second is a
// repeat, and its run says so where it meant something else.
func TestReappendAtOnce(t *testing.T) {
	event := func(model string) *domain.Envelope {
		return &domain.Envelope{Time: apptest.May, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
			Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: model}},
		}}
	}
	dir := apptest.FilledDir(t)
	if err := apptest.Plant(dir, "gpu-twice"); err != nil {
		t.Fatal(err)
	}
	var id string
	var runs []func() (*app.Repair, error)
	for _, model := range []string{"H100", "H100", "A100"} { // each of a process of its own
		a := commandLine(&app.App{Dir: dir}, io.Discard, io.Discard)
		defer a.Close()
		id = firstQuarantined(t, a)
		runs = append(runs, appendMended(t, a, id, event(model)))
	}
	var first string
	for i, run := range runs {
		r, err := run()
		if i < 2 && err != nil || i == 2 && (err == nil || !strings.Contains(err.Error(), "another event was appended")) {
			t.Errorf("run %d: %v", i, err)
		}
		if i == 0 {
			first = r.Appended
		}
		if r.Appended == "" || r.Appended != first {
			t.Errorf("run %d: %s counts, and before it was %s", i, r.Appended, first)
		}
	}
	if n, _ := citing(t, dir, id); n != 3 {
		t.Fatalf("%d events cite %s", n, id)
	}
	if code, out := command(t, dir, "log", "replay", "--verify"); code != 0 || !strings.Contains(out, "2 repeats") || !strings.Contains(out, "equal") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := command(t, dir, "fleet"); code != commandline.ExitIncomplete || strings.Contains(out, "A100") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// What could not be read at all is written anew: a sample counts with the usage.
func TestReappendUnreadable(t *testing.T) {
	dir := apptest.FilledDir(t)
	if err := apptest.Plant(dir, "sample", "garbage"); err != nil {
		t.Fatal(err)
	}
	_, out := command(t, dir, "quarantine", "list", "-o", "json")
	var list struct {
		Entries []struct{ ID, Source string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Entries) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	gpu := domain.DeriveGPUID("lab", "n1", 0)
	sample := func(cluster string) string {
		return eventDocument(t, &domain.Envelope{Time: apptest.May + 2*domain.Hour, Cluster: cluster, Subject: "n1", Event: &domain.NodeSampled{
			Node: "n1", Interval: domain.Interval{From: apptest.May + domain.Hour, To: apptest.May + 2*domain.Hour},
			Strings: []string{"research", "train"}, HolderWorkspace: []uint32{1}, HolderDeployment: []uint32{2}, HolderUnit: []uint32{0},
			IDs: gpu[:], Holder: []uint32{1},
		}})
	}
	if code, out := command(t, dir, "usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "deployment"); code != commandline.ExitIncomplete || strings.Contains(out, "train") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, e := range list.Entries {
		code, out := command(t, dir, "quarantine", "show", e.ID, "--event")
		if code == 0 || !strings.Contains(out, "has no readable event") {
			t.Errorf("exit %d\n%s", code, out)
		}
		// One has a key, which holds; the other has none, so any will do.
		if code, out := command(t, dir, "quarantine", "repair", e.ID, "--event", sample("other"), "--reason", "x", "--dry-run"); (code == 0) != strings.HasSuffix(e.ID, "/0@0") {
			t.Errorf("exit %d\n%s", code, out)
		}
		if code, out := command(t, dir, "quarantine", "repair", e.ID, "--event", sample("lab"), "--reason", "written anew"); code != 0 {
			t.Errorf("exit %d\n%s", code, out)
		}
	}
	if code, out := command(t, dir, "usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "deployment"); code != 0 || !strings.Contains(out, "train") || strings.Contains(out, "incomplete: 1 event;") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// Bad files, as people and others may hand them over.
func TestReappendBadFiles(t *testing.T) {
	dir := apptest.FilledDir(t)
	if err := apptest.Plant(dir, "gpu-twice"); err != nil {
		t.Fatal(err)
	}
	_, before := citing(t, dir, "-")
	_, out := command(t, dir, "quarantine", "list", "-o", "json")
	var list struct{ Entries []struct{ ID string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Entries) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	good, err := os.ReadFile(mendedNode(t, "H100"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ doc, want string }{
		"empty":   {"", ":1: is not JSON"},
		"binary":  {"\x7fELF\x02\x01", ":1: is not JSON"},
		"huge":    {strings.Repeat(" ", wire.MaxDocument+1), "more than"},
		"deep":    {strings.Repeat(`{"data":`, 200_000), "is not JSON: exceeded max depth"},
		"twice":   {strings.Replace(string(good), `"node"`, `"node":"x","node"`, 1), ":1: data.node: occurs twice"},
		"type":    {strings.Replace(string(good), "NodeRegistered", "NodePainted", 1), ":1: type: "},
		"wrong":   {strings.Replace(string(good), "1000", `"1000"`, 1), ":1: data.cpu_milli: is text"},
		"large":   {strings.Replace(string(good), `"n9"`, `"`+strings.Repeat("n", 9000)+`"`, 1), "9000 bytes"},
		"cluster": {strings.Replace(string(good), `"lab"`, `"other"`, 1), "place may not"},
	} {
		path := filepath.Join(t.TempDir(), name+".json")
		if err := os.WriteFile(path, []byte(c.doc), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out := command(t, dir, "quarantine", "repair", list.Entries[0].ID, "--event", path, "--reason", "x")
		if code == 0 || !strings.Contains(out, c.want) || !strings.Contains(out, name+".json") || len(out) > 2000 {
			t.Errorf("%s: exit %d\n%.2000s", name, code, out)
		}
	}
	if _, all := citing(t, dir, "-"); all != before {
		t.Errorf("%d events were appended", all-before)
	}
}

// What is in quarantine is shown, mended and discarded in JSON as its schemas say.
func TestQuarantineAnswers(t *testing.T) {
	dir := apptest.FilledDir(t)
	if err := apptest.Plant(dir, "gpu-twice", "garbage"); err != nil {
		t.Fatal(err)
	}
	_, out := command(t, dir, "quarantine", "list", "-o", "json")
	var list struct{ Entries []struct{ ID, Type string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Entries) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range map[string][]string{
		"show":    {list.Entries[0].ID},
		"repair":  {list.Entries[0].ID, "--event", mendedNode(t, "H100"), "--reason", "x"},
		"discard": {list.Entries[1].ID, "--reason", "x"},
	} {
		code, out := command(t, dir, append([]string{"quarantine", name, "-o", "json"}, args...)...)
		var answer map[string]any
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v\n%s", name, code, err, out)
		}
	}
}
