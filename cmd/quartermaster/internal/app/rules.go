package app

import (
	"context"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// CheckRules returns which lines of a month's bills each mapping rule takes. The mapping rules of d, which may be nil,
// count as if they were in force in the month. Nothing is recorded.
func (c *Caller) CheckRules(ctx context.Context, at At, month domain.Interval, d *Declarations) (ans *costs.RulesCheck, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		var proposed []domain.Envelope
		if d != nil {
			if err := resolve(v, d.envs, d.refs); err != nil {
				return err
			}
			for i := range d.envs {
				if _, ok := d.envs[i].Event.(*domain.MappingRuleSet); ok {
					proposed = append(proposed, d.envs[i])
				}
			}
			if len(proposed) == 0 {
				return invalid("file", "it declares no mapping_rules to check")
			}
		}
		ans, err = costs.CheckRules(v, month, proposed)
		return err
	})
	return ans, err
}
