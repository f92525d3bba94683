package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
)

// Each exit code, from the command line of somebody who meets it.
func TestExitCodes(t *testing.T) {
	t.Parallel() // brokers that cannot be reached are tried for ten seconds, twice
	dir, files := apptest.FilledDir(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\n"
	money := write("money.yaml", head+"budgets: [{id: b, workspace: research, period: 2026, amount: 5 EUR, basis: cash}]\n")
	if code, out := command(t, dir, "operator", "add", "ana", "--role", "planner", "--new-key", filepath.Join(files, "ana.pem")); code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		kind app.Kind
	}{
		{[]string{"fleet"}, 0, ""},
		{[]string{"--help"}, 0, ""},
		{[]string{"import", "nodes", write("bad.csv", "sn,cpu_milli,memory_mib,gpu,model\nn9,x,y,z,V100\n"), "--cluster", "lab", "--epoch", "2026-05-01"}, commandline.ExitNo, ""},
		{[]string{"feet"}, commandline.ExitUsage, ""},
		{[]string{"fleet", "--cluster", "nosuch"}, commandline.ExitUsage, app.KindNotFound},
		{[]string{"apply", "-f", write("wrong.yaml", head+"nonsense: 1\n")}, commandline.ExitUsage, app.KindInvalid},
		{[]string{"plan", "--months", "-3"}, commandline.ExitUsage, app.KindInvalid},
		{[]string{"plan", "--growth", "2"}, commandline.ExitUsage, app.KindInvalid},
		{[]string{"operator", "add", "bob", "--role", "planner"}, commandline.ExitUsage, ""},
		{[]string{"node", "retire", "lab", "--reason", "gone"}, commandline.ExitUsage, ""},
		{[]string{"plan", "show", "plan-nosuch"}, commandline.ExitUsage, app.KindNotFound},
		{[]string{"--data-dir", filepath.Join(files, "nowhere"), "fleet"}, commandline.ExitUnavailable, app.KindUnavailable},
		{[]string{"--brokers", "127.0.0.1:1", "fleet"}, commandline.ExitUnavailable, app.KindUnavailable},
		{[]string{"apply", "-f", filepath.Join(files, "nosuch.yaml")}, commandline.ExitUnavailable, ""},
		{[]string{"apply", "-f", money, "--key", filepath.Join(files, "ana.pem")}, commandline.ExitDenied, app.KindDenied},
		{[]string{"apply", "-f", money, "--key", filepath.Join(files, "nosuch.pem")}, commandline.ExitDenied, app.KindDenied},
	} {
		if code, out := command(t, dir, c.args...); code != c.code {
			t.Errorf("%v: exit %d, want %d\n%s", c.args, code, c.code, out)
		}
		if c.kind == "" {
			continue
		}
		var out strings.Builder
		code := run(append([]string{"--data-dir", dir, "-o", "json"}, c.args...), strings.NewReader(""), &out, io.Discard)
		var answer struct{ Error, Kind string }
		if err := json.Unmarshal([]byte(out.String()), &answer); err != nil || code != c.code || answer.Error == "" || answer.Kind != string(c.kind) {
			t.Errorf("%v -o json: exit %d, want %d and kind %q: %v\n%s", c.args, code, c.code, c.kind, err, out.String())
		}
	}
	for want, err := range map[int]error{
		commandline.ExitNo:          fmt.Errorf("x: %w", &app.ConflictError{Err: errors.New("x")}),
		commandline.ExitUsage:       commandline.Usagef("x"),
		commandline.ExitUnavailable: fmt.Errorf("x: %w", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}),
		commandline.ExitDenied:      &app.DeniedError{Err: &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}},
		commandline.ExitIncomplete:  errStopped,
	} {
		if have := exitOf(err); have != want {
			t.Errorf("%v: exit %d, want %d", err, have, want)
		}
	}
	if err := app.Unavailable(context.Canceled); app.KindOf(err) != "" {
		t.Errorf("what a signal ended is %q", app.KindOf(err))
	}
}
