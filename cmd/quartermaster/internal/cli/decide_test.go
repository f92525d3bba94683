package cli

import (
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
)

// FuzzQuestion reads any body of a proposed decision. What is read names values that a query may have, and what is not
// is refused as invalid.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte(`{"command":"access grant","parameters":{"principal":"account:a","dry_run":true,"cluster":["a","b"],"n":1},"public_key":"AAAA"}`))
	f.Add([]byte(`{"command":"apply","documents":[{"name":"a.yaml","text":"kind: Estate"}],"output":"json"}`))
	f.Add([]byte(`{"parameters":{"a":{"b":null},"a":[[1]]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var q Question
		err := ReadBody(body, &q)
		if err == nil {
			var op *Operation
			if op, err = DecisionOf(q.Command); err == nil {
				query, wrong := q.Query()
				if err = wrong; err == nil {
					_ = op.Check(query)
				}
			}
		}
		if err != nil && KindOf(err) != app.KindInvalid {
			t.Errorf("%q: %v", body, err)
		}
	})
}
