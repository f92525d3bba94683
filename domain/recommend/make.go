package recommend

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"

	"github.com/shopspring/decimal"
)

// The kinds, as [domain.RecommendationKinds] has them.
const (
	kindPurchase  = "purchase"
	kindRenew     = "renew"
	kindLapse     = "lapse"
	kindRightsize = "rightsize"
	kindTier      = "tier"
	kindRebalance = "rebalance"
	kindShift     = "shift"
	kindDrain     = "drain"
	kindSleep     = "sleep"
	kindLimits    = "limits"
	kindRetire    = "retire"
	kindQuota     = "quota"
	kindOwn       = "own"
)

// lapseAfter is how long a recommendation may be approved: figures of a week are then two weeks old.
const lapseAfter = 14 * domain.Day

// maker makes recommendations.
type maker struct {
	e           *Estate
	clusters    map[string]*Cluster
	deployments map[[2]string]*Deployment
	prices      map[[2]string]domain.Money
	weeks       map[[2]string]*advice.Week
	unseen      map[[2]string][]*advice.Finding // by cluster and workspace
	made        []Recommendation
}

// Make returns what could be done about the findings of an estate, by kind and id. It does not look at the policies of the
// house; [Select] does.
func Make(e *Estate) []Recommendation {
	m := &maker{
		e: e, clusters: map[string]*Cluster{}, deployments: map[[2]string]*Deployment{}, prices: map[[2]string]domain.Money{},
		weeks: map[[2]string]*advice.Week{}, unseen: map[[2]string][]*advice.Finding{},
	}
	for i := range e.Clusters {
		m.clusters[e.Clusters[i].ID] = &e.Clusters[i]
	}
	for i := range e.Deployments {
		m.deployments[[2]string{e.Deployments[i].Cluster, e.Deployments[i].Deployment}] = &e.Deployments[i]
	}
	for _, p := range e.Figures.Prices {
		m.prices[[2]string{p.Cluster, p.GPUModel}] = p.PerGPUHour
	}
	for i := range e.Figures.Weeks {
		w := &e.Figures.Weeks[i]
		m.weeks[[2]string{w.Cluster, w.GPUModel}] = w
	}
	for i := range e.Findings {
		f := &e.Findings[i]
		if f.Status != advice.Firing {
			continue
		}
		switch f.Rule {
		case advice.Oversized:
			m.rightsize(f)
		case advice.IdleWindow:
			m.sleep(f)
		case advice.Shadow, advice.Unseen:
			m.retire(f)
		case advice.Failures:
			m.drain(f)
		case advice.OwnInstead:
			m.own(f)
		case advice.Quota:
			m.quota(f)
		case advice.Routing:
			m.limits(f)
		}
	}
	m.declarations()
	m.tiers()
	m.idleMachines()
	m.commitments()
	m.purchase()
	m.balance()
	for i := range m.made {
		r := &m.made[i]
		slices.Sort(r.Clusters)
		r.Clusters = slices.Compact(r.Clusters)
		if r.Expires.IsZero() {
			r.Expires = e.Figures.At + lapseAfter
		}
		for _, list := range []*[]string{&r.Steps, &r.Findings, &r.Clusters} {
			if *list == nil {
				*list = []string{}
			}
		}
		r.Checked = []Checked{}
		r.identify()
	}
	slices.SortStableFunc(m.made, func(a, b Recommendation) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	// Two findings may lead to the same: the first counts.
	m.made = slices.CompactFunc(m.made, func(a, b Recommendation) bool { return a.ID == b.ID })
	return m.made
}

// fork prices a change: GPU time of a window that is paid for before and after it, at a price for each GPU-hour. It returns
// what a month of 730 hours saves, and the digest of what was asked.
func (m *maker) fork(kind string, s advice.Subject, before, after []paidTime) (saving *domain.Money, digest string) {
	document, _ := json.Marshal(struct { //nolint:errchkjson // it has no value that cannot be encoded
		Position, Method, Kind, Subject string
		Before, After                   []paidTime
	}{m.e.Figures.Position, Method, kind, s.String(), before, after})
	sum := sha256.Sum256(document)
	digest = hex.EncodeToString(sum[:])
	total := domain.Money{}
	for i, all := range [][]paidTime{before, after} {
		for _, p := range all {
			if p.Price.Currency == "" || total.Currency != "" && total.Currency != p.Price.Currency {
				return nil, digest // it has no price, or two
			}
			total.Currency = p.Price.Currency
			cost := advice.PerMonth(p.Price.Amount, p.GPUMs, p.Window)
			if i == 1 {
				cost = cost.Neg()
			}
			total.Amount = total.Amount.Add(cost)
		}
	}
	if total.Currency == "" || !total.Amount.IsPositive() {
		return nil, digest
	}
	return &total, digest
}

// paidTime is GPU time of a window at a price.
type paidTime struct {
	GPUMs  int64
	Window domain.Interval
	Price  domain.Money // a GPU-hour
}

func (m *maker) price(cluster, model string) domain.Money { return m.prices[[2]string{cluster, model}] }

// interval sets the 90% interval of a saving: that of the mean of the next month, if weeks are a mean with independent
// deviations, by Student's t distribution with as many degrees of freedom as weeks less one, and at least 5% to each side.
// Without weeks it is half to twice the saving, which is a guess, and not calibrated.
func interval(r *Recommendation, weeks []int64) {
	if r.Saving == nil {
		return
	}
	low, high := decimal.New(5, -1), decimal.New(2, 0)
	if half, ok := relativeError(weeks); ok {
		low = decimal.Max(decimal.Decimal{}, decimal.NewFromInt(1).Sub(half))
		high = decimal.NewFromInt(1).Add(half)
	}
	r.Low = &domain.Money{Amount: r.Saving.Amount.Mul(low).Round(18), Currency: r.Saving.Currency}
	r.High = &domain.Money{Amount: r.Saving.Amount.Mul(high).Round(18), Currency: r.Saving.Currency}
}

// student has the 95% quantiles of Student's t distribution by degrees of freedom from 1 on, in thousandths, rounded up.
var student = []int64{6314, 2920, 2354, 2132, 2016, 1944, 1895, 1860}

// relativeError returns half of the interval as a share of the mean.
func relativeError(weeks []int64) (half decimal.Decimal, ok bool) {
	n := int64(len(weeks))
	if n < 3 || n > int64(len(student)) {
		return half, false
	}
	var sum int64
	for _, w := range weeks {
		sum += w
	}
	if sum <= 0 {
		return half, false
	}
	// n·Σ(x − mean)² ÷ (n − 1) is the variance times n; all times n² to stay in whole numbers.
	squares := new(big.Int)
	for _, w := range weeks {
		d := new(big.Int).SetInt64(w)
		d.Mul(d, big.NewInt(n)).Sub(d, big.NewInt(sum))
		squares.Add(squares, d.Mul(d, d))
	}
	// The mean of the next 730 hours has 730/168 weeks, so half² = t² × variance × (1/n + 168/730) ÷ mean²
	// = t² × squares × (730 + 168·n) ÷ (730 · n · (n − 1) · sum²).
	t := student[n-2]
	squares.Mul(squares, big.NewInt(t*t*(730+168*n)))
	squares.Mul(squares, big.NewInt(1e6)) // thousandths² of t, and six decimals of the root need 10¹²
	under := new(big.Int).SetInt64(sum)
	under.Mul(under, under).Mul(under, big.NewInt(730*n*(n-1)))
	squares.Quo(squares, under)
	half = decimal.NewFromBigInt(squares.Sqrt(squares), -6)
	return decimal.Max(half, decimal.New(5, -2)), true
}

// weekly sums a cluster's weeks of one figure.
func (m *maker) weekly(cluster, model string, of func(w *advice.Week, hour int) int64) (sums []int64) {
	w := m.weeks[[2]string{cluster, model}]
	if w == nil {
		return nil
	}
	for start := 0; start+168 <= min(len(w.Service), len(w.Unused)); start += 168 {
		var sum int64
		for h := start; h < start+168; h++ {
			sum += of(w, h)
		}
		sums = append(sums, sum)
	}
	return sums
}

func heldOf(w *advice.Week, h int) int64   { return max(0, w.Service[h]-w.Unused[h]) }
func unusedOf(w *advice.Week, h int) int64 { return w.Unused[h] }

// partOf names parts of the estate, for claims.
func deploymentPart(cluster, deployment, workspace string) Claim {
	return Claim{Part: fmt.Sprintf("time of deployment=%s workspace=%s cluster=%s", deployment, workspace, cluster)}
}

func unusedPart(cluster, model string) Claim {
	return Claim{Part: fmt.Sprintf("unused gpu_model=%s cluster=%s", model, cluster)}
}

func (m *maker) rightsize(f *advice.Finding) {
	i := slices.IndexFunc(m.e.Figures.Holdings, func(h advice.Fit) bool {
		return h.Cluster == f.Subject.Cluster && h.Deployment == f.Subject.Deployment && h.Workspace == f.Subject.Workspace && h.GPUModel == f.Subject.GPUModel
	})
	if i < 0 {
		return
	}
	h := &m.e.Figures.Holdings[i]
	price := m.price(h.Cluster, h.GPUModel)
	r := Recommendation{
		Kind: kindRightsize, Workspace: h.Workspace, Subject: f.Subject, Clusters: []string{h.Cluster}, From: h.GPUModel, To: h.To,
		Summary: fmt.Sprintf("give deployment %s %s instead of a whole %s", h.Deployment, h.To, h.GPUModel),
		Steps: []string{
			"partition GPUs of " + h.GPUModel + " in cluster " + h.Cluster + " so that " + h.To + " is there",
			"declare mig_profile " + h.To + " for deployment " + h.Deployment + ", and restart its replicas",
		},
		Risk:     "a peak beyond the observed memory ends the replica; partitioning drains the GPU first",
		Coverage: f.Coverage, Findings: []string{f.ID}, Question: f.Question,
		Claims: []Claim{deploymentPart(h.Cluster, h.Deployment, h.Workspace)},
		Moves: []Move{{
			Workspace: h.Workspace, Deployment: h.Deployment, FromCluster: h.Cluster, ToCluster: h.Cluster, Replicas: 1, ToModel: h.GPUModel, ToSlice: h.To,
		}},
	}
	r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{h.GPUMs, h.Window, price}}, []paidTime{{h.GPUMs - h.SavedMs, h.Window, price}})
	interval(&r, m.weekly(h.Cluster, h.GPUModel, heldOf))
	m.made = append(m.made, r)
}

func (m *maker) sleep(f *advice.Finding) {
	w := m.weeks[[2]string{f.Subject.Cluster, f.Subject.GPUModel}]
	c := m.clusters[f.Subject.Cluster]
	if w == nil || c == nil {
		return
	}
	price := m.price(w.Cluster, w.GPUModel)
	r := Recommendation{
		Kind: kindSleep, Workspace: workspaceOf(c), Subject: f.Subject, Clusters: []string{w.Cluster},
		From: "always on", To: fmt.Sprintf("off for %s hours a week", f.Value.Round(0)), Summary: "let machines sleep: " + f.Summary,
		Steps:    []string{"end the instances at the start of the window, and start them at its end; what is committed or owned saves power alone"},
		Risk:     "work that comes in the window waits until the machines are back",
		Coverage: f.Coverage, Findings: []string{f.ID}, Question: f.Question, Claims: []Claim{unusedPart(w.Cluster, w.GPUModel)},
	}
	if f.PerMonth != nil {
		all := paidTime{GPUMs: 0, Window: w.Window, Price: price}
		all.GPUMs = w.Idle(f.Threshold)
		r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{all}, nil)
	}
	interval(&r, m.weekly(w.Cluster, w.GPUModel, unusedOf))
	m.made = append(m.made, r)
}

func workspaceOf(c *Cluster) string { return cmp.Or(c.Workspace, advice.Platform) }

// retire proposes what to do about shadows and about declarations that nothing follows. It claims no saving: whether a shadow
// is needed, only its holder knows; the finding says what it costs.
func (m *maker) retire(f *advice.Finding) {
	s := f.Subject
	if f.Rule == advice.Unseen {
		k := [2]string{s.Cluster, cmp.Or(s.Workspace, f.Workspace)}
		m.unseen[k] = append(m.unseen[k], f)
		return
	}
	r := Recommendation{
		Kind: kindRetire, Workspace: cmp.Or(s.Workspace, f.Workspace), Subject: s, Clusters: []string{s.Cluster}, Findings: []string{f.ID},
		Question: f.Question, Claims: []Claim{deploymentPart(s.Cluster, s.Deployment, s.Workspace)},
		From: "running, undeclared", To: "ended, or declared", Summary: "end or declare what runs undeclared: " + f.Summary,
		Steps: []string{"ask its holder what it is", "declare it with \"quartermaster apply\", or end it"},
		Risk:  "it may be needed: ask first",
	}
	m.made = append(m.made, r)
}

// declarations proposes to remove what is declared and not running, once for each cluster and workspace.
func (m *maker) declarations() {
	keys := make([][2]string, 0, len(m.unseen))
	for k := range m.unseen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, k := range keys {
		all := m.unseen[k]
		r := Recommendation{
			Kind: kindRetire, Workspace: k[1], Subject: advice.Subject{Workspace: k[1], Cluster: k[0], Name: "declarations"}, Clusters: []string{k[0]},
			From: "declared, not running", To: "removed, or started", Question: all[0].Question,
			Summary: fmt.Sprintf("remove %s of workspace %s in cluster %s that nothing follows, or start what they declare", advice.Many(len(all), "declaration"), k[1], k[0]),
			Risk:    "what is about to start may look the same",
		}
		for i, f := range all {
			if i < advice.MostNames {
				r.Steps = append(r.Steps, "remove "+f.Subject.Deployment+" with removed_deployments in \"quartermaster apply\"")
				r.Findings = append(r.Findings, f.ID)
			}
			r.Claims = append(r.Claims, Claim{Part: "declaration of " + f.Subject.Deployment + " in " + k[0]})
		}
		m.made = append(m.made, r)
	}
}

func (m *maker) drain(f *advice.Finding) {
	s := f.Subject
	if s.Node == "" {
		return
	}
	steps := []string{"drain node " + s.Node + " of cluster " + s.Cluster + " (quartermaster node drain)"}
	known := 0
	for i := range m.e.Deployments {
		d := &m.e.Deployments[i]
		if d.Cluster != s.Cluster || d.Class == domain.ClassServing {
			continue
		}
		if !d.Checkpoint.IsZero() {
			known++
			steps = append(steps, fmt.Sprintf("wait for the next checkpoint of job %s, at %s", d.Deployment, d.Checkpoint))
		}
	}
	if known == 0 {
		steps = append(steps, "no next checkpoint of a running job is known: ask before draining")
	}
	c := m.clusters[s.Cluster]
	if c == nil {
		return
	}
	m.made = append(m.made, Recommendation{
		Kind: kindDrain, Workspace: workspaceOf(c), Subject: s, Clusters: []string{s.Cluster}, From: "in service", To: "drained and replaced",
		Summary: "drain node " + s.Node + ": " + f.Summary, Steps: steps, Risk: "jobs lose work since their last checkpoint",
		Findings: []string{f.ID}, Question: f.Question, Claims: []Claim{{Part: "node " + s.Cluster + "/" + s.Node}},
	})
}

func (m *maker) own(f *advice.Finding) {
	i := slices.IndexFunc(m.e.Figures.Owning, func(o advice.Owning) bool { return o.Region == f.Subject.Region && o.GPUModel == f.Subject.GPUModel })
	if i < 0 {
		return
	}
	o := &m.e.Figures.Owning[i]
	r := Recommendation{
		Kind: kindOwn, Workspace: advice.Platform, Subject: f.Subject, From: o.RentOffer, To: o.OwnOffer, Summary: f.Summary,
		WhyMore:  "it is about what is rented in the whole region",
		Steps:    []string{"plan region " + o.Region + " (quartermaster plan)", "compare it with the offer for owned hardware in a scenario: quartermaster simulate"},
		Risk:     "hardware is bought for years, and demand may fall below its break-even utilization",
		Coverage: f.Coverage, Findings: []string{f.ID}, Question: f.Question, Claims: []Claim{{Part: "rent of " + o.GPUModel + " in " + o.Region}},
	}
	for i := range m.e.Clusters {
		if m.e.Clusters[i].Region == o.Region {
			r.Clusters = append(r.Clusters, m.e.Clusters[i].ID)
		}
	}
	if o.Used > 0 {
		owned := domain.Money{Amount: o.OwnPerHour.Amount.Mul(decimal.NewFromInt(1000)).DivRound(decimal.NewFromInt(o.Used), 18), Currency: o.OwnPerHour.Currency}
		r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{o.Rented, o.Window, o.RentPerHour}}, []paidTime{{o.Rented, o.Window, owned}})
		interval(&r, nil)
	}
	m.made = append(m.made, r)
}

func (m *maker) quota(f *advice.Finding) {
	if f.Value.LessThan(decimal.NewFromInt(100)) {
		return
	}
	m.made = append(m.made, Recommendation{
		Kind: kindQuota, Workspace: f.Workspace, Subject: f.Subject, Clusters: []string{}, From: "the quota of now", To: "a quota above what is used",
		WhyMore: "a quota is about all clusters of its workspace", Summary: "raise quota " + f.Subject.Name + ", or use less: " + f.Summary,
		Steps: []string{"set the quota with \"quartermaster apply\""}, Risk: "more use costs more", Findings: []string{f.ID}, Question: f.Question,
		Claims: []Claim{{Part: "quota " + f.Subject.Name + " of workspace " + f.Workspace}},
	})
}

func (m *maker) limits(f *advice.Finding) {
	clusters := slices.Clone(f.Names)
	m.made = append(m.made, Recommendation{
		Kind: kindLimits, Workspace: f.Workspace, Subject: f.Subject, Clusters: clusters, From: "the region weights of now", To: "weights by time to first token",
		WhyMore: "requests of one model are routed over all of these", Summary: "change the region weights of model " + f.Subject.Model + ": " + f.Summary,
		Steps: []string{"lower the weight of the cluster with the highest p95 until the spread is below its threshold"},
		Risk:  "requests that go further take longer on the way", Findings: []string{f.ID}, Question: f.Question,
		Claims: []Claim{{Part: "routing of model " + f.Subject.Model + " " + f.Subject.Name}},
	})
}

// tiers proposes cheaper GPUs of the same cluster for deployments that are not busy, as long as GPUs are free there.
func (m *maker) tiers() {
	free := map[[2]string]int64{}
	for i := range m.e.Deployments {
		d := &m.e.Deployments[i]
		c := m.clusters[d.Cluster]
		if c == nil || d.Activity < 0 || d.Activity >= 400 || d.GPUs <= 0 || d.Replicas <= 0 {
			continue
		}
		now := m.price(d.Cluster, d.GPUModel)
		best, bestPrice := "", now
		for _, model := range sortedModels(c.Free) {
			p := m.price(d.Cluster, model)
			left := c.Free[model] - free[[2]string{c.ID, model}]
			if model == d.GPUModel || p.Currency == "" || p.Currency != now.Currency || left < d.GPUs*d.Replicas || !p.Amount.LessThan(bestPrice.Amount) || !fitsMemory(d.GPUModel, model) {
				continue
			}
			best, bestPrice = model, p
		}
		if best == "" {
			continue
		}
		free[[2]string{c.ID, best}] += d.GPUs * d.Replicas
		window := domain.Interval{From: m.e.Figures.At - 730*domain.Hour, To: m.e.Figures.At}
		ms := d.GPUs * d.Replicas * 730 * 3_600_000
		r := Recommendation{
			Kind: kindTier, Workspace: d.Workspace, Clusters: []string{d.Cluster}, From: d.GPUModel, To: best,
			Subject: advice.Subject{Workspace: d.Workspace, Cluster: d.Cluster, Deployment: d.Deployment, GPUModel: d.GPUModel, Model: d.Model},
			Summary: fmt.Sprintf("run deployment %s on %s instead of %s, of which it uses %d.%d%%", d.Deployment, best, d.GPUModel, d.Activity/10, d.Activity%10),
			Steps:   []string{"declare GPU model " + best + " for deployment " + d.Deployment + ", and move its replicas one by one"},
			Risk:    "it takes longer for the same work: measure before moving all",
			Claims:  []Claim{deploymentPart(d.Cluster, d.Deployment, d.Workspace), unusedPart(d.Cluster, best)},
			Moves: []Move{{
				Workspace: d.Workspace, Deployment: d.Deployment, FromCluster: d.Cluster, ToCluster: d.Cluster, Replicas: d.Replicas, ToModel: best,
			}},
			Question: advice.Ask("usage", "by", "deployment", "cluster", d.Cluster, "from", (m.e.Figures.At - domain.Day).String(), "to", m.e.Figures.At.String()),
		}
		for k := range m.e.Findings {
			if f := &m.e.Findings[k]; f.Rule == advice.TierMismatch && f.Status == advice.Firing && (f.Subject.Cluster == d.Cluster || f.Subject.Cluster == "") {
				r.Findings = append(r.Findings, f.ID)
			}
		}
		if len(r.Findings) == 0 {
			continue // no rule says that it is on the wrong tier
		}
		r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{ms, window, now}}, []paidTime{{ms, window, bestPrice}})
		interval(&r, m.weekly(d.Cluster, d.GPUModel, heldOf))
		m.made = append(m.made, r)
	}
}

// fitsMemory reports whether a model has at least the memory of another: what it holds may need it.
func fitsMemory(of, in string) bool {
	a, okA := domain.LookupGPU(of)
	b, okB := domain.LookupGPU(in)
	return okA && okB && b.MemoryMiB >= a.MemoryMiB
}

func sortedModels(free map[string]int64) []string {
	models := make([]string, 0, len(free))
	for m := range free {
		models = append(models, m)
	}
	slices.Sort(models)
	return models
}

// idleMachines proposes to give back GPUs that had no holder in any hour of four weeks.
func (m *maker) idleMachines() {
	for i := range m.e.Figures.Weeks {
		w := &m.e.Figures.Weeks[i]
		c := m.clusters[w.Cluster]
		if c == nil || len(w.Unused) < 4*168 {
			continue
		}
		least := int64(-1)
		for h := range w.Unused {
			if w.Service[h] == 0 {
				least = 0
				break
			}
			if least < 0 || w.Unused[h] < least {
				least = w.Unused[h]
			}
		}
		gpus := least / 3_600_000
		if gpus < 1 {
			continue
		}
		price := m.price(w.Cluster, w.GPUModel)
		r := Recommendation{
			Kind: kindRetire, Workspace: workspaceOf(c), Subject: advice.Subject{Cluster: w.Cluster, GPUModel: w.GPUModel, Provider: c.Provider, Region: c.Region},
			Clusters: []string{w.Cluster}, From: "in service", To: fmt.Sprintf("%d GPUs fewer", gpus),
			Summary: fmt.Sprintf("give back %d GPUs of model %s in cluster %s: no hour of four weeks needed them", gpus, w.GPUModel, w.Cluster),
			Steps:   []string{"drain whole machines, and end them at the supplier; what is committed stays paid until its term ends"},
			Risk:    "a peak like none in four weeks finds no machine", Claims: []Claim{unusedPart(w.Cluster, w.GPUModel)},
			Question: advice.Ask("usage", "by", "hour", "cluster", w.Cluster, "from", w.Window.From.String(), "to", w.Window.To.String()),
		}
		window := w.Window
		r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{gpus * int64(len(w.Unused)) * 3_600_000, window, price}}, nil)
		interval(&r, m.weekly(w.Cluster, w.GPUModel, unusedOf))
		m.made = append(m.made, r)
	}
}

// commitments proposes to renew a commitment or to let it lapse, when notice is due or it ends within 90 days: it lapses if
// more than half of it is not used.
func (m *maker) commitments() {
	for i := range m.e.Figures.Commitments {
		c := &m.e.Figures.Commitments[i]
		var findings []string
		var question advice.Question
		for k := range m.e.Findings {
			f := &m.e.Findings[k]
			if f.Status == advice.Firing && f.Subject.Name == c.Commitment && (f.Rule == advice.CommitmentEnds || f.Rule == advice.NoticeDue) {
				findings, question = append(findings, f.ID), f.Question
			}
		}
		all := c.Used.Amount.Add(c.Unused.Amount)
		if len(findings) == 0 || !all.IsPositive() {
			continue
		}
		unused := c.Unused.Amount.DivRound(all, 18)
		r := Recommendation{
			Kind: kindRenew, Workspace: c.Workspace, Subject: advice.Subject{Workspace: c.Workspace, Name: c.Commitment}, Clusters: []string{},
			From: "ends " + c.Ends.Time().Format("2006-01-02"), To: "another term", Findings: findings, Question: question,
			WhyMore: "a commitment covers whatever runs under it", Claims: []Claim{{Part: "commitment " + c.Commitment}},
			Steps: []string{"ask for an offer, and compare it: quartermaster plan evaluate", "quartermaster commitment renew " + c.Commitment},
			Risk:  "it is paid whether it is used or not",
			Summary: fmt.Sprintf("renew commitment %s: %s%% of it is used", c.Commitment,
				decimal.NewFromInt(1).Sub(unused).Shift(2).StringFixed(1)),
			Expires: c.Ends,
		}
		if !c.NoticeBy.IsZero() {
			r.Expires = c.NoticeBy
		}
		if r.Expires <= m.e.Figures.At {
			continue
		}
		// Half used is where a discount of 50% breaks even. Suppliers' public discounts for one to three years are about that or
		// less, so what is used less than half costs more than on demand.
		lapse := unused.GreaterThan(decimal.New(5, -1))
		if lapse {
			r.Kind, r.To = kindLapse, "no other term"
			r.Steps = []string{"give notice to the supplier before " + r.Expires.Time().Format("2006-01-02")}
			r.Risk = "what runs under it is billed on demand afterwards, and may find no capacity"
			r.Summary = fmt.Sprintf("let commitment %s lapse: %s%% of it is not used", c.Commitment, unused.Shift(2).StringFixed(1))
			saved := c.Unused.Amount.Sub(c.Used.Amount) // what runs under it costs up to twice as much afterwards
			if saved.IsPositive() && !c.Window.Empty() {
				r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{3_600_000, c.Window, domain.Money{Amount: saved, Currency: c.Used.Currency}}}, nil)
				interval(&r, nil)
			}
		}
		m.made = append(m.made, r)
	}
}

// purchase proposes what the last plan buys now.
func (m *maker) purchase() {
	p := m.e.Plan
	if p == nil || len(p.Purchases) == 0 {
		return
	}
	r := Recommendation{
		Kind: kindPurchase, Workspace: advice.Platform, Subject: advice.Subject{Name: p.ID}, Clusters: []string{},
		WhyMore: "a plan covers regions", From: "what is held now", To: strings.Join(p.Text, "; "),
		Summary: fmt.Sprintf("buy what plan %s orders now", p.ID), Steps: p.Text, Plan: p.ID, Purchases: p.Purchases,
		Cost: domain.Money{Amount: p.Cost, Currency: p.Currency}, Risk: "demand may not come: plan show names the range",
		Claims: []Claim{{Part: "purchases of plan " + p.ID}}, Question: advice.Question{Command: "plan show " + p.ID, API: "/api/v1/plan/show?plan=" + p.ID},
	}
	if p.Saves.Valid && p.Saves.Decimal.IsPositive() {
		r.Saving = &domain.Money{Amount: p.Saves.Decimal, Currency: p.Currency}
		r.Simulation = p.ID
		interval(&r, nil)
	}
	m.made = append(m.made, r)
}
