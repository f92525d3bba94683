package usage

import (
	"bytes"
	"cmp"
	"time"

	"quartermaster/domain"
	"quartermaster/projections/dimension"
)

// Dimension is a dimension that usage is grouped and filtered by.
type Dimension = dimension.Name

// The dimensions. Workspace and deployment are those of the holder, and empty for time without a
// holder.
const (
	ByWorkspace     Dimension = "workspace"
	ByCluster       Dimension = "cluster"
	ByNode          Dimension = "node"
	ByGPU           Dimension = "gpu"
	ByGPUModel      Dimension = "gpu_model"
	ByDeployment    Dimension = "deployment"
	ByWorkloadClass Dimension = "workload_class"
	ByRegion        Dimension = "region"
	ByProvider      Dimension = "provider"
	ByProviderClass Dimension = "provider_class"
	ByBillingModel  Dimension = "billing_model"
	ByHour          Dimension = "hour"
	ByDay           Dimension = "day"
)

// ProviderClasses, WorkloadClasses and BillingModels are the values of dimensions with fixed
// values.
var (
	ProviderClasses = []string{string(domain.Hyperscaler), string(domain.Neocloud), string(domain.Reseller), string(domain.Owned)}
	WorkloadClasses = []string{
		string(domain.ClassTraining), string(domain.ClassFineTuning),
		string(domain.ClassBatch), string(domain.ClassServing),
	}
	BillingModels = []string{
		string(domain.BillingReserved), string(domain.BillingOnDemand), string(domain.BillingSpot),
		string(domain.BillingCapacityBlock), string(domain.BillingOwned),
	}
)

// cell is a segment of a GPU's hour. It has one value in each dimension.
type cell struct {
	hour      *DeviceHour
	segment   *DeviceSegment
	workloads *Workloads // nil unless workload classes are requested
}

// usageKey is a group's key, with only the requested dimensions set.
type usageKey struct {
	workspace, cluster, node, model, deployment, workload, region, provider, class, billing string

	gpu  domain.GPUID
	hour domain.Instant // for a day, its start
}

var dimensions = dimension.Set[cell, usageKey]{
	{
		Name: ByWorkspace, Doc: "who held it", Blank: "(nobody)",
		Read: func(c *cell, k *usageKey) {
			if h := c.segment.Holder; h != nil {
				k.workspace = h.Workspace
			}
		},
		Value: func(k *usageKey) string { return k.workspace },
	},
	{
		Name: ByCluster, Doc: "the cluster",
		Read:  func(c *cell, k *usageKey) { k.cluster = c.hour.Cluster },
		Value: func(k *usageKey) string { return k.cluster },
	},
	{
		Name: ByNode, Doc: "the node",
		Read:  func(c *cell, k *usageKey) { k.node = c.hour.Node },
		Value: func(k *usageKey) string { return k.node },
	},
	{
		Name: ByGPU, Doc: "the GPU",
		Read:    func(c *cell, k *usageKey) { k.gpu = c.hour.GPU },
		Value:   func(k *usageKey) string { return k.gpu.String() },
		Compare: func(a, b *usageKey) int { return bytes.Compare(a.gpu[:], b.gpu[:]) },
	},
	{
		Name: ByGPUModel, Doc: "the GPU's model, as the catalogue spells it, else as declared",
		Read:  func(c *cell, k *usageKey) { k.model = cmp.Or(c.hour.Model, dimension.Unknown) },
		Value: func(k *usageKey) string { return k.model },
	},
	{
		Name: ByDeployment, Doc: "the deployment that held it", Blank: "(nobody)",
		Read: func(c *cell, k *usageKey) {
			if h := c.segment.Holder; h != nil {
				k.deployment = h.Deployment
			}
		},
		Value: func(k *usageKey) string { return k.deployment },
	},
	{
		Name: ByWorkloadClass, Doc: "the class of the deployment that held it; none for time that nobody held",
		Values: WorkloadClasses,
		Read: func(c *cell, k *usageKey) {
			k.workload = dimension.None
			if h := c.segment.Holder; h != nil {
				at := domain.Interval{From: c.hour.Hour, To: c.hour.Hour}
				k.workload = c.workloads.Class(c.hour.Cluster, h.Deployment, h.Workspace, at)
			}
		},
		Value: func(k *usageKey) string { return k.workload },
	},
	{
		Name: ByRegion, Doc: "the cluster's region", Blank: "(none)",
		Read:  func(c *cell, k *usageKey) { k.region = c.hour.Region },
		Value: func(k *usageKey) string { return k.region },
	},
	{
		Name: ByProvider, Doc: "the cluster's provider",
		Read:  func(c *cell, k *usageKey) { k.provider = cmp.Or(c.hour.Provider, dimension.Unknown) },
		Value: func(k *usageKey) string { return k.provider },
	},
	{
		Name: ByProviderClass, Doc: "the class of the cluster's provider", Values: ProviderClasses,
		Read:  func(c *cell, k *usageKey) { k.class = cmp.Or(string(c.hour.ProviderClass), dimension.Unknown) },
		Value: func(k *usageKey) string { return k.class },
	},
	{
		Name: ByBillingModel, Doc: "how the node is declared to be paid for", Values: BillingModels,
		Read:  func(c *cell, k *usageKey) { k.billing = cmp.Or(string(c.hour.Billing), dimension.Unknown) },
		Value: func(k *usageKey) string { return k.billing },
	},
	{
		Name: ByHour, Doc: "the hour, in UTC",
		Read:    func(c *cell, k *usageKey) { k.hour = c.hour.Hour },
		Value:   func(k *usageKey) string { return k.hour.String() },
		Compare: func(a, b *usageKey) int { return cmp.Compare(a.hour, b.hour) },
	},
	{
		Name: ByDay, Doc: "the day, in UTC",
		// If the hour is in the key too, it implies the day.
		Read:    func(c *cell, k *usageKey) { k.hour = max(k.hour, c.hour.Hour.DayStart()) },
		Value:   func(k *usageKey) string { return k.hour.Time().Format(time.DateOnly) },
		Compare: func(a, b *usageKey) int { return cmp.Compare(a.hour.DayStart(), b.hour.DayStart()) },
	},
}

// Dimensions returns every dimension.
func Dimensions() []Dimension { return dimensions.Names() }

// ParseDimensions reads the names of dimensions. For an unknown name its error is a
// [dimension.UnknownError].
func ParseDimensions(names []string) ([]Dimension, error) { return dimensions.Parse(names) }

// ParseConditions reads conditions of the form dimension=value.
func ParseConditions(words []string) ([]dimension.Condition, error) {
	return dimensions.ParseConditions(words)
}

// Blank returns what a table shows for an empty value of a dimension.
func Blank(d Dimension) string {
	if of := dimensions.Find(d); of != nil {
		return of.Blank
	}
	return ""
}
