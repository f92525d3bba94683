package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// badRecords returns records that are no good, by name: each as some client of
// Kafka could have written it into a log.
func badRecords() (map[string]domain.Record, error) {
	at := may
	out := map[string]domain.Record{}
	var errs error
	add := func(name string, env domain.Envelope, spoil func(*domain.Record)) {
		env.Time, env.Incarnation, env.Sequence = at, 1, 1
		rec, err := wire.Encode(&env)
		if spoil != nil {
			spoil(&rec)
		}
		out[name], errs = rec, errors.Join(errs, err)
	}
	twice := []domain.GPUDeclared{
		{ID: domain.DeriveGPUID("lab", "n9", 0), Model: "H100 SXM 80GB"},
		{ID: domain.DeriveGPUID("lab", "n9", 0), Index: 1, Model: "H100 SXM 80GB"},
	}
	node := func(source string) domain.Envelope {
		return domain.Envelope{Source: source, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: twice}}
	}
	add("gpu-twice", node("reporter/n9"), nil)
	misplaced := node("reporter/n9b")
	misplaced.Event.(*domain.NodeRegistered).GPUs = twice[:1]
	add("misplaced", misplaced, func(r *domain.Record) { r.Partition = (r.Partition + 1) % domain.TopicFleet.Partitions() })
	add("unsigned", domain.Envelope{Source: "somebody", Workspace: platform, Subject: "idle", Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, EffectiveFrom: at, Value: "owner",
	}}, nil)
	id := domain.DeriveGPUID("lab", "n9", 0)
	add("sample", domain.Envelope{Source: "reporter/n9", Cluster: "lab", Event: &domain.NodeSampled{
		Node: "n9", Interval: domain.Interval{From: at - domain.Hour, To: at}, IDs: id[:],
	}}, func(r *domain.Record) { r.Value = r.Value[:len(r.Value)-1] })
	out["garbage"] = domain.Record{Topic: domain.TopicTelemetry, Value: []byte("GET / HTTP/1.1\r\n")}
	return out, errs
}

// poison NAME... appends bad records to the log of the home.
func poison(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: poison name...")
	}
	ts.Check(plant(ts.Getenv("QUARTERMASTER_HOME"), args...))
}

func plant(dir string, names ...string) error {
	bad, err := badRecords()
	if err != nil {
		return err
	}
	var recs []domain.Record
	for _, name := range names {
		rec, ok := bad[name]
		if !ok {
			return errors.New("no bad record " + name)
		}
		recs = append(recs, rec)
	}
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	return a.withLog(context.Background(), func(h *home) error { return h.log.Append(context.Background(), recs) })
}

// mendedNode writes the event that mends the bad record "gpu-twice", and
// returns its file.
func mendedNode(t *testing.T, model string) string {
	t.Helper()
	return document(t, &domain.Envelope{Time: may, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
		Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: model}},
	}})
}

func document(t *testing.T, env *domain.Envelope) string {
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

// begun is a home in which a run of reappend died between its two events: it
// appended the mended one and resolved nothing. It returns the quarantined id.
func begun(t *testing.T, name string, event *domain.Envelope) (dir, id string) {
	t.Helper()
	dir = smallHome(t)
	if err := plant(dir, name); err != nil {
		t.Fatal(err)
	}
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	if err := a.with(t.Context(), func(h *home) error {
		if err := h.view(t.Context(), func(v projections.View) error {
			l, err := registry.Quarantine(v)
			id = l.Entries[0].ID
			return err
		}); err != nil {
			return err
		}
		m, err := h.mending(t.Context(), id)
		if err != nil {
			return err
		}
		s, err := h.signer(t.Context(), "")
		if err != nil {
			return err
		}
		event.Cites = id
		ptrs, err := s.signAll([]domain.Envelope{*event})
		if err != nil {
			return err
		}
		return h.appendMended(t.Context(), m, ptrs[0], &mendAnswer{})
	}); err != nil {
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
	policy := &domain.Envelope{Time: may, Workspace: platform, Subject: "idle", Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, EffectiveFrom: may, Value: "owner",
	}}
	node := &domain.Envelope{Time: may, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
		Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: "H100"}},
	}}
	for _, c := range []struct {
		name, bad string
		event     *domain.Envelope
		with      []string
	}{
		{"the same file", "gpu-twice", node, []string{"--event", document(t, node)}},
		{"no file", "gpu-twice", node, nil},
		{"a decision", "unsigned", policy, []string{"--event", document(t, policy)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, id := begun(t, c.bad, c.event)
			if code, out := command(t, dir, "quarantine", "list"); code != 0 || !strings.Contains(out, "incomplete: 1 event") {
				t.Fatalf("exit %d\n%s", code, out)
			}
			if code, out := command(t, dir, "quarantine", "reappend", id, "--reason", "x", "--event", mendedNode(t, "A100")); code == 0 {
				t.Errorf("something else was appended:\n%s", out)
			} else if c.bad == "gpu-twice" && !strings.Contains(out, "another event was appended for "+id+" before, qm.fleet/") {
				t.Error(out)
			}
			if code, out := command(t, dir, "quarantine", "resolve", id, "--discard", "--reason", "x"); code == 0 || !strings.Contains(out, "was appended again in part") {
				t.Errorf("exit %d\n%s", code, out)
			}
			_, before := citing(t, dir, id)
			args := append([]string{"quarantine", "reappend", id, "--reason", "a restart"}, c.with...)
			if code, out := command(t, dir, append(args, "--dry-run")...); code != 0 || !strings.Contains(out, "an earlier run appended") {
				t.Errorf("exit %d\n%s", code, out)
			}
			if n, all := citing(t, dir, id); n != 1 || all != before {
				t.Errorf("a dry run left %d citing events, %d in all, of 1 and %d", n, all, before)
			}
			if code, out := command(t, dir, append(args, "--json")...); code != 0 || !strings.Contains(out, `"resumed": true`) {
				t.Errorf("exit %d\n%s", code, out)
			}
			if n, all := citing(t, dir, id); n != 1 || all != before+1 {
				t.Errorf("%d events cite %s, and %d were appended", n, id, all-before)
			}
			if code, out := command(t, dir, append(args, "--json")...); code == 0 || !strings.Contains(out, "is resolved already") {
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
		return &domain.Envelope{Time: may, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{
			Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n9", 0), Model: model}},
		}}
	}
	dir, id := begun(t, "gpu-twice", event("H100"))
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	if err := a.with(t.Context(), func(h *home) error {
		m, err := h.mending(t.Context(), id)
		if err != nil {
			return err
		}
		first := ""
		m.from = nil // what the other run knew before the first one appended
		for model, want := range map[string]string{"H100": "", "A100": "another event was appended"} {
			env, ans := event(model), &mendAnswer{}
			env.Cites = id
			err := h.appendMended(t.Context(), m, env, ans)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v", model, err)
			}
			if first == "" {
				first = ans.Appended
			}
			if ans.Appended == "" || ans.Appended != first {
				t.Errorf("%s: %s counts, and before it was %s", model, ans.Appended, first)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
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
	dir := smallHome(t)
	if err := plant(dir, "sample", "garbage"); err != nil {
		t.Fatal(err)
	}
	_, out := command(t, dir, "quarantine", "list", "--json")
	var list struct {
		Entries []struct{ ID, Source string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Entries) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	gpu := domain.DeriveGPUID("lab", "n1", 0)
	sample := func(cluster string) string {
		return document(t, &domain.Envelope{Time: may + 2*domain.Hour, Cluster: cluster, Subject: "n1", Event: &domain.NodeSampled{
			Node: "n1", Interval: domain.Interval{From: may + domain.Hour, To: may + 2*domain.Hour},
			Strings: []string{"research", "train"}, HolderWorkspace: []uint32{1}, HolderDeployment: []uint32{2}, HolderUnit: []uint32{0},
			IDs: gpu[:], Holder: []uint32{1},
		}})
	}
	if code, out := command(t, dir, "usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "deployment"); code != commandline.ExitIncomplete || strings.Contains(out, "train") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, e := range list.Entries {
		code, out := command(t, dir, "quarantine", "show", e.ID, "--event")
		if code == 0 || !strings.Contains(out, "holds nothing that can be read as an event") {
			t.Errorf("exit %d\n%s", code, out)
		}
		// One has a key, which holds; the other has none, so any will do.
		if code, out := command(t, dir, "quarantine", "reappend", e.ID, "--event", sample("other"), "--reason", "x", "--dry-run"); (code == 0) != strings.HasSuffix(e.ID, "/0@0") {
			t.Errorf("exit %d\n%s", code, out)
		}
		if code, out := command(t, dir, "quarantine", "reappend", e.ID, "--event", sample("lab"), "--reason", "written anew"); code != 0 {
			t.Errorf("exit %d\n%s", code, out)
		}
	}
	if code, out := command(t, dir, "usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "deployment"); code != 0 || !strings.Contains(out, "train") || strings.Contains(out, "incomplete: 1 event;") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// Bad files, as people and others may hand them over.
func TestReappendBadFiles(t *testing.T) {
	dir := smallHome(t)
	if err := plant(dir, "gpu-twice"); err != nil {
		t.Fatal(err)
	}
	_, before := citing(t, dir, "-")
	_, out := command(t, dir, "quarantine", "list", "--json")
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
		"twice":   {strings.Replace(string(good), `"node"`, `"node":"x","node"`, 1), ":1: data.node: is there twice"},
		"type":    {strings.Replace(string(good), "NodeRegistered", "NodePainted", 1), ":1: type: "},
		"wrong":   {strings.Replace(string(good), "1000", `"1000"`, 1), ":1: data.cpu_milli: is text"},
		"large":   {strings.Replace(string(good), `"n9"`, `"`+strings.Repeat("n", 9000)+`"`, 1), "9000 bytes"},
		"cluster": {strings.Replace(string(good), `"lab"`, `"other"`, 1), "place may not"},
	} {
		path := filepath.Join(t.TempDir(), name+".json")
		if err := os.WriteFile(path, []byte(c.doc), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out := command(t, dir, "quarantine", "reappend", list.Entries[0].ID, "--event", path, "--reason", "x")
		if code == 0 || !strings.Contains(out, c.want) || !strings.Contains(out, name+".json") || len(out) > 2000 {
			t.Errorf("%s: exit %d\n%.2000s", name, code, out)
		}
	}
	if _, all := citing(t, dir, "-"); all != before {
		t.Errorf("%d events were appended", all-before)
	}
}

// Every key of the answers is in the help.
func TestQuarantineHelpNamesEveryKey(t *testing.T) {
	dir := smallHome(t)
	if err := plant(dir, "gpu-twice", "garbage"); err != nil {
		t.Fatal(err)
	}
	_, out := command(t, dir, "quarantine", "list", "--json")
	var list struct{ Entries []struct{ ID, Type string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Entries) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range map[string][]string{
		"show":     {list.Entries[0].ID},
		"reappend": {list.Entries[0].ID, "--event", mendedNode(t, "H100"), "--reason", "x"},
		"resolve":  {list.Entries[1].ID, "--discard", "--reason", "x"},
	} {
		code, out := command(t, dir, append([]string{"quarantine", name, "--json"}, args...)...)
		var answer map[string]any
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v\n%s", name, code, err, out)
		}
		_, help := command(t, dir, "quarantine", name, "--help")
		_, entry := command(t, dir, "quarantine", "list", "--help")
		for k := range answer {
			if !strings.Contains(help, k) && (name != "show" || !strings.Contains(entry, k)) {
				t.Errorf("the help of %s does not name %q", name, k)
			}
		}
	}
}
