package app

// SetManyRows sets from how many rows in memory on a replay drops the live rows, and returns how many
// it was.
func SetManyRows(n int) int {
	was := manyRows
	manyRows = n
	return was
}
