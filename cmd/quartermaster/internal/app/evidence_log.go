package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// statedTables have what imported files state, with when that was appended. Hours of usage do not keep it.
var statedTables = []projections.Table{
	projections.TableBillingLines, projections.TableInvoices, projections.TableBillingPeriods, projections.TableNodes,
	projections.TableReplicas, projections.TableDeployments, projections.TableOffers, projections.TableEnergy,
}

// sources adds the files that were imported.
func (e *evidence) sources(context.Context) error {
	all, err := importedSources(e.view)
	for i := range all {
		s := &all[i]
		e.add("sources", s.Source, s.SHA256, wholeCell(s.Events), wholeCell(s.Missing), wholeCell(s.Lines), wholeCell(s.Invoices),
			timeCell(s.From), timeCell(s.To), strings.Join(s.Months, " "))
	}
	return err
}

// postings adds what changed closed months, and what the months of the pack have of earlier ones.
func (e *evidence) postings(ctx context.Context) error {
	into := func(books domain.Interval, state CloseState, all []costs.Posting) {
		type key struct {
			period, kind, currency, causes string
			rounding                       bool
		}
		sums := map[key]*PostingSum{}
		for i := range all {
			p := &all[i]
			if !e.concerns(p.Period) && !e.concerns(MonthName(books)) {
				continue
			}
			k := key{p.Period, string(p.Type), p.Currency, strings.Join(p.Causes, "; "), p.Rounding}
			s := sums[k]
			if s == nil {
				s = &PostingSum{}
				sums[k] = s
			}
			s.Postings++
			s.Billed, s.Effective = s.Billed.Add(p.Billed), s.Effective.Add(p.Effective)
		}
		for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
			return cmp.Or(strings.Compare(a.period, b.period), strings.Compare(a.kind, b.kind), compareBool(a.rounding, b.rounding),
				strings.Compare(a.currency, b.currency), strings.Compare(a.causes, b.causes))
		}) {
			s, rounding := sums[k], ""
			if k.rounding {
				rounding = "true"
			}
			e.add("postings", MonthName(books), string(state), k.period, k.kind, rounding, k.currency, wholeCell(s.Postings), s.Billed.String(),
				s.Effective.String(), k.causes)
		}
	}
	for i := range e.closes {
		of := &e.closes[i]
		if of.Books() == nil || of.Period.From < e.months[0].From {
			continue
		}
		all, err := e.h.postedInto(ctx, e.closes, of)
		if err != nil {
			return err
		}
		into(of.Period, CloseDone, all)
	}
	open := openPeriod(e.closes)
	if open == (domain.Interval{}) {
		return nil
	}
	all, err := e.h.postingsNow(ctx, e.view, e.closes, open)
	into(open, CloseOpen, all)
	return err
}

// decisions adds what was signed, and by whom.
func (e *evidence) decisions(context.Context) error {
	all, err := e.auth.Decisions(e.view, registry.DecisionFilter{})
	if err != nil {
		return err
	}
	for i := range all {
		d := &all[i]
		event, err := jsonCell(d.Event)
		if err != nil {
			return err
		}
		e.add("decisions", timeCell(d.Time), timeCell(d.Effective), d.Operator, hexCell(d.PublicKey), string(d.Role), string(d.Type), d.Workspace,
			d.Scope, d.ID, d.Refused, event)
	}
	err = e.view.Scan(projections.Query{Table: projections.TableAssets}, func(k projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			if v.Signer != nil {
				continue // it is among the decisions
			}
			event, err := jsonCell(v.Event)
			if err != nil {
				return err
			}
			e.add("decisions", timeCell(v.Order.Time), timeCell(v.Order.Effective), "", "", "", string(v.Event.Type()), v.Workspace, k.Scope, k.ID, "", event)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read assets: %w", err)
	}
	for _, g := range e.auth.Grants() {
		var limits []string
		for _, m := range g.AuthorityLimits {
			limits = append(limits, m.Amount.String()+" "+m.Currency)
		}
		root := ""
		if g.Root {
			root = "true"
		}
		e.add("signers", g.Operator, g.Workspace, hexCell(g.PublicKey), string(g.Role), strings.Join(limits, "; "), timeCell(g.From), timeCell(g.To),
			g.RegisteredBy, root)
	}
	return nil
}

// quarantine adds what could not be folded.
func (e *evidence) quarantine(context.Context) error {
	list, err := registry.Quarantine(e.view)
	if err != nil {
		return err
	}
	for i := range list.Entries {
		q := &list.Entries[i]
		e.add("quarantine", q.ID, timeCell(q.Appended), q.Kind, q.Reason, hexCell(q.SHA256), q.Workspace, cmp.Or(q.Resolution, "open"),
			timeCell(q.Resolved), q.ResolvedBy, q.Note)
	}
	return nil
}

// gaps adds what is missing. The months have been added.
func (e *evidence) gaps(context.Context) error {
	open, err := registry.OpenGaps(e.view)
	if err != nil {
		return err
	}
	for i := range open {
		g := &open[i]
		e.add("gaps", "awaited", string(g.Topic), g.Source, wholeCell(g.Awaited), wholeCell(g.First), wholeCell(g.Last), "", "", "")
	}
	sortLosses(e.losses)
	for i := range e.losses {
		l := &e.losses[i]
		e.add("gaps", "dropped", string(l.Topic), l.Cluster+"/"+l.Node, wholeCell(l.Events), "", "", timeCell(l.From), timeCell(l.To), l.Reason)
	}
	return nil
}

// eachStated calls yield with the versions of a table, oldest first.
func (e *evidence) eachStated(table projections.Table, yield func(*projections.Version)) error {
	var all []*projections.Version
	err := e.view.Scan(projections.Query{Table: table}, func(_ projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			v := h.Versions[i]
			all = append(all, &v)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	slices.SortStableFunc(all, func(a, b *projections.Version) int {
		return cmp.Or(cmp.Compare(a.Order.Appended, b.Order.Appended), strings.Compare(a.Order.Source, b.Order.Source),
			cmp.Compare(a.Order.Incarnation, b.Order.Incarnation), cmp.Compare(a.Order.Sequence, b.Order.Sequence))
	})
	for _, v := range all {
		yield(v)
	}
	return nil
}

// checkpoints adds what was signed of the log.
func (e *evidence) checkpoints(context.Context) error {
	return e.eachStated(projections.TableCheckpoints, func(v *projections.Version) {
		c, ok := v.Event.(*domain.CheckpointSigned)
		if !ok {
			return
		}
		origin, size, root := "", "", ""
		if of, err := merkle.OpenNote(c.Note); err == nil { // the note is there in any case
			origin, size, root = of.Origin, wholeCell(of.Size), of.Root.String()
		}
		var names []string
		for line := range strings.Lines(string(c.Note)) {
			if rest, ok := strings.CutPrefix(line, "— "); ok {
				name, _, _ := strings.Cut(rest, " ")
				names = append(names, name)
			}
		}
		e.add("checkpoints", timeCell(v.Order.Appended), c.Position, origin, size, root, strings.Join(names, " "), string(c.Note))
	})
}

// exports adds the exports that were recorded.
func (e *evidence) exports(context.Context) error {
	return e.eachStated(projections.TableExports, func(v *projections.Version) {
		if x, ok := v.Event.(*domain.ExportMade); ok {
			e.add("exports", timeCell(v.Order.Appended), hexCell(x.Digest), x.Format, wholeCell(x.Rows), x.Method, x.Position)
		}
	})
}

// denials adds refused attempts about the books.
func (e *evidence) denials(context.Context) error {
	return e.eachStated(projections.TableDenials, func(v *projections.Version) {
		if d, ok := v.Event.(*domain.AccessDenied); ok {
			e.add("denials", timeCell(v.Order.Effective), d.Principal, d.Action, d.Target, d.Reason)
		}
	})
}
