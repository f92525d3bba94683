package domain

import (
	"bytes"
	"encoding/json"
)

// CanonicalJSON encodes a value as documents of events are, and what is digested: fields in the order of the type, keys of
// maps sorted, no white space, and no escapes but those that JSON needs.
func CanonicalJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
