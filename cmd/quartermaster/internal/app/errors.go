// Package app has the kinds of errors that every use case ends with, whoever asks: a
// command line, a server or a page. The set is closed. Only who shows an error words it
// for its reader, as an exit code, a status or a sentence.
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

// Invalid is a question or a document that is wrong: who asks writes it anew.
type Invalid struct {
	Field string // that is wrong, "" for a whole document
	Err   error
}

// NotFound is a name that nothing has: who asks names one of those that are known.
type NotFound struct {
	What, Name string   // for example cluster, lab
	Known      []string // the names that there are
	Err        error
}

// Denied is a decision or an answer that whoever asks has no right to: somebody else
// asks, or gives the right.
type Denied struct{ Err error }

// Conflict is what contradicts what is there already: nothing was done.
type Conflict struct{ Err error }

// Incomplete is work that did not come to its end: who asks does it again, and it goes
// on where it stopped.
type Incomplete struct{ Err error }

// Unavailable is a log, a database or a file that cannot be reached or read: who asks
// tries again when it can be.
type Unavailable struct{ Err error }

func (e *Invalid) Error() string     { return e.Err.Error() }
func (e *NotFound) Error() string    { return e.Err.Error() }
func (e *Denied) Error() string      { return e.Err.Error() }
func (e *Conflict) Error() string    { return e.Err.Error() }
func (e *Incomplete) Error() string  { return e.Err.Error() }
func (e *Unavailable) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Invalid) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *NotFound) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *Denied) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *Conflict) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *Incomplete) Unwrap() error { return e.Err }

// Unwrap returns what is wrong.
func (e *Unavailable) Unwrap() error { return e.Err }

// KindOf returns the kind of an error, the outermost where several are wrapped.
func KindOf(err error) Kind {
	for err != nil {
		switch err.(type) {
		case *Invalid:
			return KindInvalid
		case *NotFound:
			return KindNotFound
		case *Denied:
			return KindDenied
		case *Conflict:
			return KindConflict
		case *Incomplete:
			return KindIncomplete
		case *Unavailable:
			return KindUnavailable
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				if k := KindOf(e); k != KindNone {
					return k
				}
			}
			return KindNone
		}
		err = errors.Unwrap(err)
	}
	return KindNone
}
