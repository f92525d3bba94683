package remotewrite_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
)

// TestCompliance runs the public suite of prometheus/compliance for receivers. "make compliance"
// builds it, from the module in the directory compliance, and passes the program's name.
func TestCompliance(t *testing.T) {
	suite := os.Getenv("QM_COMPLIANCE")
	if suite == "" {
		t.Skip(`QM_COMPLIANCE names no program: "make compliance" builds and runs the public suite`)
	}
	srv := httptest.NewServer(remotewrite.Handler(remotewrite.Config{
		Authenticate: func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return "", fmt.Errorf("the key is wrong")
			}
			return "c1", nil
		},
		Append: func(context.Context, []domain.Envelope) error { return nil },
		Now:    time.Now,
	}))
	defer srv.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := "remote_write:\n  - name: quartermaster\n    url: " + srv.URL + "/api/v1/write\n    authorization:\n      credentials: secret\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), suite, "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PROMETHEUS_RW2_COMPLIANCE_CONFIG_FILE="+config)
	out, err := cmd.CombinedOutput()
	passed, failed := strings.Count(string(out), "--- PASS: "), strings.Count(string(out), "--- FAIL: ")
	if err != nil || failed > 0 || passed < 400 || strings.Contains(string(out), "--- SKIP: ") {
		t.Fatalf("%d passed, %d failed: %v\n%s", passed, failed, err, out)
	}
	t.Logf("%d passed", passed)
}
