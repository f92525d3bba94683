package advice

import (
	"fmt"
	"strings"
)

// Ask returns the question of a command and its flags, as name and value in turn. Flags without a value are left out. The
// API takes the same names.
func Ask(command string, flags ...string) Question { return AskFor(command, "", "", flags...) }

// AskFor is [Ask] with an argument of the command, which the API takes by its name.
func AskFor(command, argument, value string, flags ...string) Question {
	q := Question{Command: command, API: "/api/v1/" + strings.ReplaceAll(command, " ", "/")}
	separator := "?"
	if argument != "" {
		q.Command += " " + quoted(value)
		q.API += separator + argument + "=" + escaped(value)
		separator = "&"
	}
	for i := 0; i+1 < len(flags); i += 2 {
		name, value := flags[i], flags[i+1]
		if value == "" {
			continue
		}
		q.Command += " --" + name + " " + quoted(value)
		q.API += separator + strings.ReplaceAll(name, "-", "_") + "=" + escaped(value)
		separator = "&"
	}
	return q
}

// unreserved are the characters that mean nothing in a query (RFC 3986, 2.3).
const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"

// escaped percent-encodes a value of a query.
func escaped(value string) string {
	var b strings.Builder
	for i := range len(value) {
		if strings.IndexByte(unreserved, value[i]) >= 0 {
			b.WriteByte(value[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", value[i])
		}
	}
	return b.String()
}

// quoted quotes a word for a shell where it needs it.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(unreserved+":,=/@+", r) || r == '~' }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
