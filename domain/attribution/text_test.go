package attribution_test

import (
	"encoding/json"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

func text(t fataler, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
