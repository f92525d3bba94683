package commandline

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// SetVersion adds the command version and the flag --version. Both print v, as JSON with
// -o json.
func SetVersion(root *cobra.Command, number string, v fmt.Stringer) error {
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	root.Version = number
	root.Annotations = map[string]string{"version": v.String(), "version-json": string(doc) + "\n"}
	root.SetVersionTemplate(`{{$form := .Flag "output"}}` +
		`{{if and $form (eq $form.Value.String "json")}}{{index .Annotations "version-json"}}` +
		`{{else}}{{index .Annotations "version"}}{{end}}`)
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the method versions",
		Long: `Version prints what this program is built from and the versions of the methods that
compute its results. Reports name the same.

JSON keys: program, version, commit, date (of the commit), modified (the build had
changes that are in no commit), go, platform, methods (by name).`,
		Args: cobra.NoArgs,
		// The version needs no configuration.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(c *cobra.Command, _ []string) error {
			text := v.String()
			if f := c.Flag("output"); f != nil && f.Value.String() == "json" {
				text = string(doc) + "\n"
			}
			_, err := fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	})
	return nil
}
