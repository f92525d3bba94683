package attribution_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// TestSuppliersBills divides bills with column values as suppliers write them. Ada holds six of
// eight GPUs of each machine and bob two, so that they share everything that is not unseen, three
// parts to one. Each bill is divided under every discount rule; a rule whose result equals that of
// as_supplied has no section of its own.
func TestSuppliersBills(t *testing.T) {
	files, err := filepath.Glob("testdata/bills/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d bills: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			for _, f := range a.Files {
				sections[f.Name] = string(f.Data)
			}
			e := readBill(t, sections)
			for _, rule := range []attribution.Discount{attribution.AsSupplied, attribution.OwnersFirst, attribution.PoolRate} {
				e.policy.Discount = rule
				section := "divided " + string(rule)
				got := string(table(func(w *tabwriter.Writer) { divideBill(t, w, e) }))
				switch {
				case rule == attribution.AsSupplied:
					section = "divided"
				case got == sections["divided"]: // not written again
					got = ""
				}
				if *update {
					sections[section] = got
					a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == section })
					if got != "" {
						a.Files = append(a.Files, txtar.File{Name: section, Data: []byte(got)})
					}
				} else if got != sections[section] {
					t.Errorf("%s: it is\n%s\nwant\n%s", section, got, sections[section])
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// readBill reads machines that are in service for four hours, commitments with their owners, and
// lines: from and to are hours, the other columns are those of FOCUS.
func readBill(t *testing.T, sections map[string]string) *estate {
	t.Helper()
	e := &estate{}
	for i, f := range rows(sections["nodes"]) {
		gpus, _ := strconv.Atoi(f[4])
		held, _ := strconv.Atoi(f[5])
		e.nodes = append(e.nodes, attribution.Node{Cluster: "c1", Node: f[0], Account: f[1], Resource: f[2], SKU: f[3], GPUs: gpus, Registered: true,
			Service: domain.Interval{From: start, To: start + 4*domain.Hour}})
		for h := range held {
			e.hours = append(e.hours, attribution.NodeHour{Node: i, Hour: start + domain.Instant(h)*domain.Hour, Owner: "own", Parts: []attribution.Part{
				{Component: attribution.Allocated, Workspace: "ada", GPUMs: 6 * hour}, {Component: attribution.Allocated, Workspace: "bob", GPUMs: 2 * hour},
			}})
		}
	}
	all, err := csv.NewReader(strings.NewReader(sections["lines.csv"])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range all[1:] {
		var at [2]domain.Instant
		for i := range at {
			h, err := strconv.Atoi(row[i])
			if err != nil {
				t.Fatal(err)
			}
			at[i] = start + domain.Instant(h)*domain.Hour
		}
		columns := map[string]any{"InvoiceIssuerName": "S", "BillingCurrency": "USD", "BillingPeriodStart": month.From, "BillingPeriodEnd": month.To,
			"ChargePeriodStart": at[0], "ChargePeriodEnd": at[1]}
		other := map[string]string{}
		for i, name := range all[0] {
			switch {
			case i < len(at) || row[i] == "":
			case strings.HasPrefix(name, "x_") && name != "x_LineId":
				other[name] = row[i]
			default:
				columns[name] = row[i]
			}
		}
		columns["Other"] = other
		text, err := json.Marshal(columns)
		if err != nil {
			t.Fatal(err)
		}
		var b domain.BillingLine
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		l, err := attribution.LineOf(&b)
		if err != nil {
			t.Fatal(err)
		}
		e.lines = append(e.lines, l)
	}
	for _, f := range rows(sections["commitments"]) {
		e.commitments = append(e.commitments, attribution.Commitment{ID: f[0], Owners: []domain.Share{{Workspace: f[1], Share: decimal.NewFromInt(1)}}})
	}
	return e
}

func divideBill(t *testing.T, w *tabwriter.Writer, e *estate) {
	t.Helper()
	allocations, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range e.lines {
		sums := map[string]costs{}
		bought := int64(0)
		for i := range allocations {
			if g := &allocations[i]; g.line.ID == l.ID {
				bought += g.BoughtMs
				sums[g.Workspace] = sums[g.Workspace].add(g.Billed, g.Effective)
				e.trace = &attribution.Ref{Issuer: l.Issuer, Account: l.Account, Line: l.ID, Hour: g.Hour, Workspace: g.Workspace, Cluster: g.Cluster, Deployment: g.Deployment, Component: g.Component}
			}
		}
		_, traced, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s GPU-hours\t%s\n", l.ID, l.Meter, hours(bought), traced.Trace.MeterReason)
		for _, workspace := range slices.Sorted(maps.Keys(sums)) {
			fmt.Fprintf(w, "\t%s\t%s\t%s effective\n", workspace, sums[workspace].billed, sums[workspace].effective)
		}
	}
	for _, x := range res.Exceptions {
		fmt.Fprintf(w, "exception\t%s\t%s\t%s\n", x.Kind, x.Subject, x.Detail)
	}
}
