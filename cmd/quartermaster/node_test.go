package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// A person's word ends what keeps a GPU or a node from service, with a signature that
// counts, and only what lasts.
func TestNodeReturn(t *testing.T) {
	dir := apptest.FilledDir(t)
	gpu := domain.DeriveGPUID("lab", "n1", 0).String()
	finance := filepath.Join(t.TempDir(), "finance.pem")
	for i, c := range []struct {
		args []string
		fail bool
		want string
	}{
		{[]string{"operator", "add", "fin", "--role", "finance", "--new-key", finance}, false, "fin"},
		{[]string{"fleet"}, false, "eu 1 3 1 "},
		{[]string{"node", "return", "n1", "--reason", "r"}, true, `"n1" does not name a node; want CLUSTER/NODE`},
		{[]string{"node", "return", "lab/n1"}, true, "reason"},
		{[]string{"node", "return", "lab/n1", "--reason", " "}, true, "--reason is empty"},
		{[]string{"node", "return", "lab/n7", "--reason", "r"}, true, "lab/n7: no node of that name is in service or reports"},
		{[]string{"node", "return", "lab/n1", "--gpu", "GPU-7", "--reason", "r"}, true, "--gpu: "},
		{[]string{"node", "return", "lab/n1", "--gpu", domain.DeriveGPUID("lab", "n1", 1).String(), "--reason", "r"}, true, "has no lasting fatal fault"},
		{[]string{"node", "return", "lab/n1", "--key", finance, "--reason", "r"}, true, `operator "fin" may not decide NodeReturned n1: that takes an admin or operator of workspace "research"`},
		{[]string{"node", "return", "lab/n1", "--gpu", gpu, "--reason", "board replaced", "-o", "json"}, false, `"faults": [` + "\n" + `      "` + gpu + " xid 79 at "},
		{[]string{"fleet"}, false, "eu 1 3 0 "},
		{[]string{"node", "return", "lab/n1", "--reason", "r"}, true, "lab/n1: there is nothing to return it from: it is ok"},
		{[]string{"node", "retire", "lab/n1", "--gpu", domain.DeriveGPUID("lab", "n9", 1).String(), "--reason", "r"}, true, "is not in service there"},
		{[]string{"node", "retire", "lab/n1", "--gpu", gpu, "--key", finance, "--reason", "r"}, true, `operator "fin" may not decide GPURetired`},
		{[]string{"node", "retire", "lab/n1", "--gpu", gpu, "--reason", "sent back"}, false, gpu + " of lab/n1 is retired, signed by "},
		{[]string{"node", "retire", "lab/n1", "--gpu", gpu, "--reason", "sent back"}, true, "is not in service there"},
		{[]string{"fleet"}, false, "eu 1 2 0 "},
		{[]string{"log", "export", "--topic", "qm.fleet"}, false, `"reason":"sent back"`},
		{[]string{"node", "drain", "lab/n1"}, true, "reason"},
		{[]string{"node", "drain", "lab/n7", "--reason", "r"}, true, "lab/n7: no node of that name"},
		{[]string{"node", "drain", "lab/n1", "--key", finance, "--reason", "r"}, true, `operator "fin" may not decide NodeDrained`},
		{[]string{"node", "drain", "lab/n1", "--key", finance, "--reason", "r", "--dry-run"}, true, `operator "fin" may not decide NodeDrained`},
		{[]string{"node", "drain", "lab/n1", "--reason", "firmware", "--dry-run"}, false, "lab/n1 would be drained; nothing appended"},
		{[]string{"node", "drain", "lab/n1", "--reason", "firmware"}, false, "the node is maintenance"},
		{[]string{"node", "drain", "lab/n1", "--reason", "firmware"}, true, "lab/n1 has been drained since"},
		{[]string{"node", "return", "lab/n1", "--reason", "done"}, false, "the node is ok"},
		{[]string{"node", "drain", "lab/n1", "--reason", "again"}, false, "the node is maintenance"},
		{[]string{"node", "retire", "lab/n7", "--reason", "r"}, true, "lab/n7: no node of that name"},
		{[]string{"node", "retire", "lab/n1", "--reason", "r", "--key", finance}, true, `operator "fin" may not decide NodeRetired`},
		{[]string{"node", "retire", "lab/n1", "--reason", "r", "--dry-run"}, false, "lab/n1 would be retired"},
		{[]string{"node", "retire", "lab/n1", "--reason", "lease is over"}, false, "lab/n1 is retired, signed by "},
		{[]string{"node", "retire", "lab/n1", "--reason", "lease is over"}, true, "lab/n1"},
		{[]string{"fleet"}, false, "eu 0 0 0 "},
		{[]string{"log", "export", "--topic", "qm.hardware"}, false, `"reason":"board replaced","gpu":"` + gpu + `","faults":true`},
	} {
		code, out := command(t, dir, c.args...)
		if (code != 0) != c.fail || !strings.Contains(out, c.want) && !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) {
			t.Errorf("%d: %v: exit %d\n%s", i, c.args, code, out)
		}
	}
	_, out := command(t, dir, "log", "export", "--topic", "qm.hardware")
	if !strings.Contains(out, `"signature":`) {
		t.Errorf("it is not signed:\n%s", out)
	}
}

// Retire answers how the node stands once it has taken effect.
func TestNodeRetireAnswer(t *testing.T) {
	dir := apptest.FilledDir(t)
	gpu := domain.DeriveGPUID("lab", "n1", 0)
	code, out := command(t, dir, "node", "retire", "lab/n1", "--gpu", gpu.String(), "--reason", "sent back", "-o", "json")
	var ans app.NodeDecision
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &ans); code != 0 || err != nil {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if len(ans.Was.Faults) != 1 || ans.Health.State != "ok" || len(ans.Health.Faults) != 0 {
		t.Errorf("was %+v, is %+v", ans.Was, ans.Health)
	}
	if _, out := command(t, dir, "log", "export", "--topic", "qm.fleet"); !strings.Contains(out, `"time":"`+ans.At.String()+`"`) {
		t.Errorf("no event is of %s:\n%s", ans.At, out)
	}
}
