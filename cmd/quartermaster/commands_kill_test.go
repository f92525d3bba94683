package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// killed KEYFILE PROPOSER takes recommendations to their outcomes, and kills a process with SIGKILL at a random time in a step
// of each: as it is proposed, approved, or acknowledged at the gateway. Then it repeats the step. It fails unless the log has
// each step of each recommendation once. It is 20 kills, and 200 with CI_LONG=1.
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killed keyfile proposer")
	}
	home := ts.Getenv("QUARTERMASTER_DATA_DIR")
	key := strings.TrimSpace(ts.ReadFile(args[0]))
	rng := rand.New(rand.NewPCG(18, 4))
	path, err := exec.LookPath("quartermaster")
	ts.Check(err)
	command := func(args ...string) *exec.Cmd {
		c := exec.Command(path, args...)
		c.Dir = ts.Getenv("WORK")
		c.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "QUARTERMASTER_DATA_DIR="+home)
		return c
	}
	kills := 0
	// step runs a command, which may have been done before.
	step := func(kill bool, already string, args ...string) {
		if kill {
			c := command(args...)
			ts.Check(c.Start())
			<-time.After(time.Duration(rng.IntN(250)) * time.Millisecond) // the kill comes at any time
			_ = c.Process.Kill()
			if c.Wait() != nil {
				kills++
			}
		}
		out, err := command(args...).CombinedOutput()
		if err != nil && !(kill && strings.Contains(string(out), already)) {
			ts.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	issue := func() {
		on := &app.App{Dir: home}
		_, err := on.For(app.Everyone).IssueCommands(context.Background(), "", app.Now())
		ts.Check(err)
		ts.Check(on.Close())
	}
	n := long.Count(20, 200)
	for i := range n {
		id := fmt.Sprintf("r-%03d", i)
		ts.Check(os.WriteFile(ts.MkAbs("p.yaml"), []byte("recommendation: "+id+"\nkind: drain\nsummary: drain n1\nclusters: [lab]\nsaving: 5 USD\n"), 0o600))
		step(i%3 == 0, "already", "recommend", "propose", "-f", "p.yaml", "--workspace", "platform", "--key", args[1])
		step(i%3 == 1, "is ", "recommend", "approve", id)
		issue() // as the next tick does
		if i%3 == 2 && killGateway(ts, command("serve", "--listen", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--advice=false"), key, rng) {
			kills++
		}
	}
	receive(ts, false, []string{args[0], "done", "again"})
	for range 2 {
		measure(ts, false, []string{"61"})
	}
	for i := range n {
		id := fmt.Sprintf("r-%03d", i)
		out, err := command("audit", "trail", "--recommendation", id, "-o", "json").Output()
		ts.Check(err)
		var trail app.Trail
		ts.Check(json.Unmarshal(out, &trail))
		count := map[domain.Type]int{}
		for _, e := range trail.Entries {
			count[e.Type]++
		}
		for _, want := range []domain.Type{
			domain.TypeRecommendationMade, domain.TypeRecommendationApproved, domain.TypeCommandIssued, domain.TypeRecommendationActuated, domain.TypeOutcomeRecorded,
		} {
			if count[want] != 1 {
				ts.Fatalf("%s has %d %s:\n%s", id, count[want], want, out)
			}
		}
	}
	if kills < n/4 {
		ts.Fatalf("%d of %d runs were killed before their end", kills, n)
	}
	ts.Logf("%d of %d runs were killed before their end", kills, n)
}

// killGateway kills a service while a cluster acknowledges its commands.
func killGateway(ts *testscript.TestScript, serve *exec.Cmd, key string, rng *rand.Rand) bool {
	pipe, err := serve.StderrPipe()
	ts.Check(err)
	ts.Check(serve.Start())
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	}()
	lines, address := bufio.NewScanner(pipe), ""
	for lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "address="); ok && strings.Contains(lines.Text(), "accepting events") {
			address = strings.Fields(after)[0]
		}
		if strings.Contains(lines.Text(), "caught up") {
			break
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()
	_, answer, err := ask(context.Background(), http.MethodGet, "http://"+address+"/v1/commands?wait=5s", key, "")
	ts.Check(err)
	var got pulled
	ts.Check(json.Unmarshal(answer, &got))
	ended := make(chan bool, 1)
	go func() {
		for _, c := range got.Commands {
			body := `{"result": "done", "reference": "once"}`
			if status, _, err := ask(context.Background(), http.MethodPost, "http://"+address+"/v1/commands/"+c.Command, key, body); err != nil || status != http.StatusOK {
				ended <- false
				return
			}
		}
		ended <- true
	}()
	select {
	case <-time.After(time.Duration(rng.IntN(40)) * time.Millisecond):
	case <-ended:
	}
	return true
}
