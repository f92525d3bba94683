package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/adapters/commandline/manual"
	"quartermaster/adapters/focus"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections/costs"
)

var update = flag.Bool("update", false, "write docs/reference anew")

// The reference is what the program, its sources and its configuration say of themselves.
func TestReference(t *testing.T) {
	t.Setenv("QUARTERMASTER_DATA_DIR", "")
	t.Setenv("QUARTERMASTER_CONFIG", "")
	t.Setenv("XDG_DATA_HOME", "~/.local/share")
	pages := manual.Pages((commandLine(&app.App{}, io.Discard, io.Discard)).Root())
	manual.Compare(t, filepath.Join(manual.Dir, "cli"), "quartermaster*.md", pages, *update)
	for name, page := range map[string]string{
		"configuration.md": configurationPage(t),
		"metrics.md":       metricsPage(t),
		"events.md":        eventsPage(t),
		"focus.md":         focusPage(t),
		"sql-views.md":     sqlPage(t),
		"exports.md":       exportsPage(),
		"rules.md":         rulesPage(),
	} {
		manual.Compare(t, manual.Dir, name, map[string]string{name: manual.Note + page}, *update)
	}
	metrics := metricsPage(t)
	for name, text := range documents(t) {
		for _, metric := range regexp.MustCompile(`\b(quartermaster|node_reporter)_[a-z]+_[a-z_]+\b`).FindAllString(text, -1) {
			if !strings.Contains(metrics, "`"+metric+"`") {
				t.Errorf("%s names %s, and there is no such metric", name, metric)
			}
		}
	}
}

func readSource(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func configurationPage(t *testing.T) string {
	return fmt.Sprintf(`# Configuration

Each file explains its fields. "quartermaster config example" and "node-reporter config
example" print the same files, and "config show" prints the values in effect and where
each came from.

Every field but lists of objects can be set in the environment instead. The environment
overrides the file. Secrets are in files of their own, readable by their owner alone.

## quartermaster

For a log on Apache Kafka and rows in Postgres: `+"`--config FILE` or `QUARTERMASTER_CONFIG`"+`.

`+"```yaml\n%s```"+`

## Environment of quartermaster

| Variable | |
|---|---|
| `+"`QUARTERMASTER_DATA_DIR`"+` | the data directory, as `+"`--data-dir`"+` |
| `+"`QUARTERMASTER_CONFIG`"+` | the configuration, as `+"`--config`"+` |
| `+"`QUARTERMASTER_`"+` and the path of a key | a field of the configuration, for example `+"`QUARTERMASTER_KAFKA_BROKERS`"+` |
| `+"`XDG_DATA_HOME`"+` | where the data directory is by default |

## node-reporter

`+"```yaml\n%s```\n", readSource(t, "cmd", "quartermaster", "internal", "config", "quartermaster.yaml"), readSource(t, "cmd", "node-reporter", "node-reporter.yaml"))
}

// rulesPage lists the rules of advice.
func rulesPage() string {
	var b strings.Builder
	b.WriteString("# Rules\n\n`quartermaster advice` judges figures by these rules, version `" + advice.Method + "`: see [alerts](../operate/alerts.md).\n" +
		"A policy of kind `advice_threshold` sets another threshold.\n\n" +
		"| Rule | Measures | Fires | Over | Severity | Coverage | Source | What ends it |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range advice.Rules() {
		value := r.Threshold.String() + " " + string(r.Unit)
		if r.Unit == advice.Share {
			value = r.Threshold.Shift(2).String() + "%"
		}
		side := map[advice.Side]string{advice.Above: "above ", advice.Below: "below ", advice.Least: "from "}[r.Side]
		coverage := ""
		if r.Coverage.IsPositive() {
			coverage = r.Coverage.Shift(2).String() + "%"
		}
		var window string
		switch w := domain.Instant(r.Window); {
		case w%domain.Day == 0:
			window = fmt.Sprintf("%d d", w/domain.Day)
		case w%domain.Hour == 0:
			window = fmt.Sprintf("%d h", w/domain.Hour)
		default:
			window = fmt.Sprintf("%d min", w/(60*domain.Second))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", r.ID, tableCell(r.Title), side+value, window, r.Severity, coverage,
			tableCell(r.Source), tableCell(r.Action))
	}
	b.WriteString("\n## On the demo\n\nThe generated demo has a cause for each rule. On 2026-06-01 `quartermaster advice` finds each of them, and nothing else.\n" +
		"What names no source is invented.\n\n| Rule | Findings are about | Planted cause |\n|---|---|---|\n")
	for _, c := range cli.DemoCauses() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", c.Rule, c.About, tableCell(c.Why))
	}
	return b.String()
}

// metricsPage lists the metrics that the sources make.
func metricsPage(t *testing.T) string {
	help := map[string]string{}
	for _, dir := range []string{"adapters", "cmd", "internal"} {
		root := filepath.Join("..", "..", dir)
		if _, err := os.Stat(root); err != nil {
			continue
		}
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if name, text := metricIn(n); name != "" {
					help[name] = text
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\n`quartermaster serve` and `node-reporter run` have them at `/metrics`.\n")
	for _, program := range []string{"quartermaster", "node_reporter"} {
		fmt.Fprintf(&b, "\n## %s\n\n| Metric | |\n|---|---|\n", strings.ReplaceAll(program, "_", "-"))
		n := 0
		for _, name := range sortedKeys(help) {
			if strings.HasPrefix(name, program+"_") {
				n++
				fmt.Fprintf(&b, "| `%s` | %s |\n", name, tableCell(help[name]))
			}
		}
		if n < 10 {
			t.Errorf("found %d metrics of %s in the sources", n, program)
		}
	}
	return b.String()
}

// metricIn returns the name and the help of the metric that a piece of source makes.
func metricIn(n ast.Node) (name, help string) {
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return s
			}
		case *ast.BinaryExpr: // "a" + "b"
			return text(e.X) + text(e.Y)
		}
		return ""
	}
	switch n := n.(type) {
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				switch k, ok := kv.Key.(*ast.Ident); {
				case ok && k.Name == "Name":
					name = text(kv.Value)
				case ok && k.Name == "Help":
					help = text(kv.Value)
				}
			}
		}
	case *ast.CallExpr:
		if len(n.Args) < 2 {
			return "", ""
		}
		name, help = text(n.Args[0]), text(n.Args[1])
		// node-reporter makes its metrics by a function that adds what all begin with.
		if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "add" && len(n.Args) == 5 {
			name, help = "node_reporter_"+text(n.Args[1]), text(n.Args[2])
		}
	}
	if help == "" || !strings.HasPrefix(name, "quartermaster_") && !strings.HasPrefix(name, "node_reporter_") {
		return "", ""
	}
	return name, help
}

// eventsPage lists the types of events, with what their sources say of them.
func eventsPage(t *testing.T) string {
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join("..", "..", "domain", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := doc.NewFromFiles(fset, files, "quartermaster/domain")
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	for _, typ := range pkg.Types {
		text := pkg.Synopsis(typ.Doc)
		says[typ.Name] = strings.TrimPrefix(text, typ.Name+" ")
	}
	var b strings.Builder
	b.WriteString("# Events\n\nEvents are CloudEvents 1.0 in Kafka's binary mode with Protobuf payloads. Names are past tense.\nThe schemas are in [schemas/events/v1](../../schemas/events/v1), and `go doc ./domain TYPE` has\neach field. Order holds within a topic for one key.\n\nA signed event is a decision: it has the Ed25519 signature of an operator. So has one that names\nan operator as its actor.\n")
	keys := map[domain.Topic]string{
		domain.TopicWorkspaces: "workspace", domain.TopicProcurement: "workspace", domain.TopicBilling: "invoice issuer and billing account",
		domain.TopicMarket: "provider and region, or currency pair", domain.TopicBooks: "ledger entity", domain.TopicAccess: "workspace", domain.TopicIncidents: "workspace",
	}
	for _, spec := range domain.TopicSpecs() {
		key := keys[spec.Topic]
		if key == "" {
			key = "cluster"
		}
		fmt.Fprintf(&b, "\n## %s\n\nKey: %s. Partitions: %d.\n\n| Event | Signed | |\n|---|---|---|\n", spec.Topic, key, spec.Partitions)
		for _, typ := range domain.Types() {
			if domain.TopicOf(typ) != spec.Topic {
				continue
			}
			if says[string(typ)] == "" {
				t.Errorf("the sources say nothing of %s", typ)
			}
			signed := ""
			if domain.NeedsSignature(domain.NewEvent(typ)) {
				signed = "yes"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", typ, signed, tableCell(says[string(typ)]))
		}
	}
	return b.String()
}

// focusPage lists the columns of Cost and Usage.
func focusPage(t *testing.T) string {
	column := regexp.MustCompile(`(?m)^\t\{name: "(\w+)", since: (\d)(\d),?(.*)\},?$`)
	rows := column.FindAllStringSubmatch(readSource(t, "adapters", "focus", "columns.go"), -1)
	if len(rows) < 50 {
		t.Fatalf("found %d columns", len(rows))
	}
	var b strings.Builder
	b.WriteString(`# FOCUS columns

"quartermaster import focus" reads FOCUS 1.0-preview to 1.4 Cost and Usage, 1.4 Invoice Detail and
Billing Period, and 1.3 and 1.4 Contract Commitment, as CSV (plain, gzip or zstd) or Parquet. Columns
stand in any order, their names in any case. The package comment of
[adapters/focus](../../adapters/focus/doc.go) has every rule.

- **Required**: a file without the column is not read, and a row where it is null is bad.
- **Decides**: a value that cannot be read refuses the row. In every other column it is
  set aside, kept as written in ` + "`x_<Column>AsWritten`" + `, and counted.
- Columns that FOCUS does not define are kept by name.

## Columns of Quartermaster

| Column | |
|---|---|
| ` + "`x_LineId`" + ` | id of the line; without it the id is a hash of the row |
| ` + "`x_CorrectsLineId`, `x_CorrectionReason`" + ` | the line that this row corrects, and why |
| ` + "`x_FocusVersion`" + ` | the version that the row was read as |
| ` + "`x_Generated`" + ` | whether a generator made the row, and no supplier |
| ` + "`x_InvoiceIssuerNameSource`" + ` | where the issuer of a row that names none comes from |
| ` + "`x_BillingModel`" + ` | decides the class of the charge, for example ` + "`owned`" + ` |

## Columns of Cost and Usage

| Column | Since | Mandatory in FOCUS | Required | Decides |
|---|---|---|---|---|
`)
	is := func(row []string, word string) string {
		if strings.Contains(row[4], word+": true") {
			return "yes"
		}
		return ""
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %s.%s | %s | %s | %s |\n", row[1], row[2], row[3], is(row, "mandatory"), is(row, "needed"), is(row, "decides"))
	}
	b.WriteString(`
## Columns of Invoice Detail

An invoice is all rows with its issuer, account and id; each row is a part of its total (` + "`BilledCost`" + `).
If a line names the id of a row in ` + "`InvoiceDetailId`" + `, the lines of the row are compared with it, too.
` + "`InvoiceIssueStatus`" + ` is Open, Issued or Voided. A later statement of an invoice replaces the one before.
Other columns that FOCUS makes mandatory may be missing, with a warning.

| Column | Required |
|---|---|
`)
	invoices, required := focus.InvoiceColumns()
	for _, c := range invoices {
		needed := ""
		if slices.Contains(required, c) {
			needed = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", c, needed)
	}
	b.WriteString(`
## Rules that "focus validate" decides

The FinOps Foundation publishes the rules of FOCUS 1.2 as data, 621 of them. A test makes rows that break
each, and asks "quartermaster focus validate" about them:

| Rules | |
|---|---|
| 201 | have no check in the data: what they ask is not in a file |
| 143 | are made of others; of 128 no part is left open |
| 137 | are decided |
| 69 | are about the type of texts, which every text satisfies |
| 10 | are decided as their text says; the check in the data says something else, for example the opposite |
| 32 | ask for a column if the provider supports something, which no file says |
| 22 | are recommendations or permissions, and not reported |
| 7 | are not decided: five ask what no column says, two compare several rows |

`)
	return b.String()
}

// exportsPage lists the columns of exports.
func exportsPage() string {
	var b strings.Builder
	b.WriteString(`# Columns of exports

"quartermaster costs export" writes these columns without --by, in this order, in every format. A row is
an allocation of a billing month, or a posting about an earlier closed month: see
[export costs](../how-to/export-costs.md). Text, JSON and times are UTF-8 and RFC 3339 in UTC; decimals have
all their digits.

Columns without a description are as FOCUS 1.4 defines them, of an allocated charge.

| Column | Kind | |
|---|---|---|
`)
	for _, c := range costs.ExportedColumns() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, c.Kind, tableCell(c.Doc))
	}
	b.WriteString(`
## Groups

With --by the columns are the month, a column for each dimension, and figures. With --compare previous those
of the month before follow.

| Column | Kind | |
|---|---|---|
`)
	for _, c := range costs.GroupColumns(nil, true) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, c.Kind, tableCell(c.Doc))
	}
	return b.String()
}

// sqlPage lists the views for people.
func sqlPage(t *testing.T) string {
	comment := regexp.MustCompile(`(?m)^comment on (view|column) quartermaster\.([\w."]+) is '((?:[^']|'')*)';$`)
	var b strings.Builder
	b.WriteString("# SQL views\n\nThe Postgres schema `quartermaster` has these views, for the roles in `postgres.readers`:\nall for a role that sees the whole estate, and `workspaces`, `budgets`, `plans`, `usage`, `costs` and\n`statements_due` for one that sees some workspaces. They stay when tables change and when another generation of rows becomes active. A view shows\nwhat the log says as of now. Whether the signer of a decision had the right to make it is\nanswered by the program, not here.\n\nColumns whose names say it all are left out: `\\d+ quartermaster.VIEW` in psql has them.\n")
	n := 0
	for _, m := range comment.FindAllStringSubmatch(readSource(t, "adapters", "postgres", "views.sql"), -1) {
		text := tableCell(strings.ReplaceAll(m[3], "''", "'"))
		if m[1] == "view" {
			n++
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", m[2], text)
			continue
		}
		view, column, _ := strings.Cut(m[2], ".")
		if !strings.Contains(b.String(), "\n## "+view+"\n") {
			t.Errorf("a comment on %s comes before that of its view", m[2])
		}
		if !strings.HasSuffix(b.String(), " |\n") {
			b.WriteString("\n| Column | |\n|---|---|\n")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Trim(column, `"`), text)
	}
	if n < 8 {
		t.Errorf("found %d views", n)
	}
	return b.String()
}

func tableCell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
