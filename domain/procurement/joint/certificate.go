package joint

import (
	"quartermaster/domain/procurement"
)

// Certificate proves a lower bound on the cost of any purchases: the sum of what its parts prove.
// All indices in it are the problem's. Every choice, need, limit and block is in exactly one part,
// and every pool, demand, quota and spend in one block. Connected items are together. A block
// contains both ends of a route, and a pool with its quotas and spends of all epochs. A part
// contains a choice with the blocks that it covers and the limits of which it takes; all choices of
// a group; and a need with the blocks of its pools. A limit that serving takes of (Limit.Serving is
// not nil) has all blocks in its part.
type Certificate struct {
	Parts []Part `json:"parts"`
}

// Part is an independent problem. Its lists are ascending.
type Part struct {
	Blocks  []Block `json:"blocks"`
	Choices []int   `json:"choices,omitempty"`
	Needs   []int   `json:"needs,omitempty"`
	Limits  []int   `json:"limits,omitempty"`

	// Alone proves the bound of a part that is one pool with one demand, as a certificate of the
	// pool that [Problem.Alone] describes. Any other part is proven by Leaves.
	Alone  *procurement.Certificate `json:"alone,omitempty"`
	Cases  []CaseProof              `json:"cases,omitempty"` // that the leaves refer to
	Rounds []Round                  `json:"rounds,omitempty"`
	Leaves []Leaf                   `json:"leaves,omitempty"`
}

// Block is a set of pools and demands that are served together hour by hour. Its lists are
// ascending. A block sees the units of its own demands in a case's slots: slots that are equal to
// it are merged, with the sum of their Hours, and those without any of its demand are left out.
// They ascend by the units of its first demand, then the second and so on. A block with a demand
// that waits (Demand.Window) instead sees all slots, in their order.
type Block struct {
	Pools   []int `json:"pools"`
	Demands []int `json:"demands,omitempty"`
	Quotas  []int `json:"quotas,omitempty"`
	Spends  []int `json:"spends,omitempty"`
}

// One is the whole of which Share.Weight is a part.
const One = 1_000_000_000_000

// Leaf proves a bound on the cost of the purchases of a part that take its Path. A part's bound is
// the smallest of its leaves' bounds. Their paths are exhaustive: there is one leaf with an empty
// path, or all paths begin with a turn at the same choice and units. In the second case the leaves
// with Bought true, without that first turn, are again exhaustive, and so are those with Bought
// false.
//
// # The bound
//
// A leaf states prices, and any prices prove a bound (weak duality). W is Problem.Weight, and all
// amounts are W times their values. Divisions of integers are exact fractions unless a rounding is
// written: ⌊ ⌋ down, ⌈ ⌉ up. Sums are over the part, or over the block in question.
//
// A limit l has the multiplier ν(l) = Limits ≥ 0, and a cut (below) has its own multipliers ν ≥ 0. They are in 10⁻⁹ Nano per Nano if the limit counts money, and in Nano per unit-hour if it
// counts unit-hours. A need n has for its k-th epoch Needs[n][k] ≥ 0, in Nano for one of Least.
//
// An epoch's prices in a cut are as follows, with S(l) = Limit.Serving[epoch] (0 if nil). A sum
// is over the limits of the kind that it names:
//
//	on-demand' = ⌊on-demand · (10¹² + Σ money ν·S) / 10¹²⌋, where it is not negative
//	extra'     = ⌊extra · (10¹² + Σ money ν·S) / 10¹²⌋
//	spot'      = ⌊spot · (10¹² + Σ money ν·S) / 10¹²⌋ + ⌊Σ spot ν·S / 1000⌋, where spot is not negative
//	shortage'  = shortage + ⌊Σ unserved ν·S / 1000⌋
//
// A [Vector] states π ≥ 0 for each pool (Firm), σ ≥ 0 for each pool (Spot) and κ ≥ 0 for each quota
// (Quota). The prices of an hour follow from them in this order:
//
//	κ(q) := 0 where the quota is Unlimited in the epoch
//	u(p) := QuotaPerUnit·κ of the pool's quota, 0 if it has none
//	π(p) := min(π, on-demand' + u) where there is on-demand
//	σ(p) := min(σ, spot') where there is spot and it is Unlimited in the case
//	λ(i) := min(shortage', over the demand's routes: ⌊π·Num/Den⌋ + extra')
//	μ(i) := max(0, over the demand's routes to pools with spot: λ − extra' − ⌊σ·Num/Den⌋)
//	ζ(p) := max(0, σ − spot') where there is spot, else 0
//	β(p) := max(0, π − u) where there is on-demand, else 0
//	ρ(s) := max(0, over the pools of the spend with on-demand: ⌈10⁹·(π − u)/SpendPrice⌉)
//
// (λ without a route is the shortage's price.) For a demand that waits, λ(i) is then reduced by
// ⌈μ(i)·Interruptible/1000⌉, and μ(i) is 0; its d does not include Slot.Waits. Those of an hour are
// worth their number times the least λ(i) of the hours from that one to the end of its window,
// which is added to v. With G guaranteed units, P discount-only units and
// spend S in the pools and spends, an hour's demand d is then worth
//
//	v = Σ demands (λ·d − μ·⌊d·Interruptible/1000⌋) − Σ pools with spot, not Unlimited: ζ·Z
//	    − Σ quotas, not Unlimited: κ·Q − Σ pools (π·G + β·P) − Σ spends ρ·S/10⁹
//
// and costs at least that, because the prices are a feasible point of the dual of the hour. A block
// in an epoch and case (Part.Cases, at most one for each) has cuts. A leaf gives shares to some of
// them. The weights of its shares of one block, epoch and case sum to at most One. Summing over the
// block's slots, each times its hours, at the vector that the cut names for the slot, gives
//
//	V(block,e,c) = case weight · Σ shares weight/One · Σ slots hours · v
//
// E is its value at what is held (Supply, Epoch.Spends). The worth of a further unit of G, P or S
// is minus its slope:
//
//	Π(p,e) = Σ cases case weight · Σ shares weight/One · Σ slots hours·π, and so B(p,e) with β, R(s,e) with ρ/10⁹.
//
// Let D(p,e) be the most units of a pool that demand can take in an hour: the largest of ⌈Σ routes to
// it units·Num/Den⌉ over the slots of all cases, where the units of a slot include the Waits of
// earlier slots of its window. Further capacity and spend that can be of use is
//
//	for guaranteed units    g(p,e) = max(0, max(D, needs of the pool in the epoch: ⌈Least/PerUnit⌉) − HeldGuaranteed)
//	for discount-only units o(p,e) = max(0, D − HeldDiscountOnly)
//	for a spend             s(s,e) = max(0, Σ its pools D·SpendPrice − what is held)
//
// and the net cost of x units of choice j is
//
//	r(j,x) = x·(W·Cost + Σ limits W·ν(l)·Spent(l) (·10⁻⁹ if l counts money))
//	         − Σ guaranteed covers, epochs covered: min(x·Units, g)·(Π + Σ needs n, its k-th epoch: W·Needs[n][k]·PerUnit)
//	         − Σ other covers, epochs covered: min(x·Units, o)·B
//	         − Σ spend covers, epochs covered: min(x·PerHour, s)·R
//
// A round states a need in an epoch again (mixed-integer rounding, Nemhauser and Wolsey, 1990). Let b
// be what the need lacks there (⌈ ⌉ below), at least 1, m = b mod Divisor, at least 1, F(t) =
// m·⌊t/Divisor⌋ + min(m, t mod Divisor), and a(j) = Σ guaranteed covers of the choice in the epoch:
// PerUnit·Units. F is subadditive, so Σ choices x·F(a) ≥ F(b). A round with the price y adds
// W·y·F(b) to the bound, and W·y·min(x·F(a), F(b)) is subtracted from r(j,x).
//
// Here x, the units bought, is 0 or between Least and Max. Each turn of the path narrows that, with n =
// Units, or 1 where it is 0: a choice with Bought true has at least max(n, Least) units, and one
// with Bought false at most n − 1, and none if that is below Least. Both ends then move inwards to
// multiples of Lot. The other choices of the group of a bought one have none. A leaf that leaves no
// x (two of a group are bought, or an upper end is below a lower one) proves that its path is
// impossible, and does not count. The bound is
//
//	Σ blocks,e,c: E + Σ choices: least r(j,x) + Σ needs n, k: W·Needs[n][k]·⌈Least − Σ terms PerUnit·HeldGuaranteed⌉
//	− Σ limits: W·ν(l)·Most (·10⁻⁹ if l counts money)
//
// rounded down to an integer, where ⌈ ⌉ rounds up to a multiple of the greatest common divisor of the
// need's PerUnit, because units are whole. Of the choices of a group, of which at most one is bought, only the
// smallest of their terms r(j,x) counts. This holds provided that for every limit with Serving, and
// every block, epoch and case
//
//	Σ shares weight/One · the cut's ν(l) ≤ ν(l)
//
// (the multiplier in cuts of a limit without Serving is 0), and that every least r exists.
// Otherwise the leaf proves nothing.
type Leaf struct {
	Path   []Turn               `json:"path,omitempty"`
	Limits []int64              `json:"limits,omitempty"` // by Part.Limits
	Needs  [][]procurement.Nano `json:"needs,omitempty"`  // by Part.Needs, Need.Epochs
	Shares []Share              `json:"shares"`           // by cut, ascending
	Rounds []RoundPrice         `json:"rounds,omitempty"`
}

// Round is a need in one of its epochs, rounded (see [Leaf]).
type Round struct {
	Need    int `json:"need"`
	Epoch   int `json:"epoch"` // position in Need.Epochs
	Divisor int `json:"divisor"`
}

// RoundPrice is the price of a round in a leaf, at least 0.
type RoundPrice struct {
	Round int              `json:"round"` // position in Part.Rounds
	Price procurement.Nano `json:"price"`
}

// Turn says whether at least Units of a choice are bought; 0 means any at all.
type Turn struct {
	Choice int  `json:"choice"`
	Bought bool `json:"bought"`
	Units  int  `json:"units,omitempty"`
}

// Vector is the prices of an hour, in Nano, from which all others follow: of a firm unit of a pool,
// of a spot unit before the spot price is subtracted, and of a unit of a quota.
type Vector struct {
	Firm  []procurement.Nano `json:"firm"`            // by Block.Pools
	Spot  []procurement.Nano `json:"spot,omitempty"`  // by Block.Pools; nil: all 0
	Quota []procurement.Nano `json:"quota,omitempty"` // by Block.Quotas; nil: all 0
}

// CaseProof is the prices of a block in an epoch and scenario.
type CaseProof struct {
	Block   int      `json:"block"` // position in Part.Blocks
	Epoch   int      `json:"epoch"`
	Case    int      `json:"case"`
	Vectors []Vector `json:"vectors"` // that the cuts refer to
	Cuts    []Cut    `json:"cuts"`
}

// Cut is prices for every slot of a block in a case. Any of them prove a bound on the cost of
// serving it that is linear in what is bought (a cut in the sense of Benders, 1962).
type Cut struct {
	Limits []int64 `json:"limits,omitempty"` // multipliers by Part.Limits; nil: all 0
	// Slots are runs of slots with the same vector: pairs of a number of slots and the index of
	// their vector, as unsigned varints (encoding/binary).
	Slots []byte `json:"slots"`
}

// Share is the weight of a cut in a leaf. Cuts are counted through all Part.Cases.
type Share struct {
	Cut    int   `json:"cut"`
	Weight int64 `json:"weight"` // in 1/One
}
