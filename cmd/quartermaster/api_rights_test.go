package main

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/storetest"
)

// tenanted is the API of an estate, for whoever a request names as ROLE@WORKSPACE, or with no name for its owner.
type tenanted struct {
	handler http.Handler
	began   time.Time
}

// asker is the header that names who asks.
const asker = "Asker"

// serveTenants serves an estate; see [storetest.Estate].
func serveTenants(t *testing.T, seen, hidden uint64, variant uint64) *tenanted {
	t.Helper()
	h, _ := apptest.Open(t, t.TempDir())
	t.Cleanup(func() { apptest.Close(t, h) })
	log := storetest.Estate(rand.New(rand.NewPCG(seen, 1)).IntN, rand.New(rand.NewPCG(hidden, variant)).IntN)
	for i := range log {
		if s := log[i].Signature; s != nil {
			key := storetest.Root.Key()
			if s.Operator == storetest.Ben.Name {
				key = storetest.Ben.Key()
			}
			if err := wire.Sign(&log[i], s.Operator, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	apptest.AppendEvents(t, h.Log, log...)
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	share := h.Sharing()
	handler, end := api.Handler(api.Config{
		Who: func(r *http.Request) (app.Principal, error) {
			name := r.Header.Get(asker)
			if name == "" {
				return app.Everyone, nil
			}
			role, workspace, _ := strings.Cut(name, "@")
			who := app.Principal{Name: name}
			err := h.View(r.Context(), func(v projections.View) (err error) {
				for _, of := range access.Roles() {
					if string(of) == role {
						who.Scope, err = access.ScopeOf(v, []access.Right{{Workspace: workspace, Role: of}})
					}
				}
				return err
			})
			return who, err
		},
		Open:   func(who app.Principal) (*app.App, error) { return share(who), nil },
		AtOnce: 4, Context: t.Context(), Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(end)
	return &tenanted{handler, time.Now().Add(-time.Second)}
}

// answered is what a request got.
type answered struct {
	status     int
	body, tag  string
	notes      string
	notChanged bool
}

// ask asks an operation. Times since the estate was made are "now" in the answer.
func (e *tenanted) ask(t *testing.T, who string, op *cli.Operation, q url.Values, tag string) answered {
	t.Helper()
	method := http.MethodGet
	if op.Posted() {
		method = http.MethodPost
	}
	send := func(method, target, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		r.Header.Set(asker, who)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		if body != "" {
			r.Header.Set("Content-Type", asJSON)
		}
		w := httptest.NewRecorder()
		e.handler.ServeHTTP(w, r)
		return w
	}
	body := ""
	if len(op.Files) > 0 {
		body = sending(t, "a.json", small)
	}
	w := send(method, cli.APIRoot+strings.Join(op.Words, "/")+"?"+q.Encode(), body)
	if one := w.Header().Get("Location"); op.Long && w.Code == http.StatusAccepted {
		send(http.MethodGet, one+"/events", "") // until it has ended
		w = send(http.MethodGet, one+"/answer", "")
		send(http.MethodDelete, one, "")
	}
	text := instant.ReplaceAllStringFunc(w.Body.String(), func(text string) string {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.After(e.began) {
			return "now"
		}
		return text
	})
	return answered{w.Code, text, w.Header().Get("ETag"), strings.Join(w.Header().Values(cli.NoteHeader), "\n"), w.Code == http.StatusNotModified}
}

// questions are queries for each operation that works within a scope.
var withinQuestions = map[string][]string{
	"advice rules":      {""},
	"advice score":      {""},
	"recommend list":    {"", "kind=drain", "stage=proposed"},
	"recommend show":    {"recommendation=r-0123456789abcdef", "recommendation=a"},
	"alerts list":       {"", "all=true"},
	"alerts show":       {"incident=i-0123456789abcdef"},
	"runbook":           {"rule=evidence", "rule=x"},
	"audit trail":       {"", "workspace=emea", "cluster=own&refused=true", "operator=root", "recommendation=a", "from=2026-04-20&to=2026-05-02"},
	"cluster list":      {""},
	"costs":             {"period=2026-05", "period=2026-05&under=emea", "period=2026-05&by=workspace&by=component", "period=2026-05&by=invoice&by=line&by=node", "period=2026-05&view=loaded", "from=2026-04&to=2026-06&by=month&compare=previous", "period=2026-05&currency=USD", "period=2026-05&as_of=2026-06-02"},
	"costs allocations": {"period=2026-05", "period=2026-05&workspace=emea"},
	"costs budget":      {"period=2026-05"},
	"costs explain":     {"period=2026-05&workspace=emea", "allocation=x"},
	"costs statement":   {"month=2026-05"},
	"costs unit":        {"per=useful-gpu-hour&period=2026-05", "per=million-tokens&period=2026-05&by=workspace&by=model", "per=request&period=2026-05&by=deployment&by=cluster", "per=job&period=2026-05&by=workspace", "per=useful-gpu-hour&period=2026-05&as_of=2026-06-02"},
	"fleet":             {"", "nodes=true", "at=2026-05-01T03:00:00Z"},
	"fleet map":         {"at=2026-05-01T03:00:00Z", "at=2026-05-01T02:30:00Z&by=state", ""},
	"focus rules":       {""},
	"get":               {"kind=clusters", "kind=operators", "kind=policies", "kind=quotas", "kind=budgets", "kind=rules", "kind=deployments", "kind=commitments", "kind=offers", "kind=workspaces", "kind=regions", "kind=maintenance", "kind=outages", "kind=usage-corrections", "kind=legal-holds", "kind=removals", "kind=methods", "kind=tariffs"},
	"jobs":              {"from=2026-05-01&to=2026-05-02"},
	"mapping list":      {""},
	"models":            {"", "at=2026-05-01T03:00:00Z", "at=2026-05-01T03:00:00Z&search=CHA"},
	"overview":          {"", "as_of=2026-05-01T02:30:00Z"},
	"plan list":         {""},
	"plan show":         {"plan=a"},
	"plan solve":        {"instance=a.json"},
	"serving":           {"from=2026-05-01&to=2026-05-02"},
	"simulate list":     {""},
	"simulate show":     {"simulation=a"},
	"usage":             {"from=2026-05-01&to=2026-05-02", "from=2026-05-01&to=2026-05-02&under=emea", "from=2026-05-01&to=2026-05-02&by=deployment&by=node", "from=2026-05-01&to=2026-05-02&by=gpu", "from=2026-05-01&to=2026-05-02&as_of=2026-05-02"},
	"usage course":      {"from=2026-05-01&to=2026-05-02", "from=2026-05-01&to=2026-05-02&points=3&by=workspace&by=gpu_model", "from=2026-05-01&to=2026-05-02&under=emea"},
}

func queryOf(t *testing.T, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestAPINonInterference asks two estates that differ only in what a tenant may not see. The tenant gets the same bytes,
// in every form, and the same tag.
func TestAPINonInterference(t *testing.T) {
	ops := cli.Operations()
	for pair := range uint64(long.Count(2, 20)) {
		var estates [2]*tenanted
		for i := range estates {
			estates[i] = serveTenants(t, pair, pair, uint64(2+i))
		}
		answers := 0
		for i := range ops {
			op := &ops[i]
			name := strings.Join(op.Words, " ")
			if !access.Operations()[name].Within {
				continue
			}
			if len(withinQuestions[name]) == 0 {
				t.Errorf("%q works within a scope, and has no question here", name)
			}
			for _, text := range withinQuestions[name] {
				for _, form := range cli.OutputForms() {
					q := queryOf(t, text)
					q.Set(cli.OutputParam, form)
					one, two := estates[0].ask(t, "admin@acme", op, q, ""), estates[1].ask(t, "admin@acme", op, q, "")
					if one != two {
						t.Errorf("%s %s of pair %d tells what is hidden:\n%+v\n%+v", name, q.Encode(), pair, one, two)
					}
					if one.status == http.StatusOK {
						answers++
					}
					if one.status >= http.StatusInternalServerError {
						t.Errorf("%s %s: %+v", name, q.Encode(), one)
					}
				}
			}
		}
		if answers < 100 {
			t.Errorf("only %d answers were compared", answers)
		}
	}
}

// TestAPIIsolation names, in every parameter of every operation, what a tenant may not see. Each answer is that of a name
// that does not exist, and says no more.
func TestAPIIsolation(t *testing.T) {
	e := serveTenants(t, 1, 1, 1)
	hidden := []string{"acme", "rival", "third", "dark"} // the workspace above, others, and a cluster
	const unknown = "nobody"
	ops, attempts := cli.Operations(), 0
	for i := range ops {
		op := &ops[i]
		name := strings.Join(op.Words, " ")
		rule := access.Operations()[name]
		for _, role := range access.Roles() {
			who := string(role) + "@emea"
			if !rule.Within || !slices.Contains(rule.Roles, role) {
				for _, of := range append(hidden, unknown) {
					for _, p := range op.Params {
						attempts++
						if got := e.ask(t, who, op, url.Values{p.Name: {of}}, ""); got.status != http.StatusForbidden || strings.Contains(got.body, of) {
							t.Errorf("%s asks %s: %+v", who, name, got)
						}
					}
				}
				continue
			}
			for i, text := range withinQuestions[name] {
				if i > 0 && !long.Run() && role != access.Roles()[0] {
					break // all roles see the same
				}
				for _, p := range op.Params {
					if p.Type != "string" && p.Type != "array" {
						continue
					}
					as := func(value string) answered {
						q := queryOf(t, text)
						q.Set(p.Name, value)
						got := e.ask(t, who, op, q, "")
						got.tag = ""
						got.body, got.notes = strings.ReplaceAll(got.body, value, "NAME"), strings.ReplaceAll(got.notes, value, "NAME")
						return got
					}
					nothing := as(unknown)
					for _, of := range hidden {
						attempts++
						if got := as(of); got != nothing {
							t.Errorf("%s asks %s %s with %s=%s:\n%+v\nwant as for a name that is not there:\n%+v", who, name, text, p.Name, of, got, nothing)
						}
					}
				}
			}
		}
	}
	t.Logf("%d attempts", attempts)
	if attempts < 3000 {
		t.Errorf("only %d attempts", attempts)
	}
}

// TestAPITagsOfScopes shows that what one principal was told is not "not modified" for another.
func TestAPITagsOfScopes(t *testing.T) {
	e := serveTenants(t, 1, 1, 1)
	ops := cli.Operations()
	tags := map[string]string{}
	for i := range ops {
		op := &ops[i]
		name := strings.Join(op.Words, " ")
		if name != "costs" && name != "get" {
			continue
		}
		q := queryOf(t, withinQuestions[name][0])
		q.Set("as_of", "2026-06-02")
		clear(tags)
		for _, who := range []string{"", "admin@home", "finance@home", "admin@acme", "finance@acme", "admin@emea", "admin@rival"} {
			got := e.ask(t, who, op, q, "")
			if got.tag == "" || got.status != http.StatusOK {
				t.Fatalf("%q asks %s: %+v", who, name, got)
			}
			tags[who] = got.tag
			if again := e.ask(t, who, op, q, got.tag); !again.notChanged {
				t.Errorf("%q asks %s again: %+v", who, name, again)
			}
		}
		if tags[""] != tags["admin@home"] || tags["admin@home"] != tags["finance@home"] || tags["admin@acme"] != tags["finance@acme"] {
			t.Errorf("%s: those who see the same have different tags: %v", name, tags)
		}
		if n := len(slices.Compact(slices.Sorted(maps.Values(tags)))); n != 4 {
			t.Errorf("%s has %d tags for 4 scopes: %v", name, n, tags)
		}
		for of, tag := range tags {
			for who, own := range tags {
				if got := e.ask(t, who, op, q, tag); got.notChanged != (tag == own) {
					t.Errorf("%q asks %s with the tag of %q: %d", who, name, of, got.status)
				}
			}
		}
	}
	if len(tags) == 0 {
		t.Fatal("nothing was asked")
	}
}
