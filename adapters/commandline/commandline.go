// Package commandline holds what the command lines of all programs share: usage errors, exit
// codes, the output flag and the version command.
//
// What always holds after [Strict]: an unknown argument, an unknown flag and a missing
// required flag are errors of type [*UsageError], found before the command does anything. So
// a typo in a script never passes for success.
package commandline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quartermaster/domain"
)

// The exit codes of all programs; 0 is success.
const (
	ExitNo          = 1 // the answer is no: it differs, does not reconcile or is rejected
	ExitUsage       = 2 // the command line, or what it names, is wrong, and nothing was done
	ExitUnavailable = 3 // a server, a database or a file cannot be reached or read
	ExitDenied      = 4 // the caller is not authorized
	ExitIncomplete  = 5 // the answer, or the work, is incomplete
)

// UsageError means that the command line is wrong. The program MUST exit with [ExitUsage].
type UsageError struct{ Err error }

// Error returns what is wrong and what to do.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// ExitOf returns the exit code for the error of a command. An error of a file or a connection
// is [ExitUnavailable], unless it is one of the other kinds too.
func ExitOf(err error) int {
	var (
		usage *UsageError
		file  *fs.PathError
		conn  net.Error
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, fs.ErrExist): // the file is accessible, but must not exist
		return ExitNo
	case errors.As(err, &file), errors.As(err, &conn):
		return ExitUnavailable
	}
	return ExitNo
}

// OutputFlag adds the flag -o, which selects the output form. The first form is the default.
func OutputFlag(flags *pflag.FlagSet, into *string, usage string, forms ...string) {
	*into = forms[0]
	flags.VarP(&form{into, forms}, "output", "o", usage)
}

// form is the value of the flag -o.
type form struct {
	chosen *string
	forms  []string
}

func (f *form) String() string { return *f.chosen }

func (f *form) Type() string { return "form" }

func (f *form) Set(text string) error {
	if !slices.Contains(f.forms, text) {
		return fmt.Errorf("want one of %s", strings.Join(f.forms, ", "))
	}
	*f.chosen = text
	return nil
}

// AsksJSON reports whether a command line asks for JSON. It serves errors that occur before
// the flags are parsed.
func AsksJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	for i, arg := range args {
		switch arg {
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

// WriteJSON writes an answer as one indented JSON document.
func WriteJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(answer)
}

// group marks a command that only has subcommands.
const group = "group"

// Strict makes a command tree refuse every unknown argument and flag. A command that only has
// subcommands shows its help when called without one. Call it when the tree is complete.
func Strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		// A command that there is not has no flags either.
		if words := c.Flags().Args(); len(words) > 0 && c.HasAvailableSubCommands() {
			return unknownCommand(c, words[0])
		}
		return Usagef("%w%s; see %q", err, nearestFlag(c, err), c.CommandPath()+" --help")
	})
	// A group becomes runnable below, but has no usage line of its own.
	ifNoGroup := "{{if and .Runnable (not (index .Annotations \"" + group + "\"))}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", ifNoGroup, 1))
	walk(root, strict)
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			helpOf(root, c)
		}
	}
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func strict(c *cobra.Command) {
	if !c.Runnable() {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[group] = "true"
		c.Args = func(c *cobra.Command, words []string) error {
			if len(words) == 0 {
				return pflag.ErrHelp
			}
			return unknownCommand(c, words[0])
		}
		c.RunE = func(*cobra.Command, []string) error { return nil } // never runs: Args always fails
		return
	}
	takes := c.Args
	if takes == nil {
		takes = cobra.ArbitraryArgs
	}
	c.Args = func(c *cobra.Command, words []string) error {
		if err := takes(c, words); err != nil {
			switch {
			case takes(c, nil) != nil || len(words) == 0: // wrong number of arguments
			case c.HasAvailableSubCommands():
				return unknownCommand(c, words[0])
			case takes(c, words[:1]) != nil:
				return Usagef("%s takes no arguments, got %q; see %q", c.CommandPath(), words[0], c.CommandPath()+" --help")
			}
			return Usagef("%w; usage: %s", err, c.UseLine())
		}
		for _, check := range []func() error{c.ValidateRequiredFlags, c.ValidateFlagGroups} {
			if err := check(); err != nil {
				return Usagef("%w; see %q", err, c.CommandPath()+" --help")
			}
		}
		return nil
	}
}

// helpOf makes "help" refuse an unknown command.
func helpOf(root, help *cobra.Command) {
	help.PersistentPreRunE = func(*cobra.Command, []string) error { return nil } // help needs no configuration
	help.Run = nil
	help.RunE = func(_ *cobra.Command, words []string) error {
		of, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 {
			return unknownCommand(of, rest[0])
		}
		of.InitDefaultHelpFlag()
		return of.Help()
	}
}

// unknownCommand suggests the command that may have been meant.
func unknownCommand(c *cobra.Command, word string) error {
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	slices.Sort(known)
	return Usagef("%q is not a command of %q: %s", word, c.CommandPath(), domain.Suggest(word, known))
}

// nearestFlag suggests the flag that may have been meant.
func nearestFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	hint := domain.Suggest("--"+unknown.GetSpecifiedName(), known)
	if !strings.HasPrefix(hint, "did you mean") {
		return ""
	}
	return " (" + hint + ")"
}
