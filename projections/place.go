package projections

import (
	"fmt"
	"strconv"

	"quartermaster/domain"
)

// Placement says which row an event about a declared thing belongs to.
type Placement struct {
	Key Key
	// Effective is when it takes effect; zero: at the event's time.
	Effective domain.Instant
	// stated: the last statement counts, whatever time it is about, so that it takes effect when it
	// is appended. For example, a bill is restated for a charge that ended earlier, and an invoice
	// is voided without a date.
	stated bool
	// collapse drops statements that repeat the one before.
	collapse bool
	// fault counts repeats and bounds the row, see [History.enterFault]. Sightings by several
	// monitoring systems within SightingGap of each other are one fault.
	fault bool
}

// Place says which history an event belongs to. Events of one thing share a history: a node's
// registration and its retirement, an offer and its withdrawal. It reports false for measurements,
// which are summed instead (see usage.go).
func Place(env *domain.Envelope, scope string) (Placement, bool) {
	at := func(t Table, id string) Placement { return Placement{Key: Key{Table: t, Scope: scope, ID: id}} }
	state := func(t Table, id string, effective domain.Instant) Placement {
		return Placement{Key: Key{Table: t, Scope: scope, ID: id}, Effective: effective, collapse: true}
	}
	monthly := func(t Table, id string, effective domain.Instant) Placement {
		if effective == 0 {
			effective = env.Time
		}
		return Placement{Key: Key{Table: t, Scope: scope, ID: id, Hour: MonthStart(effective)}, Effective: effective}
	}
	// Frequent observations that always count are split by day, because a store writes the whole
	// row for each of them.
	daily := func(t Table, id string, effective domain.Instant) Placement {
		if effective == 0 {
			effective = env.Time
		}
		return Placement{Key: Key{Table: t, Scope: scope, ID: id, Hour: DayOf(effective)}, Effective: effective}
	}
	// A monitoring system repeats its observations, so that it need not remember what it stated.
	// Repeats of the same statement are only noted.
	observed := func(t Table, id string) Placement {
		p := daily(t, id, 0)
		p.collapse = Scraped(env.Source)
		return p
	}
	switch ev := env.Event.(type) {
	// Registry.
	case *domain.WorkspaceRegistered:
		return state(TableWorkspaces, env.Workspace, 0), true
	case *domain.OperatorRegistered:
		return state(TableOperators, ev.Operator, 0), true
	case *domain.OperatorRevoked:
		return state(TableOperators, ev.Operator, 0), true
	case *domain.PolicySet:
		return state(TablePolicies, ev.Policy, ev.EffectiveFrom), true
	case *domain.QuotaSet:
		return state(TableQuotas, ev.Quota, ev.EffectiveFrom), true
	case *domain.BudgetSet:
		return state(TableBudgets, ev.Budget, 0), true
	case *domain.RegionDefined:
		return state(TableRegions, ev.Region, 0), true
	case *domain.CertificationHeld:
		return state(TableCertifications, ev.Provider+"|"+ev.Cluster+"|"+ev.Certification, 0), true
	case *domain.MethodChanged:
		return state(TableMethods, ev.Method, ev.EffectiveFrom), true
	case *domain.MappingRuleSet:
		return state(TableMappingRules, ev.Rule, ev.EffectiveFrom), true
	case *domain.LegalHoldSet:
		return state(TableLegalHolds, ev.Hold, 0), true
	case *domain.PersonNamed:
		return at(TablePeople, ev.Person), true

	// Inventory.
	case *domain.ClusterRegistered:
		return state(TableClusters, env.Cluster, 0), true
	case *domain.ClusterKeyIssued:
		return at(TableClusterKeys, ev.KeyID), true
	case *domain.ClusterKeyRotated:
		return at(TableClusterKeys, ev.KeyID), true
	case *domain.ClusterKeyRevoked:
		return at(TableClusterKeys, ev.KeyID), true
	case *domain.NodeRegistered:
		return state(TableNodes, ev.Node, ev.InServiceFrom), true
	case *domain.NodeRetired:
		return state(TableNodes, ev.Node, 0), true
	case *domain.GPURetired:
		return state(TableNodes, ev.Node, 0), true
	case *domain.AssetAcquired:
		return state(TableAssets, ev.Asset, ev.InServiceFrom), true
	case *domain.AssetRevised:
		return state(TableAssets, ev.Asset, ev.EffectiveFrom), true
	case *domain.AssetDisposed:
		return state(TableAssets, ev.Asset, ev.At), true
	case *domain.MaintenanceScheduled:
		return state(TableMaintenance, ev.Maintenance, 0), true
	case *domain.OutageDeclared:
		return state(TableOutages, ev.Outage, 0), true

	// Health.
	case *domain.GPUFaultObserved:
		p := daily(TableFaults, ev.Node, 0)
		p.fault = true
		return p, true
	case *domain.NodeCordoned:
		return observed(TableHealth, ev.Node), true
	case *domain.NodeDrained:
		return daily(TableHealth, ev.Node, 0), true
	case *domain.NodeReturned:
		return observed(TableHealth, ev.Node), true
	case *domain.CollectorSilent:
		return daily(TableHealth, ev.Node, 0), true
	case *domain.SpoolDropped:
		return daily(TableHealth, ev.Node, 0), true

	// Telemetry that is not summed.
	case *domain.JobQueued:
		return at(TableJobs, ev.Job), true
	case *domain.JobStarted:
		return at(TableJobs, ev.Job), true
	case *domain.JobFinished:
		return at(TableJobs, ev.Job), true
	case *domain.EnergyMetered:
		return daily(TableEnergy, ev.Meter, ev.Interval.From), true
	case *domain.UsageCorrected:
		return state(TableUsageCorrections, ev.Correction, 0), true

	// Deployments.
	case *domain.DeploymentChanged:
		return state(TableDeployments, ev.Deployment, 0), true
	case *domain.DeploymentRemoved:
		return state(TableDeployments, ev.Deployment, 0), true
	case *domain.ReplicasObserved:
		return observed(TableReplicas, ev.Deployment+"|"+ev.Model+"|"+ev.Tier), true

	// Ledger.
	case *domain.BillingLineRecorded:
		return billed(scope, &ev.Line), true
	case *domain.BillingLineCorrected:
		return billed(scope, &ev.Line), true
	case *domain.BillingLineRemoved:
		return billedIn(scope, ev.LineID, ev.BillingPeriod), true
	case *domain.InvoiceReceived:
		p := state(TableInvoices, ev.InvoiceID, 0)
		p.stated = true
		return p, true
	case *domain.BillingPeriodClosed:
		return at(TableBillingPeriods, ev.Period.From.String()), true

	// Market: prices change continuously, so their histories are split by month.
	case *domain.OfferQuoted:
		p := monthly(TableOffers, ev.Offer, ev.ValidFrom)
		p.collapse = true
		return p, true
	case *domain.OfferWithdrawn:
		return monthly(TableOffers, ev.Offer, ev.At), true
	case *domain.OnDemandQuotaSet:
		return state(TableOnDemandQuotas, ev.Account+"|"+ev.GPUModel, ev.EffectiveFrom), true
	case *domain.SpotInterrupted:
		return daily(TableSpotInterruptions, ev.SKU+"|"+ev.Zone, 0), true
	case *domain.TariffSet:
		return state(TableTariffs, ev.Market.Region, ev.EffectiveFrom), true
	case *domain.FXRateSet:
		return monthly(TableFXRates, string(ev.Kind), ev.Effective.From), true

	// Procurement.
	case *domain.PlanComputed:
		return at(TablePlans, ev.Plan), true
	case *domain.ScenarioFrozen:
		return at(TableScenarios, ev.Scenario), true
	case *domain.RecommendationMade:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.RecommendationApproved:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.RecommendationRejected:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.RecommendationWithdrawn:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.CommandIssued:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.RecommendationActuated:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.OutcomeRecorded:
		return at(TableRecommendations, ev.Recommendation), true
	case *domain.CommitmentPurchased:
		return state(TableCommitments, ev.Commitment, ev.Term.From), true
	case *domain.CommitmentRenewed:
		return state(TableCommitments, ev.Commitment, ev.Term.From), true
	case *domain.CommitmentEnded:
		return state(TableCommitments, ev.Commitment, ev.At), true

	// Books.
	case *domain.ClosePrepared:
		return at(TableCloses, ev.Period.From.String()), true
	case *domain.CloseApproved:
		return at(TableCloses, ev.Period.From.String()), true
	case *domain.BooksClosed:
		return at(TableCloses, ev.Period.From.String()), true
	case *domain.ExportMade:
		return at(TableExports, ev.Export), true
	case *domain.CheckpointSigned:
		return monthly(TableCheckpoints, "", 0), true
	case *domain.QuarantineResolved:
		return at(TableResolutions, RecordID(ev.Topic, ev.Partition, ev.Offset)), true
	case *domain.StreamConflictObserved:
		return at(TableConflicts, RecordID(ev.Topic, ev.Partition, ev.Offset)), true
	case *domain.StreamGapResolved:
		tp := domain.TopicPartition{Topic: ev.Topic, Partition: int(ev.Partition)}
		return at(TableGapResolutions, GapStream(tp.String(), ev.Source, ev.Incarnation)), true
	case *domain.GenerationSwitched:
		return at(TableSwitches, ev.To), true
	case *domain.RemovalStarted:
		return at(TableRemovals, ev.Removal), true
	case *domain.RecordsRemoved:
		return at(TableRemovals, ev.Removal), true
	case *domain.AccessDenied:
		return daily(TableDenials, ev.Principal, 0), true

	// Access.
	case *domain.AccessGranted:
		return state(TableGrants, ev.Grant, 0), true
	case *domain.AccessRevoked:
		return state(TableGrants, ev.Grant, 0), true
	case *domain.ServiceKeyIssued:
		return at(TableServiceKeys, ev.KeyID), true
	case *domain.ServiceKeyRevoked:
		return at(TableServiceKeys, ev.KeyID), true
	case *domain.SessionEnded:
		return at(TableSessions, string(ev.Principal)), true
	case *domain.AccessRecorded:
		k := Key{Table: TableAccess, Scope: scope, ID: string(ev.Principal), Hour: DayOf(ev.Window.From)}
		// A server that was stopped between appending a journal and removing it appends it again.
		return Placement{Key: k, Effective: ev.Window.From, collapse: true}, true

	// Incidents.
	case *domain.IncidentOpened:
		return at(TableIncidents, ev.Incident), true
	case *domain.IncidentChanged:
		return at(TableIncidents, ev.Incident), true
	case *domain.IncidentResolved:
		return at(TableIncidents, ev.Incident), true
	case *domain.IncidentAcknowledged:
		return at(TableIncidents, ev.Incident), true
	case *domain.IncidentSilenced:
		return at(TableSilences, ev.Silence), true
	}
	return Placement{}, false
}

// RecordID names a record of the log.
func RecordID(topic domain.Topic, partition uint32, offset int64) string {
	return string(topic) + "/" + strconv.Itoa(int(partition)) + "@" + strconv.FormatInt(offset, 10)
}

// billed places a line in its billing month, so that reading a period does not read its whole
// history.
func billed(scope string, l *domain.BillingLine) Placement {
	return billedIn(scope, l.LineID, domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd})
}

func billedIn(scope, line string, period domain.Interval) Placement {
	return Placement{Key: Key{Table: TableBillingLines, Scope: scope, ID: line, Hour: MonthStart(middle(period))}, stated: true}
}

// BillingMonth returns the calendar month, in UTC, that a time lies in.
func BillingMonth(t domain.Instant) domain.Interval { return t.Month() }

// ParseMonth returns the calendar month, in UTC, that a text such as 2026-05 names.
func ParseMonth(text string) (domain.Interval, error) {
	at, err := domain.ParseInstant(text + "-01T00:00:00Z")
	if err != nil {
		return domain.Interval{}, fmt.Errorf("month %q: %w", text, err)
	}
	return BillingMonth(at), nil
}

// MonthOf returns the month that a billing period belongs to: the one that contains its middle. So
// bills may be weekly or quarterly, and the issuer's months may begin in any time zone.
func MonthOf(period domain.Interval) domain.Interval { return BillingMonth(middle(period)) }

func middle(i domain.Interval) domain.Instant { return i.From + (i.To-i.From)/2 }

// GapStream returns the id of a stream in the table of gap resolutions.
func GapStream(partition, source string, incarnation uint64) string {
	return partition + " " + source + "#" + strconv.FormatUint(incarnation, 10)
}
