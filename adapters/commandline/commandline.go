// Package commandline has what the command lines of all programs share: what is
// wrong with one is said in one way and has one exit code, and every program says
// its version.
//
// What always holds, once [Strict] was called: a word that no command takes, an
// unknown flag and a required one that is missing are errors of type [*UsageError],
// found before the command does anything. So a slip in a script is never taken for
// success.
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

// The exit codes that all programs have; 0 is done.
const (
	ExitNo          = 1 // the answer is no: it differs, does not reconcile or is rejected
	ExitUsage       = 2 // the command line, or what it names, is wrong, and nothing was done
	ExitUnavailable = 3 // a server, a database or a file cannot be reached or read
	ExitDenied      = 4 // whoever asks has no right to it
	ExitIncomplete  = 5 // the answer, or the work, is not whole
)

// UsageError is a command line that is wrong. The program MUST exit with
// [ExitUsage].
type UsageError struct{ Err error }

// Error says what is wrong and what to do.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// ExitOf returns what a program exits with for an error of its command: one of a file
// or a connection is [ExitUnavailable] if nothing else is known of it.
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
	case errors.Is(err, fs.ErrExist): // it can be read, and must not be there
		return ExitNo
	case errors.As(err, &file), errors.As(err, &conn):
		return ExitUnavailable
	}
	return ExitNo
}

// OutputFlag adds the flag -o, which chooses one of the forms that an answer may have. The
// first one is the usual one.
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

// AsksJSON reports whether a command line asks for JSON, for errors that are found
// before its flags are read.
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

// group marks a command that only leads to others.
const group = "group"

// Strict makes a tree of commands refuse every word and flag that it does not take.
// A command that only leads to others shows its help when it stands alone. Call it
// when the tree is complete.
func Strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usagef("%w%s; see %q", err, nearestFlag(c, err), c.CommandPath()+" --help")
	})
	// A command that leads to others is made runnable below, and has no use of its own.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not (index .Annotations \""+group+"\"))}}", 1))
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
		c.RunE = func(*cobra.Command, []string) error { return nil } // Args ends it before
		return
	}
	takes := c.Args
	if takes == nil {
		takes = cobra.ArbitraryArgs
	}
	c.Args = func(c *cobra.Command, words []string) error {
		if err := takes(c, words); err != nil {
			switch {
			case takes(c, nil) != nil || len(words) == 0: // it wants another number of them
			case c.HasAvailableSubCommands():
				return unknownCommand(c, words[0])
			case takes(c, words[:1]) != nil:
				return Usagef("%s takes no argument, and got %q; see %q", c.CommandPath(), words[0], c.CommandPath()+" --help")
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

// helpOf makes "help" refuse a command that there is not.
func helpOf(root, help *cobra.Command) {
	help.PersistentPreRunE = func(*cobra.Command, []string) error { return nil } // nothing is configured
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

// unknownCommand names the command that may have been meant.
func unknownCommand(c *cobra.Command, word string) error {
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	slices.Sort(known)
	return Usagef("%q is no command of %q: %s", word, c.CommandPath(), domain.Suggest(word, known))
}

// nearestFlag names the flag that may have been meant.
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
