package whatif

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// ContractKind is the kind of a file with a contract.
const ContractKind = "Contract"

// ParseContract reads a contract from the tree of a file. The error is [Errors].
func ParseContract(doc *Node) (*instance.Contract, error) {
	r := &reader{}
	e := r.mapping(doc, "", "apiVersion", "kind", "name", "provider", "pool", "region", "class", "offer_kind",
		"term_epochs", "upfront", "hourly", "currency",
		"guarantees_capacity", "covers_per_unit", "from", "to", "lead_time_hours", "min_units", "max_units", "lot",
		"tiers", "ramp", "renews", "notice_days", "citation")
	e.need("apiVersion", "kind", "name", "term_epochs", "hourly", "guarantees_capacity")
	e.word("apiVersion", APIVersion)
	e.word("kind", ContractKind)
	c := &instance.Contract{
		Name: e.text("name"), Provider: e.text("provider"), Pool: e.text("pool"), Region: e.text("region"),
		Class:    e.text("class"),
		Kind:     domain.OfferKind(e.word("offer_kind", string(domain.OfferReserved), string(domain.OfferCapacityBlock))),
		Term:     e.whole("term_epochs", 1, 1200, 1),
		Currency: e.text("currency"), GuaranteesCapacity: e.flag("guarantees_capacity"),
		PerUnit: e.whole("covers_per_unit", 1, 10_000, 0),
		From:    e.instant("from"), To: e.instant("to"), LeadHours: e.whole("lead_time_hours", 0, 1_000_000, 0),
		MinUnits: e.whole("min_units", 0, 1_000_000, 0),
		MaxUnits: e.whole("max_units", 1, 1_000_000, 0), Lot: e.whole("lot", 1, 1_000_000, 0),
		Renews: e.flag("renews"), NoticeDays: e.whole("notice_days", 0, 3660, 0),
		Citation: e.text("citation"),
	}
	c.Upfront, _ = e.decimal("upfront", "0", "")
	c.Hourly, _ = e.decimal("hourly", "0", "")
	if e.has("notice_days") && !c.Renews {
		e.fault("notice_days", "is for a contract that renews; say renews: true, or leave it out")
	}
	nodes, paths := e.list("tiers", maxEntries)
	for i, n := range nodes {
		t := r.mapping(n, paths[i], "units", "upfront", "hourly")
		t.need("units", "hourly")
		x := instance.Tier{Units: t.whole("units", 1, 1_000_000, 1)}
		x.Upfront, _ = t.decimal("upfront", "0", "")
		x.Hourly, _ = t.decimal("hourly", "0", "")
		c.Tiers = append(c.Tiers, x)
	}
	nodes, paths = e.list("ramp", maxEntries)
	for i, n := range nodes {
		s := r.mapping(n, paths[i], "epoch", "permille")
		s.need("epoch", "permille")
		c.Ramp = append(c.Ramp, instance.RampStep{
			Epoch: s.whole("epoch", 0, 1200, 0), Permille: s.whole("permille", 0, 1000, 0),
		})
	}
	if len(r.faults) > 0 {
		return nil, r.faults.sorted()
	}
	return c, nil
}

// ContractFaults maps faults of a contract in an instance to places in the contract's file. Other
// errors are returned unchanged.
func ContractFaults(doc *Node, err error) error {
	var faults *instance.Faults
	if !errors.As(err, &faults) {
		return err
	}
	var out Errors
	for _, f := range faults.List {
		at, path := doc, ""
		for key := range strings.SplitSeq(strings.TrimPrefix(f.Path, "/"), "/") {
			if key == "kind" && at == doc {
				key = "offer_kind"
			}
			next := at.get(key)
			if i, err := strconv.Atoi(key); err == nil && at.Shape == List && i >= 0 && i < len(at.Values) {
				next = at.Values[i]
				path += "[" + key + "]"
			} else if key != "" {
				path = strings.TrimPrefix(path+"."+key, ".")
			}
			if next == nil {
				break
			}
			at = next
		}
		out = append(out, &Error{cmp.Or(at.Line, 1), cmp.Or(at.Column, 1), path, f.Detail})
	}
	return out.sorted()
}
