package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
	"quartermaster/domain"
)

// serveHome serves a home with a gateway until stop is called, and returns the address of the gateway.
func serveHome(ctx context.Context, dir string) (address string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	lines := make(lineWriter, 1000)
	done := make(chan error, 1)
	d := daemon.New(&app.App{Dir: dir}, lines, false)
	d.OwnWait = time.Second
	go func() {
		done <- d.Serve(ctx, "127.0.0.1:0", config.Gateway{Listen: "127.0.0.1:0", Rate: 1000}, config.API{})
	}()
	stop = func() error {
		cancel()
		for {
			select {
			case <-lines:
			case err := <-done:
				return err
			}
		}
	}
	for {
		select {
		case line := <-lines:
			if _, after, ok := strings.Cut(line, "address="); ok && strings.Contains(line, "accepting events") {
				address = strings.Fields(after)[0]
			}
			if strings.Contains(line, "caught up") && address != "" {
				go func() {
					for {
						select {
						case <-lines:
						case <-ctx.Done():
							return
						}
					}
				}()
				return address, stop, nil
			}
		case err := <-done:
			return "", func() error { return nil }, fmt.Errorf("serve ended: %w", err)
		}
	}
}

// pulled is what a cluster sees of a command.
type pulled struct {
	Commands []struct {
		Command        string            `json:"command"`
		Recommendation string            `json:"recommendation"`
		Approvals      []domain.Approval `json:"approvals"`
		Approved       []byte            `json:"approved"`
		Document       json.RawMessage   `json:"document"`
	} `json:"commands"`
}

func ask(ctx context.Context, method, url, key, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// receive KEYFILE RESULT REFERENCE is a cluster: it serves the home, pulls the commands of the cluster of a key, verifies
// their approvals, writes what they ask for to received.json, and acknowledges each with a result.
func receive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: receive keyfile result reference")
	}
	address, stop, err := serveHome(context.Background(), ts.Getenv("QUARTERMASTER_DATA_DIR"))
	ts.Check(err)
	defer func() { ts.Check(stop()) }()
	key := strings.TrimSpace(ts.ReadFile(args[0]))
	status, answer, err := ask(context.Background(), http.MethodGet, "http://"+address+"/v1/commands?wait=5s", key, "")
	ts.Check(err)
	if status != http.StatusOK {
		ts.Fatalf("GET: %d %s", status, answer)
	}
	ts.Check(os.WriteFile(ts.MkAbs("received.json"), answer, 0o600))
	var got pulled
	ts.Check(json.Unmarshal(answer, &got))
	for _, c := range got.Commands {
		for _, a := range c.Approvals {
			if !a.Verifies() || !bytes.Contains(a.Signed, []byte(c.Recommendation)) {
				ts.Fatalf("the approval of %s by %s does not verify", c.Command, a.Operator)
			}
		}
		body := fmt.Sprintf(`{"result": %q, "reference": %q}`, args[1], args[2])
		status, answer, err := ask(context.Background(), http.MethodPost, "http://"+address+"/v1/commands/"+c.Command, key, body)
		ts.Check(err)
		if status != http.StatusOK {
			ts.Fatalf("POST: %d %s", status, answer)
		}
	}
	ts.Logf("%d commands", len(got.Commands))
}

// measure DAYS measures outcomes as if so many days had passed.
func measure(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: measure days")
	}
	days, err := strconv.Atoi(args[0])
	ts.Check(err)
	on := &app.App{Dir: ts.Getenv("QUARTERMASTER_DATA_DIR")}
	said, err := on.For(app.Everyone).MeasureOutcomes(context.Background(), app.Now()+domain.Instant(days)*domain.Day)
	ts.Check(err)
	ts.Check(on.Close())
	ts.Logf("%s", said)
}

// TestCommands holds what the gateway says about commands that are acknowledged twice, otherwise, by others or too late.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	quartermaster := func(args ...string) string {
		t.Helper()
		var out, says bytes.Buffer
		if code := run(append(args, "--data-dir", dir, "--quiet"), strings.NewReader(""), &out, &says); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, says.String())
		}
		return out.String()
	}
	file := func(name, text string) string {
		path := t.TempDir() + "/" + name
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := t.TempDir()
	for _, c := range []struct{ cluster, scope string }{{"north", "receive"}, {"south", "receive"}, {"west", "push"}} {
		quartermaster("cluster", "register", c.cluster, "--provider", "own", "--class", "owned", "--region", "eu", "--scope", c.scope, "--key-file", keys+"/"+c.cluster)
	}
	key := func(cluster string) string {
		text, err := os.ReadFile(keys + "/" + cluster)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	quartermaster("operator", "add", "ann", "--role", "planner", "--new-key", keys+"/ann.pem")
	propose := func(id string) {
		quartermaster("recommend", "propose", "--workspace", "platform", "--key", keys+"/ann.pem", "-f",
			file("p.yaml", "recommendation: "+id+"\nkind: drain\nsummary: drain n1\nclusters: [north]\n"))
		quartermaster("recommend", "approve", id)
	}
	propose("r-1")
	propose("r-2")
	address, stop, err := serveHome(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	request := func(method, path, key, body string, want int) []byte {
		t.Helper()
		status, answer, err := ask(t.Context(), method, "http://"+address+path, key, body)
		if err != nil || status != want {
			t.Fatalf("%s %s: %d %s, %v; want %d", method, path, status, answer, err, want)
		}
		return answer
	}
	pull := func(key string) (got pulled) {
		t.Helper()
		if err := json.Unmarshal(request("GET", "/v1/commands?wait=1s", key, "", 200), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := pull(key("south")); len(got.Commands) != 0 {
		t.Errorf("another cluster has %d commands", len(got.Commands))
	}
	got := pull(key("north"))
	if len(got.Commands) != 2 {
		t.Fatalf("%d commands", len(got.Commands))
	}
	first, second := got.Commands[0], got.Commands[1]
	if again := pull(key("north")); len(again.Commands) != 2 || again.Commands[0].Command != first.Command {
		t.Error("what is not acknowledged is not delivered again")
	}
	if sum := sha256.Sum256(first.Approved); !first.Approvals[0].Verifies() || !bytes.Contains(first.Approvals[0].Signed, sum[:]) {
		t.Error("the approval does not verify, or is not of the recommendation that comes along")
	}
	done, failed := `{"result": "done", "reference": "change-1"}`, `{"result": "failed"}`
	request("GET", "/v1/commands", key("west"), "", 403)
	request("GET", "/v1/commands?wait=2h", key("north"), "", 400)
	request("GET", "/v1/commands", "qmk_no", "", 401)
	request("POST", "/v1/commands/c-0", key("north"), done, 404)
	request("POST", "/v1/commands/"+first.Command, key("south"), done, 404)
	request("POST", "/v1/commands/"+first.Command, key("north"), `{"result": "maybe"}`, 400)
	request("POST", "/v1/commands/"+first.Command, key("north"), `{"result": "done", "actor": "me"}`, 400)
	request("POST", "/v1/commands/"+first.Command, key("north"), strings.Repeat(" ", 9<<10), 400)
	request("DELETE", "/v1/commands/"+first.Command, key("north"), "", 405)
	request("POST", "/v1/commands/"+first.Command, key("north"), done, 200)
	request("POST", "/v1/commands/"+first.Command, key("north"), done, 200)
	request("POST", "/v1/commands/"+first.Command, key("north"), failed, 409)
	if got := pull(key("north")); len(got.Commands) != 1 || got.Commands[0].Command != second.Command {
		t.Errorf("after one acknowledgement there are %d commands", len(got.Commands))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	quartermaster("recommend", "withdraw", second.Recommendation, "--note", "not needed")
	if address, stop, err = serveHome(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	request("POST", "/v1/commands/"+second.Command, key("north"), done, 410)
	if got := pull(key("north")); len(got.Commands) != 0 {
		t.Errorf("a withdrawn command is delivered")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var trail app.Trail
	if err := json.Unmarshal([]byte(quartermaster("audit", "trail", "--recommendation", first.Recommendation, "-o", "json")), &trail); err != nil {
		t.Fatal(err)
	}
	acts := 0
	for _, e := range trail.Entries {
		if e.Type == domain.TypeRecommendationActuated {
			acts++
		}
		if e.Type == domain.TypeRecommendationApproved && !strings.Contains(e.Says, "operator root in workspace platform approved drain recommendation "+first.Recommendation+" for cluster north, actuated at ") {
			t.Errorf("the trail says %s", e.Says)
		}
	}
	if acts != 1 {
		t.Errorf("%d actuations", acts)
	}
	if denied := quartermaster("audit", "trail", "--refused"); !strings.Contains(denied, "may not receive") {
		t.Errorf("the attempt with a key that may not receive is not in the trail:\n%s", denied)
	}
}
