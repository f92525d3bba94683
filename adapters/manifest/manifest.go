// Package manifest reads files in which people declare an estate: workspaces,
// operators, regions, clusters, certifications, policies, quotas, budgets,
// power tariffs, exchange rates, quotas of suppliers, assets, commitments,
// deployments and their removal, maintenance windows, outages,
// corrections of usage and mapping rules.
//
// A file is YAML, or JSON, in one or more documents. Load turns it into the
// events that would declare exactly this; which of them are news is for the
// caller to find out, who knows the log.
//
// What always holds:
//
//   - Events come in the order of [Kinds], and within a kind in that of the
//     file. Every one satisfies [domain.Validate], but for an outage of a region,
//     which lacks its cluster ([Entry]). Source, incarnation, sequence and signature
//     are the caller's to fill in.
//   - The same file and the same Options give the same events.
//   - An event's time is when the entry takes effect, and Options.Now where it
//     says nothing or names a later time: nothing is declared from the future.
//     What takes effect later says so inside the event.
//   - Money and other exact numbers are read from their digits, quoted or not,
//     and never pass through a float.
//   - The published JSON Schema is the check that files pass, not a
//     description of it: see package schemas.
//   - Nothing is guessed. Every fault is reported with file, line, column and
//     field, and a file with a fault declares nothing.
//
// What a file could do harm with is refused before it is parsed: more than 16
// MiB, more than a million marks (lines, colons, commas, brackets), nesting
// deeper than 32, more than 2000 keys in a mapping or 1000 documents, bytes that
// are not text, and YAML's anchors, aliases, tags and complex keys, which no
// declaration needs and bombs are made of.
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

// Help explains the format in the words of a command's help.
const Help = `A file is YAML or JSON and begins with

  apiVersion: quartermaster/v1
  kind: Estate
  workspace: platform            # of every entry that names none
  effective_from: 2026-01-01     # of every entry that says nothing else

followed by any of these lists:

  workspaces, operators, regions, clusters, certifications, policies, quotas,
  budgets, tariffs, fx_rates, on_demand_quotas, assets, commitments,
  deployments, removed_deployments, maintenance, outages, usage_corrections,
  mapping_rules, methods

Quotas and budgets are recorded and not yet enforced, hard ones too. Money is "12.50 USD". A time is RFC 3339 with a zone, or a date, which means
its midnight in UTC. A round trip is "68ms", a term "36 months", memory
"80 GiB", a period "2026-Q3" or {from, to}. Several documents may stand in one
file, separated by ---. Anchors and aliases are refused.`

// Options are what a file does not say.
type Options struct {
	// Now is the time of entries that name none; required.
	Now domain.Instant
}

// Estate is what a file declares.
type Estate struct {
	Envelopes []domain.Envelope
	Entries   []Entry // of the envelopes, one each
	// References name what the file speaks of without declaring it. It may be
	// in the log already; whoever knows the log checks.
	References []Reference
}

// Entry is where an event is declared.
type Entry struct {
	// Region is set of an outage of a region, whose event has no cluster: it is one event
	// for each cluster of the region.
	Region     string
	file, path string
	n          *node
}

// Fault returns a fault of a field of the entry, for example holder.deployment.
func (e Entry) Fault(field, format string, args ...any) *Error {
	n := e.n
	for part := range strings.SplitSeq(field, ".") {
		n = n.child(part)
	}
	return &Error{Where: Position{e.file, n.line, n.column}, Field: e.path + "." + field, Problem: fmt.Sprintf(format, args...)}
}

// Reference is a workspace, region or cluster that the file does not declare, or an
// environment or country of a selector that none of its deployments or regions has, or
// a deployment that it removes.
type Reference struct {
	Kind  string   // workspace, region, cluster, environment, country, deployment
	ID    string   // of a deployment cluster/deployment
	Where Position // the first place that names it
	Field string
}

// Position is a place in a file; lines and columns count from 1, columns in
// characters.
type Position struct {
	File         string
	Line, Column int
}

// String returns "file:line:column".
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Error is one fault of a file.
type Error struct {
	Where   Position
	Field   string // path to what is wrong, for example clusters[1].region; empty for the file as a whole
	Problem string // what is wrong with which value, and what to do
}

// Error returns "file:line:column: field: problem".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Where.String() + ": " + e.Problem
	}
	return e.Where.String() + ": " + e.Field + ": " + e.Problem
}

// Errors are all the faults of a file, in its order. Nothing was declared.
type Errors []*Error

// Error returns a line per fault, of which it shows twenty.
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

// The bounds of a file; see the package comment.
const (
	maxBytes     = 16 << 20
	maxMarks     = 1_000_000
	maxDepth     = 32
	maxKeys      = 2000
	maxDocuments = 1000
)

// Load reads a file and returns what it declares. The name stands in messages;
// a name that ends in .json makes the file JSON, any other is YAML unless the
// content is JSON. The error is [Errors] when the file is at fault.
func Load(name string, r io.Reader, opts Options) (*Estate, error) {
	if opts.Now <= 0 {
		return nil, errors.New("load a manifest: Options.Now is not set")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	l := &loader{name: name, now: opts.Now, declared: map[string]Position{}, referred: map[string]int{}, named: map[string]bool{}}
	docs, err := l.read(data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, Errors{{Where: Position{name, 1, 1}, Problem: "declares nothing; begin with apiVersion: quartermaster/v1"}}
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
		out.Envelopes, out.Entries = append(out.Envelopes, l.events[k]...), append(out.Entries, l.entries[k]...)
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
	declared map[string]Position // what stands where, by list and identity
	refs     []Reference
	referred map[string]int
	named    map[string]bool // environments and countries that entries have
}

func (l *loader) fault(n *node, field, format string, args ...any) {
	l.errs = append(l.errs, &Error{Where: l.at(n), Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (l *loader) at(n *node) Position { return Position{l.name, n.line, n.column} }

// refer notes that the file speaks of something.
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

// references returns what was spoken of and not declared, in the file's order.
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

// identity names an entry of a list within the file.
func identity(list string, parts ...string) string {
	return fmt.Sprintf("%s%q", list, parts)
}
