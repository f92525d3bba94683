package costs

import (
	"fmt"
	"slices"

	"quartermaster/domain/attribution"
)

// roundMinor rounds groups and totals to minor units, once.
//
// The billed total is the sum of the statements, because those are rounded for each invoice and are
// paid. Under a condition, or translated, statements do not apply, and the total is rounded. The effective total is
// rounded. Groups are rounded so that they add up to the total, see [attribution.Foot], in their
// order. Groups by workspace alone are the sums of their statements.
func (r *Report) roundMinor() {
	paid := map[[2]string]attribution.Amount{} // by workspace, "" for all, and currency
	for _, s := range r.Statements {
		for _, k := range [][2]string{{s.Workspace, s.Currency}, {"", s.Currency}} {
			paid[k] = paid[k].Add(s.Amount.Amount)
		}
	}
	statements := len(r.Where) == 0 && r.Translation == nil
	byWorkspace := statements && len(r.By) == 1 && r.By[0] == ByWorkspace
	for i := range r.Totals {
		t := &r.Totals[i]
		t.BilledMinor, t.EffectiveMinor = t.Billed.Minor(t.Currency), t.Effective.Minor(t.Currency)
		if statements {
			t.BilledMinor = paid[[2]string{"", t.Currency}].Minor(t.Currency)
		}
		var groups []*Cost
		var billed, effective []attribution.Amount
		for j := range r.Groups {
			g := &r.Groups[j]
			if g.Currency != t.Currency {
				continue
			}
			groups, billed, effective = append(groups, &g.Cost), append(billed, g.Billed), append(effective, g.Effective)
			if byWorkspace {
				billed[len(billed)-1] = paid[[2]string{g.Key[ByWorkspace], t.Currency}]
			}
		}
		foot(groups, billed, effective, t)
	}
}

// foot rounds costs so that they add up to a rounded total.
func foot(costs []*Cost, billed, effective []attribution.Amount, total *Cost) {
	b, e := attribution.Foot(billed, total.BilledMinor), attribution.Foot(effective, total.EffectiveMinor)
	for i, c := range costs {
		c.BilledMinor, c.EffectiveMinor = b[i], e[i]
	}
}

// invoicePart is a workspace's part of an invoice of a month.
type invoicePart struct{ month, workspace, currency, issuer, account, invoice string }

// footParts rounds what changed in the parts of invoices, so that the parts of each add up to its rounded sum: see
// [attribution.Foot]. What takes back an amount is rounded as the amount was.
func footParts(exact map[invoicePart]attribution.Amount) map[invoicePart]attribution.Minor {
	invoices := map[invoicePart][]string{} // workspaces, by the rest of the part
	for k := range exact {
		of := k
		of.workspace = ""
		invoices[of] = append(invoices[of], k.workspace)
	}
	out := make(map[invoicePart]attribution.Minor, len(exact))
	for of, workspaces := range invoices {
		slices.Sort(workspaces)
		amounts := make([]attribution.Amount, len(workspaces))
		var sum attribution.Amount
		for i, w := range workspaces {
			of.workspace = w
			amounts[i], sum = exact[of], sum.Add(exact[of])
		}
		negative := sum.Sign() < 0
		if negative {
			sum = sum.Neg()
			for i := range amounts {
				amounts[i] = amounts[i].Neg()
			}
		}
		for i, m := range attribution.Foot(amounts, sum.Minor(of.currency)) {
			if negative {
				m.Amount = m.Amount.Neg()
			}
			of.workspace = workspaces[i]
			out[of] = m
		}
	}
	return out
}

// NoteOf is what a note is about: a workspace's statement of a month, such as 2026-05, in a currency.
type NoteOf struct{ Month, Workspace, Currency string }

// Notes returns what the postings of a period add to each statement, in minor units: rounded once for each invoice and
// workspace, so that the notes about an invoice add up to what was posted about it.
func Notes(posted []Posting) (map[NoteOf]attribution.Minor, error) {
	exact := map[invoicePart]attribution.Amount{}
	for i := range posted {
		p := &posted[i]
		if p.row == nil {
			return nil, fmt.Errorf("the posting of %s has no line", p.Allocation)
		}
		of := invoicePart{p.Period, p.Workspace, p.Currency, p.row.line.Issuer, p.row.line.Account, p.Invoice}
		exact[of] = exact[of].Add(p.Billed)
	}
	out := map[NoteOf]attribution.Minor{}
	for of, m := range footParts(exact) {
		k := NoteOf{of.month, of.workspace, of.currency}
		out[k] = attribution.Minor{Amount: out[k].Amount.Add(m.Amount), Decimals: m.Decimals}
	}
	return out, nil
}
