// Package focus reads suppliers' bills in the columns of FOCUS, the FinOps Open
// Cost and Usage Specification, and writes them: Cost and Usage and Invoice
// Detail.
package focus
