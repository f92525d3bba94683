package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

func (a *app) poisonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "poison",
		Short: "What webhooks and other reactions could not handle",
	}
	cmd.AddCommand(a.poisonListCommand())
	return cmd
}

// poisonEntry is a message of the poison topic.
type poisonEntry struct {
	At        domain.Instant `json:"at"` // when it was given up
	Reaction  string         `json:"reaction"`
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Type      domain.Type    `json:"type,omitempty"`
	Subject   string         `json:"subject,omitempty"`
	Reason    string         `json:"reason"`
}

func (a *app) poisonListCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest events that a reaction gave up",
		Long: `List shows the newest messages of the topic ` + string(TopicPoison) + `, the oldest first: events
that a reaction of a serving instance (alerts, replan or webhook.NAME) could not
handle, and why. The events are in the log, at topic, partition and offset, and
are counted like any other. Who missed them is to be told by hand.

A message that no reaction wrote is listed with an empty reaction, at its own
place in ` + string(TopicPoison) + `.

JSON keys, one object per message: at (when it was given up), reaction, topic,
partition, offset, type, subject, reason.`,
		Example: "  quartermaster poison list --config quartermaster.yaml\n  quartermaster poison list --brokers kafka:9092 -n 100 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || n > maxTail {
				return commandline.Usagef("--lines %d: want 1 to %d", n, maxTail)
			}
			if err := a.reading(); err != nil {
				return err
			}
			return a.withLog(cmd.Context(), func(h *home) error {
				if h.broker != nil {
					return errors.New("there are no reactions on the embedded log: name a Kafka cluster with --config or --brokers")
				}
				list, err := poisoned(cmd.Context(), h.log, n)
				if err != nil {
					return err
				}
				var setting *kafka.SettingError
				if err := h.log.CheckTopics(cmd.Context(), poisonTopics); len(list) > 0 && errors.As(err, &setting) {
					a.note("the topic is not as it was made, so messages may be missing here: %v", err)
				}
				if a.json {
					return a.answerJSON(list)
				}
				if len(list) == 0 {
					fmt.Fprintln(a.out, "no reaction has given up an event")
					return nil
				}
				t := a.table("at", "reaction", "event", "type", "subject", "reason")
				for _, e := range list {
					t.AppendRow(table.Row{e.At, clipped(e.Reaction), fmt.Sprintf("%s/%d@%d", e.Topic, e.Partition, e.Offset), e.Type, clipped(e.Subject), clipped(e.Reason)})
				}
				t.Render()
				return nil
			})
		},
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "how many messages")
	return cmd
}

// poisoned returns the newest messages of the poison topic, the oldest first. It
// reads the one partition that the topic is made with.
func poisoned(ctx context.Context, log *kafka.Log, n int) ([]poisonEntry, error) {
	list := []poisonEntry{}
	// The first reaction to start makes it; who only looks does not.
	if missing, err := log.MissingTopics(ctx, poisonTopics); err != nil || len(missing) > 0 {
		return list, err
	}
	tp := domain.TopicPartition{Topic: TopicPoison}
	first, next, err := log.Bounds(ctx, tp)
	if err != nil {
		return nil, err
	}
	err = log.Read(ctx, tp, max(first, next-int64(n)), next, func(recs []domain.Record) error {
		for i := range recs {
			r := &recs[i]
			if r.IsMarker() {
				continue
			}
			e := poisonEntry{
				At: r.Time, Reaction: reactionOf(string(r.Header(poisonHandler))), Topic: domain.Topic(r.Header(poisonTopic)),
				Type: wire.TypeOf(r), Subject: string(r.Header("ce_subject")), Reason: string(r.Header(poisonReason)),
			}
			var err error
			e.Partition, err = strconv.Atoi(string(r.Header(poisonPartition)))
			if err == nil {
				e.Offset, err = strconv.ParseInt(string(r.Header(poisonOffset)), 10, 64)
			}
			if err != nil {
				// Somebody else's message hides none of ours.
				e = poisonEntry{
					At: r.Time, Topic: tp.Topic, Partition: tp.Partition, Offset: r.Offset, Type: e.Type, Subject: e.Subject,
					Reason: fmt.Sprintf("no reaction wrote this message: %v", err),
				}
			}
			list = append(list, e)
		}
		return nil
	})
	return list, err
}
