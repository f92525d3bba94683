package cli

import (
	"io"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
)

// commandLine is the program without the commands of the daemon.
func commandLine(on *app.App, stdout, stderr io.Writer) *Program { return New(on, stdout, stderr) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return commandLine(&app.App{}, stdout, stderr).Run(args, stdin)
}

// command runs a command on a data directory, and returns its exit code and what it wrote.
// Every answer in JSON is held to the schema that is published of it.
func command(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	var out, errs strings.Builder
	p := commandLine(&app.App{}, &out, &errs)
	code := p.Run(append([]string{"--data-dir", dir}, args...), strings.NewReader(""))
	apptest.Hold(t, p.Root(), args, out.String())
	return code, out.String() + errs.String()
}
