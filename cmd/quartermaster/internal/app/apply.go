package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"quartermaster/adapters/manifest"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Changes is the difference between declarations and the log.
type Changes struct {
	Changes   []Change `json:"changes"`
	Notices   []Notice `json:"notices"`
	Unchanged int      `json:"unchanged"`
	Applied   bool     `json:"applied"`
	Operator  string   `json:"operator,omitempty"`
}

// Change is a declaration that the log lacks or has with other content.
type Change struct {
	Action string       `json:"action"` // add or change
	Type   domain.Type  `json:"type"`
	Of     string       `json:"of"` // workspace or cluster
	Name   string       `json:"name"`
	Before domain.Event `json:"before,omitempty"`
	After  domain.Event `json:"after"`
	// Held is what a correction of usage changes; nil for other types.
	Held *HeldChange `json:"held,omitempty"`
}

// Notice warns the author of a declaration about behaviour that they may not expect.
type Notice struct {
	Type   domain.Type `json:"type"`
	Of     string      `json:"of"` // workspace or cluster
	Name   string      `json:"name"`
	Notice string      `json:"notice"`
}

// notWatched is the notice on budgets of workspaces.
const notWatched = "recorded, and compared with costs; a hard one of the root workspace bounds plans from its period on, " +
	"and nobody is notified when one is exceeded"

// notYetEnforced is the notice on quotas of workspaces.
const notYetEnforced = "recorded, and not yet enforced: no plan keeps to it, and nobody is notified when it is exceeded"

// noticeOf returns the notice on a declaration, whether it changes anything or not.
func noticeOf(env *domain.Envelope) (Notice, bool) {
	switch env.Event.(type) {
	case *domain.QuotaSet:
		return Notice{Type: env.Event.Type(), Of: scopeOf(env), Name: env.Subject, Notice: notYetEnforced}, true
	case *domain.BudgetSet:
		return Notice{Type: env.Event.Type(), Of: scopeOf(env), Name: env.Subject, Notice: notWatched}, true
	}
	return Notice{}, false
}

// Document is a file of declarations. Name appears in errors.
type Document struct {
	Name string
	Text io.Reader // YAML or JSON
}

// Declarations are the contents of one or more documents.
type Declarations struct {
	envs    []domain.Envelope
	entries []manifest.Entry // of envs; empty if a program made them
	refs    []manifest.Reference
}

// ReadDeclarations reads documents. It is an error if two of them declare the same thing.
func ReadDeclarations(documents ...Document) (*Declarations, error) {
	d := &Declarations{}
	declared := map[string]string{} // document name by identity
	for _, doc := range documents {
		got, err := manifest.Load(doc.Name, doc.Text, manifest.Options{Now: Now()})
		if err != nil {
			return nil, &InvalidError{Err: err}
		}
		for i := range got.Envelopes {
			named := got.Envelopes[i]
			if r := got.Entries[i].Region; r != "" {
				named.Cluster = r
			}
			id, err := registry.Identity(&named)
			if err != nil {
				return nil, err
			}
			if first, twice := declared[id]; twice && first != doc.Name {
				return nil, &InvalidError{Err: fmt.Errorf("%s: %s %s is declared in %s already; keep one of them",
					doc.Name, got.Envelopes[i].Event.Type(), got.Envelopes[i].Subject, first)}
			}
			declared[id] = doc.Name
		}
		d.envs = append(d.envs, got.Envelopes...)
		d.entries = append(d.entries, got.Entries...)
		d.refs = append(d.refs, got.References...)
	}
	return d, nil
}

// Fault is what is wrong in a document, and where.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`          // from 1; 0: the whole line
	Field   string `json:"field,omitempty"` // its path, for example clusters[1].region
	Problem string `json:"problem"`
}

// FaultsOf returns the faults of documents that an error has, up to a number.
func FaultsOf(err error, most int) (all []Fault) {
	var walk func(error)
	walk = func(err error) {
		if len(all) == most {
			return
		}
		switch e := err.(type) { //nolint:errorlint // it walks the tree itself, for all of them
		case *manifest.Error:
			all = append(all, Fault{e.Where.File, e.Where.Line, e.Where.Column, e.Field, e.Problem})
		case *fileError:
			for _, f := range e.faults[:min(len(e.faults), most-len(all))] {
				all = append(all, Fault{e.path, f.Line, f.Column, f.Path, f.Problem})
			}
		case rowsError:
			for _, row := range e[:min(len(e), most-len(all))] {
				all = append(all, Fault{row.File, row.Line, 0, row.Field, row.Reason})
			}
		case *instances.Faults:
			for _, f := range e.List[:min(len(e.List), most-len(all))] {
				if f.Line > 0 {
					all = append(all, Fault{f.File, f.Line, f.Column, f.Path, f.Detail})
				}
			}
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				walk(one)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return all
}

// Apply compares declarations with the log, and drafts those that are new or changed.
func (c *Caller) Apply(ctx context.Context, d *Declarations) (ans *Changes, draft Draft, err error) {
	draft.Use, draft.OfEstate = "apply", true
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		ans, draft.Events, err = changes(ctx, v, d)
		return err
	})
	return ans, draft, err
}

// changes compares declarations with rows, and returns the events to append.
func changes(ctx context.Context, v projections.View, d *Declarations) (*Changes, []domain.Envelope, error) {
	ans := &Changes{Changes: []Change{}, Notices: []Notice{}}
	var todo []domain.Envelope
	var fixes []*fix
	var added []int // indexes of todo's events
	if err := resolve(v, d.envs, d.refs); err != nil {
		return nil, nil, err
	}
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, nil, err
	}
	envs, entries, err := placed(v, auth, d)
	if err != nil {
		return nil, nil, err
	}
	for i := range envs {
		if n, ok := noticeOf(&envs[i]); ok {
			ans.Notices = append(ans.Notices, n)
		}
		before, err := registry.Declared(v, auth, &envs[i])
		if err != nil {
			return nil, nil, err
		}
		if ev, ok := envs[i].Event.(*domain.OutageDeclared); ok && ev.Cancelled && before == nil {
			if entries[i].Region == "" {
				return nil, nil, &InvalidError{Err: entries[i].Fault("id", "there is no outage %q of cluster %q to cancel", ev.Outage, envs[i].Cluster)}
			}
			continue // the cluster was not in the region when the outage was declared
		}
		// A declaration takes effect at the time in the file, unless a version with a later
		// effective time exists: then it takes effect now.
		if before != nil && before.Order.Effective > envs[i].Time {
			envs[i].Time = Now()
		}
		c := Change{Action: "add", Type: envs[i].Event.Type(), Of: scopeOf(&envs[i]), Name: envs[i].Subject, After: envs[i].Event}
		if before != nil {
			same, err := projections.SameEvent(before.Event, envs[i].Event)
			if err != nil {
				return nil, nil, err
			}
			if same && before.Workspace == envs[i].Workspace {
				ans.Unchanged++
				continue
			}
			c.Action, c.Before = "change", before.Event
		}
		if ev, ok := c.After.(*domain.UsageCorrected); ok {
			f := &fix{env: &envs[i], ev: ev, entry: entries[i]}
			f.before, _ = c.Before.(*domain.UsageCorrected)
			c.Held = &f.held
			fixes = append(fixes, f)
		}
		ans.Changes = append(ans.Changes, c)
		todo = append(todo, envs[i])
		added = append(added, i)
	}
	if err := checkAssets(v, envs, entries, added); err != nil {
		return nil, nil, err
	}
	return ans, todo, correct(ctx, v, auth, envs, fixes)
}

// resolve refuses names that are declared neither in the files nor in the log. They are typos,
// and would otherwise appear in every report.
func resolve(v projections.View, envs []domain.Envelope, refs []manifest.Reference) error {
	if len(refs) == 0 {
		return nil
	}
	known := map[string]map[string]bool{
		"workspace": {Platform: true}, "region": {}, "cluster": {}, "environment": {}, "country": {}, "deployment": {},
	}
	tables := map[string]projections.Table{
		"workspace": projections.TableWorkspaces, "region": projections.TableRegions, "cluster": projections.TableClusters,
	}
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return err
	}
	for kind, t := range tables {
		if err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			if latest := auth.Latest(k, row.(*projections.History)); latest != nil {
				known[kind][k.ID] = true
				if r, ok := latest.Event.(*domain.RegionDefined); ok {
					known["country"][r.Country] = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// A policy may outlive its deployments, so deployments that were removed count too.
	if err := v.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		known["deployment"][k.Scope+"/"+k.ID] = true
		for _, version := range row.(*projections.History).Versions {
			if d, ok := version.Event.(*domain.DeploymentChanged); ok && d.Environment != "" {
				known["environment"][d.Environment] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range envs {
		switch ev := envs[i].Event.(type) {
		case *domain.WorkspaceRegistered:
			known["workspace"][envs[i].Workspace] = true
		case *domain.RegionDefined:
			known["region"][ev.Region], known["country"][ev.Country] = true, true
		case *domain.DeploymentChanged:
			if ev.Environment != "" {
				known["environment"][ev.Environment] = true
			}
		case *domain.ClusterRegistered:
			known["cluster"][envs[i].Cluster] = true
		}
	}
	var errs []error
	for _, r := range refs {
		if ids, ok := known[r.Kind]; ok && !ids[r.ID] {
			what := fmt.Sprintf("%s %q is declared neither in these files nor in the log", r.Kind, r.ID)
			switch r.Kind {
			case "environment":
				what = fmt.Sprintf("no deployment has the environment %q, in these files or in the log", r.ID)
			case "country":
				what = fmt.Sprintf("no region is in the country %q, in these files or in the log", r.ID)
			}
			if names := slices.Sorted(maps.Keys(ids)); len(names) > 0 {
				what += "; "
				if near := domain.Suggest(r.ID, names); strings.HasSuffix(near, "?") && r.Kind != "country" { // two-letter codes are always similar
					what += near + " "
				}
				what += domain.Clip("known: "+strings.Join(names, ", "), 300)
			}
			errs = append(errs, fmt.Errorf("%s: %s: %s", r.Where, r.Field, what))
		}
	}
	if len(errs) > 0 {
		return &InvalidError{Err: errors.Join(errs...)}
	}
	return nil
}

func scopeOf(env *domain.Envelope) string {
	if env.Cluster != "" {
		return env.Cluster
	}
	return env.Workspace
}

// Declare returns the declarations of events that a program made, rather than a document.
func Declare(events ...domain.Envelope) *Declarations { return &Declarations{envs: events} }
