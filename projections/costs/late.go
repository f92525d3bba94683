package costs

import (
	"fmt"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// billTimes says when a month was billed, by billing account: when the first invoice of the account
// was appended after the end of the month, else when the last of its lines was first stated, and
// never before the end of the month. Correction lines do not count, because they may come at any
// time.
type billTimes struct {
	month           domain.Interval
	invoices, lines map[string]domain.Instant
}

func newBillTimes(month domain.Interval) billTimes {
	return billTimes{month: month, invoices: map[string]domain.Instant{}, lines: map[string]domain.Instant{}}
}

func (b *billTimes) invoice(account string, at domain.Instant) {
	if have, ok := b.invoices[account]; at >= b.month.To && (!ok || at < have) {
		b.invoices[account] = at
	}
}

func (b *billTimes) line(l *LedgerLine) {
	if l.Corrects == "" {
		b.lines[l.BillingAccountID] = max(b.lines[l.BillingAccountID], l.Since, b.month.To)
	}
}

// of returns when the month was billed for an account. It reports false if it was not billed.
func (b *billTimes) of(account string) (domain.Instant, bool) {
	if at, ok := b.invoices[account]; ok {
		return at, true
	}
	at, ok := b.lines[account]
	return at, ok
}

// first returns when the first account was billed. It reports false if none was.
func (b *billTimes) first() (first domain.Instant, ok bool) {
	for account := range b.lines {
		if at, _ := b.of(account); !ok || at < first {
			first, ok = at, true
		}
	}
	return first, ok
}

// lateness finds events that were appended after the month was billed.
type lateness struct {
	b         *books
	month     domain.Interval
	first     domain.Instant                        // bill of any account
	clusters  map[string]domain.Instant             // first bill of an account of its nodes
	nodes     map[inventory.NodeName]domain.Instant // first bill of its accounts
	decisions map[lateName]*lateEvents
	sharded   map[string]bool // clusters whose telemetry was ever in shards: the rows do not say which
}

type lateName struct {
	subject string
	typ     domain.Type
}

// lateEvents are events of one type about one thing.
type lateEvents struct {
	n            int
	billed, last domain.Instant
	gpuMs        int64
	id           string // of the last, as in [Posting]; "" if it is not known
	charges      bool   // all of them are rules that say who is charged for lines
}

// changedAfterBill reports what may change the division of the month since it was billed: samples,
// corrections and everything else that determines usage and owners, by the time of its append. A
// node is billed with its account. What belongs to no billed account is billed with the first
// account that is. Whether amounts changed is not known.
func (b *books) changedAfterBill() error {
	first, ok := b.billed.first()
	if !ok {
		return nil
	}
	l := &lateness{
		b, b.ledger.month, first, map[string]domain.Instant{},
		map[inventory.NodeName]domain.Instant{}, map[lateName]*lateEvents{}, map[string]bool{},
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		at, ok := b.billed.of(n.Account)
		if !ok {
			at = first
		}
		name := inventory.NodeName{Cluster: n.Cluster, Node: n.Node}
		if have, ok := l.nodes[name]; !ok || at < have {
			l.nodes[name] = at
		}
		if have, ok := l.clusters[n.Cluster]; !ok || at < have {
			l.clusters[n.Cluster] = at
		}
	}
	if err := l.samples(); err != nil {
		return err
	}
	return l.events()
}

// of returns when a thing was billed.
func (l *lateness) of(t projections.Table, scope, id string) domain.Instant {
	if t.Topic() == domain.TopicWorkspaces || t.Topic() == domain.TopicProcurement {
		return l.first
	}
	if at, ok := l.nodes[inventory.NodeName{Cluster: scope, Node: id}]; ok {
		return at
	}
	if at, ok := l.clusters[scope]; ok {
		return at
	}
	return l.first
}

// samples reports late samples of the month's nodes.
func (l *lateness) samples() error {
	at := projections.MonthStart(l.month.From)
	months := projections.Query{Table: projections.TableNodeGPUs, From: at, To: at + 1}
	err := l.b.view.Scan(months, func(k projections.Key, row projections.Row) error {
		billed := l.of(projections.TableNodeGPUs, k.Scope, k.ID)
		var ms int64
		var last domain.Instant
		bound := ""
		for _, d := range row.(*projections.NodeGPUs).Late {
			if d.Last <= billed {
				continue
			}
			if d.First <= billed {
				bound = "; what arrived earlier on the day of the bill is counted too"
			}
			ms, last = ms+d.GPUMs, max(last, d.Last)
		}
		if last > 0 {
			l.b.except(ChangedAfterBill, k.Scope+"/"+k.ID,
				"samples of the month, the last appended at %s; it was billed at %s%s", last, billed, bound)
			l.b.exceptions[len(l.b.exceptions)-1].GPUMs = ms
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableNodeGPUs, err)
	}
	return nil
}

// events reports late corrections, outages, declarations and decisions.
func (l *lateness) events() error {
	a, err := registry.NewAuthority(l.b.view)
	if err != nil {
		return err
	}
	for _, t := range []projections.Table{
		projections.TablePolicies, projections.TableMappingRules, projections.TableClusters,
		projections.TableNodes, projections.TableMaintenance, projections.TableOutages, projections.TableUsageCorrections,
		projections.TableFaults, projections.TableHealth, projections.TableDeployments, projections.TableCommitments,
	} {
		q := projections.Query{Table: t}
		if t == projections.TableFaults || t == projections.TableHealth {
			span := l.span()
			q.From, q.To = projections.MonthStart(span.From), projections.MonthStart(projections.BillingMonth(span.To-1).To)
		}
		err := l.b.view.Scan(q, func(k projections.Key, row projections.Row) error {
			h, id := row.(*projections.History), k.ID
			if c, ok := h.Latest().Event.(*domain.UsageCorrected); ok {
				id = c.Node
			}
			billed := l.of(t, k.Scope, id)
			for i := range h.Versions {
				v := &h.Versions[i]
				if c, ok := v.Event.(*domain.ClusterRegistered); ok && c.Shards > 1 {
					l.sharded[k.Scope] = true
				}
				if v.Order.Appended <= billed || !l.touches(h, i) || a.Judge(k, h, i) != "" {
					continue
				}
				name := lateName{strings.Clone(k.Scope + "/" + id), v.Event.Type()}
				e := l.decisions[name]
				if e == nil {
					e = &lateEvents{billed: billed, charges: true}
					l.decisions[name] = e
				}
				e.n++
				e.charges = e.charges && chargesLines(v.Event)
				if v.Order.Appended >= e.last {
					e.last, e.id = v.Order.Appended, ""
					if topic := t.Topic(); topic != domain.TopicTelemetry && topic != domain.TopicHardware || !l.sharded[k.Scope] {
						e.id = eventID(topic, k.Scope, &v.Order)
					}
				}
				if c, ok := v.Event.(*domain.UsageCorrected); ok && i == len(h.Versions)-1 {
					part := c.Interval.Intersect(l.span())
					e.gpuMs += int64((part.To - part.From) / projections.NsPerMs)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", t, err)
		}
	}
	for name, e := range l.decisions {
		l.b.except(ChangedAfterBill, name.subject, "%s of the month, %d of them, the last appended at %s; it was billed at %s",
			name.typ, e.n, e.last, e.billed)
		l.b.exceptions[len(l.b.exceptions)-1].GPUMs = e.gpuMs
	}
	return nil
}

// span is the time that the division of the month depends on: the month, and what its lines are charged for, which may
// begin and end at another hour.
func (l *lateness) span() domain.Interval { return hull(l.month, l.b.ledger.charged) }

// touches reports whether the division of the month depends on a version.
func (l *lateness) touches(h *projections.History, i int) bool {
	v := &h.Versions[i]
	span := l.span()
	replaced := i+1 < len(h.Versions) && h.Versions[i+1].Order.Effective <= span.From
	inForce := v.Order.Effective < span.To && !replaced
	switch e := v.Event.(type) {
	case *domain.UsageCorrected:
		return !e.Interval.Intersect(span).Empty()
	case *domain.OutageDeclared:
		return !e.Window.Intersect(span).Empty()
	case *domain.MaintenanceScheduled:
		return !e.Window.Intersect(span).Empty()
	case *domain.PolicySet:
		applies := e.Kind == domain.PolicyCommitmentDiscount || e.Kind == domain.PolicyIdleCost || e.Kind == domain.PolicyRecoverableTax
		return inForce && applies && (e.EffectiveTo == 0 || e.EffectiveTo > l.month.From)
	case *domain.CommitmentPurchased:
		return inForce && l.charged(e.Commitment)
	case *domain.CommitmentRenewed:
		return inForce && l.charged(e.Commitment)
	case *domain.CommitmentEnded:
		return inForce && l.charged(e.Commitment)
	case *domain.GPUFaultObserved, *domain.NodeCordoned, *domain.NodeDrained, *domain.NodeReturned:
		return v.Order.Effective < span.To
	case *domain.CollectorSilent, *domain.SpoolDropped:
		return false
	default:
		return inForce
	}
}

// charged reports whether a line of the month is about a commitment.
func (l *lateness) charged(id string) bool {
	for i := range l.b.commitments {
		if l.b.commitments[i].ID == id {
			return true
		}
	}
	return false
}
