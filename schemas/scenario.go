package schemas

import _ "embed"

// Scenario is the JSON Schema (2020-12) of what-if scenarios. It is made from what
// simulations/whatif holds files to, and a test there holds the two together.
//
//go:embed scenario/v1.schema.json
var Scenario []byte
