package domain

import (
	"crypto/sha256"
	"errors"
	"math/big"
)

// ErrInvalid is wrapped by every error of [Validate]. A writer must correct the event before
// appending it. A reader quarantines it with the error's text as the reason.
var ErrInvalid = errors.New("event is invalid")

// InvalidError says which field of an event is wrong and why, in one line.
type InvalidError struct {
	Type    Type   // empty when the event is of no known type
	Field   string // path in the names of the JSON form, for example gpus[3].uuid
	Problem string
}

// Error returns "type: field: problem".
func (e *InvalidError) Error() string {
	typ := string(e.Type)
	if typ == "" {
		typ = "event"
	}
	return typ + ": " + e.Field + ": " + e.Problem
}

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// The bounds that Validate enforces on every event. They are generous: they only ensure that no
// single event can exhaust a reader or break an export.
const (
	maxID       = 256      // bytes of an identifier
	maxText     = 4096     // bytes of a description, a reason, one column of a bill
	maxLongText = 1 << 16  // bytes of a column that holds JSON
	maxDocument = 1 << 24  // bytes of a plan or scenario
	maxFindings = 1 << 20  // bytes of the document of an incident, recommendation or command
	maxList     = 10_000   // entries of a list
	maxEntries  = 4096     // devices, instances and replicas of one node
	maxSample   = Day      // length of the interval of a sample
	maxReading  = 31 * Day // length of the interval of a power meter
	maxMonths   = 1200     // a term or a life
	maxMicros   = 60e6     // a round trip

	maxScale   = 18 // digits after the decimal point
	maxInteger = 24 // digits before it
	// maxCoefficientBits bounds 10^(maxScale+maxInteger).
	maxCoefficientBits = 140

	// endOfTime is the first instant that events may not use: the start of the year after the last
	// that [ParseInstant] reads.
	endOfTime Instant = 9214646400 * Second
)

var maxAmount = new(big.Int).Exp(big.NewInt(10), big.NewInt(maxInteger), nil)

// Validate returns nil when the event is valid by itself, without knowledge of any
// other event, and an *[InvalidError] otherwise. It does not require or verify a
// signature or a place in a stream, because an event has neither before it is
// appended. If they are present they must be well formed.
//
// What it checks:
//
//   - The attribute that the topic is keyed by is present.
//   - Identifiers that the event needs are present; every identifier has at most
//     256 bytes of UTF-8 and no control characters.
//   - Enumerations have known values. Countries and currencies have the form of ISO
//     3166-1 alpha-2 and ISO 4217. Columns of a bill have the values that FOCUS 1.4
//     allows where attribution depends on them.
//   - Times lie in 1970 to 2261; intervals are not empty; a sample covers 24 hours
//     at most.
//   - Numbers have at most 24 digits before and 18 after the point, and are
//     not negative unless a credit may be.
//
// It allocates nothing for a valid [NodeSampled], which outnumber other events by
// half a million to one. In a valid one, arrays have the required lengths and all
// references are in range, so that readers need not check them again.
func Validate(env *Envelope) error {
	if env == nil || env.Event == nil {
		return &InvalidError{Field: "event", Problem: "there is none"}
	}
	if e, ok := env.Event.(*NodeSampled); ok && e != nil {
		c := checker{typ: TypeNodeSampled, index: -1}
		c.envelope(env, TopicTelemetry)
		c.nodeSampled(e)
		return c.result()
	}
	c := checker{typ: env.Event.Type(), index: -1}
	c.envelope(env, TopicOf(c.typ))
	switch e := env.Event.(type) {
	case *WorkspaceRegistered:
		if c.given(e != nil) {
			c.workspaceRegistered(e, env.Workspace)
		}
	case *OperatorRegistered:
		if c.given(e != nil) {
			c.operatorRegistered(e)
		}
	case *OperatorRevoked:
		if c.given(e != nil) {
			c.id("operator", e.Operator)
			c.bytes("public_key", e.PublicKey, 32)
			c.text("reason", e.Reason)
		}
	case *PolicySet:
		if c.given(e != nil) {
			c.policySet(e)
		}
	case *QuotaSet:
		if c.given(e != nil) {
			c.quotaSet(e)
		}
	case *BudgetSet:
		if c.given(e != nil) {
			c.budgetSet(e)
		}
	case *RegionDefined:
		if c.given(e != nil) {
			c.regionDefined(e)
		}
	case *CertificationHeld:
		if c.given(e != nil) {
			c.certificationHeld(e)
		}
	case *MethodChanged:
		if c.given(e != nil) {
			oneOf(&c, "method", e.Method, "folds", "attribution", "planner", "solver")
			c.id("version", e.Version)
			c.instant("effective_from", e.EffectiveFrom)
			c.text("reason", e.Reason)
		}
	case *MappingRuleSet:
		if c.given(e != nil) {
			c.mappingRuleSet(e)
		}
	case *LegalHoldSet:
		if c.given(e != nil) {
			c.legalHold(e)
		}
	case *PersonNamed:
		if c.given(e != nil) {
			c.personNamed(e)
		}
	case *ClusterRegistered:
		if c.given(e != nil) {
			c.clusterRegistered(e, env.Workspace)
		}
	case *ClusterKeyIssued:
		if c.given(e != nil) {
			c.id("key_id", e.KeyID)
			c.bytes("mac", e.MAC, 32)
			c.optionalInstant("expires", e.Expires)
			c.keyScopes(e.Scopes)
		}
	case *ClusterKeyRotated:
		if c.given(e != nil) {
			c.clusterKeyRotated(e)
		}
	case *ClusterKeyRevoked:
		if c.given(e != nil) {
			c.id("key_id", e.KeyID)
			c.text("reason", e.Reason)
		}
	case *NodeRegistered:
		if c.given(e != nil) {
			c.nodeRegistered(e)
		}
	case *NodeRetired:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
		}
	case *GPURetired:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
			if e.GPU == (GPUID{}) {
				c.bad("gpu", "is missing")
			}
		}
	case *AssetAcquired:
		if c.given(e != nil) {
			c.assetAcquired(e)
		}
	case *AssetRevised:
		if c.given(e != nil) {
			c.assetRevised(e)
		}
	case *AssetDisposed:
		if c.given(e != nil) {
			c.id("asset", e.Asset)
			c.instant("at", e.At)
			c.price("proceeds", e.Proceeds)
			c.text("reason", e.Reason)
		}
	case *MaintenanceScheduled:
		if c.given(e != nil) {
			c.id("maintenance", e.Maintenance)
			c.ids("nodes", e.Nodes)
			c.interval("window", e.Window)
			c.text("reason", e.Reason)
		}
	case *OutageDeclared:
		if c.given(e != nil) {
			c.id("outage", e.Outage)
			c.ids("nodes", e.Nodes)
			c.interval("window", e.Window)
			c.text("reason", e.Reason)
			if e.Reason == "" {
				c.bad("reason", "is missing")
			}
		}
	case *GPUFaultObserved:
		if c.given(e != nil) {
			c.gpuFaultObserved(e)
		}
	case *NodeCordoned:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
		}
	case *NodeDrained:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
		}
	case *NodeReturned:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
			if e.GPU != (GPUID{}) && !e.Faults {
				c.bad("faults", "is not set: of a GPU alone only faults can end")
			}
		}
	case *CollectorSilent:
		if c.given(e != nil) {
			c.nodeAndReason(e.Node, e.Reason)
			c.openInterval("silent", e.Silent)
			c.lacking("silent", e.Silent, env.Time)
		}
	case *SpoolDropped:
		if c.given(e != nil) {
			c.spoolDropped(e)
			c.lacking("covered", e.Covered, env.Time)
		}
	case *NodeSampled:
		c.given(e != nil)
	case *ServingSampled:
		if c.given(e != nil) {
			c.servingSampled(e)
		}
	case *MetricsObserved:
		if c.given(e != nil) {
			c.metricsObserved(e)
		}
	case *JobQueued:
		if c.given(e != nil) {
			c.id("job", e.Job)
			c.optionalID("deployment", e.Deployment)
			c.class("class", e.Class)
			c.need(&e.Need)
		}
	case *JobStarted:
		if c.given(e != nil) {
			c.id("job", e.Job)
			c.ids("nodes", e.Nodes)
		}
	case *JobFinished:
		if c.given(e != nil) {
			c.id("job", e.Job)
			oneOf(&c, "outcome", e.Outcome, JobSucceeded, JobFailed, JobCancelled, JobPreempted, JobInterrupted)
			c.atMost("retained_permille", uint64(e.RetainedPermille), 1000)
			c.text("detail", e.Detail)
		}
	case *DemandObserved:
		if c.given(e != nil) {
			c.demandObserved(e)
		}
	case *EnergyMetered:
		if c.given(e != nil) {
			c.id("meter", e.Meter)
			c.ids("nodes", e.Nodes)
			c.interval("interval", e.Interval)
			if c.err == nil && e.Interval.Length() > maxReading {
				c.bad("interval", "covers more than 31 days: from %s to %s", e.Interval.From, e.Interval.To)
			}
			c.notNegative("watt_hours", e.WattHours)
		}
	case *UsageCorrected:
		if c.given(e != nil) {
			c.usageCorrected(e)
		}
	case *DeploymentChanged:
		if c.given(e != nil) {
			c.deploymentChanged(e, env.Workspace)
		}
	case *DeploymentRemoved:
		if c.given(e != nil) {
			c.id("deployment", e.Deployment)
			c.text("reason", e.Reason)
		}
	case *ReplicasObserved:
		if c.given(e != nil) {
			c.optionalID("deployment", e.Deployment)
			c.id("model", e.Model)
			c.optionalID("tier", e.Tier)
		}
	case *BillingLineRecorded:
		if c.given(e != nil) {
			c.billingLine(&e.Line, &BillingLine{})
		}
	case *BillingLineCorrected:
		if c.given(e != nil) {
			c.billingLine(&e.Line, &BillingLine{})
			c.id("corrects", e.Corrects)
			c.text("reason", e.Reason)
		}
	case *BillingLineRemoved:
		if c.given(e != nil) {
			c.id("InvoiceIssuerName", e.InvoiceIssuerName)
			c.id("BillingAccountId", e.BillingAccountID)
			c.id("x_LineId", e.LineID)
			c.interval("billing_period", e.BillingPeriod)
			c.text("reason", e.Reason)
		}
	case *InvoiceReceived:
		if c.given(e != nil) {
			c.invoiceReceived(e)
		}
	case *BillingPeriodClosed:
		if c.given(e != nil) {
			c.id("InvoiceIssuerName", e.InvoiceIssuerName)
			c.id("BillingAccountId", e.BillingAccountID)
			c.interval("period", e.Period)
		}
	case *OfferQuoted:
		if c.given(e != nil) {
			c.offerQuoted(e)
		}
	case *OfferWithdrawn:
		if c.given(e != nil) {
			c.market(e.Market)
			c.id("offer", e.Offer)
			c.instant("at", e.At)
		}
	case *OnDemandQuotaSet:
		if c.given(e != nil) {
			c.market(e.Market)
			c.id("account", e.Account)
			c.optionalID("gpu_model", e.GPUModel)
			c.instant("effective_from", e.EffectiveFrom)
		}
	case *SpotInterrupted:
		if c.given(e != nil) {
			c.market(e.Market)
			c.optionalID("zone", e.Zone)
			c.id("sku", e.SKU)
			c.optionalID("node", e.Node)
		}
	case *TariffSet:
		if c.given(e != nil) {
			c.tariffSet(e)
		}
	case *FXRateSet:
		if c.given(e != nil) {
			c.fxRateSet(e)
		}
	case *PlanComputed:
		if c.given(e != nil) {
			c.planComputed(e)
		}
	case *ScenarioFrozen:
		if c.given(e != nil) {
			c.id("scenario", e.Scenario)
			c.computedFrom(e.Position, e.Method)
			c.document(e.Document, e.Digest)
		}
	case *RecommendationMade:
		if c.given(e != nil) {
			c.recommendationMade(e)
		}
	case *RecommendationApproved:
		if c.given(e != nil) {
			c.id("recommendation", e.Recommendation)
			c.text("note", e.Note)
			if len(e.Digest) > 0 {
				c.bytes("digest", e.Digest, sha256.Size)
			}
		}
	case *RecommendationRejected:
		if c.given(e != nil) {
			c.id("recommendation", e.Recommendation)
			c.text("note", e.Note)
		}
	case *RecommendationWithdrawn:
		if c.given(e != nil) {
			c.id("recommendation", e.Recommendation)
			c.text("reason", e.Reason)
		}
	case *CommandIssued:
		if c.given(e != nil) {
			c.commandIssued(e)
		}
	case *RecommendationActuated:
		if c.given(e != nil) {
			c.recommendationActuated(e)
		}
	case *OutcomeRecorded:
		if c.given(e != nil) {
			c.outcomeRecorded(e)
		}
	case *CommitmentPurchased:
		if c.given(e != nil) {
			c.commitmentPurchased(e)
		}
	case *CommitmentRenewed:
		if c.given(e != nil) {
			c.id("commitment", e.Commitment)
			c.interval("term", e.Term)
			c.positive("units", e.Units)
			c.priced(e.Upfront, e.Hourly)
			c.optionalInstant("notice_by", e.NoticeBy)
		}
	case *CommitmentEnded:
		if c.given(e != nil) {
			c.id("commitment", e.Commitment)
			c.instant("at", e.At)
			c.text("reason", e.Reason)
		}
	case *ClosePrepared:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.interval("period", e.Period)
			c.computedFrom(e.Position, e.Method)
			c.bytes("digest", e.Digest, 32)
			c.postings(e.Postings)
			c.totals("totals", e.Totals)
			c.checks(e.Checks)
			c.translated(e)
		}
	case *CloseApproved:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.interval("period", e.Period)
			c.bytes("digest", e.Digest, 32)
			c.offset("prepared", e.Prepared)
		}
	case *BooksClosed:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.interval("period", e.Period)
			c.computedFrom(e.Position, e.Method)
			c.bytes("digest", e.Digest, 32)
			c.postings(e.Postings)
			c.offset("prepared", e.Prepared)
		}
	case *ExportMade:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.id("export", e.Export)
			oneOf(&c, "format", e.Format, "csv", "parquet", "xlsx")
			c.computedFrom(e.Position, e.Method)
			c.bytes("digest", e.Digest, 32)
		}
	case *CheckpointSigned:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.position("position", e.Position)
			if len(e.Note) == 0 || len(e.Note) > maxLongText {
				c.bad("note", "has %d bytes, want 1 to %d", len(e.Note), maxLongText)
			}
		}
	case *QuarantineResolved:
		if c.given(e != nil) {
			c.quarantineResolved(e)
		}
	case *StreamConflictObserved:
		if c.given(e != nil) {
			c.streamConflict(e)
		}
	case *StreamGapResolved:
		if c.given(e != nil) {
			c.streamGap(e)
		}
	case *GenerationSwitched:
		if c.given(e != nil) {
			c.generationSwitched(e)
		}
	case *RemovalStarted:
		if c.given(e != nil) {
			c.removal(e.Entity, e.Removal, e.What, e.Policy, e.Rule, e.By)
			c.removed(e.What, e.Removed)
			if len(e.Removed) == 0 {
				c.bad("removed", "is empty")
			}
		}
	case *RecordsRemoved:
		if c.given(e != nil) {
			c.removal(e.Entity, e.Removal, e.What, e.Policy, e.Rule, e.By)
			c.removed(e.What, e.Removed)
			c.ids("holds", e.Holds)
		}
	case *AccessGranted:
		if c.given(e != nil) {
			c.accessGranted(e)
		}
	case *AccessRevoked:
		if c.given(e != nil) {
			c.id("grant", e.Grant)
			c.text("reason", e.Reason)
		}
	case *ServiceKeyIssued:
		if c.given(e != nil) {
			c.serviceKeyIssued(e)
		}
	case *ServiceKeyRevoked:
		if c.given(e != nil) {
			c.id("key_id", e.KeyID)
			c.text("reason", e.Reason)
		}
	case *SessionEnded:
		if c.given(e != nil) {
			c.principal(e.Principal)
			c.instant("at", e.At)
			c.text("reason", e.Reason)
		}
	case *AccessRecorded:
		if c.given(e != nil) {
			c.accessRecorded(e)
		}
	case *IncidentOpened:
		if c.given(e != nil) {
			c.incidentOpened(e)
		}
	case *IncidentChanged:
		if c.given(e != nil) {
			c.incidentChanged(e)
		}
	case *IncidentResolved:
		if c.given(e != nil) {
			c.id("incident", e.Incident)
			c.instant("at", e.At)
			c.computedFrom(e.Position, e.Method)
			c.text("reason", e.Reason)
		}
	case *IncidentAcknowledged:
		if c.given(e != nil) {
			c.id("incident", e.Incident)
			c.text("note", e.Note)
		}
	case *IncidentSilenced:
		if c.given(e != nil) {
			c.incidentSilenced(e)
		}
	case *AccessDenied:
		if c.given(e != nil) {
			c.id("entity", e.Entity)
			c.id("principal", e.Principal)
			c.id("action", e.Action)
			c.text("target", e.Target)
			c.text("reason", e.Reason)
		}
	default:
		c.bad("event", "%T is not in the catalogue", e)
	}
	return c.result()
}

// LineValidator validates billing lines that follow one another. It is faster than [Validate], because it does not
// look again at a text or a number that was valid before in the same column. It keeps one of each column. The zero
// value is ready to use.
type LineValidator struct{ valid BillingLine }

// Validate returns what [Validate] does.
func (v *LineValidator) Validate(env *Envelope) error {
	e, ok := env.Event.(*BillingLineRecorded)
	if !ok || e == nil {
		return Validate(env)
	}
	c := checker{typ: TypeBillingLineRecorded, index: -1}
	c.envelope(env, TopicBilling)
	c.billingLine(&e.Line, &v.valid)
	return c.result()
}

func (c *checker) result() error {
	if c.err != nil {
		return c.err
	}
	return nil
}
