// Package parquet reads Parquet files as rows of text, so that package focus and mapped bills read
// them as they read CSV. It is apart from package tabular because its decoder is large.
//
// What always holds:
//
//   - A value has one text, whatever encoded it: the same rows in two files, with other row groups,
//     pages, encodings or compression, give the same text. A decimal is written plainly with the
//     digits of its scale. A timestamp that is an instant is in UTC, with Z; one that is local has
//     no zone, and is refused unless the importer is told one. INT96 counts as an instant, as Spark
//     and Hive write it. A date has no zone either. Null is the empty text.
//   - A column of floating point is not exact, and this can be seen: a value is read by the
//     shortest decimal text that gives the same float, and [Table.Notes] names the column. A file
//     that was exported with decimals and one that was exported with doubles thus differ by what
//     the exporter lost, never by what is added here.
//   - A column that is a list, a map or a struct is read as JSON. The keys of a map are sorted,
//     because writers do not keep their order.
//   - Memory is bounded by the pages that are open, one for each column, and does not grow with
//     the file. A page that states more than 128 MiB or 16 million values gives an error that wraps
//     [tabular.ErrTooLarge], as do columns whose largest pages together state more than 1 GiB. It is
//     read before the decoder allocates. Only pages packed with gzip, Brotli, LZ4 or Zstandard that
//     hold more than they state may take more memory.
//   - The cost of a column grows with how often its value changes: values that follow one another
//     and are equal are found in the memory of the page, and [tabular.Row.Changed] names only the
//     columns that differ from the row before.
//   - A file that cannot be decoded gives an error that wraps [tabular.ErrDamaged], never a panic.
//
// The header is line 1 and the first row is line 2, as if the file were CSV.
package parquet
