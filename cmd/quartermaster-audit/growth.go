package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/domain/merkle"
)

func (p *program) proveGrowthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prove-growth DIR OLDER [NEWER]",
		Short: "Prove that a checkpoint continues an older one",
		Long: `Prove-growth writes a proof that the newer of two checkpoints continues the older one: nothing that the
older one stands for was changed or taken away since. Both are files. Without NEWER it takes the newest
checkpoint of the archive. It exits with 1 if the archive does not continue the older checkpoint.`,
		Example: "  quartermaster-audit prove-growth /mnt/archive kept/last-year.note > growth.json\n" +
			"  quartermaster-audit prove-growth /mnt/archive kept/may.note kept/june.note | quartermaster-audit check-growth -",
		Args: cobra.RangeArgs(2, 3),
		RunE: func(_ *cobra.Command, args []string) error {
			notes := [2][]byte{}
			for i, name := range args[1:] {
				text, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				notes[i] = text
			}
			a, err := open(args[0])
			if err != nil {
				return err
			}
			g, err := a.ProveGrowth(notes[0], notes[1])
			if err != nil {
				return err
			}
			return commandline.WriteJSON(p.out, g)
		},
	}
}

// grown is the answer of check-growth.
type grown struct {
	Holds  bool   `json:"holds"`
	Reason string `json:"reason,omitempty"` // why it does not
	Origin string `json:"origin,omitempty"`
	Older  int64  `json:"older"` // heads that the older checkpoint stands for
	Newer  int64  `json:"newer"` // heads that the newer one stands for
	// Signed is whether the signatures were verified; Witnesses are those whose cosignatures were.
	Signed    bool     `json:"signed"`
	Witnesses []string `json:"witnesses,omitempty"`
}

func (p *program) checkGrowthCommand() *cobra.Command {
	var trust trust
	cmd := &cobra.Command{
		Use:   "check-growth FILE",
		Short: "Check a proof that a checkpoint continues an older one",
		Long: `Check-growth checks a proof that "prove-growth" wrote. It reads no archive. It exits with 1 if the proof
does not hold or a checkpoint lacks a signature. "-" is standard input.`,
		Example: "  quartermaster-audit check-growth growth.json --signed-by checkpoint.pub\n" +
			"  quartermaster-audit check-growth growth.json --signed-by checkpoint.pub -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, witnesses, err := trust.load()
			if err != nil {
				return err
			}
			text, err := p.input(cmd, args[0])
			if err != nil {
				return err
			}
			g, err := merkle.ParseGrowth(text)
			if err != nil {
				return commandline.Usagef("%s: %v", args[0], err)
			}
			older, newer, err := g.Check(witnesses...)
			for _, text := range []string{g.Older, g.Newer} { // the key may have been replaced between them
				if err == nil {
					err = signedBy([]byte(text), keys)
				}
			}
			ans := &grown{Holds: err == nil, Origin: newer.Origin, Older: older.Size, Newer: newer.Size}
			switch {
			case errors.Is(err, merkle.ErrProof), errors.Is(err, merkle.ErrSignature), errors.Is(err, merkle.ErrUnknownKey):
				ans.Reason = err.Error()
			case err != nil:
				return err
			default:
				ans.Signed = len(keys) > 0
				for _, w := range witnesses {
					ans.Witnesses = append(ans.Witnesses, w.Name())
				}
			}
			switch {
			case p.json():
				err = commandline.WriteJSON(p.out, ans)
			case ans.Holds:
				_, err = fmt.Fprintf(p.out, "holds: %d heads of %s continue %d\n", ans.Newer, ans.Origin, ans.Older)
			default:
				_, err = fmt.Fprintf(p.out, "does not hold: %s\n", ans.Reason)
			}
			if err == nil && !ans.Holds {
				err = &answer{commandline.ExitNo, "the proof does not hold"}
			}
			return err
		},
	}
	trust.flags(cmd)
	return cmd
}
