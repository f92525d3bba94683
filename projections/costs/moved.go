package costs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// Kept is the part of a stored answer that [Compare] needs: the fields of a [Report] with those
// names, written by any program version.
type Kept struct {
	Position  string          `json:"position"`
	Month     domain.Interval `json:"period"`
	Workspace string          `json:"workspace"`
	Methods   Methods         `json:"methods"`
	Groups    []struct {
		Key       map[Dimension]string `json:"key"`
		Currency  string               `json:"currency"`
		Billed    attribution.Amount   `json:"billed"`
		Effective attribution.Amount   `json:"effective"`
	} `json:"groups"`
	Totals []struct {
		Currency  string             `json:"currency"`
		Billed    attribution.Amount `json:"billed"`
		Effective attribution.Amount `json:"effective"`
	} `json:"totals"`
}

// Check reports whether an answer can be compared: its groups are by workspace and component, among
// others, and add up to its totals.
func (k *Kept) Check() error {
	if k.Position == "" || k.Methods.Attribution == "" || k.Month != projections.BillingMonth(k.Month.From) {
		return errors.New(`it is not an answer of "quartermaster costs" in JSON: it has no position, methods or period`)
	}
	sums := map[string][2]attribution.Amount{}
	for _, g := range k.Groups {
		for _, d := range []Dimension{ByWorkspace, ByComponent} {
			if _, ok := g.Key[d]; !ok {
				return fmt.Errorf("its groups have no %s: store an answer by workspace and component", d)
			}
		}
		s := sums[g.Currency]
		sums[g.Currency] = [2]attribution.Amount{s[0].Add(g.Billed), s[1].Add(g.Effective)}
	}
	for _, t := range k.Totals {
		if sums[t.Currency] != [2]attribution.Amount{t.Billed, t.Effective} {
			return fmt.Errorf("its groups do not add up to its total in %s: it was changed, or is incomplete", t.Currency)
		}
	}
	return nil
}

// Moved is one amount before and after.
type Moved struct {
	Before attribution.Amount `json:"before"`
	After  attribution.Amount `json:"after"`
	Moved  attribution.Amount `json:"moved"` // After less Before
}

func (m *Moved) add(before, after attribution.Amount) {
	m.Before, m.After = m.Before.Add(before), m.After.Add(after)
	m.Moved = m.After.Sub(m.Before)
}

// Move is what one workspace was charged for one component, before and after.
type Move struct {
	Workspace string `json:"workspace"`
	Component string `json:"component"`
	Currency  string `json:"currency"`
	Billed    Moved  `json:"billed"`
	Effective Moved  `json:"effective"`
}

// Moves compares two divisions of one month at one position.
type Moves struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	// Workspace is the one that both answers are restricted to, "" for none.
	Workspace string  `json:"workspace,omitempty"`
	Before    Methods `json:"before"`
	After     Methods `json:"after"`
	Moves     []Move  `json:"moves"`  // of every workspace, component and currency, moved or not
	Totals    []Move  `json:"totals"` // one for each currency: the sums of Moves
}

// Compare returns the differences between a stored answer and a current one for the same month,
// position and workspace, by workspace and component.
func Compare(before *Kept, after *Report) (*Moves, error) {
	if before.Month != after.Month || before.Position != after.Position || before.Workspace != after.Workspace {
		return nil, fmt.Errorf("compare costs of %s at %s for %q with those of %s at %s for %q: want the same",
			monthText(before.Month), before.Position, before.Workspace,
			monthText(after.Month), after.Position, after.Workspace)
	}
	type key struct{ workspace, component, currency string }
	moves, totals := map[key]*Move{}, map[string]*Move{}
	enter := func(k key, sign int, billed, effective attribution.Amount) {
		m, t := moves[k], totals[k.currency]
		if m == nil {
			m = &Move{Workspace: k.workspace, Component: k.component, Currency: k.currency}
			moves[k] = m
		}
		if t == nil {
			t = &Move{Currency: k.currency}
			totals[k.currency] = t
		}
		for _, to := range []*Move{m, t} {
			if sign < 0 {
				to.Billed.add(billed, attribution.Amount{})
				to.Effective.add(effective, attribution.Amount{})
			} else {
				to.Billed.add(attribution.Amount{}, billed)
				to.Effective.add(attribution.Amount{}, effective)
			}
		}
	}
	for _, g := range before.Groups {
		enter(key{g.Key[ByWorkspace], g.Key[ByComponent], g.Currency}, -1, g.Billed, g.Effective)
	}
	for _, g := range after.Groups {
		enter(key{g.Key[ByWorkspace], g.Key[ByComponent], g.Currency}, 1, g.Billed, g.Effective)
	}
	out := &Moves{
		Position: after.Position, Month: after.Month, Workspace: after.Workspace,
		Before: before.Methods, After: after.Methods, Moves: []Move{}, Totals: []Move{},
	}
	for _, m := range moves {
		out.Moves = append(out.Moves, *m)
	}
	slices.SortFunc(out.Moves, func(a, b Move) int {
		return cmp.Or(
			strings.Compare(a.Workspace, b.Workspace),
			strings.Compare(a.Component, b.Component), strings.Compare(a.Currency, b.Currency),
		)
	})
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		out.Totals = append(out.Totals, *totals[currency])
	}
	return out, nil
}
