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
	Leaves []Leaf                   `json:"leaves,omitempty"`
}

// Block is a set of pools and demands that are served together hour by hour. Its lists are
// ascending. A block sees the units of its own demands in a case's slots: slots that are equal to
// it are merged, with the sum of their Hours, and those without any of its demand are left out.
// They ascend by the units of its first demand, then the second and so on.
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
// path, or all paths begin with the same choice. In the second case the leaves with Bought true,
// without that first turn, are again exhaustive, and so are those with Bought false.
//
// # The bound
//
// A leaf states prices, and any prices prove a bound (weak duality). W is Problem.Weight, and all
// amounts are W times their values. Divisions of integers are exact fractions unless a rounding is
// written: ⌊ ⌋ down, ⌈ ⌉ up. Sums are over the part, or over the block in question.
//
// A limit l has the multiplier ν(l) = Limits ≥ 0, and a share (below) has its own multipliers
// ν ≥ 0. They are in 10⁻⁹ Nano per Nano if the limit counts money, and in Nano per unit-hour if it
// counts unit-hours. A need n has for its k-th epoch Needs[n][k] ≥ 0, in Nano for one of Least.
//
// An epoch's prices in a share are as follows, with S(l) = Limit.Serving[epoch] (0 if nil). A sum
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
// (λ without a route is the shortage's price.) With G guaranteed units, P discount-only units and
// spend S in the pools and spends, an hour's demand d is then worth
//
//	v = Σ demands (λ·d − μ·⌊d·Interruptible/1000⌋) − Σ pools with spot, not Unlimited: ζ·Z
//	    − Σ quotas, not Unlimited: κ·Q − Σ pools (π·G + β·P) − Σ spends ρ·S/10⁹
//
// and costs at least that, because the prices are a feasible point of the dual of the hour. A block
// in an epoch and case (Cases, at most one for each; without one there are no shares) has shares,
// whose weights sum to at most One. Summing over the block's slots, each times its hours, at the
// vector that the share names for the slot, gives
//
//	V(block,e,c) = case weight · Σ shares weight/One · Σ slots hours · v
//
// E is its value at what is held (Supply, Epoch.Spends). The worth of a further unit of G, P or S
// is minus its slope:
//
//	Π(p,e) = Σ cases case weight · Σ shares weight/One · Σ slots hours·π, and so B(p,e) with β, R(s,e) with ρ/10⁹.
//
// The reduced cost of a unit of choice j is
//
//	r(j) = W·Cost + Σ limits W·ν(l)·Spent(l) (·10⁻⁹ if l counts money)
//	       − Σ covers, epochs covered: Units·(Π if guaranteed, else B)
//	       − Σ spend covers, epochs covered: PerHour·R
//	       − Σ needs n, its k-th epoch, covered by a guaranteed cover, terms of the cover's pool: W·Needs[n][k]·PerUnit·Units
//
// and x(j), the units bought, are between 0 and Max. The path narrows that: a choice with Bought
// true has at least max(1, Least), and one with Bought false has none. The other choices of the
// group of a bought one have none. A leaf that leaves no x (two of a group are bought, a choice is
// both bought and not, or Least is above Max) proves that its path is impossible, and does not
// count. The bound is
//
//	Σ blocks,e,c: E + Σ choices: least of r·x + Σ needs n, k: W·Needs[n][k]·(Least − Σ terms PerUnit·HeldGuaranteed)
//	− Σ limits: W·ν(l)·Most (·10⁻⁹ if l counts money)
//
// rounded down to an integer, provided that for every limit with Serving, and every block, epoch
// and case
//
//	Σ shares weight/One · the share's ν(l) ≤ ν(l)
//
// (the multiplier in shares of a limit without Serving is 0), and that no choice with r < 0 may be
// bought without bound. Otherwise the leaf proves nothing.
type Leaf struct {
	Path   []Turn               `json:"path,omitempty"`
	Limits []int64              `json:"limits,omitempty"` // by Part.Limits
	Needs  [][]procurement.Nano `json:"needs,omitempty"`  // by Part.Needs, Need.Epochs
	Cases  []CaseProof          `json:"cases"`            // by block, epoch, case
}

// Turn says whether any units of a choice are bought.
type Turn struct {
	Choice int  `json:"choice"`
	Bought bool `json:"bought"`
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
	Vectors []Vector `json:"vectors"` // that the shares refer to
	Shares  []Share  `json:"shares"`
}

// Share is prices for every slot of a block in a case, with a weight.
type Share struct {
	Weight int64   `json:"weight"`           // in 1/One
	Limits []int64 `json:"limits,omitempty"` // multipliers by Part.Limits; nil: all 0
	// Slots are runs of slots with the same vector: pairs of a number of slots and the index of
	// their vector, as unsigned varints (encoding/binary).
	Slots []byte `json:"slots"`
}
