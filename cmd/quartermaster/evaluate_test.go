package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// evaluate TICK evaluates the rules at a tick, as serve does every five minutes.
func evaluate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: evaluate tick")
	}
	at, err := time.Parse(time.RFC3339, args[0])
	ts.Check(err)
	a := &app.App{Dir: ts.Getenv("QUARTERMASTER_DATA_DIR")}
	outcome, err := a.For(app.Everyone).EvaluateTick(context.Background(), domain.InstantOf(at), nil)
	ts.Check(err)
	ts.Check(a.Close())
	fmt.Fprintln(ts.Stdout(), outcome)
}
