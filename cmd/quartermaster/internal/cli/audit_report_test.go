package cli

import (
	"bytes"
	"strings"
	"testing"

	"quartermaster/adapters/document"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

// TestReportWarnsOfBills shows that a customer is told that bills do not reconcile, and not which.
func TestReportWarnsOfBills(t *testing.T) {
	r := &app.CustomerReport{Workspace: "research", Statement: &app.CostStatement{}}
	written := func() string {
		t.Helper()
		var b bytes.Buffer
		if err := document.WriteHTML(&b, reportDocument(r, "ann")); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const warning = "Bills that do not reconcile"
	if text := written(); strings.Contains(text, warning) {
		t.Errorf("warns of nothing: %s", text)
	}
	r.Statement.Unreconciled = []costs.Unreconciled{{Subject: "invoice INV-5", Why: "no invoice was received"}}
	if text := written(); !strings.Contains(text, warning+" with what the suppliers sent: 1.") || strings.Contains(text, "INV-5") {
		t.Errorf("%s", text)
	}
}
