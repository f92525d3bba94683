package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quartermaster/domain"
	"quartermaster/projections"
)

// quarantineFilter names entries of the quarantine. What is empty names all.
type quarantineFilter struct {
	topic, kind, matching, since, until string
	partition                           int // of the topic, -1: all
	open                                bool

	set      *pflag.FlagSet
	from, to domain.Instant
}

func (q *quarantineFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	q.set = f
	f.StringVar(&q.topic, "topic", "", "only records of this topic")
	f.IntVar(&q.partition, "partition", -1, "only records of this partition of the topic")
	f.StringVar(&q.kind, "kind", "", "only records with this kind of reason: "+strings.Join(projections.QuarantineKinds(), ", "))
	f.StringVar(&q.matching, "matching", "", "only records whose reason has this text in it")
	f.StringVar(&q.since, "since", "", "only records appended at this time or later (RFC 3339, date or month)")
	f.StringVar(&q.until, "until", "", "only records appended before this time")
}

// read checks the flags.
func (q *quarantineFilter) read() (err error) {
	if q.topic != "" && domain.Topic(q.topic).Partitions() == 0 {
		return fmt.Errorf("--topic %q is no topic of the log", q.topic)
	}
	if n := domain.Topic(q.topic).Partitions(); q.set.Changed("partition") && (q.partition < 0 || q.partition >= n) {
		if q.topic == "" {
			return fmt.Errorf("--partition %d: give the --topic that has it", q.partition)
		}
		return fmt.Errorf("--partition %d: %s has partitions 0 to %d", q.partition, q.topic, n-1)
	}
	if q.kind != "" && !slices.Contains(projections.QuarantineKinds(), q.kind) {
		return fmt.Errorf("--kind %q is unknown, want one of %s", q.kind, strings.Join(projections.QuarantineKinds(), ", "))
	}
	for _, x := range []struct {
		flag, text string
		at         *domain.Instant
	}{{"since", q.since, &q.from}, {"until", q.until, &q.to}} {
		if x.text == "" {
			continue
		}
		if *x.at, err = instantFlag(x.text); err != nil {
			return fmt.Errorf("--%s: %w", x.flag, err)
		}
	}
	return nil
}

func (q *quarantineFilter) given() bool {
	return q.topic != "" || q.set.Changed("partition") || q.kind != "" || q.matching != "" || q.since != "" || q.until != ""
}

func (q *quarantineFilter) holds(e *projections.QuarantineEntry) bool {
	return (!q.open || e.Resolution == "") && (q.topic == "" || string(e.Topic) == q.topic) && (q.partition < 0 || e.Partition == q.partition) &&
		(q.kind == "" || e.Kind == q.kind) && strings.Contains(e.Reason, q.matching) &&
		e.Appended >= q.from && (q.to == 0 || e.Appended < q.to)
}

// countKinds counts entries by the kind of their reason.
func countKinds(entries []projections.QuarantineEntry) map[string]int {
	kinds := map[string]int{}
	for i := range entries {
		kinds[entries[i].Kind]++
	}
	return kinds
}

// kindCounts is for example "3 conflict, 1 invalid".
func kindCounts(kinds map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, comma(kinds[k])+" "+k)
	}
	return strings.Join(parts, ", ")
}
