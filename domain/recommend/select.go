package recommend

import (
	"cmp"
	"slices"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// Select keeps the recommendations that keep the rules of the house, as check finds them, and of several that claim the same
// part the one that saves most. The savings of a workspace never exceed what it pays. The others are refused, with the reason.
func Select(e *Estate, made []Recommendation, check func(*Estate, *Recommendation) []Checked) *Advice {
	a := &Advice{Position: e.Figures.Position, At: e.Figures.At, Method: Method, Made: []Recommendation{}, Refused: []Refused{}, Sums: []Sum{}}
	type key struct{ workspace, currency string }
	sums := map[key]*Sum{}
	for _, p := range e.Paid {
		k := key{p.Workspace, p.Amount.Currency}
		if sums[k] == nil {
			sums[k] = &Sum{Workspace: p.Workspace, Currency: p.Amount.Currency}
		}
		sums[k].Paid = sums[k].Paid.Add(p.Amount.Amount)
	}
	order, kinds := slices.Clone(made), domain.RecommendationKinds()
	slices.SortStableFunc(order, func(x, y Recommendation) int {
		return cmp.Or(y.saved().Cmp(x.saved()), cmp.Compare(slices.Index(kinds, x.Kind), slices.Index(kinds, y.Kind)), cmp.Compare(x.ID, y.ID))
	})
	owner := map[string]string{} // who claims a part
	for i := range order {
		r := order[i]
		r.Checked = check(e, &r)
		if r.Checked == nil {
			r.Checked = []Checked{}
		}
		because := ""
		for _, c := range r.Checked {
			if !c.Kept {
				because = "it breaks " + c.Kind + " policy " + c.Policy + ": " + c.Why
				break
			}
		}
		for _, c := range r.Claims {
			if because != "" {
				break
			}
			if other := owner[c.Part]; other != "" {
				because = "recommendation " + other + " is about the same: " + c.Part
			}
		}
		if because == "" && r.Saving != nil {
			s := sums[key{r.Workspace, r.Saving.Currency}]
			switch {
			case s == nil:
				because = "workspace " + r.Workspace + " pays nothing in " + r.Saving.Currency + " that it could save"
			case s.Saved.Add(r.Saving.Amount).GreaterThan(s.Paid):
				because = "workspace " + r.Workspace + " pays less than this and the others would save"
			default:
				s.Saved = s.Saved.Add(r.Saving.Amount)
			}
		}
		if because != "" {
			a.Refused = append(a.Refused, Refused{r, because})
			continue
		}
		for _, c := range r.Claims {
			owner[c.Part] = r.ID
		}
		a.Made = append(a.Made, r)
	}
	for _, s := range sums {
		a.Sums = append(a.Sums, *s)
	}
	slices.SortFunc(a.Sums, func(x, y Sum) int {
		return cmp.Or(cmp.Compare(x.Workspace, y.Workspace), cmp.Compare(x.Currency, y.Currency))
	})
	return a
}

func (r *Recommendation) saved() decimal.Decimal {
	if r.Saving == nil {
		return decimal.Decimal{}
	}
	return r.Saving.Amount
}
