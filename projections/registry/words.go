package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Words says what an event decides, as what somebody did: "granted role viewer to user:corp/1". cluster is the cluster
// that the event is about, "" for none. Whoever signs a proposal reads the same words as whoever reads the trail later.
func Words(ev domain.Event, cluster string) string {
	what := words(ev)
	if of, ok := ev.(*domain.ClusterRegistered); ok {
		what = fmt.Sprintf("registered cluster %s of %s in %s", cluster, of.Provider, of.Region)
	} else if cluster != "" {
		what += " in cluster " + cluster
	}
	return what
}

func words(ev domain.Event) string {
	switch ev := ev.(type) {
	// Registry.
	case *domain.WorkspaceRegistered:
		return "registered the workspace as " + ev.Name + under(" below ", ev.Parent)
	case *domain.OperatorRegistered:
		limits := make([]string, len(ev.AuthorityLimits))
		for i, m := range ev.AuthorityLimits {
			limits[i] = m.String()
		}
		return fmt.Sprintf("registered operator %s as %s%s", ev.Operator, ev.Role, under(" with limit ", strings.Join(limits, ", ")))
	case *domain.OperatorRevoked:
		return "revoked a key of operator " + ev.Operator + because(ev.Reason)
	case *domain.PolicySet:
		return fmt.Sprintf("set policy %s of kind %s%s", ev.Policy, ev.Kind, to(ev.EffectiveTo))
	case *domain.QuotaSet:
		return fmt.Sprintf("set quota %s of %s to %s", ev.Quota, ev.Resource, ev.Limit)
	case *domain.BudgetSet:
		return fmt.Sprintf("set budget %s for %s to %s", ev.Budget, span(ev.Period), ev.Amount)
	case *domain.RegionDefined:
		return fmt.Sprintf("defined region %s in %s", ev.Region, ev.Country)
	case *domain.CertificationHeld:
		of := "provider " + ev.Provider
		if ev.Cluster != "" {
			of = "cluster " + ev.Cluster
		}
		return fmt.Sprintf("certified %s for %s, %s", ev.Certification, of, span(ev.Valid))
	case *domain.MethodChanged:
		return fmt.Sprintf("changed method %s to %s", ev.Method, ev.Version) + because(ev.Reason)
	case *domain.MappingRuleSet:
		whom := under(" to workspace ", ev.ToWorkspace)
		if ev.Shares() {
			whom = " to several workspaces"
		}
		return "set mapping rule " + ev.Rule + whom + under(" in cluster ", ev.Cluster)
	case *domain.LegalHoldSet:
		if ev.Lifted {
			return "lifted legal hold " + ev.Hold + because(ev.Reason)
		}
		return "set legal hold " + ev.Hold + under(" on workspace ", ev.Workspace) + under(" on cluster ", ev.Cluster) + because(ev.Reason)
	case *domain.PersonNamed:
		return "named person " + ev.Person

	// Inventory.
	case *domain.ClusterKeyIssued:
		return "issued cluster key " + ev.KeyID + scopes(ev.Scopes) + to(ev.Expires)
	case *domain.ClusterKeyRotated:
		return "replaced cluster key " + ev.PreviousKeyID + " by " + ev.KeyID + scopes(ev.Scopes) + to(ev.Expires)
	case *domain.ClusterKeyRevoked:
		return "revoked cluster key " + ev.KeyID + because(ev.Reason)
	case *domain.NodeRegistered:
		return "registered node " + ev.Node
	case *domain.NodeRetired:
		return "retired node " + ev.Node + because(ev.Reason)
	case *domain.GPURetired:
		return fmt.Sprintf("retired GPU %s of node %s%s", ev.GPU, ev.Node, because(ev.Reason))
	case *domain.AssetAcquired:
		return fmt.Sprintf("put asset %s on the books at %s", ev.Asset, ev.Capex)
	case *domain.AssetRevised:
		return "revised asset " + ev.Asset + because(ev.Reason)
	case *domain.AssetDisposed:
		return "took asset " + ev.Asset + " off the books" + because(ev.Reason)
	case *domain.MaintenanceScheduled:
		if ev.Cancelled {
			return "cancelled maintenance " + ev.Maintenance + because(ev.Reason)
		}
		return fmt.Sprintf("scheduled maintenance %s of %s for %s%s", ev.Maintenance, nodes(ev.Nodes), span(ev.Window), because(ev.Reason))
	case *domain.OutageDeclared:
		if ev.Cancelled {
			return "cancelled outage " + ev.Outage + because(ev.Reason)
		}
		return fmt.Sprintf("declared outage %s of %s for %s%s", ev.Outage, nodes(ev.Nodes), span(ev.Window), because(ev.Reason))
	case *domain.NodeCordoned:
		return "cordoned node " + ev.Node + because(ev.Reason)
	case *domain.NodeDrained:
		return "drained node " + ev.Node + because(ev.Reason)
	case *domain.NodeReturned:
		return "returned node " + ev.Node + " to service" + because(ev.Reason)
	case *domain.UsageCorrected:
		if ev.Cancelled {
			return "cancelled correction " + ev.Correction + because(ev.Reason)
		}
		whom := "nobody"
		if ev.Workspace != "" {
			whom = "workspace " + ev.Workspace
		}
		return fmt.Sprintf("corrected usage by %s: %s held a GPU of node %s, %s%s", ev.Correction, whom, ev.Node, span(ev.Interval), because(ev.Reason))
	case *domain.DeploymentChanged:
		return fmt.Sprintf("declared deployment %s with %d replicas", ev.Deployment, ev.Replicas)
	case *domain.DeploymentRemoved:
		return "removed deployment " + ev.Deployment + because(ev.Reason)

	// Market.
	case *domain.OnDemandQuotaSet:
		return fmt.Sprintf("set the on-demand quota of account %s at %s to %d GPUs%s", ev.Account, ev.Market.Key(), ev.LimitGPUs, under(" of ", ev.GPUModel))
	case *domain.TariffSet:
		return fmt.Sprintf("set the tariff of %s to %s per kWh", ev.Market.Key(), ev.PerKWh)
	case *domain.FXRateSet:
		return fmt.Sprintf("set the %s rate of %s/%s for %s to %s", ev.Kind, ev.Base, ev.Quote, span(ev.Effective), ev.Rate)

	// Procurement.
	case *domain.RecommendationMade:
		return fmt.Sprintf("made %s recommendation %s: %s", ev.Kind, ev.Recommendation, ev.Summary)
	case *domain.RecommendationApproved:
		return "approved recommendation " + ev.Recommendation + because(ev.Note)
	case *domain.RecommendationRejected:
		return "rejected recommendation " + ev.Recommendation + because(ev.Note)
	case *domain.RecommendationWithdrawn:
		return "withdrew recommendation " + ev.Recommendation + because(ev.Reason)
	case *domain.CommandIssued:
		return fmt.Sprintf("issued command %s of recommendation %s%s", ev.Command, ev.Recommendation, to(ev.Expires))
	case *domain.RecommendationActuated:
		return actuatedWord(ev) + " recommendation " + ev.Recommendation + under(" as ", ev.Reference)
	case *domain.OutcomeRecorded:
		return fmt.Sprintf("recorded outcome %s of recommendation %s%s", ev.Outcome, ev.Recommendation, because(ev.Detail))
	case *domain.CommitmentPurchased:
		return fmt.Sprintf("purchased commitment %s of %d × %s for %s", ev.Commitment, ev.Units, ev.SKU, span(ev.Term))
	case *domain.CommitmentRenewed:
		return fmt.Sprintf("renewed commitment %s for %s", ev.Commitment, span(ev.Term))
	case *domain.CommitmentEnded:
		return fmt.Sprintf("ended commitment %s at %s%s", ev.Commitment, second(ev.At), because(ev.Reason))

	// Books.
	case *domain.ClosePrepared:
		return "proposed to close " + month(ev.Period)
	case *domain.CloseApproved:
		return "approved the close of " + month(ev.Period)
	case *domain.BooksClosed:
		return "closed " + month(ev.Period)
	case *domain.QuarantineResolved:
		return fmt.Sprintf("resolved quarantined record %s as %s%s", projections.RecordID(ev.Topic, ev.Partition, ev.Offset), ev.Resolution, because(ev.Reason))
	case *domain.StreamGapResolved:
		return fmt.Sprintf("gave up events %d to %d of stream %s%s", ev.From, ev.To, ev.Source, because(ev.Reason))
	case *domain.GenerationSwitched:
		return fmt.Sprintf("switched readers from generation %s to %s%s", ev.From, ev.To, because(ev.Reason))
	case *domain.AccessDenied:
		return fmt.Sprintf("tried %q%s", ev.Action, because(ev.Target))

	// Access.
	case *domain.AccessGranted:
		return fmt.Sprintf("granted role %s to %s%s%s", ev.Role, ev.Principal, under(" in clusters ", strings.Join(ev.Clusters, ", ")), to(ev.Until))
	case *domain.AccessRevoked:
		return "revoked grant " + ev.Grant + because(ev.Reason)
	case *domain.ServiceKeyIssued:
		return fmt.Sprintf("issued key %s of account %s%s", ev.KeyID, ev.Account, to(ev.Expires))
	case *domain.ServiceKeyRevoked:
		return "revoked key " + ev.KeyID + because(ev.Reason)
	case *domain.SessionEnded:
		return fmt.Sprintf("ended the sessions of %s%s", ev.Principal, because(ev.Reason))

	// Incidents.
	case *domain.IncidentAcknowledged:
		return "acknowledged incident " + ev.Incident + because(ev.Note)
	case *domain.IncidentSilenced:
		whom := "incident " + ev.Incident
		if ev.Rule != "" {
			whom = "rule " + ev.Rule + under(" for ", ev.Subject)
		}
		return "silenced " + whom + to(ev.Until) + because(ev.Reason)
	}
	return "decided " + string(ev.Type())
}

// scopes says what a key may be used for, if it is more or less than to push.
func scopes(list []string) string {
	if len(list) == 0 || slices.Equal(list, []string{domain.KeyPush}) {
		return ""
	}
	return " to " + strings.Join(list, " and ")
}

func under(word, name string) string {
	if name == "" {
		return ""
	}
	return word + name
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Join(strings.Fields(reason), " "))
}

func to(end domain.Instant) string {
	if end == 0 {
		return ""
	}
	return " until " + second(end)
}

func nodes(names []string) string {
	switch len(names) {
	case 0:
		return "all nodes"
	case 1:
		return "node " + names[0]
	}
	return fmt.Sprintf("%d nodes", len(names))
}

// month names a period of the books: a month by its name, another by its interval.
func month(period domain.Interval) string {
	if projections.BillingMonth(period.From) == period {
		return period.From.Time().Format("2006-01")
	}
	return span(period)
}

func span(i domain.Interval) string { return second(i.From) + " to " + second(i.To) }

// second is a time as people read it, to the second.
func second(t domain.Instant) string { return t.Time().Truncate(time.Second).Format(time.RFC3339) }
