package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The example of an estate can be applied in a new directory, by the operator who is
// made then. Commitments need one who may spend money, which a dry run says too.
func TestDemoEstateInANewDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	demo := filepath.Join("..", "..", "deploy", "demo")
	estate, commitments, key := filepath.Join(demo, "estate.yaml"), filepath.Join(demo, "commitments.yaml"), filepath.Join(t.TempDir(), "fiona.pem")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"apply", "-f", estate, "-f", commitments, "--dry-run"}, 4, "CommitmentPurchased cr-0f3a9 would take no effect"},
		{[]string{"apply", "-f", estate, "--dry-run"}, 0, "nothing applied: this was a dry run"},
		{[]string{"apply", "-f", estate}, 0, "applied 51 changes"},
		{[]string{"apply", "-f", estate}, 0, "nothing to do"},
		{[]string{"apply", "-f", commitments}, 4, "may commit no money"},
		{[]string{"operator", "add", "fiona", "--role", "finance", "--limit", "5000000 USD", "--new-key", key}, 0, "commit up to 5000000 USD"},
		{[]string{"apply", "-f", commitments, "--key", key}, 0, "applied 2 changes, signed by fiona"},
	} {
		if code, out := command(t, dir, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s", c.args, code, c.code, c.want, out)
		}
	}
}
