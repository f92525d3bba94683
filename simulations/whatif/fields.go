package whatif

import (
	"encoding/json"
	"slices"

	"quartermaster/domain"
)

// Form is how a field of a change is written.
type Form string

// The forms of fields.
const (
	Text      Form = "text"
	TextList  Form = "list of text"
	Time      Form = "time"
	Count     Form = "whole number"
	Flag      Form = "true or false"
	Uncertain Form = "number" // or a distribution
)

// Field is a field of a kind of change.
type Field struct {
	Name string
	Form Form
	Need bool
	// Least and Most bound a number and its parameters; "" means no bound. Certain numbers take no
	// distribution.
	Least, Most string
	Certain     bool
	OneOf       []string
	Doc         string
}

var (
	region   = Field{Name: "region", Form: Text, Doc: "region to which the change applies"}
	provider = Field{Name: "provider", Form: Text, Doc: "supplier to which the change applies"}
	model    = Field{
		Name: "model", Form: Text,
		Doc: "GPU model to which the change applies, or instance type where demand counts machines",
	}
	when  = Field{Name: "when", Form: Time, Doc: "start of the change; default: the start of the horizon"}
	until = Field{Name: "until", Form: Time, Doc: "end of the change; default: permanent"}
	name  = Field{
		Name: "name", Form: Text, Doc: "name of its random numbers: changes with the same name draw the same numbers",
	}
	probability = Field{
		Name: "probability", Form: Uncertain, Least: "0", Most: "1", Certain: true, Doc: "probability that it happens",
	}
	offer     = Field{Name: "offer", Form: Text, Doc: "id of the offer to which the change applies"}
	offerKind = Field{Name: "offer_kind", Form: Text, OneOf: offerKinds(), Doc: "kind of the offers to which the change applies"}
)

func offerKinds() []string {
	return []string{string(domain.OfferReserved), string(domain.OfferOnDemand), string(domain.OfferSpot),
		string(domain.OfferCapacityBlock), string(domain.OfferOwned)}
}

func need(f Field) Field {
	f.Need = true
	return f
}

func amount(name, least, most, doc string) Field {
	return Field{Name: name, Form: Uncertain, Least: least, Most: most, Doc: doc}
}

func exact(name, least, most, doc string) Field {
	return Field{Name: name, Form: Uncertain, Least: least, Most: most, Doc: doc, Certain: true}
}

// kinds lists every kind of change with its description for people and its fields.
var kinds = []struct {
	Kind   Kind
	Doc    string
	Fields []Field
	// Either: of each group exactly one field is given.
	Either [][]string
}{
	{DemandGrowth, "demand grows, in addition to the growth in the assumptions", []Field{
		region, model, when, until,
		amount("monthly", "-0.5", "1", "monthly growth, 0.02 is two percent"),
		amount("factor", "0", "100", "or: factor of the previous demand"),
	}, [][]string{{"monthly", "factor"}}},
	{ModelLaunch, "a model is launched as a new deployment", []Field{
		{Name: "deployment", Form: Text, Need: true, Doc: "its name"}, region,
		{Name: "cluster", Form: Text, Doc: "cluster in which it is declared; default: the first cluster of the region"},
		model, {Name: "class", Form: Text, OneOf: []string{"training", "fine_tuning", "batch", "serving"},
			Doc: "default: serving"},
		need(when), until, need(amount("replicas", "0", "1000000", "how many")),
		{Name: "gpus", Form: Count, Need: true, Least: "1", Most: "64", Doc: "whole GPUs of one replica"}, probability,
	}, nil},
	{DeploymentChange, "a declared deployment changes its number of replicas, or ends", []Field{
		{Name: "deployment", Form: Text, Need: true, Doc: "as it is declared"},
		{Name: "cluster", Form: Text, Doc: "its cluster; default: the one in which it is declared"},
		when, amount("replicas", "0", "1000000", "new number of replicas"),
		amount("factor", "0", "100", "or: factor of the current replicas"),
		{Name: "removed", Form: Flag, Doc: "or: true if it ends"}, probability,
	}, [][]string{{"replicas", "factor", "removed"}}},
	{EfficiencyChange, "the same work takes fewer or more GPUs", []Field{
		region, model, when, until, need(amount("factor", "0.01", "100",
			"factor of the work per GPU: 1.25 needs a fifth fewer GPUs")), probability,
	}, nil},
	{ProviderOutage, "a region, or a supplier in it, is unavailable for some hours", []Field{
		region, provider, when, need(amount("duration", "0.25", "2160", "hours")),
		amount("per_year", "0", "50", "instead of when: outages a year, at random times"), probability,
	}, [][]string{{"when", "per_year"}}},
	{Maintenance, "machines are unavailable during maintenance", []Field{
		{Name: "cluster", Form: Text, Doc: "cluster of the machines"}, region, model, need(when),
		need(amount("duration", "0.25", "8760", "hours")),
		amount("units", "1", "1000000", "machines"), {Name: "nodes", Form: TextList, Doc: "or: these"}, probability,
	}, [][]string{{"units", "nodes"}, {"cluster", "region"}}},
	{PriceChange, "prices change", []Field{
		provider, region, model, offer, offerKind, when,
		amount("factor", "0", "100", "factor of the previous price, hourly and upfront"),
		amount("hourly", "0", "1000000", "or: new hourly price"), probability,
	}, [][]string{{"factor", "hourly"}}},
	{NewOffer, "a new offer", []Field{
		need(provider), need(region), need(model), need(offer), need(offerKind),
		{Name: "sku", Form: Text, Doc: "default: that of the on-demand price"},
		{Name: "gpus", Form: Count, Least: "0", Most: "1024",
			Doc: "per unit; default: those of the pool's machines"}, when, until,
		{Name: "term_months", Form: Count, Most: "120", Doc: "term of a purchase; of owned hardware its lifetime"},
		amount("hourly", "0", "1000000", "price of a unit"),
		amount("upfront", "0", "1000000000", "price of a unit; of owned hardware the whole system"),
		{Name: "currency", Form: Text, Doc: "default: that of the assumptions"},
		{Name: "guarantees_capacity", Form: Flag,
			Doc: "true if it guarantees capacity; false for a discount only"},
		amount("lead_time_hours", "0", "26280", "from order to delivery"),
		{Name: "min_units", Form: Count, Most: "1000000", Doc: "per order"},
		{Name: "max_units", Form: Count, Least: "1", Most: "1000000", Doc: "per order; default: no limit"},
		exact("power_kw", "0", "10000", "owned: metered at a unit under load"),
		exact("pue", "1", "5", "owned: power usage effectiveness"),
		amount("tariff_kwh", "0", "100", "owned: price of a kWh"),
		exact("space_monthly", "0", "1000000000", "owned: cost per unit"),
		exact("network_monthly", "0", "1000000000", "owned: cost per unit"),
		exact("support_monthly", "0", "1000000000", "owned: maintenance and staff per unit"),
		exact("salvage", "0", "1", "owned: residual value as a share of upfront"),
		{Name: "citation", Form: Text, Doc: "source of the price"},
	}, nil},
	{PurchaseMade, "a fixed purchase, whether or not it is optimal", []Field{
		need(provider), need(region), need(model), {Name: "commitment", Form: Text, Need: true, Doc: "its name"}, offerKind,
		{Name: "sku", Form: Text, Doc: "default: that of the on-demand price"},
		{Name: "gpus", Form: Count, Least: "0", Most: "1024",
			Doc: "per unit; default: those of the pool's machines"},
		need(exact("units", "1", "1000000", "how many")), need(when),
		{Name: "term_months", Form: Count, Need: true, Least: "1", Most: "120", Doc: "length of the term"},
		exact("hourly", "0", "1000000", "price of a unit"), exact("upfront", "0", "1000000000", "price of a unit"),
		{Name: "currency", Form: Text, Doc: "default: that of the assumptions"},
		{Name: "guarantees_capacity", Form: Flag,
			Doc: "true if it guarantees capacity; false for a discount only"},
	}, nil},
	{Renewal, "a commitment is renewed at a price, or ends", []Field{
		{Name: "commitment", Form: Text, Need: true, Doc: "name in the log"},
		{Name: "term_months", Form: Count, Most: "120", Doc: "length of the renewal"},
		exact("units", "1", "1000000", "default: as many as before"),
		amount("hourly", "0", "1000000", "price of a unit"),
		amount("factor", "0", "100", "or: factor of the previous price"),
		{Name: "end", Form: Flag, Doc: "or: true if it is not renewed"},
	}, [][]string{{"hourly", "factor", "end"}}},
	{FailureRate, "machines fail more or less often: spare machines keep the demand's service level, 99 % by default", []Field{
		region, model, need(amount("per_gpu_hour", "0", "1",
			"failures per GPU-hour; one interruption in 50,000 GPU-hours is 0.00002")),
		need(amount("repair_hours", "0", "8760",
			"time until a machine is back; a machine counts as down at most half of the time")),
		{Name: "gpus", Form: Count, Most: "1024", Doc: "GPUs that fail together; default: those of a machine"},
	}, nil},
	{SpotInterruption, "spot is interrupted more or less often, or its availability changes", []Field{
		region, model, amount("per_unit_hour", "0", "10", "interruptions per unit-hour"),
		amount("lost_hours", "0", "100", "lost per interruption: restart and lost work; default: 0.25"),
		amount("available", "0", "1000000", "available units"),
	}, nil},
	{LeadTime, "deliveries take longer or shorter: purchases are ordered for the median, and trials are late by " +
		"the excess over it", []Field{
		provider, region, model, offer, offerKind, need(amount("hours", "0", "26280", "from order to delivery")),
	}, nil},
	{QuotaChange, "a supplier changes its on-demand quota", []Field{
		need(provider), need(region), model,
		{Name: "account", Form: Text, Doc: "account of the quota; required if several quotas match"}, when,
		need(amount("limit_gpus", "0", "100000000", "new limit")), probability,
	}, nil},
	{FXChange, "an exchange rate changes", []Field{
		{Name: "base", Form: Text, Need: true, Doc: "the currency, ISO 4217"},
		{Name: "quote", Form: Text, Need: true, Doc: "the currency in which the rate is quoted, ISO 4217"}, when,
		need(amount("rate", "0.000001", "1000000", "value of one unit of base in quote")),
	}, nil},
}

// Kinds returns every kind of change, in the order of the manual.
func Kinds() []Kind {
	out := make([]Kind, len(kinds))
	for i := range kinds {
		out[i] = kinds[i].Kind
	}
	return out
}

// Fields returns the description and the fields of a kind of change.
func Fields(k Kind) (doc string, fields []Field) {
	for i := range kinds {
		if kinds[i].Kind == k {
			return kinds[i].Doc, append([]Field{name}, kinds[i].Fields...)
		}
	}
	return "", nil
}

// Schema returns the JSON Schema (2020-12) of scenario files, made from the rules of [Parse].
func Schema() ([]byte, error) {
	type m = map[string]any
	decimals := m{"type": []string{"number", "string"}, "pattern": `^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`}
	text := m{"type": "string", "minLength": 1, "maxLength": maxText}
	object := func(need []string, properties m) m {
		o := m{"type": "object", "additionalProperties": false, "properties": properties}
		if len(need) > 0 {
			o["required"] = need
		}
		return o
	}
	number := m{"description": "a number, or a distribution of it", "oneOf": []any{
		m{"$ref": "#/$defs/decimal"},
		object([]string{"fixed"}, m{"fixed": m{"$ref": "#/$defs/decimal"}}),
		object([]string{"triangular"}, m{"triangular": m{"description": "least, most likely, most", "type": "array",
			"items": m{"$ref": "#/$defs/decimal"}, "minItems": 3, "maxItems": 3}}),
		object([]string{"lognormal"}, m{"lognormal": object([]string{"p50", "p95"},
			m{"p50": m{"$ref": "#/$defs/decimal"}, "p95": m{"$ref": "#/$defs/decimal"}})}),
		object([]string{"poisson"}, m{"poisson": m{"description": "the mean", "$ref": "#/$defs/decimal"}}),
	}}
	var anyChange []any
	for i := range kinds {
		k := &kinds[i]
		properties := m{"kind": m{"const": k.Kind}}
		need := []string{"kind"}
		for _, f := range append([]Field{name}, k.Fields...) {
			var v m
			switch f.Form {
			case Text:
				v = m{"type": "string", "minLength": 1, "maxLength": maxText}
				if len(f.OneOf) > 0 {
					v["enum"] = f.OneOf
				}
			case TextList:
				v = m{"type": "array", "items": text, "minItems": 1, "maxItems": maxEntries}
			case Time:
				v = m{"$ref": "#/$defs/time"}
			case Count:
				v = m{"type": "integer"}
				for word, bound := range map[string]string{"minimum": f.Least, "maximum": f.Most} {
					if bound != "" {
						v[word] = json.Number(bound)
					}
				}
				if f.Least == "" {
					v["minimum"] = 0
				}
			case Flag:
				v = m{"type": "boolean"}
			case Uncertain:
				v = m{"$ref": "#/$defs/number"}
				if f.Certain {
					v = m{"$ref": "#/$defs/decimal"}
				}
			}
			v["description"] = f.Doc
			properties[f.Name] = v
			if f.Need {
				need = append(need, f.Name)
			}
		}
		c := object(need, properties)
		c["description"] = k.Doc
		var all []any
		for _, group := range k.Either {
			var one []any
			for _, f := range group {
				one = append(one, m{"required": []string{f}})
			}
			all = append(all, m{"oneOf": one})
		}
		if all != nil {
			c["allOf"] = all
		}
		anyChange = append(anyChange, c)
	}
	list := func(of any, most int) m { return m{"type": "array", "items": of, "maxItems": most} }
	whole := func(least, most int) m { return m{"type": "integer", "minimum": least, "maximum": most} }
	words := func(of ...string) m { return m{"enum": of} }
	described := func(of m, text string) m {
		of["description"] = text
		return of
	}
	changes := list(m{"$ref": "#/$defs/change"}, maxEntries)
	reports := list(words(Reports()...), len(Reports()))
	reports["uniqueItems"] = true
	alternatives := list(object([]string{"name"}, m{
		"name": text, "changes": changes, "buy": words(BuyBest, BuyNothing),
		"without": list(words(offerKinds()...), len(offerKinds())), "only": list(words(offerKinds()...), len(offerKinds())),
		"payment_options": described(list(words(NoUpfront, PartialUpfront, AllUpfront), 3),
			"allowed payment options of commitments; default: all"),
		"spot_share": m{"$ref": "#/$defs/decimal"},
		"posture": object([]string{"kind", "share"}, m{
			"kind": words("active_active", "active_passive", "multi_provider"), "share": m{"$ref": "#/$defs/decimal"},
			"demands": list(text, maxEntries), "standby": text, "cold_price_share": m{"$ref": "#/$defs/decimal"},
		}),
		"overflow": list(object([]string{"from", "to"},
			m{"from": text, "to": text, "round_trip_ms": whole(0, 10_000), "hourly": m{"$ref": "#/$defs/decimal"},
				"overhead": m{"$ref": "#/$defs/decimal"}}), maxEntries),
	}), maxAlternatives)
	alternatives["minItems"] = 1
	doc := object([]string{"apiVersion", "kind", "name", "alternatives"}, m{
		"apiVersion": m{"const": APIVersion}, "kind": m{"const": FileKind}, "name": text, "question": text,
		"base": object(nil, m{
			"position": m{"type": "string", "description": `a position of the log, or "now"`},
			"at":       m{"$ref": "#/$defs/time"}, "region": text,
			"instance": m{"type": "string", "description": "a file with an instance, instead of the log"},
		}),
		"horizon": m{"type": []string{"string", "integer"}, "description": "months", "examples": []any{"24 months", 24}},
		"seed":    whole(0, maxSeed), "runs": whole(1, MaxRuns),
		"scenario_set": described(whole(1, maxSet),
			"number of weighted scenarios that the trials are reduced to for purchases; default: 32"),
		"assumptions": object(nil, m{
			"lookback_weeks": whole(1, 520), "monthly_growth": m{"$ref": "#/$defs/decimal"},
			"annual_rate": m{"$ref": "#/$defs/decimal"}, "salvage": m{"$ref": "#/$defs/decimal"},
			"spot_overhead": m{"$ref": "#/$defs/decimal"}, "shortage_factor": m{"$ref": "#/$defs/decimal"},
			"currency": m{"type": "string", "pattern": "^[A-Z]{3}$"},
		}),
		"changes": changes, "alternatives": alternatives,
		"constraints": described(object(nil, m{
			"max_unserved": m{"$ref": "#/$defs/decimal"}, "max_spot_share": m{"$ref": "#/$defs/decimal"},
			"budgets": described(list(object([]string{"amount", "basis", "from", "to"}, m{
				"id": text, "amount": m{"$ref": "#/$defs/decimal"}, "basis": words("cash", "accrual"),
				"from": m{"$ref": "#/$defs/time"}, "to": m{"$ref": "#/$defs/time"},
			}), maxEntries),
				"nominal spending between two months, in expectation over the weighted scenarios: a scenario or "+
					"trial with more demand may exceed it, and trials are not judged by it"),
		}), "bind the purchases of every alternative, in expectation over the weighted scenarios; for the first "+
			"two the answer gives the share of the trials that keep them"),
		"report": reports,
	})
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "A what-if scenario"
	doc["$defs"] = m{
		"decimal": decimals, "number": number, "change": m{"oneOf": anyChange},
		"time": m{
			"type": "string", "description": "RFC 3339 with a zone, a date or a month in UTC",
			"pattern":  `^[0-9]{4}-[0-9]{2}(-[0-9]{2}(T.+)?)?$`,
			"examples": []string{"2026-09", "2026-09-01", "2026-09-01T06:00:00Z"},
		},
	}
	return json.MarshalIndent(doc, "", "  ")
}

func fieldNames(fields []Field) []string {
	out := []string{"kind"}
	for _, f := range fields {
		out = append(out, f.Name)
	}
	slices.Sort(out)
	return out
}
