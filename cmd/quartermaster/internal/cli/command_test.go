package cli

import (
	"io"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
)

// commandLine is the program without the commands of the daemon.
func commandLine(on *app.App, stdout, stderr io.Writer) *Program { return New(on, stdout, stderr) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return commandLine(&app.App{}, stdout, stderr).Run(args, stdin)
}

// command runs a command on a data directory, and returns its exit code and what it wrote.
func command(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	var out, errs strings.Builder
	code := run(append([]string{"--data-dir", dir}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String() + errs.String()
}
