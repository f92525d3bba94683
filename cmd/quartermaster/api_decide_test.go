package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"

	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
)

// post sends a body as the bearer of a token.
func (s *listener) post(method, token, path, media, body string, header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", media)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

const asJSON = "application/json"

// propose asks what a command would decide.
func (s *listener) propose(token string, key ed25519.PublicKey, command string, parameters map[string]any) cli.Proposed {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"command": command, "parameters": parameters, "public_key": []byte(key)})
	if err != nil {
		s.t.Fatal(err)
	}
	got := s.post(http.MethodPost, token, cli.DecisionRoot, asJSON, string(body))
	var p cli.Proposed
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != http.StatusOK {
		s.t.Fatalf("propose %s %v: %d %s", command, parameters, got.status, got.body)
	}
	return p
}

// signed signs what was proposed, as whoever has nothing but an Ed25519 key would.
func signed(p *cli.Proposed, key ed25519.PrivateKey) *cli.Signed {
	d := &cli.Signed{Seal: p.Seal}
	for i := range p.Events {
		d.Messages = append(d.Messages, p.Events[i].Message)
		d.Signatures = append(d.Signatures, ed25519.Sign(key, p.Events[i].Message))
	}
	return d
}

func (s *listener) decide(token, id string, d *cli.Signed) reply {
	s.t.Helper()
	body, err := json.Marshal(d)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.post(http.MethodPut, token, cli.DecisionRoot+"/"+id, asJSON, string(body))
}

// records counts what is in the log, without who asked what.
func (s *listener) records() (n int) {
	s.t.Helper()
	for line := range strings.Lines(s.command("log", "tail", "-n", "10000", "-o", "json")) {
		if !strings.Contains(line, "AccessRecorded") {
			n++
		}
	}
	return n
}

// account makes a service account with a role in a workspace, and returns its key.
func (s *listener) account(name, role, workspace string) string {
	s.t.Helper()
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(s.command("access", "key", "issue", name, "--workspace", workspace, "-o", "json")), &key); err != nil {
		s.t.Fatal(err)
	}
	s.command("access", "grant", "account:"+name, "--role", role, "--workspace", workspace)
	s.becomes(http.StatusOK, key.Key, "/api/v1/fleet")
	return key.Key
}

func newKey(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

// TestDecideOverTheAPI registers the key of a browser, and decides with it: once, by whoever asked, over exactly the
// bytes that were proposed.
func TestDecideOverTheAPI(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	boss, other := s.account("boss", "admin", "platform"), s.account("other", "admin", "platform")
	root, err := keyfile.Load(filepath.Join(dir, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	public, browser := newKey(t)
	stranger, forger := newKey(t)
	before := s.records()

	// Whether it would take effect is said before anything is signed.
	for name, of := range map[string]struct {
		key        ed25519.PublicKey
		command    string
		parameters map[string]any
		want       string
	}{
		"an unknown key": {stranger, "access grant", map[string]any{"principal": "account:x", "role": "viewer"}, "belongs to no registered operator"},
		"more money than the admin may commit": {root.Public().(ed25519.PublicKey), "operator add", map[string]any{
			"name": app.Me(), "role": "admin", "public_key": []byte(root.Public().(ed25519.PublicKey)), "limit": []string{"1 USD"},
		}, "would raise their own limit"},
	} {
		if p := s.propose(boss, of.key, of.command, of.parameters); p.TakesEffect || p.Problem == nil || !strings.Contains(p.Problem.Detail, of.want) || p.ID+p.Seal != "" || len(p.Events) > 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}

	register := map[string]any{"name": "ann", "role": "admin", "public_key": []byte(public)}
	p := s.propose(boss, root.Public().(ed25519.PublicKey), "operator add", register)
	if !p.TakesEffect || len(p.Events) != 1 || p.Operator != app.Me() || !strings.Contains(p.Says, "operator ann may decide") {
		t.Fatalf("%+v", p)
	}
	altered := signed(&p, root)
	altered.Messages[0] = bytes.Replace(altered.Messages[0], []byte("ann"), []byte("eve"), 1)
	altered.Signatures[0] = ed25519.Sign(root, altered.Messages[0])
	none := signed(&p, root)
	none.Signatures = nil
	seal := signed(&p, root)
	text, mac, _ := strings.Cut(seal.Seal, ".")
	content, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	seal.Seal = base64.RawURLEncoding.EncodeToString(bytes.Replace(content, []byte(`"use":"operator-add"`), []byte(`"use":"operator-adx"`), 1)) + "." + mac
	for name, of := range map[string]struct {
		token, id string
		d         *cli.Signed
		status    int
		want      string
	}{
		"a forged signature":     {boss, p.ID, signed(&p, forger), http.StatusForbidden, "does not verify"},
		"no signature":           {boss, p.ID, none, http.StatusBadRequest, "0 signatures for 1 events"},
		"altered bytes":          {boss, p.ID, altered, http.StatusBadRequest, "byte for byte"},
		"an altered seal":        {boss, p.ID, seal, http.StatusBadRequest, "byte for byte"},
		"the id of another":      {boss, strings.Repeat("0", 32), signed(&p, root), http.StatusBadRequest, "byte for byte"},
		"what another asked for": {other, p.ID, signed(&p, root), http.StatusBadRequest, "byte for byte"},
	} {
		if got := s.decide(of.token, of.id, of.d); got.status != of.status || !strings.Contains(got.body, of.want) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if n := s.records(); n != before {
		t.Fatalf("%d records were appended before anything was signed", n-before)
	}

	// A restart in between changes nothing. Whoever sends it again, or many times at once, gets the same answer.
	s.stop()
	s = serveListening(t, dir, nil, nil)
	var first reply
	var wg sync.WaitGroup
	answers := make([]reply, 8)
	for i := range answers {
		wg.Go(func() { answers[i] = s.decide(boss, p.ID, signed(&p, root)) })
	}
	wg.Wait()
	for i, got := range append(answers, s.decide(boss, p.ID, signed(&p, root))) {
		if i == 0 {
			first = got
		}
		if got.status != http.StatusOK || got.body != first.body {
			t.Errorf("%d %s\nfirst %s", got.status, got.body, first.body)
		}
	}
	if got := s.decide(boss, p.ID, signed(&p, forger)); got.status != http.StatusForbidden {
		t.Errorf("another signature of what is decided: %d %s", got.status, got.body)
	}
	if n := s.records(); n != before+1 {
		t.Fatalf("%d records were appended, want one", n-before)
	}

	// The key of the browser decides.
	p = s.propose(boss, public, "access grant", map[string]any{"principal": "account:x", "role": "viewer", "workspace": "shop"})
	if got := s.decide(boss, p.ID, signed(&p, browser)); got.status != http.StatusOK || !strings.Contains(got.body, `"operator":"ann"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if out := s.command("access", "list"); !strings.Contains(out, "account:x") {
		t.Error(out)
	}

	// Revoked in between: it is refused, and so is what is proposed then.
	p = s.propose(boss, public, "access grant", map[string]any{"principal": "account:y", "role": "viewer"})
	s.command("operator", "revoke", "ann", "--reason", "lost")
	if got := s.decide(boss, p.ID, signed(&p, browser)); got.status != http.StatusForbidden || !strings.Contains(got.body, "was revoked") {
		t.Errorf("a revoked key: %d %s", got.status, got.body)
	}
	if p := s.propose(boss, public, "access grant", map[string]any{"principal": "account:y", "role": "viewer"}); p.TakesEffect || !strings.Contains(p.Problem.Detail, "was revoked") {
		t.Errorf("%+v", p)
	}

	// Who proposed and who decided is recorded, and so is what was refused.
	s.stop()
	s = serveListening(t, dir, nil, nil)
	s.stop()
	var audit app.AccessAudit
	if err := json.Unmarshal([]byte(s.command("audit", "access", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	asked, refused := map[string]int{}, map[string]int{}
	for _, a := range audit.Asked {
		asked[string(a.Principal)+" "+a.Operation] += int(a.Count)
		refused[string(a.Principal)+" "+a.Operation] += int(a.Refused)
	}
	if n := asked["account:boss decide operator add"]; n != 15 || refused["account:boss decide operator add"] != 2 || asked["account:boss operator add"] != 2 || asked["account:other decide operator add"] != 1 {
		t.Errorf("%v\nrefused %v", asked, refused)
	}
}

// TestDecisionBodies sends bodies that cannot be read.
func TestDecisionBodies(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	boss := s.account("boss", "admin", "platform")
	for name, of := range map[string]struct {
		media, body string
		status      int
		want        string
		header      []string
	}{
		"a form of another site":   {"application/x-www-form-urlencoded", "command=apply", 415, "want application/json", nil},
		"text of another site":     {"text/plain", `{"command":"apply"}`, 415, "want application/json", nil},
		"no type":                  {"", `{"command":"apply"}`, 415, "want application/json", nil},
		"a page of another site":   {asJSON, `{"command":"apply"}`, 403, "another site", []string{"Sec-Fetch-Site", "cross-site"}},
		"compressed":               {asJSON, "\x1f\x8b", 415, "send the body as it is", []string{"Content-Encoding", "gzip"}},
		"nothing":                  {asJSON, "", 400, "body", nil},
		"not JSON":                 {asJSON, "{", 400, "body", nil},
		"two documents":            {asJSON, `{} {}`, 400, "body", nil},
		"a name twice":             {asJSON, `{"command":"apply","command":"key revoke"}`, 400, "duplicate", nil},
		"an unknown name":          {asJSON, `{"commands":"apply"}`, 400, "unknown", nil},
		"not UTF-8":                {asJSON, "{\"command\":\"\xff\"}", 400, "UTF-8", nil},
		"deep":                     {asJSON, `{"parameters":{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}}", 400, "depth", nil},
		"a list in a list":         {asJSON, `{"command":"apply","parameters":{"a":[["b"]]}}`, 400, "list of texts", nil},
		"a question":               {asJSON, `{"command":"fleet"}`, 400, `does not decide over the API`, nil},
		"a command of the machine": {asJSON, `{"command":"serve"}`, 400, `does not decide over the API`, nil},
		"no key":                   {asJSON, `{"command":"access revoke","parameters":{"grant":"x"}}`, 400, "public_key", nil},
		"a file of the server": {asJSON, fmt.Sprintf(`{"command":"apply","parameters":{"file":"/etc/passwd"},"documents":[{"name":"a","text":""}],"public_key":%q}`,
			base64.StdEncoding.EncodeToString(make([]byte, 32))), 400, `is not a parameter of apply`, nil},
		"a key of the server": {asJSON, fmt.Sprintf(`{"command":"access revoke","parameters":{"grant":"x","key":"operator.pem"},"public_key":%q}`,
			base64.StdEncoding.EncodeToString(make([]byte, 32))), 400, `is not a parameter of access revoke`, nil},
		"no document": {asJSON, fmt.Sprintf(`{"command":"apply","public_key":%q}`, base64.StdEncoding.EncodeToString(make([]byte, 32))), 400, "file", nil},
		"one name twice": {asJSON, fmt.Sprintf(`{"command":"apply","documents":[{"name":"a, b"},{"name":"a, b"}],"public_key":%q}`,
			base64.StdEncoding.EncodeToString(make([]byte, 32))), 400, "that of another document", nil},
		"100 MB": {asJSON, strings.Repeat(" ", 100<<20), 413, "more than 33554432 bytes", nil},
	} {
		got := s.post(http.MethodPost, boss, cli.DecisionRoot, of.media, of.body, of.header...)
		if got.status != of.status || !strings.Contains(got.body, of.want) || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}
	for name, body := range map[string]string{
		"no seal": `{"seal":"","messages":[],"signatures":[]}`, "half a seal": `{"seal":"e30","messages":[],"signatures":[]}`,
		"a made-up seal":     `{"seal":"e30.AAAA","messages":[],"signatures":[]}`,
		"base64 that is not": `{"seal":"?","messages":["?"],"signatures":[]}`,
	} {
		if got := s.post(http.MethodPut, boss, cli.DecisionRoot+"/x", asJSON, body); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestDecideWithCommands decides with commands over the API. They print what they print where the log is.
func TestDecideWithCommands(t *testing.T) {
	dir := t.TempDir()
	files := t.TempDir()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "script", "close.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		if err := os.WriteFile(filepath.Join(files, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	key, ann := filepath.Join(dir, "operator.pem"), filepath.Join(files, "ann.pem")
	if _, err := keyfile.Create(ann); err != nil {
		t.Fatal(err)
	}
	api := []string{"--server", "unix:" + filepath.Join(dir, "api.sock")}
	over := func(code int, want string, words ...string) string {
		t.Helper()
		out, got := s.try(append(words, api...)...)
		if got != code || !strings.Contains(out, want) {
			t.Fatalf("%s: exit code %d, want %d with %q: %s", strings.Join(words, " "), got, code, want, out)
		}
		return out
	}
	estate := filepath.Join(files, "estate.yaml")
	want := s.command("apply", "-f", estate, "--dry-run", "--key", key)
	if got := over(0, "nothing applied", "apply", "-f", estate, "--dry-run", "--key", key); got != want {
		t.Errorf("apply --dry-run:\n%s\nwant\n%s", got, want)
	}
	before := s.records()
	over(0, "signed by "+app.Me(), "apply", "-f", estate, "--key", key)
	over(0, "nothing to do", "apply", "-f", estate, "--key", key)
	over(2, "usage.csv:1:1", "apply", "-f", filepath.Join(files, "usage.csv"), "--key", key)
	if s.records() == before {
		t.Fatal("nothing was applied")
	}
	over(0, `"applied":`, "apply", "-f", estate, "--key", key, "-o", "json")
	over(4, "no operator key at", "apply", "-f", estate, "--key", filepath.Join(files, "none.pem"))
	over(0, "operator ann may decide", "operator", "add", "ann", "--role", "finance", "--public-key-of", ann, "--key", key)
	over(2, "is not for a server", "operator", "add", "bob", "--role", "finance", "--new-key", filepath.Join(files, "bob.pem"), "--key", key)

	for _, words := range [][]string{
		{"import", "usage", filepath.Join(files, "usage.csv"), "--cluster", "lab", "--zone", "UTC", "--gpu-model", "V100", "--account", "42", "--sku", "gpu-8"},
		{"import", "focus", filepath.Join(files, "bill.csv")}, {"import", "focus", filepath.Join(files, "invoice.csv")},
	} {
		s.command(words...)
	}
	over(1, "exceptions: ", "costs", "close", "prepare", "--month", "2026-05", "--key", key)
	over(2, "nobody proposed to close", "costs", "close", "approve", "--month", "2026-05", "--key", ann)
	over(0, "accepted: known", "costs", "close", "prepare", "--month", "2026-05", "--accept", "exceptions=known", "--key", key)
	over(4, "another person must approve it", "costs", "close", "approve", "--month", "2026-05", "--key", key)
	over(0, "2026-05", "costs", "close", "approve", "--month", "2026-05", "--key", ann)
	if out := s.command("costs", "close"); !strings.Contains(out, "closed") || !strings.Contains(out, "ann") {
		t.Error(out)
	}
	over(1, "were closed at", "costs", "close", "approve", "--month", "2026-05", "--key", ann)
}

// TestDeclareDeployments declares deployments as a pipeline of a workspace.
func TestDeclareDeployments(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	const head = "apiVersion: quartermaster/v1\nkind: Estate\n"
	const platform = head + "workspace: platform\n"
	file := filepath.Join(t.TempDir(), "lab.yaml")
	text := platform + "regions: [{id: eu, country: DE}]\nclusters:\n" +
		"  - {id: lab, workspace: research, provider: aws, provider_class: hyperscaler, region: eu, billing_account: a}\n" +
		"  - {id: dark, workspace: shop, provider: aws, provider_class: hyperscaler, region: eu, billing_account: a}\n" +
		"deployments:\n  - {id: till, workspace: shop, cluster: lab, class: serving, replicas: 1, need: {gpus: 1}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command("apply", "-f", file)
	ci, viewer := s.account("ci", "operator", "research"), s.account("viewer", "viewer", "research")
	declare := func(token, query, body string) reply {
		t.Helper()
		return s.post(http.MethodPut, token, cli.DeploymentsRoot+query, "application/yaml", body)
	}
	entry := func(id, workspace, cluster string) string {
		return head + fmt.Sprintf("deployments:\n  - {id: %s, workspace: %s, cluster: %s, class: serving, replicas: 2, need: {gpus: 1}}\n", id, workspace, cluster)
	}
	before := s.records()
	if got := declare(ci, "?dry_run=true", entry("chat", "research", "lab")); got.status != http.StatusOK || !strings.Contains(got.body, `"action":"add"`) || s.records() != before {
		t.Errorf("dry run: %d %s", got.status, got.body)
	}
	if got := declare(viewer, "", entry("chat", "research", "lab")); got.status != http.StatusForbidden {
		t.Errorf("a viewer: %d %s", got.status, got.body)
	}
	if got := declare(ci, "", entry("chat", "research", "lab")); got.status != http.StatusOK || !strings.Contains(got.body, `"applied":true`) || s.records() != before+1 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := declare(ci, "", entry("chat", "research", "lab")); got.status != http.StatusOK || !strings.Contains(got.body, `"unchanged":1`) || s.records() != before+1 {
		t.Errorf("again: %d %s", got.status, got.body)
	}
	if got := declare(ci, "", entry("sight", "vision", "lab")); got.status != http.StatusOK {
		t.Errorf("of a workspace below: %d %s", got.status, got.body)
	}
	n := s.records()
	// What is not theirs is answered as what is not there.
	for _, of := range []struct{ workspace, cluster, unknown, like string }{
		{"shop", "lab", "nobody", "lab"}, {"platform", "lab", "nobody", "lab"}, {"research", "dark", "research", "nowhere"},
	} {
		got, none := declare(ci, "", entry("x", of.workspace, of.cluster)), declare(ci, "", entry("x", of.unknown, of.like))
		as := func(r reply, workspace, cluster string) string {
			return strings.NewReplacer(`\"`+workspace+`\"`, "W", `\"`+cluster+`\"`, "C").Replace(r.body)
		}
		if got.status != http.StatusBadRequest || none.status != got.status || as(got, of.workspace, of.cluster) != as(none, of.unknown, of.like) {
			t.Errorf("%v: %d %s\nof none: %d %s", of, got.status, got.body, none.status, none.body)
		}
	}
	for name, of := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"another's deployment":        {entry("till", "research", "lab"), 403, "choose another name"},
		"the removal of another's":    {head + "workspace: research\nremoved_deployments: [{id: till, cluster: lab, reason: x}]\n", 0, ""},
		"a policy":                    {head + "workspace: research\nquotas: [{id: q, resource: nvidia.com/gpu, limit: 1}]\n", 400, ""},
		"a wrong field":               {head + "workspace: research\ndeployments:\n  - {id: a, cluster: lab, class: serving, replica: 1}\n", 400, `"field":"deployments[0].replica"`},
		"a workspace beside it":       {head + "workspaces: [{id: mine}]\n", 400, "only deployments"},
		"nothing":                     {"", 400, "body"},
		"aliases":                     {head + "workspace: &a research\n", 400, "body"},
		"100 MB":                      {strings.Repeat(" ", 100<<20), 413, "more than"},
		"the log's own first version": {"\x00", 400, "body"},
	} {
		got := declare(ci, "", of.body)
		if of.status == 0 {
			if got.status == http.StatusOK {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
			continue
		}
		if got.status != of.status || !strings.Contains(got.body, of.want) {
			t.Errorf("%s: %d %.400s", name, got.status, got.body)
		}
	}
	if s.records() != n {
		t.Error("something that was refused was appended")
	}
	if got := declare(ci, "", head+"workspace: research\nremoved_deployments: [{id: chat, cluster: lab, reason: done}]\n"); got.status != http.StatusOK || !strings.Contains(got.body, `"applied":true`) {
		t.Errorf("a removal: %d %s", got.status, got.body)
	}
	for _, query := range []string{"?dry_run=perhaps", "?dry_run=true&dry_run=true", "?output=table"} {
		if got := declare(ci, query, entry("chat", "research", "lab")); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestDecisionIsolation names what a tenant may not see in what they would decide. Each answer is that of a name that does
// not exist.
func TestDecisionIsolation(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	pem := filepath.Join(t.TempDir(), "ann.pem")
	ann, err := keyfile.Create(pem)
	if err != nil {
		t.Fatal(err)
	}
	public := ann.Public().(ed25519.PublicKey)
	s.command("operator", "add", "ann", "--role", "admin", "--workspace", "research", "--public-key-of", pem)
	s.command("access", "grant", "account:till", "--role", "viewer", "--workspace", "shop", "--id", "hidden")
	var hidden struct {
		KeyID string `json:"key_id"`
	}
	if err := json.Unmarshal([]byte(s.command("access", "key", "issue", "till", "--workspace", "shop", "-o", "json")), &hidden); err != nil {
		t.Fatal(err)
	}
	tenant := s.account("tenant", "admin", "research")
	answered := func(command string, parameters map[string]any, named string) string {
		t.Helper()
		body, err := json.Marshal(map[string]any{"command": command, "parameters": parameters, "public_key": []byte(public)})
		if err != nil {
			t.Fatal(err)
		}
		got := s.post(http.MethodPost, tenant, cli.DecisionRoot, asJSON, string(body))
		return fmt.Sprint(got.status, strings.ReplaceAll(got.body, named, "NAME"))
	}
	for _, of := range []struct {
		command   string
		parameter string
		hidden    string
		unknown   string
		also      map[string]any
	}{
		{"access grant", "workspace", "shop", "nobody", map[string]any{"principal": "account:a", "role": "viewer"}},
		{"access grant", "workspace", "platform", "nobody", map[string]any{"principal": "account:a", "role": "viewer"}},
		{"access revoke", "grant", "hidden", "nothing", map[string]any{"workspace": "research"}},
		{"access revoke", "workspace", "shop", "nobody", map[string]any{"grant": "hidden"}},
		{"access key issue", "workspace", "shop", "nobody", map[string]any{"account": "till"}},
		{"access key revoke", "key_id", hidden.KeyID, strings.Repeat("a", len(hidden.KeyID)), nil},
	} {
		ask := func(value string) string {
			parameters := map[string]any{of.parameter: value}
			for k, v := range of.also {
				parameters[k] = v
			}
			return answered(of.command, parameters, value)
		}
		if got, want := ask(of.hidden), ask(of.unknown); got != want {
			t.Errorf("%s %s=%s:\n%s\nwant as for a name that is not there:\n%s", of.command, of.parameter, of.hidden, got, want)
		}
	}
	// Whose key it is, is not told either.
	root, err := keyfile.Load(filepath.Join(dir, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]any{"principal": "account:a", "role": "viewer", "workspace": "research"}
	unknown, _ := newKey(t)
	of, none := s.propose(tenant, root.Public().(ed25519.PublicKey), "access grant", own), s.propose(tenant, unknown, "access grant", own)
	if of.TakesEffect || none.TakesEffect || !reflect.DeepEqual(of.Problem, none.Problem) {
		t.Errorf("%+v\nunknown: %+v", of, none)
	}
	// Their own is theirs to decide.
	p := s.propose(tenant, public, "access grant", own)
	if got := s.decide(tenant, p.ID, signed(&p, ann)); got.status != http.StatusOK {
		t.Errorf("%d %s %+v", got.status, got.body, p)
	}
	for _, op := range cli.Decisions() {
		command := strings.Join(op.Words, " ")
		got := s.post(http.MethodPost, tenant, cli.DecisionRoot, asJSON, fmt.Sprintf(`{"command":%q,"public_key":%q}`, command, base64.StdEncoding.EncodeToString(public)))
		if got.status/100 != 4 {
			t.Errorf("%s without parameters: %d %s", command, got.status, got.body)
		}
	}
}
