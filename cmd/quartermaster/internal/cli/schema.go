package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/schemas"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// documents are the files that commands read, with their schemas.
var documents = []struct {
	noun, doc string
	schema    []byte
}{
	{"contract", "a file that \"plan evaluate\" reads", schemas.Contract},
	{"estate", "a file that \"apply\" reads", schemas.Manifest},
	{"instance", "a file that \"plan solve\" reads", schemas.Instance},
	{"mapping", "a file that \"import bill\" reads", schemas.Mapping},
	{"scenario", "a file that \"simulate\" reads", schemas.Scenario},
}

// published is a schema in the list of nouns.
type published struct {
	Noun string `json:"noun"`
	Of   string `json:"of"` // the command with this answer, or the command that reads this file
}

func (a *Program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NOUN]",
		Short: "Print the JSON Schema of an answer, or of a file that a command reads",
		Long: `Schema prints a JSON Schema (draft 2020-12): the keys of an answer with -o json, their meaning and
their units. The noun of an answer is its command with hyphens, such as "costs-allocations". The
noun of a file is contract, estate, instance, mapping or scenario. Without a noun, schema lists the nouns.

If a command writes one JSON document per line, the schema describes a line. Amounts are strings,
so that no digit is lost. Times are RFC 3339 in UTC. Optional keys are omitted if they have no
value.`,
		Example: "  quartermaster schema\n  quartermaster schema costs\n  quartermaster schema scenario > scenario.schema.json",
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nouns(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				text, err := schemaOf(args[0])
				if err == nil {
					_, err = a.out.Write(text)
				}
				return err
			}
			list := []published{}
			for _, noun := range nouns() {
				of, err := ofNoun(noun)
				if err != nil {
					return err
				}
				list = append(list, published{noun, of})
			}
			if a.json {
				return a.answerJSON(list)
			}
			t := a.table("noun", "of")
			for _, p := range list {
				t.AppendRow(table.Row{p.Noun, p.Of})
			}
			t.Render()
			return nil
		},
	}
}

// describeAnswers adds to the help of a command and its subcommands a reference to the schema of the
// answer.
func describeAnswers(c *cobra.Command) {
	noun := strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "quartermaster "), " ", "-")
	if _, err := schemas.Answers.Open("answers/" + noun + ".schema.json"); err == nil {
		c.Long = strings.TrimSpace(c.Long) + fmt.Sprintf("\n\n\"quartermaster schema %s\" describes the answer with -o json.", noun)
	}
	for _, sub := range c.Commands() {
		describeAnswers(sub)
	}
}

// nouns returns the nouns of all schemas, sorted.
func nouns() []string {
	files, err := fs.Glob(schemas.Answers, "answers/*.schema.json")
	if err != nil {
		panic(err) // the pattern is fixed
	}
	var all []string
	for _, f := range files {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(f, "answers/"), ".schema.json"))
	}
	for i := range documents {
		all = append(all, documents[i].noun)
	}
	slices.Sort(all)
	return all
}

// documentOf returns the index of a document, -1 if noun is an answer.
func documentOf(noun string) int {
	for i := range documents {
		if documents[i].noun == noun {
			return i
		}
	}
	return -1
}

// schemaOf returns the schema of a noun.
func schemaOf(noun string) ([]byte, error) {
	if i := documentOf(noun); i >= 0 {
		return documents[i].schema, nil
	}
	text, err := schemas.Answers.ReadFile("answers/" + noun + ".schema.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &app.NotFoundError{What: "noun", Name: noun, Err: fmt.Errorf("no schema of %.100q; there are %s", noun, strings.Join(nouns(), ", "))}
	}
	return text, err
}

// ofNoun describes what a schema is for. The title of an answer's schema is its command.
func ofNoun(noun string) (string, error) {
	if i := documentOf(noun); i >= 0 {
		return documents[i].doc, nil
	}
	text, err := schemaOf(noun)
	if err != nil {
		return "", err
	}
	var doc struct {
		Title string `json:"title"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return "", fmt.Errorf("schema of %s: %w", noun, err)
	}
	return "the answer of \"" + doc.Title + "\"", nil
}
