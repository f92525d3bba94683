// Package access narrows rows to what somebody may see, and says which questions they may ask.
//
// A [Right] is a role in a workspace and in those below it. [ScopeOf] closes rights over the parents of
// workspaces into a [Scope]. [Scope.For] says whether its rights cover an operation, by the table of rights
// ([Operations]), and returns the part of the scope that does. [Scope.View] narrows a view by the table of rows
// ([Tables]). Both tables are published.
//
// What always holds:
//
//   - Deny by default: a table without a rule is empty in a narrowed view, and an operation without a row needs the
//     whole estate.
//   - Rights flow from a workspace to those below it, never up and never sideways.
//   - Views compute over a narrowed view as over any other. So a filter that a question forgot leaks nothing.
//   - What needs all rows to be right computes over the rows beneath ([Beneath]), and its result is narrowed before any
//     question sees it. A test lists these functions by name. They are few: who may decide, the division of costs,
//     the time of GPUs.
//   - A name outside of the scope is answered as a name that does not exist.
package access
