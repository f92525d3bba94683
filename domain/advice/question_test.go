package advice

import "testing"

// A question names arguments and flags as both the command and the API take them.
func TestQuestions(t *testing.T) {
	q := AskFor("plan show", "plan", "p 1", "as-of", "2026-05-01", "workspace", "")
	if q.Command != "plan show 'p 1' --as-of 2026-05-01" || q.API != "/api/v1/plan/show?plan=p%201&as_of=2026-05-01" {
		t.Errorf("%+v", q)
	}
}
