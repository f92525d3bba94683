package domain

// The catalogue: every event type, its name in the log and its topic.

// The names of event types.
const (
	TypeWorkspaceRegistered     Type = "WorkspaceRegistered"
	TypeOperatorRegistered      Type = "OperatorRegistered"
	TypeOperatorRevoked         Type = "OperatorRevoked"
	TypePolicySet               Type = "PolicySet"
	TypeQuotaSet                Type = "QuotaSet"
	TypeBudgetSet               Type = "BudgetSet"
	TypeRegionDefined           Type = "RegionDefined"
	TypeCertificationHeld       Type = "CertificationHeld"
	TypeMethodChanged           Type = "MethodChanged"
	TypeMappingRuleSet          Type = "MappingRuleSet"
	TypeLegalHoldSet            Type = "LegalHoldSet"
	TypePersonNamed             Type = "PersonNamed"
	TypeClusterRegistered       Type = "ClusterRegistered"
	TypeClusterKeyIssued        Type = "ClusterKeyIssued"
	TypeClusterKeyRotated       Type = "ClusterKeyRotated"
	TypeClusterKeyRevoked       Type = "ClusterKeyRevoked"
	TypeNodeRegistered          Type = "NodeRegistered"
	TypeNodeRetired             Type = "NodeRetired"
	TypeGPURetired              Type = "GPURetired"
	TypeAssetAcquired           Type = "AssetAcquired"
	TypeAssetRevised            Type = "AssetRevised"
	TypeAssetDisposed           Type = "AssetDisposed"
	TypeMaintenanceScheduled    Type = "MaintenanceScheduled"
	TypeOutageDeclared          Type = "OutageDeclared"
	TypeGPUFaultObserved        Type = "GPUFaultObserved"
	TypeNodeCordoned            Type = "NodeCordoned"
	TypeNodeDrained             Type = "NodeDrained"
	TypeNodeReturned            Type = "NodeReturned"
	TypeCollectorSilent         Type = "CollectorSilent"
	TypeSpoolDropped            Type = "SpoolDropped"
	TypeNodeSampled             Type = "NodeSampled"
	TypeServingSampled          Type = "ServingSampled"
	TypeMetricsObserved         Type = "MetricsObserved"
	TypeJobQueued               Type = "JobQueued"
	TypeJobStarted              Type = "JobStarted"
	TypeJobFinished             Type = "JobFinished"
	TypeDemandObserved          Type = "DemandObserved"
	TypeEnergyMetered           Type = "EnergyMetered"
	TypeUsageCorrected          Type = "UsageCorrected"
	TypeDeploymentChanged       Type = "DeploymentChanged"
	TypeDeploymentRemoved       Type = "DeploymentRemoved"
	TypeReplicasObserved        Type = "ReplicasObserved"
	TypeBillingLineRecorded     Type = "BillingLineRecorded"
	TypeBillingLineCorrected    Type = "BillingLineCorrected"
	TypeBillingLineRemoved      Type = "BillingLineRemoved"
	TypeInvoiceReceived         Type = "InvoiceReceived"
	TypeBillingPeriodClosed     Type = "BillingPeriodClosed"
	TypeOfferQuoted             Type = "OfferQuoted"
	TypeOfferWithdrawn          Type = "OfferWithdrawn"
	TypeOnDemandQuotaSet        Type = "OnDemandQuotaSet"
	TypeSpotInterrupted         Type = "SpotInterrupted"
	TypeTariffSet               Type = "TariffSet"
	TypeFXRateSet               Type = "FXRateSet"
	TypePlanComputed            Type = "PlanComputed"
	TypeScenarioFrozen          Type = "ScenarioFrozen"
	TypeRecommendationMade      Type = "RecommendationMade"
	TypeRecommendationApproved  Type = "RecommendationApproved"
	TypeRecommendationRejected  Type = "RecommendationRejected"
	TypeRecommendationWithdrawn Type = "RecommendationWithdrawn"
	TypeCommandIssued           Type = "CommandIssued"
	TypeRecommendationActuated  Type = "RecommendationActuated"
	TypeOutcomeRecorded         Type = "OutcomeRecorded"
	TypeCommitmentPurchased     Type = "CommitmentPurchased"
	TypeCommitmentRenewed       Type = "CommitmentRenewed"
	TypeCommitmentEnded         Type = "CommitmentEnded"
	TypeClosePrepared           Type = "ClosePrepared"
	TypeCloseApproved           Type = "CloseApproved"
	TypeBooksClosed             Type = "BooksClosed"
	TypeExportMade              Type = "ExportMade"
	TypeCheckpointSigned        Type = "CheckpointSigned"
	TypeQuarantineResolved      Type = "QuarantineResolved"
	TypeStreamConflictObserved  Type = "StreamConflictObserved"
	TypeStreamGapResolved       Type = "StreamGapResolved"
	TypeGenerationSwitched      Type = "GenerationSwitched"
	TypeRemovalStarted          Type = "RemovalStarted"
	TypeRecordsRemoved          Type = "RecordsRemoved"
	TypeAccessDenied            Type = "AccessDenied"
	TypeAccessGranted           Type = "AccessGranted"
	TypeAccessRevoked           Type = "AccessRevoked"
	TypeServiceKeyIssued        Type = "ServiceKeyIssued"
	TypeServiceKeyRevoked       Type = "ServiceKeyRevoked"
	TypeSessionEnded            Type = "SessionEnded"
	TypeAccessRecorded          Type = "AccessRecorded"
	TypeIncidentOpened          Type = "IncidentOpened"
	TypeIncidentChanged         Type = "IncidentChanged"
	TypeIncidentResolved        Type = "IncidentResolved"
	TypeIncidentAcknowledged    Type = "IncidentAcknowledged"
	TypeIncidentSilenced        Type = "IncidentSilenced"
)

// Types returns every event type in the order of the catalogue.
func Types() []Type {
	return []Type{
		TypeWorkspaceRegistered,
		TypeOperatorRegistered,
		TypeOperatorRevoked,
		TypePolicySet,
		TypeQuotaSet,
		TypeBudgetSet,
		TypeRegionDefined,
		TypeCertificationHeld,
		TypeMethodChanged,
		TypeMappingRuleSet,
		TypeLegalHoldSet,
		TypePersonNamed,
		TypeClusterRegistered,
		TypeClusterKeyIssued,
		TypeClusterKeyRotated,
		TypeClusterKeyRevoked,
		TypeNodeRegistered,
		TypeNodeRetired,
		TypeGPURetired,
		TypeAssetAcquired,
		TypeAssetRevised,
		TypeAssetDisposed,
		TypeMaintenanceScheduled,
		TypeOutageDeclared,
		TypeGPUFaultObserved,
		TypeNodeCordoned,
		TypeNodeDrained,
		TypeNodeReturned,
		TypeCollectorSilent,
		TypeSpoolDropped,
		TypeNodeSampled,
		TypeServingSampled,
		TypeMetricsObserved,
		TypeJobQueued,
		TypeJobStarted,
		TypeJobFinished,
		TypeDemandObserved,
		TypeEnergyMetered,
		TypeUsageCorrected,
		TypeDeploymentChanged,
		TypeDeploymentRemoved,
		TypeReplicasObserved,
		TypeBillingLineRecorded,
		TypeBillingLineCorrected,
		TypeBillingLineRemoved,
		TypeInvoiceReceived,
		TypeBillingPeriodClosed,
		TypeOfferQuoted,
		TypeOfferWithdrawn,
		TypeOnDemandQuotaSet,
		TypeSpotInterrupted,
		TypeTariffSet,
		TypeFXRateSet,
		TypePlanComputed,
		TypeScenarioFrozen,
		TypeRecommendationMade,
		TypeRecommendationApproved,
		TypeRecommendationRejected,
		TypeRecommendationWithdrawn,
		TypeCommandIssued,
		TypeRecommendationActuated,
		TypeOutcomeRecorded,
		TypeCommitmentPurchased,
		TypeCommitmentRenewed,
		TypeCommitmentEnded,
		TypeClosePrepared,
		TypeCloseApproved,
		TypeBooksClosed,
		TypeExportMade,
		TypeCheckpointSigned,
		TypeQuarantineResolved,
		TypeStreamConflictObserved,
		TypeStreamGapResolved,
		TypeGenerationSwitched,
		TypeRemovalStarted,
		TypeRecordsRemoved,
		TypeAccessDenied,
		TypeAccessGranted,
		TypeAccessRevoked,
		TypeServiceKeyIssued,
		TypeServiceKeyRevoked,
		TypeSessionEnded,
		TypeAccessRecorded,
		TypeIncidentOpened,
		TypeIncidentChanged,
		TypeIncidentResolved,
		TypeIncidentAcknowledged,
		TypeIncidentSilenced,
	}
}

// TopicOf returns the topic that events of a type belong to, "" for an unknown type.
func TopicOf(t Type) Topic {
	switch t {
	case TypeWorkspaceRegistered,
		TypeOperatorRegistered,
		TypeOperatorRevoked,
		TypePolicySet,
		TypeQuotaSet,
		TypeBudgetSet,
		TypeRegionDefined,
		TypeCertificationHeld,
		TypeMethodChanged,
		TypeMappingRuleSet,
		TypeLegalHoldSet,
		TypePersonNamed:
		return TopicWorkspaces
	case TypeClusterRegistered,
		TypeClusterKeyIssued,
		TypeClusterKeyRotated,
		TypeClusterKeyRevoked,
		TypeNodeRegistered,
		TypeNodeRetired,
		TypeGPURetired,
		TypeAssetAcquired,
		TypeAssetRevised,
		TypeAssetDisposed,
		TypeMaintenanceScheduled,
		TypeOutageDeclared:
		return TopicFleet
	case TypeGPUFaultObserved,
		TypeNodeCordoned,
		TypeNodeDrained,
		TypeNodeReturned,
		TypeCollectorSilent,
		TypeSpoolDropped:
		return TopicHardware
	case TypeNodeSampled,
		TypeServingSampled,
		TypeMetricsObserved,
		TypeJobQueued,
		TypeJobStarted,
		TypeJobFinished,
		TypeDemandObserved,
		TypeEnergyMetered,
		TypeUsageCorrected:
		return TopicTelemetry
	case TypeDeploymentChanged,
		TypeDeploymentRemoved,
		TypeReplicasObserved:
		return TopicDeployments
	case TypeBillingLineRecorded,
		TypeBillingLineCorrected,
		TypeBillingLineRemoved,
		TypeInvoiceReceived,
		TypeBillingPeriodClosed:
		return TopicBilling
	case TypeOfferQuoted,
		TypeOfferWithdrawn,
		TypeOnDemandQuotaSet,
		TypeSpotInterrupted,
		TypeTariffSet,
		TypeFXRateSet:
		return TopicMarket
	case TypePlanComputed,
		TypeScenarioFrozen,
		TypeRecommendationMade,
		TypeRecommendationApproved,
		TypeRecommendationRejected,
		TypeRecommendationWithdrawn,
		TypeCommandIssued,
		TypeRecommendationActuated,
		TypeOutcomeRecorded,
		TypeCommitmentPurchased,
		TypeCommitmentRenewed,
		TypeCommitmentEnded:
		return TopicProcurement
	case TypeClosePrepared,
		TypeCloseApproved,
		TypeBooksClosed,
		TypeExportMade,
		TypeCheckpointSigned,
		TypeQuarantineResolved,
		TypeStreamConflictObserved,
		TypeStreamGapResolved,
		TypeGenerationSwitched,
		TypeRemovalStarted,
		TypeRecordsRemoved,
		TypeAccessDenied:
		return TopicBooks
	case TypeAccessGranted,
		TypeAccessRevoked,
		TypeServiceKeyIssued,
		TypeServiceKeyRevoked,
		TypeSessionEnded,
		TypeAccessRecorded:
		return TopicAccess
	case TypeIncidentOpened,
		TypeIncidentChanged,
		TypeIncidentResolved,
		TypeIncidentAcknowledged,
		TypeIncidentSilenced:
		return TopicIncidents
	}
	return ""
}

// NewEvent returns an empty event of a type, nil for an unknown type.
func NewEvent(t Type) Event {
	switch t {
	case TypeWorkspaceRegistered:
		return &WorkspaceRegistered{}
	case TypeOperatorRegistered:
		return &OperatorRegistered{}
	case TypeOperatorRevoked:
		return &OperatorRevoked{}
	case TypePolicySet:
		return &PolicySet{}
	case TypeQuotaSet:
		return &QuotaSet{}
	case TypeBudgetSet:
		return &BudgetSet{}
	case TypeRegionDefined:
		return &RegionDefined{}
	case TypeCertificationHeld:
		return &CertificationHeld{}
	case TypeMethodChanged:
		return &MethodChanged{}
	case TypeMappingRuleSet:
		return &MappingRuleSet{}
	case TypeLegalHoldSet:
		return &LegalHoldSet{}
	case TypePersonNamed:
		return &PersonNamed{}
	case TypeClusterRegistered:
		return &ClusterRegistered{}
	case TypeClusterKeyIssued:
		return &ClusterKeyIssued{}
	case TypeClusterKeyRotated:
		return &ClusterKeyRotated{}
	case TypeClusterKeyRevoked:
		return &ClusterKeyRevoked{}
	case TypeNodeRegistered:
		return &NodeRegistered{}
	case TypeNodeRetired:
		return &NodeRetired{}
	case TypeGPURetired:
		return &GPURetired{}
	case TypeAssetAcquired:
		return &AssetAcquired{}
	case TypeAssetRevised:
		return &AssetRevised{}
	case TypeAssetDisposed:
		return &AssetDisposed{}
	case TypeMaintenanceScheduled:
		return &MaintenanceScheduled{}
	case TypeOutageDeclared:
		return &OutageDeclared{}
	case TypeGPUFaultObserved:
		return &GPUFaultObserved{}
	case TypeNodeCordoned:
		return &NodeCordoned{}
	case TypeNodeDrained:
		return &NodeDrained{}
	case TypeNodeReturned:
		return &NodeReturned{}
	case TypeCollectorSilent:
		return &CollectorSilent{}
	case TypeSpoolDropped:
		return &SpoolDropped{}
	case TypeNodeSampled:
		return &NodeSampled{}
	case TypeServingSampled:
		return &ServingSampled{}
	case TypeMetricsObserved:
		return &MetricsObserved{}
	case TypeJobQueued:
		return &JobQueued{}
	case TypeJobStarted:
		return &JobStarted{}
	case TypeJobFinished:
		return &JobFinished{}
	case TypeDemandObserved:
		return &DemandObserved{}
	case TypeEnergyMetered:
		return &EnergyMetered{}
	case TypeUsageCorrected:
		return &UsageCorrected{}
	case TypeDeploymentChanged:
		return &DeploymentChanged{}
	case TypeDeploymentRemoved:
		return &DeploymentRemoved{}
	case TypeReplicasObserved:
		return &ReplicasObserved{}
	case TypeBillingLineRecorded:
		return &BillingLineRecorded{}
	case TypeBillingLineCorrected:
		return &BillingLineCorrected{}
	case TypeBillingLineRemoved:
		return &BillingLineRemoved{}
	case TypeInvoiceReceived:
		return &InvoiceReceived{}
	case TypeBillingPeriodClosed:
		return &BillingPeriodClosed{}
	case TypeOfferQuoted:
		return &OfferQuoted{}
	case TypeOfferWithdrawn:
		return &OfferWithdrawn{}
	case TypeOnDemandQuotaSet:
		return &OnDemandQuotaSet{}
	case TypeSpotInterrupted:
		return &SpotInterrupted{}
	case TypeTariffSet:
		return &TariffSet{}
	case TypeFXRateSet:
		return &FXRateSet{}
	case TypePlanComputed:
		return &PlanComputed{}
	case TypeScenarioFrozen:
		return &ScenarioFrozen{}
	case TypeRecommendationMade:
		return &RecommendationMade{}
	case TypeRecommendationApproved:
		return &RecommendationApproved{}
	case TypeRecommendationRejected:
		return &RecommendationRejected{}
	case TypeRecommendationWithdrawn:
		return &RecommendationWithdrawn{}
	case TypeCommandIssued:
		return &CommandIssued{}
	case TypeRecommendationActuated:
		return &RecommendationActuated{}
	case TypeOutcomeRecorded:
		return &OutcomeRecorded{}
	case TypeCommitmentPurchased:
		return &CommitmentPurchased{}
	case TypeCommitmentRenewed:
		return &CommitmentRenewed{}
	case TypeCommitmentEnded:
		return &CommitmentEnded{}
	case TypeClosePrepared:
		return &ClosePrepared{}
	case TypeCloseApproved:
		return &CloseApproved{}
	case TypeBooksClosed:
		return &BooksClosed{}
	case TypeExportMade:
		return &ExportMade{}
	case TypeCheckpointSigned:
		return &CheckpointSigned{}
	case TypeQuarantineResolved:
		return &QuarantineResolved{}
	case TypeStreamConflictObserved:
		return &StreamConflictObserved{}
	case TypeStreamGapResolved:
		return &StreamGapResolved{}
	case TypeGenerationSwitched:
		return &GenerationSwitched{}
	case TypeRemovalStarted:
		return &RemovalStarted{}
	case TypeRecordsRemoved:
		return &RecordsRemoved{}
	case TypeAccessDenied:
		return &AccessDenied{}
	case TypeAccessGranted:
		return &AccessGranted{}
	case TypeAccessRevoked:
		return &AccessRevoked{}
	case TypeServiceKeyIssued:
		return &ServiceKeyIssued{}
	case TypeServiceKeyRevoked:
		return &ServiceKeyRevoked{}
	case TypeSessionEnded:
		return &SessionEnded{}
	case TypeAccessRecorded:
		return &AccessRecorded{}
	case TypeIncidentOpened:
		return &IncidentOpened{}
	case TypeIncidentChanged:
		return &IncidentChanged{}
	case TypeIncidentResolved:
		return &IncidentResolved{}
	case TypeIncidentAcknowledged:
		return &IncidentAcknowledged{}
	case TypeIncidentSilenced:
		return &IncidentSilenced{}
	}
	return nil
}

// Each event names its type.

func (*WorkspaceRegistered) Type() Type     { return TypeWorkspaceRegistered }
func (*OperatorRegistered) Type() Type      { return TypeOperatorRegistered }
func (*OperatorRevoked) Type() Type         { return TypeOperatorRevoked }
func (*PolicySet) Type() Type               { return TypePolicySet }
func (*QuotaSet) Type() Type                { return TypeQuotaSet }
func (*BudgetSet) Type() Type               { return TypeBudgetSet }
func (*RegionDefined) Type() Type           { return TypeRegionDefined }
func (*CertificationHeld) Type() Type       { return TypeCertificationHeld }
func (*MethodChanged) Type() Type           { return TypeMethodChanged }
func (*MappingRuleSet) Type() Type          { return TypeMappingRuleSet }
func (*LegalHoldSet) Type() Type            { return TypeLegalHoldSet }
func (*PersonNamed) Type() Type             { return TypePersonNamed }
func (*ClusterRegistered) Type() Type       { return TypeClusterRegistered }
func (*ClusterKeyIssued) Type() Type        { return TypeClusterKeyIssued }
func (*ClusterKeyRotated) Type() Type       { return TypeClusterKeyRotated }
func (*ClusterKeyRevoked) Type() Type       { return TypeClusterKeyRevoked }
func (*NodeRegistered) Type() Type          { return TypeNodeRegistered }
func (*NodeRetired) Type() Type             { return TypeNodeRetired }
func (*GPURetired) Type() Type              { return TypeGPURetired }
func (*AssetAcquired) Type() Type           { return TypeAssetAcquired }
func (*AssetRevised) Type() Type            { return TypeAssetRevised }
func (*AssetDisposed) Type() Type           { return TypeAssetDisposed }
func (*MaintenanceScheduled) Type() Type    { return TypeMaintenanceScheduled }
func (*OutageDeclared) Type() Type          { return TypeOutageDeclared }
func (*GPUFaultObserved) Type() Type        { return TypeGPUFaultObserved }
func (*NodeCordoned) Type() Type            { return TypeNodeCordoned }
func (*NodeDrained) Type() Type             { return TypeNodeDrained }
func (*NodeReturned) Type() Type            { return TypeNodeReturned }
func (*CollectorSilent) Type() Type         { return TypeCollectorSilent }
func (*SpoolDropped) Type() Type            { return TypeSpoolDropped }
func (*NodeSampled) Type() Type             { return TypeNodeSampled }
func (*ServingSampled) Type() Type          { return TypeServingSampled }
func (*MetricsObserved) Type() Type         { return TypeMetricsObserved }
func (*JobQueued) Type() Type               { return TypeJobQueued }
func (*JobStarted) Type() Type              { return TypeJobStarted }
func (*JobFinished) Type() Type             { return TypeJobFinished }
func (*DemandObserved) Type() Type          { return TypeDemandObserved }
func (*EnergyMetered) Type() Type           { return TypeEnergyMetered }
func (*UsageCorrected) Type() Type          { return TypeUsageCorrected }
func (*DeploymentChanged) Type() Type       { return TypeDeploymentChanged }
func (*DeploymentRemoved) Type() Type       { return TypeDeploymentRemoved }
func (*ReplicasObserved) Type() Type        { return TypeReplicasObserved }
func (*BillingLineRecorded) Type() Type     { return TypeBillingLineRecorded }
func (*BillingLineCorrected) Type() Type    { return TypeBillingLineCorrected }
func (*BillingLineRemoved) Type() Type      { return TypeBillingLineRemoved }
func (*InvoiceReceived) Type() Type         { return TypeInvoiceReceived }
func (*BillingPeriodClosed) Type() Type     { return TypeBillingPeriodClosed }
func (*OfferQuoted) Type() Type             { return TypeOfferQuoted }
func (*OfferWithdrawn) Type() Type          { return TypeOfferWithdrawn }
func (*OnDemandQuotaSet) Type() Type        { return TypeOnDemandQuotaSet }
func (*SpotInterrupted) Type() Type         { return TypeSpotInterrupted }
func (*TariffSet) Type() Type               { return TypeTariffSet }
func (*FXRateSet) Type() Type               { return TypeFXRateSet }
func (*PlanComputed) Type() Type            { return TypePlanComputed }
func (*ScenarioFrozen) Type() Type          { return TypeScenarioFrozen }
func (*RecommendationMade) Type() Type      { return TypeRecommendationMade }
func (*RecommendationApproved) Type() Type  { return TypeRecommendationApproved }
func (*RecommendationRejected) Type() Type  { return TypeRecommendationRejected }
func (*RecommendationWithdrawn) Type() Type { return TypeRecommendationWithdrawn }
func (*CommandIssued) Type() Type           { return TypeCommandIssued }
func (*RecommendationActuated) Type() Type  { return TypeRecommendationActuated }
func (*OutcomeRecorded) Type() Type         { return TypeOutcomeRecorded }
func (*CommitmentPurchased) Type() Type     { return TypeCommitmentPurchased }
func (*CommitmentRenewed) Type() Type       { return TypeCommitmentRenewed }
func (*CommitmentEnded) Type() Type         { return TypeCommitmentEnded }
func (*ClosePrepared) Type() Type           { return TypeClosePrepared }
func (*CloseApproved) Type() Type           { return TypeCloseApproved }
func (*BooksClosed) Type() Type             { return TypeBooksClosed }
func (*ExportMade) Type() Type              { return TypeExportMade }
func (*CheckpointSigned) Type() Type        { return TypeCheckpointSigned }
func (*QuarantineResolved) Type() Type      { return TypeQuarantineResolved }
func (*StreamConflictObserved) Type() Type  { return TypeStreamConflictObserved }
func (*StreamGapResolved) Type() Type       { return TypeStreamGapResolved }
func (*GenerationSwitched) Type() Type      { return TypeGenerationSwitched }
func (*RemovalStarted) Type() Type          { return TypeRemovalStarted }
func (*RecordsRemoved) Type() Type          { return TypeRecordsRemoved }
func (*AccessDenied) Type() Type            { return TypeAccessDenied }
func (*AccessGranted) Type() Type           { return TypeAccessGranted }
func (*AccessRevoked) Type() Type           { return TypeAccessRevoked }
func (*ServiceKeyIssued) Type() Type        { return TypeServiceKeyIssued }
func (*ServiceKeyRevoked) Type() Type       { return TypeServiceKeyRevoked }
func (*SessionEnded) Type() Type            { return TypeSessionEnded }
func (*AccessRecorded) Type() Type          { return TypeAccessRecorded }
func (*IncidentOpened) Type() Type          { return TypeIncidentOpened }
func (*IncidentChanged) Type() Type         { return TypeIncidentChanged }
func (*IncidentResolved) Type() Type        { return TypeIncidentResolved }
func (*IncidentAcknowledged) Type() Type    { return TypeIncidentAcknowledged }
func (*IncidentSilenced) Type() Type        { return TypeIncidentSilenced }

func (*WorkspaceRegistered) sealed()     {}
func (*OperatorRegistered) sealed()      {}
func (*OperatorRevoked) sealed()         {}
func (*PolicySet) sealed()               {}
func (*QuotaSet) sealed()                {}
func (*BudgetSet) sealed()               {}
func (*RegionDefined) sealed()           {}
func (*CertificationHeld) sealed()       {}
func (*MethodChanged) sealed()           {}
func (*MappingRuleSet) sealed()          {}
func (*LegalHoldSet) sealed()            {}
func (*PersonNamed) sealed()             {}
func (*ClusterRegistered) sealed()       {}
func (*ClusterKeyIssued) sealed()        {}
func (*ClusterKeyRotated) sealed()       {}
func (*ClusterKeyRevoked) sealed()       {}
func (*NodeRegistered) sealed()          {}
func (*NodeRetired) sealed()             {}
func (*GPURetired) sealed()              {}
func (*AssetAcquired) sealed()           {}
func (*AssetRevised) sealed()            {}
func (*AssetDisposed) sealed()           {}
func (*MaintenanceScheduled) sealed()    {}
func (*OutageDeclared) sealed()          {}
func (*GPUFaultObserved) sealed()        {}
func (*NodeCordoned) sealed()            {}
func (*NodeDrained) sealed()             {}
func (*NodeReturned) sealed()            {}
func (*CollectorSilent) sealed()         {}
func (*SpoolDropped) sealed()            {}
func (*NodeSampled) sealed()             {}
func (*ServingSampled) sealed()          {}
func (*MetricsObserved) sealed()         {}
func (*JobQueued) sealed()               {}
func (*JobStarted) sealed()              {}
func (*JobFinished) sealed()             {}
func (*DemandObserved) sealed()          {}
func (*EnergyMetered) sealed()           {}
func (*UsageCorrected) sealed()          {}
func (*DeploymentChanged) sealed()       {}
func (*DeploymentRemoved) sealed()       {}
func (*ReplicasObserved) sealed()        {}
func (*BillingLineRecorded) sealed()     {}
func (*BillingLineCorrected) sealed()    {}
func (*BillingLineRemoved) sealed()      {}
func (*InvoiceReceived) sealed()         {}
func (*BillingPeriodClosed) sealed()     {}
func (*OfferQuoted) sealed()             {}
func (*OfferWithdrawn) sealed()          {}
func (*OnDemandQuotaSet) sealed()        {}
func (*SpotInterrupted) sealed()         {}
func (*TariffSet) sealed()               {}
func (*FXRateSet) sealed()               {}
func (*PlanComputed) sealed()            {}
func (*ScenarioFrozen) sealed()          {}
func (*RecommendationMade) sealed()      {}
func (*RecommendationApproved) sealed()  {}
func (*RecommendationRejected) sealed()  {}
func (*RecommendationWithdrawn) sealed() {}
func (*CommandIssued) sealed()           {}
func (*RecommendationActuated) sealed()  {}
func (*OutcomeRecorded) sealed()         {}
func (*CommitmentPurchased) sealed()     {}
func (*CommitmentRenewed) sealed()       {}
func (*CommitmentEnded) sealed()         {}
func (*ClosePrepared) sealed()           {}
func (*CloseApproved) sealed()           {}
func (*BooksClosed) sealed()             {}
func (*ExportMade) sealed()              {}
func (*CheckpointSigned) sealed()        {}
func (*QuarantineResolved) sealed()      {}
func (*StreamConflictObserved) sealed()  {}
func (*StreamGapResolved) sealed()       {}
func (*GenerationSwitched) sealed()      {}
func (*RemovalStarted) sealed()          {}
func (*RecordsRemoved) sealed()          {}
func (*AccessDenied) sealed()            {}
func (*AccessGranted) sealed()           {}
func (*AccessRevoked) sealed()           {}
func (*ServiceKeyIssued) sealed()        {}
func (*ServiceKeyRevoked) sealed()       {}
func (*SessionEnded) sealed()            {}
func (*AccessRecorded) sealed()          {}
func (*IncidentOpened) sealed()          {}
func (*IncidentChanged) sealed()         {}
func (*IncidentResolved) sealed()        {}
func (*IncidentAcknowledged) sealed()    {}
func (*IncidentSilenced) sealed()        {}
