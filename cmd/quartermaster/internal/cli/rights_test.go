package cli

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/commandline/manual"
	"quartermaster/projections/access"
)

// TestRights holds the table of rights and the operations together: each operation has one row.
func TestRights(t *testing.T) {
	want := slices.Sorted(maps.Keys(operations))
	want = append(append(want, slices.Sorted(maps.Keys(decisions))...), DeclareDeployments)
	slices.Sort(want)
	if have := slices.Sorted(maps.Keys(access.Operations())); !slices.Equal(have, want) {
		for _, name := range want {
			if !slices.Contains(have, name) {
				t.Errorf("%q has no row in projections/access/rights.go: say which roles may ask it", name)
			}
		}
		for _, name := range have {
			if !slices.Contains(want, name) {
				t.Errorf("projections/access/rights.go has a row for %q, which is not an operation", name)
			}
		}
	}
	for name, rule := range access.Operations() {
		if len(rule.Roles) == 0 {
			t.Errorf("nobody may ask %q", name)
		}
		if operations[name].outside && rule.Within {
			t.Errorf("%q answers from more than rows, and needs the whole estate", name)
		}
	}
}

// publishRights compares the page of the tables of rights with them; with -update it writes it.
func publishRights(t *testing.T) {
	t.Helper()
	manual.Compare(t, filepath.Join("..", "..", manual.Dir), "rights.md", map[string]string{"rights.md": manual.Note + rightsPage()}, *updateGoldens)
}

func rightsPage() string {
	var b strings.Builder
	b.WriteString(`# Rights

Who may ask what, and what they see. [Who sees what](../concepts/who-sees-what.md) explains the tables.

## Operations

"Within" means that a right in any workspace is enough: the answer is about what that right sees. Every other operation
needs a right in the root workspace.

| Operation |`)
	for _, role := range access.Roles() {
		b.WriteString(" " + string(role) + " |")
	}
	b.WriteString(" Within |\n|---|" + strings.Repeat("---|", len(access.Roles())+1) + "\n")
	all := access.Operations()
	yes := map[bool]string{true: " yes |", false: " |"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("| `" + name + "` |")
		for _, role := range access.Roles() {
			b.WriteString(yes[slices.Contains(all[name].Roles, role)])
		}
		b.WriteString(yes[all[name].Within] + "\n")
	}
	b.WriteString(`
## Rows

What a right outside of the root workspace sees of each table of rows. A right in a workspace counts for those below it.

| Table | Seen |
|---|---|
`)
	for _, r := range access.Tables() {
		b.WriteString("| " + strings.ReplaceAll(r.Table.String(), "_", " ") + " | " + r.Seen + " |\n")
	}
	return b.String()
}
