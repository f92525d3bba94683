package costs

import "quartermaster/domain/attribution"

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
