package domain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// Rules for events of workspaces, hardware and deployments.

// Unmapped is the workspace of pods whose namespace no mapping rule names. It belongs to nobody, so
// that such pods are visible and nobody pays for them by accident.
const Unmapped = "unmapped"

func (c *checker) workspaceRegistered(e *WorkspaceRegistered, workspace string) {
	if workspace == Unmapped {
		c.bad("workspace", "%s is the name for what nobody pays; choose another", quote(workspace))
	}
	c.id("name", e.Name)
	c.optionalID("parent", e.Parent)
	c.optionalID("owner", e.Owner)
	c.optionalID("cost_centre", e.CostCentre)
	c.optionalID("entity", e.Entity)
	if e.Currency != "" {
		c.currency("currency", e.Currency)
	}
}

func (c *checker) operatorRegistered(e *OperatorRegistered) {
	c.id("operator", e.Operator)
	c.bytes("public_key", e.PublicKey, 32)
	oneOf(c, "role", e.Role, RoleAdmin, RoleFinance, RolePlanner, RoleAuditor, RoleOperator)
	for i, m := range e.AuthorityLimits {
		field := fmt.Sprintf("authority_limits[%d]", i)
		c.amount(field, m)
		if slices.ContainsFunc(e.AuthorityLimits[:i], func(o Money) bool { return o.Currency == m.Currency }) {
			c.bad(field, "%s has a limit already", quote(m.Currency))
		}
	}
}

func (c *checker) policySet(e *PolicySet) {
	c.id("policy", e.Policy)
	c.instant("effective_from", e.EffectiveFrom)
	c.until("effective_to", e.EffectiveFrom, e.EffectiveTo)
	c.selector("selector", e.Selector)
	c.listed("others", len(e.Others))
	for i, s := range e.Others {
		if c.err != nil {
			return
		}
		c.in("others", i)
		c.selector("", s)
		c.out()
	}
	c.countries("countries", e.Countries)
	c.ids("certifications", e.Certifications)
	c.ids("clusters", e.Clusters)
	c.optionalID("scope", e.Scope)
	c.optionalID("value", e.Value)
	if e.Share.Valid {
		c.decimal("share", e.Share.Decimal)
	}
	switch e.Kind {
	case PolicyResidency:
		c.someIDs("countries", e.Countries)
	case PolicyCertification:
		c.someIDs("certifications", e.Certifications)
	case PolicyPlacement:
		c.someIDs("clusters", e.Clusters)
	case PolicyApart:
		oneOf(c, "scope", e.Scope, "node", "cluster")
		if len(e.Others) == 0 {
			c.bad("others", "is empty, want at least one selector")
		}
	case PolicyDedicated:
	case PolicySpotShare, PolicyCostOfCapital:
		c.fraction("share", e.Share)
	case PolicyCommitmentDiscount:
		oneOf(c, "value", e.Value, "as_supplied", "owners_first", "pool_rate")
	case PolicyIdleCost:
		oneOf(c, "value", e.Value, "owner", "platform")
	case PolicyActivity:
		// The fields of NodeSampled that say how busy a device was.
		oneOf(c, "value", e.Value, "1002", "1001", "203", "1004", "1005")
	case PolicyRetention:
		c.retention(e)
	case PolicyDepreciation:
		oneOf(c, "value", e.Value, "daily", "full_month", "half_month", "next_month")
	case PolicyCapitalCharge, PolicyRecoverableTax:
		c.fraction("share", e.Share)
	case PolicySharedCosts:
		if len(e.Pools) == 0 {
			c.bad("pools", "is empty, want at least one")
		}
	case PolicyBooksCurrency:
		c.currency("value", e.Value)
		for _, name := range slices.Sorted(maps.Keys(e.Columns)) {
			if name != "x_Entity" || strings.Contains(e.Columns[name], "*") {
				c.bad("columns", "%s %q: books are those of one x_Entity, or of all", name, e.Columns[name])
			}
		}
	case PolicySubstitution:
		if len(e.Substitutes) == 0 {
			c.bad("substitutes", "is empty, want at least one")
		}
	case PolicyPosture:
		c.posture(e)
	case PolicyTransferPrice, PolicySecondApproval:
		if m, err := ParseMoney(e.Value); err != nil {
			c.bad("value", "%v", err)
		} else {
			c.amount("value", m)
		}
	case PolicyLedgerAccount:
		oneOf(c, "scope", e.Scope, LedgerScopes...)
		c.id("value", e.Value)
	case PolicyAdviceThreshold:
		c.adviceThreshold(e)
	default:
		oneOf(c, "kind", e.Kind, PolicyResidency, PolicyCertification, PolicyPlacement, PolicyApart, PolicyDedicated,
			PolicySpotShare, PolicyCommitmentDiscount, PolicyIdleCost, PolicyActivity, PolicyCostOfCapital, PolicyRetention,
			PolicyDepreciation, PolicyCapitalCharge, PolicyBooksCurrency, PolicyRecoverableTax,
			PolicySharedCosts, PolicySubstitution, PolicyPosture, PolicyTransferPrice, PolicyLedgerAccount,
			PolicyAdviceThreshold, PolicySecondApproval)
	}
	c.substitutes(e)
	c.optionalID("standby", e.Standby)
	if (e.Standby != "" || e.StandbyPriceShare.Valid) && e.Kind != PolicyPosture {
		c.bad("standby", "is for %s, and the kind is %s", PolicyPosture, e.Kind)
	}
	c.pools(e)
	c.columns("columns", e.Columns)
	if kinds := []PolicyKind{PolicyRecoverableTax, PolicyLedgerAccount, PolicyBooksCurrency}; len(e.Columns) > 0 && !slices.Contains(kinds, e.Kind) {
		c.bad("columns", "are for %s, %s and %s, and the kind is %s", kinds[0], kinds[1], kinds[2], e.Kind)
	}
}

// adviceThreshold leaves to the rules whether there is such a rule, and what its threshold may be.
func (c *checker) adviceThreshold(e *PolicySet) {
	c.id("scope", e.Scope)
	if s := e.Selector; s.Deployment != "" || s.Tier != "" || s.Environment != "" || len(s.Regions)+len(s.Countries) > 0 {
		c.bad("selector", "names more than workspace, class and cluster, and thresholds differ by nothing else")
	}
	if e.Value == "" {
		c.bad("value", "is missing, want a threshold such as 0.45, or off")
	} else if e.Value != "off" {
		d, err := decimal.NewFromString(e.Value)
		if err != nil {
			c.bad("value", "%s is neither off nor a decimal such as 0.45", quote(e.Value))
		}
		c.notNegative("value", d)
	}
	if e.Share.Valid {
		c.fraction("share", e.Share)
	}
}

func (c *checker) posture(e *PolicySet) {
	oneOf(c, "value", e.Value, PostureActiveActive, PostureHotStandby, PostureColdStandby, PostureMultiProvider)
	standby := e.Value == PostureHotStandby || e.Value == PostureColdStandby
	c.fraction("share", e.Share)
	switch {
	case !standby && e.Standby != "":
		c.bad("standby", "is %s, and %s has no standby region", quote(e.Standby), e.Value)
	case standby && e.Standby == "":
		c.bad("standby", "is missing, want the region that takes over")
	case e.Value == PostureColdStandby:
		c.fraction("standby_price_share", e.StandbyPriceShare)
	case e.StandbyPriceShare.Valid:
		c.bad("standby_price_share", "is for %s, and the value is %s", PostureColdStandby, e.Value)
	}
}

// mostGPUs bounds the GPUs that do the work of one.
var mostGPUs = decimal.NewFromInt(1000)

func (c *checker) substitutes(e *PolicySet) {
	if len(e.Substitutes) > 0 && e.Kind != PolicySubstitution {
		c.bad("substitutes", "are for %s, and the kind is %s", PolicySubstitution, e.Kind)
	}
	c.listed("substitutes", len(e.Substitutes))
	seen := map[[2]string]int{}
	for i, s := range e.Substitutes {
		if c.err != nil {
			return
		}
		c.in("substitutes", i)
		c.id("for", s.For)
		c.id("by", s.By)
		first, twice := seen[[2]string{s.For, s.By}]
		switch {
		case s.For == s.By:
			c.bad("by", "%s is the model itself", quote(s.By))
		case twice:
			c.bad("by", "%s is substitute %d for %s already", quote(s.By), first+1, quote(s.For))
		case c.decimal("gpus", s.GPUs) && (!s.GPUs.IsPositive() || s.GPUs.GreaterThan(mostGPUs)):
			c.bad("gpus", "%s is not above 0 and at most %s", s.GPUs, mostGPUs)
		}
		seen[[2]string{s.For, s.By}] = i
		c.out()
	}
}

func (c *checker) selector(field string, s Selector) {
	if field != "" {
		field += "."
	}
	c.optionalID(field+"workspace", s.Workspace)
	c.optionalID(field+"deployment", s.Deployment)
	c.optionalID(field+"cluster", s.Cluster)
	c.optionalID(field+"tier", s.Tier)
	c.optionalID(field+"environment", s.Environment)
	c.ids(field+"regions", s.Regions)
	c.countries(field+"countries", s.Countries)
	if s.Class != "" {
		c.class(field+"class", s.Class)
	}
}

func (c *checker) class(field string, v WorkloadClass) {
	oneOf(c, field, v, ClassTraining, ClassFineTuning, ClassBatch, ClassServing)
}

func (c *checker) quotaSet(e *QuotaSet) {
	c.id("quota", e.Quota)
	c.id("resource", e.Resource)
	c.optionalID("gpu_model", e.GPUModel)
	c.optionalID("region", e.Region)
	c.notNegative("limit", e.Limit)
	c.instant("effective_from", e.EffectiveFrom)
}

func (c *checker) budgetSet(e *BudgetSet) {
	c.id("budget", e.Budget)
	c.interval("period", e.Period)
	c.amount("amount", e.Amount)
	oneOf(c, "basis", e.Basis, BudgetCash, BudgetAccrual)
}

func (c *checker) regionDefined(e *RegionDefined) {
	c.id("region", e.Region)
	c.country("country", e.Country)
	c.text("name", e.Name)
	if _, ok := ParseUTCOffset(e.UTCOffset); e.UTCOffset != "" && !ok {
		c.bad("utc_offset", "is %s, want -12:00 to +14:00, for example +01:00", quote(e.UTCOffset))
	}
	if !c.listed("round_trips", len(e.RoundTrips)) {
		return
	}
	seen := make(map[string]bool, len(e.RoundTrips))
	for i, r := range e.RoundTrips {
		c.in("round_trips", i)
		c.id("to", r.To)
		if r.To == e.Region {
			c.bad("to", "%s is the region itself", quote(r.To))
		}
		if seen[r.To] {
			c.bad("to", "%s is named twice", quote(r.To))
		}
		seen[r.To] = true
		if r.Micros == 0 || r.Micros > maxMicros {
			c.bad("micros", "is %d, want 1 to %d", r.Micros, uint64(maxMicros))
		}
		c.out()
	}
}

func (c *checker) certificationHeld(e *CertificationHeld) {
	switch {
	case e.Provider == "" && e.Cluster == "":
		c.bad("provider", "is missing, and so is cluster: want one of them")
	case e.Provider != "" && e.Cluster != "":
		c.bad("provider", "%s stands beside cluster %s: want one of them", quote(e.Provider), quote(e.Cluster))
	}
	c.optionalID("provider", e.Provider)
	c.optionalID("cluster", e.Cluster)
	c.id("certification", e.Certification)
	c.interval("valid", e.Valid)
	c.text("evidence", e.Evidence)
}

func (c *checker) mappingRuleSet(e *MappingRuleSet) {
	c.id("rule", e.Rule)
	c.optionalID("cluster", e.Cluster)
	c.optionalID("namespace", e.Namespace)
	c.columns("columns", e.Columns)
	if e.Buys != "" {
		oneOf(c, "buys", e.Buys, BuysGPUTime, BuysMachineTime, BuysNothing, BuysOutside)
		if len(e.Columns) == 0 {
			c.bad("columns", "is missing: buys is for the lines of bills whose columns have the values given")
		}
		if e.Cluster != "" || e.Namespace != "" || e.ToWorkspace != "" || e.ToDeployment != "" || e.Shares() {
			c.bad("buys", "stands beside a cluster, a namespace or a workspace: a rule is for pods, or for lines of bills")
		}
	} else {
		if len(e.Columns) > 0 && (e.Cluster != "" || e.Namespace != "" || e.ToDeployment != "") {
			c.bad("columns", "stands beside a cluster, a namespace or a deployment: a rule is for pods, or for lines of bills")
		}
		if len(e.Columns) > 0 && e.ToWorkspace == "" && !e.Shares() {
			c.bad("columns", "stands without buys, which says what such lines buy, and without a workspace that is charged for them")
		}
		if !e.Shares() && (len(e.Columns) == 0 || e.ToWorkspace != "") {
			c.id("to_workspace", e.ToWorkspace)
		}
	}
	c.sharesOf(e)
	c.optionalID("to_deployment", e.ToDeployment)
	c.instant("effective_from", e.EffectiveFrom)
}

// sharesOf checks among whom a mapping rule shares lines of bills.
func (c *checker) sharesOf(e *MappingRuleSet) {
	if !e.Shares() {
		return
	}
	field := "to_shares"
	if e.ToShareBy != "" {
		field = "to_share_by"
		oneOf(c, field, e.ToShareBy, ShareByGPUHours)
	}
	switch {
	case len(e.Columns) == 0:
		c.bad("columns", "is missing: what is shared are lines of bills whose columns have the values given")
	case e.ToWorkspace != "":
		c.bad(field, "stands beside workspace %s: want one of them", quote(e.ToWorkspace))
	case e.ToShareBy != "" && len(e.ToShares) > 0:
		c.bad(field, "stands beside fixed weights: want one of them")
	}
	c.weights("to_shares", e.ToShares)
}

// pools checks that costs are passed on in one direction.
func (c *checker) pools(e *PolicySet) {
	if len(e.Pools) > 0 && e.Kind != PolicySharedCosts {
		c.bad("pools", "are for %s, and the kind is %s", PolicySharedCosts, e.Kind)
	}
	c.listed("pools", len(e.Pools))
	before := map[string]int{}
	for i, p := range e.Pools {
		if c.err != nil {
			return
		}
		c.in("pools", i)
		c.id("pool", p.Pool)
		if first, twice := before[p.Pool]; twice {
			c.bad("pool", "%s is pool %d already", quote(p.Pool), first+1)
		}
		before[p.Pool] = i
		switch {
		case p.By != "" && len(p.Shares) > 0:
			c.bad("by", "stands beside fixed weights: want one of them")
		case len(p.Shares) == 0:
			oneOf(c, "by", p.By, ShareByGPUHours, ShareByCost)
		}
		c.weights("shares", p.Shares)
		for j, s := range p.Shares {
			if first, is := before[s.Workspace]; is {
				c.bad(fmt.Sprintf("shares[%d].workspace", j),
					"%s is pool %d, which passes on its cost before: costs would go in a circle", quote(s.Workspace), first+1)
			}
		}
		c.out()
	}
}

// weights checks among whom a cost is shared.
func (c *checker) weights(field string, all []WorkspaceWeight) {
	c.listed(field, len(all))
	for i, s := range all {
		if c.err != nil {
			return
		}
		at := fmt.Sprintf("%s[%d].", field, i)
		c.id(at+"workspace", s.Workspace)
		if s.Weight == 0 {
			c.bad(at+"weight", "is 0, want at least 1")
		}
		if slices.ContainsFunc(all[:i], func(o WorkspaceWeight) bool { return o.Workspace == s.Workspace }) {
			c.bad(at+"workspace", "%s has a weight already", quote(s.Workspace))
		}
	}
}

func (c *checker) clusterRegistered(e *ClusterRegistered, owner string) {
	c.id("workspace", owner)
	c.optionalID("name", e.Name)
	c.id("provider", e.Provider)
	oneOf(c, "provider_class", e.ProviderClass, Hyperscaler, Neocloud, Reseller, Owned)
	c.id("region", e.Region)
	c.optionalID("billing_account", e.BillingAccount)
	c.ids("certifications", e.Certifications)
	c.labels("labels", e.Labels)
	if e.Shards > MaxShards {
		c.bad("shards", "%d is not from 1 to %d", e.Shards, MaxShards)
	}
}

func (c *checker) clusterKeyRotated(e *ClusterKeyRotated) {
	c.id("key_id", e.KeyID)
	c.bytes("mac", e.MAC, 32)
	c.optionalInstant("expires", e.Expires)
	c.id("previous_key_id", e.PreviousKeyID)
	c.instant("previous_valid_until", e.PreviousValidUntil)
	if e.KeyID == e.PreviousKeyID {
		c.bad("previous_key_id", "%s is the new key", quote(e.PreviousKeyID))
	}
	c.keyScopes(e.Scopes)
}

func (c *checker) keyScopes(scopes []string) {
	c.ids("scopes", scopes)
	for _, s := range scopes {
		oneOf(c, "scopes", s, KeyScopes()...)
	}
}

func (c *checker) nodeRegistered(e *NodeRegistered) {
	c.id("node", e.Node)
	c.optionalID("provider", e.Provider)
	c.optionalID("billing_account", e.BillingAccount)
	c.bounded("resource_id", e.ResourceID, maxText) // some suppliers use long paths
	c.optionalID("sku", e.SKU)
	c.optionalID("zone", e.Zone)
	if e.BillingModel != "" {
		oneOf(c, "billing_model", e.BillingModel,
			BillingReserved, BillingOnDemand, BillingSpot, BillingCapacityBlock, BillingOwned)
	}
	c.optionalID("fabric_domain", e.FabricDomain)
	c.optionalID("driver_version", e.DriverVersion)
	c.optionalID("cuda_version", e.CUDAVersion)
	c.optionalID("dedicated_workspace", e.DedicatedWorkspace)
	c.optionalInstant("in_service_from", e.InServiceFrom)
	if len(e.GPUs) > maxEntries {
		c.bad("gpus", "has %d entries, at most %d are allowed", len(e.GPUs), maxEntries)
		return
	}
	seen := make(map[GPUID]int, len(e.GPUs))
	for i, g := range e.GPUs {
		c.in("gpus", i)
		if g.ID == (GPUID{}) {
			c.bad("uuid", "is missing")
		}
		if first, twice := seen[g.ID]; twice {
			c.bad("uuid", "%s is that of gpus[%d] too", g.ID, first)
		}
		seen[g.ID] = i
		c.id("model", g.Model)
		c.optionalID("serial", g.Serial)
		c.optionalID("pci", g.PCI)
		c.out()
	}
}

func (c *checker) assetAcquired(e *AssetAcquired) {
	c.id("asset", e.Asset)
	c.text("description", e.Description)
	c.ids("nodes", e.Nodes)
	c.amount("capex", e.Capex)
	c.price("residual", e.Residual)
	if c.err == nil && !e.Residual.Amount.IsZero() {
		if e.Residual.Currency != e.Capex.Currency {
			c.bad("residual", "%s is not in the currency of the capex %s", e.Residual, e.Capex)
		} else if e.Residual.Amount.Cmp(e.Capex.Amount) > 0 {
			c.bad("residual", "%s is more than the capex %s", e.Residual, e.Capex)
		}
	}
	c.instant("in_service_from", e.InServiceFrom)
	c.months("life_months", e.LifeMonths)
	c.optionalID("site", e.Site)
	c.optionalID("general_ledger", e.GeneralLedger)
}

func (c *checker) assetRevised(e *AssetRevised) {
	c.id("asset", e.Asset)
	c.instant("effective_from", e.EffectiveFrom)
	if e.LifeMonths > 0 {
		c.months("life_months", e.LifeMonths)
	} else if e.Residual.Currency == "" && e.Impairment.Amount.IsZero() {
		c.bad("life_months", "is missing, and so are residual and impairment: state what changes")
	}
	c.price("residual", e.Residual)
	c.price("impairment", e.Impairment)
	c.text("reason", e.Reason)
}

func (c *checker) gpuFaultObserved(e *GPUFaultObserved) {
	c.id("node", e.Node)
	oneOf(c, "kind", e.Kind,
		FaultXID, FaultECC, FaultRowRemap, FaultPageRetirement, FaultNVLink, FaultOffBus, FaultThermal, FaultHealth)
	c.optionalID("class", e.Class)
	c.text("action", e.Action)
	c.text("detail", e.Detail)
	c.optionalInstant("boot_time", e.BootTime)
}

func (c *checker) spoolDropped(e *SpoolDropped) {
	c.nodeAndReason(e.Node, e.Reason)
	c.id("stream", e.Stream)
	if e.From == 0 || e.To < e.From {
		c.bad("to", "sequences %d to %d are not a range that starts at 1 or above", e.From, e.To)
	}
	// A single sample may have been dropped before its interval was known.
	if e.Covered != (Interval{}) {
		c.interval("covered", e.Covered)
	}
}

func (c *checker) deploymentChanged(e *DeploymentChanged, workspace string) {
	c.id("workspace", workspace)
	c.id("deployment", e.Deployment)
	c.optionalID("model", e.Model)
	c.optionalID("tier", e.Tier)
	c.optionalID("environment", e.Environment)
	c.class("class", e.Class)
	c.need(&e.Need)
	c.countries("countries", e.Countries)
	c.ids("certifications", e.Certifications)
	c.atMost("latency_micros", e.LatencyMicros, maxMicros)
}

func (c *checker) need(n *GPUNeed) {
	c.ids("need.models", n.Models)
	c.atMost("need.count", uint64(n.Count), maxEntries)
	c.atMost("need.milli", uint64(n.Milli), 1000)
	if n.Milli > 0 && n.Milli < 1000 && n.Count != 1 {
		c.bad("need.milli", "%d thousandths of a GPU stand beside a count of %d: want a count of 1", n.Milli, n.Count)
	}
	c.optionalID("need.mig_profile", n.MIGProfile)
	if n.MIGProfile != "" && n.Count != 0 {
		c.bad("need.mig_profile", "%s stands beside a count of %d whole GPUs: want one of them", quote(n.MIGProfile), n.Count)
	}
}
