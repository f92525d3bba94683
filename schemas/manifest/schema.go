// Package manifest holds the JSON Schema of the files that declare an estate:
// workspaces, regions, clusters, policies, contracts and what else a person
// writes down rather than measures. Editors read it from the repository, and
// adapters/manifest holds every file to it.
//
// It stands beside the schemas of events because it is published like them.
// Nothing here is generated.
package manifest

import _ "embed"

// V1 is the schema of apiVersion quartermaster/v1, JSON Schema 2020-12.
//
//go:embed v1.schema.json
var V1 []byte
