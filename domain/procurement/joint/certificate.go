package joint

import (
	"quartermaster/domain/procurement"
)

// Certificate proves a lower bound on what any purchases cost: the sum of what
// its parts prove. All indices in it are the problem's. Every choice, need, limit
// and block is in one part exactly, and every pool, demand, quota and spend in one
// block. What refers to one another is together: in one block the two ends of a
// route, and a pool and its quotas and spends of all epochs; in one part a choice,
// the blocks that it covers and the limits of which it takes; the choices of a
// group; a need and the blocks of its pools. A limit that serving takes of
// (Limit.Serving is not nil) has all blocks in its part.
type Certificate struct {
	Parts []Part `json:"parts"`
}

// Part is a problem of its own. Its lists ascend.
type Part struct {
	Blocks  []Block `json:"blocks"`
	Choices []int   `json:"choices,omitempty"`
	Needs   []int   `json:"needs,omitempty"`
	Limits  []int   `json:"limits,omitempty"`

	// Alone proves the bound of a part that is one pool with one demand, as a
	// certificate of the pool that [Problem.Alone] describes. Leaves prove that of
	// any other.
	Alone  *procurement.Certificate `json:"alone,omitempty"`
	Leaves []Leaf                   `json:"leaves,omitempty"`
}

// Block is what an hour is served together with. Its lists ascend. Of a case's
// slots a block sees the units of its own demands: slots that are equal to it are
// one, with the sum of their Hours, those without any of its demand are left out,
// and they ascend by the units of its first demand, then the second and so on.
type Block struct {
	Pools   []int `json:"pools"`
	Demands []int `json:"demands,omitempty"`
	Quotas  []int `json:"quotas,omitempty"`
	Spends  []int `json:"spends,omitempty"`
}

// One is the whole of which Share.Weight is a part.
const One = 1_000_000_000_000

// Leaf proves a bound on what purchases of a part cost that take its Path. A
// part's bound is the least of its leaves', and their paths leave nothing out:
// there is one leaf with an empty path, or all begin with the same choice, those
// with Bought true make up such a set of leaves with the rest of their paths, and
// so do those with Bought false.
//
// # The bound
//
// A leaf names prices, and any prices prove something (weak duality). W is
// Problem.Weight, and all amounts are W times what they stand for. Divisions of
// integers are exact fractions unless a rounding is written: ⌊ ⌋ down, ⌈ ⌉ up.
// Sums are over what belongs to the part, or to the block in question.
//
// A limit l has the multiplier ν(l) = Limits ≥ 0, and a share (below) its own
// multipliers ν ≥ 0: in 10⁻⁹ Nano for a Nano if the limit counts money, in Nano for
// a unit-hour if it counts those. A need n has for its k-th epoch Needs[n][k] ≥ 0,
// in Nano for one of Least.
//
// In a share an epoch's prices are, with S(l) = Limit.Serving[epoch] (0 if nil),
// where a sum is over the limits of the kind that it names:
//
//	on-demand' = ⌊on-demand · (10¹² + Σ money ν·S) / 10¹²⌋, where it is not negative
//	extra'     = ⌊extra · (10¹² + Σ money ν·S) / 10¹²⌋
//	spot'      = ⌊spot · (10¹² + Σ money ν·S) / 10¹²⌋ + ⌊Σ spot ν·S / 1000⌋, where spot is not negative
//	shortage'  = shortage + ⌊Σ unserved ν·S / 1000⌋
//
// A [Vector] names π ≥ 0 for each pool (Firm), σ ≥ 0 for each pool (Spot) and κ ≥ 0
// for each quota (Quota). From them follow, in this order, the prices of an hour:
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
// (Where λ has no route it is the shortage's price.) An hour's demand d is then
// worth, at G guaranteed units, P discount-only units and spend S in the pools and
// spends,
//
//	v = Σ demands (λ·d − μ·⌊d·Interruptible/1000⌋) − Σ pools with spot, not Unlimited: ζ·Z
//	    − Σ quotas, not Unlimited: κ·Q − Σ pools (π·G + β·P) − Σ spends ρ·S/10⁹
//
// and costs no less, for they are a feasible point of the dual of the hour. A block
// in an epoch and case (Cases, at most one for each; where there is none there are
// no shares) has shares, whose weights sum up to One at most. With the sum over
// the block's slots, each times its hours, at the vector that the share names for
// the slot,
//
//	V(block,e,c) = case weight · Σ shares weight/One · Σ slots hours · v
//
// Of this, E is what it is with what is held (Supply, Epoch.Spends), and the worth
// of a further unit of the three is minus its slope:
//
//	Π(p,e) = Σ cases case weight · Σ shares weight/One · Σ slots hours·π, and so B(p,e) with β, R(s,e) with ρ/10⁹.
//
// A unit of choice j costs, beside what it is worth,
//
//	r(j) = W·Cost + Σ limits W·ν(l)·Spent(l) (·10⁻⁹ if l counts money)
//	       − Σ covers, epochs covered: Units·(Π if guaranteed, else B)
//	       − Σ spend covers, epochs covered: PerHour·R
//	       − Σ needs n, its k-th epoch, covered by a guaranteed cover, terms of the cover's pool: W·Needs[n][k]·PerUnit·Units
//
// and x(j), the units bought, are within 0 and Max; the path narrows that: a choice
// with Bought has at least max(1, Least), one without has none, and neither have
// the others of the group of one with Bought. A leaf without any x that is left
// (two of a group with Bought, one bought and not, Least above Max) proves that
// its path is impossible, and does not count. The bound is
//
//	Σ blocks,e,c: E + Σ choices: least of r·x + Σ needs n, k: W·Needs[n][k]·(Least − Σ terms PerUnit·HeldGuaranteed)
//	− Σ limits: W·ν(l)·Most (·10⁻⁹ if l counts money)
//
// rounded down to an integer, as long as for every limit with Serving, and every
// block, epoch and case
//
//	Σ shares weight/One · the share's ν(l) ≤ ν(l)
//
// (a limit without Serving has no multiplier in shares: 0), and as long as no
// choice has r < 0 that may be bought without bound; otherwise the leaf proves
// nothing.
type Leaf struct {
	Path   []Turn               `json:"path,omitempty"`
	Limits []int64              `json:"limits,omitempty"` // by Part.Limits
	Needs  [][]procurement.Nano `json:"needs,omitempty"`  // by Part.Needs, Need.Epochs
	Cases  []CaseProof          `json:"cases"`            // by block, epoch, case
}

// Turn says of a choice whether any of it is bought.
type Turn struct {
	Choice int  `json:"choice"`
	Bought bool `json:"bought"`
}

// Vector is prices in an hour, in Nano, from which all others follow: of a firm
// unit of a pool, of a spot unit before what spot costs is taken off, and of a
// unit of a quota.
type Vector struct {
	Firm  []procurement.Nano `json:"firm"`            // by Block.Pools
	Spot  []procurement.Nano `json:"spot,omitempty"`  // by Block.Pools; nil: all 0
	Quota []procurement.Nano `json:"quota,omitempty"` // by Block.Quotas; nil: all 0
}

// CaseProof is prices for a block in an epoch and scenario.
type CaseProof struct {
	Block   int      `json:"block"` // place in Part.Blocks
	Epoch   int      `json:"epoch"`
	Case    int      `json:"case"`
	Vectors []Vector `json:"vectors"` // that the shares name
	Shares  []Share  `json:"shares"`
}

// Share is prices for every slot of a block in a case, with a weight.
type Share struct {
	Weight int64   `json:"weight"`           // in 1/One
	Limits []int64 `json:"limits,omitempty"` // multipliers by Part.Limits; nil: all 0
	// Slots are runs of slots with the same vector: in pairs how many slots, and
	// the place of their vector, as unsigned varints (encoding/binary).
	Slots []byte `json:"slots"`
}
