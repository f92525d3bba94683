package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
)

// TestAuditTrailIsProven proves each line of the trail of a home with the audit program, from a copy of the archive and
// the verifier key alone: the record at its partition and offset is an event of its type.
func TestAuditTrailIsProven(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	t.Setenv("QUARTERMASTER_DATA_DIR", home)
	key := filepath.Join(home, "operator.pem")
	does := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(args, strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatalf("%v exits %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	does("apply", "-f", filepath.Join("..", "..", "deploy", "demo", "estate.yaml"))
	does("access", "grant", "user:corp/ana", "--role", "viewer")
	does("access", "revoke", "viewer:user:corp/ana", "--reason", "left")
	var trail app.Trail
	if err := json.Unmarshal([]byte(does("audit", "trail", "-o", "json")), &trail); err != nil {
		t.Fatal(err)
	}
	last := trail.Entries[len(trail.Entries)-2]
	if !strings.HasSuffix(last.Outcome, ": revoked by root") || len(last.Follows) != 1 {
		t.Errorf("the grant is %+v", last)
	}
	does("archive", "run", "--all", "--key", key)
	fields := strings.Fields(does("archive", "verifier-key", "--key", key))
	verifier := fields[len(fields)-1]
	archives, err := filepath.Glob(filepath.Join(home, "archive", "*"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}

	program := filepath.Join(dir, "quartermaster-audit")
	if out, err := exec.Command("go", "build", "-o", program, "quartermaster/cmd/quartermaster-audit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range trail.Entries {
		out, err := exec.Command(program, "prove", archives[0], e.Partition, strconv.FormatInt(e.Offset, 10)).Output()
		if err != nil {
			t.Fatalf("prove %s %d: %v", e.Partition, e.Offset, err)
		}
		proof := filepath.Join(dir, "proof.json")
		if err := os.WriteFile(proof, out, 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(program, "check-proof", proof, "--signed-by", verifier).CombinedOutput()
		if err != nil || !bytes.Contains(said, []byte(e.Type)) {
			t.Errorf("%s at %s %d: %v, %s", e.Type, e.Partition, e.Offset, err, said)
		}
	}
}
