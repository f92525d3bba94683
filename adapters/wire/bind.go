package wire

import (
	"google.golang.org/protobuf/proto"

	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// message is a generated message of the schemas.
type message interface {
	proto.Message
	UnmarshalVT([]byte) error
}

// bind returns an event's message and the function that moves the fields between the two. It
// returns nil for NodeSampled, which is encoded by hand.
func bind(ev domain.Event) (message, func(*mover)) {
	switch d := ev.(type) {
	case *domain.WorkspaceRegistered:
		return pair(&eventsv1.WorkspaceRegistered{}, d, workspaceRegistered)
	case *domain.OperatorRegistered:
		return pair(&eventsv1.OperatorRegistered{}, d, operatorRegistered)
	case *domain.OperatorRevoked:
		return pair(&eventsv1.OperatorRevoked{}, d, operatorRevoked)
	case *domain.PolicySet:
		return pair(&eventsv1.PolicySet{}, d, policySet)
	case *domain.QuotaSet:
		return pair(&eventsv1.QuotaSet{}, d, quotaSet)
	case *domain.BudgetSet:
		return pair(&eventsv1.BudgetSet{}, d, budgetSet)
	case *domain.RegionDefined:
		return pair(&eventsv1.RegionDefined{}, d, regionDefined)
	case *domain.CertificationHeld:
		return pair(&eventsv1.CertificationHeld{}, d, certificationHeld)
	case *domain.MethodChanged:
		return pair(&eventsv1.MethodChanged{}, d, methodChanged)
	case *domain.MappingRuleSet:
		return pair(&eventsv1.MappingRuleSet{}, d, mappingRuleSet)
	case *domain.LegalHoldSet:
		return pair(&eventsv1.LegalHoldSet{}, d, legalHoldSet)
	case *domain.PersonNamed:
		return pair(&eventsv1.PersonNamed{}, d, personNamed)
	case *domain.ClusterRegistered:
		return pair(&eventsv1.ClusterRegistered{}, d, clusterRegistered)
	case *domain.ClusterKeyIssued:
		return pair(&eventsv1.ClusterKeyIssued{}, d, clusterKeyIssued)
	case *domain.ClusterKeyRotated:
		return pair(&eventsv1.ClusterKeyRotated{}, d, clusterKeyRotated)
	case *domain.ClusterKeyRevoked:
		return pair(&eventsv1.ClusterKeyRevoked{}, d, clusterKeyRevoked)
	case *domain.NodeRegistered:
		return pair(&eventsv1.NodeRegistered{}, d, nodeRegistered)
	case *domain.NodeRetired:
		return pair(&eventsv1.NodeRetired{}, d, nodeRetired)
	case *domain.GPURetired:
		return pair(&eventsv1.GPURetired{}, d, gpuRetired)
	case *domain.AssetAcquired:
		return pair(&eventsv1.AssetAcquired{}, d, assetAcquired)
	case *domain.AssetRevised:
		return pair(&eventsv1.AssetRevised{}, d, assetRevised)
	case *domain.AssetDisposed:
		return pair(&eventsv1.AssetDisposed{}, d, assetDisposed)
	case *domain.MaintenanceScheduled:
		return pair(&eventsv1.MaintenanceScheduled{}, d, maintenanceScheduled)
	case *domain.OutageDeclared:
		return pair(&eventsv1.OutageDeclared{}, d, outageDeclared)
	case *domain.GPUFaultObserved:
		return pair(&eventsv1.GPUFaultObserved{}, d, gpuFaultObserved)
	case *domain.NodeCordoned:
		return pair(&eventsv1.NodeCordoned{}, d, nodeCordoned)
	case *domain.NodeDrained:
		return pair(&eventsv1.NodeDrained{}, d, nodeDrained)
	case *domain.NodeReturned:
		return pair(&eventsv1.NodeReturned{}, d, nodeReturned)
	case *domain.CollectorSilent:
		return pair(&eventsv1.CollectorSilent{}, d, collectorSilent)
	case *domain.SpoolDropped:
		return pair(&eventsv1.SpoolDropped{}, d, spoolDropped)
	case *domain.ServingSampled:
		return pair(&eventsv1.ServingSampled{}, d, servingSampled)
	case *domain.MetricsObserved:
		return pair(&eventsv1.MetricsObserved{}, d, metricsObserved)
	case *domain.JobQueued:
		return pair(&eventsv1.JobQueued{}, d, jobQueued)
	case *domain.JobStarted:
		return pair(&eventsv1.JobStarted{}, d, jobStarted)
	case *domain.JobFinished:
		return pair(&eventsv1.JobFinished{}, d, jobFinished)
	case *domain.DemandObserved:
		return pair(&eventsv1.DemandObserved{}, d, demandObserved)
	case *domain.EnergyMetered:
		return pair(&eventsv1.EnergyMetered{}, d, energyMetered)
	case *domain.UsageCorrected:
		return pair(&eventsv1.UsageCorrected{}, d, usageCorrected)
	case *domain.DeploymentChanged:
		return pair(&eventsv1.DeploymentChanged{}, d, deploymentChanged)
	case *domain.DeploymentRemoved:
		return pair(&eventsv1.DeploymentRemoved{}, d, deploymentRemoved)
	case *domain.ReplicasObserved:
		return pair(&eventsv1.ReplicasObserved{}, d, replicasObserved)
	case *domain.BillingLineRecorded:
		return pair(&eventsv1.BillingLineRecorded{}, d, billingLineRecorded)
	case *domain.BillingLineCorrected:
		return pair(&eventsv1.BillingLineCorrected{}, d, billingLineCorrected)
	case *domain.BillingLineRemoved:
		return pair(&eventsv1.BillingLineRemoved{}, d, billingLineRemoved)
	case *domain.InvoiceReceived:
		return pair(&eventsv1.InvoiceReceived{}, d, invoiceReceived)
	case *domain.BillingPeriodClosed:
		return pair(&eventsv1.BillingPeriodClosed{}, d, billingPeriodClosed)
	case *domain.OfferQuoted:
		return pair(&eventsv1.OfferQuoted{}, d, offerQuoted)
	case *domain.OfferWithdrawn:
		return pair(&eventsv1.OfferWithdrawn{}, d, offerWithdrawn)
	case *domain.OnDemandQuotaSet:
		return pair(&eventsv1.OnDemandQuotaSet{}, d, onDemandQuotaSet)
	case *domain.SpotInterrupted:
		return pair(&eventsv1.SpotInterrupted{}, d, spotInterrupted)
	case *domain.TariffSet:
		return pair(&eventsv1.TariffSet{}, d, tariffSet)
	case *domain.FXRateSet:
		return pair(&eventsv1.FXRateSet{}, d, fXRateSet)
	case *domain.PlanComputed:
		return pair(&eventsv1.PlanComputed{}, d, planComputed)
	case *domain.ScenarioFrozen:
		return pair(&eventsv1.ScenarioFrozen{}, d, scenarioFrozen)
	case *domain.RecommendationMade:
		return pair(&eventsv1.RecommendationMade{}, d, recommendationMade)
	case *domain.RecommendationApproved:
		return pair(&eventsv1.RecommendationApproved{}, d, recommendationApproved)
	case *domain.RecommendationRejected:
		return pair(&eventsv1.RecommendationRejected{}, d, recommendationRejected)
	case *domain.RecommendationWithdrawn:
		return pair(&eventsv1.RecommendationWithdrawn{}, d, recommendationWithdrawn)
	case *domain.CommandIssued:
		return pair(&eventsv1.CommandIssued{}, d, commandIssued)
	case *domain.RecommendationActuated:
		return pair(&eventsv1.RecommendationActuated{}, d, recommendationActuated)
	case *domain.OutcomeRecorded:
		return pair(&eventsv1.OutcomeRecorded{}, d, outcomeRecorded)
	case *domain.CommitmentPurchased:
		return pair(&eventsv1.CommitmentPurchased{}, d, commitmentPurchased)
	case *domain.CommitmentRenewed:
		return pair(&eventsv1.CommitmentRenewed{}, d, commitmentRenewed)
	case *domain.CommitmentEnded:
		return pair(&eventsv1.CommitmentEnded{}, d, commitmentEnded)
	case *domain.ClosePrepared:
		return pair(&eventsv1.ClosePrepared{}, d, closePrepared)
	case *domain.CloseApproved:
		return pair(&eventsv1.CloseApproved{}, d, closeApproved)
	case *domain.BooksClosed:
		return pair(&eventsv1.BooksClosed{}, d, booksClosed)
	case *domain.ExportMade:
		return pair(&eventsv1.ExportMade{}, d, exportMade)
	case *domain.CheckpointSigned:
		return pair(&eventsv1.CheckpointSigned{}, d, checkpointSigned)
	case *domain.QuarantineResolved:
		return pair(&eventsv1.QuarantineResolved{}, d, quarantineResolved)
	case *domain.StreamConflictObserved:
		return pair(&eventsv1.StreamConflictObserved{}, d, streamConflictObserved)
	case *domain.StreamGapResolved:
		return pair(&eventsv1.StreamGapResolved{}, d, streamGapResolved)
	case *domain.GenerationSwitched:
		return pair(&eventsv1.GenerationSwitched{}, d, generationSwitched)
	case *domain.RemovalStarted:
		return pair(&eventsv1.RemovalStarted{}, d, removalStarted)
	case *domain.RecordsRemoved:
		return pair(&eventsv1.RecordsRemoved{}, d, recordsRemoved)
	case *domain.AccessDenied:
		return pair(&eventsv1.AccessDenied{}, d, accessDenied)
	case *domain.AccessGranted:
		return pair(&eventsv1.AccessGranted{}, d, accessGranted)
	case *domain.AccessRevoked:
		return pair(&eventsv1.AccessRevoked{}, d, accessRevoked)
	case *domain.ServiceKeyIssued:
		return pair(&eventsv1.ServiceKeyIssued{}, d, serviceKeyIssued)
	case *domain.ServiceKeyRevoked:
		return pair(&eventsv1.ServiceKeyRevoked{}, d, serviceKeyRevoked)
	case *domain.SessionEnded:
		return pair(&eventsv1.SessionEnded{}, d, sessionEnded)
	case *domain.AccessRecorded:
		return pair(&eventsv1.AccessRecorded{}, d, accessRecorded)
	case *domain.IncidentOpened:
		return pair(&eventsv1.IncidentOpened{}, d, incidentOpened)
	case *domain.IncidentChanged:
		return pair(&eventsv1.IncidentChanged{}, d, incidentChanged)
	case *domain.IncidentResolved:
		return pair(&eventsv1.IncidentResolved{}, d, incidentResolved)
	case *domain.IncidentAcknowledged:
		return pair(&eventsv1.IncidentAcknowledged{}, d, incidentAcknowledged)
	case *domain.IncidentSilenced:
		return pair(&eventsv1.IncidentSilenced{}, d, incidentSilenced)
	}
	return nil, nil
}

func pair[D any, P any, M interface {
	*P
	message
}](p M, d *D, move func(*mover, *P, *D)) (message, func(*mover)) {
	return p, func(m *mover) { move(m, p, d) }
}
