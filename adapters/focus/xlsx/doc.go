// Package xlsx writes rows of exact values as spreadsheets (Office Open XML, ECMA-376), and reads them back.
//
// What always holds:
//
//   - A number is a number. A spreadsheet program holds 15 significant digits of it. A decimal column has another
//     beside it, named like it with _exact, with the whole number as text wherever it has more digits than that.
//   - A text is a text, and formatted as one: no cell is a formula, and none becomes one when somebody edits it. See
//     [tabular.Safe].
//   - Nothing is cut. A text of more than 32,767 characters is refused, and so are more than 16,384 columns.
//   - A sheet holds 1,048,576 rows. More rows go on in another sheet, with the same header. The sheets are named "rows",
//     "rows 2" and so on.
//   - Times are texts in RFC 3339, because spreadsheets have no time zones.
//   - Memory does not grow with rows: those of a sheet are in a temporary file until the spreadsheet is closed.
package xlsx
