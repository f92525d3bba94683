package cli

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// exportFlags select the exported events and the output.
type exportFlags struct {
	topics, types        []string
	workspaces, clusters []string
	from, to             string // times of the events
	until                string // a position
	out, compress        string
}

// Compression of an export, the values of --compress.
const (
	plainText = "none"
	gzipped   = "gzip"
	zstandard = "zstd"
)

func (a *Program) logExportCommand() *cobra.Command {
	var fl exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write events as CloudEvents JSON lines",
		Long: `Export writes the events of the log as JSON lines, with or without -o json: one partition after
the other, each in order. It streams, and needs little memory.

Filters: --topic, --type, --workspace, --cluster, --from and --to. --from and --to are times of
events; --from is included, --to is not. Events of telemetry name their cluster, and workspaces
only inside, so find them by cluster. A record that cannot be decoded is written only if no
filter other than --topic is given.

A file whose name ends in .zst or .gz is compressed. --compress also compresses standard output.
The lines have the format of "quartermaster log tail -o json".`,
		Example: "  quartermaster log export --topic qm.fleet > fleet.jsonl\n" +
			"  quartermaster log export --type BillingLineRecorded,InvoiceReceived --from 2026-05 --to 2026-06 --out bills.jsonl.zst\n" +
			"  quartermaster log export --workspace research --out research.jsonl.gz\n" +
			"  quartermaster log export --until qm.fleet/3=12 --out part.jsonl",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := fl.wanted()
			if err != nil {
				return err
			}
			how, err := fl.compression()
			if err != nil {
				return err
			}
			return a.exportTo(fl.out, how, func(w io.Writer) error { return a.caller().Export(cmd.Context(), want, w) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&fl.topics, "topic", nil, "topics, for example qm.fleet (default all)")
	f.StringSliceVar(&fl.types, "type", nil, "types of events, for example NodeRegistered (default all)")
	f.StringSliceVar(&fl.workspaces, "workspace", nil, "only events of these workspaces")
	f.StringSliceVar(&fl.clusters, "cluster", nil, "only events of these clusters")
	f.StringVar(&fl.from, "from", "", "only events of this time or later")
	f.StringVar(&fl.to, "to", "", "only events before this time")
	f.StringVar(&fl.until, "until", "", "position to stop at (default end of the log)")
	f.StringVar(&fl.out, "out", "", "file to write, which must not exist (default standard output)")
	f.StringVar(&fl.compress, "compress", "", "none, gzip or zstd (default by the name of --out)")
	return cmd
}

func (fl *exportFlags) wanted() (app.Export, error) {
	x := app.Export{Topics: fl.topics, Workspaces: fl.workspaces, Clusters: fl.clusters, Until: fl.until}
	for _, t := range fl.types {
		x.Types = append(x.Types, domain.Type(t))
	}
	if err := cmp.Or(timeFlag("from", fl.from, &x.From), timeFlag("to", fl.to, &x.To)); err != nil {
		return x, err
	}
	if x.To != 0 && x.To <= x.From {
		return x, commandline.Usagef("--to %s is not after --from %s", fl.to, fl.from)
	}
	return x, nil
}

// compression returns the compression of the export.
func (fl *exportFlags) compression() (string, error) {
	switch fl.compress {
	case plainText, gzipped, zstandard:
		return fl.compress, nil
	case "":
	default:
		return "", commandline.Usagef("--compress %q: want none, gzip or zstd", fl.compress)
	}
	switch {
	case strings.HasSuffix(fl.out, ".zst"):
		return zstandard, nil
	case strings.HasSuffix(fl.out, ".gz"):
		return gzipped, nil
	}
	return plainText, nil
}

// exportTo writes to a new file, or to standard output. It removes the file if the export fails.
func (a *Program) exportTo(path, how string, write func(io.Writer) error) (err error) {
	if path == "" {
		return compressed(a.out, how, write)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	return compressed(f, how, write)
}

func compressed(out io.Writer, how string, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(out, 1<<18)
	w := io.WriteCloser(nopCloser{b})
	switch how {
	case gzipped:
		w = gzip.NewWriter(b)
	case zstandard:
		enc, err := zstd.NewWriter(b, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		w = enc
	}
	if err := write(w); err != nil {
		return errors.Join(err, w.Close())
	}
	return errors.Join(w.Close(), b.Flush())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
