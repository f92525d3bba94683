package app

import (
	"runtime/debug"
	"slices"
	"sync"
)

// sooner has what those want who need garbage to be collected sooner, and the percentage from before them. A server
// answers several at once, and the setting is the process's.
var sooner struct {
	sync.Mutex
	wanted []int
	was    int // negative: never
}

// collectSooner makes garbage be collected when it reaches a percentage of what is live, or the lowest that anybody wants
// at the same time, until the result is called.
func collectSooner(percent int) (restore func()) {
	sooner.Lock()
	defer sooner.Unlock()
	if sooner.wanted = append(sooner.wanted, percent); len(sooner.wanted) == 1 {
		sooner.was = debug.SetGCPercent(percent)
	}
	setCollection()
	return func() {
		sooner.Lock()
		defer sooner.Unlock()
		i := slices.Index(sooner.wanted, percent)
		sooner.wanted = slices.Delete(sooner.wanted, i, i+1)
		setCollection()
	}
}

// setCollection sets what sooner says.
func setCollection() {
	percent := sooner.was
	for _, p := range sooner.wanted {
		if percent < 0 || p < percent {
			percent = p
		}
	}
	debug.SetGCPercent(percent)
}
