package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// Operation is a command that only reads, as the API serves it. Its parameters are the flags and arguments of the
// command, and its answer is what the command writes.
type Operation struct {
	Words   []string // of the command, for example costs, unit
	Summary string
	Text    string
	Params  []Param // flags by name, then arguments in order
	// Always is a flag that is set whatever the question says, so that nothing is recorded; "": none.
	Always string
	// Noun names the schema of the answer in JSON.
	Noun string
	// Lines means that the answer in JSON is a document on each line, not one document.
	Lines bool
	// Rows is the list of the answer in JSON whose elements are asked for in pages; of lines it is the lines. "": none.
	Rows string
	// Page is how many rows are answered unless more are asked for; 0: all.
	Page int
	// Long means that the answer takes long. The API works on it, and answers when it is done.
	Long bool
	// Outside means that the answer depends on more than the log and the program, such as files beside the log.
	Outside bool
	// Decides means that the command decides. What it would decide is asked, signed and sent back.
	Decides bool
	// Documents means that a document comes with it, instead of the files that the command reads.
	Documents bool
	// Files are the parameters that name files. The files come with the question, as documents of these names.
	Files []string
	// Access means that the answer depends on the topic that has who asked. Others do not change when somebody asks.
	Access bool
}

// Param is a parameter of an operation.
type Param struct {
	Name     string // in the query: the flag's with _ for -, or the argument's in small letters
	Type     string // string, boolean, integer, or array of strings
	Text     string
	Default  string // as a flag shows it; "": none
	Example  string // from the examples of the command; "": none
	Required bool

	flag string // "": an argument
}

// served says how the API serves a command.
type served struct {
	without []string // flags that are about files or keys of the person who asks
	always  string   // flag that is set, so that nothing is recorded
	lines   bool
	rows    string // see [Operation]
	page    int
	long    bool
	outside bool
	access  bool // it reads the topic that has who asked
	decides bool
	files   string // flag that names files, which come as documents; "": none
	// named are the parameters that each name a file, which comes as a document of that name. also returns the names of
	// further files that the document of the first of them names.
	named []string
	also  func(name string, text []byte) []string
	// isFile reports whether a value of them names a file; nil: each does.
	isFile func(string) bool
}

// operations are the commands that the API serves, by their words.
var operations = map[string]served{
	"access list":       {access: true},
	"advice":            {rows: "findings"},
	"advice actions":    {},
	"advice replay":     {long: true, outside: true},
	"advice rules":      {},
	"advice score":      {rows: "scores"},
	"advice try":        {without: []string{"file"}, long: true},
	"advice waste":      {},
	"alerts list":       {rows: "incidents"},
	"alerts show":       {},
	"archive status":    {outside: true},
	"audit access":      {access: true, rows: "asked"},
	"audit trail":       {access: true, rows: "entries"},
	"cluster list":      {},
	"costs":             {rows: "groups"},
	"costs accruals":    {},
	"costs allocations": {lines: true, rows: "lines", page: 100},
	"costs budget":      {},
	"costs claims":      {without: []string{"out"}},
	"costs close":       {lines: true},
	"costs close show":  {},
	"costs commitments": {},
	"costs explain":     {},
	"costs fx":          {},
	"costs owned":       {without: []string{"out"}},
	"costs postings":    {},
	"costs restate":     {},
	"costs statement":   {without: []string{"out", "format"}, lines: true},
	"costs tco":         {},
	"costs unit":        {},
	"dead-letters list": {outside: true},
	"decisions list":    {access: true, rows: "decisions"},
	"fleet":             {rows: "clusters"},
	"fleet map":         {},
	"focus rules":       {},
	"fragmentation":     {rows: "rightsizing"},
	"generation status": {outside: true},
	"get":               {rows: "entries"},
	"headroom":          {rows: "rows"},
	"import list":       {outside: true},
	"import show":       {without: []string{"out"}, outside: true},
	"jobs":              {},
	"log event":         {outside: true},
	"log prove":         {outside: true},
	"log replay":        {without: []string{"progress"}, always: "verify", long: true, outside: true},
	"log stats":         {access: true},
	"log tail":          {without: []string{"follow"}, lines: true, outside: true},
	"mapping list":      {},
	"models":            {rows: "deployments"},
	"overview":          {},
	"parts list":        {outside: true},
	"plan":              {always: "dry-run", long: true},
	"plan backtest":     {without: []string{"chart", "table"}, named: []string{"demand", "prices"}, long: true},
	"plan forecast":     {without: []string{"chart"}, named: []string{"demand"}, long: true},
	"plan evaluate":     {named: []string{"contract", "instance"}, long: true},
	"plan instance":     {long: true},
	"plan list":         {},
	"parts verify":      {long: true, outside: true},
	"plan show":         {},
	"plan solve":        {without: []string{"out"}, named: []string{"instance"}, long: true},
	"plan verify":       {long: true},
	"quarantine list":   {access: true, rows: "entries"},
	"quarantine show":   {access: true},
	"recommend command": {without: []string{"out"}, outside: true},
	"recommend list":    {rows: "proposals"},
	"recommend show":    {},
	"retention show":    {},
	"runbook":           {},
	"rules check":       {without: []string{"file"}},
	"serving":           {},
	"simulate":          {without: []string{"freeze", "out", "workers", "workspace"}, named: []string{"file"}, also: baseOf, long: true},
	"simulate changes":  {},
	"simulate check":    {named: []string{"file"}, outside: true},
	"simulate diff":     {named: []string{"a", "b"}, isFile: isResult, outside: true},
	"simulate list":     {},
	"simulate show":     {},
	"simulate verify":   {long: true},
	"snapshot list":     {outside: true},
	"streams list":      {access: true, rows: "streams"},
	"usage":             {rows: "groups"},
	"usage course":      {},
}

// decisions are the commands that propose a decision over the API, by their words. The key is with whoever asks, so that
// what they propose is signed there.
var decisions = func() map[string]served {
	all := map[string]served{
		"access end-sessions": {},
		"access grant":        {},
		"access key issue":    {without: []string{"key-file"}},
		"access key revoke":   {},
		"access revoke":       {},
		"alerts ack":          {},
		"alerts silence":      {},
		"apply":               {files: "file"},
		"cluster register":    {without: []string{"key-file"}},
		"commitment end":      {},
		"commitment renew":    {},
		"costs close approve": {without: []string{"checkpoint-key"}},
		"costs close prepare": {},
		"key revoke":          {},
		"key rotate":          {without: []string{"key-file"}},
		"node drain":          {},
		"node retire":         {},
		"node return":         {},
		"operator add":        {without: []string{"public-key-of", "new-key"}},
		"operator revoke":     {without: []string{"public-key-of"}},
		"quarantine discard":  {},
		"recommend actuated":  {},
		"recommend approve":   {},
		"recommend propose":   {files: "file"},
		"recommend reject":    {},
		"recommend withdraw":  {},
		"streams resolve":     {},
	}
	for words, how := range all {
		how.decides = true
		how.without = append(how.without, "key", how.files)
		all[words] = how
	}
	return all
}()

// notServed are the other commands, and why the API does not serve them. A word stands for all below it.
var notServed = map[string]string{
	"audit report":   "writes a file that your key signs",
	"archive":        "is work of the operator of the log",
	"completion":     "is about the shell",
	"config":         "is about the configuration of this machine",
	"costs accrue":   "writes a file",
	"costs evidence": "writes a folder",
	"costs export":   "writes a file",
	"costs journal":  "reads a layout and writes a file",
	"costs moved":    "reads a file",
	"costs verify":   "reads a file",
	"demo":           "makes a data directory",
	"focus":          "reads a file",
	"generation":     "is work of the operator of the database",
	"help":           "is about the program",
	"import":         "reads files",
	"log":            "writes a file",
	"login":          "is about this machine",
	"logout":         "is about this machine",
	"mapping":        "reads a file",
	"node":           "names many nodes",
	"parts":          "is long work over the whole log",
	"people":         "is about keys of this machine",
	"plan":           "reads files",
	"quarantine":     "reads a file, and decides twice",
	"retention":      "removes",
	"schema":         "is about the program",
	"simulate":       "records, or reads files",
	"serve":          "holds the log",
	"snapshot":       "is long work over the whole log",
	"version":        "is about the program",
}

// Operations returns the operations, by path.
func Operations() []Operation { return operationsOf(operations) }

func operationsOf(served map[string]served) []Operation {
	root := (&Program{App: &app.App{}, out: io.Discard, err: io.Discard}).tree()
	var all []Operation
	for _, path := range slices.Sorted(maps.Keys(served)) {
		words := strings.Fields(path)
		cmd, _, err := root.Find(words)
		must(err)
		all = append(all, operationOf(cmd, words, served[path]))
	}
	return all
}

// Decisions returns the commands that propose a decision over the API, by path.
func Decisions() []Operation { return operationsOf(decisions) }

func operationOf(cmd *cobra.Command, words []string, how served) Operation {
	op := Operation{
		Words: words, Summary: cmd.Short, Text: cmd.Long,
		Noun: strings.Join(words, "-"), Always: how.always, Lines: how.lines, Rows: how.rows, Page: how.page, Long: how.long, Outside: how.outside, Access: how.access,
		Documents: how.files != "", Files: how.named, Decides: how.decides,
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == how.always || slices.Contains(how.without, f.Name) {
			return
		}
		p := Param{Name: strings.ReplaceAll(f.Name, "-", "_"), Type: "string", Text: f.Usage, flag: f.Name}
		switch t := f.Value.Type(); {
		case t == "bool":
			p.Type = "boolean"
		case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"):
			p.Type, p.Default = "integer", f.DefValue
		case strings.HasPrefix(t, "string") && t != "string":
			p.Type, p.Default = "array", strings.Trim(f.DefValue, "[]")
		default:
			p.Default = f.DefValue
		}
		p.Required = f.Annotations[cobra.BashCompOneRequiredFlag] != nil
		op.Params = append(op.Params, p)
	})
	for _, arg := range argumentsOf(cmd) {
		name, optional := strings.CutPrefix(arg, "[")
		name, several := strings.CutSuffix(strings.TrimSuffix(name, "]"), "...")
		name, _, _ = strings.Cut(name, ".")
		p := Param{Name: strings.ToLower(strings.ReplaceAll(name, "-", "_")), Type: "string", Text: arg + " of the command", Required: !optional}
		if several {
			p.Type = "array"
		}
		op.Params = append(op.Params, p)
	}
	op.exemplify(cmd)
	return op
}

// exemplify gives parameters the first values that they have in the examples of the command.
func (op *Operation) exemplify(cmd *cobra.Command) {
	for line := range strings.Lines(cmd.Example) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, strings.Join(append([]string{"quartermaster"}, op.Words...), " ")+" ")
		if !ok || strings.ContainsAny(line, `'">|`) {
			continue
		}
		words := strings.Fields(rest)
		if sub, _, err := cmd.Root().Find(append(slices.Clone(op.Words), words...)); err != nil || sub != cmd {
			continue
		}
		var args []string
		set := func(f *pflag.Flag, value string) {
			for i := range op.Params {
				if p := &op.Params[i]; f != nil && p.flag == f.Name && p.Example == "" {
					p.Example = value
				}
			}
		}
		for i := 0; i < len(words); i++ {
			name, long := strings.CutPrefix(words[i], "--")
			name, value, given := strings.Cut(name, "=")
			var f *pflag.Flag
			switch {
			case long:
				f = cmd.Flag(name)
			case strings.HasPrefix(words[i], "-") && len(words[i]) == 2:
				f = cmd.Flags().ShorthandLookup(words[i][1:])
			default:
				args = append(args, words[i])
				continue
			}
			if f != nil && f.NoOptDefVal != "" && !given {
				value, given = f.NoOptDefVal, true
			}
			if i+1 < len(words) && !given {
				i++
				value = words[i]
			}
			set(f, value)
		}
		for i := range op.Params {
			if p := &op.Params[i]; p.flag == "" && len(args) > 0 {
				if p.Example == "" {
					p.Example = args[0]
				}
				args = args[1:]
			}
		}
	}
}

// Posted reports whether the question is posted: it begins work, or documents come with it.
func (op *Operation) Posted() bool { return op.Long || len(op.Files) > 0 }

// Paged reports whether the answer in JSON may be asked for in pages.
func (op *Operation) Paged() bool { return op.Rows != "" }

// Limited reports whether the command has a limit of its own.
func (op *Operation) Limited() bool {
	return slices.ContainsFunc(op.Params, func(p Param) bool { return p.Name == LimitParam })
}

// argumentsOf returns the arguments in the usage line of a command: words in capitals that no flag precedes. That of a
// file may end in its kind, as INSTANCE.json does.
func argumentsOf(cmd *cobra.Command) (args []string) {
	words := strings.Fields(cmd.Use)
	for i, w := range words[1:] {
		bare, _, _ := strings.Cut(strings.Trim(w, "[]."), ".")
		if bare == strings.ToUpper(bare) && bare != strings.ToLower(bare) && !strings.HasPrefix(words[i], "-") {
			args = append(args, w)
		}
	}
	return args
}

// Form is how an answer is written.
type Form struct {
	Output string // table, wide, json or csv
	Width  int    // of tables, in characters; 0: usualWidth
}

// OutputForms are the values of [Form.Output].
func OutputForms() []string { return []string{asJSON, asTable, asWide, asCSV} }

// Outcome is what a command says beside its answer.
type Outcome struct {
	Clocked bool     // the answer depends on when it was asked, too
	Notes   []string // for a person
	Code    int      // exit code of the command: 0, or why the answer is not a plain yes
}

// Answer writes the answer to a question: exactly what the command writes. An error means that there is none, or
// only a part of it.
func (op *Operation) Answer(ctx context.Context, on *app.App, q url.Values, form Form, out io.Writer) (*Outcome, error) {
	words, err := op.words(q)
	if err != nil {
		return nil, err
	}
	return op.run(ctx, on, words, nil, form, out)
}

// run runs a command line.
func (op *Operation) run(ctx context.Context, on *app.App, words []string, elsewhere *proposing, form Form, out io.Writer) (*Outcome, error) {
	did := &Outcome{}
	notes := &noteWriter{notes: &did.Notes}
	a := &Program{App: on, out: out, err: notes, output: form.Output, json: form.Output == asJSON, width: form.Width, proposing: elsewhere}
	if form.Output == asCSV {
		a.out = io.Discard
	}
	on.Tell = func(note string) { a.note("%s", note) }
	if on.Files == nil {
		on.Files = SentFiles(nil)
	}
	root := a.tree()
	root.SetArgs(words)
	root.SetIn(bytes.NewReader(nil))
	root.SetOut(out)
	root.SetErr(notes)
	err := root.ExecuteContext(ctx)
	if form.Output == asCSV && (err == nil || a.csv != nil) {
		err = errors.Join(err, a.writeCSV(out))
	}
	var no *failed
	switch {
	case errors.As(err, &no):
		did.Code = cmp.Or(no.code, commandline.ExitNo)
	case err != nil:
		return did, err
	case a.Lacks:
		did.Code = commandline.ExitIncomplete
	}
	did.Clocked = on.Clocked
	return did, nil
}

// SentFiles returns how a question opens the files that it names: of the documents that came with it, and no others.
func SentFiles(documents []Document) func(name string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) {
		for _, d := range documents {
			if d.Name == name {
				return io.NopCloser(strings.NewReader(d.Text)), nil
			}
		}
		return nil, &app.InvalidError{Field: "documents", Err: errors.New("no document of this name came with the question")}
	}
}

// Check refuses a question with a wrong parameter.
func (op *Operation) Check(q url.Values) error {
	_, err := op.words(q)
	return err
}

// words returns the command line of a question.
func (op *Operation) words(q url.Values) ([]string, error) {
	words, args := slices.Clone(op.Words), []string{"--"}
	var known []string
	for i := range op.Params {
		p := &op.Params[i]
		known = append(known, p.Name)
		values := q[p.Name]
		if p.Type != "array" && len(values) > 1 {
			return nil, &app.InvalidError{Err: fmt.Errorf("%s is given %d times", p.Name, len(values))}
		}
		if len(values) == 0 && p.Required {
			return nil, &app.InvalidError{Err: fmt.Errorf("%s is missing", p.Name)}
		}
		if p.flag == "" {
			args = append(args, values...)
			continue
		}
		for _, v := range values {
			if p.Type == "boolean" {
				if _, err := strconv.ParseBool(v); err != nil {
					return nil, &app.InvalidError{Err: fmt.Errorf("%s=%s: want true or false", p.Name, domain.Clip(v, widest))}
				}
			}
			if p.Type == "integer" {
				if _, err := strconv.ParseInt(v, 10, 64); err != nil {
					return nil, &app.InvalidError{Err: fmt.Errorf("%s=%s: want a whole number", p.Name, domain.Clip(v, widest))}
				}
			}
			words = append(words, "--"+p.flag+"="+v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			return nil, &app.InvalidError{Err: fmt.Errorf("%q is not a parameter of %s: %s",
				domain.Clip(name, widest), strings.Join(op.Words, " "), domain.Suggest(name, known))}
		}
	}
	if op.Always != "" {
		words = append(words, "--"+op.Always)
	}
	return append(words, args...), nil
}

// noteWriter keeps each line as a note.
type noteWriter struct {
	notes *[]string
	line  []byte
}

func (w *noteWriter) Write(p []byte) (int, error) {
	w.line = append(w.line, p...)
	for {
		line, rest, whole := bytes.Cut(w.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		*w.notes = append(*w.notes, string(line))
		w.line = rest
	}
}
