package cli

import (
	"crypto/ed25519"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Keep the log in an archive, verify it, trim the log, and restore it",
		Long: `The archive has sealed segments of the log: the exact record batches of each partition, compressed,
with a SHA-256 and a chain of manifests. What is archived may be trimmed from the log. Every command
then reads it from the archive, with the same answers.

The archive of an embedded log is in the data directory, below archive/. Mount or link another disk
there, so that the loss of one disk does not take both. With --config it is at archive.url.`,
	}
	cmd.AddCommand(a.archiveRunCommand(), a.archiveStatusCommand(), a.archiveVerifyCommand(), a.archiveTrimCommand(),
		a.archiveRestoreCommand(), a.archiveKeyCommand())
	return cmd
}

func (a *Program) archiveRunCommand() *cobra.Command {
	var (
		all     bool
		keyPath string
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Archive what can be sealed",
		Long: `Run archives every segment that has reached its size (64 MiB, or archive.segment_mib) or whose
oldest event has reached its age (1 hour, or archive.seal_after). It reads each one back and checks it
before it counts as archived. It can be interrupted at any time, and continues where it stopped.

With --key it signs a checkpoint: a statement of everything that is archived, which "archive verify"
compares. Without one, nobody can notice that the newest segments of an archive were removed. The
witnesses of archive.witnesses are asked to cosign it.`,
		Example: "  quartermaster archive run --all\n  quartermaster archive run --config quartermaster.yaml --key operator.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var key ed25519.PrivateKey
			if keyPath != "" {
				var err error
				if key, err = keyfile.Load(keyPath); err != nil {
					return err
				}
			}
			ans, err := a.caller().Archive(cmd.Context(), all, key)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			fmt.Fprintf(a.out, "archived %s segments with %s events (%s) in %s\n",
				comma(ans.Segments), humanize.Comma(ans.Records), humanize.IBytes(uint64(ans.Bytes)), ans.Location)
			if ans.Waiting > 0 {
				fmt.Fprintf(a.out, "%s events are not archived yet\n", humanize.Comma(ans.Waiting))
			}
			if ans.Checkpoint != nil {
				fmt.Fprintf(a.out, "a checkpoint of %s events was signed\n", humanize.Comma(*ans.Checkpoint))
			}
			if len(ans.Witnesses) > 0 {
				fmt.Fprintf(a.out, "cosigned by %s\n", strings.Join(ans.Witnesses, ", "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "archive everything now, in segments of any size")
	f.StringVar(&keyPath, "key", "", "private key file that signs a checkpoint (default none)")
	return cmd
}

func (a *Program) archiveStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is archived of each partition",
		Long: `Status shows for each partition how far it is archived, and which offsets the log has. It reads
the newest manifests, and no segments.`,
		Example: "  quartermaster archive status\n  quartermaster archive status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().ArchiveStatus(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			t := a.table("partition", "segments", "archived to", "log from", "log to", "waiting", "newest")
			alignRight(t, 2, 6)
			for _, p := range ans.Partitions {
				t.AppendRow(table.Row{
					p.Partition, count(int(p.Segments)), count(int(p.Archived)), count(int(p.LogFirst)),
					count(int(p.LogNext)), count(int(p.Waiting)), when(p.Latest),
				})
			}
			t.Render()
			fmt.Fprintf(a.out, "%s events are archived in %s, %s are not yet\n",
				humanize.Comma(ans.Records), ans.Location, humanize.Comma(ans.Waiting))
			return nil
		},
	}
}

// when is a time to the second; "" for none.
func when(t domain.Instant) string {
	if t.IsZero() {
		return ""
	}
	return t.Time().Format("2006-01-02 15:04:05")
}

func (a *Program) archiveVerifyCommand() *cobra.Command {
	var (
		from                string
		signedBy, witnesses []string
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the whole archive and check every byte",
		Long: `Verify reads every segment and checks its SHA-256, the checksum of every record batch, every offset
and the chain of manifests. It compares every signed checkpoint with the manifests, so that missing
segments at the end are noticed. It fails if anything is missing or wrong, and names each object with
the first offset that cannot be read.

With --signed-by each checkpoint must have the signature of that key, or of one of several. Without it signatures are
not verified. With --witness there must be a checkpoint that this witness cosigned. With --from no log is
needed.`,
		Example: "  quartermaster archive verify\n" +
			"  quartermaster archive verify --from /mnt/archive/quartermaster --signed-by auditor.pub",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var keys []ed25519.PublicKey
			for _, file := range signedBy {
				key, err := keyfile.LoadPublic(file)
				if err != nil {
					return err
				}
				keys = append(keys, key)
			}
			ans, err := a.caller().VerifyArchive(cmd.Context(), from, keys, witnesses)
			if err != nil {
				return err
			}
			if err := a.showArchiveCheck(ans); err != nil {
				return err
			}
			if n := len(ans.Faults); n > 0 {
				return &failed{why: fmt.Sprintf("%d objects of the archive are missing or wrong", n)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "an archive: a directory, or s3://bucket/prefix (default that of the log)")
	cmd.Flags().StringArrayVar(&signedBy, "signed-by", nil,
		"public or private key file: whose signature checkpoints must have; may be repeated (default any)")
	cmd.Flags().StringArrayVar(&witnesses, "witness", nil, "verifier key of a witness that must have cosigned a checkpoint; may be repeated (default none)")
	return cmd
}

func (a *Program) showArchiveCheck(ans *app.ArchiveCheck) error {
	if a.json {
		return a.answerJSON(ans)
	}
	for _, f := range ans.Faults {
		where := f.Object
		if f.Partition != "" {
			where += fmt.Sprintf(" (%s, offset %d)", f.Partition, f.Offset)
		}
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(a.out, "%s%s\n", where, f.Reason)
	}
	fmt.Fprintf(a.out, "read %s segments with %s events (%s) in %s\n",
		comma(ans.Segments), humanize.Comma(ans.Records), humanize.IBytes(uint64(ans.Bytes)), ans.Location)
	if ans.Checkpoints == 0 {
		fmt.Fprintln(a.out, "no signed checkpoint: missing segments at the end would not be noticed")
	} else {
		signed := "signatures not verified: give --signed-by"
		if ans.Signed {
			signed = "signatures verified"
		}
		fmt.Fprintf(a.out, "%s checkpoints, up to %s events; %s\n", comma(ans.Checkpoints), humanize.Comma(ans.CheckpointRecords), signed)
	}
	for _, w := range ans.Cosigned {
		if w.Heads > 0 {
			fmt.Fprintf(a.out, "cosigned by %s up to head %s, at %s\n", w.Witness, humanize.Comma(w.Heads-1), when(w.At))
		}
	}
	if ans.Unreferenced > 0 {
		fmt.Fprintf(a.out, "%s objects are not part of the archive: interrupted runs left them\n", comma(ans.Unreferenced))
	}
	return nil
}

func (a *Program) archiveKeyCommand() *cobra.Command {
	var keyPath string
	cmd := &cobra.Command{
		Use:   "verifier-key --key FILE",
		Short: "Show how others verify checkpoints of this archive",
		Long: `Verifier-key shows the origin of this log's checkpoints, and the key in the form in which other programs
take it (C2SP signed-note). Give both to the operator of a witness.`,
		Example: "  quartermaster archive verifier-key --key operator.pem\n" +
			"  quartermaster archive verifier-key --key operator.pem -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := keyfile.LoadPublic(keyPath)
			if err != nil {
				return err
			}
			ans, err := a.caller().ArchiveKey(cmd.Context(), key)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			fmt.Fprintf(a.out, "origin        %s\nverifier key  %s\n", ans.Origin, ans.Key)
			return nil
		},
	}
	cmd.Flags().StringVar(&keyPath, "key", "", "public or private key file that signs checkpoints")
	must(cmd.MarkFlagRequired("key"))
	return cmd
}

func (a *Program) archiveTrimCommand() *cobra.Command {
	var (
		before string
		yes    bool
	)
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Delete from the log what the archive has",
		Long: `Trim deletes the oldest segments of the log that the retention policy for the log lets go: those whose
events are all older than it says. Without a policy, or where a legal hold is in force, nothing is
deleted ("quartermaster retention show"). Before that it reads each segment from the archive again,
checks it, and compares it with the log byte for byte. What is not in the archive, or is not the same,
stays in the log. Without --yes nothing is deleted.

What is deleted is recorded in the log before and after ("quartermaster get removals"). If trim is
interrupted, the next one finishes the same removal.

Answers stay the same: commands read from the archive what the log no longer has. If archive and log
are on the same disk, trimming gains little and a single fault loses both.

The embedded log deletes whole files of 16 MiB, and keeps the last two of each partition.`,
		Example: "  quartermaster archive trim\n  quartermaster archive trim --before 2025-01-01 --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Trim(cmd.Context(), app.TrimQuestion{Before: before, Delete: yes})
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			t := a.table("partition", "log from", "trim to", "events")
			alignRight(t, 2, 4)
			for _, p := range ans.Partitions {
				t.AppendRow(table.Row{p.Partition, count(int(p.LogFirst)), count(int(p.TrimTo)), count(int(p.Records))})
			}
			t.Render()
			if len(ans.Holds) > 0 {
				fmt.Fprintf(a.out, "legal holds keep more: %s\n", strings.Join(ans.Holds, ", "))
			}
			n := humanize.Comma(int64(ans.Records))
			switch {
			case ans.Records == 0 && !ans.Resumed:
				fmt.Fprintf(a.out, "nothing to trim: no whole segment is archived and let go by policy %s, which keeps %s\n", ans.Policy, ans.Rule)
			case ans.Resumed:
				fmt.Fprintf(a.out, "finished removal %s, which was interrupted: %s events were deleted from the log; they are in %s\n",
					ans.Removal, n, ans.Location)
			case !ans.DryRun:
				fmt.Fprintf(a.out, "deleted %s events from the log (removal %s); they are in %s\n", n, ans.Removal, ans.Location)
			default:
				fmt.Fprintf(a.out, "%s events can be deleted from the log; they are verified in %s. Add --yes to delete them\n", n, ans.Location)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&before, "before", "", "trim only segments whose events are all before this time")
	f.BoolVar(&yes, "yes", false, "delete, instead of showing what would be deleted")
	return cmd
}

func (a *Program) archiveRestoreCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "restore --from PLACE",
		Short: "Fill a new log from the archive of a lost one",
		Long: `Restore fills an empty log with everything that the archive of another log has: the same records at
the same offsets. The log is the one that --data-dir, --brokers or --config names; restore creates its
topics. Each segment is checked, and compared after it was appended. Nothing else may append meanwhile.
An interrupted restore continues when it is run again.

Events that were not archived are lost. Positions up to the end of the archive mean the same events as
before. Positions beyond it do not: the new log will have other events there.

Rows in Postgres belong to the lost log. Create an empty database for the new one; "serve" folds it.
The new log also needs a new place for its own archive. Keep the old archive.`,
		Example: "  quartermaster archive restore --from /mnt/archive/quartermaster --data-dir new-home\n" +
			"  quartermaster archive restore --from /mnt/archive/quartermaster --config new.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().RestoreLog(cmd.Context(), from)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			fmt.Fprintf(a.out, "restored %s events of the log %s into %s\nposition %s\n",
				humanize.Comma(ans.Records), ans.Was, ans.Log, a.position(ans.Position))
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the archive: a directory, or s3://bucket/prefix")
	must(cmd.MarkFlagRequired("from"))
	return cmd
}
