package whatif

import "fmt"

// UnfitError means that a scenario does not fit what it is based on: it names what is not there, or
// asks for more than trials compute. Whoever asks corrects it.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UnfitError) Unwrap() error { return e.Err }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Errorf(format, args...)} }
