package registry

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// SwitchEntry is a switch of generations with a valid signature.
type SwitchEntry struct {
	domain.GenerationSwitched
	At       domain.Instant `json:"at"`
	Operator string         `json:"operator"`
}

// Switches returns the switches of generations, latest first.
func Switches(view projections.View) ([]SwitchEntry, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	out := []SwitchEntry{}
	if err := view.Scan(projections.Query{Table: projections.TableSwitches}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			v := &h.Versions[i]
			if e, ok := v.Event.(*domain.GenerationSwitched); ok && a.Judge(k, h, i) == "" {
				out = append(out, SwitchEntry{*e, v.Order.Time, v.Signer.Operator})
			}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableSwitches, err)
	}
	slices.SortFunc(out, func(a, b SwitchEntry) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.To, b.To)) })
	return out, nil
}
