package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// checkedReport is the answer of check-report.
type checkedReport struct {
	Holds  bool   `json:"holds"`
	Reason string `json:"reason,omitempty"` // why it does not
	Log    string `json:"log,omitempty"`
	SHA256 string `json:"sha256"`           // of the file, in hexadecimal
	Key    string `json:"key,omitempty"`    // name and hash of the key that signed, as on the signature line
	Length int    `json:"length,omitempty"` // bytes that are signed
}

// reportSigned matches the line with the signature of a report, at the end of its file.
var reportSigned = regexp.MustCompile("(?m)^\u2014 quartermaster\\.log/([^ /\n]+)/report ")

func (p *program) checkReportCommand() *cobra.Command {
	var keys trust
	cmd := &cobra.Command{
		Use:   "check-report FILE --signed-by KEY",
		Short: "Check the signature of a report for a customer",
		Long: `Check-report checks that a report, which "quartermaster audit report" wrote, is exactly what the holder
of a key signed. It reads nothing else. "-" is standard input.

It exits with 1 if anything in the file was changed, and with 5 if the signature is missing, as it is in
a file that was cut, or is of a key that was not given. Ask for the key by another way than the file.`,
		Example: "  quartermaster-audit check-report research-may.html --signed-by provider.pub\n" +
			"  quartermaster-audit check-report research-may.html --signed-by \"$VERIFIER_KEY\" -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, _, err := keys.load()
			if err != nil {
				return err
			}
			text, err := p.input(cmd, args[0])
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			ans := checkedReport{SHA256: hex.EncodeToString(sum[:])}
			var failed *answer
			if all := reportSigned.FindAllSubmatch(text, -1); len(all) == 0 {
				failed = &answer{commandline.ExitIncomplete, "the file does not end with the signature of a report: it was cut, or is none"}
			} else {
				ans.Log = string(all[len(all)-1][1])
				signed, by, err := merkle.OpenText(merkle.ReportOrigin(ans.Log), text, given)
				switch {
				case err == nil:
					ans.Holds, ans.Length, ans.Key = true, len(signed), fmt.Sprintf("%s+%08x", by.Name(), by.KeyHash())
				case errors.Is(err, merkle.ErrUnknownKey):
					failed = &answer{commandline.ExitIncomplete, err.Error()}
				default:
					failed = &answer{commandline.ExitNo, "the report was changed: " + err.Error()}
				}
			}
			if failed != nil {
				ans.Reason = failed.Error()
			}
			if p.json() {
				if err := commandline.WriteJSON(p.out, &ans); err != nil {
					return err
				}
			} else if ans.Holds {
				fmt.Fprintf(p.out, "holds: %d bytes about log %s, signed by %s\nsha256 %s\n", ans.Length, domain.Clip(ans.Log, 100), ans.Key, ans.SHA256)
			} else {
				fmt.Fprintf(p.out, "does not hold: %s\n", ans.Reason)
			}
			if failed != nil {
				return failed
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&keys.signedBy, "signed-by", nil, "who signs reports: a public key file in PEM, or a verifier key; may be repeated (required)")
	if err := cmd.MarkFlagRequired("signed-by"); err != nil {
		panic(err) // it is a flag
	}
	return cmd
}
