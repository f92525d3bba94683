// Package app is the application: one method of [Caller] for each use case, whoever asks, a
// command line, a server or a page. It knows neither flags nor HTTP, and renders nothing.
//
// [App] says where a log and its rows are, and holds them open. [App.For] returns what a
// principal may ask and decide. A question names the point in time that it is about ([At]);
// its answer is a pure function of the question, the position and the version of the
// program. A decision takes three steps: a use case drafts it, [Caller.Propose] validates it
// and returns the bytes to sign, and [Caller.Decide] appends what was signed. Errors are of
// a closed set of kinds; only who shows an error words it for its reader, as an exit code, a
// status or a sentence.
package app

import "errors"

// Kind is what is wrong.
type Kind string

// The kinds. What an error of none of them is about is a defect, or a failure that
// nobody asked to tell apart.
const (
	KindNone        Kind = ""
	KindInvalid     Kind = "invalid"
	KindNotFound    Kind = "not_found"
	KindDenied      Kind = "denied"
	KindConflict    Kind = "conflict"
	KindIncomplete  Kind = "incomplete"
	KindUnavailable Kind = "unavailable"
)

// InvalidError is a question or a document that is wrong: who asks writes it anew.
type InvalidError struct {
	Field string // that is wrong, "" for a whole document
	Err   error
}

// NotFoundError is a name that nothing has: who asks names one of those that are known.
type NotFoundError struct {
	What, Name string   // for example cluster, lab
	Known      []string // the names that there are
	Err        error
}

// DeniedError is a decision or an answer that whoever asks has no right to: somebody else
// asks, or gives the right.
type DeniedError struct{ Err error }

// ConflictError is what contradicts what is there already: nothing was done.
type ConflictError struct{ Err error }

// IncompleteError is work that did not come to its end: who asks does it again, and it goes
// on where it stopped.
type IncompleteError struct{ Err error }

// UnavailableError is a log, a database or a file that cannot be reached or read: who asks
// tries again when it can be.
type UnavailableError struct{ Err error }

func (e *InvalidError) Error() string     { return e.Err.Error() }
func (e *NotFoundError) Error() string    { return e.Err.Error() }
func (e *DeniedError) Error() string      { return e.Err.Error() }
func (e *ConflictError) Error() string    { return e.Err.Error() }
func (e *IncompleteError) Error() string  { return e.Err.Error() }
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *InvalidError) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *NotFoundError) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *DeniedError) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *ConflictError) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *IncompleteError) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Kind is what such an error is of.
func (e *InvalidError) Kind() Kind { return KindInvalid }

// Kind is what such an error is of.
func (e *NotFoundError) Kind() Kind { return KindNotFound }

// Kind is what such an error is of.
func (e *DeniedError) Kind() Kind { return KindDenied }

// Kind is what such an error is of.
func (e *ConflictError) Kind() Kind { return KindConflict }

// Kind is what such an error is of.
func (e *IncompleteError) Kind() Kind { return KindIncomplete }

// Kind is what such an error is of.
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
	return KindNone
}
