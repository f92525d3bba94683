package domain

// Events of qm.fleet, keyed by cluster: what hardware there is.

// ProviderClass distinguishes kinds of suppliers, which differ in price and reliability.
type ProviderClass string

// The classes of suppliers.
const (
	Hyperscaler ProviderClass = "hyperscaler"
	Neocloud    ProviderClass = "neocloud"
	Reseller    ProviderClass = "reseller"
	Owned       ProviderClass = "owned"
)

// BillingModel is how a node is paid for.
type BillingModel string

// The billing models.
const (
	BillingReserved      BillingModel = "reserved"
	BillingOnDemand      BillingModel = "on_demand"
	BillingSpot          BillingModel = "spot"
	BillingCapacityBlock BillingModel = "capacity_block"
	BillingOwned         BillingModel = "owned"
)

// ClusterRegistered declares a cluster, owned by the event's workspace. Admins and operators of the
// owner decide on it and on the cluster's keys.
type ClusterRegistered struct {
	Name           string            `json:"name,omitempty"`
	Provider       string            `json:"provider"`
	ProviderClass  ProviderClass     `json:"provider_class"`
	Region         string            `json:"region"`
	BillingAccount string            `json:"billing_account,omitempty"`
	Certifications []string          `json:"certifications,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	// Shards is how many shards its telemetry and hardware events have from now on; see [ShardKey].
	// 0 and 1 mean none.
	Shards uint32 `json:"shards,omitempty"`
}

// What a key of a cluster may be used for.
const (
	KeyPush    = "push"    // events of the cluster
	KeyReceive = "receive" // commands for the cluster, and what came of them
)

// KeyScopes returns what keys of clusters may be used for.
func KeyScopes() []string { return []string{KeyPush, KeyReceive} }

// ClusterKeyIssued records a new key by its HMAC; the key itself is shown once and never stored.
type ClusterKeyIssued struct {
	KeyID   string   `json:"key_id"`
	MAC     []byte   `json:"mac"` // HMAC-SHA-256
	Expires Instant  `json:"expires,omitempty"`
	Scopes  []string `json:"scopes,omitempty"` // of [KeyScopes]; empty: push
}

// ClusterKeyRotated issues a key. The previous key stays valid for a while, 24 hours by default.
type ClusterKeyRotated struct {
	KeyID              string   `json:"key_id"`
	MAC                []byte   `json:"mac"`
	Expires            Instant  `json:"expires,omitempty"`
	PreviousKeyID      string   `json:"previous_key_id"`
	PreviousValidUntil Instant  `json:"previous_valid_until"`
	Scopes             []string `json:"scopes,omitempty"` // of this key, which does not inherit any; empty: push
}

// ClusterKeyRevoked ends a key at once.
type ClusterKeyRevoked struct {
	KeyID  string `json:"key_id"`
	Reason string `json:"reason,omitempty"`
}

// GPUDeclared is one device of a node as the node's registration states it.
type GPUDeclared struct {
	ID        GPUID  `json:"uuid"`
	Index     uint32 `json:"index"`
	Model     string `json:"model"` // catalogue name or the supplier's own
	MemoryMiB uint64 `json:"memory_mib,omitempty"`
	Serial    string `json:"serial,omitempty"`
	PCI       string `json:"pci,omitempty"` // bus id of its slot
}

// NodeRegistered declares a machine or replaces its description. A GPU that it leaves out stays in
// service until it is retired, until another GPU takes its slot (the same PCI bus id, else the same
// index), or until the node is retired. GPUs with ids that were derived from names are dropped
// instead.
type NodeRegistered struct {
	Node           string        `json:"node"`
	Provider       string        `json:"provider,omitempty"` // empty: the cluster's
	BillingAccount string        `json:"billing_account,omitempty"`
	ResourceID     string        `json:"resource_id,omitempty"` // as on the supplier's bill
	SKU            string        `json:"sku,omitempty"`         // instance type
	Zone           string        `json:"zone,omitempty"`
	BillingModel   BillingModel  `json:"billing_model,omitempty"`
	CPUMilli       uint64        `json:"cpu_milli"`
	MemoryMiB      uint64        `json:"memory_mib"`
	GPUs           []GPUDeclared `json:"gpus"`
	// IDsDerived: GPU ids were derived from names because the source gave none.
	IDsDerived         bool    `json:"ids_derived,omitempty"`
	FabricDomain       string  `json:"fabric_domain,omitempty"`
	DriverVersion      string  `json:"driver_version,omitempty"`
	CUDAVersion        string  `json:"cuda_version,omitempty"`
	DedicatedWorkspace string  `json:"dedicated_workspace,omitempty"`
	InServiceFrom      Instant `json:"in_service_from,omitempty"` // zero: the event's time
}

// NodeRetired takes a machine out of the fleet permanently.
type NodeRetired struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
}

// GPURetired takes one GPU of a machine out of the fleet permanently. Admins and operators of the
// cluster's owner decide it.
type GPURetired struct {
	Node   string `json:"node"`
	GPU    GPUID  `json:"gpu"`
	Reason string `json:"reason"`
}

// AssetAcquired puts owned hardware on the books.
type AssetAcquired struct {
	Asset         string   `json:"asset"`
	Description   string   `json:"description,omitempty"`
	Nodes         []string `json:"nodes,omitempty"`
	Capex         Money    `json:"capex"`    // of the whole system
	Residual      Money    `json:"residual"` // expected at the end of life
	InServiceFrom Instant  `json:"in_service_from"`
	LifeMonths    uint32   `json:"life_months"`
	PowerWatts    uint64   `json:"power_watts,omitempty"` // nameplate
	Site          string   `json:"site,omitempty"`        // whose tariff applies
	SpaceUnits    uint32   `json:"space_units,omitempty"` // rack units
	// GeneralLedger is its reference in the general ledger or the register of fixed assets.
	GeneralLedger string `json:"general_ledger,omitempty"`
}

// AssetRevised changes life, residual value or carrying amount from a time on; the past does not
// change. A life of 0 and a residual value without a currency are not stated: they stay as they were.
type AssetRevised struct {
	Asset         string  `json:"asset"`
	EffectiveFrom Instant `json:"effective_from"`
	LifeMonths    uint32  `json:"life_months"` // since it came into service
	Residual      Money   `json:"residual"`
	Impairment    Money   `json:"impairment"` // written off at once
	Reason        string  `json:"reason,omitempty"`
}

// AssetDisposed takes an asset off the books.
type AssetDisposed struct {
	Asset    string  `json:"asset"`
	At       Instant `json:"at"`
	Proceeds Money   `json:"proceeds"`
	Reason   string  `json:"reason,omitempty"`
}

// MaintenanceScheduled announces that nodes are out of service for a window, or cancels that.
type MaintenanceScheduled struct {
	Maintenance string   `json:"maintenance"`
	Nodes       []string `json:"nodes,omitempty"` // none: the whole cluster
	Window      Interval `json:"window"`
	Reason      string   `json:"reason,omitempty"`
	Cancelled   bool     `json:"cancelled,omitempty"`
}

// OutageDeclared says that nodes were down for a window, or cancels that. It covers outages in
// which the agents were down too.
type OutageDeclared struct {
	Outage    string   `json:"outage"`
	Nodes     []string `json:"nodes,omitempty"` // none: the whole cluster
	Window    Interval `json:"window"`
	Reason    string   `json:"reason"`
	Cancelled bool     `json:"cancelled,omitempty"`
}

// Events of qm.hardware, keyed by cluster: what failed and what was done.

// FaultKind classifies how a GPU fault was detected.
type FaultKind string

// The kinds of faults.
const (
	FaultXID            FaultKind = "xid"
	FaultECC            FaultKind = "ecc"
	FaultRowRemap       FaultKind = "row_remap"
	FaultPageRetirement FaultKind = "page_retirement" // GPUs before Ampere, instead of row remapping
	FaultNVLink         FaultKind = "nvlink"
	FaultOffBus         FaultKind = "off_bus"
	FaultThermal        FaultKind = "thermal"
	FaultHealth         FaultKind = "health"
)

// GPUFaultObserved reports one fault of a device, or of the node when GPU is zero.
type GPUFaultObserved struct {
	Node     string    `json:"node"`
	GPU      GPUID     `json:"gpu"`
	Kind     FaultKind `json:"kind"`
	Code     uint32    `json:"code"`            // XID number, DCGM health code
	Field    uint32    `json:"field,omitempty"` // DCGM field id it was read from
	Count    uint64    `json:"count"`
	Class    string    `json:"class,omitempty"`  // app, driver, hardware
	Action   string    `json:"action,omitempty"` // what the driver or the table recommends
	Fatal    bool      `json:"fatal"`            // the device cannot work until repaired
	Detail   string    `json:"detail,omitempty"`
	BootTime Instant   `json:"boot_time,omitempty"`
}

// NodeCordoned takes a node out of scheduling.
type NodeCordoned struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	Repair bool   `json:"repair"` // because the node failed, not for convenience
}

// NodeDrained says that no workloads are left on the node.
type NodeDrained struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
}

// NodeReturned puts a node back into service. With Faults it says only that what was faulty works
// again: the device GPU, or the node itself when GPU is zero.
type NodeReturned struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	GPU    GPUID  `json:"gpu,omitzero"`     // only with Faults
	Faults bool   `json:"faults,omitempty"` // faults end; cordons and drains stay
}

// CollectorSilent says that a node's measurements stopped. It has no end when the silence begins,
// and the whole interval when it is over.
type CollectorSilent struct {
	Node   string   `json:"node"`
	Silent Interval `json:"silent"`
	Reason string   `json:"reason,omitempty"`
}

// SpoolDropped says that an agent had to drop samples, and which ones.
type SpoolDropped struct {
	Node        string   `json:"node"`
	Stream      string   `json:"stream"`
	From        uint64   `json:"from"` // first sequence dropped
	To          uint64   `json:"to"`   // last sequence dropped
	Covered     Interval `json:"covered"`
	Reason      string   `json:"reason,omitempty"`
	Incarnation uint64   `json:"incarnation"`
}
