package costs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/owned"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Claims are failed machine hours of a month that suppliers were paid for, against the credits that they gave.
//
// What is claimed is what the hours cost: the effective cost of the allocations of component failed, which has the
// part of what was paid upfront. Lines that neither name a machine nor buy time are not claimed, such as network and
// support, nor is tax: they only follow the hours. Hours that a workload held although the machine had failed are
// charged to the workload, and are not in it. No contract says how much of the price a supplier credits: a claim is the
// whole price.
type Claims struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Methods  Methods         `json:"methods"`
	// Books says who closed the month. Costs are then as closed; credits and faults are as of the position.
	Books *ClosedBooks `json:"books,omitempty"`
	// Maintenance: hours in maintenance are claimed too.
	Maintenance bool            `json:"maintenance_claimed"`
	Claims      []Claim         `json:"claims"`   // by issuer, account, machine and currency
	Accounts    []AccountClaims `json:"accounts"` // by issuer, account and currency
	Credits     []ClaimCredit   `json:"credits"`  // by issuer, account and line
	registry.Completeness
}

// Claim is what a supplier is asked for about one machine.
type Claim struct {
	Issuer  string `json:"InvoiceIssuerName"`
	Account string `json:"BillingAccountId"`
	// Resource is the machine on the bill. It is empty for lines that name no machine of the fleet: then the claim is about
	// the machines of the account in the cluster that no line names.
	Resource string   `json:"ResourceId,omitempty"`
	Cluster  string   `json:"cluster"`
	Nodes    []string `json:"nodes"` // machines of the claim
	Currency string   `json:"currency"`
	// FailedMs and MaintenanceMs are the GPU time that was paid for, in milliseconds.
	FailedMs      int64 `json:"failed_gpu_ms"`
	MaintenanceMs int64 `json:"maintenance_gpu_ms"`
	// What the time cost, without tax and credits. The billed cost does not have what was paid upfront.
	FailedBilled         attribution.Amount `json:"failed_billed"`
	FailedEffective      attribution.Amount `json:"failed_effective"`
	MaintenanceBilled    attribution.Amount `json:"maintenance_billed"`
	MaintenanceEffective attribution.Amount `json:"maintenance_effective"`
	Claimed              attribution.Amount `json:"claimed"`  // effective
	Credited             attribution.Amount `json:"credited"` // by lines that name the machine
	// Open is what is still to be claimed: Claimed less Credited, at least 0.
	Open      attribution.Amount   `json:"open"`
	Lines     []string             `json:"lines"` // LineId of what was paid, sorted
	Downtimes []inventory.Downtime `json:"downtimes"`
	Faults    []inventory.Fault    `json:"faults"`
}

// AccountClaims sums up claims of a billing account.
type AccountClaims struct {
	Issuer   string             `json:"InvoiceIssuerName"`
	Account  string             `json:"BillingAccountId"`
	Currency string             `json:"currency"`
	FailedMs int64              `json:"failed_gpu_ms"`
	Claimed  attribution.Amount `json:"claimed"`
	Credited attribution.Amount `json:"credited"` // by lines that name a machine of a claim
	// CreditedOther is what other credits of the account come to. Nothing on a bill says what a credit is for, so read
	// their descriptions.
	CreditedOther attribution.Amount `json:"credited_other"`
	// Open is the sum of what is open of each machine, and OpenLeast is that less CreditedOther, at least 0.
	Open      attribution.Amount `json:"open"`
	OpenLeast attribution.Amount `json:"open_least"`
}

// ClaimCredit is a line of category Credit whose charge period is in the month.
type ClaimCredit struct {
	Issuer       string             `json:"InvoiceIssuerName"`
	Account      string             `json:"BillingAccountId"`
	Line         string             `json:"line"`
	Invoice      string             `json:"InvoiceId"`
	Resource     string             `json:"ResourceId"`
	Billed       string             `json:"billed_in"` // billing month
	ChargePeriod domain.Interval    `json:"charge_period"`
	Description  string             `json:"ChargeDescription"`
	Currency     string             `json:"currency"`
	Amount       attribution.Amount `json:"amount"` // what was credited, positive
	// Counted: it names the machine of a claim.
	Counted bool `json:"counted"`
}

type claimKey struct{ issuer, account, resource, cluster, currency string }

// NewClaims returns the claims of a month, from its division. With maintenance, hours in maintenance are claimed too.
func NewClaims(view projections.View, d *Division, maintenance bool) (*Claims, error) {
	fleet, err := readCostFleet(view, d.Month)
	if err != nil {
		return nil, err
	}
	c := &Claims{
		Position: view.Position().String(), Month: d.Month, Methods: d.Methods, Books: d.Books(), Maintenance: maintenance,
		Claims: []Claim{}, Accounts: []AccountClaims{}, Credits: []ClaimCredit{}, Completeness: d.completeness,
	}
	known := fleet.machines()
	sums := map[claimKey]*Claim{}
	err = d.each(func(p *part) error {
		a := p.allocation
		failed := a.Component == attribution.Failed
		if !failed && a.Component != attribution.Maintenance || !claimable(p) {
			return nil
		}
		k := claimKey{a.Line.Issuer, a.Line.Account, a.Line.Resource, a.Cluster, a.Line.Currency}
		if len(known[[2]string{k.account, k.resource}]) == 0 {
			if a.BoughtMs == 0 {
				return nil // network, support and the like are not machine time, although they follow it
			}
			k.resource = ""
		}
		s := sums[k]
		if s == nil {
			s = &Claim{Issuer: k.issuer, Account: k.account, Resource: k.resource, Cluster: k.cluster, Currency: k.currency, Nodes: []string{}}
			sums[k] = s
		}
		if failed {
			s.FailedMs += a.BoughtMs
			s.FailedBilled, s.FailedEffective = s.FailedBilled.Add(a.Billed), s.FailedEffective.Add(a.Effective)
		} else {
			s.MaintenanceMs += a.BoughtMs
			s.MaintenanceBilled, s.MaintenanceEffective = s.MaintenanceBilled.Add(a.Billed), s.MaintenanceEffective.Add(a.Effective)
		}
		if n := len(s.Lines); n == 0 || s.Lines[n-1] != a.Line.ID {
			s.Lines = append(s.Lines, strings.Clone(a.Line.ID))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sums {
		slices.Sort(s.Lines)
		s.Lines = slices.Compact(s.Lines)
		if s.Claimed = s.FailedEffective; maintenance {
			s.Claimed = s.Claimed.Add(s.MaintenanceEffective)
		}
		fleet.blame(s, known, d.Month)
		c.Claims = append(c.Claims, *s)
	}
	slices.SortFunc(c.Claims, func(x, y Claim) int {
		return cmp.Or(strings.Compare(x.Issuer, y.Issuer), strings.Compare(x.Account, y.Account), strings.Compare(x.Cluster, y.Cluster),
			strings.Compare(x.Resource, y.Resource), strings.Compare(x.Currency, y.Currency))
	})
	if err := c.credit(view); err != nil {
		return nil, err
	}
	c.sum()
	return c, nil
}

// claimable reports whether a supplier was paid for what an allocation is a part of. Nothing is claimed of tax, which
// follows its charges, of owned hardware, and of an estimate.
func claimable(p *part) bool {
	l := p.allocation.Line
	return l.Category != "Credit" && l.Category != "Tax" && l.Class != attribution.Credit && l.Class != attribution.Tax &&
		!isAccrual(l.Invoice) && p.charge().Column(owned.ColumnAsset) == ""
}

// machines returns the machines that a resource on the bill of an account names.
func (c *costFleet) machines() map[[2]string][]inventory.NodeName {
	out := map[[2]string][]inventory.NodeName{}
	add := func(account, resource string, n *attribution.Node) {
		k, name := [2]string{account, resource}, inventory.NodeName{Cluster: n.Cluster, Node: n.Node}
		if resource != "" && !slices.Contains(out[k], name) {
			out[k] = append(out[k], name)
		}
	}
	for i := range c.nodes {
		add(c.nodes[i].Account, c.nodes[i].Resource, &c.nodes[i])
	}
	for _, o := range c.also {
		add(o.Account, o.Resource, &c.nodes[o.Node])
	}
	return out
}

// blame adds the machines of a claim, and what happened to them in a month.
func (c *costFleet) blame(s *Claim, named map[[2]string][]inventory.NodeName, month domain.Interval) {
	s.Downtimes, s.Faults = []inventory.Downtime{}, []inventory.Fault{}
	names := named[[2]string{s.Account, s.Resource}]
	if s.Resource == "" {
		names = nil
		for i := range c.nodes {
			n := &c.nodes[i]
			name := inventory.NodeName{Cluster: n.Cluster, Node: n.Node}
			if n.Account == s.Account && n.Cluster == s.Cluster && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		n := c.fleet.Index[name]
		if n == nil || name.Cluster != s.Cluster {
			continue
		}
		down, faults := n.Downtimes(month), n.Faults(month)
		if s.Resource == "" && len(down) == 0 {
			continue
		}
		s.Nodes = append(s.Nodes, name.Node)
		s.Downtimes, s.Faults = append(s.Downtimes, down...), append(s.Faults, faults...)
	}
}

// credit adds the credits of the month. A supplier credits late: those of later billing months count, by their charge
// period.
func (c *Claims) credit(view projections.View) error {
	months, err := BillingMonths(view)
	if err != nil {
		return err
	}
	type machine struct{ issuer, account, resource, currency string }
	claims := map[machine]*Claim{} // the first of each
	for i := range c.Claims {
		s := &c.Claims[i]
		if of := (machine{s.Issuer, s.Account, s.Resource, s.Currency}); s.Resource != "" && claims[of] == nil {
			claims[of] = s
		}
	}
	for _, month := range months {
		if month.From < c.Month.From {
			continue
		}
		err := EachLine(view, month, func(l *LedgerLine) error {
			period := domain.Interval{From: l.ChargePeriodStart, To: l.ChargePeriodEnd}
			if l.ChargeCategory != "Credit" || projections.MonthOf(period) != c.Month || l.Other[owned.ColumnAsset] != "" {
				return nil
			}
			billed, err := attribution.AmountOf(l.BilledCost)
			if err != nil {
				return nil //nolint:nilerr // costs list the line
			}
			x := ClaimCredit{
				Issuer: l.InvoiceIssuerName, Account: l.BillingAccountID, Line: l.LineID, Invoice: l.InvoiceID, Resource: l.ResourceID,
				Billed: monthText(month), ChargePeriod: period, Description: l.ChargeDescription, Currency: l.BillingCurrency, Amount: billed.Neg(),
			}
			if s := claims[machine{x.Issuer, x.Account, x.Resource, x.Currency}]; s != nil {
				x.Counted = true
				s.Credited = s.Credited.Add(x.Amount)
			}
			c.Credits = append(c.Credits, x)
			return nil
		})
		if err != nil {
			return fmt.Errorf("credits billed in %s: %w", monthText(month), err)
		}
	}
	slices.SortStableFunc(c.Credits, func(x, y ClaimCredit) int {
		return cmp.Or(strings.Compare(x.Issuer, y.Issuer), strings.Compare(x.Account, y.Account), strings.Compare(x.Line, y.Line))
	})
	return nil
}

// sum adds what is open, and the sums of accounts.
func (c *Claims) sum() {
	least := func(a attribution.Amount) attribution.Amount {
		if a.Sign() < 0 {
			return attribution.Amount{}
		}
		return a
	}
	at := func(issuer, account, currency string) *AccountClaims {
		i := slices.IndexFunc(c.Accounts, func(a AccountClaims) bool {
			return a.Issuer == issuer && a.Account == account && a.Currency == currency
		})
		if i < 0 {
			i = len(c.Accounts)
			c.Accounts = append(c.Accounts, AccountClaims{Issuer: issuer, Account: account, Currency: currency})
		}
		return &c.Accounts[i]
	}
	for i := range c.Claims {
		s := &c.Claims[i]
		s.Open = least(s.Claimed.Sub(s.Credited))
		a := at(s.Issuer, s.Account, s.Currency)
		a.FailedMs += s.FailedMs
		a.Claimed, a.Credited, a.Open = a.Claimed.Add(s.Claimed), a.Credited.Add(s.Credited), a.Open.Add(s.Open)
	}
	for i := range c.Credits {
		if x := &c.Credits[i]; !x.Counted {
			a := at(x.Issuer, x.Account, x.Currency)
			a.CreditedOther = a.CreditedOther.Add(x.Amount)
		}
	}
	for i := range c.Accounts {
		a := &c.Accounts[i]
		a.OpenLeast = least(a.Open.Sub(a.CreditedOther))
	}
	slices.SortFunc(c.Accounts, func(x, y AccountClaims) int {
		return cmp.Or(strings.Compare(x.Issuer, y.Issuer), strings.Compare(x.Account, y.Account), strings.Compare(x.Currency, y.Currency))
	})
}
