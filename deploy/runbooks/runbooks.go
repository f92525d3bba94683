// Package runbooks has the runbook of each rule of package advice: what it means, how to look at it, and what ends it.
package runbooks

import (
	"embed"
	"fmt"
)

//go:embed *.md
var files embed.FS

// Of returns the runbook of a rule, as Markdown.
func Of(rule string) (string, error) {
	text, err := files.ReadFile(rule + ".md")
	if err != nil {
		return "", fmt.Errorf("there is no runbook of rule %q", rule)
	}
	return string(text), nil
}
