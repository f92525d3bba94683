package app

// SetManyRows sets from how many rows in memory on a replay drops the live rows, and returns how many
// it was.
func SetManyRows(n int) int {
	was := manyRows
	manyRows = n
	return was
}

// Divisions returns how many months an app has divided.
func Divisions(a *App) int { return a.answers.divisions }
