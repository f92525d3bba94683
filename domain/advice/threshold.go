package advice

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"
)

// Threshold is what a rule uses for a subject.
type Threshold struct {
	Value    decimal.Decimal
	Coverage decimal.Decimal
	Off      bool
	SetBy    string // "default", or workspace/policy
}

// Override is another threshold, as a policy of kind advice_threshold sets it. Empty fields match all.
type Override struct {
	Rule                      RuleID
	Workspace, Cluster, Class string
	Value                     decimal.Decimal
	Coverage                  decimal.NullDecimal // null: the rule's
	Off                       bool
	SetBy                     string
}

// Thresholds are the defaults with overrides.
type Thresholds struct{ overrides []Override }

// NewThresholds checks overrides and returns thresholds with them. Of several that match a subject the one with the most
// fields counts: cluster before class before workspace; then the first.
func NewThresholds(overrides []Override) (*Thresholds, error) {
	for i := range overrides {
		if err := overrides[i].check(); err != nil {
			return nil, err
		}
	}
	t := &Thresholds{slices.Clone(overrides)}
	slices.SortStableFunc(t.overrides, func(a, b Override) int {
		return cmp.Compare(b.rank(), a.rank())
	})
	return t, nil
}

func (o *Override) rank() (n int) {
	for i, set := range []string{o.Workspace, o.Class, o.Cluster} {
		if set != "" {
			n += 1 << i
		}
	}
	return n
}

// check reports an override that means nothing.
func (o *Override) check() error {
	r, known := RuleOf(o.Rule)
	switch {
	case !known:
		return fmt.Errorf("%s: there is no rule %q; \"quartermaster advice rules\" lists them", o.SetBy, o.Rule)
	case o.Off:
		return nil
	case o.Value.IsNegative():
		return fmt.Errorf("%s: a threshold of %s for %s is below 0", o.SetBy, o.Value, o.Rule)
	case r.Unit == Share && o.Value.GreaterThan(decimal.NewFromInt(1)):
		return fmt.Errorf("%s: a threshold of %s for %s is above 1; write 0.45 for 45%%", o.SetBy, o.Value, o.Rule)
	case r.Unit == Chance && o.Value.GreaterThan(decimal.NewFromInt(1)):
		return fmt.Errorf("%s: a threshold of %s for %s is above 1, so everything would be a finding", o.SetBy, o.Value, o.Rule)
	case r.Side == Below && o.Value.IsZero():
		return fmt.Errorf("%s: nothing is below a threshold of 0 for %s; to switch it off write \"off\"", o.SetBy, o.Rule)
	case o.Coverage.Valid && (o.Coverage.Decimal.IsNegative() || o.Coverage.Decimal.GreaterThan(decimal.NewFromInt(1))):
		return fmt.Errorf("%s: a coverage of %s for %s is not from 0 to 1", o.SetBy, o.Coverage.Decimal, o.Rule)
	}
	return nil
}

// CheckOverride reports an override that means nothing, before it is declared.
func CheckOverride(o *Override) error { return o.check() }

// Of returns what a rule uses for a subject of a workspace.
func (t *Thresholds) Of(r *Rule, workspace string, s *Subject) Threshold {
	is := Threshold{Value: r.Threshold, Coverage: r.Coverage, SetBy: "default"}
	if t == nil {
		return is
	}
	for i := range t.overrides {
		o := &t.overrides[i]
		if o.Rule == r.ID && (o.Workspace == "" || o.Workspace == workspace) && (o.Cluster == "" || o.Cluster == s.Cluster) &&
			(o.Class == "" || o.Class == s.Class) {
			is.Value, is.Off, is.SetBy = o.Value, o.Off, o.SetBy
			if o.Coverage.Valid {
				is.Coverage = o.Coverage.Decimal
			}
			return is
		}
	}
	return is
}
