package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"quartermaster/adapters/commandline"
	"quartermaster/domain/attribution"
	"quartermaster/domain/forecast"
	problem "quartermaster/domain/instance"
	"quartermaster/domain/packing"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/simulations/backtest"
	"quartermaster/simulations/whatif"
)

// madeBy is what a report names of the program that made it.
type madeBy struct {
	Version string   `json:"version"`
	Commit  string   `json:"commit"`
	Date    string   `json:"date"` // of the commit
	Methods []string `json:"methods"`
}

func program() madeBy {
	v := version()
	return madeBy{v.Version, v.Commit, v.Date, slices.Sorted(maps.Values(v.Methods))}
}

// showProgram names the program under a report. Which methods computed it, the report
// says itself, beside that of the rows.
func (a *app) showProgram() {
	p := program()
	on := ""
	if p.Date != "" {
		on = " of " + p.Date
	}
	fmt.Fprintf(a.out, "program: quartermaster %s, commit %.12s%s, %s\n", p.Version, p.Commit, on, projections.Method)
}

// answerReport writes a report as one JSON document that names the program.
func (a *app) answerReport(report any) error {
	if c, ok := report.(interface{ Note() string }); ok && c.Note() != "" {
		a.lacking = true
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(report); err != nil {
		return err
	}
	by, err := json.MarshalIndent(program(), "  ", "  ")
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(doc.Bytes(), []byte("{\n"))
	if !ok {
		return fmt.Errorf("a report is a JSON object with keys, and this is %.20q", doc.Bytes())
	}
	_, err = fmt.Fprintf(a.out, "{\n  \"program\": %s,\n%s", by, rest)
	return err
}

// version names this build and the methods with which it computes.
func version() commandline.Version {
	return commandline.VersionOf("quartermaster",
		projections.Method, attribution.Method, reliability.Method, forecast.Method, plan.Method, packing.Method,
		procurement.Method, joint.Method, problem.Method, problem.ContractMethod, whatif.Method, backtest.Method)
}
