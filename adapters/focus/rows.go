package focus

import "fmt"

// refusal is the reason why a row is not imported. Any other error of a row ends the import.
type refusal struct {
	field, value, reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s %q %s", r.field, r.value, r.reason) }
