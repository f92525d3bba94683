// Package bill reads suppliers' bills in the suppliers' own columns, by mapping files.
//
// A mapping ([Parse], [Named]) says how each column of FOCUS is computed from the columns of the file.
// [Mapping.Open] turns a table of the supplier's rows into one of FOCUS rows, which package focus
// reads as it reads any bill. A file is CSV, Parquet or, if the mapping says where its rows are, JSON.
// What a file lacks, such as the account or the prices of a contract, the user gives as parameters and
// tables ([Mapping.Set], [Mapping.Load]). What always holds:
//
//   - A mapping has a name and a version, and every line that it made names both in x_Mapping, with the
//     hash of each table.
//   - A mapping is checked before a row is read. A column that it does not declare, a field that FOCUS
//     does not have, a second rule for a field and a cycle of values are refused with line and column.
//   - Nothing is guessed: a value that no case names, a time without a zone and a cell that is not a
//     number make a bad row, as does a null in a sum or a difference and a key without a row in a table. A
//     rule that says so explicitly may give a default.
//   - Numbers are decimals and never pass through floating point.
//   - A row of the file is a row of the table, so no charge is lost between them.
//
// # Rules
//
// A scalar is a constant. Otherwise a rule is a mapping with one of these keys:
//
//	column: NAME                     the cell of a column, trimmed
//	value: NAME                      a value that the mapping names under values
//	parameter: NAME                  a parameter
//	first: [RULE...]                 the first that is not null
//	join: [RULE...], with: TEXT      the texts that are not null, with TEXT between them; at most 1 MiB in
//	                                 a row
//	lookup: TABLE, key: [RULE...], at: RULE
//	                                 the value of the table's row of the key at a time
//	json: RULE, path: a.b            a member of a cell of JSON
//	json_sum: RULE, path: amount     the sum of a member over a JSON list; 0 for an empty list
//	json_pairs: RULE                 a JSON list of objects with key and value, as one object; null for an
//	                                 empty list
//	switch: RULE, cases: {TEXT: RULE}, default: RULE
//	sum: [RULE...]                   the sum of numbers
//	difference: [RULE, RULE]         the first less the second
//	product: [RULE...]               the product of numbers; null if one is null
//	time: RULE, format: LAYOUT, zone: ZONE
//	start_of: month|day, at: RULE, zone: ZONE, format: LAYOUT
//	end_of: month|week|day, at: RULE, zone: ZONE, format: LAYOUT
//	plus: 1h|24h|168h, at: RULE      a time later by a duration
//	epoch: RULE                      seconds since 1970 as a time
//
// LAYOUT is a layout of Go's package time, for example 01/02/2006. Without one, a time is RFC 3339 or
// a date with an optional time. A week begins on Monday.
package bill
