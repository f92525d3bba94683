// Package app is the application: one method of [Caller] for each use case, shared by the command
// line, the server and the web pages. It knows neither flags nor HTTP, and renders nothing.
//
// [App] locates a log and its rows, and holds them open. [App.For] returns the use cases of a
// principal. A question names its point in time ([At]); its answer is a pure function of the
// question, the position and the version of the program. A decision takes three steps: a use case
// drafts it, [Caller.Propose] validates it and returns the bytes to sign, and [Caller.Decide]
// appends what was signed. Errors are of a closed set of kinds. Callers render them for their
// readers, as an exit code, an HTTP status or a sentence.
package app

import (
	"errors"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/projections/costs"
	"quartermaster/simulations/whatif"
)

// Kind classifies an error.
type Kind string

// The kinds. An error without a kind is a defect, or a failure that no caller needs to tell
// apart.
const (
	KindNone        Kind = ""
	KindInvalid     Kind = "invalid"
	KindNotFound    Kind = "not_found"
	KindDenied      Kind = "denied"
	KindConflict    Kind = "conflict"
	KindIncomplete  Kind = "incomplete"
	KindUnavailable Kind = "unavailable"
)

// InvalidError is a wrong question or document: the caller corrects it.
type InvalidError struct {
	Field string // the wrong field; "" for a whole document
	Err   error
}

// NotFoundError is an unknown name: the caller uses one of the known ones.
type NotFoundError struct {
	What, Name string   // for example cluster, lab
	Known      []string // the existing names
	Err        error
}

// DeniedError is a decision or an answer that the caller has no right to: somebody else asks, or
// grants the right.
type DeniedError struct{ Err error }

// ConflictError is a contradiction with existing data: nothing was done.
type ConflictError struct{ Err error }

// IncompleteError is work that was interrupted: the caller repeats it, and it resumes where it
// stopped.
type IncompleteError struct{ Err error }

// UnavailableError is a log, a database or a file that cannot be reached or read: the caller
// retries later.
type UnavailableError struct{ Err error }

func (e *InvalidError) Error() string     { return e.Err.Error() }
func (e *NotFoundError) Error() string    { return e.Err.Error() }
func (e *DeniedError) Error() string      { return e.Err.Error() }
func (e *ConflictError) Error() string    { return e.Err.Error() }
func (e *IncompleteError) Error() string  { return e.Err.Error() }
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

// Unwrap returns the cause.
func (e *NotFoundError) Unwrap() error { return e.Err }

// Unwrap returns the cause.
func (e *DeniedError) Unwrap() error { return e.Err }

// Unwrap returns the cause.
func (e *ConflictError) Unwrap() error { return e.Err }

// Unwrap returns the cause.
func (e *IncompleteError) Unwrap() error { return e.Err }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Kind returns KindInvalid.
func (e *InvalidError) Kind() Kind { return KindInvalid }

// Kind returns KindNotFound.
func (e *NotFoundError) Kind() Kind { return KindNotFound }

// Kind returns KindDenied.
func (e *DeniedError) Kind() Kind { return KindDenied }

// Kind returns KindConflict.
func (e *ConflictError) Kind() Kind { return KindConflict }

// Kind returns KindIncomplete.
func (e *IncompleteError) Kind() Kind { return KindIncomplete }

// Kind returns KindUnavailable.
func (e *UnavailableError) Kind() Kind { return KindUnavailable }

// KindOf returns the kind of an error, the outermost where several are wrapped.
func KindOf(err error) Kind {
	var known interface {
		error
		Kind() Kind
	}
	if errors.As(err, &known) {
		return known.Kind()
	}
	switch {
	case errors.As(err, new(*plan.OutOfRangeError)), errors.As(err, new(*whatif.UnfitError)),
		errors.As(err, new(*instances.Faults)), errors.Is(err, instances.ErrTooLarge), errors.Is(err, domain.ErrIncomplete):
		return KindInvalid
	case errors.As(err, new(*costs.RatesError)), errors.As(err, new(*instances.Infeasible)):
		return KindConflict
	case errors.Is(err, parts.ErrBucket):
		return KindUnavailable
	}
	return KindNone
}

// Remedy names what to do about an error, where that depends on who asks: the command line
// words it with flags, a server with fields.
type Remedy string

// The remedies.
const (
	RemedyNone           Remedy = ""
	RemedyNameDataDir    Remedy = "name_data_dir"    // name a data directory
	RemedyOwnDataDir     Remedy = "own_data_dir"     // name a data directory for one's own data
	RemedyOtherDataDir   Remedy = "other_data_dir"   // name another data directory
	RemedyNameConfig     Remedy = "name_config"      // name a configuration
	RemedyDryRun         Remedy = "dry_run"          // ask for an answer that is not recorded
	RemedyOtherTime      Remedy = "other_time"       // plan as of another time
	RemedyAcceptRemoval  Remedy = "accept_removal"   // say how many lines an export may remove
	RemedyWholeLog       Remedy = "whole_log"        // ask about the present
	RemedyDeclareCluster Remedy = "declare_cluster"  // give provider, provider class and region
	RemedySecondPerson   Remedy = "second_person"    // another person signs it
	RemedyAuthority      Remedy = "change_authority" // an admin changes an operator's role or limit
	RemedyRegisterSeen   Remedy = "register_seen"    // register a node from what it reports
	RemedyImportDemand   Remedy = "import_demand"    // import demand, or name a file with demand
)

// helped is an error with a remedy.
type helped struct {
	error
	remedy Remedy
}

// Unwrap returns the error without its remedy.
func (h *helped) Unwrap() error { return h.error }

// RemedyOf returns what to do about an error, [RemedyNone] where the error says it.
func RemedyOf(err error) Remedy {
	if h := (*helped)(nil); errors.As(err, &h) {
		return h.remedy
	}
	return RemedyNone
}
