// Package house checks recommendations by the policies of the house. It shares no code with what makes them: it reads the
// policies as they were declared, and what a recommendation moves where.
//
// What cannot be checked is not kept: a recommendation that may break a policy is refused.
package house

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/recommend"

	"github.com/shopspring/decimal"
)

// Check returns the policies that a recommendation is subject to, and whether it keeps each.
func Check(e *recommend.Estate, r *recommend.Recommendation) []recommend.Checked {
	c := &checker{e: e}
	for i := range r.Moves {
		c.move(&r.Moves[i])
	}
	c.quotas(r)
	if !r.Cost.Amount.IsZero() {
		c.spend(r)
	}
	return c.checked
}

type checker struct {
	e       *recommend.Estate
	checked []recommend.Checked
}

func (c *checker) say(policy, kind string, kept bool, why string, args ...any) {
	x := recommend.Checked{Policy: policy, Kind: kind, Kept: kept}
	if !kept {
		x.Why = fmt.Sprintf(why, args...)
	}
	c.checked = append(c.checked, x)
}

func (c *checker) cluster(id string) *recommend.Cluster {
	for i := range c.e.Clusters {
		if c.e.Clusters[i].ID == id {
			return &c.e.Clusters[i]
		}
	}
	return nil
}

// move checks where replicas go.
func (c *checker) move(m *recommend.Move) {
	to := c.cluster(m.ToCluster)
	var moved *recommend.Deployment
	for i := range c.e.Deployments {
		if d := &c.e.Deployments[i]; d.Cluster == m.FromCluster && d.Deployment == m.Deployment {
			moved = d
		}
	}
	if to == nil || moved == nil {
		c.say(m.Deployment, "declaration", false, "deployment %s or cluster %s is not declared, so nobody can say what binds it", m.Deployment, m.ToCluster)
		return
	}
	own := "deployment " + moved.Deployment
	if len(moved.Models) > 0 {
		c.say(own, "gpu_model", slices.Contains(moved.Models, m.ToModel), "it allows %v, not %s", moved.Models, m.ToModel)
	}
	if len(moved.Countries) > 0 {
		c.say(own, string(domain.PolicyResidency), slices.Contains(moved.Countries, to.Country), "cluster %s is in %q, and it must stay in %v", to.ID, to.Country, moved.Countries)
	}
	for _, need := range moved.Certifications {
		c.say(own, string(domain.PolicyCertification), slices.Contains(to.Certifications, need), "cluster %s is not certified for %s", to.ID, need)
	}
	if moved.Dedicated && (m.ToSlice != "" || m.ToCluster != m.FromCluster) {
		c.say(own, string(domain.PolicyDedicated), false, "it shares no node with anyone, and what it would move to may be shared")
	}
	for i := range c.e.Policies {
		p := &c.e.Policies[i]
		if !c.binds(&p.Selector, moved) {
			// An "apart" policy binds the other side, too.
			if p.Kind != domain.PolicyApart || !slices.ContainsFunc(p.Others, func(s domain.Selector) bool { return c.binds(&s, moved) }) {
				continue
			}
			c.apart(p, []domain.Selector{p.Selector}, moved, m, to)
			continue
		}
		name := p.Workspace + "/" + p.Policy
		switch p.Kind {
		case domain.PolicyResidency:
			c.say(name, string(p.Kind), slices.Contains(p.Countries, to.Country), "cluster %s is in %q, and it must stay in %v", to.ID, to.Country, p.Countries)
		case domain.PolicyCertification:
			for _, need := range p.Certifications {
				c.say(name, string(p.Kind), slices.Contains(to.Certifications, need), "cluster %s is not certified for %s", to.ID, need)
			}
		case domain.PolicyPlacement:
			c.say(name, string(p.Kind), slices.Contains(p.Clusters, to.ID), "it may run in %v only, not in %s", p.Clusters, to.ID)
		case domain.PolicyDedicated:
			c.say(name, string(p.Kind), m.ToSlice == "" && m.ToCluster == m.FromCluster, "it shares no node with anyone, and what it would move to may be shared")
		case domain.PolicyApart:
			c.apart(p, p.Others, moved, m, to)
		}
	}
}

// apart checks that none of the others is where replicas go. Within a cluster nobody knows beforehand which node they get.
func (c *checker) apart(p *recommend.Policy, others []domain.Selector, moved *recommend.Deployment, m *recommend.Move, to *recommend.Cluster) {
	name := p.Workspace + "/" + p.Policy
	for i := range c.e.Deployments {
		d := &c.e.Deployments[i]
		if d == moved || d.Cluster != to.ID || !slices.ContainsFunc(others, func(s domain.Selector) bool { return c.binds(&s, d) }) {
			continue
		}
		if p.Scope == "node" {
			c.say(name, string(p.Kind), m.ToSlice == "" && m.ToCluster == m.FromCluster && d.GPUModel != m.ToModel,
				"it may share no node with %s, which runs in cluster %s", d.Deployment, to.ID)
		} else {
			c.say(name, string(p.Kind), m.ToCluster == m.FromCluster, "it may share no cluster with %s, which runs in %s", d.Deployment, to.ID)
		}
		return
	}
	c.say(name, string(p.Kind), true, "")
}

// binds reports whether a selector matches a deployment. Regions and countries are those of the cluster that declares it.
func (c *checker) binds(s *domain.Selector, d *recommend.Deployment) bool {
	at := c.cluster(d.Cluster)
	region, country := "", ""
	if at != nil {
		region, country = at.Region, at.Country
	}
	return (s.Workspace == "" || s.Workspace == d.Workspace) && (s.Class == "" || s.Class == d.Class) &&
		(s.Deployment == "" || s.Deployment == d.Deployment) && (s.Cluster == "" || s.Cluster == d.Cluster) &&
		(s.Tier == "" || s.Tier == d.Tier) && (s.Environment == "" || s.Environment == d.Environment) && s.In(region, country)
}

// quotas checks that what replicas take besides fits the hard quotas of their workspace and of those above it. Only replicas
// that run in another cluster, or on another GPU, take GPUs besides: the old ones go when the new ones run.
func (c *checker) quotas(r *recommend.Recommendation) {
	for i := range c.e.Figures.Limits {
		l := &c.e.Figures.Limits[i]
		if l.Rule != advice.Quota || !l.Hard {
			continue
		}
		var more int64
		for k := range r.Moves {
			m := &r.Moves[k]
			to := c.cluster(m.ToCluster)
			if to == nil || m.ToSlice != "" || !c.below(m.Workspace, l.Workspace) || l.Region != "" && l.Region != to.Region ||
				l.GPUModel != "" && l.GPUModel != m.ToModel {
				continue
			}
			for d := range c.e.Deployments {
				if x := &c.e.Deployments[d]; x.Cluster == m.FromCluster && x.Deployment == m.Deployment {
					more += m.Replicas * x.GPUs
				}
			}
		}
		if more > 0 {
			left := l.Limit.Sub(l.Used)
			c.say(l.Workspace+"/"+l.Name, "quota", !left.LessThan(decimal.NewFromInt(more)), "%s of %s %s are left, and this takes %d",
				left.StringFixed(0), l.Limit.StringFixed(0), l.Unit, more)
		}
	}
}

// below reports whether a workspace is another, or below it.
func (c *checker) below(workspace, above string) bool {
	for range 100 { // parents that go round end somewhere
		if workspace == above {
			return true
		}
		if workspace = c.e.Parents[workspace]; workspace == "" {
			return false
		}
	}
	return false
}

// spend checks that a commitment of money fits the hard budgets of its workspace.
func (c *checker) spend(r *recommend.Recommendation) {
	for i := range c.e.Figures.Limits {
		l := &c.e.Figures.Limits[i]
		if l.Rule != advice.Budget || !l.Hard || l.Workspace != r.Workspace {
			continue
		}
		if l.Unit != r.Cost.Currency {
			c.say(l.Workspace+"/"+l.Name, "budget", false, "it is in %s, and this commits %s", l.Unit, r.Cost)
			continue
		}
		c.say(l.Workspace+"/"+l.Name, "budget", !l.Used.Add(r.Cost.Amount).GreaterThan(l.Limit), "%s of %s %s are left, and this commits %s",
			l.Limit.Sub(l.Used).StringFixed(2), l.Limit.StringFixed(2), l.Unit, r.Cost)
	}
}
