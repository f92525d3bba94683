package cli

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/buildinfo"
	"quartermaster/adapters/focus"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/merkle"
	"quartermaster/domain/packing/online"
	"quartermaster/domain/plan"
	"quartermaster/domain/recommend"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/usage"
	"quartermaster/schemas"
	"quartermaster/simulations/whatif"

	"github.com/spf13/cobra"
)

// answer is what a command answers with -o json.
type answer struct {
	types  []reflect.Type // one of them
	list   bool           // a list of it
	report bool           // with the program that made it
	schema []byte         // written by hand
}

func of[T any]() answer     { return answer{types: []reflect.Type{reflect.TypeFor[T]()}} }
func listOf[T any]() answer { a := of[T](); a.list = true; return a }
func report[T any]() answer { a := of[T](); a.report = true; return a }

// answers are what commands answer, by their noun: the command with hyphens. Of a command
// that writes a document a line, it is a line.
var answers = map[string]answer{
	"apply": of[app.Changes](), "get": of[app.Declared](), "decisions-list": of[app.Decisions](),
	"commitment-renew": of[app.CommitmentDecision](), "commitment-end": of[app.CommitmentDecision](),
	"access-grant": of[app.AccessChange](), "access-revoke": of[app.AccessChange](), "access-end-sessions": of[app.AccessChange](),
	"access-key-issue": of[app.ServiceKeyChange](), "access-key-revoke": of[app.ServiceKeyChange](), "access-list": of[app.AccessList](), "audit-access": of[app.AccessAudit](), "audit-trail": of[app.Trail](), "audit-report": of[reportWritten](),
	"login": of[loginAnswer](), "logout": of[loginAnswer](),
	"people-list": listOf[app.Person](), "people-name": of[namedAnswer](), "people-erase": of[app.RemovedBy](),
	"operator-add": of[operatorAnswer](), "operator-revoke": of[app.Revocation](),
	"cluster-register": of[keyAnswer](), "cluster-list": of[app.Clusters](), "key-rotate": of[keyAnswer](), "key-revoke": of[app.RevokedKey](),
	"import-nodes": of[app.Imported](), "import-pods": of[app.Imported](), "import-usage": of[app.Imported](), "import-demand": of[app.Imported](), "import-energy": of[app.Imported](),
	"import-list": listOf[app.ImportedSource](), "import-show": listOf[app.ImportedSource](),
	"import-prices": of[app.Imported](), "import-focus": of[app.Imported](), "import-bill": of[app.Imported](),
	"focus-validate": of[focus.Verdict](), "focus-rules": listOf[focus.Rule](),
	"rules-check":  report[costs.RulesCheck](),
	"mapping-list": listOf[bill.Mapping](), "mapping-check": listOf[bill.Mapping](),
	"overview": report[inventory.Overview](), "fleet": report[inventory.Inventory](), "fleet-map": report[usage.FleetMap](), "models": report[inventory.ModelInventory](), "fragmentation": report[app.Fragmentation](),
	"advice": report[app.Advice](), "advice-actions": report[recommend.Advice](), "headroom": report[app.Headroom](), "advice-rules": of[rulesAnswer](), "advice-try": of[app.AdviceTrial](),
	"advice-replay": of[app.AdviceReplay](), "advice-waste": report[app.Waste](), "alerts-list": of[app.Alerts](),
	"alerts-show": of[app.Alert](), "alerts-ack": of[alertDecision](), "alerts-silence": of[alertDecision](),
	"runbook":      of[runbookAnswer](),
	"advice-score": of[app.AdviceScore](), "recommend-list": of[app.Proposed](), "recommend-show": of[app.ProposalAnswer](), "recommend-command": of[app.Sheet](),
	"recommend-propose": of[recommendDecision](), "recommend-approve": of[recommendDecision](), "recommend-reject": of[recommendDecision](),
	"recommend-withdraw": of[recommendDecision](), "recommend-actuated": of[recommendDecision](),
	"node-drain": of[app.NodeDecision](), "node-retire": of[app.NodeDecision](), "node-return": of[app.NodeDecision](), "node-register": of[app.RegisteredNodes](),
	"serving": report[serving.Report](), "jobs": report[serving.JobsReport](), "usage": report[usage.Report](), "usage-course": report[usage.Course](),
	"costs": {types: []reflect.Type{reflect.TypeFor[costs.Report](), reflect.TypeFor[costs.MonthsReport]()}, report: true}, "costs-allocations": of[costs.Allocation](), "costs-moved": of[costs.Moves](), "costs-owned": of[app.OwnedAnswer](), "costs-export": of[app.CostsManifest](), "costs-verify": of[app.CostsVerified](), "costs-statement": of[app.CostStatement](), "costs-tco": report[costs.TCO](), "costs-commitments": report[costs.CommitmentBook](), "costs-fx": report[costs.FXMonth](), "costs-accrue": of[app.AccrualAnswer](), "costs-accruals": report[costs.AccrualBook](),
	"costs-unit":   report[costs.UnitReport](),
	"costs-budget": report[costs.BudgetReport](),
	"costs-close":  of[app.BooksClose](), "costs-close-show": of[app.BooksClose](), "costs-close-prepare": of[app.BooksClose](), "costs-close-approve": of[app.BooksClose](),
	"costs-claims":   report[costs.Claims](),
	"costs-evidence": {types: []reflect.Type{reflect.TypeFor[app.EvidenceManifest](), reflect.TypeFor[evidenceCheck]()}},
	"costs-journal":  of[app.CostsJournal](), "costs-postings": of[app.Postings](), "costs-restate": of[app.Restatement](),
	"costs-explain": {types: []reflect.Type{reflect.TypeFor[costs.Waterfall](), reflect.TypeFor[costs.Explanation]()}, report: true},
	"plan":          of[plan.Plan](), "plan-list": listOf[app.RecordedPlan](), "plan-show": of[plan.Plan](), "plan-diff": of[plan.Diff](),
	"plan-forecast": of[app.Forecasts](), "plan-backtest": of[app.Backtested](), "plan-evaluate": of[instance.Appraisal](), "plan-check": of[checkedAnswer](),
	"plan-pack":  {types: []reflect.Type{reflect.TypeFor[app.Packed](), reflect.TypeFor[app.Arrivals](), reflect.TypeFor[[]*app.Arrivals](), reflect.TypeFor[app.PackBin]()}},
	"plan-solve": {schema: schemas.Answer}, "plan-instance": {schema: schemas.Instance},
	"simulate": of[whatif.Result](), "simulate-freeze": of[whatif.Result](), "simulate-show": of[whatif.Result](), "simulate-list": listOf[app.FrozenScenario](),
	"simulate-diff": of[app.SimulationDiff](), "simulate-changes": listOf[kindDoc](),
	"simulate-check": of[whatif.Scenario](), "simulate-verify": of[app.Verified](), "plan-verify": of[app.Verified](),
	"log-tail": of[app.Record](), "log-event": of[app.LoggedEvent](), "log-stats": of[registry.LogStats](), "log-replay": of[app.Replay](), "log-prove": of[merkle.Proof](),
	"quarantine-list": of[app.Quarantine](), "quarantine-show": of[app.QuarantinedRecord](), "quarantine-repair": of[app.Repair](), "quarantine-discard": of[app.Discard](),
	"streams-list": of[app.StreamGaps](), "streams-resolve": of[gapAnswer](), "dead-letters-list": listOf[app.DeadLetter](),
	"snapshot-make": of[app.Snapshot](), "snapshot-list": listOf[app.Snapshot](), "snapshot-verify": listOf[*app.SnapshotCheck](),
	"retention-show": of[app.Retention](), "retention-run": of[app.Removals](),
	"archive-run": of[app.Archived](), "archive-status": of[app.ArchiveStatus](), "archive-verify": of[app.ArchiveCheck](), "archive-verifier-key": of[app.VerifierKey](),
	"archive-trim": of[app.TrimPlan](), "archive-restore": of[app.Restored](),
	"parts-make": of[app.PartsMade](), "parts-list": listOf[app.PartVersion](), "parts-verify": of[app.PartsCheck](),
	"config-show": of[configShowAnswer](), "config-check": of[ConfigCheckAnswer](),
	"generation-migrate": of[app.Migrated](), "generation-status": of[app.GenerationsStatus](), "generation-rebuild": of[app.Rebuilt](), "generation-switch": of[app.Switched](),
	"demo": of[demoAnswer](), "version": of[buildinfo.Version](), "schema": listOf[published](),
}

// plain are commands without an answer of their own, and why.
var plain = map[string]string{
	"log export":      "its lines are CloudEvents, which docs/reference/events.md describes",
	"config example":  "its one key is example",
	"mapping show":    "it prints a file in YAML",
	"generation drop": "its one key is dropped",
}

// generator makes schemas of types, with what their comments say.
type generator struct {
	docs map[string]string // of types "path.Type" and fields "path.Type.Field"
	defs map[string]any
}

// comments reads the comments of the types of a tree of packages.
func comments(t *testing.T, root, module string) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		pkg := path.Join(module, filepath.ToSlash(dir))
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				s := spec.(*ast.TypeSpec)
				at := pkg + "." + s.Name.Name
				docs[at] = spoken(s.Doc, gen.Doc)
				fields, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range fields.Fields.List {
					for _, n := range f.Names {
						docs[at+"."+n.Name] = spoken(f.Doc, f.Comment)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// spoken is the first of some comments that says something, in one line.
func spoken(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

var (
	textual = reflect.TypeFor[encoding.TextMarshaler]()
	written = reflect.TypeFor[json.Marshaler]()
)

// byHand are the types that write their own JSON.
var byHand = map[reflect.Type]map[string]any{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[big.Int]():         {"type": "integer"},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[online.Series]():   {"type": "object", "description": "Percentages by load in percent.", "additionalProperties": map[string]any{"type": "number"}},
	reflect.TypeFor[whatif.Number](): {
		"type": "object", "description": "A distribution and its parameters, such as {\"fixed\": [\"5\"]}.", "minProperties": 1, "maxProperties": 1,
		"additionalProperties": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
	},
}

// of returns the schema of a type; named ones are in the definitions.
func (g *generator) of(t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		return g.of(t.Elem())
	}
	if s, ok := byHand[t]; ok {
		return maps.Clone(s)
	}
	if t.PkgPath() == "" || t.Name() == "" {
		return g.shape(t)
	}
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if _, ok := g.defs[name]; !ok {
		g.defs[name] = nil // a type may contain itself
		s := g.shape(t)
		if doc := g.docs[t.PkgPath()+"."+t.Name()]; doc != "" {
			s["description"] = doc
		}
		g.defs[name] = s
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *generator) shape(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[domain.NullDecimal]() {
		return map[string]any{"type": []any{"string", "null"}}
	}
	if t.Implements(textual) || reflect.PointerTo(t).Implements(textual) {
		return map[string]any{"type": "string"}
	}
	if t.Implements(written) || reflect.PointerTo(t).Implements(written) {
		panic(fmt.Sprintf("%s writes its own JSON: say how in byHand", t))
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		items := g.of(t.Elem())
		if t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Kind() != reflect.Struct { // a number that may not be known
			items = map[string]any{"anyOf": []any{items, map[string]any{"type": "null"}}}
		}
		return map[string]any{"type": "array", "items": items}
	case reflect.Array:
		return map[string]any{"type": "array", "items": g.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		g.fields(t, properties, &required)
		slices.Sort(required)
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	}
	panic(fmt.Sprintf("%s has no JSON", t))
}

// fields adds those of a struct, and of those that it embeds.
func (g *generator) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			g.fields(in, properties, required)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if properties[name] != nil {
			panic(fmt.Sprintf("%s has two fields %q: JSON has only one of them", t, name))
		}
		s := g.of(f.Type)
		optional := strings.Contains(options, "omit")
		k := f.Type.Kind()
		nullable := k == reflect.Pointer || (k == reflect.Slice || k == reflect.Map) && !f.Type.Implements(textual)
		if nullable && !optional {
			s = map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
		}
		if doc := g.docs[t.PkgPath()+"."+t.Name()+"."+f.Name]; doc != "" {
			s["description"] = doc
		}
		properties[name] = s
		if !optional {
			*required = append(*required, name)
		}
	}
}

// schema writes the schema of an answer.
func (g *generator) schema(t *testing.T, command string, a answer) []byte {
	t.Helper()
	if a.schema != nil {
		var doc map[string]any
		if err := json.Unmarshal(a.schema, &doc); err != nil {
			t.Fatal(err)
		}
		doc["title"] = command
		return indented(t, doc)
	}
	g.defs = map[string]any{}
	var forms []any
	for _, of := range a.types {
		s := g.of(of)
		if a.report {
			ref := s["$ref"].(string)
			def := g.defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
			program := g.of(reflect.TypeOf(app.Program()))
			program["description"] = "The program that made the report, with the versions of its methods."
			def["properties"].(map[string]any)["program"] = program
			def["required"] = append([]string{"program"}, def["required"].([]string)...)
		}
		if a.list {
			s = map[string]any{"type": "array", "items": s}
		}
		forms = append(forms, s)
	}
	doc := map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": command, "$defs": g.defs}
	if len(forms) == 1 {
		maps.Copy(doc, forms[0].(map[string]any))
	} else {
		doc["oneOf"] = forms
	}
	return indented(t, doc)
}

func indented(t *testing.T, doc any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReference: every command that answers has a published schema, made from the type of
// its answer and the comments there. With -update they are written.
func TestReference(t *testing.T) {
	publishRights(t)
	root := filepath.Join("..", "..", "..", "..")
	g := &generator{docs: comments(t, root, "quartermaster")}
	published := map[string]bool{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		command := strings.TrimPrefix(c.CommandPath(), "quartermaster ")
		noun := strings.ReplaceAll(command, " ", "-")
		a, ok := answers[noun]
		switch {
		case !c.HasParent() || c.Hidden || c.Name() == "help" || c.HasParent() && c.Parent().Name() == "completion" || c.Name() == "completion":
			return
		case !ok && (c.HasSubCommands() || plain[command] != ""):
			return
		case !ok:
			t.Errorf("%s has no schema: say in answers what it answers", command)
			return
		}
		published[noun] = true
		want := g.schema(t, c.CommandPath(), a)
		file := filepath.Join(root, "schemas", "answers", noun+".schema.json")
		if *updateGoldens {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		have, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not of the answer: make generate (%v)", file, err)
		}
	}
	visit(commandLine(&app.App{}, os.Stdout, os.Stderr).Root())
	for noun := range answers {
		if !published[noun] {
			t.Errorf("no command answers %q", noun)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "schemas", "answers", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if noun := strings.TrimSuffix(filepath.Base(f), ".schema.json"); !published[noun] {
			t.Errorf("%s is of no command", f)
		}
	}
}
