package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"quartermaster/domain"
	"quartermaster/domain/plan"
)

// summaryRows bounds the constraints and the reasons in a summary.
const summaryRows = 5

// showSummary shows a plan on one screen.
func (a *Program) showSummary(s *plan.Summary) {
	fmt.Fprintf(a.out, "plan %s for %s to %s\n\n", s.Plan, day(s.Horizon.From), day(s.Horizon.To))
	fmt.Fprintf(a.out, "net present cost   %s %s, lower bound %s (gap %s)\n", money(s.Cost), s.Currency, money(s.LowerBound), percentOf(s.Gap))
	for _, x := range s.Savings {
		fmt.Fprintf(a.out, "%s\n", savingText(&x, s.Currency))
	}
	if r := s.Rule; r != nil {
		fmt.Fprintf(a.out, "%s%s\n", labelled(0, "simple rule"), ruleText(r, s.Currency))
	}
	fmt.Fprintf(a.out, "commitments        cover %s of the demand in GPU-hours; utilization %s\n", ratioText(s.Coverage), ratioText(s.Utilization))
	fmt.Fprintf(a.out, "buy                %s\n", orderText(s))
	if len(s.Excluded) == 0 {
		fmt.Fprintln(a.out, "excluded           nothing")
	}
	for i, x := range s.Excluded {
		if i == summaryRows {
			fmt.Fprintf(a.out, "                   and for %s more reasons; see below\n", comma(len(s.Excluded)-i))
			break
		}
		fmt.Fprintf(a.out, "%s%s\n", labelled(i, "excluded"), excludedText(&x))
	}
	if len(s.Binding) == 0 {
		fmt.Fprintln(a.out, "constraints        none binding")
	}
	for i, x := range s.Binding {
		if i == summaryRows {
			fmt.Fprintf(a.out, "                   and %s more; see below\n", comma(len(s.Binding)-i))
			break
		}
		fmt.Fprintf(a.out, "%s%s\n", labelled(i, "constraints"), bindingText(&x, s.Currency))
	}
	fmt.Fprintln(a.out)
	a.showSigning(s)
}

// showSigning shows what to sign now and what to decide later, by supplier and class.
func (a *Program) showSigning(s *plan.Summary) {
	if len(s.Signing) == 0 {
		return
	}
	t := a.table("supplier", "class", "sign now", "upfront now", "wait", "decide later", "next by", "cost")
	t.SetColumnConfigs(append(rightFrom(3, 6), rightFrom(8, 8)...))
	for i := range s.Signing {
		x := &s.Signing[i]
		next := ""
		if x.Next > 0 {
			next = day(x.Next)
		}
		t.AppendRow(table.Row{x.Supplier, named(x.Class), count(x.Now), moneyCell(x.Upfront), count(x.Waiting), count(x.Later), next, moneyCell(x.Cost)})
	}
	t.Render()
	fmt.Fprintln(a.out)
}

// labelled returns the label of the first of several lines, and an indent for the others.
func labelled(i int, label string) string {
	if i > 0 {
		label = ""
	}
	return fmt.Sprintf("%-19s", label)
}

// savingText shows how much a plan saves, or how much more it costs.
func savingText(x *plan.Saving, currency string) string {
	verb, amount := "saves", x.Amount
	if amount.IsNegative() {
		verb, amount = "costs more", amount.Neg()
	}
	share := ""
	if x.Percent != nil {
		share = ", " + x.Percent.Abs().StringFixed(1) + "%"
	}
	text := fmt.Sprintf("%s%s %s%s, against %s of %s %s", labelled(0, verb), money(amount), currency, share, x.Against, money(x.Cost), currency)
	if len(x.Broken) > 0 {
		text += ", which does not keep " + strings.Join(x.Broken, ", ")
	}
	return text
}

// ruleText shows the best simple rule, and whether it would do.
func ruleText(r *plan.Rule, currency string) string {
	text := fmt.Sprintf("%s costs %s %s more", baselineName(r.Baseline), money(r.More), currency)
	if r.More.IsNegative() { // it ignores least orders
		text = fmt.Sprintf("%s costs %s %s less; rules ignore least orders", baselineName(r.Baseline), money(r.More.Neg()), currency)
	} else if r.Percent != nil {
		text += ", " + r.Percent.StringFixed(1) + "%"
	}
	if r.AsGood {
		text += "; it may do as well: see plan backtest"
	}
	return text
}

// ratioText shows a percentage, or "none" if it is undefined.
func ratioText(percent *domain.Decimal) string {
	if percent == nil {
		return "none"
	}
	return percent.StringFixed(1) + "%"
}

func orderText(s *plan.Summary) string {
	if s.Purchases == 0 {
		return "nothing"
	}
	orders := "orders"
	if s.Purchases == 1 {
		orders = "order"
	}
	text := fmt.Sprintf("%s units, %s GPUs, in %s %s; %s %s upfront", comma(s.Units), comma(s.GPUs), comma(s.Purchases), orders, money(s.Upfront), s.Currency)
	if s.Later > 0 {
		text += fmt.Sprintf("; %s of them decided later, by demand", comma(s.Later))
	}
	if s.Waiting > 0 {
		text += fmt.Sprintf("; %s of the units wait for demand", comma(s.Waiting))
	}
	return text
}

func excludedText(x *plan.Excluded) string {
	const named = 3
	names := make([]string, 0, named)
	for _, n := range x.Names[:min(named, len(x.Names))] {
		names = append(names, clipped(n))
	}
	more := ""
	if x.Count > len(names) {
		more = " ..."
	}
	what := x.What
	if x.Count == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	return fmt.Sprintf("%s %s: %s (%s%s)", comma(x.Count), what, domain.Clip(x.Reason, 3*widest), strings.Join(names, ", "), more)
}

// bindingText shows a constraint, the worth of one more unit, and as much detail as fits on a line.
func bindingText(x *plan.SummaryBinding, currency string) string {
	const room, least = 80, 24
	text := fmt.Sprintf("%s in %s", strings.ReplaceAll(x.Constraint, "_", " "), domain.Clip(strings.Join(x.Pools, " and "), widest))
	if x.Price != nil {
		text += fmt.Sprintf(": one more is worth %s %s", money(*x.Price), currency)
	}
	return fmt.Sprintf("%s (%s)", text, domain.Clip(x.Detail, max(least, room-len(text)-3)))
}

// amountColumns are the columns of [amounts]. Comparisons have the names of the summary.
var amountColumns = []any{"cost", "incl. held", "incl. penalty", plan.BuyNothing, plan.WithoutQuota, "lower bound", "gap"}

// planColumns returns the columns of the table of pools.
func planColumns() []any {
	return append([]any{"region", "pool", "machines at peak"}, amountColumns...)
}

// pairRow returns a row of a comparison.
func pairRow(name string, c *plan.AmountChange) table.Row {
	return table.Row{name, moneyCell(c.A), moneyCell(c.B), changeCell(c)}
}

// changeCell shows the second amount less the first.
func changeCell(c *plan.AmountChange) cell {
	return cell{signed(c.Change, money(c.Change)), c.Change.String()}
}
