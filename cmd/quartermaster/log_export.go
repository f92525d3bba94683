package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// exportFlags say what of the log is exported, and how it is written.
type exportFlags struct {
	topics, types        []string
	workspaces, clusters []string
	from, to             string // times of the events
	until                string // a position
	out, compress        string
}

// The ways of compressing an export.
const (
	plainText = "none"
	gzipped   = "gzip"
	zstandard = "zstd"
)

func (a *app) logExportCommand() *cobra.Command {
	var fl exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write events as CloudEvents JSON lines",
		Long: `Export writes the events of the log, partition by partition in order, as JSON
lines, with or without --json. It reads the log as it goes and holds little in
memory.

What is given narrows it: --topic, --type, --workspace, --cluster, and --from and --to,
which are times of events, the first included and the last not. An event of telemetry
names its cluster, and workspaces within: it is found by its cluster. A record that
cannot be decoded is written where only topics are given.

A file whose name ends in .zst or .gz is compressed, and so is standard output with
--compress.

` + recordKeys,
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
			if err := a.reading(); err != nil {
				return err
			}
			return a.withLog(cmd.Context(), func(h *home) error {
				end, err := h.end(cmd.Context())
				if err != nil {
					return err
				}
				if fl.until != "" {
					until, err := domain.ParsePosition(fl.until)
					if err != nil {
						return commandline.Usagef("--until: %w", err)
					}
					if !end.Covers(until) {
						return fmt.Errorf("--until %s lies beyond the log, which ends at %s", until, end)
					}
					end = until
				}
				return a.exportTo(fl.out, how, func(w io.Writer) error { return h.export(cmd.Context(), w, want, end) })
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&fl.topics, "topic", nil, "topics, for example qm.fleet (default all)")
	f.StringSliceVar(&fl.types, "type", nil, "types of events, for example NodeRegistered (default all)")
	f.StringSliceVar(&fl.workspaces, "workspace", nil, "only events that name one of these workspaces as theirs")
	f.StringSliceVar(&fl.clusters, "cluster", nil, "only events of one of these clusters")
	f.StringVar(&fl.from, "from", "", "only events of this time or later")
	f.StringVar(&fl.to, "to", "", "only events before this time")
	f.StringVar(&fl.until, "until", "", "position to stop at (default the end of the log)")
	f.StringVar(&fl.out, "out", "", "file to write, which must not exist (default standard output)")
	f.StringVar(&fl.compress, "compress", "", "none, gzip or zstd (default by the name of --out)")
	return cmd
}

// exported is what of the log is exported.
type exported struct {
	partitions           []domain.TopicPartition
	types                []domain.Type
	workspaces, clusters []string
	from, to             domain.Instant // to 0 is no end
}

func (fl *exportFlags) wanted() (*exported, error) {
	x := &exported{workspaces: fl.workspaces, clusters: fl.clusters}
	var err error
	if x.partitions, err = partitionsOf(fl.topics); err != nil {
		return nil, err
	}
	known := make([]string, 0, len(domain.Types()))
	for _, t := range domain.Types() {
		known = append(known, string(t))
	}
	for _, t := range fl.types {
		if !slices.Contains(known, t) {
			return nil, commandline.Usagef("--type %q is no type of event: %s", t, domain.Suggest(t, known))
		}
		x.types = append(x.types, domain.Type(t))
	}
	if len(x.types) > 0 { // a type is in one topic
		x.partitions = slices.DeleteFunc(x.partitions, func(tp domain.TopicPartition) bool {
			return !slices.ContainsFunc(x.types, func(t domain.Type) bool { return domain.TopicOf(t) == tp.Topic })
		})
	}
	for _, at := range []struct {
		flag, text string
		into       *domain.Instant
	}{{"from", fl.from, &x.from}, {"to", fl.to, &x.to}} {
		if at.text == "" {
			continue
		}
		if *at.into, err = instantFlag(at.text); err != nil {
			return nil, commandline.Usagef("--%s: %w", at.flag, err)
		}
	}
	if x.to != 0 && x.to <= x.from {
		return nil, commandline.Usagef("--to %s is not after --from %s", fl.to, fl.from)
	}
	return x, nil
}

// all reports whether every record of the partitions is wanted, those included that
// cannot be decoded.
func (x *exported) all() bool {
	return len(x.types)+len(x.workspaces)+len(x.clusters) == 0 && x.from == 0 && x.to == 0
}

func (x *exported) holds(env *domain.Envelope) bool {
	return (len(x.types) == 0 || slices.Contains(x.types, env.Event.Type())) &&
		(len(x.workspaces) == 0 || slices.Contains(x.workspaces, env.Workspace)) &&
		(len(x.clusters) == 0 || slices.Contains(x.clusters, env.Cluster)) &&
		env.Time >= x.from && (x.to == 0 || env.Time < x.to)
}

// compression is how the export is compressed.
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

// exportTo writes into a file that is not there yet, or to standard output. Half an
// export is none: the file is removed again.
func (a *app) exportTo(path, how string, write func(io.Writer) error) (err error) {
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

func (h *home) export(ctx context.Context, out io.Writer, want *exported, end domain.Position) error {
	var total, done int64
	for _, tp := range want.partitions {
		total += end[tp]
	}
	b := h.app.bar("export", total, "events")
	defer b.stop()
	var (
		dec  wire.Decoder
		line []byte
	)
	for _, tp := range want.partitions {
		if end[tp] == 0 {
			continue
		}
		if err := h.log.Read(ctx, tp, 0, end[tp], func(recs []domain.Record) error {
			for i := range recs {
				if recs[i].IsMarker() {
					continue
				}
				s, ok := want.show(&dec, &recs[i])
				if !ok {
					continue
				}
				var err error
				if line, err = s.appendLine(line[:0]); err != nil {
					return err
				}
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
			done += recs[len(recs)-1].Next() - recs[0].Offset
			b.set(done)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// show is show for what is wanted.
func (x *exported) show(dec *wire.Decoder, rec *domain.Record) (shownRecord, bool) {
	if x.all() {
		return show(dec, rec), true
	}
	var env domain.Envelope
	if err := dec.Decode(rec, &env); err != nil || !x.holds(&env) {
		return shownRecord{}, false
	}
	return shownRecord{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Appended: rec.Time, Key: string(rec.Key)}.of(rec, &env), true
}
