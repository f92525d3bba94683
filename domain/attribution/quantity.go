package attribution

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

const (
	hourMs = int64(domain.Hour / millisecond)

	millisecond = domain.Second / 1000

	// maxMs bounds the time on one line: 31,688 years of one machine.
	maxMs = 1e15

	maxYears = int64(maxMs) / hourMs / 8766
)

// unitMs are the lengths of units of time, by the singular in lower case. Months have no fixed
// length and are not listed.
var unitMs = map[string]int64{
	"s": 1000, "sec": 1000, "second": 1000,
	"min": 60_000, "minute": 60_000,
	"h": hourMs, "hr": hourMs, "hour": hourMs,
	"d": 24 * hourMs, "day": 24 * hourMs,
	"week": 168 * hourMs,
}

// machineUnits count machines, or time of variable length.
var machineUnits = map[string]bool{
	"": true, "each": true, "gpu": true, "instance": true, "machine": true, "month": true,
	"node": true, "server": true, "unit": true, "vm": true, "year": true,
}

// maxBlock bounds the block size of a unit.
const maxBlock = 1_000_000

// unit splits a FOCUS unit into its block size, its last word and the words before it, all in
// singular and lower case: "100 Hours" is 100, "hour", ""; "GPU-Hours" and Oracle's "GPU Per Hour"
// are 1, "hour", "gpu".
func unit(s string) (block int64, word, of string) {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return strings.ContainsRune(" -_*/", r) })
	words = slices.DeleteFunc(words, func(w string) bool { return w == "per" })
	block = 1
	for len(words) > 0 {
		n, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil || n <= 0 || n > maxBlock/block {
			break
		}
		block *= n
		words = words[1:]
	}
	for i, w := range words {
		words[i] = strings.TrimSuffix(w, "s")
		if words[i] == "" {
			words[i] = w // as in "second"
		}
	}
	if len(words) == 0 {
		return block, "", ""
	}
	return block, words[len(words)-1], strings.Join(words[:len(words)-1], " ")
}

// timeOf returns the milliseconds in one of a unit of time, and whether it is GPU time rather than
// machine time. It returns 0 for units that are neither.
func timeOf(s string) (ms int64, gpu bool) {
	block, word, of := unit(s)
	switch of {
	case "", "instance", "machine", "node", "server", "vm", "compute":
	case "gpu", "accelerator":
		gpu = true
	default:
		return 0, false // GB-Hours and the like
	}
	return block * unitMs[word], gpu
}

// countsMachines reports whether a unit may count machines or their time.
func countsMachines(s string) bool {
	if ms, _ := timeOf(s); ms != 0 {
		return true
	}
	_, word, of := unit(s)
	return machineUnits[word] && machineUnits[of]
}

// quantity is one of the two quantities that a line may have. The priced quantity comes first,
// because it is what was bought; for some suppliers the consumed quantity differs.
type quantity struct {
	amount domain.NullDecimal
	unit   string
	column string // column with the supplier's text, if amount is null because the text could not be read
}

var pricingAsWritten, consumedAsWritten = domain.AsWritten("PricingQuantity"), domain.AsWritten("ConsumedQuantity")

func quantities(b *domain.BillingLine) [2]quantity {
	return [2]quantity{
		{b.PricingQuantity, b.PricingUnit, pricingAsWritten},
		{b.ConsumedQuantity, b.ConsumedUnit, consumedAsWritten},
	}
}

// stated reports whether the column of a quantity is filled in.
func (q *quantity) stated(b *domain.BillingLine) bool {
	return q.amount.Valid || b.Other[q.column] != ""
}

func hasTime(b *domain.BillingLine) bool {
	for _, q := range quantities(b) {
		if ms, _ := timeOf(q.unit); ms != 0 && q.stated(b) {
			return true
		}
	}
	return false
}

// boughtTime returns the first quantity that is machine or GPU time, rounded to milliseconds half
// away from zero. If it is implausible, unusable describes it.
func boughtTime(b *domain.BillingLine) (nodeMs, gpuMs int64, unusable string) {
	for _, q := range quantities(b) {
		ms, gpu := timeOf(q.unit)
		if ms == 0 || !q.stated(b) {
			continue
		}
		if !q.amount.Valid {
			return 0, 0, fmt.Sprintf("quantity %.40q %s cannot be used", b.Other[q.column], q.unit)
		}
		d := q.amount.Decimal
		// The magnitude follows from the digits, so that no hostile exponent is expanded.
		if order := int64(d.NumDigits()) + int64(d.Exponent()); order > 15 && !d.IsZero() {
			return 0, 0, fmt.Sprintf("quantity of %d digits %s is beyond %d years", order, q.unit, maxYears)
		} else if order < -15 {
			return 0, 0, ""
		}
		if d = d.Mul(decimal.NewFromInt(ms)).Round(0); d.Abs().Cmp(decimal.NewFromInt(maxMs)) > 0 {
			return 0, 0, fmt.Sprintf("quantity %s %s is beyond %d years", q.amount.Decimal, q.unit, maxYears)
		}
		if gpu {
			return 0, d.IntPart(), ""
		}
		return d.IntPart(), 0, ""
	}
	return 0, 0, ""
}
