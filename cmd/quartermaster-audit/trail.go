package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster-audit/internal/audit"
	"quartermaster/domain"
)

// step is one event of a trail. "prove" takes its partition and offset.
type step struct {
	Partition string         `json:"partition"`
	Offset    int64          `json:"offset"`
	Appended  domain.Instant `json:"appended"` // by its producer's clock
	Time      domain.Instant `json:"time"`     // when the fact became true
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Source    string         `json:"source"`
	Subject   string         `json:"subject,omitempty"`
	Workspace string         `json:"workspace,omitempty"`
	Cluster   string         `json:"cluster,omitempty"`
	// Operator signed the event; absent if nobody did. Trail does not verify the signature.
	Operator string `json:"operator,omitempty"`
}

func (s *step) String() string {
	by := ""
	if s.Operator != "" {
		by = "  signed by " + s.Operator
	}
	return fmt.Sprintf("%s %d  %s  %s  %s%s", s.Partition, s.Offset, s.Appended, s.Type, s.ID, by)
}

// about says what a trail is about. One of its first five fields is set.
type about struct {
	recommendation, workspace, cluster, invoice, line string

	// billed are the lines that were stated on the invoice so far. A correction or removal names only its line; it comes
	// later in the same partition.
	billed map[billLine]bool
}

// billLine names a line of a bill. Ids are a supplier's own in a billing account.
type billLine struct{ issuer, account, id string }

func lineOf(l *domain.BillingLine) billLine {
	return billLine{l.InvoiceIssuerName, l.BillingAccountID, l.LineID}
}

// bills reports whether a statement of a line is on the invoice, and notes the line.
func (q *about) bills(l *domain.BillingLine) bool {
	if q.invoice == "" || l.InvoiceID != q.invoice {
		return false
	}
	if q.billed == nil {
		q.billed = map[billLine]bool{}
	}
	q.billed[lineOf(l)] = true
	return true
}

// topics are those whose events can be about it.
func (q *about) topics() []domain.Topic {
	switch {
	case q.recommendation != "":
		return []domain.Topic{domain.TopicProcurement}
	case q.invoice != "", q.line != "":
		return []domain.Topic{domain.TopicBilling}
	}
	var all []domain.Topic
	for _, t := range domain.TopicSpecs() {
		all = append(all, t.Topic)
	}
	return all
}

// holds reports whether an event is about it.
func (q *about) holds(env *domain.Envelope) bool {
	switch {
	case q.workspace != "":
		return env.Workspace == q.workspace
	case q.cluster != "":
		return env.Cluster == q.cluster
	}
	switch e := env.Event.(type) { // a topic has either these or those
	case *domain.RecommendationMade:
		return e.Recommendation == q.recommendation
	case *domain.RecommendationApproved:
		return e.Recommendation == q.recommendation
	case *domain.RecommendationRejected:
		return e.Recommendation == q.recommendation
	case *domain.RecommendationWithdrawn:
		return e.Recommendation == q.recommendation
	case *domain.CommandIssued:
		return e.Recommendation == q.recommendation
	case *domain.RecommendationActuated:
		return e.Recommendation == q.recommendation
	case *domain.OutcomeRecorded:
		return e.Recommendation == q.recommendation
	case *domain.CommitmentPurchased:
		return q.recommendation != "" && e.Recommendation == q.recommendation
	case *domain.BillingLineRecorded:
		// A statement of a line that was on the invoice, and is no longer, is about it too.
		return q.bills(&e.Line) || q.billed[lineOf(&e.Line)] || q.line != "" && e.Line.LineID == q.line
	case *domain.BillingLineCorrected:
		corrected := billLine{e.Line.InvoiceIssuerName, e.Line.BillingAccountID, e.Corrects}
		return q.bills(&e.Line) || q.billed[corrected] || q.line != "" && (e.Corrects == q.line || e.Line.LineID == q.line)
	case *domain.BillingLineRemoved:
		removed := billLine{e.InvoiceIssuerName, e.BillingAccountID, e.LineID}
		return q.billed[removed] || q.line != "" && e.LineID == q.line
	case *domain.InvoiceReceived:
		return q.invoice != "" && (e.InvoiceID == q.invoice || e.ReferenceInvoiceID == q.invoice)
	}
	return false
}

// each calls yield with the events of topics, by partition and offset. Records that cannot be decoded
// are left out: the server has them in quarantine.
func each(a *audit.Archive, topics []domain.Topic, yield func(*domain.Record, *domain.Envelope) error) error {
	end, err := a.End()
	if err != nil {
		return err
	}
	var dec wire.Decoder
	for _, tp := range domain.AllPartitions() {
		if !slices.Contains(topics, tp.Topic) || end[tp] == 0 {
			continue
		}
		if err := a.Each(tp, 0, end[tp], func(recs []domain.Record) error {
			for i := range recs {
				var env domain.Envelope
				if recs[i].Span != nil || dec.Decode(&recs[i], &env) != nil {
					continue
				}
				if err := yield(&recs[i], &env); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func stepOf(rec *domain.Record, env *domain.Envelope) (step, error) {
	id, err := wire.ID(env)
	s := step{
		Partition: domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}.String(), Offset: rec.Offset,
		Appended: rec.Time, Time: env.Time, Type: string(env.Event.Type()), ID: id, Source: env.Source, Subject: env.Subject,
		Workspace: env.Workspace, Cluster: env.Cluster,
	}
	if env.Signature != nil {
		s.Operator = env.Signature.Operator
	}
	return s, err
}

func (p *program) trailCommand() *cobra.Command {
	var q about
	cmd := &cobra.Command{
		Use:   "trail DIR",
		Short: "List the events about a recommendation, workspace, cluster, invoice or line",
		Long: `Trail lists the events about one thing, a line each, with partition and offset, so that each can be
proven. A workspace's are those that name it as their workspace; an invoice's are its lines, with their corrections
and removals, and what was received of it; a line's are its statements, corrections and removals.`,
		Example: "  quartermaster-audit trail /mnt/archive --recommendation rec-42\n" +
			"  quartermaster-audit trail /mnt/archive --invoice INV-2026-05 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := open(args[0])
			if err != nil {
				return err
			}
			found := false
			err = each(a, q.topics(), func(rec *domain.Record, env *domain.Envelope) error {
				if !q.holds(env) {
					return nil
				}
				found = true
				s, err := stepOf(rec, env)
				if err != nil {
					return err
				}
				return p.line(s, s.String())
			})
			if err == nil && !found {
				err = &answer{commandline.ExitNo, "the archive has no event about it"}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.recommendation, "recommendation", "", "id of a recommendation")
	f.StringVar(&q.workspace, "workspace", "", "a workspace")
	f.StringVar(&q.cluster, "cluster", "", "a cluster")
	f.StringVar(&q.invoice, "invoice", "", "id of an invoice")
	f.StringVar(&q.line, "line", "", "id of a line of a bill (x_LineId)")
	kinds := []string{"recommendation", "workspace", "cluster", "invoice", "line"}
	cmd.MarkFlagsMutuallyExclusive(kinds...)
	cmd.MarkFlagsOneRequired(kinds...)
	return cmd
}
