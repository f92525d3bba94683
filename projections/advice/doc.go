// Package advice reads the figures that the rules of quartermaster/domain/advice judge, from the rows at one position.
//
// [Read] returns [advice.Figures]. Each group of figures has a file, and is read from the view that the commands show: the
// same position gives the same numbers as the command that a finding names.
//
// What always holds:
//
//   - Windows end at the last whole hour before the tick, or at the tick where the figure needs no whole hour.
//   - What was not observed is stated as such: a cluster that reports nothing has figures with a coverage of 0.
//   - One pass over the usage of a day feeds everything that needs device hours. Older hours come from sums that are kept
//     (see [Hours]), so that a tick reads what changed.
package advice
