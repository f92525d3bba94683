package instance

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// undecided are the keys of the schema on which no purchase and no cost rests: names, sources, words,
// and what baselines alone look back at. A pool counts for spend commitments of one name alone, and the
// kind of a held commitment only says which other keys it has.
var undecided = []string{
	"/format", "/name", "/currency", "/source", "/notes", "/regions/*/id", "/pools/*/id", "/demands/*/id", "/offers/*/id",
	"/commitments/*/id", "/quotas/*/id", "/budgets/*/id", "/scenarios/*/id", "/demands/*/past_hourly", "/offers/*/provider",
	"/offers/*/citation", "/offers/*/generated", "/overflow/*/estimated", "/offers/*/spend", "/commitments/*/spend", "/commitments/*/kind",
}

// leaves adds the keys of a schema that hold a value, a list of values or a map by name.
func leaves(node, root map[string]any, path string, out map[string]bool) {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			break
		}
		node = root
		for _, k := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			node, _ = node[k].(map[string]any)
		}
	}
	if of, ok := node["properties"].(map[string]any); ok {
		for k, v := range of {
			leaves(v.(map[string]any), root, path+"/"+k, out)
		}
		return
	}
	if of, ok := node["items"].(map[string]any); ok {
		inner := map[string]bool{}
		if leaves(of, root, path+"/*", inner); !inner[path+"/*"] {
			maps.Copy(out, inner)
			return
		}
	}
	out[path] = true
}

// changes adds the keys in which two documents differ. What is in an object that one of them lacks does
// not count.
func changes(a, b any, path string, keys, out map[string]bool) {
	x, isMap := a.(map[string]any)
	y, isToo := b.(map[string]any)
	if isMap && isToo && !keys[path] {
		for _, k := range slices.Concat(slices.Collect(maps.Keys(x)), slices.Collect(maps.Keys(y))) {
			v, inA := x[k]
			w, inB := y[k]
			if at := path + "/" + k; inA && inB {
				changes(v, w, at, keys, out)
			} else {
				out[at] = true
			}
		}
		return
	}
	l, isList := a.([]any)
	m, too := b.([]any)
	if isList && too && len(l) == len(m) && !keys[path] {
		for i := range l {
			changes(l[i], m[i], path+"/*", keys, out)
		}
		return
	}
	if difference("", a, b) != "" || isList != too || isMap != isToo {
		out[path] = true
	} else if !isMap && !isList && a != b {
		out[path] = true
	}
}

// Every key of the schema on which something rests is mistaken in some way, so that the test above says
// of each that the checker finds it.
func TestMistakesAreOfEveryKey(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "schemas", "instance", "v1.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	tree := func(text []byte) (out map[string]any) {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	keys, mistaken := map[string]bool{}, map[string]bool{}
	root := tree(text)
	leaves(root, root, "", keys)
	_, bases := exampleFiles(t)
	for k := range uint64(200) {
		if in := drawAll(rand.New(rand.NewPCG(2, k))); in.Validate() == nil {
			bases = append(bases, textOfInstance(t, in))
		}
	}
	for _, base := range bases {
		before := tree(base)
		for _, change := range mistakes {
			in, err := Parse("copy", base)
			if err != nil {
				t.Fatal(err)
			}
			if change(in) && in.Validate() == nil {
				changes(before, tree(textOfInstance(t, in)), "", keys, mistaken)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if mistaken[k] == slices.Contains(undecided, k) {
			t.Errorf("%s: mistaken %v, and named as what nothing rests on %v", k, mistaken[k], !mistaken[k])
		}
	}
	for _, k := range undecided {
		if !keys[k] {
			t.Errorf("%s is no key of the schema", k)
		}
	}
	t.Logf("%d keys, of which something rests on %d", len(keys), len(keys)-len(undecided))
}

func textOfInstance(t *testing.T, in *Instance) []byte {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
