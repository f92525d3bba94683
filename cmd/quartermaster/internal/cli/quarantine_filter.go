package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
)

// quarantineFilter are the flags that select quarantined records.
type quarantineFilter struct {
	app.QuarantineFilter
	topic, since, until string

	set *pflag.FlagSet
}

func (q *quarantineFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	q.set = f
	f.StringVar(&q.topic, "topic", "", "only records of this topic")
	f.IntVar(&q.Partition, "partition", -1, "only records of this partition of the topic")
	f.StringVar(&q.Kind, "kind", "", "only records with this kind of reason: "+strings.Join(projections.QuarantineKinds(), ", "))
	f.StringVar(&q.Matching, "matching", "", "only records whose reason contains this text")
	f.StringVar(&q.since, "since", "", "only records appended at this time or later (RFC 3339, date or month)")
	f.StringVar(&q.until, "until", "", "only records appended before this time")
}

// read checks the flags.
func (q *quarantineFilter) read() error {
	q.Topic = domain.Topic(q.topic)
	if q.topic != "" && domain.Topic(q.topic).Partitions() == 0 {
		return commandline.Usagef("--topic %q is not a topic of the log", q.topic)
	}
	if n := domain.Topic(q.topic).Partitions(); q.set.Changed("partition") && (q.Partition < 0 || q.Partition >= n) {
		if q.topic == "" {
			return commandline.Usagef("--partition %d needs --topic", q.Partition)
		}
		return commandline.Usagef("--partition %d: %s has partitions 0 to %d", q.Partition, q.topic, n-1)
	}
	if q.Kind != "" && !slices.Contains(projections.QuarantineKinds(), q.Kind) {
		return commandline.Usagef("--kind %q is unknown, want one of %s", q.Kind, strings.Join(projections.QuarantineKinds(), ", "))
	}
	return cmp.Or(timeFlag("since", q.since, &q.From), timeFlag("until", q.until, &q.To))
}

func (q *quarantineFilter) given() bool {
	return q.topic != "" || q.set.Changed("partition") || q.Kind != "" || q.Matching != "" || q.since != "" || q.until != ""
}

// kindCounts formats counts, for example "3 conflict, 1 invalid".
func kindCounts(kinds map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, comma(kinds[k])+" "+k)
	}
	return strings.Join(parts, ", ")
}
