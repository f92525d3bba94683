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
	// Least and Most bound a number and its parameters, "" is no bound. Certain
	// numbers take no distribution.
	Least, Most string
	Certain     bool
	OneOf       []string
	Doc         string
}

var (
	region      = Field{Name: "region", Form: Text, Doc: "only there"}
	provider    = Field{Name: "provider", Form: Text, Doc: "only of this supplier"}
	model       = Field{Name: "model", Form: Text, Doc: "only this GPU model, or instance type where demand counts machines"}
	when        = Field{Name: "when", Form: Time, Doc: "from then on; left out: from the start"}
	until       = Field{Name: "until", Form: Time, Doc: "until then; left out: for good"}
	name        = Field{Name: "name", Form: Text, Doc: "names its random numbers: changes of the same name draw the same"}
	probability = Field{Name: "probability", Form: Uncertain, Least: "0", Most: "1", Certain: true, Doc: "that it happens at all"}
	offer       = Field{Name: "offer", Form: Text, Doc: "only the offer with this id"}
	offerKind   = Field{Name: "offer_kind", Form: Text, OneOf: offerKinds(), Doc: "only offers of this kind"}
)

func offerKinds() []string {
	return []string{string(domain.OfferReserved), string(domain.OfferOnDemand), string(domain.OfferSpot), string(domain.OfferCapacityBlock), string(domain.OfferOwned)}
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

// kinds is every kind of change with what it says, for people, and its fields.
var kinds = []struct {
	Kind   Kind
	Doc    string
	Fields []Field
	// Either: exactly one of these fields is given, of each group.
	Either [][]string
}{
	{DemandGrowth, "demand grows, on top of the growth in the assumptions", []Field{
		region, model, when, until,
		amount("monthly", "-0.5", "1", "growth of each month, 0.02 is two percent"),
		amount("factor", "0", "100", "or: demand is so many times what it was"),
	}, [][]string{{"monthly", "factor"}}},
	{ModelLaunch, "a model is launched: a deployment that was not there", []Field{
		{Name: "deployment", Form: Text, Need: true, Doc: "its name"}, region, {Name: "cluster", Form: Text, Doc: "where it is declared; left out: the first cluster of the region"},
		model, {Name: "class", Form: Text, OneOf: []string{"training", "fine_tuning", "batch", "serving"}, Doc: "left out: serving"},
		need(when), until, need(amount("replicas", "0", "1000000", "how many")),
		{Name: "gpus", Form: Count, Need: true, Least: "1", Most: "64", Doc: "whole GPUs of one replica"}, probability,
	}, nil},
	{DeploymentChange, "a declared deployment gets other replicas, or ends", []Field{
		{Name: "deployment", Form: Text, Need: true, Doc: "as it is declared"}, {Name: "cluster", Form: Text, Doc: "where; left out: where it is declared"},
		when, amount("replicas", "0", "1000000", "from then on"), amount("factor", "0", "100", "or: times the replicas it has"),
		{Name: "removed", Form: Flag, Doc: "or: true, it ends"}, probability,
	}, [][]string{{"replicas", "factor", "removed"}}},
	{EfficiencyChange, "the same work takes fewer GPUs, or more", []Field{
		region, model, when, until, need(amount("factor", "0.01", "100", "work of a GPU, times what it was: 1.25 needs a fifth fewer")), probability,
	}, nil},
	{ProviderOutage, "a region, or a supplier in it, is gone for some hours", []Field{
		region, provider, when, need(amount("duration", "0.25", "2160", "hours")), amount("per_year", "0", "50", "instead of when: outages a year, at random times"), probability,
	}, [][]string{{"when", "per_year"}}},
	{Maintenance, "machines are serviced and are not there meanwhile", []Field{
		{Name: "cluster", Form: Text, Doc: "whose machines"}, region, model, need(when), need(amount("duration", "0.25", "8760", "hours")),
		amount("units", "1", "1000000", "machines"), {Name: "nodes", Form: TextList, Doc: "or: these"}, probability,
	}, [][]string{{"units", "nodes"}, {"cluster", "region"}}},
	{PriceChange, "prices change", []Field{
		provider, region, model, offer, offerKind, when,
		amount("factor", "0", "100", "times what it was, hourly and upfront"), amount("hourly", "0", "1000000", "or: this much an hour"), probability,
	}, [][]string{{"factor", "hourly"}}},
	{NewOffer, "something new is for sale", []Field{
		need(provider), need(region), need(model), need(offer), need(offerKind), {Name: "sku", Form: Text, Doc: "left out: that of the on-demand price"},
		{Name: "gpus", Form: Count, Least: "0", Most: "1024", Doc: "of a unit; left out: those of the pool's machines"}, when, until,
		{Name: "term_months", Form: Count, Most: "120", Doc: "how long a purchase lasts; of owned hardware its life"},
		amount("hourly", "0", "1000000", "price of a unit"), amount("upfront", "0", "1000000000", "price of a unit; of owned hardware the whole system"),
		{Name: "currency", Form: Text, Doc: "left out: that of the assumptions"}, {Name: "guarantees_capacity", Form: Flag, Doc: "whether what it covers is there; otherwise it is a price"},
		amount("lead_time_hours", "0", "26280", "from order to delivery"), {Name: "min_units", Form: Count, Most: "1000000", Doc: "of an order"}, {Name: "max_units", Form: Count, Least: "1", Most: "1000000", Doc: "of an order; left out: no bound"},
		exact("power_kw", "0", "10000", "owned: metered at a unit under load"), exact("pue", "1", "5", "owned: power usage effectiveness"), amount("tariff_kwh", "0", "100", "owned: price of a kWh"),
		exact("space_monthly", "0", "1000000000", "owned, of a unit"), exact("network_monthly", "0", "1000000000", "owned, of a unit"), exact("support_monthly", "0", "1000000000", "owned: maintenance and staff, of a unit"),
		exact("salvage", "0", "1", "owned: share of upfront that is left at the end"), {Name: "citation", Form: Text, Doc: "where the price is from"},
	}, nil},
	{PurchaseMade, "something is bought, whatever is best", []Field{
		need(provider), need(region), need(model), {Name: "commitment", Form: Text, Need: true, Doc: "its name"}, offerKind,
		{Name: "sku", Form: Text, Doc: "left out: that of the on-demand price"}, {Name: "gpus", Form: Count, Least: "0", Most: "1024", Doc: "of a unit; left out: those of the pool's machines"},
		need(exact("units", "1", "1000000", "how many")), need(when), {Name: "term_months", Form: Count, Need: true, Least: "1", Most: "120", Doc: "how long"},
		exact("hourly", "0", "1000000", "price of a unit"), exact("upfront", "0", "1000000000", "price of a unit"),
		{Name: "currency", Form: Text, Doc: "left out: that of the assumptions"}, {Name: "guarantees_capacity", Form: Flag, Doc: "whether what it covers is there; otherwise it is a price"},
	}, nil},
	{Renewal, "a commitment goes on at a price, or ends", []Field{
		{Name: "commitment", Form: Text, Need: true, Doc: "as it is in the log"}, {Name: "term_months", Form: Count, Most: "120", Doc: "how long it goes on"},
		exact("units", "1", "1000000", "left out: as many as before"), amount("hourly", "0", "1000000", "price of a unit"), amount("factor", "0", "100", "or: times the price that it had"),
		{Name: "end", Form: Flag, Doc: "or: true, it is not renewed"},
	}, [][]string{{"hourly", "factor", "end"}}},
	{FailureRate, "machines fail more, or less: spare ones keep the demand's service level, 99 % where it has none", []Field{
		region, model, need(amount("per_gpu_hour", "0", "1", "failures of a GPU and hour; one interruption in 50,000 GPU-hours is 0.00002")), need(amount("repair_hours", "0", "8760", "until a machine is back; it counts as down half of the time at most")),
		{Name: "gpus", Form: Count, Most: "1024", Doc: "that fail together; left out: those of a machine"},
	}, nil},
	{SpotInterruption, "spot is taken back more often, or there is less", []Field{
		region, model, amount("per_unit_hour", "0", "10", "interruptions of a unit and hour"), amount("lost_hours", "0", "100", "of each: restart and lost work; left out: 0.25"),
		amount("available", "0", "1000000", "units that can be had"),
	}, nil},
	{LeadTime, "what is ordered comes later, or sooner: purchases begin in time for the median, and trials are late by what is beyond it", []Field{
		provider, region, model, offer, offerKind, need(amount("hours", "0", "26280", "from order to delivery")),
	}, nil},
	{QuotaChange, "a supplier allows more on demand, or less", []Field{
		need(provider), need(region), model, {Name: "account", Form: Text, Doc: "whose quota; left out: those there are"}, when, need(amount("limit_gpus", "0", "100000000", "from then on")), probability,
	}, nil},
	{FXChange, "an exchange rate changes", []Field{
		{Name: "base", Form: Text, Need: true, Doc: "the currency, ISO 4217"}, {Name: "quote", Form: Text, Need: true, Doc: "in which the rate is, ISO 4217"}, when,
		need(amount("rate", "0.000001", "1000000", "what one unit of base is worth in quote")),
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

// Fields returns what a kind of change says and its fields.
func Fields(k Kind) (doc string, fields []Field) {
	for i := range kinds {
		if kinds[i].Kind == k {
			return kinds[i].Doc, append([]Field{name}, kinds[i].Fields...)
		}
	}
	return "", nil
}

// Schema returns the JSON Schema (2020-12) of scenario files, made from what
// [Parse] holds them to.
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
		object([]string{"triangular"}, m{"triangular": m{"description": "least, most likely, most", "type": "array", "items": m{"$ref": "#/$defs/decimal"}, "minItems": 3, "maxItems": 3}}),
		object([]string{"lognormal"}, m{"lognormal": object([]string{"p50", "p95"}, m{"p50": m{"$ref": "#/$defs/decimal"}, "p95": m{"$ref": "#/$defs/decimal"}})}),
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
		"payment_options": described(list(words(NoUpfront, PartialUpfront, AllUpfront), 3), "the ways of paying for a commitment that are allowed; left out: all of them"),
		"spot_share":      m{"$ref": "#/$defs/decimal"},
		"posture": object([]string{"kind", "share"}, m{
			"kind": words("active_active", "active_passive"), "share": m{"$ref": "#/$defs/decimal"}, "demands": list(text, maxEntries), "standby": text, "cold_price_share": m{"$ref": "#/$defs/decimal"},
		}),
		"overflow": list(object([]string{"from", "to"}, m{"from": text, "to": text, "round_trip_ms": whole(0, 10_000), "hourly": m{"$ref": "#/$defs/decimal"}, "overhead": m{"$ref": "#/$defs/decimal"}}), maxEntries),
	}), maxAlternatives)
	alternatives["minItems"] = 1
	doc := object([]string{"apiVersion", "kind", "name", "alternatives"}, m{
		"apiVersion": m{"const": APIVersion}, "kind": m{"const": FileKind}, "name": text, "question": text,
		"base": object(nil, m{
			"position": m{"type": "string", "description": `a position of the log, or "now"`}, "at": m{"$ref": "#/$defs/time"}, "region": text,
			"instance": m{"type": "string", "description": "a file with an instance, instead of the log"},
		}),
		"horizon": m{"type": []string{"string", "integer"}, "description": "months", "examples": []any{"24 months", 24}},
		"seed":    whole(0, maxSeed), "runs": whole(1, MaxRuns), "scenario_set": described(whole(1, maxSet), "how many weighted scenarios the trials are reduced to, to buy for; left out: 32"),
		"assumptions": object(nil, m{
			"lookback_weeks": whole(1, 520), "monthly_growth": m{"$ref": "#/$defs/decimal"}, "annual_rate": m{"$ref": "#/$defs/decimal"}, "salvage": m{"$ref": "#/$defs/decimal"},
			"spot_overhead": m{"$ref": "#/$defs/decimal"}, "shortage_factor": m{"$ref": "#/$defs/decimal"}, "currency": m{"type": "string", "pattern": "^[A-Z]{3}$"},
		}),
		"changes": changes, "alternatives": alternatives,
		"constraints": described(object(nil, m{
			"max_unserved": m{"$ref": "#/$defs/decimal"}, "max_spot_share": m{"$ref": "#/$defs/decimal"},
			"budgets": described(list(object([]string{"amount", "basis", "from", "to"}, m{
				"id": text, "amount": m{"$ref": "#/$defs/decimal"}, "basis": words("cash", "accrual"), "from": m{"$ref": "#/$defs/time"}, "to": m{"$ref": "#/$defs/time"},
			}), maxEntries), "nominal spending from a month to another, in expectation over the weighted scenarios: a scenario or trial of more demand may exceed it, and trials are not judged by it"),
		}), "bind the purchases of every alternative, in expectation over the weighted scenarios; of the first two the answer says in which share of the trials they are kept"),
		"report": reports,
	})
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "A what-if scenario"
	doc["$defs"] = m{
		"decimal": decimals, "number": number, "change": m{"oneOf": anyChange},
		"time": m{"type": "string", "description": "RFC 3339 with a zone, a date or a month in UTC", "pattern": `^[0-9]{4}-[0-9]{2}(-[0-9]{2}(T.+)?)?$`, "examples": []string{"2026-09", "2026-09-01", "2026-09-01T06:00:00Z"}},
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
