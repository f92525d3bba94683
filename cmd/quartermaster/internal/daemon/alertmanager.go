package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"quartermaster/adapters/configfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	figures "quartermaster/projections/advice"
)

const (
	// firingFor is how long an Alertmanager takes an alert for firing after it last heard of it: two evaluations may
	// fail. A silenced incident is not sent, so it ends there after this time.
	firingFor = 3 * app.Tick
	// resolvedFor is how long the end of an incident is sent.
	resolvedFor = domain.Hour
	// mostAlerts is how many alerts are in one request.
	mostAlerts = 500
)

// alertmanager is a Prometheus Alertmanager. It is told of all open incidents at each evaluation, because it forgets what
// it does not hear of again. Sending them again changes nothing.
type alertmanager struct {
	name, url, token string
	to               audience
}

func newAlertmanagers(cfgs []config.Alertmanager) (managers []*alertmanager, err error) {
	for _, c := range cfgs {
		m := &alertmanager{name: c.Name, url: strings.TrimSuffix(c.URL, "/") + "/api/v2/alerts", to: newAudience(c.Workspaces, c.Severity)}
		if c.TokenFile != "" {
			if m.token, err = configfile.Secret(c.TokenFile); err != nil {
				return nil, fmt.Errorf("alertmanager %q: %w", c.Name, err)
			}
		}
		managers = append(managers, m)
	}
	return managers, nil
}

// managedAlert is an alert as the API of Alertmanager takes it (postableAlert of its openapi.yaml).
type managedAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    domain.Instant    `json:"startsAt"`
	EndsAt      domain.Instant    `json:"endsAt"`
}

// tell sends what the receiver hears of incidents at a tick.
func (m *alertmanager) tell(ctx context.Context, incidents []figures.IncidentEntry, tick domain.Instant) error {
	alerts := []managedAlert{}
	for i := range incidents {
		x := &incidents[i]
		ends := tick + firingFor
		if x.State == advice.Resolved {
			ends = x.Resolved
		}
		if m.to.hears(x) && x.Silence == nil && ends > tick-resolvedFor {
			alerts = append(alerts, managedAlert{labelsOf(x), map[string]string{
				"summary": x.Case.Summary, "about": x.Case.Subject.String(), "runbook": "quartermaster runbook " + string(x.Case.Rule),
			}, x.Opened, ends})
		}
	}
	for len(alerts) > 0 {
		n := min(len(alerts), mostAlerts)
		if err := m.post(ctx, alerts[:n]); err != nil {
			return err
		}
		alerts = alerts[n:]
	}
	return nil
}

// labelsOf returns the labels that an alert is known by. An empty label is none.
func labelsOf(x *figures.IncidentEntry) map[string]string {
	s := &x.Case.Subject
	labels := map[string]string{
		"alertname": string(x.Case.Rule), "severity": string(x.Case.Severity), "workspace": cmp.Or(x.Workspace, app.Platform), "incident": x.ID,
		"provider": s.Provider, "region": s.Region, "cluster": s.Cluster, "node": s.Node, "gpu": s.GPU, "gpu_model": s.GPUModel,
		"class": s.Class, "model": s.Model, "deployment": s.Deployment, "component": s.Component, "name": s.Name,
	}
	for name, value := range labels {
		if value == "" {
			delete(labels, name)
		}
	}
	return labels
}

func (m *alertmanager) post(ctx context.Context, alerts []managedAlert) error {
	who := "alertmanager " + m.name
	body, err := json.Marshal(alerts)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: its url cannot be used", who)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "quartermaster")
	if m.token != "" {
		req.Header.Set("Authorization", "Bearer "+m.token)
	}
	return call(req, who)
}
