package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Whoever writes a document finds what every key means, with its unit, in its schema.
func TestEveryKeyIsDescribed(t *testing.T) {
	for name, text := range map[string][]byte{"instance": Instance, "answer": Answer, "contract": Contract} {
		dec := json.NewDecoder(bytes.NewReader(text))
		var doc any
		if err := dec.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		seen := 0
		var walk func(node any, path string)
		walk = func(node any, path string) {
			switch x := node.(type) {
			case []any:
				for i, y := range x {
					walk(y, fmt.Sprintf("%s/%d", path, i))
				}
			case map[string]any:
				if keys, ok := x["properties"].(map[string]any); ok {
					for _, k := range slices.Sorted(maps.Keys(keys)) {
						seen++
						key, ok := keys[k].(map[string]any)
						if text, _ := key["description"].(string); ok && len(text) < 8 {
							t.Errorf("%s: %s/%s is described as %q", name, path, k, text)
						}
					}
				}
				for _, k := range slices.Sorted(maps.Keys(x)) {
					if k != "if" && k != "then" && k != "else" { // conditions repeat keys
						walk(x[k], path+"/"+k)
					}
				}
			}
		}
		walk(doc, "")
		if seen < 20 {
			t.Errorf("%s has %d keys", name, seen)
		}
	}
}
