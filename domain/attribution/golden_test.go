package attribution_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
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

var update = flag.Bool("update", false, "write the goldens")

// TestEstate divides the bill in testdata/estate.txt, which is small enough to check by hand, and
// compares the complete result with the file's second half.
func TestEstate(t *testing.T) {
	const file = "testdata/estate.txt"
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range a.Files {
		sections[f.Name] = string(f.Data)
	}
	allocations, res, err := readEstate(t, sections).run()
	if err != nil {
		t.Fatal(err)
	}
	got := []txtar.File{
		{Name: "allocations", Data: table(func(w *tabwriter.Writer) {
			fmt.Fprintln(w, "# line\thour\tworkspace\tcluster\tdeployment\tcomponent\tmatch method\tbilled\teffective\tweight\tof\tbought-h\tallocated-h\tuseful-h")
			for i := range allocations {
				l := &allocations[i]
				h := "-"
				if l.Hour != 0 {
					h = strconv.Itoa(int((l.Hour - start) / domain.Hour))
				}
				weight, of := l.Weight.String(), l.Of.String()
				if l.MatchMethod == attribution.ByResource || l.MatchMethod == attribution.ByAccount {
					weight, of = hours(l.Weight.Decimal().IntPart()), hours(l.Of.Decimal().IntPart())
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.line.ID, h, l.Workspace, dash(l.Cluster), dash(l.Deployment), l.Component, l.MatchMethod,
					l.Billed, l.Effective, weight, of, hours(l.BoughtMs), hours(l.AllocatedMs), hours(l.UsefulMs))
			}
		})},
		{Name: "result", Data: table(func(w *tabwriter.Writer) {
			for _, m := range res.Matches {
				fmt.Fprintf(w, "matched\t%s\t%d\t%s\t%s\n", m.MatchMethod, m.Lines, m.Billed, m.Effective)
			}
			for _, v := range res.Invoices {
				fmt.Fprintf(w, "invoice\t%s\t%s\t%d lines\tbilled %s\tattributed %s\treceived %s\tdifference %s, %s in cents\trounding adjustment %s\n", dash(v.Invoice), v.Status, v.Lines, v.Billed, v.Attributed, v.Received, v.Difference, v.DifferenceMinor, v.RoundingAdjustment)
			}
			for _, s := range res.Statements {
				fmt.Fprintf(w, "statement\t%s\t%s\t%s\t%s\n", dash(s.Invoice), s.Workspace, s.Billed, s.Amount)
			}
			for _, c := range res.Commitments {
				fmt.Fprintf(w, "commitment\t%s\tpurchased %s\tused %s\tunused %s\n", c.Commitment, c.Purchased, c.Used, c.Unused)
			}
			for _, x := range res.Exceptions {
				fmt.Fprintf(w, "exception\t%s\t%s\t%s\t%s GPU-h\t%d lines\t%s\t%s\n", x.Kind, x.Subject, x.Detail, hours(x.GPUMs), x.Lines, x.Billed, x.Effective)
			}
		})},
	}
	if *update {
		a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "allocations" || f.Name == "result" })
		a.Files = append(a.Files, got...)
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, f := range got {
		if string(f.Data) != sections[f.Name] {
			t.Errorf("%s are\n%s\nwant\n%s", f.Name, f.Data, sections[f.Name])
		}
	}
}

func table(rows func(*tabwriter.Writer)) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(w)
	w.Flush()
	return b.Bytes()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func hours(ms int64) string {
	return decimal.NewFromInt(ms).DivRound(decimal.NewFromInt(hour), 6).String()
}

func rows(section string) (all [][]string) {
	for line := range strings.Lines(section) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			for i := range f {
				if f[i] == "-" {
					f[i] = ""
				}
			}
			all = append(all, f)
		}
	}
	return all
}

func readEstate(t *testing.T, sections map[string]string) *estate {
	t.Helper()
	amount := func(s string) attribution.Amount {
		a, err := attribution.ParseAmount(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	at := func(s string) domain.Instant {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return start + domain.Instant(n)*domain.Hour
	}
	time := func(s string) int64 { return amount(s).Decimal().Mul(decimal.NewFromInt(hour)).IntPart() }
	e := &estate{}
	for _, f := range rows(sections["nodes"]) {
		cluster, node, _ := strings.Cut(f[0], "/")
		gpus, _ := strconv.Atoi(f[4])
		e.nodes = append(e.nodes, attribution.Node{Cluster: cluster, Node: node, Account: f[1], Resource: f[2], SKU: f[3], GPUs: gpus,
			Billing: domain.BillingModel(f[5]), Registered: true, Service: domain.Interval{From: at(f[6]), To: at(f[7])}})
	}
	for _, f := range rows(sections["use"]) {
		n := slices.IndexFunc(e.nodes, func(n attribution.Node) bool { return n.Cluster+"/"+n.Node == f[0] })
		if i := len(e.hours) - 1; i < 0 || e.hours[i].Node != n || e.hours[i].Hour != at(f[1]) {
			e.hours = append(e.hours, attribution.NodeHour{Node: n, Hour: at(f[1]), Owner: "red"})
		}
		component, err := attribution.ParseComponent(f[2])
		if err != nil {
			t.Fatal(err)
		}
		workspace, deployment, _ := strings.Cut(f[3], "/")
		h := &e.hours[len(e.hours)-1]
		h.Parts = append(h.Parts, attribution.Part{Component: component, Workspace: workspace, Deployment: deployment, GPUMs: time(f[4]), UsefulMs: time(f[5])})
	}
	for _, f := range rows(sections["lines"]) {
		class, err := attribution.ParseClass(f[1])
		if err != nil {
			t.Fatal(err)
		}
		l := attribution.Line{Issuer: "Cloud", Account: "a-1", ID: f[0], Invoice: "may", Currency: "USD", BillingPeriod: month,
			Class: class, Category: f[2], Commitment: f[3], Resource: f[4], ChargePeriod: domain.Interval{From: at(f[5]), To: at(f[6])},
			NodeMs: time(f[7]), Billed: amount(f[8]), Effective: amount(f[9])}
		switch l.Category {
		case "Unused":
			l.Category, l.Unused = "Usage", true
		case "Recurring":
			l.Category, l.Recurring = "Purchase", true
		}
		e.lines = append(e.lines, l)
	}
	for _, f := range rows(sections["commitments"]) {
		c := attribution.Commitment{ID: f[0]}
		for _, s := range f[1:] {
			workspace, share, _ := strings.Cut(s, "=")
			c.Owners = append(c.Owners, domain.Share{Workspace: workspace, Share: amount(share).Decimal()})
		}
		e.commitments = append(e.commitments, c)
	}
	for _, f := range rows(sections["invoice"]) {
		e.invoices = append(e.invoices, attribution.Invoice{Issuer: "Cloud", Account: "a-1", ID: "may", Currency: "USD", Total: amount(f[0]), Status: "Issued"})
	}
	return e
}
