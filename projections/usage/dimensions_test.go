package usage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// A node of a declared cluster, with a declared deployment, and one without any declarations.
func TestUsageByEveryDimension(t *testing.T) {
	l := storetest.NewLog()
	node := storetest.Node("c", "n", "NVIDIA H100 80GB HBM3", 2, storetest.Start)
	node.Event.(*domain.NodeRegistered).BillingModel = domain.BillingSpot
	l.Append(
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start, Event: &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: "eu"}}, node,
		domain.Envelope{Workspace: "a", Cluster: "c", Time: storetest.Start, Event: &domain.DeploymentChanged{Deployment: "chat", Model: "m", Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 1}}},
		storetest.Sampled("reporter/n", 0, 60, storetest.Seen{ID: storetest.GPU("c", "n", 0), Workspace: "a", Deployment: "chat", Activity: -1}, storetest.Seen{ID: storetest.GPU("c", "n", 1), Activity: -1}),
		storetest.Sampled("reporter/n", 60, 120, storetest.Seen{ID: storetest.GPU("c", "n", 0), Workspace: "b", Deployment: "chat", Activity: -1}, storetest.Seen{ID: storetest.GPU("c", "n", 1), Activity: -1}),
		domain.Envelope{Source: "reporter/m", Cluster: "d", Time: storetest.Start + domain.Hour, Event: storetest.Sample("m", storetest.Span(0, 60), storetest.Seen{ID: storetest.GPU("d", "m", 0), Workspace: "a", Deployment: "old", Activity: -1})},
	)
	storetest.FoldView(t, l, func(v projections.View) {
		report := func(where []string, by ...usage.Dimension) *usage.Report {
			conditions, err := usage.ParseConditions(where)
			if err != nil {
				t.Fatal(err)
			}
			r, err := usage.NewReport(v, storetest.Start, storetest.Start+2*domain.Hour, usage.Filter{Where: conditions}, by...)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		whole := report(nil).Total.Service
		for d, want := range map[usage.Dimension]string{
			usage.ByProvider: "p 240, unknown 60", usage.ByProviderClass: "neocloud 240, unknown 60", usage.ByBillingModel: "spot 240, unknown 60",
			usage.ByGPUModel: "H100 SXM 80GB 240, unknown 60", usage.ByWorkloadClass: "none 120, serving 60, unknown 120",
		} {
			r := report(nil, d)
			var got []string
			var sum int64
			for _, g := range r.Groups {
				got = append(got, fmt.Sprintf("%s %d", g.Key[d], g.Service/60_000))
				sum += g.Service
				if part := report([]string{string(d) + "=" + g.Key[d]}, d); len(part.Groups) != 1 || part.Groups[0].Service != g.Service || part.Total.Service != g.Service {
					t.Errorf("%s=%s is %+v, want %d", d, g.Key[d], part.Groups, g.Service)
				}
			}
			if text := strings.Join(got, ", "); text != want || sum != whole {
				t.Errorf("by %s: %s, want %s; %d in all of %d", d, text, want, sum, whole)
			}
		}
	})
	var unknown *dimension.UnknownError
	if _, err := usage.ParseDimensions([]string{"model"}); !errors.As(err, &unknown) || len(unknown.Known) != len(usage.Dimensions()) {
		t.Errorf("model: %v", err)
	}
}
