package attribution

import "fmt"

// maxBought bounds the sum of the magnitudes of all lines' GPU time, and so every other sum. In
// microseconds it fits in 63 bits.
const maxBought = 9e15

// buyTime computes the GPU time that every line buys:
//
//   - For machines that it was matched to: its GPU time if stated, else its machine
//     time times their GPUs.
//   - For the unused part of a commitment: its GPU time if stated, else its machine
//     time times the GPUs of the account's machines of its SKU and region, else of the
//     machines of the commitment's other lines, if those all have the same number.
//   - None for unknown machines, for charges without machines and for prepayments.
//
// An implausible quantity counts as not stated, so that one line does not stop the
// rest. Its money is divided as usual, and the line is an exception.
func (r *run) buyTime() {
	per := r.gpusOfCommitments()
	var all uint64
	for i := range r.book.records {
		rec := &r.book.records[i]
		if rec.badQuantity != 0 {
			r.unusable(rec, r.book.texts[rec.badQuantity])
			continue
		}
		if max(magnitude(rec.nodeMs), magnitude(rec.gpuMs)) > maxMs {
			r.unusable(rec, fmt.Sprintf("%d ms of machines and %d ms of GPUs are beyond %d years",
				rec.nodeMs, rec.gpuMs, maxYears))
			continue
		}
		ms, known := rec.gpuMs, true
		switch {
		case rec.basis == byUse && rec.buyer && r.matches[rec.match].method != ByAccount:
			if ms == 0 && rec.nodeMs != 0 {
				ms, known = r.fleet.gpuMs(rec.nodeMs, r.matches[rec.match].descs, rec.charge)
			}
		case rec.basis == byOwner && rec.sold != AddOn:
			if ms == 0 && rec.nodeMs != 0 {
				// 1024 GPUs times maxMs is far below 64 bits.
				ms = rec.nodeMs * int64(r.gpusPerMachine(rec, per))
				known = magnitude(ms) <= maxMs
			}
		default:
			ms = 0
		}
		switch {
		case !known:
			r.unusable(rec, fmt.Sprintf("%d ms of machines with the GPUs that they have are not between 0 and %d years",
				rec.nodeMs, maxYears))
		case all+magnitude(ms) > uint64(maxBought):
			const years = maxBought / hourMs / 8766
			r.unusable(rec, fmt.Sprintf(
				"%d ms of GPUs are more than the lines before it leave of the %d years that can be added up", ms, years))
		default:
			all += magnitude(ms)
			rec.bought = ms
		}
	}
	r.buyers()
}

func (r *run) unusable(rec *record, why string) {
	subject := r.book.texts[rec.issuer] + "/" + r.book.texts[rec.account] + "/" + rec.id
	r.ex.money(QuantityUnusable, subject, why+": the line's quantity counts as not stated", r.book, rec)
}

// same merges two counts of GPUs: 0 is unknown, -1 means that counts differ.
func same(have, gpus int) int {
	if have == 0 || have == gpus {
		return gpus
	}
	return -1
}

type commitKey struct{ issuer, commit name }

// gpusOfCommitments returns the number of GPUs per machine of each commitment's lines, -1 if their
// machines differ.
func (r *run) gpusOfCommitments() map[commitKey]int {
	type use struct {
		commitKey
		match int32
	}
	per, done := map[commitKey]int{}, map[use]bool{}
	for i := range r.book.records {
		rec := &r.book.records[i]
		if rec.commit == 0 || rec.basis != byUse || !rec.buyer || !r.matches[rec.match].buys {
			continue
		}
		k := commitKey{rec.issuer, rec.commit}
		if u := (use{k, rec.match}); !done[u] {
			done[u] = true
			for _, d := range r.matches[rec.match].descs {
				per[k] = same(per[k], r.fleet.descs[d].counted())
			}
		}
	}
	return per
}

// gpusPerMachine returns the GPUs of a machine of an unused commitment, 0 if unknown.
func (r *run) gpusPerMachine(rec *record, per map[commitKey]int) int {
	pool := 0
	if rec.sku != 0 {
		region := r.book.texts[rec.region]
		for _, i := range r.fleet.bySKU[[2]string{r.book.texts[rec.account], r.book.texts[rec.sku]}] {
			if d := &r.fleet.descs[i]; (region == "" || d.Region == region) && !d.Service.Intersect(rec.charge).Empty() {
				pool = same(pool, d.counted())
			}
		}
	}
	if pool > 0 {
		return pool
	}
	return max(0, per[commitKey{rec.issuer, rec.commit}])
}
