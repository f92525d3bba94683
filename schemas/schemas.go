// Package schemas holds the published schemas that programs read as text, so
// that what is published is what files are held to. It is written by hand; the
// generated code of the events lies in the folders below, and only adapters/wire
// imports that.
package schemas

import "embed"

// Manifest is the JSON Schema (2020-12) of files that declare an estate,
// apiVersion quartermaster/v1. See adapters/manifest.
//
//go:embed manifest/v1.schema.json
var Manifest []byte

// Instance is the JSON Schema (2020-12) of instances, format
// quartermaster.instance/1. See domain/instance, whose parser refuses whatever
// this does, and more.
//
//go:embed instance/v1.schema.json
var Instance []byte

// Answer is the JSON Schema (2020-12) of answers, format quartermaster.answer/1.
//
//go:embed instance/answer-v1.schema.json
var Answer []byte

// Contract is the JSON Schema (2020-12) of contracts that are weighed, apiVersion
// quartermaster/v1 and kind Contract. See simulations/whatif.ParseContract.
//
//go:embed contract/v1.schema.json
var Contract []byte

// Mapping is the JSON Schema (2020-12) of mappings of suppliers' bills. See adapters/bill, whose parser
// refuses whatever this does, and more.
//
//go:embed mapping/v1.schema.json
var Mapping []byte

// Answers holds the JSON Schemas (2020-12) of what commands answer with -o json, as
// answers/NOUN.schema.json. They are made from the types of the answers; see
// cmd/quartermaster/internal/cli.
//
//go:embed answers/*.schema.json
var Answers embed.FS

// Audit holds the JSON Schemas (2020-12) of what quartermaster-audit answers with -o json, as
// audit/COMMAND.schema.json.
//
//go:embed audit/*.schema.json
var Audit embed.FS

// OpenAPI is the document of the API of "quartermaster serve", in OpenAPI 3.1. It is made from the
// commands and the schemas of their answers; see cmd/quartermaster/internal/api.
//
//go:embed openapi/v1.json
var OpenAPI []byte
