package procurement

import "slices"

// Steps compresses hourly demand into the steps of an epoch. The order of hours does not matter,
// and hours without demand are left out. Negative demand is kept, so that [Pool.Validate] refuses
// it.
func Steps(hours []int) []Step {
	if len(hours) == 0 {
		return nil
	}
	low, high := slices.Min(hours), slices.Max(hours)
	// Counting takes linear time if the range is not much wider than the data.
	if low < 0 || high > 8*len(hours)+1024 {
		return sortedSteps(hours)
	}
	count := make([]int, high+1)
	distinct := 0
	for _, u := range hours {
		if count[u] == 0 && u > 0 {
			distinct++
		}
		count[u]++
	}
	steps := make([]Step, 0, distinct)
	for u, n := range count {
		if n > 0 && u > 0 {
			steps = append(steps, Step{Units: u, Hours: n})
		}
	}
	return steps
}

func sortedSteps(hours []int) []Step {
	var steps []Step
	for _, u := range slices.Sorted(slices.Values(hours)) {
		switch n := len(steps); {
		case u == 0:
		case n > 0 && steps[n-1].Units == u:
			steps[n-1].Hours++
		default:
			steps = append(steps, Step{Units: u, Hours: 1})
		}
	}
	return steps
}
