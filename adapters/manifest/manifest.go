// Package manifest reads files in which people declare an estate: workspaces, operators, regions,
// clusters, certifications, policies, legal holds, quotas, budgets, power tariffs, exchange rates, suppliers'
// on-demand quotas, assets, commitments, deployments and their removal, maintenance windows,
// outages, corrections of usage, mapping rules and method versions.
//
// A file is YAML or JSON with one or more documents. Load turns it into the events that declare
// it. The caller, who knows the log, finds out which of them are new.
//
// What always holds:
//
//   - Events are in the order of [Kinds], and within a kind in the order of the file. Every event
//     satisfies [domain.Validate], except an outage of a region, which has no cluster ([Entry]). The
//     caller sets source, incarnation, sequence and signature.
//   - The same file and the same Options give the same events.
//   - The time of an event is when the entry takes effect. It is Options.Now if the entry has no time
//     or a later one, so no event is in the future. A later effective time is inside the event.
//   - Money and other exact numbers are read from their digits, quoted or not, and never pass through
//     a float.
//   - Files are validated with the published JSON Schema itself: see package schemas.
//   - Nothing is guessed. Every fault is reported with file, line, column and field, and a file with a
//     fault declares nothing.
//
// Hostile files are refused before parsing: more than 16 MiB, more than a million marks (lines,
// colons, commas, brackets), nesting deeper than 32, more than 2000 keys in a mapping or 1000
// documents, and bytes that are not text. YAML's anchors, aliases, tags and complex keys are
// refused too, because no declaration needs them and YAML bombs do.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Help explains the format for the help of a command.
const Help = `A file is YAML or JSON and begins with

  apiVersion: quartermaster/v1
  kind: Estate
  workspace: platform            # of every entry that names none
  effective_from: 2026-01-01     # of every entry that says nothing else

followed by any of these lists:

  workspaces, operators, regions, clusters, certifications, policies,
  legal_holds, quotas,
  budgets, tariffs, fx_rates, on_demand_quotas, assets, commitments,
  deployments, removed_deployments, maintenance, outages, usage_corrections,
  mapping_rules, methods

Plans count no demand of a workspace beyond a hard quota of nvidia.com/gpu; soft quotas
are recorded. Hard budgets of
the root workspace bound plans from their period on. Money is "12.50 USD". A time is RFC 3339 with a zone, or a date, which means
its midnight in UTC. A round trip is "68ms", a term "36 months", memory
"80 GiB", a period "2026-Q3" or {from, to}. Several documents may stand in one
file, separated by ---. Anchors and aliases are refused.`

// Options supply what a file does not contain.
type Options struct {
	// Now is the time of entries without a time; required.
	Now domain.Instant
}

// Estate is the content of a file.
type Estate struct {
	Envelopes []domain.Envelope
	Entries   []Entry // one per envelope
	// References are the things that the file refers to without declaring them. They may be in the
	// log; the caller has to check.
	References []Reference
}

// Entry is where an event is declared.
type Entry struct {
	// Region is set for an outage of a region. Its event has no cluster; the caller makes one
	// event for each cluster of the region.
	Region     string
	file, path string
	n          *node
}

// Fault returns an error for a field of the entry, for example holder.deployment.
func (e Entry) Fault(field, format string, args ...any) *Error {
	n := e.n
	for part := range strings.SplitSeq(field, ".") {
		n = n.child(part)
	}
	return &Error{
		Where:   Position{e.file, n.line, n.column},
		Field:   e.path + "." + field,
		Problem: fmt.Sprintf(format, args...),
	}
}

// Reference is a workspace, region or cluster that the file does not declare, an environment or
// country in a selector that none of its deployments or regions has, or a deployment that it
// removes.
type Reference struct {
	Kind  string   // workspace, region, cluster, environment, country, deployment
	ID    string   // for a deployment: cluster/deployment
	Where Position // its first occurrence
	Field string
}

// Position is a position in a file. Lines and columns count from 1, columns in characters.
type Position struct {
	File         string
	Line, Column int
}

// String returns "file:line:column".
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Error is one fault of a file.
type Error struct {
	Where   Position
	Field   string // path of the field, for example clusters[1].region; empty for the file as a whole
	Problem string // what is wrong with which value, and what to do
}

// Error returns "file:line:column: field: problem".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Where.String() + ": " + e.Problem
	}
	return e.Where.String() + ": " + e.Field + ": " + e.Problem
}

// Errors are all faults of a file, in the order of the file. The file declares nothing.
type Errors []*Error

// Error returns one line per fault, for the first twenty.
func (es Errors) Error() string {
	const most = 20
	var b strings.Builder
	for i, e := range es {
		if i == most {
			fmt.Fprintf(&b, "\nand %d more", len(es)-most)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// Unwrap returns the faults one by one.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// The limits of a file; see the package comment.
const (
	maxBytes     = 16 << 20
	maxMarks     = 1_000_000
	maxDepth     = 32
	maxKeys      = 2000
	maxDocuments = 1000
)

// Load reads a file and returns what it declares. Messages call the file name. A file is JSON if
// its name ends in .json or if its content is JSON, else YAML. The error is [Errors] if the file
// has faults.
func Load(name string, r io.Reader, opts Options) (*Estate, error) {
	if opts.Now <= 0 {
		return nil, errors.New("load a manifest: Options.Now is not set")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	l := &loader{
		name:     name,
		now:      opts.Now,
		declared: map[string]Position{},
		referred: map[string]int{},
		named:    map[string]bool{},
	}
	docs, err := l.read(data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, Errors{{
			Where:   Position{name, 1, 1},
			Problem: "declares nothing; begin with apiVersion: quartermaster/v1",
		}}
	}
	for _, doc := range docs {
		l.check(doc)
	}
	if len(l.errs) == 0 {
		for _, doc := range docs {
			l.document(doc)
		}
	}
	if len(l.errs) > 0 {
		slices.SortStableFunc(l.errs, func(a, b *Error) int {
			return cmp.Or(cmp.Compare(a.Where.Line, b.Where.Line), cmp.Compare(a.Where.Column, b.Where.Column))
		})
		return nil, l.errs
	}
	out := &Estate{References: l.references()}
	for _, k := range Kinds() {
		out.Envelopes = append(out.Envelopes, l.events[k]...)
		out.Entries = append(out.Entries, l.entries[k]...)
	}
	return out, nil
}

// loader is the state of one Load.
type loader struct {
	name     string
	now      domain.Instant
	errs     Errors
	events   map[string][]domain.Envelope
	entries  map[string][]Entry  // of events
	declared map[string]Position // position of each entry, by list and key
	refs     []Reference
	referred map[string]int
	named    map[string]bool // environments and countries of the entries
}

func (l *loader) fault(n *node, field, format string, args ...any) {
	l.errs = append(l.errs, &Error{Where: l.at(n), Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (l *loader) at(n *node) Position { return Position{l.name, n.line, n.column} }

// refer records a reference of the file.
func (l *loader) refer(kind, id string, n *node, field string) {
	if id == "" {
		return
	}
	k := kind + " " + id
	if _, known := l.referred[k]; known {
		return
	}
	l.referred[k] = len(l.refs)
	l.refs = append(l.refs, Reference{Kind: kind, ID: id, Where: l.at(n), Field: field})
}

// references returns the references to undeclared things, in the order of the file.
func (l *loader) references() []Reference {
	lists := map[string]string{"workspace": listWorkspaces, "region": listRegions, "cluster": listClusters}
	var out []Reference
	for _, r := range l.refs {
		if l.named[r.Kind+" "+r.ID] {
			continue
		}
		if _, ok := l.declared[identity(lists[r.Kind], r.ID)]; !ok {
			out = append(out, r)
		}
	}
	return out
}

// identity returns the key of an entry within the file.
func identity(list string, parts ...string) string {
	return fmt.Sprintf("%s%q", list, parts)
}
