package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/schemas"
)

// newAPI returns an API without operations.
func newAPI(mux *http.ServeMux) huma.API {
	return humago.New(mux, huma.Config{OpenAPI: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Quartermaster", Version: "1",
			Description: "Inventory, usage, costs and procurement of a GPU fleet. Each operation answers what the command of the " +
				"same words writes, byte for byte.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Security: []map[string][]string{{"bearer": {}}, {"session": {}}},
		Components: &huma.Components{SecuritySchemes: map[string]*huma.SecurityScheme{"session": {
			Type: "apiKey", In: "cookie", Name: "__Host-quartermaster-session",
			Description: "The session of a browser that logged in. Requests of pages of other sites are refused.",
		}, "bearer": {
			Type: "http", Scheme: "bearer", Description: "An access token of an identity provider, or the key of a service account. The socket of the owner needs neither.",
		}}, Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
	}})
}

// Document returns the document of the API, in OpenAPI 3.1.
func Document() ([]byte, error) {
	doc := newAPI(http.NewServeMux()).OpenAPI()
	known := doc.Components.Schemas.Map()
	problem := doc.Components.Schemas.Schema(reflect.TypeFor[problemError](), true, "Problem")
	work := doc.Components.Schemas.Schema(reflect.TypeFor[cli.Work](), true, "Work")
	sent := doc.Components.Schemas.Schema(reflect.TypeFor[cli.Sent](), true, "Sent")
	describeWork(doc, work, problem)
	describeChanges(doc, problem)
	describeBrowser(doc, problem)
	describeLogin(doc, doc.Components.Schemas.Schema(reflect.TypeFor[[]cli.LoginProvider](), true, "LoginProviders"), problem)
	changes, err := addSchema(known, "apply")
	if err != nil {
		return nil, err
	}
	describeDecisions(doc, changes, problem)
	for _, op := range cli.Operations() {
		ref, err := addSchema(known, op.Noun)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", op.Noun, err)
		}
		o := describe(&op, ref, problem)
		if op.Long {
			begins(o, work)
		}
		if len(op.Files) > 0 {
			o.RequestBody = &huma.RequestBody{Description: "The files that the question names.", Content: map[string]*huma.MediaType{"application/json": {Schema: sent}}}
		}
		doc.AddOperation(o)
	}
	text, err := json.MarshalIndent(doc, "", " ")
	return append(text, '\n'), err
}

// describeLogin adds the operations on logins.
func describeLogin(doc *huma.OpenAPI, providers, problem *huma.Schema) {
	doc.AddOperation(&huma.Operation{
		Method: http.MethodGet, Path: cli.LoginRoot, OperationID: "login-providers", Summary: "Identity providers to log in with", Tags: []string{"login"},
		Description: "Anybody may ask.",
		Security:    []map[string][]string{},
		Responses: map[string]*huma.Response{
			"200": {Description: "The identity providers.", Content: map[string]*huma.MediaType{"application/json": {Schema: providers}}},
		},
	})
	doc.AddOperation(&huma.Operation{
		Method: http.MethodDelete, Path: cli.LoginRoot, OperationID: "logout", Summary: "Log out", Tags: []string{"login"},
		Description: "Ends whatever the identity provider of who asks gave them before now, in every instance.",
		Responses: map[string]*huma.Response{
			"204": {Description: "It is ended."}, "default": errorResponse(problem),
		},
	})
}

// describeBrowser adds the operations of browsers.
func describeBrowser(doc *huma.OpenAPI, problem *huma.Schema) {
	text := &huma.Schema{Type: huma.TypeString}
	param := func(name, about string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: about, Schema: text}
	}
	for _, o := range []*huma.Operation{
		{
			Path: "/begin", OperationID: "login-begin", Summary: "Log in with a browser",
			Description: "Sends the browser to an identity provider.",
			Parameters:  []*huma.Param{param("provider", "Name of the identity provider, if several are known."), param("return", "Path of this site to return to.")},
		},
		{
			Path: "/callback", OperationID: "login-callback", Summary: "Finish a login",
			Description: "The identity provider sends the browser here. The session is a cookie.",
			Parameters:  []*huma.Param{param("state", "As at the beginning."), param("code", "For the ID token."), param("iss", "The issuer."), param("error", "Why there is no code.")},
		},
		{
			Path: "/open", OperationID: "login-open", Summary: "Open a link",
			Description: "Begins the session of the owner of an embedded home, once for each link.",
			Parameters:  []*huma.Param{param("code", "Of the link.")},
		},
	} {
		o.Method, o.Tags, o.Path, o.Security = http.MethodGet, []string{"login"}, cli.LoginRoot+o.Path, []map[string][]string{}
		o.Responses = map[string]*huma.Response{
			"303":     {Description: "Go there.", Headers: map[string]*huma.Param{"Location": {Schema: text}, "Set-Cookie": {Schema: text}}},
			"default": errorResponse(problem),
		}
		doc.AddOperation(o)
	}
	jsonOf := func(t reflect.Type, name string) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: doc.Components.Schemas.Schema(t, true, name)}}
	}
	doc.AddOperation(&huma.Operation{
		Method: http.MethodGet, Path: cli.LoginRoot + "/session", OperationID: "login-session", Summary: "Who asks", Tags: []string{"login"},
		Responses: map[string]*huma.Response{
			"200": {Description: "Who asks, and until when.", Content: jsonOf(reflect.TypeFor[describedSession](), "Session")}, "default": errorResponse(problem),
		},
	})
	doc.AddOperation(&huma.Operation{
		Method: http.MethodPost, Path: cli.LoginRoot + "/link", OperationID: "login-link", Summary: "Make a link for a browser", Tags: []string{"login"},
		Description: "Only the owner of an embedded home gets one, by its socket.",
		Responses: map[string]*huma.Response{
			"200": {Description: "The link.", Content: jsonOf(reflect.TypeFor[cli.LoginLink](), "LoginLink")}, "default": errorResponse(problem),
		},
	})
}

// describeDecisions adds the operations that change something.
func describeDecisions(doc *huma.OpenAPI, changes, problem *huma.Schema) {
	of := func(t reflect.Type, name string) *huma.Schema { return doc.Components.Schemas.Schema(t, true, name) }
	jsonOf := func(s *huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: s}}
	}
	text := &huma.Schema{Type: huma.TypeString}
	question, proposed := of(reflect.TypeFor[cli.Question](), "Question"), of(reflect.TypeFor[cli.Proposed](), "Proposed")
	known := doc.Components.Schemas.Map()
	var commands []any
	for _, op := range cli.Decisions() {
		commands = append(commands, strings.Join(op.Words, " "))
	}
	known["Question"].Properties["command"].Enum = commands
	known["Question"].Properties["parameters"] = &huma.Schema{
		Type: huma.TypeObject, Description: "Flags of the command, with _ for -, and its arguments by name. A flag that takes a list may have a list of texts.",
		AdditionalProperties: &huma.Schema{AnyOf: []*huma.Schema{
			text, {Type: huma.TypeBoolean}, {Type: huma.TypeNumber}, {Type: huma.TypeArray, Items: text},
		}},
	}
	known["ToSign"].Properties["event"] = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "The event, as log tail shows its data."}
	doc.AddOperation(&huma.Operation{
		Method: http.MethodPost, Path: cli.DecisionRoot, OperationID: "decision-propose", Summary: "Propose a decision", Tags: []string{"decisions"},
		Description: "Answers what a command would decide, and the bytes to sign. Nothing is appended.",
		RequestBody: &huma.RequestBody{Required: true, Content: jsonOf(question)},
		Responses: map[string]*huma.Response{
			"200": {Description: "What would be decided, or why it would take no effect.", Content: jsonOf(proposed)}, "default": errorResponse(problem),
		},
	})
	doc.AddOperation(&huma.Operation{
		Method: http.MethodPut, Path: cli.DecisionRoot + "/{id}", OperationID: "decision-decide", Summary: "Decide what was proposed", Tags: []string{"decisions"},
		Description: "Appends a decision, if its signatures verify. Sending it again appends nothing and has the same answer.",
		Parameters:  []*huma.Param{{Name: "id", In: "path", Required: true, Description: "Id of the decision.", Schema: text}},
		RequestBody: &huma.RequestBody{Required: true, Content: jsonOf(of(reflect.TypeFor[cli.Signed](), "Signed"))},
		Responses: map[string]*huma.Response{
			"200": {Description: "It is decided.", Content: jsonOf(of(reflect.TypeFor[app.DecidedProposal](), "DecidedProposal"))}, "default": errorResponse(problem),
		},
	})
	documents := map[string]*huma.MediaType{"application/yaml": {Schema: text}, "application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}}
	doc.AddOperation(&huma.Operation{
		Method: http.MethodPut, Path: cli.DeploymentsRoot, OperationID: "deployments-declare", Summary: "Declare deployments", Tags: []string{"decisions"},
		Description: "Takes the documents that apply takes, with deployments and removed_deployments alone, and answers the difference. Nothing is signed.",
		Parameters: []*huma.Param{{
			Name: "dry_run", In: "query", Description: "Answer the difference, and append nothing.", Schema: &huma.Schema{Type: huma.TypeBoolean},
		}},
		RequestBody: &huma.RequestBody{Required: true, Content: documents},
		Responses: map[string]*huma.Response{
			"200": {Description: "The difference.", Content: jsonOf(changes)}, "default": errorResponse(problem),
		},
	})
}

// errorResponse describes errors.
func errorResponse(problem *huma.Schema) *huma.Response {
	return &huma.Response{
		Description: "An error. Its type is " + cli.ProblemType + "KIND, and KIND is invalid, not_found, denied, conflict, incomplete or unavailable.",
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problem}},
	}
}

// begins changes the description of an operation to that of one whose answer takes long.
func begins(o *huma.Operation, work *huma.Schema) {
	answer := o.Responses["200"]
	o.Description += "\n\nThe answer takes long. " + cli.WorkRoot + "/{id} has the state of the work, and its answer."
	o.Responses = map[string]*huma.Response{
		"202": {
			Description: "The work has begun, or waits for its turn.",
			Headers: map[string]*huma.Param{
				"Location": {Description: "Of the state of the work.", Schema: &huma.Schema{Type: huma.TypeString}},
			},
			Content: map[string]*huma.MediaType{"application/json": {Schema: work}},
		},
		"default": o.Responses["default"],
	}
	o.Extensions = map[string]any{"x-answer": answer.Content["application/json"].Schema}
}

// describeChanges describes the stream of changes.
func describeChanges(doc *huma.OpenAPI, problem *huma.Schema) {
	text := &huma.Schema{Type: huma.TypeString}
	standing := doc.Components.Schemas.Schema(reflect.TypeFor[describedStanding](), true, "Standing")
	doc.AddOperation(&huma.Operation{
		Method: http.MethodGet, Path: cli.ChangesRoot, OperationID: "changes", Summary: "Follow changes of the position", Tags: []string{"changes"},
		Description: "Sends an event when the position has changed, at most every 10 seconds, and a comment every 15 seconds otherwise. " +
			"The first event is the present. Who comes back with the id of the last event gets the next when something has changed. " +
			"What is asked changes no id. The stream ends when a right of who asks does. At most 16 streams of one principal are open at once.",
		Parameters: []*huma.Param{{Name: "Last-Event-ID", In: "header", Description: "Id of the last event that is at hand.", Schema: text}},
		Responses: map[string]*huma.Response{
			"200": {Description: "Events.", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{
				Type: huma.TypeObject, Description: "One event.", Required: []string{"id", "event", "data"},
				Properties: map[string]*huma.Schema{
					"id": text, "event": {Type: huma.TypeString, Enum: []any{"change"}},
					"data": {Type: huma.TypeString, Description: "How far the rows are, as JSON: x-data has its schema."},
				},
				Extensions: map[string]any{"x-data": standing},
			}}}},
			"default": errorResponse(problem),
		},
	})
}

// describedStanding is [app.Standing] as it is described.
type describedStanding struct {
	Program    app.ProgramInfo `json:"program" doc:"The program, with the versions of its methods."`
	Position   string          `json:"position"`
	Incomplete int             `json:"incomplete" doc:"Events in open quarantine that may concern reports."`
	Missing    uint64          `json:"missing" doc:"Events that are known to exist and have not arrived."`
}

// describeWork describes the operations on long work.
func describeWork(doc *huma.OpenAPI, work, problem *huma.Schema) {
	add := func(method, path, id, summary, status, media string, schema *huma.Schema) *huma.Operation {
		o := &huma.Operation{
			Method: method, Path: path, OperationID: id, Tags: []string{"work"}, Summary: summary,
			Responses: map[string]*huma.Response{status: {Description: summary + "."}, "default": errorResponse(problem)},
		}
		if media != "" {
			o.Responses[status].Content = map[string]*huma.MediaType{media: {Schema: schema}}
		}
		if strings.Contains(path, "{id}") {
			o.Parameters = []*huma.Param{{
				Name: "id", In: "path", Required: true, Description: "Id of the work.", Schema: &huma.Schema{Type: huma.TypeString},
			}}
		}
		doc.AddOperation(o)
		return o
	}
	one, text := cli.WorkRoot+"/{id}", &huma.Schema{Type: huma.TypeString}
	event := &huma.Schema{
		Type: huma.TypeObject, Description: "One event.", Required: []string{"id", "event", "data"},
		Properties: map[string]*huma.Schema{
			"id": text, "event": {Type: huma.TypeString, Enum: []any{"work"}},
			"data": {Type: huma.TypeString, Description: "The state of the work, as JSON."},
		},
	}
	add(http.MethodGet, cli.WorkRoot, "work-list", "Long work that is not done, or was lately", "200", "application/json",
		&huma.Schema{Type: huma.TypeArray, Items: work})
	add(http.MethodGet, one, "work-show", "State of long work", "200", "application/json", work)
	add(http.MethodDelete, one, "work-end", "End long work and forget it", "204", "", nil)
	add(http.MethodGet, one+"/answer", "work-answer", "Answer of long work that is done, in the form that was asked for", "200", "*/*", &huma.Schema{})
	events := add(http.MethodGet, one+"/events", "work-events", "State of long work at every change, until it has ended", "200", "text/event-stream", event)
	events.Parameters = append(events.Parameters, &huma.Param{
		Name: "Last-Event-ID", In: "header", Description: "Id of the last event that is at hand.", Schema: text,
	})
}

// describe describes an operation.
func describe(op *cli.Operation, answer, problem *huma.Schema) *huma.Operation {
	text := &huma.Schema{Type: huma.TypeString}
	media := "application/json"
	if op.Lines {
		media = "application/x-ndjson"
	}
	header := func(text string) *huma.Param {
		return &huma.Param{Description: text, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	o := &huma.Operation{
		Method: methodOf(op), Path: pathOf(op), OperationID: op.Noun, Tags: op.Words[:1],
		Summary: op.Summary, Description: op.Text,
		Responses: map[string]*huma.Response{
			"200": {
				Description: "The answer.",
				Headers: map[string]*huma.Param{
					cli.ExitHeader: header("Exit code of the command, if it is not 0."),
					cli.NoteHeader: header("Note for a person, percent-encoded."),
				},
				Content: map[string]*huma.MediaType{media: {Schema: answer}, "text/plain": {Schema: text}, "text/csv": {Schema: text}},
			},
			"default": errorResponse(problem),
		},
	}
	if !op.Outside && !op.Long {
		o.Responses["200"].Headers["ETag"] = header("Tag of the answer, for If-None-Match. Answers about the present time have none.")
		o.Responses["304"] = &huma.Response{Description: "Nothing has changed since the answer with the tag that the question names."}
		o.Parameters = append(o.Parameters, &huma.Param{
			Name: "If-None-Match", In: "header", Description: "Tag of an answer that is at hand.", Schema: text,
		})
	}
	for i := range op.Params {
		p := &op.Params[i]
		about := p.Text
		if slices.Contains(op.Files, p.Name) {
			about += ": the name of a document of the body"
		}
		q := &huma.Param{Name: p.Name, In: "query", Description: about, Required: p.Required, Schema: &huma.Schema{Type: p.Type}}
		if p.Default != "" {
			q.Description += " (default " + p.Default + ")"
		}
		if p.Example != "" {
			q.Example = exampleOf(p)
		}
		if p.Type == huma.TypeArray {
			q.Schema.Items = &huma.Schema{Type: huma.TypeString}
		}
		o.Parameters = append(o.Parameters, q)
	}
	if op.Paged() {
		o.Responses["200"].Headers["Link"] = header("The next page of an answer in JSON, as rel=\"next\", if there is one (RFC 8288).")
		o.Parameters = append(o.Parameters, &huma.Param{
			Name: cursorParam, In: "query", Description: "Where the page begins, as Link says. All pages are of the position of the first.", Schema: text,
		})
		if !op.Limited() {
			least := 0.0
			o.Parameters = append(o.Parameters, &huma.Param{
				Name: limitParam, In: "query", Description: "Rows of a page of an answer in JSON; 0 is all (default 0).",
				Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &least},
			})
		}
	}
	forms := make([]any, 0, 4)
	for _, f := range cli.OutputForms() {
		forms = append(forms, f)
	}
	least, most := 1.0, float64(mostWidth)
	o.Parameters = append(o.Parameters,
		&huma.Param{
			Name: cli.OutputParam, In: "query", Description: "Form of the answer (default json).",
			Schema: &huma.Schema{Type: huma.TypeString, Enum: forms},
		},
		&huma.Param{
			Name: cli.WidthParam, In: "query", Description: "Width of tables, in characters.",
			Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &least, Maximum: &most},
		})
	return o
}

// exampleOf returns the example of a parameter as a value of its type.
func exampleOf(p *cli.Param) any {
	switch p.Type {
	case huma.TypeBoolean:
		return p.Example == "true"
	case huma.TypeInteger:
		if n, err := strconv.ParseInt(p.Example, 10, 64); err == nil {
			return n
		}
		return nil
	case huma.TypeArray:
		return strings.Split(p.Example, ",")
	}
	return p.Example
}

// addSchema adds the schema of an answer to the components, and returns a reference to it.
func addSchema(known map[string]*huma.Schema, noun string) (*huma.Schema, error) {
	text, err := schemas.Answers.ReadFile("answers/" + noun + ".schema.json")
	if err != nil {
		return nil, err
	}
	text = []byte(strings.ReplaceAll(string(text), `"#/$defs/`, `"#/components/schemas/`))
	_, defs, err := schemaOf(text)
	if err != nil {
		return nil, err
	}
	renamed := map[string]string{}
	for _, def := range slices.Sorted(maps.Keys(defs)) {
		if other, ok := known[def]; ok && !reflect.DeepEqual(other.Extensions, defs[def]) {
			renamed[def] = noun + "." + def // two documents have their own of one name
			ref := `"#/components/schemas/%s"`
			text = []byte(strings.ReplaceAll(string(text), fmt.Sprintf(ref, def), fmt.Sprintf(ref, renamed[def])))
		}
	}
	root, defs, err := schemaOf(text)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"$defs", "$schema", "$id"} {
		delete(root, key)
	}
	name := "answer." + noun
	known[name] = &huma.Schema{Extensions: root}
	for def, schema := range defs {
		def = cmp.Or(renamed[def], def)
		if other, ok := known[def]; ok && !reflect.DeepEqual(other.Extensions, schema) {
			return nil, fmt.Errorf("%s is described in two ways", def)
		}
		known[def] = &huma.Schema{Extensions: schema}
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}, nil
}

// schemaOf reads a schema with its definitions.
func schemaOf(text []byte) (root map[string]any, defs map[string]map[string]any, err error) {
	if err = json.Unmarshal(text, &root); err != nil {
		return nil, nil, err
	}
	defs = map[string]map[string]any{}
	all, _ := root["$defs"].(map[string]any)
	for name, def := range all {
		defs[name] = def.(map[string]any)
	}
	return root, defs, nil
}
