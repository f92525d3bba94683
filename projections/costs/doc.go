// Package costs reads the ledger and the fleet and attributes a month of bills.
//
// The ledger is the last statement of each billing line, and the invoices, commitments,
// policies and mapping rules that their signers had the right to make. [NewReport] passes
// the ledger and the metered hours of the machines to package attribution, which divides
// each line exactly. [EachAllocation] yields the parts, [Explain] shows how one part came
// about, [Compare] says why two reports of a month differ, and [NewWaterfall] explains a
// workspace's month step by step, beside the month before.
//
// What always holds: the allocations of a line sum exactly to the line; the groups of any
// grouping add up to the totals, exactly and in minor units; and a report states what it
// may lack.
package costs
